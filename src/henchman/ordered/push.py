"""The push of an ordered queue: payload → entry → middleware → partition → server.

What it does not promise: a push whose answer was not read may have happened (ServerAway with ``executed=None``). It is
never sent again and never buffered; whether sending it once more does harm, the caller knows: with ``collapse="min"``
an equal payload that still waits merges.
"""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from zlib import crc32

import msgspec

from henchman.client.rows import each_row, tell_pushed
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, DefinitionError
from henchman.kernel.text import as_shown, did_you_mean, shorten
from henchman.store import ordered
from henchman.store.call import Call, Procedure, arun, run
from henchman.store.ordered import MOST_IDS, Push, RecordHead
from henchman.wire import jsontext
from henchman.wire.annotations import Compiler
from henchman.wire.arguments import MAX_BYTES
from henchman.wire.jsontext import EncodeError

__all__ = ["OrderedPush", "OrderedPushed", "Payloads", "PushEntry", "Pusher", "Reader", "partition"]

CHUNK_BYTES = 4_000_000


class OrderedPush(msgspec.Struct, frozen=True):
    """What became of a push. ``created``: nothing waited under ``id`` before; ``stopped``: by a client middleware.
    ``jid``: that of its record in history, where the queue is tracked.
    """

    id: str
    queue: str
    created: bool
    stopped: bool = False
    jid: str | None = None


class OrderedPushed(msgspec.Struct, frozen=True):
    """What became of a bulk push: ``count`` rows read, of which a client middleware stopped ``stopped``; ``created``
    ids had nothing waiting before.
    """

    count: int
    created: int
    stopped: int = 0


def partition(queues: tuple[str, ...], id: str) -> str:
    """The queue of ``id``: CRC32 decides, as in Lowkiq."""
    return queues[crc32(id.encode()) % len(queues)] if len(queues) > 1 else queues[0]


