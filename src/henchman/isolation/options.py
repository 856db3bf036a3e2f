"""What a definition says of the process that its runs get: ``isolate=True`` or ``isolate=Isolated(memory="512MB")``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from henchman.config.sources import Layer, amount
from henchman.errors import DefinitionError
from henchman.kernel.text import as_shown

__all__ = ["Isolated", "isolated"]

_MEMORY: Final = amount(64, 16 * 1024**2, megabytes=True)
_NOWHERE: Final = Layer({}, {}, Path())
MOST_REUSE: Final = 1_000_000
MOST_GRACE: Final = 3600.0


class Isolated(msgspec.Struct, frozen=True):
    """How a job is isolated. DefinitionError names a value that cannot be.

    ``memory``: how much its process may allocate, MB or text such as "512MB"; None: what the setting
    ``isolated_memory`` says. ``reuse``: after so many runs the process is replaced; 1: each run has one of its own.
    ``grace``: seconds between ``JobTimeout`` inside and the kill; the same after a cancellation.
    """

    memory: int | str | None = None
    reuse: int = 100
    grace: float = 2.0

    def __post_init__(self) -> None:
        if self.memory is not None:
            self._megabytes(self.memory)
        if type(self.reuse) is not int or not 1 <= self.reuse <= MOST_REUSE:
            raise _wrong("reuse", self.reuse, f"give a number of runs from 1 to {MOST_REUSE:,}")
        if type(self.grace) not in (int, float) or not 0 <= self.grace <= MOST_GRACE:
            raise _wrong("grace", self.grace, f"give seconds from 0 to {MOST_GRACE:g}")

    @property
    def megabytes(self) -> int | None:
        """``memory`` in MB; None when the definition does not say."""
        return None if self.memory is None else self._megabytes(self.memory)

    @staticmethod
    def _megabytes(value: int | str) -> int:
        try:
            megabytes: Any = _MEMORY.read(value, _NOWHERE)
        except ValueError as error:
            raise _wrong("memory", value, f"give {error}") from None
        return int(megabytes)


def isolated(name: str, value: Any) -> Isolated | None:
    """The option ``isolate``, checked; None: in the worker itself."""
    if isinstance(value, Isolated):
        return value
    if not isinstance(value, bool):
        raise DefinitionError(
            f"{name}={as_shown(value, 200)}: give True, False or Isolated(memory=…, reuse=…, grace=…)"
        )
    return Isolated() if value else None


def _wrong(name: str, value: object, due: str) -> DefinitionError:
    return DefinitionError(f"Isolated({name}={as_shown(value, 200)}): {due}")
