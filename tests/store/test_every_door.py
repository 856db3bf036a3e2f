"""Payloads of 3 MB at every door that lists or moves payloads: no call brings, or sends, many of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner

from henchman import App
from henchman.cli.main import henchman
from henchman.inspector.doctor import examine
from henchman.inspector.jobs import find_job
from henchman.store import jobs, queues
from henchman.store.call import Call, run
from henchman.store.jobs import MOST_BYTES
from henchman.worker.rescue import Death, rescue
from henchman.worker.session import LeaseSession
from support.dead import DEAD
from support.measured import resident_kb
from support.server import running_server
from support.store import Store
from support.worker import until, working

T = TypeVar("T")
MB = 1 << 20
ONE, MANY = 3 * MB, 24
MOST = MOST_BYTES + 2 * ONE  # a call ends with the payload that passes 4 MB, or brings two
KEPT = 50_000  # kB that a look may leave behind: all payloads have 72 MB


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server() as server:
        yield server.url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    made = Store(url)
    made.ask("FLUSHALL")
    yield made
    made.ask("FLUSHALL")
    made.connections.close()


class Door:
    """An app that measures what passes: the bytes that each call sends, and those of its answer."""

    def __init__(self, url: str) -> None:
        self.app = App(redis_url=url)
        self.most = dict[str, int]()
        self._run = self.app.connections.run
        self.app.connections.run = self.run  # type: ignore[method-assign]

    def run(self, call: Call[T]) -> T:
        reply = self._run(call)
        self.most[call.name] = max(size_of(reply), size_of(call.parts), self.most.get(call.name, 0))
        return reply

    def passed(self) -> None:
        """Nothing large has."""
        assert max(self.most.values()) > ONE, "payloads have passed"
        too_large = {name: f"{size / MB:.0f} MB" for name, size in self.most.items() if size > MOST}
        assert not too_large
        self.most.clear()


@pytest.fixture
def door(url: str) -> Iterator[Door]:
    made = Door(url)
    yield made
    made.app.close()


def size_of(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(size_of(one) + size_of(other) for one, other in value.items())
    return sum(map(size_of, value)) if isinstance(value, list | tuple | set | frozenset) else 0


def large(number: int, queue: str = "large") -> bytes:
    return b'{"class":"weigh","args":["%b"],"jid":"%024d","queue":"%b","retry":true,"enqueued_at":1.5}' % (
        b"x" * ONE,
        number,
        queue.encode(),
    )


def jids() -> list[str]:
    return [f"{number:024}" for number in range(MANY)]


def fill(store: Store, queue: str = "large") -> None:
    for number in range(MANY):
        store.push(queue, large(number, queue))


def fill_set(store: Store, key: str) -> None:
    for number in range(MANY):
        store.ask("ZADD", key, 1000.0 + number, large(number))


def looked(door: Door, key: str) -> str:
    """The state of the first and the last job, wherever they are."""
    found = [run(door.app.connections, find_job(door.app.keys, one)) for one in (jids()[0], jids()[-1])]
    assert found[0].state == found[1].state
    return found[0].state


def test_a_queue_is_looked_at_and_cleared(store: Store, door: Door) -> None:
    fill(store)
    for number in range(MANY):
        store.push(f"q{number}", large(number))
    queue = door.app.queues["large"]
    before = resident_kb()
    assert len(door.app.queues.states()) == MANY + 1
    assert door.app.queues["large"].latency()
    assert [one.jid for one in queue] == jids()[::-1]
    assert queue.find(jids()[0]) is not None
    assert looked(door, "queue") == "enqueued"
    assert queue.delete(jids()[10])
    assert queue.clear() == MANY - 1
    assert resident_kb() - before < KEPT
    door.passed()
    assert not store.ask("EXISTS", "queue:large")


def test_a_page_of_a_queue_comes_in_pieces(store: Store, door: Door) -> None:
    fill(store)
    assert [one.jid for one in door.app.queues["large"].page(0, MANY)] == jids()[::-1]
    assert [one.jid for one in door.app.queues["large"].page(MANY - 5, 50)] == jids()[4::-1]
    door.passed()


@pytest.mark.parametrize("which", ["scheduled", "retries", "dead"])
def test_a_set_is_looked_at_and_acted_on(store: Store, door: Door, which: str) -> None:
    key = {"scheduled": "schedule", "retries": "retry", "dead": "dead"}[which]
    fill_set(store, key)
    held = getattr(door.app, which)
    before = resident_kb()
    assert len({one.jid for one in held.matching('"weigh"')}) == MANY
    assert not [*held.matching("nowhere")]
    assert [one.jid for one in held] == jids()[:: -1 if which == "dead" else 1]
    assert held.find(jids()[7]) is not None
    assert looked(door, key) == {"scheduled": "scheduled", "retries": "retrying", "dead": "dead"}[which]
    assert held.retry(held.matching("weigh")).done == MANY
    assert resident_kb() - before < KEPT
    door.passed()
    assert store.ask("LLEN", "queue:large") == MANY
    assert not store.ask("EXISTS", key)


def test_a_page_of_a_set_and_the_command_that_shows_it(
    store: Store, door: Door, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_set(store, "dead")
    assert [one.jid for one in door.app.dead.page(0, MANY)] == jids()[::-1]
    door.passed()
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    before = resident_kb()
    shown = CliRunner().invoke(henchman, ["dead", "list", "--most", str(MANY), "--redis", url])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("weigh(") == MANY
    assert resident_kb() - before < KEPT


def test_what_a_dead_process_held_goes_back(store: Store, door: Door) -> None:
    fill(store)
    store.join("large", identity=DEAD)
    while any(store.fetch("large", identity=DEAD, count=100)):
        pass
    store.ask("DEL", store.keys.lease(DEAD))
    before = resident_kb()
    [lost] = [one for one in examine(door.app.connections, door.app.keys) if one.name == "lost processes"]
    assert f"holding {MANY} jobs" in lost.text
    assert looked(door, "flight") == "working"
    assert rescue(door.app, DEAD, Death("its host is gone"))[:2] == (MANY, None)
    assert resident_kb() - before < KEPT
    door.passed()
    assert store.ask("HLEN", store.keys.deaths) == MANY, "each was charged"
    order = [one.jid for one in door.app.queues["large"]]
    assert order == jids()[::-1], "in their order"


def test_a_third_death_takes_a_job_out_and_the_others_are_charged_all_the_same(store: Store, door: Door) -> None:
    fill(store)
    store.join("large", identity=DEAD)
    while any(store.fetch("large", identity=DEAD, count=100)):
        pass
    store.ask("HSET", store.keys.deaths, jids()[10], "1 h:1:a it ended\n2 h:1:b it ended")
    assert rescue(door.app, DEAD, Death("its host is gone", alone=True))[:2] == (MANY - 1, None)
    assert store.ask("ZCARD", "dead") == 1
    assert store.ask("HLEN", store.keys.deaths) >= MANY - 1
    assert store.ask("LLEN", "queue:large") == MANY - 1
    door.passed()


def test_what_nobody_held_of_an_earlier_epoch_goes_back(store: Store, door: Door) -> None:
    session = LeaseSession(door.app, ["large"], announce=lambda name: None)
    session.join()
    fill(store)
    flight = session.current["large"]
    asked = [("large", store.keys.queue("large"), flight.key, 0)]
    while any(store.run(jobs.fetch(store.keys, session.identity, asked, 100, 30_000)).payloads):
        pass
    before = resident_kb()
    assert len(session.strays()) == MANY
    session.doubt()
    assert session.settle_doubts()
    session._old[flight] -= 60
    assert session.sweep() == MANY
    assert resident_kb() - before < KEPT
    door.passed()
    assert [one.jid for one in door.app.queues["large"]] == jids()[::-1], "in their order"
    assert not store.ask("EXISTS", flight.key)


def test_times_that_the_clock_brought_out_of_order_are_mended_in_pieces(store: Store, door: Door) -> None:
    fill_set(store, "retry")
    store.ask("HSET", store.keys.clock, "left", "0\n")
    start, calls = "-inf", 0
    while (page := door.app.connections.run(jobs.rebase_page("retry", start, 0, 500, down=False, noted=""))).seen:
        moves = [(member, score, score - 3600) for member, score in page.found]
        assert door.app.connections.run(jobs.rebase(store.keys, "retry", b"0\n", b"0\n", moves))
        start = page.last
        calls += 1
        assert page.seen <= 2
    assert calls >= MANY // 2
    scores = store.ask("ZRANGE", "retry", 0, -1, "WITHSCORES")[1::2]
    assert [float(one) for one in scores] == [1000.0 + number - 3600 for number in range(MANY)]


def test_what_runs_is_shown_without_large_arguments(store: Store, door: Door, url: str) -> None:
    app = App(redis_url=url, concurrency=10)

    @app.job(name="weigh", queue="large")
    def weigh(text: str) -> None:
        until(lambda: store.ask("EXISTS", "go"), "the word to go on")

    small = large(99).replace(b"x" * ONE, b"small")
    store.push("large", *[large(number) for number in range(2)], small)
    with working(app) as launcher:
        until(lambda: launcher.manager.busy() == 3, "three run")
        work = until(
            lambda: [*found] if len(found := door.app.processes.work()) == 3 else [], "a beat has told of them"
        )
        assert sorted(one.entry.jid for one in work) == [*jids()[:2], f"{99:024}"]
        shown = {one.entry.jid: one.entry.arguments[0] for one in work}
        assert shown[f"{99:024}"] == ["small"]
        assert shown[jids()[0]] == [f"({len(large(0)):,} bytes)"]
        assert sum(size_of(one.entry.payload) for one in work) < MB
        store.ask("SET", "go", "1")
        until(lambda: not store.ask("LLEN", "queue:large") and not launcher.session.held, "all have ended")


def test_few_at_once_however_small_those_before_were(store: Store) -> None:
    """Neither list nor set tells how large its entries are: what comes after small ones is read a few at a time."""
    for number in range(40):
        store.push("large", b"small %d" % number)
        store.ask("ZADD", "dead", number, b"small %d" % number)
    for number in range(20):
        store.push("large", large(number))
        store.ask("ZADD", "dead", 100 + number, large(number))
    pages = [
        store.run(queues.list_page("queue:large", -1, 500, leftwards=True)).payloads,
        [one.payload for one in store.run(queues.set_stretch("dead", 0, 500)).members],
    ]
    for page in pages:
        assert len(page) == 42
        assert size_of(page) < MOST