class Pusher:
    """Pushes of one definition. ``tracked``: each payload gets a record in history."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        queues: tuple[str, ...],
        collapse: str,
        reader: Reader,
        *,
        tracked: bool = False,
    ) -> None:
        self._runtime = runtime
        self._name = name
        self._queues = queues
        self._collapse = collapse
        self._reader = reader
        self._tracked = tracked  # by the definition, or because the server refused a push without records
        self._keep: str | None = None

    def push(self, entry: PushEntry) -> OrderedPush:
        """Push one: directly, the driver of procedures would cost 5 % of it."""
        through = self._through([entry])
        if not through:
            return self._stopped(entry)
        queue = partition(self._queues, through[0].id)
        while True:
            call, head = self._call(queue, through)
            try:
                return _pushed(through[0].id, queue, self._runtime.connections.run(call), head)
            except ordered.QueueTracked:
                self._tracked = True

    async def apush(self, entry: PushEntry) -> OrderedPush:
        """``push``, awaited."""
        through = await self._athrough([entry])
        if not through:
            return self._stopped(entry)
        queue = partition(self._queues, through[0].id)
        while True:
            call, head = self._call(queue, through)
            try:
                return _pushed(through[0].id, queue, await self._runtime.aconnections.run(call), head)
            except ordered.QueueTracked:
                self._tracked = True

    def push_many(self, rows: Iterable[Any]) -> OrderedPushed:
        """Push each row, a round trip a queue for each chunk."""
        bulk = _Bulk(self._reader, self._name, MOST_IDS * len(self._queues))
        try:
            for row in each_row(rows, f"{self._name}.push_many"):
                if bulk.add(row):
                    run(self._runtime.connections, self._flush(bulk, self._through(bulk.entries)))
            if bulk.entries:
                run(self._runtime.connections, self._flush(bulk, self._through(bulk.entries)))
        except Exception as error:
            tell_pushed(error, bulk.count)
            raise
        return bulk.result

    async def apush_many(self, rows: Iterable[Any] | AsyncIterable[Any]) -> OrderedPushed:
        """``push_many``, awaited."""
        bulk = _Bulk(self._reader, self._name, MOST_IDS * len(self._queues))
        try:
            async for row in _each(rows, f"{self._name}.apush_many"):
                if bulk.add(row):
                    await arun(self._runtime.aconnections, self._flush(bulk, await self._athrough(bulk.entries)))
            if bulk.entries:
                await arun(self._runtime.aconnections, self._flush(bulk, await self._athrough(bulk.entries)))
        except Exception as error:
            tell_pushed(error, bulk.count)
            raise
        return bulk.result

    def _flush(self, bulk: _Bulk, let_through: list[PushEntry]) -> Procedure[None]:
        """Push a chunk: up to ``MOST_IDS`` entries of one queue at a time, in their order."""
        by_queue: dict[str, list[PushEntry]] = {}
        for entry in let_through:
            by_queue.setdefault(partition(self._queues, entry.id), []).append(entry)
        for queue, mine in by_queue.items():
            for start in range(0, len(mine), MOST_IDS):
                bulk.created += yield from self._send(queue, mine[start : start + MOST_IDS])
        bulk.flushed(len(let_through))

    def _send(self, queue: str, entries: list[PushEntry]) -> Procedure[int]:
        """Push these; how many ids had nothing waiting."""
        created: int
        try:
            created = yield self._call(queue, entries)[0]
        except ordered.QueueTracked:
            self._tracked = True
            created = yield self._call(queue, entries)[0]
        return created

    def _call(self, queue: str, entries: list[PushEntry]) -> tuple[Call[int], RecordHead | None]:
        """The call that pushes these, and what their records begin with, where the queue is tracked."""
        keys, rows, head = self._runtime.keys, [entry.row() for entry in entries], None
        if not self._tracked:
            call = ordered.push(keys, queue, self._collapse, rows)
        else:
            if self._keep is None:
                self._keep = self._runtime.config.history_kept()
            head = RecordHead(self._name, os.urandom(9).hex(), self._keep)
            call = ordered.push_tracked(keys, queue, self._collapse, head, rows)
        return self._runtime.client.confirmed(call, lambda: [entry.id for entry in entries]), head

    def _stopped(self, entry: PushEntry) -> OrderedPush:
        return OrderedPush(entry.id, partition(self._queues, entry.id), False, stopped=True)

    def _through(self, entries: list[PushEntry]) -> list[PushEntry]:
        """``entries`` as the client middleware lets them through."""
        if not self._runtime.client_middleware.links:
            return entries
        return [self._back(job) for job in self._runtime.client.through(map(self._job, entries))]

    async def _athrough(self, entries: list[PushEntry]) -> list[PushEntry]:
        if not self._runtime.client_middleware.links:
            return entries
        return [self._back(job) for job in await self._runtime.client.athrough(map(self._job, entries))]

    def _job(self, entry: PushEntry) -> dict[str, Any]:
        """The push as the client middleware sees it."""
        return {
            "class": self._name,
            "queue": partition(self._queues, entry.id),
            "args": [jsontext.loads(entry.payload)],
            "id": entry.id,
            "score": entry.score,
            "at": entry.at,
            "delay": entry.delay,
            "ordered": True,
        }

    def _back(self, job: Mapping[str, Any]) -> PushEntry:
        if job.get("class") != self._name or job.get("queue") not in self._queues:
            raise ArgumentError(
                f"a client middleware set class or queue of an ordered push to {job.get('class')!r}, "
                f"{job.get('queue')!r}; it may change id, args, score, at and delay"
            )
        return self._reader.again(job)


def _pushed(id: str, queue: str, created: int, head: RecordHead | None) -> OrderedPush:
    return OrderedPush(id, queue, created == 1, jid=None if head is None else head.jid(1))


class _Bulk:
    """A bulk push under way: the rows of the next chunk (up to ``most``, or 4 MB), and what became of earlier ones."""

    def __init__(self, reader: Reader, name: str, most: int) -> None:
        self._reader = reader
        self._name = name
        self._most = most
        self._size = 0
        self._problem: ArgumentError | None = None
        self.entries: list[PushEntry] = []
        self.count = self.created = self.stopped = 0

    @property
    def result(self) -> OrderedPushed:
        return OrderedPushed(self.count, self.created, self.stopped)

    def add(self, row: Any) -> bool:
        """Whether the chunk is to be pushed now: it is full, or ``row`` cannot be sent (``flushed`` raises then)."""
        try:
            entry = self._reader.row(row)
        except ArgumentError as error:
            number = self.count + len(self.entries)
            self._problem = ArgumentError(f"row {number} of {self._name}.push_many: {error}")
            self._problem.__cause__ = error
            return True
        self.entries.append(entry)
        self._size += len(entry.payload) + len(entry.id)
        return len(self.entries) >= self._most or self._size >= CHUNK_BYTES

    def flushed(self, let_through: int) -> None:
        """The chunk was pushed, ``let_through`` of its entries; ArgumentError when the row after it cannot be sent."""
        self.count += len(self.entries)
        self.stopped += len(self.entries) - let_through
        self.entries, self._size = [], 0
        if self._problem is not None:
            raise self._problem


async def _each(rows: Iterable[Any] | AsyncIterable[Any], where: str) -> AsyncIterator[Any]:
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in each_row(rows, where):
            yield row


# --- one push: an id, a payload, a score and a time, checked, from whatever form it is given in ----------------------

ID_MOST: Final = 512  # characters
_TOO_LONG: Final = 10**ID_MOST
SCORE_MOST: Final = 2**53  # the server keeps scores as doubles: from here on whole numbers fall together
_LATEST: Final = 1e10  # seconds, the year 2286; milliseconds are beyond it
_FIELDS: Final = ("id", "payload", "score", "at", "delay")
_DERIVED: Final = ("id", "score", "at", "delay")


class PushEntry(NamedTuple):
    """One payload on its way. ``at``: Unix time; ``delay``: seconds from the server's now; no ``score``: that now."""

    id: str
    payload: bytes
    score: float | None
    at: float | None
    delay: float | None

    def row(self) -> Push:
        """As the script takes it."""
        when = f"+{self.delay:.6f}" if self.delay else ""
        if self.at is not None:
            when = f"{self.at:.6f}"
        return Push(self.id.encode(), when, "" if self.score is None else repr(self.score), self.payload)


