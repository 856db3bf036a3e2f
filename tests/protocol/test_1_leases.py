"""PROTOCOL, section 1: leases. What stands elsewhere already is listed in docs/protocol-tests.md."""

from __future__ import annotations

import io
import mmap
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from redis import Redis

import henchman
from henchman import App
from henchman.kernel import clock
from henchman.kernel.scoreboard import SCOREBOARD_BYTES, Scoreboard
from henchman.store import batches, history, leases
from henchman.store.call import Call
from henchman.supervisor.child import ChildProcess
from henchman.supervisor.supervisor import Supervisor
from henchman.work.current import running
from henchman.work.effects import EndingFacts, of_payload
from henchman.work.outcome import Outcome
from henchman.worker import heart, rescue
from henchman.worker.processor import Processor
from henchman.worker.rescue import Lifeline, give_back_list
from henchman.worker.run import Run
from support.dead import DEAD, corpse, job
from support.processes import Work, holds_on, push
from support.server import running_server
from support.sleeping import sleeping
from support.store import Store
from support.worker import Heard, in_flight, looker, settled, until, working

T = TypeVar("T")
LUA = Path(henchman.__file__).parent / "store" / "lua"
FIRST_WRITE = re.compile(r"redis\.p?call\('(?!EXISTS|GET|TIME|ZSCORE|ZRANGE|LRANGE|SISMEMBER|HGET|TTL|LPOS)(\w+)'")


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, lease=5, heartbeat=0.5)
    yield made
    made.close()


FULL = [
    "settle",
    "settle_oldest",
    "renew",
    "due",
    "move",
    "give_back",
    "fetch",
    "join",
    "entomb",
    "note",
    "started",
    "history_trim",
]


@pytest.mark.parametrize("script", FULL)
def test_the_first_write_is_one_that_a_full_server_accepts(script: str) -> None:
    """1.1: a removal or an expiry."""
    body = (LUA / f"{script}.lua").read_text(encoding="utf-8").split("\n")
    code = "\n".join(line for line in body if not line.startswith("--"))
    if "-- include lead" in body:  # it is what they do first
        code = (LUA / "lib" / "lead.lua").read_text(encoding="utf-8") + code
    if script == "move":  # what it does first to an entry
        moving = (LUA / "lib" / "moving.lua").read_text(encoding="utf-8")
        code = moving[moving.index("return function(where") :]
    found = FIRST_WRITE.search(code)
    assert found is not None
    assert found[1] in {"PEXPIRE", "DEL", "LPOP", "ZREM", "LREM", "XTRIM"}


def test_a_full_server_writes_down_what_becomes_of_tracked_jobs(app: App, store: Store) -> None:
    """1.1: that one started, and that it was given back: no word of a life is lost, and the counts are right."""
    app.connections.run(history.turn_on(app.keys, "strict", 1_000_000))
    app.job(name="act")(lambda: None)
    with app.batch("b") as batch:
        app.enqueue("act")
    store.join("default", identity=DEAD)
    store.fetch("default", identity=DEAD)
    flight = store.keys.in_flight(DEAD, 1, "default")
    (stored,) = store.ask("LRANGE", flight, 0, -1)
    word = of_payload(app.keys, stored, "started", EndingFacts(DEAD, 1))
    store.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        app.connections.run(batches.started(app.keys, [batches.Started(flight, stored, word)]))
        assert batch.status().counts["working"] == 1
        assert give_back_list(app, flight, "default") == 1
    finally:
        store.ask("CONFIG", "SET", "maxmemory", 0)
    assert batch.status().counts["enqueued"] == 1
    told = [
        fields[fields.index(b"s") + 1] for _, fields in store.ask("XRANGE", "hm:history", "-", "+") if b"s" in fields
    ]
    assert told[-2:] == [b"working", b"enqueued"]
    assert not store.ask("EXISTS", "hm:broken")


def test_a_payload_in_hand_lies_in_a_list_of_its_process_and_queue(app: App, redis: Redis) -> None:
    """1.1: and the lease is one string that runs out by itself."""
    release = threading.Event()
    app.job(name="hold", queue="mail")(lambda: release.wait(20))
    handle = app.enqueue("hold")
    with working(app) as launcher:
        until(lambda: in_flight(redis), "it runs")
        identity = launcher.session.identity
        (list_key,) = redis.keys("hm:flight:*")  # type: ignore[misc]
        assert list_key.decode() == f"hm:flight:{identity}:1:mail"
        assert handle.jid.encode() in redis.lindex(list_key, 0)  # type: ignore[operator]
        assert redis.type(f"hm:lease:{identity}") == b"string"
        until(lambda: 0 < redis.pttl(f"hm:lease:{identity}") <= 5000, "it is kept, and runs out")  # type: ignore[operator]
        release.set()


