"""What people did in the console: the last ten thousand acts, kept on the server, the newest first.

An act is written down before it is done, and once more with what became of it. A console that dies between the two
leaves the first line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from henchman.kernel.clock import ServerClock
from henchman.kernel.text import shorten
from henchman.store import operations
from henchman.store.call import Procedure, command, commands
from henchman.store.keys import Keys
from henchman.store.leases import ask_time

__all__ = ["MOST", "AuditEntry", "AuditPage", "audited", "begin", "end"]

MOST: Final = 10_000  # acts that are kept
_LONGEST: Final = 500  # characters of a name, and of what became of it


class AuditEntry(msgspec.Struct, frozen=True):
    """One act. ``at``: Unix seconds by the server; ``who``: the address it came from; ``act`` on ``page`` and
    ``names``. ``outcome``: "done", "refused", or "begun": nothing is known of its end; ``said``: what became of it;
    ``operation``: the number of the operation that it began."""

    at: float
    who: str
    act: str
    page: str
    names: list[str]
    outcome: str = "begun"
    said: str = ""
    operation: str = ""


class AuditPage(NamedTuple):
    """Some acts, the newest first, and how many there are."""

    entries: list[AuditEntry]
    total: int


def begin(keys: Keys, who: str, act: str, page: str, names: Sequence[str]) -> Procedure[AuditEntry]:
    """Write down that somebody is about to do something."""
    at: float = yield ask_time(ServerClock())
    entry = AuditEntry(at, shorten(who, 200), act, page, [shorten(one, _LONGEST) for one in names])
    yield operations.note_act(keys, msgspec.json.encode(entry), MOST)
    return entry


def end(keys: Keys, begun: AuditEntry, said: str, *, done: bool, operation: str = "") -> Procedure[AuditEntry]:
    """Write down what became of it, in place of its beginning."""
    outcome, text = "done" if done else "refused", shorten(said, _LONGEST)
    entry = msgspec.structs.replace(begun, outcome=outcome, said=text, operation=operation)
    yield operations.note_act(keys, msgspec.json.encode(entry), MOST, msgspec.json.encode(begun))
    return entry


def audited(keys: Keys, text: str, first: int, most: int) -> Procedure[AuditPage]:
    """Acts from place ``first`` on; those alone that have ``text`` in anything that is said of them, in any case."""
    if not text:
        rows, total = yield commands(
            ("LRANGE", keys.audit, first, first + most - 1), ("LLEN", keys.audit), decode=lambda replies: replies
        )
        return AuditPage(_entries(rows), int(total))
    rows = yield command("LRANGE", keys.audit, 0, MOST - 1, decode=list)
    wanted = text.lower()
    texts = [(one, " ".join((one.who, one.act, one.page, one.said, *one.names))) for one in _entries(rows)]
    found = [one for one, text in texts if wanted in text.lower()]
    return AuditPage(found[first : first + most], len(found))


def _entries(rows: Sequence[bytes]) -> list[AuditEntry]:
    found = []
    for row in rows:
        try:
            found.append(msgspec.json.decode(row, type=AuditEntry))
        except msgspec.MsgspecError:  # written by somebody else
            found.append(AuditEntry(0.0, "?", "?", "?", [], "begun", row.decode("utf-8", "replace")[:_LONGEST]))
    return found