class Reader:
    """Makes entries for one definition. ArgumentError says what is wrong with a value, and the way out."""

    def __init__(self, name: str, payloads: Payloads, derive: Callable[[Any], Any] | None) -> None:
        self._name = name
        self._payloads = payloads
        self._derive = derive

    def entry(self, id: Any, payload: Any, score: Any = None, at: Any = None, delay: Any = None) -> PushEntry:
        """One push as ``push(id, payload)`` gives it: ``at`` is a datetime."""
        if at is not None and not isinstance(at, datetime):  # a number is too easily milliseconds
            raise ArgumentError(f"at={as_shown(at, 80)}: give a datetime with a time zone (or delay= for seconds)")
        return _entry(_id(id), self._payloads.encode(payload), score, at, delay)

    def derived(self, payload: Any, arguments: Mapping[str, Any]) -> PushEntry:
        """One push of a payload alone; what ``arguments`` say goes before what is derived."""
        asked = self._asked(payload)
        given = {name: value for name, value in arguments.items() if value is not None}
        if "at" in given or "delay" in given:
            asked = {name: value for name, value in asked.items() if name not in ("at", "delay")}
        whole = {**asked, **given}
        if "id" not in whole:
            raise ArgumentError(f"{self._name}: derive gave no id for the payload {as_shown(payload, 80)}")
        return self._of_mapping(whole, payload)

    def row(self, row: Any) -> PushEntry:
        """One row of a bulk push; with ``derive`` a row is a payload."""
        if self._derive is not None:
            return self.derived(row, {})
        if isinstance(row, tuple):
            if not 2 <= len(row) <= 3:
                raise ArgumentError(f"a tuple of {len(row)}; give (id, payload) or (id, payload, score)")
            return self.entry(*row)
        if not isinstance(row, Mapping):
            raise ArgumentError(
                f"{type(row).__name__} {as_shown(row, 80)}; give a dict with id and payload, or a tuple "
                "(id, payload, score)"
            )
        _known(row, _FIELDS)
        if "id" not in row:
            raise ArgumentError(f"it has no id, only {', '.join(map(repr, row)) or 'nothing'}")
        return self._of_mapping(row, row.get("payload", ""))

    def again(self, job: Mapping[str, Any]) -> PushEntry:
        """The entry as the client middleware left it, all in JSON's own types."""
        args = job.get("args")
        if not isinstance(args, list) or len(args) != 1:
            raise ArgumentError(
                f"a client middleware set args of an ordered push to {as_shown(args, 80)}; it is [payload]"
            )
        id = _id(job.get("id"))
        return _entry(id, _PLAIN.encode(args[0]), job.get("score"), job.get("at"), job.get("delay"))

    def _of_mapping(self, row: Mapping[str, Any], payload: Any) -> PushEntry:
        id = _id(row["id"])
        return _entry(id, self._payloads.encode(payload), row.get("score"), row.get("at"), row.get("delay"))

    def _asked(self, payload: Any) -> Mapping[str, Any]:
        assert self._derive is not None  # noqa: S101 - only a definition that has it comes here
        try:
            answer = self._derive(payload)
        except Exception as error:
            raise ArgumentError(
                f"{self._name}: derive raised {type(error).__name__}: {error} for the payload {as_shown(payload, 80)}"
            ) from error
        if isinstance(answer, Mapping):
            _known(answer, _DERIVED)
            return answer
        return {"id": answer}


def _entry(id: str, payload: bytes, score: Any, at: Any, delay: Any) -> PushEntry:
    if at is not None and delay is not None:
        raise ArgumentError("give at= or delay=, not both")
    return PushEntry(id, payload, _score(score), _time(at), _delay(delay))