def test_the_heart_alone_keeps_the_lease(app: App, redis: Redis) -> None:
    """1.2: as under ``app.embed()``; a job that takes longer than the lease, and nothing else happens."""
    release = threading.Event()
    app.job(name="hold")(lambda: release.wait(20))
    app.enqueue("hold")
    with working(app) as launcher:
        until(lambda: in_flight(redis), "it runs")
        key = f"hm:lease:{launcher.session.identity}"
        for _ in range(3):
            redis.pexpire(key, 900)
            until(lambda: redis.pttl(key) > 4000, "the heart has renewed it")  # type: ignore[operator]
        release.set()


class Half:
    """A child that was sent SIGKILL and has not ended yet, as a process is that waits for its disk."""

    def __init__(self) -> None:
        self.pid, self.identities, self.doomed, self.started, self.ready, self.failed = (
            0,
            [DEAD],
            False,
            0.0,
            True,
            None,
        )
        self.alive, self.status_fd, self.was_stopped = True, -1, False
        self.status: int | None = None
        self.signals: list[int] = []

    def hung(self, hang_after: float, lease: float) -> str:
        return "has not turned"

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def ended(self, reaped: Any) -> int | None:
        return self.status

    def read(self) -> list[Any]:
        return []

    def outlived(self) -> bool:
        return False

    def close(self) -> None: ...

    @property
    def board(self) -> Any:
        return Scoreboard()


def test_a_child_that_hangs_before_it_has_told_that_it_is_ready_is_killed() -> None:
    """1.2: its jobs begin a moment earlier, and the first of them may hold the interpreter for good."""
    memory: Any = mmap.mmap(-1, SCOREBOARD_BYTES)
    ends = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
    with subprocess.Popen(["sleep", "60"]) as process:
        child = ChildProcess(0, process, *ends, memory, io.BytesIO())
        child._turned -= 3600
        assert child.hung(2.0, 30.0) is None, "it imports: that may take long"
        Scoreboard(memory).beat(1, 1)
        assert child.hung(2.0, 30.0) is None, "it has turned just now"
        child._turned -= 3
        assert not child.ready
        assert child.hung(2.0, 30.0) == "has not turned for 2 s"
        process.kill()
    child.close()


def test_nothing_is_given_back_before_the_end_was_seen() -> None:
    """1.2, 1.3: stacks, SIGKILL, wait, give back; never before ``waitpid`` has returned."""
    supervisor: Any = Supervisor("x:app", {}, 0, lambda text, **facts: None)
    child = Half()
    supervisor._children = [child]
    for _ in range(3):
        supervisor._kill_hung()
        supervisor._reap()
    assert child.signals[:2] == [signal.SIGUSR2, signal.SIGKILL], "it writes where it stands, then it is killed"
    assert supervisor._leases._dead == [], "it may still be running"
    child.status = -signal.SIGKILL
    supervisor._reap()
    assert [one.identity for one in supervisor._leases._dead] == [DEAD]
    for end in (supervisor._wakeup, supervisor._waker):
        end.close()


