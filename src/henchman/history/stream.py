"""The history stream: its entries are read here, and reduced to rows of the tables.

The reducer is a pure function of the entries and of the last position given out. It merges several entries of one job
before the database sees them, and every entry passes through it: it is written for speed.

Nothing here raises, whatever an entry holds. Text that no database takes is changed until it fits; JSON that cannot be
read is kept under ``unreadable``. A NUL character becomes ``␀`` in plain text (PostgreSQL refuses it); JSON that is
kept (arguments, results, details) has it as ``\\u0000``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from henchman.config.settings import ENDED
from henchman.history.records import OF_BATCH
from henchman.history.schema import KEY, NAME, WORD, BatchRow, EventRow

__all__ = [
    "Entry",
    "Reducer",
    "Rows",
    "attempt_of",
    "fields_of",
    "host_of",
    "ident",
    "number_of",
    "order",
    "position_at",
    "unbundled",
    "word_of",
]

#: a stream id and field, value, field, value…
Entry = tuple[bytes, Sequence[bytes]]

_COMMON = 10  # fields and values before `d` of an entry for many jobs: k, b, s, a and w
_ENTRY_BITS, _PART_BITS = 10, 11  # of a position: entries of one millisecond, jobs of one entry
_LARGEST = 2**31 - 1  # that a column of whole numbers takes
_LAST_MS = (1 << 42) - (1 << 30)  # of a position: in the year 2109; an entry may have been given any id
_MOST_TEXT = 100_000  # characters that are kept of an unreadable detail
_ENDED = frozenset(ENDED)
_STATES = ("open", "closed", "complete")
_WHYS = ("aborted", "cancelled", "expired", "invalidated", "abandoned")
_NO_RUN = ("staged", "started")  # "endings" that end no run
_NONE = ""  # an error or result of an earlier run, taken away
_AS_WRITTEN = [b"k", b"j", b"b", b"s", b"a", b"w", b"d"]  # the fields of a job's entry, as the scripts write them
_ABSENT = msgspec.Raw(b"")


# --- entries ---------------------------------------------------------------------------------------------------------


def unbundled(entries: Iterable[Entry]) -> list[Entry]:
    """The same entries, each of one job (or batch, or message).

    A script that ends or pushes many jobs writes what they share once (``lua/lib/batch.lua``): ``k`` is ``jobs``, and
    ``d`` has a line ``jid detail`` for each. The parts of entry ``5-0`` are called ``5-0``, ``5-0.1``, ``5-0.2`` …: a
    position can stand between them, because a database may refuse one part and take the others.
    """
    return [part for one in entries for part in _parts(one)]


def _parts(entry: Entry) -> Iterator[Entry]:
    stream_id, flat = entry
    if len(flat) != _COMMON + 2 or flat[1] != b"jobs" or flat[_COMMON] != b"d":
        yield entry
        return
    common: Sequence[bytes] = flat[2:_COMMON]
    name = stream_id
    for number, line in enumerate(flat[_COMMON + 1].split(b"\n"), 1):
        jid, _, detail = line.partition(b" ")
        yield name, [b"k", b"job", b"j", jid, *common, b"d", detail]
        name = b"%s.%d" % (stream_id, number)


def fields_of(entry: Entry) -> dict[bytes, bytes]:
    """The fields of an entry by name."""
    return dict(zip(entry[1][::2], entry[1][1::2], strict=False))


def order(stream_id: bytes | str) -> tuple[int, int, int]:
    """The key that sorts entries and their parts."""
    text = stream_id.decode() if isinstance(stream_id, bytes) else stream_id
    ms, _, within = text.partition("-")
    entry, _, part = within.partition(".")
    return int(ms), int(entry or "0"), int(part or "0")


@lru_cache(1000)
def _of_whole(stream_id: bytes) -> tuple[int, float]:
    ms, _, within = stream_id.partition(b"-")
    number = min(int(ms), _LAST_MS) << _ENTRY_BITS | min(int(within or b"0"), (1 << _ENTRY_BITS) - 1)
    return number << _PART_BITS, int(ms) / 1000


def number_of(stream_id: bytes) -> tuple[int, float]:
    """The position that a stream id (or the name of a part of its entry, ``5-0.1``) stands for, and its time in Unix
    seconds."""
    whole, _, part = stream_id.partition(b".")
    number, at = _of_whole(whole)
    return (number | min(int(part), (1 << _PART_BITS) - 1) if part else number), at


def position_at(at: float) -> int:
    """The first position of a moment in Unix seconds."""
    return number_of(b"%d" % max(int(at * 1000), 0))[0]


# --- words that every database takes ---------------------------------------------------------------------------------


def _plain(text: str | None) -> str | None:
    return text if text is None or "\0" not in text else text.replace("\0", "␀")


def _cut(text: str, most: int) -> str:
    """Longer names keep their beginning; a digest tells them apart."""
    text = text.replace("\0", "␀")
    if len(text) <= most:
        return text
    return text[: most - 17] + "~" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def ident(text: bytes) -> str:
    """A jid or the id of a batch."""
    found = text.decode("utf-8", "replace")
    return found if len(found) <= KEY and "\0" not in found else _cut(found, KEY)


def _name(text: str | None) -> str | None:
    """The name of a class, queue, process or error."""
    return text if text is None or (len(text) <= NAME and "\0" not in text) else _cut(text, NAME)


@lru_cache(1000)
def _word(text: bytes) -> str:
    """A value that many entries share, such as a status or the name of a process."""
    return text.decode("utf-8", "replace").replace("\0", "␀")


@lru_cache(1000)
def word_of(status: bytes) -> str:
    """A status, as its column takes it."""
    return _word(status)[:WORD]


@lru_cache(1000)
def host_of(process: str) -> str:
    """The host of ``host:pid:nonce``."""
    return process.rsplit(":", 2)[0]


@lru_cache(1000)
def _batch(text: bytes) -> str | None:
    return ident(text) or None


@lru_cache(100)
def attempt_of(number: bytes) -> int | None:
    """Which run a change is about; None where the entry says none."""
    return int(number) if number.isdigit() and len(number) < 9 else None


@lru_cache(1000)
def _process(worker: bytes) -> str | None:
    return _name(_word(worker)) or None


def _json(raw: object) -> str | None:
    """JSON as text; None when it is absent."""
    return bytes(raw).decode() or None  # type: ignore[call-overload]


# --- details ---------------------------------------------------------------------------------------------------------


class Detail(msgspec.Struct, gc=False):
    """``d`` of an entry; absent fields are None or empty. JSON that is only kept stays JSON."""

    class_: str | None = msgspec.field(default=None, name="class")
    queue: str | None = None
    args: msgspec.Raw = _ABSENT
    kwargs: msgspec.Raw = _ABSENT
    tags: msgspec.Raw = _ABSENT
    reason: str | None = None
    error_class: str | None = None
    cause: str | None = None
    message: str | None = None
    traceback: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    started: float | None = None
    elapsed: float | None = None
    ending: str | None = None
    text: str | None = None  # of a message
    done: float | None = None  # of progress
    total: float | None = None
    description: str | None = None  # of a batch, and what follows
    parent: str | None = None
    expires: float | str | None = None
    generation: int | None = None
    counts: msgspec.Raw = _ABSENT


_NOTHING = Detail()
_decode = msgspec.json.Decoder(Detail).decode


def read_detail(text: bytes) -> tuple[Detail, str]:
    """``d`` and the same as JSON text to keep: empty when the columns of its row hold all of it."""
    if text == b"{}" or not text:
        return _NOTHING, ""
    try:
        detail = _decode(text)
        return detail, "" if _in_columns(text, detail) else text.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return _salvaged(text)


def _in_columns(text: bytes, detail: Detail) -> bool:
    """Whether it is a job's beginning, or says only how a run ended, when it began and how long it took: the quotation
    marks of these three fields are then all there are."""
    if detail.class_ is not None:
        return True
    known = (detail.started is not None) + (detail.elapsed is not None) + 2 * (detail.ending is not None)
    return text.count(b'"') == 2 * known and len(detail.ending or "") <= WORD


def _salvaged(text: bytes) -> tuple[Detail, str]:
    """As much as can be read of a malformed text."""
    try:
        values = json.loads(text.decode("utf-8", "replace"))
        if not isinstance(values, dict):
            raise ValueError
    except (ValueError, RecursionError):
        values = {"unreadable": text[:_MOST_TEXT].decode("utf-8", "replace")}
    kept = json.dumps(values)  # ASCII: half of a surrogate pair stays an escape
    found = Detail()
    for info in msgspec.structs.fields(Detail):
        value = values.get(info.encode_name)
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        if value is None:
            continue
        try:
            setattr(found, info.name, msgspec.json.decode(json.dumps(value).encode(), type=info.type))
        except (msgspec.MsgspecError, ValueError):
            continue  # it is in the detail that is kept
    return found, kept


# --- the reducer -----------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """The rows that one transaction writes; changes and messages as tuples in the order of their columns."""

    batches: dict[str, Any]
    events: dict[str, Any]
    changes: list[tuple[Any, ...]]
    messages: list[tuple[Any, ...]]


class Reducer:
    """Entries of one chunk become ``rows``; ``highest`` is the last position given out."""

    def __init__(self, highest: int) -> None:
        self.rows = Rows({}, {}, [], [])
        self.highest = highest

    def add(self, entry: Entry) -> None:
        """Take in the next entry; unknown kinds are left out."""
        stream_id, flat = entry
        number, at = number_of(stream_id)
        self.highest = sid = number if number > self.highest else self.highest + 1
        if flat[1] == b"job" and flat[::2] == _AS_WRITTEN:
            jid, batch, status, attempt, process, text = flat[3::2]
            self._job(sid, at, ident(jid), _batch(batch), word_of(status), attempt, process, text)
        else:
            self._other(sid, at, fields_of(entry))

    def _other(self, sid: int, at: float, fields: dict[bytes, bytes]) -> None:
        kind, batch, jid = fields.get(b"k"), _batch(fields.get(b"b", b"")), ident(fields.get(b"j", b""))
        status, text = word_of(fields.get(b"s", b"")), fields.get(b"d", b"")
        if kind == b"batch":
            if batch is not None:
                self._of_batch(sid, at, batch, status, text)
        elif not jid:
            return
        elif kind == b"job":
            self._job(sid, at, jid, batch, status, fields.get(b"a", b""), fields.get(b"w", b""), text)
        elif kind == b"log":
            said = _plain(read_detail(text)[0].text) or ""
            self.rows.messages.append((jid, sid, batch, at, said))
            self._event(sid, jid, batch)
        elif kind == b"progress":
            detail, _ = read_detail(text)
            event = self._event(sid, jid, batch)
            event.progress_done, event.progress_total = detail.done, detail.total

    def _event(self, sid: int, jid: str, batch: str | None) -> Any:
        event = self.rows.events.get(jid)
        if event is None:
            event = self.rows.events[jid] = EventRow(jid, batch, born=sid)
        event.changed = sid
        return event

    def _job(
        self, sid: int, at: float, jid: str, batch: str | None, status: str, number: bytes, worker: bytes, text: bytes
    ) -> None:
        detail, kept = read_detail(text)
        process = _process(worker)
        attempt = attempt_of(number)
        event = self.rows.events.get(jid) or self._event(sid, jid, batch)
        event.changed = sid
        event.status = status
        if attempt:
            event.attempts = attempt
        if detail.class_ is not None:
            _pushed(event, at, detail)
        elif detail.queue is not None:
            event.queue = _name(detail.queue)  # it was moved
        event.ended_at = at if status in _ENDED else 0.0
        started, ending = detail.started, _plain(detail.ending)
        if status == "working":
            event.started_at, event.process, event.host = at, process, process and host_of(process)
        elif ending not in _NO_RUN:
            _ended(event, detail)
            if started is not None:
                event.started_at = started
                if process is not None:
                    event.process, event.host = process, host_of(process)
        ended = ending and ending[:WORD]
        self.rows.changes.append((jid, sid, batch, status, attempt, process, at, kept, started, detail.elapsed, ended))

    def _of_batch(self, sid: int, at: float, batch: str, state: str, text: bytes) -> None:
        detail, kept = read_detail(text)
        row = self.rows.batches.setdefault(batch, BatchRow(batch))
        row.changed = sid
        if state in _STATES:
            row.state = state
        elif state in _WHYS:
            row.why = state
        if state == "open":
            row.created = at
        elif state == "closed":
            row.closed, row.completed = at, 0.0
        elif state == "complete":
            row.completed = at
        values = {
            "description": _plain(detail.description),
            "tags": _json(detail.tags),
            "parent": ident(detail.parent.encode()) if detail.parent else None,
            "expires": detail.expires if isinstance(detail.expires, float) else None,
            "generation": _whole(detail.generation),
            "total": _whole(detail.total),
            "counts": _json(detail.counts),
        }
        for column, value in values.items():
            if value is not None:
                setattr(row, column, value)
        self.rows.changes.append((OF_BATCH + batch, sid, batch, state, None, None, at, kept, None, None, None))


def _whole(number: float | None) -> int | None:
    """A number as its column takes it; what is too large stays in the detail alone."""
    return None if number is None or abs(number) > _LARGEST else int(number)


def _pushed(event: Any, at: float, detail: Detail) -> None:
    event.class_, event.queue = _name(detail.class_), _name(detail.queue)
    event.args = _json(detail.args)
    if detail.kwargs is not _ABSENT:
        event.kwargs = _json(detail.kwargs)
    if detail.tags is not _ABSENT:
        event.tags = _json(detail.tags)
    event.enqueued_at = at


def _ended(event: Any, detail: Detail) -> None:
    """A run ended, or a job that did not run."""
    if detail.error_class is not None or detail.message is not None or detail.reason is not None:
        event.error_class = _name(detail.error_class) or _NONE
        event.cause = (_plain(detail.cause) or _NONE)[:WORD]
        event.message = _plain(detail.message if detail.message is not None else detail.reason)
        event.traceback = _json(detail.traceback) or _NONE
    elif event.status == "finished":
        event.error_class = event.message = event.traceback = event.cause = _NONE
    if event.status in _ENDED:
        event.result = _NONE if detail.result is _ABSENT else _json(detail.result)
