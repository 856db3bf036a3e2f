"""The settings of the record in SQL, and whether there is one: asked by the pushing side too, so nothing heavy here."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from henchman.config import sources
from henchman.config.sources import Kind, Layer
from henchman.config.sources import key as _key
from henchman.kernel.text import did_you_mean, mask_url, visible

__all__ = ["ENDED", "HistorySettings"]

#: the statuses in which a job ends; only these are forgotten by age
ENDED: Final = ("finished", "failed", "error", "cancelled", "expired")
FILE = "history.sqlite"
_CENTURY = 100 * 365 * 86400.0
_MB = 1024 * 1024
_SCHEMES = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")
_DUE = "an address such as postgresql://user@host/name (or mysql://, mariadb://, sqlite:///path/to/file)"


def _database() -> Kind:
    """The address of a database; its password is never shown."""

    def read(value: Any, layer: Layer) -> str:
        if not isinstance(value, str):
            raise ValueError(_DUE)
        scheme, found, rest = value.strip().partition("://")
        product = scheme.lower().partition("+")[0]
        if not found or not rest or product not in _SCHEMES:
            raise ValueError(_DUE + (did_you_mean(product, _SCHEMES) if found else ""))
        return value.strip()

    return Kind(read, hide=lambda value: visible(mask_url(value)))


def _bytes(low: int, high: int) -> Kind:
    """A number of bytes, or text such as "256MB"; kept as bytes."""

    def read(value: Any, layer: Layer) -> int:
        if isinstance(value, str) and (match := re.fullmatch(r"(?i)([0-9]+(?:\.[0-9]+)?) ?(MB|GB|M|G|B)?", value)):
            unit = {"m": _MB, "g": 1024 * _MB}.get((match[2] or "b")[0].lower(), 1)
            value = int(float(match[1]) * unit)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f'bytes from {low:,} to {high:,}, or text such as "256MB" or "1.5GB"')
        return value

    return Kind(read, unit=" bytes")


def _durations(names: tuple[str, ...], high: float) -> Kind:
    """Seconds by name: ``{"finished": 604800}``; in the environment ``finished=604800,error=2592000``."""
    one = sources.seconds(0, high)

    def read(value: Any, layer: Layer) -> dict[str, float]:
        if layer.text:
            pairs = (part.partition("=") for part in value.split(",") if part.strip())
            value = {name.strip(): seconds.strip() for name, _, seconds in pairs}
        if not isinstance(value, Mapping):
            raise ValueError(f"seconds by status, such as {{finished = 604800}}; statuses are {', '.join(names)}")
        for name in value:
            if name not in names:
                raise ValueError(f"by status, of {', '.join(names)}{did_you_mean(str(name), names)}")
        return {str(name): float(one.read(given, layer)) for name, given in value.items()}  # type: ignore[arg-type]

    return Kind(read, unit=" s")


@dataclass(frozen=True, repr=False)
class HistorySettings:
    """The half of ``Config`` that speaks of history."""

    database_url: str | None = _key(
        None,
        _database(),
        "Where history is kept: postgresql://, mysql://, mariadb:// or sqlite:///. Not set: beside the embedded "
        "server, else nowhere.",
    )
    history: Literal["on", "best_effort", "off"] = _key(
        "on",
        sources.choice("on", "best_effort", "off"),
        "Whether tracked jobs are recorded in SQL, where a database is known. When the stream is full, on refuses "
        "tracked pushes, best_effort leaves them out of history.",
    )
    history_bytes: int = _key(
        256 * _MB,
        _bytes(_MB, 1024 * 1024 * _MB),
        'Most bytes that wait on the server to be recorded, such as "256MB".',
    )
    history_keep: float = _key(
        180 * 86400.0, sources.seconds(0, _CENTURY), "How long the record keeps a job that has ended."
    )
    history_keep_status: Mapping[str, float] = _key(
        {}, _durations(ENDED, _CENTURY), "The same by status, such as {finished = 604800}; the rest as history_keep."
    )

    def history_url(self) -> str | None:
        """The address of the database to record into; None when history is off."""
        return None if self.why_history_is_off() else self._address()

    def history_kept(self) -> str:
        """How the scripts are to keep history: ``strict`` or ``best_effort``, and bytes; empty when it is off."""
        if self.history_url() is None:
            return ""
        return f"{'best_effort' if self.history == 'best_effort' else 'strict'} {self.history_bytes}"

    def why_history_is_off(self) -> str:
        """Empty when history is on; else the reason and how to turn it on. Reads no file and opens nothing."""
        if self.history == "off":
            return 'history is off: history = "off"'
        address = self._address()
        if address is None:
            return "history is off: set database_url (postgresql://, mysql://, mariadb:// or sqlite:///) to turn it on"
        if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("alembic") is None:
            return f"history is off: {mask_url(address)} needs SQLAlchemy and Alembic (pip install 'henchman[sql]')"
        return ""

    def _address(self) -> str | None:
        if self.database_url is not None:
            return self.database_url
        settings: Any = self  # a Config: which server there is stands in its other half
        if settings.redis_url is not None or not settings.embedded:
            return None
        folder: Path = settings.server_folder()
        return f"sqlite:///{folder / FILE}"