def test_a_supervisor_gives_back_at_once(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """1.3: long before the lease has run out."""
    with Work(tmp_path / "w", redis_url, "-c", "1", HENCHMAN_LEASE="600") as work:
        (pid,) = work.ready(redis)
        push(redis, "act_once", ("j", "sleep", 60))
        until(lambda: work.count("start")["j"] == 1, "it runs")
        os.kill(pid, signal.SIGKILL)
        until(lambda: work.count("end")["j"] == 1, "it ran again")


def test_others_go_by_the_lease_alone(app: App, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.3: the pid of the living may be that of a dead one, and the other way round."""
    monkeypatch.setattr(rescue, "WATCH", 0.0)
    host = os.uname().nodename
    ours, nobodys = f"{host}:{os.getpid()}:aaaaaaaaaaaa", f"{host}:4194304:bbbbbbbbbbbb"
    corpse(store, job("a"), identity=ours)
    corpse(store, job("b"), identity=nobodys, expired=False)
    line = Lifeline(app)
    for _ in range(3):
        line.look()
    assert store.queue("default") == [job("a")]
    assert store.ask("LLEN", store.keys.in_flight(nobodys, 1, "default")) == 1


def test_an_orphan_keeps_its_lease_while_it_finishes(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """1.4: end of file on the pipe: it renews for itself, takes nothing new, finishes, and ends."""
    brief = {"HENCHMAN_LEASE": "5", "HENCHMAN_HEARTBEAT": "1"}
    with Work(tmp_path / "w", redis_url, "-c", "1", "-t", "90", **brief) as work:
        (pid,) = work.ready(redis)
        push(redis, "act", ("long", "held", 90), ("next", "ok"))
        until(lambda: work.count("start")["long"], "it runs")
        work.signal(signal.SIGKILL)
        work.wait()
        (lease,) = redis.keys("hm:lease:*")  # type: ignore[misc]
        redis.pexpire(lease, 1500)
        until(lambda: redis.pttl(lease) > 3000, "the orphan renews it")  # type: ignore[operator]
        work.trace_file.with_suffix(".open").touch()
        until(lambda: not holds_on(pid), "it ended")
        assert work.count("end") == {"long": 1}, "it finished what ran, and took nothing more"
        assert not in_flight(redis)
        assert redis.llen("queue:default") == 1


def test_a_rescue_needs_unbroken_sight_of_an_expired_lease(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5: for 15 s; a look that was missed, or a lease that was seen alive, starts the time anew."""
    assert rescue.WATCH == 15
    clock = [1000.0]
    monkeypatch.setattr(rescue, "awake", lambda: clock[0])
    corpse(store, job("a"))
    line = Lifeline(app)

    def ticks(seconds: int, step: float = 5.0) -> list[bytes]:
        end = clock[0] + seconds
        while clock[0] < end:
            clock[0] += step
            line.look()
        return store.queue("default")

    assert ticks(15) == [], "seen for 10 s"
    clock[0] += 13  # contact was broken
    assert ticks(15) == []
    for length in (60_000, 70_000, 80_000, 90_000):
        store.ask("SET", store.keys.lease(DEAD), length, "PX", length)
        assert ticks(5) == [], "it lives"
    store.ask("DEL", store.keys.lease(DEAD))
    assert ticks(10) == [], "seen to be renewed 10 s ago"
    assert ticks(5) == [job("a")]


def test_a_lease_that_nobody_renews_is_watched_before_it_runs_out(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5: the 15 s are those without a renewal; but nobody is buried whose lease stands, however long that is."""
    clock = [1000.0]
    monkeypatch.setattr(rescue, "awake", lambda: clock[0])
    corpse(store, job("a"), expired=False)
    line = Lifeline(app)
    for _ in range(30):
        line.look()
        clock[0] += 1.0
    assert store.queue("default") == [], "it has not run out"
    store.ask("DEL", store.keys.lease(DEAD))
    line.look()
    assert store.queue("default") == [job("a")]


def test_a_look_at_names_that_change_places_meanwhile_comes_to_an_end(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5: after a failover all processes join anew, while somebody looks page by page at who they are."""
    monkeypatch.setattr(leases, "AT_ONCE", 2)
    names = [f"host:{n}:{n:012x}" for n in range(6)]
    for name in names:
        store.join("default", identity=name)
    line, looks = Lifeline(app), 0

    class Meanwhile:
        """After the first look those whom it showed have joined once more: they stand at the end now."""

        def run(self, call: Call[T]) -> T:
            nonlocal looks
            looks += 1
            assert looks < 20, "it looks at one page for ever"
            found = store.run(call)
            if looks == 1:
                for name in names[:2]:
                    store.join("default", identity=name)
            return found

    seen = line._watch(Meanwhile())
    assert seen.turn
    assert set(seen.expires) <= set(names)
    assert looks == 4, "three full pages, and one that is empty"


def test_a_pulse_that_fails_costs_no_lease(app: App, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """1.2: whatever else the heart does, it renews."""
    monkeypatch.setattr(heart, "PULSE", 0.05)
    heard = Heard(app, "part_failed")

    def pulse() -> None:
        raise OSError("as told")

    with working(app, pulse=pulse) as launcher:
        until(lambda: launcher.renewal.round_trip, "it renews")
        store.ask("PEXPIRE", store.keys.lease(launcher.session.identity), 1000)
        until(lambda: store.ask("PTTL", store.keys.lease(launcher.session.identity)) > 2000, "it goes on to renew", 30)
    assert {str(one["error"]) for one in heard["part_failed"]} == {"as told"}


def test_a_clock_of_the_server_that_was_set_back_hides_no_renewal(
    app: App, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1.5: a lease that ends earlier than it did was renewed too, by a clock that shows less."""
    clock = [1000.0]
    monkeypatch.setattr(rescue, "awake", lambda: clock[0])
    corpse(store, job("a"), expired=False)
    line = Lifeline(app)
    for length in (90_000, 80_000, 70_000, 60_000):
        store.ask("PEXPIRE", store.keys.lease(DEAD), length)
        line.look()
        clock[0] += 5.0
    store.ask("DEL", store.keys.lease(DEAD))
    line.look()
    assert store.queue("default") == [], "renewed 5 s ago"


def test_a_server_that_was_started_anew_has_to_be_watched_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """1.5: nobody could renew while it was away: that leases are gone proves nothing."""
    clock = [1000.0]
    with running_server("--appendfsync", "always", appendonly=True) as server:
        app, store = App(redis_url=server.url), Store(server.url)
        corpse(store, job("a"))
        line = Lifeline(app)
        monkeypatch.setattr(rescue, "awake", lambda: clock[0])
        for _ in range(2):
            line.look()
            clock[0] += 5
        server.kill()
        server.start()
        for _ in range(3):
            line.look()
            clock[0] += 5
        assert store.queue("default") == [], "20 s after the first look, 10 s after the first at this run"
        line.look()
        assert store.queue("default") == [job("a")]
        app.close()
        store.connections.close()


@pytest.mark.parametrize("slept", [False, True])
def test_after_its_lease_nothing_starts_that_was_prefetched(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch, slept: bool
) -> None:
    """1.5: somebody else may be running it; it starts when the lease is renewed. While the machine slept
    (``time.monotonic()`` stood still then) the lease ran out all the same."""
    sleep = sleeping(monkeypatch)
    monkeypatch.setattr(heart, "PULSE", 0.1)
    app = App(redis_url=redis_url, lease=5, heartbeat=0.1, concurrency=1)
    valid: list[float] = []
    heard = Heard(app, "part_failed")
    box: list[Any] = []

    @app.job(name="note")
    def note(number: int) -> None:
        flights = box[0].session
        valid.append(flights.valid_until - (clock.awake() - running.get().elapsed))  # type: ignore[attr-defined]
        if number % 40 == 20 and slept:
            sleep(3600)
        elif number % 40 == 20:  # as after a long freeze: the time is over, and the server has not been asked
            flights.valid_until -= 60

    note.enqueue_many([(n,) for n in range(400)])
    with working(app, start=False) as launcher:
        box.append(launcher)
        launcher.start()
        settled(redis, 400)
    assert len(valid) == 400, "each ran once"
    assert min(valid) > 0, "nothing started without a lease"
    assert not heard["part_failed"]
    app.close()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_starts_when_its_lease_was_judged(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    """1.5: what is frozen between that and its first line was let start before it was frozen, and says so."""
    judge = Processor._refusal
    seen: list[tuple[float, float]] = []

    def frozen(self: Processor, run: Run) -> Outcome | None:
        refusal = judge(self, run)
        time.sleep(0.2)  # the freeze itself
        return refusal

    def look() -> None:
        seen.append((running.get().started, time.monotonic()))  # type: ignore[attr-defined]

    async def alook() -> None:
        look()

    monkeypatch.setattr(Processor, "_refusal", frozen)
    app.job(name="look")(alook if asynchronous else look)  # type: ignore[call-overload]
    with working(app):
        app.enqueue("look")
        settled(redis, 1)
    started, first_line = seen[0]
    assert first_line - started >= 0.2


def test_time_without_the_server_is_no_reason_to_steal(redis_url: str) -> None:
    """1.5: an outage longer than the lease; both workers come back, and each keeps what it was running."""
    with running_server("--appendfsync", "always", appendonly=True) as server:
        apps = [App(redis_url=server.url, lease=5, heartbeat=0.2, concurrency=1) for _ in range(2)]
        release, ran = threading.Event(), []
        for app in apps:

            @app.job(name="hold")
            def hold(name: str) -> None:
                ran.append(name)
                release.wait(120)

        for name in "ab":
            apps[0].enqueue("hold", name)
        with working(apps[0]) as one, working(apps[1]) as two:
            until(lambda: sorted(ran) == ["a", "b"], "each runs one")
            names = {one.session.identity, two.session.identity}
            server.kill()
            away = time.monotonic()
            until(lambda: time.monotonic() - away > 5.5, "the leases have run out")
            server.start()
            until(lambda: min(one.session.valid_for(), two.session.valid_for()) > 3, "both are back")
            with looker(server.url) as redis:
                assert len(in_flight(redis)) == 2
                release.set()
                settled(redis, 2)
        assert sorted(ran) == ["a", "b"]
        assert {one.session.identity, two.session.identity} == names
