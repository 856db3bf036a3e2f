"""A million ids in an ordered queue: nothing takes longer than with a thousand, and nothing loads them all."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from henchman import App
from henchman.cli.main import henchman
from henchman.inspector.ordered_id import OrderedId
from henchman.inspector.sets import Acted
from henchman.store import leases, ordered
from henchman.store.call import Items
from henchman.store.ordered import Push, Verdict
from support.measured import median, resident_kb
from support.server import running_server
from support.store import DAY, ME, Store

pytestmark = pytest.mark.scale("a million, measured in milliseconds")

MILLION = 1_000_000
FAILED = 200_000  # of them; the rest is fresh
LIMIT = 0.050  # seconds: the median of several, on a busy machine; most take less than one millisecond
FRESH = count()


def fill(store: Store, name: str, ids: int, failed: int) -> None:
    """As pushes and failures leave them: due one after another since yesterday, one payload each."""
    now, base = time.time(), store.keys.ordered(name)
    store.ask("SADD", store.keys.ordered_queues, name)
    line = store.connections.open(io_timeout=60)

    def send(verb: str, part: str, some: range, pair: Callable[[int], tuple[object, object]]) -> None:
        line.send(verb, base + part, *[word for number in some for word in pair(number)])
        line.read()

    try:
        for first in range(0, ids, 10_000):
            some = range(first, min(first + 10_000, ids))
            send("ZADD", "due", some, lambda number: (now - 86_400 + number / 1000, number))
            send("HSET", "one", some, lambda number: (number, struct.pack(">d", number) + b'{"price":%d}' % number))
            if first < failed:
                send("ZADD", "retry", some, lambda number: (number % 20, number))
                send("HSET", "err", some, lambda number: (number, "Timeout: no answer"))
    finally:
        line.close()


@pytest.fixture(scope="module")
def full() -> Iterator[str]:
    """A server with three queues: ``many``, ``few``, and ``lot``, of which every id failed."""
    with running_server() as server:
        store = Store(server.url)
        fill(store, "many", MILLION, FAILED)
        fill(store, "few", 1000, 200)
        fill(store, "lot", FAILED, FAILED)
        held = [store.keys.held(ME, 1, name) for name in ("many", "few")]
        store.run(leases.join(store.keys, ME, held, 600_000))
        store.connections.close()
        yield server.url


def steps(app: App, store: Store, name: str) -> dict[str, Callable[[], Any]]:
    """What workers, clients and people do, each on the queue ``name``."""
    queue, keys = app.ordered_queues[name], store.keys

    def claim_and_settle() -> None:
        found = store.run(ordered.claim(keys, ME, 1, name, 10, 0, 1, 1000, 600_000))
        ended = [Verdict(token, one.id, "release") for token, ids in found.claims for one in ids]
        assert len(ended) == 10
        call = ordered.settle(keys, ME, 1, name, ended, collapse="min", lease_ms=600_000, day=DAY)
        assert store.run(call) == [1] * 10

    def push() -> None:
        fresh = b"new%d" % next(FRESH)
        store.run(ordered.push(keys, name, "min", [Push(fresh, "+9", "", b"1"), Push(b"7", "", "", b"%b" % fresh)]))

    def kill_and_revive() -> None:
        assert queue.kill("11").done == queue.revive("11").done == 1

    def begin(some: Items[OrderedId]) -> Callable[[], None]:
        def walk() -> None:
            assert sum(1 for _ in islice(some, 20)) == 20

        return walk

    return {
        "claim ten and settle them": claim_and_settle,
        "push": push,
        "stats": queue.stats,
        "find": lambda: queue.find("777"),
        "the first page": queue.page,
        "a page of the failed": lambda: queue.page(by="retry", reverse=True),
        "the first by time": begin(queue.by_time()),
        "the last by time": begin(queue.by_time(reverse=True)),
        "by retry count": begin(queue.by_retry_count(3, 5)),
        "by id": begin(queue.by_id()),
        "run now": lambda: queue.run_now("13", *[f"new{number}" for number in range(3)]),
        "kill and revive": kill_and_revive,
        "all stats": app.ordered_queues.stats,
        "Lowkiq's stats": app.ordered_queues.lowkiq_stats,
    }


def test_a_million_are_as_quick_as_a_thousand(full: str) -> None:
    app, store = App(redis_url=full), Store(full)
    many, few = steps(app, store, "many"), steps(app, store, "few")
    for step in [*many.values(), *few.values()]:  # connect, load scripts
        step()
    before = resident_kb()
    took = {name: (median(few[name]), median(many[name])) for name in many}
    print({name: f"{1000 * small:.2f} {1000 * large:.2f} ms" for name, (small, large) in took.items()})
    slow = {name: both for name, both in took.items() if both[1] > LIMIT or both[1] > 3 * both[0] + 0.005}
    assert not slow, f"slower than {LIMIT * 1000:.0f} ms, or than with a thousand: {slow}"
    assert resident_kb() - before < 5_000, "memory grew"
    page = median(lambda: app.ordered_queues["many"].page(MILLION // 2))
    assert page < LIMIT, f"a page in the middle takes {page * 1000:.0f} ms"
    store.connections.close()
    app.close()


def test_the_command_is_as_quick(full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)

    def show(name: str) -> None:
        assert CliRunner().invoke(henchman, ["ordered", name, "--redis", full]).exit_code == 0

    small, large = (median(lambda one=name: show(one)) for name in ("few", "many"))  # type: ignore[misc]
    assert large < 3 * small + LIMIT, f"{large * 1000:.0f} ms, and {small * 1000:.0f} ms for a thousand ids"


def test_awaited(full: str) -> None:
    async def looks() -> list[float]:
        app = App(redis_url=full)
        queue = app.ordered_queues["many"]
        await queue.astats()
        found = []
        for step in (queue.astats, queue.apage, queue.alength, lambda: queue.afind("777")):
            started = time.perf_counter()
            for _ in range(7):
                await step()
            found.append((time.perf_counter() - started) / 7)
        await app.aclose()
        return found

    assert max(asyncio.run(looks())) < LIMIT


def test_all_of_many_in_pages(full: str) -> None:
    """Two hundred thousand ids to the morgue and back: flat memory, no call that holds the server up."""
    app = App(redis_url=full)
    queue = app.ordered_queues["lot"]
    before = queue.stats()
    memory = resident_kb()
    started = time.monotonic()
    killed, middle = queue.kill_all_failed(), queue.stats()
    assert killed == Acted(done=before.retries)
    assert killed.done == FAILED
    assert (middle.length, middle.retries) == (before.length - killed.done, 0)
    assert middle.morgue_length == before.morgue_length + killed.done
    assert queue.revive_all().done == middle.morgue_length
    took = time.monotonic() - started
    after = queue.stats()
    assert (after.length, after.morgue_length) == (before.length + before.morgue_length, 0)
    assert resident_kb() - memory < 5_000, "memory grew"
    assert took / (2 * FAILED / 100) < 0.020, f"{took:.1f} s for {2 * FAILED // 100} calls"
    app.close()
