"""For every script, a kill before it and one between its execution and its answer; then a lost answer at each.

Whatever is killed there (a client, a worker, a supervisor), another goes on; in the end every accepted job has run,
nothing is in flight, and nothing ran twice but what was in flight when its process died.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis import Redis

import henchman
from henchman.cron import timing
from henchman.errors import ServerAway
from henchman.iterable import execution
from henchman.kernel import failpoints
from henchman.store import jobs
from henchman.worker import acker, heart, rescue, session
from support.batch_calls import CALLS
from support.mortal import PULSE, RESCUE_AFTER, Nursery, make_app
from support.processes import Work, push
from support.store import ME, Store
from support.worker import in_flight, jobs_in, until, working

WHERE = ["before", "after"]
LUA = Path(henchman.__file__).parent / "store" / "lua"
SCRIPTS = sorted(file.stem for file in LUA.glob("*.lua"))


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rescue, "WATCH", RESCUE_AFTER)
    monkeypatch.setattr(heart, "PULSE", PULSE)
    monkeypatch.setattr(execution, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(session, "SETTLED", 4.0)  # longer than a thread may take from what it read to holding it
    monkeypatch.setattr(timing, "GRACE", 120.0)  # so long nothing was missed, however late who goes on is ready
    yield
    failpoints.close()


class Scene:
    """A server, and a trace of what ran."""

    def __init__(self, redis: Redis, url: str, folder: Path) -> None:
        self.redis, self.url, self.folder = redis, url, folder
        self.trace = folder / "trace"
        self.trace.touch()
        self.accepted: set[str] = set()
        self.jids: list[str] = []

    def push(self, *names: str, first: float = 0.0) -> None:
        """Jobs are waiting in the queue; in their first run they take ``first`` seconds."""
        self.jids += push(self.redis, "act", *[(name, first) for name in names])
        self.accepted.update(names)

    def told(self, event: str) -> Counter[str]:
        lines = [line.split() for line in self.trace.read_text().splitlines()]
        return Counter(line[1] for line in lines if line[0] == event)

    def held(self) -> set[str]:
        """What is in flight, by the first argument."""
        keys = self.redis.keys("hm:flight:*")
        return {str(job["args"][0]) for key in keys for job in jobs_in(self.redis, key.decode()) if job["args"]}  # type: ignore[union-attr]

    def time_passes(self) -> None:
        """What the dead held runs out by itself; here it does so at once."""
        names = ["hm:lifeline", "hm:staging", "hm:cron:leader", *self.redis.keys("hm:lease:*")]  # type: ignore[misc]
        self.redis.delete(*names)

    def nobody_sleeps_again(self) -> None:
        with self.trace.open("a") as trace:
            trace.writelines(f"start {name} 0\n" for name in self.accepted)

    def idle(self) -> bool:
        return not in_flight(self.redis) and not self.redis.exists("queue:default", "schedule", "retry")

    def ended_well(self, doubled: set[str]) -> None:
        """Every accepted job has run; only those of ``doubled`` may have run twice."""
        until(lambda: self.accepted <= self.told("run").keys() and self.idle(), f"{self.accepted} ran, nothing is left")
        runs = self.told("run")
        twice = {name for name, count in runs.items() if count > 1}
        assert twice <= doubled, f"ran again though it was not in flight: {twice - doubled}"
        assert max(runs.values(), default=0) <= 2
        assert jobs_in(self.redis, "dead") == []
        assert not self.redis.exists("hm:broken")
        assert list(self.redis.scan_iter("hm:checkpoint:*")) == []
        assert list(self.redis.scan_iter("hm:lock:*")) == []
        assert not self.redis.exists("hm:parked")


@pytest.fixture
def scene(redis: Redis, redis_url: str, tmp_path: Path) -> Scene:
    return Scene(redis, redis_url, tmp_path)


def waiting(scene: Scene) -> None:
    scene.push("a", "b", "c", "d", "e")


def many(scene: Scene) -> None:
    """So many that no wait is open while some of them end."""
    scene.push(*[f"m{number}" for number in range(100)])


def running(scene: Scene) -> None:
    scene.push("a", "b", first=60)
    scene.push("c")


def keyed(scene: Scene) -> None:
    """Jobs with one key, of which one runs at a time."""
    scene.push("a", "b", "c")
    rows = [json.loads(one) for one in reversed(scene.redis.lrange("queue:default", 0, -1))]  # type: ignore[arg-type]
    scene.redis.delete("queue:default")
    for row in rows:
        row["hm"] = {"key": ["scope", "key", "r"]}
        scene.redis.lpush("queue:default", json.dumps(row))


def due(scene: Scene) -> None:
    scene.push("a", "b", "c", "d")
    for name in ("retry", "retry", "schedule", "schedule"):
        scene.redis.zadd(name, {scene.redis.rpop("queue:default"): 1.0})  # type: ignore[dict-item]


def orphaned(scene: Scene) -> None:
    """Jobs in flight of a process whose host is gone."""
    scene.push("a", "b", "c")
    store = Store(scene.url)
    store.join("default")
    store.fetch("default")
    store.ask("DEL", store.keys.lease(ME))
    store.connections.close()


def overdue(scene: Scene) -> None:
    """The same, of which one had run out of time there."""
    push(scene.redis, "fail", ("f",))
    scene.accepted.add("f")
    [row] = [json.loads(one) for one in scene.redis.lrange("queue:default", 0, -1)]  # type: ignore[union-attr]
    text = json.dumps(row | {"hm": {"timeout": 1}})
    scene.redis.lset("queue:default", 0, text)
    orphaned(scene)
    now = time.time()
    scene.redis.hset(ME, mapping={"beat": repr(now - 5), "skew": "0", "info": "{}"})
    scene.redis.hset(f"{ME}:work", "slot", json.dumps({"queue": "default", "payload": text, "run_at": int(now - 60)}))


def fairly(scene: Scene) -> None:
    """Jobs of two tenants, in a fair queue."""
    scene.push("a", "b", "c", "d", "e")
    rows = list(reversed(scene.redis.lrange("queue:default", 0, -1)))  # type: ignore[arg-type]
    scene.redis.delete("queue:default")
    scene.redis.sadd("hm:fair", "default")
    for number, row in enumerate(rows):
        scene.redis.lpush("queue:default", b'{"fair":"%d",' % (number % 2) + row[1:])


def walking(scene: Scene) -> None:
    push(scene.redis, "walk", ("w",))
    scene.accepted.add("w")


def stepping(scene: Scene) -> None:
    push(scene.redis, "step", ("s",))
    scene.accepted.add("s")


def failing(scene: Scene) -> None:
    """Jobs whose first run raises."""
    push(scene.redis, "fail", ("a",), ("b",))
    scene.accepted.update("ab")


def nothing(scene: Scene) -> None:
    """An empty server."""


class Part(NamedTuple):
    """How a worker comes to a script: what it finds, at which passing it is struck, how it works."""

    setup: Callable[[Scene], None]
    passing: int = 1
    order: dict[str, Any] = {}  # noqa: RUF012 - never changed


WORKER = {
    "join": Part(waiting),
    "fetch": Part(waiting),
    "fair_fetch": Part(fairly),
    "settle": Part(waiting),
    "settle_oldest": Part(many, 1, {"cut_least": 1}),  # also what ends alone
    "claim": Part(keyed),
    "renew": Part(running, 2),
    "beat": Part(running),
    "group_errors": Part(failing),
    "due": Part(due),
    "move": Part(due),
    "watch": Part(orphaned),
    "entomb": Part(orphaned),
    "charge": Part(orphaned, 2),
    "give_back": Part(orphaned),
    "end_lost": Part(overdue),
    "iterate": Part(walking, 3),
    "checkpoint": Part(stepping, 2),
    "ZADD": Part(running, 1, {"stop_after": 2}),
    "leave": Part(running, 1, {"stop_after": 2}),
    "BLMOVE": Part(nothing, 1, {"push_when_idle": True}),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", WORKER)
def test_a_worker_is_killed(scene: Scene, mortals: Nursery, script: str, where: str) -> None:
    part = WORKER[script]
    part.setup(scene)
    fault = f"kill@{script}:{where}#{part.passing}"
    order = {"part": "worker", "url": scene.url, "trace": scene.trace, "folder": scene.folder, **part.order}

    assert mortals.run(faults=fault, **order) == -signal.SIGKILL

    assert (scene.folder / fault).exists()
    held = scene.held()
    if script == "BLMOVE" and where == "after":
        scene.accepted = {"late"}
        assert held == {"late"}, "moved by the server, though nobody read it"
    scene.nobody_sleeps_again()
    scene.time_passes()
    with working(make_app(scene.url, scene.trace)):
        scene.ended_well(held)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", [name for name in WORKER if name not in ("ZADD", "leave")])
def test_a_worker_loses_its_connection(scene: Scene, script: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part = WORKER[script]
    monkeypatch.setattr(acker, "CUT_LEAST", part.order.get("cut_least", acker.CUT_LEAST))
    (waiting if part.setup is running else part.setup)(scene)
    app = make_app(scene.url, scene.trace)
    app.connections  # noqa: B018 - connects before the points are open
    folder = scene.folder
    failpoints.open_points(f"drop@{script}:{where}#{part.passing}", folder)
    with working(app) as launcher:
        if script == "BLMOVE" and where == "after":
            until(lambda: launcher.watcher.armed, "a wait is open")
            scene.push("late")
        scene.ended_well(set())
        until(lambda: any(one.name.startswith("drop") for one in folder.iterdir()), "it was struck")
        scene.ended_well(set())


CLIENT = {"push": "SADD", "push_many": "SADD", "schedule": "schedule"}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("do", CLIENT)
def test_a_client_is_killed(scene: Scene, mortals: Nursery, do: str, where: str) -> None:
    fault = f"kill@{CLIENT[do]}:{where}#2"
    order = {"part": "client", "do": do, "url": scene.url, "trace": scene.trace, "folder": scene.folder}

    assert mortals.run(faults=fault, **order) == -signal.SIGKILL

    assert scene.told("accepted") == {"c0": 1}
    scene.accepted = {"c0"} if where == "before" else {"c0", "c1"}  # executed is executed, though nobody heard of it
    with working(make_app(scene.url, scene.trace)):
        scene.ended_well(set())
    assert scene.told("run").keys() == scene.accepted


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("do", CLIENT)
def test_a_client_loses_its_connection(scene: Scene, do: str, where: str) -> None:
    """It is told that it is not known, and nothing is sent twice."""
    app = make_app(scene.url, scene.trace)
    act: Any = app.registry.get("act")
    failpoints.open_points(f"drop@{CLIENT[do]}:{where}")
    with pytest.raises(ServerAway) as caught:
        {
            "push": act.enqueue,
            "push_many": lambda name: act.enqueue_many([(name,)]),
            "schedule": act.using(delay=0.1).enqueue,
        }[do]("c0")
    assert caught.value.executed is None
    failpoints.close()
    act.enqueue("c1")
    scene.accepted = {"c1"} if where == "before" else {"c0", "c1"}
    with working(app):
        scene.ended_well(set())
    assert scene.told("run").keys() == scene.accepted


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", ["fair_declare", "fair_take_in"])
def test_a_client_of_a_fair_queue_is_killed(scene: Scene, mortals: Nursery, script: str, where: str) -> None:
    """What was pushed runs once, whether it was taken into lines or not."""
    order = {
        "part": "client",
        "do": "push_fair",
        "fair": True,
        "url": scene.url,
        "trace": scene.trace,
        "folder": scene.folder,
    }

    assert mortals.run(faults=f"kill@{script}:{where}#1", **order) == -signal.SIGKILL

    scene.accepted = {"c0", "d0"} if script == "fair_take_in" else set()
    with working(make_app(scene.url, scene.trace, fair=True)):
        scene.ended_well(set())
    assert scene.told("run").keys() == scene.accepted
    assert scene.redis.keys("hm:fair:turns:*") == []


@pytest.mark.parametrize("where", WHERE)
def test_a_client_of_a_fair_queue_loses_its_connection(scene: Scene, where: str) -> None:
    """The jobs are pushed: that they were not taken into lines is nothing to be told of."""
    app = make_app(scene.url, scene.trace, fair=True)
    failpoints.open_points(f"drop@fair_take_in:{where}")
    app.registry.get("turn").enqueue_many([("a", "x"), ("b", "y")])  # type: ignore[attr-defined]
    failpoints.close()
    scene.accepted = {"a", "b"}
    with working(app):
        scene.ended_well(set())


@pytest.mark.parametrize("where", WHERE)
def test_a_client_is_killed_while_it_cancels(scene: Scene, mortals: Nursery, where: str) -> None:
    scene.push("a", "b", "c")
    order = {"part": "client", "do": "cancel", "jids": scene.jids, "url": scene.url, "trace": scene.trace}

    assert mortals.run(faults=f"kill@cancel:{where}#2", folder=scene.folder, **order) == -signal.SIGKILL

    scene.accepted = {"b", "c"} if where == "before" else {"c"}
    with working(make_app(scene.url, scene.trace)):
        scene.ended_well(set())
    assert scene.told("run").keys() == scene.accepted, "what was cancelled never ran"


@pytest.mark.parametrize("where", WHERE)
def test_a_client_is_killed_while_it_takes_cancellations_back(scene: Scene, mortals: Nursery, where: str) -> None:
    scene.push("a", "b", "c")
    store = Store(scene.url)
    for jid in scene.jids:
        store.run(jobs.cancel(store.keys, jid))
    store.connections.close()
    order = {"part": "client", "do": "uncancel", "jids": scene.jids, "url": scene.url, "trace": scene.trace}

    assert mortals.run(faults=f"kill@uncancel:{where}#2", folder=scene.folder, **order) == -signal.SIGKILL

    scene.accepted = {"a"} if where == "before" else {"a", "b"}
    with working(make_app(scene.url, scene.trace)):
        scene.ended_well(set())
    assert scene.told("run").keys() == scene.accepted, "what is cancelled never ran"


@pytest.mark.parametrize("where", WHERE)
def test_who_takes_a_duty_is_killed(scene: Scene, mortals: Nursery, where: str) -> None:
    """The duty is one process's, or nobody's; it runs out by itself."""
    order = {"part": "client", "do": "lead", "url": scene.url, "trace": scene.trace}

    assert mortals.run(faults=f"kill@lead:{where}#1", folder=scene.folder, **order) == -signal.SIGKILL

    key = Store(scene.url).keys.auditor
    assert scene.redis.get(key) == (None if where == "before" else b"host:0")
    assert (scene.redis.pttl(key) > 0) == (where == "after")  # type: ignore[operator]


@pytest.mark.parametrize("where", WHERE)
def test_who_moves_times_along_with_a_clock_is_killed(scene: Scene, mortals: Nursery, where: str) -> None:
    """Each page is moved as a whole, and once."""
    scene.push("a", "b", "c")
    far = round(time.time()) + 100 * 3600
    for _ in range(3):
        scene.redis.zadd("retry", {scene.redis.rpop("queue:default"): far})  # type: ignore[dict-item]
    scene.redis.hset("hm:clock", "left", "0\nnext\n")
    payloads = [one.decode() for one in scene.redis.zrange("retry", 0, -1)]  # type: ignore[union-attr]
    order = {"part": "client", "do": "rebase", "url": scene.url, "trace": scene.trace}
    order |= {"payloads": payloads, "far": far}

    assert mortals.run(faults=f"kill@rebase:{where}#2", folder=scene.folder, **order) == -signal.SIGKILL

    moved = 1 if where == "before" else 2
    assert scene.redis.hget("hm:clock", "left") == f"{moved}\nnext\n".encode(), "who goes on knows what was moved"
    scores = [score for _, score in scene.redis.zrange("retry", 0, -1, withscores=True)]
    assert scores == pytest.approx([far - moved * 3600] * 3, abs=1.0)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", ["cron_put", "cron_look", "cron_tick"])
def test_who_ticks_is_killed(scene: Scene, mortals: Nursery, script: str, where: str) -> None:
    fault = f"kill@{script}:{where}#{1 if script == 'cron_put' else 3}"
    order = {"part": "worker", "crons": True, "url": scene.url, "trace": scene.trace, "folder": scene.folder}

    assert mortals.run(faults=fault, **order) == -signal.SIGKILL

    before, held = len(scene.told("tick")), len(in_flight(scene.redis))
    scene.time_passes()
    with working(make_app(scene.url, scene.trace, crons=True)):
        until(lambda: len(scene.told("tick")) >= before + 4, "another ticks on")
        until(lambda: not in_flight(scene.redis), "nothing is left")
    ticks = scene.told("tick")
    times = sorted(map(float, ticks))
    assert times == pytest.approx([times[0] + 0.3 * n for n in range(len(times))]), "none is missing"
    assert ticks.total() - len(ticks) <= held, "none was enqueued twice"


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", ["cron_put", "cron_look", "cron_tick"])
def test_who_ticks_loses_its_connection(scene: Scene, script: str, where: str) -> None:
    app = make_app(scene.url, scene.trace, crons=True)
    app.connections  # noqa: B018 - connects before the points are open
    failpoints.open_points(f"drop@{script}:{where}#{1 if script == 'cron_put' else 3}", scene.folder)
    with working(app):
        until(lambda: any(one.name.startswith("drop") for one in scene.folder.iterdir()), "it was struck")
        before = len(scene.told("tick"))
        until(lambda: len(scene.told("tick")) >= before + 3, "it ticks on")
        until(lambda: not in_flight(scene.redis), "nothing is left")
    times = sorted(map(float, scene.told("tick")))
    assert times == pytest.approx([times[0] + 0.3 * n for n in range(len(times))]), "none is missing"
    assert set(scene.told("tick").values()) == {1}, "each once"


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(("do", "script"), [("add", "cron_put"), ("pause", "cron_switch"), ("remove", "cron_remove")])
def test_a_client_is_killed_while_it_changes_crons(
    scene: Scene, mortals: Nursery, do: str, script: str, where: str
) -> None:
    """A change is there as a whole or not at all."""
    app = make_app(scene.url, scene.trace)
    if do != "add":
        for number in range(3):
            app.crons.add(f"c{number}", "act", every=3600, args=["cron"])
    order = {"part": "client", "do": do, "url": scene.url, "trace": scene.trace, "folder": scene.folder}

    assert mortals.run(faults=f"kill@{script}:{where}#2", **order) == -signal.SIGKILL

    changed = {"c0"} if where == "before" else {"c0", "c1"}
    states = {cron.name: cron.state for cron in app.crons.list()}
    everybody = {"c0", "c1", "c2"}
    there = {"add": changed, "pause": everybody, "remove": everybody - changed}[do]
    assert states.keys() == there
    if do == "pause":
        assert {name for name, state in states.items() if state == "paused"} == changed
    assert {name.decode() for name in scene.redis.zrange("hm:cron:ticks", 0, -1)} == there  # type: ignore[union-attr]
    app.close()


def alive(work: Work) -> list[str]:
    """The processes of ``work``, also those that have lost their parent and have done nothing yet."""

    def environ(pid: str) -> bytes:
        try:
            return Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:  # it has ended, or is somebody else's
            return b""

    return [pid for pid in os.listdir("/proc") if pid.isdecimal() and str(work.trace_file).encode() in environ(pid)]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", ["entomb", "charge", "give_back"])
def test_a_supervisor_is_killed(scene: Scene, script: str, where: str) -> None:
    """While it gives back the work of a child that died."""
    fault = f"kill@{script}:{where}#1"
    env = {"HENCHMAN_TEST_FAULTS": fault, "HENCHMAN_TEST_FAULTS_FOLDER": str(scene.folder), "HENCHMAN_LEASE": "5"}
    with Work(scene.folder / "w", scene.url, "-c", "2", "-t", "1", HENCHMAN_HEARTBEAT="1", **env) as work:
        push(scene.redis, "act", ("a", "sleep", 60), ("b", "sleep", 60), ("c", "ok"))
        until(lambda: work.count("start").total() == 2, "two run")
        os.kill(work.children[0], signal.SIGKILL)
        work.wait()
        assert (scene.folder / fault).exists()
        until(lambda: not alive(work), "its orphan, if there was one, has ended")
    scene.accepted = {"a", "b", "c"}
    scene.nobody_sleeps_again()
    if work.count("end")["c"]:
        scene.accepted -= {"c"}
    held = scene.held()
    assert scene.accepted <= held | {job["args"][0] for job in jobs_in(scene.redis, "queue:default")}
    scene.time_passes()
    with working(make_app(scene.url, scene.trace)):
        scene.ended_well(set())


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    ("do", "script"),
    [("remove_job", "remove"), ("run_next", "bring_forward"), ("clear", "clear"), ("deliver", "deliver")],
)
def test_who_acts_on_a_queue_is_killed(scene: Scene, mortals: Nursery, do: str, script: str, where: str) -> None:
    """All of it is done, or nothing."""
    scene.push("a", "b", "c")
    payloads = [one.decode() for one in reversed(scene.redis.lrange("queue:default", 0, -1))]  # type: ignore[arg-type]
    if do == "deliver":
        scene.redis.delete("queue:default")
    order = {"part": "client", "do": do, "url": scene.url, "trace": scene.trace, "folder": scene.folder}

    assert (
        mortals.run(faults=f"kill@{script}:{where}#1", jids=scene.jids, payloads=payloads, **order) == -signal.SIGKILL
    )

    before = {"deliver": set()}.get(do, {"a", "b", "c"})
    after = {"remove_job": {"b", "c"}, "clear": set()}.get(do, {"a", "b", "c"})
    scene.accepted = before if where == "before" else after
    with working(make_app(scene.url, scene.trace)):
        scene.ended_well(set())
    assert scene.told("run").keys() == scene.accepted


STRUCK = {
    *(*WORKER, *CLIENT.values(), "fair_declare", "fair_take_in", "cancel", "uncancel", "rebase", "lead"),
    *("cron_put", "cron_look", "cron_tick", "cron_switch", "cron_remove"),
    *("remove", "bring_forward", "clear", "deliver"),
    *("ordered_push", "ordered_claim", "ordered_settle", "ordered_free", "ordered_act", "ordered_drop", "ordered_move"),
    *CALLS,  # those of batches, and keyed_push
    "history_trim",  # history/test_exactly_once.py
    *("outbox_push", "outbox_forget"),  # outbox/test_killed_relays.py
    "unlock",  # store/test_locks.py
    "adopt",  # worker/test_journal.py
    "audit",  # console/test_audit.py
    *("park_end", "release_page", "decided"),  # test_decision_faults.py
    *("operate", "operation_back", "operation_turn"),  # test_operation_faults.py
    *("limit_declare", "limit_set", "limit_hand", "limit_enter", "limit_leave"),  # worker/test_places.py
}
READING = {
    "batch_results",
    "holders",
    *("serving", "queue_ends", "queues_page"),
    "ordered_look",
    "ordered_stats",
    "list_page",
    "zset_page",
    "zset_facets",
    "read_each",
    "rebase_page",
    "sizes",
    "key_look",
    *("waiting_page", "blocked_page", "blocked_look", "need_states"),
}  # there is nothing between before and after


def test_no_script_was_forgotten() -> None:
    assert set(SCRIPTS) - STRUCK - READING == set(), "each script needs its kill before and after"


def test_points_are_closed_unless_a_test_opens_them() -> None:
    assert not failpoints.armed
