"""A supervisor under a system, and a server, that refuse: what is refused is said and tried again, and nothing else of
it suffers."""

from __future__ import annotations

import errno
import io
import logging
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.kernel.scoreboard import Scoreboard
from henchman.log.handler import LineHandler, PrettyFormatter
from henchman.supervisor import supervisor as supervisor_module
from henchman.supervisor.child import ChildProcess
from henchman.supervisor.child_leases import ChildLeases
from henchman.supervisor.history_process import HistoryProcess
from henchman.supervisor.supervisor import Supervisor
from henchman.worker import rescue as rescue_module
from henchman.worker.rescue import Death
from support.dead import corpse, job
from support.processes import PATHS, Work, push
from support.store import Store
from support.worker import teller, until

GOOD, ILL, LIVING = "host:1:0000000000aa", "host:2:0000000000bb", "host:3:0000000000cc"


def descriptors_of(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="the limit of another process is set as Linux does it")
def test_a_system_that_refuses_a_process_ends_no_other(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """No descriptor is to be had for a successor: the other child works on, and the successor comes when it can."""
    with Work(tmp_path / "w", redis_url, "-p", "2", "-c", "1") as work:
        first, healthy = work.ready(redis, 2)
        until(lambda: redis.zcard("hm:identities") == 2, "both have joined")
        before = resource.prlimit(work.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(work.pid, resource.RLIMIT_NOFILE, (8, before[1]))  # below what it has open already
        work.kill_one(first)
        until(lambda: "refuses another worker process" in work.log, "the refusal is said")
        push(redis, "act_once", ("a", "ok"))
        until(lambda: work.count("end")["a"] == 1, "the healthy one works")
        assert work.process.poll() is None
        resource.prlimit(work.pid, resource.RLIMIT_NOFILE, before)
        until(lambda: len(work.children) == 2, "the successor is there")
        assert healthy in work.children
        assert work.log.count("refuses another worker process") == 1
        assert "could be started" in work.log
        assert work.stop() == 0


class Calm:
    """A child that lives and has nothing to say; ``ill`` raises whenever it is cared for."""

    def __init__(self, pid: int, *identities: str, ill: bool = False) -> None:
        self.pid, self.identities, self.ill = pid, list(identities), ill
        self.number, self.ready, self.alive, self.status_fd = pid, True, True, -1
        self.doomed, self.failed, self.started, self.board = False, None, 0.0, Scoreboard()
        self.was_stopped = False
        self.signals: list[int] = []
        self.looked = 0
        self.status: int | None = None

    def hung(self, hang_after: float, lease: float) -> None:
        self.looked += 1
        if self.ill:
            raise RuntimeError("a look that fails")

    def deserves_renewal(self, hang_after: float, lease: float) -> bool:
        if self.ill:
            raise ValueError("mmap closed or invalid")
        return True

    def ended(self, reaped: Any) -> int | None:
        return self.status

    def outlived(self) -> bool:
        return False

    def read(self) -> list[Any]:
        if self.ill:
            raise RuntimeError("last words that cannot be read")
        return []

    def signal(self, number: int) -> None:
        self.signals.append(number)

    def where_it_stood(self) -> str:
        return ""

    def close(self) -> None: ...


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(said: list[str]) -> Iterator[Any]:
    made = Supervisor("x:app", {}, 2, teller(said))
    yield made
    for end in (made._wakeup, made._waker):
        end.close()


@pytest.mark.parametrize(
    "refusal", [BlockingIOError(errno.EAGAIN, "no process"), OSError(errno.ENOMEM, "no memory"), MemoryError()]
)
def test_a_refused_fork_is_tried_again_with_back_off(
    supervisor: Any, said: list[str], monkeypatch: pytest.MonkeyPatch, refusal: BaseException
) -> None:
    tries: list[float] = []

    def spawn(*_: object) -> Any:
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise refusal
        return Calm(len(tries))

    monkeypatch.setattr(supervisor_module.ChildProcess, "spawn", spawn)
    healthy = Calm(9)
    healthy.number = 0
    supervisor._children = [healthy]
    until(lambda: supervisor._start_missing() or len(supervisor._children) == 2, "it was started in the end")
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert waits[0] >= 0.2
    assert waits[1] >= 0.4, "later each time"
    assert [line for line in said if "refuses another worker process" in line] == said[:1]
    assert not healthy.signals


def test_no_password_stands_in_a_command_line_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(PATHS))
    settings = {"redis_url": "redis://:s3cr3t@127.0.0.1:1/0"}
    child = ChildProcess.spawn("support.acting:app", settings, 0)
    try:
        known = [Path(f"/proc/{child.pid}/{name}") for name in ("cmdline", "environ")]
        until(lambda: b"worker_main" in known[0].read_bytes(), "it is what it is to be")
        assert b"support.acting:app" in known[0].read_bytes(), "people see what it runs"
        assert not any(b"s3cr3t" in one.read_bytes() for one in known)
        until(lambda: [one for one in child.read() if "s3cr3t" in one.get("config", "")], "it was told all the same")
        assert os.readlink(f"/proc/{child.pid}/fd/0") == os.devnull
    finally:
        child.signal(signal.SIGKILL)
        child.wait(10.0)
        child.close()


def test_a_spawn_that_is_refused_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise BlockingIOError(errno.EAGAIN, "no process")

    monkeypatch.setattr("henchman.supervisor.child.subprocess.Popen", refuse)
    before = descriptors_of(os.getpid())
    for _ in range(5):
        with pytest.raises(BlockingIOError):
            ChildProcess.spawn("x:app", {}, 0)
    assert descriptors_of(os.getpid()) == before


def test_trouble_with_one_child_is_no_trouble_for_the_next(supervisor: Any, said: list[str]) -> None:
    """Also its end is taken in: its jobs go back, and it is replaced."""
    ill, healthy = Calm(1, ILL, ill=True), Calm(2, GOOD)
    supervisor._children = [ill, healthy]
    supervisor._kill_hung()
    assert healthy.looked == 1
    ill.status = healthy.status = -9
    supervisor._reap()
    assert supervisor._children == []
    assert [one.identity for one in supervisor._leases._dead] == [ILL, GOOD]
    assert any("process 1" in line and "a look that fails" in line for line in said)


@pytest.mark.parametrize(
    ("number", "doomed", "stopped", "careful"),
    [
        (signal.SIGKILL, False, False, False),
        (signal.SIGKILL, True, False, True),
        (signal.SIGKILL, True, True, False),
        (signal.SIGSEGV, False, False, True),
    ],
)
def test_only_a_crash_among_outcomes_makes_their_settling_careful(
    supervisor: Any, number: int, doomed: bool, stopped: bool, careful: bool
) -> None:
    """A busy process has outcomes on their way at almost any moment: one that is killed then says nothing of them, and
    to settle one by one for a minute would make what ends wait so long that the next kill repeats it."""
    gone, living = Calm(1), Calm(2)
    gone.board.settling(True)
    gone.doomed, gone.was_stopped, gone.status = doomed, stopped, -number
    supervisor._children = [gone, living]
    supervisor._reap()
    supervisor._take_care()
    assert living.board.is_one_by_one() is careful


def test_a_step_that_fails_does_not_end_the_loop(supervisor: Any, said: list[str]) -> None:
    """It is said once, and what comes after it in the loop is done."""
    ticks: list[int] = []

    def fail() -> None:
        ticks.append(1)
        raise OSError("as told")

    supervisor._announce = fail
    supervisor._start_missing = lambda: None
    supervisor._enforce = lambda: setattr(supervisor, "_stopping", len(ticks) > 2)
    assert supervisor.run() == 0
    assert len(ticks) == 3
    assert len([line for line in said if "as told" in line]) == 1


def test_what_is_said_to_a_full_disk_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    handler = LineHandler(Full(), PrettyFormatter())
    monkeypatch.setattr(logging.getLogger("henchman.supervisor"), "handlers", [handler])
    supervisor_module.say("a line", child=1)


def test_a_history_process_that_is_refused_is_said_once_and_tried_later_each_time(
    said: list[str], monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    tries: list[float] = []

    def refuse(*_: object, **__: object) -> Any:
        tries.append(time.monotonic())
        raise MemoryError

    monkeypatch.setattr("henchman.supervisor.history_process.subprocess.Popen", refuse)
    scribe = HistoryProcess(teller(said))
    scribe.want(App(redis_url=redis_url, database_url="sqlite:///x.db").config)
    until(lambda: scribe.keep({}) or len(tries) == 3, "it was tried")
    assert tries[1] - tries[0] >= 0.2
    assert tries[2] - tries[1] >= 0.4
    assert len(said) == 1


@pytest.fixture
def leases(redis_url: str, said: list[str]) -> Iterator[ChildLeases]:
    made = ChildLeases(teller(said))
    app = App(redis_url=redis_url, lease=6)
    made.connect(app.config.to_json())
    yield made
    if made._link is not None:
        made._link.connections.close()
    app.close()


def test_a_refused_rescue_holds_up_no_other_and_no_renewal(leases: Any, store: Store, said: list[str]) -> None:
    """What stands in the way of one is said as it is, tried again with back-off, and done when it can be."""
    corpse(store, job("a"), identity=ILL)
    corpse(store, job("b"), identity=GOOD)
    store.join("default", identity=LIVING)
    store.ask("PEXPIRE", store.keys.lease(LIVING), 1000)
    store.ask("RENAME", store.keys.lists_of(ILL), "aside")
    store.ask("SET", store.keys.lists_of(ILL), "in the way")
    leases.children = [Calm(1, LIVING)]
    leases.give_back([ILL, GOOD])
    leases.tick()
    assert store.queue("default") == [job("b")]
    assert store.ask("PTTL", store.keys.lease(LIVING)) > 4000
    for _ in range(3):
        leases.tick()
    assert len([line for line in said if ILL in line]) == 1, "it is said once"
    assert "WRONGTYPE" in said[0]
    assert not [line for line in said if "cannot be reached" in line]
    store.ask("DEL", store.keys.lists_of(ILL))
    store.ask("RENAME", "aside", store.keys.lists_of(ILL))
    until(lambda: leases.tick() and not leases._dead, "its turn comes")
    assert sorted(store.queue("default")) == [job("a"), job("b")]


def test_a_defect_in_one_rescue_holds_up_no_other(
    leases: Any, store: Store, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is: a payload that cannot be judged, for one."""
    for name in (ILL, GOOD):
        corpse(store, job(name), identity=name)
    charge = rescue_module.charge

    def charges(desk: Any, identity: str, *args: Any, **how: Any) -> Any:
        if identity == ILL:
            raise OverflowError("as told")
        return charge(desk, identity, *args, **how)

    monkeypatch.setattr(rescue_module, "charge", charges)
    leases.give_back([ILL, GOOD], Death("it ended with signal 9", [], False))
    leases.tick()
    assert store.queue("default") == [job(GOOD)]
    assert [one.identity for one in leases._dead] == [ILL]
    assert "as told" in said[0]


def test_a_broken_list_of_a_dead_child_holds_up_no_other_list(leases: Any, store: Store, said: list[str]) -> None:
    """What can go back does, at once; the rest as soon as it can."""
    corpse(store, job("a"), identity=ILL)
    broken = store.keys.in_flight(ILL, 1, "broken")
    store.ask("SADD", store.keys.lists_of(ILL), broken)
    store.ask("SET", broken, "no list")
    leases.give_back([ILL], Death("it ended with signal 9", [b"a"], False))
    leases.tick()
    assert store.queue("default") == [job("a")]
    assert store.ask("HKEYS", store.keys.deaths) == [b"a"]
    assert said[0] == f"gave back the unfinished jobs of a process count=1 identity={ILL} jobs=act a"
    assert said[1].startswith(
        f"the work of a process cannot be given back yet, that is tried again identity={ILL} error="
    )
    store.ask("DEL", broken)
    store.ask("LPUSH", broken, job("b"))
    until(lambda: leases.tick() and not leases._dead, "its turn comes")
    assert store.queue("broken") == [job("b")]


def test_a_pill_is_not_among_those_that_went_back(leases: Any, store: Store, said: list[str]) -> None:
    corpse(store, job("pill"), job("b"), identity=ILL)
    store.ask("HSET", store.keys.deaths, "pill", "1 h:1:a it ended\n2 h:1:b it ended")
    leases.give_back([ILL], Death("it ended with signal 9", [b"pill"], alone=True))
    leases.tick()
    assert store.queue("default") == [job("b")]
    assert "poison pill" in said[0]
    assert said[1] == f"gave back the unfinished jobs of a process count=1 identity={ILL} jobs=act b"


def test_a_refused_renewal_holds_up_no_other_and_no_rescue(leases: Any, store: Store, said: list[str]) -> None:
    """A full server takes no lease again that had lapsed in a place where something else was said first."""
    ill, well = Calm(1, ILL, ill=True), Calm(2, LIVING)
    store.join("default", identity=LIVING)
    store.ask("PEXPIRE", store.keys.lease(LIVING), 1000)
    corpse(store, job("a"), identity=GOOD)
    leases.children = [ill, well]
    leases.give_back([GOOD])
    leases.tick()
    assert store.ask("PTTL", store.keys.lease(LIVING)) > 4000
    assert store.queue("default") == [job("a")]


def test_a_server_of_no_use_is_tried_again_and_no_reason_to_end(said: list[str]) -> None:
    """A child has told of a server that cannot be used now: nothing of that reaches the supervisor's loop."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        leases: Any = ChildLeases(teller(said))
        app = App(redis_url=f"redis://127.0.0.1:{nobody.getsockname()[1]}/0")
        leases.connect(app.config.to_json())
        leases.give_back([GOOD])
        for _ in range(2):
            assert leases.tick() == 0.5
        assert len(said) == 1
        assert "cannot be reached" in said[0]


def test_children_are_renewed_in_one_write(leases: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, and however far away the server is; also one that was forgotten by the script cache."""
    names = [f"host:{n}:{n:012x}" for n in range(1, 21)]
    for name in names:
        store.join("default", identity=name)
        store.ask("PEXPIRE", store.keys.lease(name), 1000)
    store.ask("SCRIPT", "FLUSH")
    leases.children = [Calm(n, name) for n, name in enumerate(names)]
    leases.tick()
    assert min(store.ask("PTTL", store.keys.lease(name)) for name in names) > 4000


def test_a_stop_beside_a_call_that_hangs_gives_back_once(leases: Any, store: Store, said: list[str]) -> None:
    """Two ticks at once gave back the work of one child twice, and the second ended the supervisor with an error."""
    corpse(store, job("a"), identity=GOOD)
    leases.tick()  # connects
    store.ask("CLIENT", "PAUSE", 2500, "ALL")
    leases.give_back([GOOD])
    leases.start()
    until(leases._ticking.locked, "the thread hangs in its call")
    leases.finish()
    assert leases._dead == []
    assert store.queue("default") == [job("a")]
    assert said == [f"gave back the unfinished jobs of a process count=1 identity={GOOD} jobs=act a"]


def test_a_stop_beside_a_call_that_hangs_for_long_has_an_end(leases: Any, store: Store, said: list[str]) -> None:
    leases.tick()
    began = time.monotonic()
    with leases._ticking:
        leases.give_back([GOOD])
        leases.finish()
    assert time.monotonic() - began < 10
    assert [one.identity for one in leases._dead] == [GOOD]


def test_a_stop_in_which_everything_fails_ends_every_part(supervisor: Any) -> None:
    ended: list[str] = []

    def fail(part: str) -> None:
        ended.append(part)
        raise OSError("no")

    supervisor._leases = SimpleNamespace(finish=lambda: fail("leases"))
    supervisor._history = SimpleNamespace(stop=lambda: fail("history"))
    supervisor._health = SimpleNamespace(stop=lambda: fail("probes"))
    supervisor._end()
    assert ended == ["leases", "history", "probes"]


def test_a_tick_that_fails_at_the_end_holds_up_nothing(leases: Any, store: Store, said: list[str]) -> None:
    corpse(store, job("a"), identity=GOOD)
    leases.tick()
    leases.give_back([GOOD])
    renew, tries = leases._renew_all, list[float]()

    def renews(link: Any) -> None:
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise OverflowError("as told")
        renew(link)

    leases._renew_all = renews
    leases.finish()
    assert store.queue("default") == [job("a")]
    assert "as told" in said[0]
