"""The push of an ordered queue: entry → middleware → partition → server. One call of one definition, sync and async.

What it does not promise: a push whose answer was not read may have happened (ServerAway with ``executed=None``). It is
never sent again and never buffered; whether sending it once more does harm, the caller knows: with ``collapse="min"``
an equal payload that still waits merges.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Protocol
from zlib import crc32

import msgspec

from henchman.client.push import Client
from henchman.client.registry import Registry
from henchman.config import Config
from henchman.errors import ArgumentError
from henchman.kernel.middleware import Chain
from henchman.ordered.entry import Entry, Reader
from henchman.store import ordered, ordered_born
from henchman.store.call import AsyncRunner, Call, Runner
from henchman.store.keys import Keys
from henchman.store.ordered import MOST_IDS
from henchman.store.ordered_born import Born
from henchman.wire import jsontext

__all__ = ["Home", "OrderedPush", "OrderedPushed", "Pusher", "partition"]

CHUNK_BYTES = 4_000_000


class Home(Protocol):
    """The app, as far as ordered queues are concerned."""

    @property
    def client(self) -> Client: ...
    @property
    def client_middleware(self) -> Chain: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def config(self) -> Config: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def connections(self) -> Runner: ...
    @property
    def aconnections(self) -> AsyncRunner: ...


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
        self, home: Home, name: str, queues: tuple[str, ...], collapse: str, reader: Reader, *, tracked: bool = False
    ) -> None:
        self._home = home
        self._name = name
        self._queues = queues
        self._collapse = collapse
        self._reader = reader
        self._tracked = tracked  # or because the server said so
        self._keep: str | None = None

    def push(self, entry: Entry) -> OrderedPush:
        """Push one."""
        kept = self._through([entry]) if len(self._home.client_middleware) else [entry]
        if not kept:
            return self._stopped(entry)
        queue = partition(self._queues, kept[0].id)
        created, born = self._sent(queue, kept)
        return OrderedPush(kept[0].id, queue, created == 1, jid=None if born is None else born.jid(1))

    async def apush(self, entry: Entry) -> OrderedPush:
        """``push``, awaited."""
        kept = await self._athrough([entry]) if len(self._home.client_middleware) else [entry]
        if not kept:
            return self._stopped(entry)
        queue = partition(self._queues, kept[0].id)
        created, born = await self._asent(queue, kept)
        return OrderedPush(kept[0].id, queue, created == 1, jid=None if born is None else born.jid(1))

    def push_many(self, rows: Iterable[Any]) -> OrderedPushed:
        """Push each row, a round trip a queue for each chunk."""
        count = created = passed = 0
        chunk = self._chunk()
        for entries in chunk.filled(rows):
            kept = self._through(entries) if len(self._home.client_middleware) else entries
            for queue, some in self._dealt(kept):
                created += self._sent(queue, some)[0]
            count += len(entries)
            passed += len(kept)
        return OrderedPushed(count, created, count - passed)

    async def apush_many(self, rows: Iterable[Any] | AsyncIterable[Any]) -> OrderedPushed:
        """``push_many``, awaited."""
        count = created = passed = 0
        chunk = self._chunk()
        async for entries in chunk.afilled(rows):
            kept = await self._athrough(entries) if len(self._home.client_middleware) else entries
            for queue, some in self._dealt(kept):
                created += (await self._asent(queue, some))[0]
            count += len(entries)
            passed += len(kept)
        return OrderedPushed(count, created, count - passed)

    def _chunk(self) -> _Chunk:
        return _Chunk(self._reader, self._name, MOST_IDS * len(self._queues))

    def _dealt(self, entries: list[Entry]) -> Iterator[tuple[str, list[Entry]]]:
        """Up to ``MOST_IDS`` entries of one queue at a time, in their order."""
        by_queue: dict[str, list[Entry]] = {}
        for entry in entries:
            by_queue.setdefault(partition(self._queues, entry.id), []).append(entry)
        for queue, mine in by_queue.items():
            for start in range(0, len(mine), MOST_IDS):
                yield queue, mine[start : start + MOST_IDS]

    def _sent(self, queue: str, entries: list[Entry]) -> tuple[int, Born | None]:
        """Push these; how many ids had nothing waiting, and what their records began with."""
        born = self._born()
        try:
            return self._home.connections.run(self._call(queue, entries, born)), born
        except ordered.QueueTracked:
            self._tracked = True
            return self._sent(queue, entries)

    async def _asent(self, queue: str, entries: list[Entry]) -> tuple[int, Born | None]:
        """``_sent``, awaited."""
        born = self._born()
        try:
            return await self._home.aconnections.run(self._call(queue, entries, born)), born
        except ordered.QueueTracked:
            self._tracked = True
            return await self._asent(queue, entries)

    def _born(self) -> Born | None:
        if not self._tracked:
            return None
        if self._keep is None:
            self._keep = self._home.config.history_kept()
        return Born(self._name, os.urandom(9).hex(), self._keep)

    def _call(self, queue: str, entries: list[Entry], born: Born | None) -> Call[int]:
        rows = [entry.push() for entry in entries]
        if born is None:
            call = ordered.push(self._home.keys, queue, self._collapse, rows)
        else:
            call = ordered_born.push(self._home.keys, queue, self._collapse, born, rows)
        return self._home.client.confirmed(call, lambda: [entry.id for entry in entries])

    def _stopped(self, entry: Entry) -> OrderedPush:
        return OrderedPush(entry.id, partition(self._queues, entry.id), False, stopped=True)

    def _through(self, entries: list[Entry]) -> list[Entry]:
        return [self._back(job) for job in self._home.client.through(map(self._job, entries))]

    async def _athrough(self, entries: list[Entry]) -> list[Entry]:
        return [self._back(job) for job in await self._home.client.athrough(map(self._job, entries))]

    def _job(self, entry: Entry) -> dict[str, Any]:
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

    def _back(self, job: Mapping[str, Any]) -> Entry:
        if job.get("class") != self._name or job.get("queue") not in self._queues:
            raise ArgumentError(
                f"a client middleware set class or queue of an ordered push to {job.get('class')!r}, "
                f"{job.get('queue')!r}; it may change id, args, score, at and delay"
            )
        return self._reader.again(job)


class _Chunk:
    """Rows on their way, read lazily: up to ``most`` of them, or 4 MB, at a time."""

    def __init__(self, reader: Reader, name: str, most: int) -> None:
        self._reader = reader
        self._name = name
        self._most = most
        self._number = 0
        self._size = 0
        self._entries: list[Entry] = []

    def filled(self, rows: Iterable[Any]) -> Iterator[list[Entry]]:
        """The chunks. A row that cannot be sent raises ArgumentError with its number, after those before it."""
        problem = None
        for row in rows:
            problem = self._add(row)
            if problem is not None:
                break
            if self._is_full():
                yield self._taken()
        if self._entries:
            yield self._taken()
        if problem is not None:
            raise problem

    async def afilled(self, rows: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[list[Entry]]:
        """``filled``, of rows that may be awaited."""
        problem = None
        async for row in _each(rows):
            problem = self._add(row)
            if problem is not None:
                break
            if self._is_full():
                yield self._taken()
        if self._entries:
            yield self._taken()
        if problem is not None:
            raise problem

    def _add(self, row: Any) -> ArgumentError | None:
        try:
            entry = self._reader.row(row)
        except ArgumentError as error:
            problem = ArgumentError(f"row {self._number} of {self._name}.push_many: {error}")
            problem.__cause__ = error
            return problem
        self._number += 1
        self._entries.append(entry)
        self._size += len(entry.payload) + len(entry.id)
        return None

    def _is_full(self) -> bool:
        return len(self._entries) >= self._most or self._size >= CHUNK_BYTES

    def _taken(self) -> list[Entry]:
        taken, self._entries, self._size = self._entries, [], 0
        return taken


async def _each(rows: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row
