"""The kinds of limits, as definitions and pushes name them: ``limits=[Concurrent("bank", 50, by="tenant")]``.

What a limit is called and how large it is stands in Redis (``hm:limits``) from its first use on, and may be changed
there while jobs run: ``henchman limits set``. What stands here is what it begins with.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, Final

import msgspec

from henchman.errors import DefinitionError
from henchman.kernel.text import as_shown

__all__ = ["Bucket", "Concurrent", "Leaky", "Limit", "Points", "Window", "checked_limits", "checked_size", "valid_name"]

By = str | tuple[str, ...] | Callable[..., Any] | None
MOST: Final = 1_000_000  # of places, starts or points
LONGEST: Final = 366 * 86_400.0  # seconds
MOST_TOGETHER: Final = 8  # limits of one job
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class Limit(msgspec.Struct, frozen=True):
    """What all kinds have: ``name``, how many (``n``), and ``by``: a parameter's name, several, or a function of the
    arguments; each value has a limit of its own. DefinitionError names a value that cannot be."""

    kind: ClassVar[str] = ""  # a letter: how payloads and scripts call it
    word: ClassVar[str] = ""

    name: str
    n: int

    def __post_init__(self) -> None:
        if not valid_name(self.name):
            raise self._wrong("name", self.name, "a limit is named by 1 to 100 letters, digits and _ . -")
        if (problem := checked_size(self.kind, self.n)) is not None:
            raise self._wrong("n", self.n, problem)
        by = self.partition
        many = by if isinstance(by, tuple) else (by,)
        if by is not None and not callable(by) and not (by != () and all(isinstance(one, str) and one for one in many)):
            due = "give the name of a parameter, a tuple of names, or a function of the arguments"
            raise self._wrong("by", by, due)

    @property
    def partition(self) -> By:
        """``by``, which each kind has as its last parameter."""
        by: By = getattr(self, "by", None)
        return by

    @property
    def seconds(self) -> float:
        """The time that ``n`` is about; 0 for places."""
        per = getattr(self, "per", 0.0)
        return per.total_seconds() if isinstance(per, timedelta) else float(per)

    @property
    def cost(self) -> int:
        """How much of it one start takes."""
        return int(getattr(self, "estimate", 1))

    def said(self, by: str) -> list[Any]:
        """How a payload says it: kind, name, whose, how many, in how many seconds, what one start takes."""
        return [self.kind, self.name, by, self.n, self.seconds, self.cost]

    def _wrong(self, what: str, value: object, due: str) -> DefinitionError:
        return DefinitionError(f"{type(self).__name__}({what}={as_shown(value, 200)}): {due}")

    def _check_time(self) -> None:
        per: Any = getattr(self, "per", None)
        fine = isinstance(per, (int, float, timedelta)) and not isinstance(per, bool)
        if not fine or not 0.001 <= self.seconds <= LONGEST:
            raise self._wrong("per", per, "give seconds or a timedelta, from 0.001 s to 366 days")


class Concurrent(Limit, frozen=True):
    """At most ``n`` run at once. A job has its place from its start to its end, whatever becomes of its process."""

    kind: ClassVar[str] = "c"
    word: ClassVar[str] = "concurrent"
    by: By = None


class _InTime(Limit, frozen=True):
    per: float | timedelta
    by: By = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_time()


class Leaky(_InTime, frozen=True):
    """``n`` may start at once, and ``n / per`` a second after that, evenly."""

    kind: ClassVar[str] = "l"
    word: ClassVar[str] = "leaky"


class Window(_InTime, frozen=True):
    """At most ``n`` start in any ``per`` seconds."""

    kind: ClassVar[str] = "w"
    word: ClassVar[str] = "window"


class Bucket(_InTime, frozen=True):
    """At most ``n`` start in each ``per`` seconds of the clock: each minute, each hour in UTC."""

    kind: ClassVar[str] = "b"
    word: ClassVar[str] = "bucket"


class Points(_InTime, frozen=True):
    """``n`` points, which come back evenly in ``per`` seconds. A start takes ``estimate`` of them, and
    ``current_job().spent(points)`` says at the end what it was."""

    kind: ClassVar[str] = "p"
    word: ClassVar[str] = "points"
    estimate: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.estimate) is not int or not 0 <= self.estimate <= self.n:
            raise self._wrong("estimate", self.estimate, f"give points from 0 to {self.n:,}, which is all there are")


def valid_name(name: object) -> bool:
    """Whether a limit may be called so."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def checked_size(kind: str, n: object) -> str | None:
    """Why a limit of this kind cannot be so large; None where it can. No places at all are a way to hold jobs up."""
    least = 0 if kind == "c" else 1
    if type(n) is int and least <= n <= MOST:
        return None
    return f"give a number from {least} to {MOST:,}"


def checked_limits(name: str, value: Any) -> tuple[Limit, ...]:
    """The option ``limits``: one limit or several, each name once."""
    many = (value,) if isinstance(value, Limit) else value
    if not isinstance(many, (list, tuple)) or not all(isinstance(one, Limit) and one.kind for one in many):
        kinds = "Concurrent, Leaky, Window, Bucket or Points"
        raise DefinitionError(f"{name}={as_shown(value, 200)}: give a list of limits, each a {kinds}")
    if len(many) > MOST_TOGETHER:
        raise DefinitionError(f"{name}: {len(many)} limits on one job; give at most {MOST_TOGETHER}")
    names = [one.name for one in many]
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise DefinitionError(f"{name}: {twice!r} is there twice; a job takes one place of a limit: give each its name")
    return tuple(many)