def _known(given: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    for name in given:
        if name not in fields:
            near = did_you_mean(name, fields) if isinstance(name, str) else ""
            raise ArgumentError(f"there is no field {name!r} of a push, only {', '.join(fields)}{near}")


def _id(id: Any) -> str:
    """An id as its text: ``42`` and ``"42"`` are one id."""
    if isinstance(id, int) and not isinstance(id, bool):
        if not -_TOO_LONG < id < _TOO_LONG:
            raise ArgumentError(f"id is a number of more than {ID_MOST} digits")
        return str(int(id))
    if not isinstance(id, str):
        raise ArgumentError(f"id={as_shown(id, 80)}: an id is a text or a whole number; give str(…) of anything else")
    if not 1 <= len(id) <= ID_MOST:
        raise ArgumentError(f"id={shorten(id, 80)!r}: an id has 1 to {ID_MOST} characters, this one has {len(id)}")
    try:
        id.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(
            f"id={as_shown(id, 80)} has a lone surrogate at character {error.start}: it is not text"
        ) from None
    return str.__str__(id)


def _score(score: Any) -> float | None:
    if score is None:
        return None
    if isinstance(score, int) and not isinstance(score, bool):
        if not -SCORE_MOST <= score <= SCORE_MOST:
            raise ArgumentError(
                f"score={shorten(str(score) if abs(score) < 10**80 else 'a huge number', 80)}: whole numbers are exact "
                "up to 2**53 only; count from a later start, or give float(score) if neighbours may fall together"
            )
        return int(score)
    if isinstance(score, float):
        if not math.isfinite(score):
            raise ArgumentError(f"score={score!r}: give a finite number")
        return float(score)
    way = "; give its .timestamp()" if isinstance(score, datetime) else ", or leave it out: then it is the time"
    raise ArgumentError(f"score={as_shown(score, 80)}: a score is an int or a float{way}")


def _time(at: Any) -> float | None:
    """A moment as Unix seconds."""
    if at is None:
        return None
    if isinstance(at, datetime):
        if at.utcoffset() is None:
            raise ArgumentError(f"at={at!r}: this datetime has no time zone; add one, as in datetime.now(UTC)")
        return max(at.timestamp(), 0.0)  # before 1970 is as due as 1970
    if isinstance(at, bool) or not isinstance(at, int | float):
        raise ArgumentError(f"at={as_shown(at, 80)}: give a datetime with a time zone, or Unix seconds")
    if not 0 <= at < _LATEST:
        raise ArgumentError(
            f"at={as_shown(at, 80)}: Unix seconds are due, below 10,000,000,000; are these milliseconds?"
        )
    return float(at)


def _delay(delay: Any) -> float | None:
    if delay is None:
        return None
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < _LATEST:
        raise ArgumentError(
            f"delay={as_shown(delay, 80)}: give seconds or a timedelta, from zero to 10,000,000,000 seconds"
        )
    return float(seconds)


# --- payloads, out and in: canonical JSON, so that equal payloads have equal bytes and merge (1 and 1.0 differ) -------


class Payloads:
    """How payloads travel. ``annotation``: the type of one payload, ``Any`` where it is plain JSON."""

    def __init__(self, name: str, parameter: str, annotation: Any) -> None:
        self.name = name
        self.parameter = parameter
        try:
            codec = Compiler().codec(annotation)
        except DefinitionError as error:
            raise DefinitionError(f"{name}: parameter {parameter!r}: {error}") from None
        self._encode = codec.encode
        self._decode = codec.decode

    def encode(self, payload: Any) -> bytes:
        """``payload`` as text; ArgumentError names the place of what cannot be sent."""
        try:
            text = jsontext.canonical(payload if self._encode is None else self._encode(payload))
        except EncodeError as misfit:
            raise ArgumentError(misfit.text("payload")) from None
        except RecursionError:
            raise ArgumentError(f"payload is nested deeper than {jsontext.MAX_DEPTH} levels") from None
        if len(text) > MAX_BYTES:
            raise ArgumentError(
                f"{self.name}: the payload takes {len(text):,} bytes, more than {MAX_BYTES:,}; "
                "keep large data in a file or table and send its name"
            )
        return text

    def decode(self, id: str, raw: list[bytes]) -> list[Any]:
        """The payloads of one id, rebuilt as annotated; ArgumentError names the id and the place."""
        decode, payloads = self._decode, []
        for index, text in enumerate(raw):
            try:
                payload = read(text)
                payloads.append(payload if decode is None else decode(payload))
            except EncodeError as misfit:
                raise ArgumentError(misfit.text(f"{self.parameter}[{shorten(id, 100)!r}][{index}]")) from None
            except RecursionError:
                place = f"{self.parameter}[{shorten(id, 100)!r}][{index}]"
                raise ArgumentError(f"{place} is nested too deep to be read") from None
        return payloads


def read(text: bytes) -> Any:
    """What stands in a stored payload; EncodeError when that is not JSON."""
    try:
        return jsontext.loads(text)
    except msgspec.ValidationError:
        try:
            return jsontext.loads_slowly(text)
        except ValueError as error:
            raise EncodeError(" holds a number that cannot be read", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EncodeError(" is not JSON", f"{error}; it begins {text[:40]!r}") from None


_PLAIN = Payloads("ordered", "claim", Any)
