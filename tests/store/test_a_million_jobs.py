"""A million jobs in a queue, and as many retries: no look takes longer than with a few, and nothing loads them all."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from henchman import App
from henchman.inspector.base import Entry
from support.measured import median, resident_kb
from support.server import running_server
from support.store import Store

pytestmark = pytest.mark.scale("a million, measured in milliseconds")

MILLION = 1_000_000
LIMIT = 0.050  # seconds: the median of several; a look at every job would take many times as long


def _fill(store: Store) -> None:
    """As a Ruby client would push them: a name in the set of queues, payloads at the left end."""
    now = int(time.time() * 1000)
    one = b'{"class":"A","args":[],"jid":"%024d","enqueued_at":%d}'
    store.ask("SADD", store.keys.queues, "default")
    line = store.connections.open(io_timeout=30)
    try:
        for first in range(0, MILLION, 10_000):
            some = [one % (number, now) for number in range(first, first + 10_000)]
            line.send("LPUSH", store.keys.queue("default"), *some)
            line.read()
        for first in range(0, MILLION, 10_000):
            scored = [part for number in range(first, first + 10_000) for part in (now + number, one % (number, now))]
            line.send("ZADD", store.keys.retry, *scored)
            line.read()
    finally:
        line.close()


@pytest.fixture(scope="module")
def full() -> Iterator[str]:
    with running_server() as server:
        store = Store(server.url)
        _fill(store)
        store.connections.close()
        yield server.url


def test_looks_and_a_deletion_are_quick_and_memory_is_flat(full: str) -> None:
    app = App(redis_url=full)
    queue, retries = app.queues["default"], app.retries

    def delete_one() -> None:
        assert queue.delete(queue.page(0, 50)[25])

    def first_hundred() -> list[Entry]:
        walk = iter(retries)
        return [next(walk) for _ in range(100)]

    looks: dict[str, Callable[[], Any]] = {
        "size": queue.size,
        "latency": queue.latency,
        "first page": lambda: [one.jid for one in queue.page()],
        "a page in the middle": lambda: [one.jid for one in queue.page(MILLION // 2)],
        "delete one of the first page": delete_one,
        "delete one of the first page by its id": lambda: queue.delete(queue.page()[25].jid),
        "stats": app.stats,
        "the retries' size": retries.size,
        "their first page": lambda: [one.jid for one in retries.page()],
        "a page in their middle": lambda: [one.jid for one in retries.page(MILLION // 2)],
        "the first hundred": first_hundred,
        "reschedule": lambda: retries.reschedule(retries.page(0, 1)[0], 9e9),
        "retry one": lambda: retries.retry(retries.page(0, 1)),
    }
    for look in looks.values():  # connect, load scripts
        look()
    before = resident_kb()
    slow = {name: seconds for name, look in looks.items() if (seconds := median(look)) > LIMIT}
    assert not slow, f"slower than {LIMIT * 1000:.0f} ms: {slow}"
    assert resident_kb() - before < 5_000, "memory grew"
    assert queue.size() == MILLION - 2 * 8 + 8, "eight times deleted in two ways, eight times retried (to default)"
    app.close()


def test_a_whole_queue_is_read_in_pages(full: str) -> None:
    """Nearly to the oldest of a million jobs, through every page: neither the memory nor the time for a page grows."""
    app = App(redis_url=full)
    queue = app.queues["default"]
    assert queue.find(queue.page(300)[0].jid) is not None  # connected
    before = resident_kb()
    started = time.monotonic()
    assert queue.find(f"{500:024}") is not None
    took = time.monotonic() - started
    assert resident_kb() - before < 5_000, "memory grew"
    assert took / (MILLION / 100) < 0.006, f"{took:.1f} s for 10,000 pages"
    app.close()


def test_awaited(full: str) -> None:
    async def looks() -> list[float]:
        app = App(redis_url=full)
        queue, retries = app.queues["default"], app.retries
        await queue.asize()
        steps = [queue.asize, queue.alatency, queue.apage, retries.asize, retries.apage, app.astats]
        found = []
        for step in steps:
            took = []
            for _ in range(7):
                started = time.perf_counter()
                await step()
                took.append(time.perf_counter() - started)
            found.append(statistics.median(took))
        walk = aiter(queue)
        jids = {(await anext(walk)).jid for _ in range(250)}
        await walk.aclose()  # type: ignore[attr-defined]
        assert len(jids) == 250
        await app.aclose()
        return found

    assert max(asyncio.run(looks())) < LIMIT
