"""What all inspectors share: the app, the mask of secrets, and the validation of arguments."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError
from henchman.inspector.entry import Entry, Mask
from henchman.store.procedure import BothWays
from henchman.store.queues import raw
from henchman.wire import times

__all__ = [
    "Inspector",
    "checked_entries",
    "checked_entry",
    "checked_id",
    "checked_name",
    "checked_page",
    "checked_text",
    "seconds",
]


class Inspector(BothWays):
    """Base of what reads and changes the stored jobs of an app for people. Attributes do no I/O."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._runtime = runtime
        self._keys = runtime.keys
        #: hides the arguments that registered jobs keep secret
        self._mask: Mask = runtime.registry.mask


def _shown(value: object) -> str:
    return f"{value!r:.100}"


def checked_text(call: str, text: object, meaning: str = "the id of a job, such as handle.jid") -> str:
    """``text`` if it is one; ``call`` is the name of the method, ``meaning`` what it wants."""
    if not isinstance(text, str):
        raise ArgumentError(f"{call}({_shown(text)}): give a text, {meaning}")
    return text


def checked_name(name: object) -> str:
    """The name of a queue."""
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"{name!r} is no name of a queue: it is a text")
    return name


def checked_id(one: object) -> bytes:
    """An id of an ordered queue, as the server has it."""
    if isinstance(one, bool) or not isinstance(one, str | int) or one == "":
        raise ArgumentError(f"{one!r} is no id: it is a text")
    return raw(str(one))


def checked_page(first: object, most: object) -> tuple[int, int]:
    """Where a page begins, and how long it is at most."""
    if not (_is_whole(first) and _is_whole(most)) or first < 0 or most < 1:  # type: ignore[operator]
        raise ArgumentError(
            f"page({_shown(first)}, {_shown(most)}): give two whole numbers, first is 0 or more, most is 1 or more"
        )
    return first, most  # type: ignore[return-value]


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def checked_entry(entry: object) -> Entry:
    """An entry that ``find``, ``page``, ``between`` or ``matching`` gave."""
    if not isinstance(entry, Entry):
        raise ArgumentError(f"{_shown(entry)} is no entry: find(jid), page() and matching(text) give entries")
    return entry


def checked_entries(entries: Entry | Iterable[Entry]) -> Iterable[Entry]:
    """One entry or several, each checked when it is reached."""
    if isinstance(entries, str | bytes | Mapping) or not isinstance(entries, Iterable):
        return [checked_entry(entries)]
    return map(checked_entry, entries)


def seconds(at: float | dt.datetime) -> float:
    """A time in Unix seconds; ArgumentError for anything but an aware datetime or Unix seconds."""
    if isinstance(at, dt.datetime):
        return times.seconds_of(at)
    if isinstance(at, bool) or not isinstance(at, int | float) or not -1e11 < at < 1e11:
        raise ArgumentError(f"{at!r} is no time: give an aware datetime or Unix seconds")
    return float(at)
