"""For every script of ordered queues, a kill before it and one between its execution and its answer; then a lost
answer at each. In the end every accepted payload has run, in the order of its id, and nobody holds anything; where the
queue is tracked, the record of each has ended with it.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.errors import ServerAway
from henchman.kernel import failpoints
from henchman.store import leases, ordered
from henchman.worker import heart, rescue, session
from support.history import stream
from support.mortal import PULSE, RESCUE_AFTER, Nursery, make_app
from support.worker import Heard, until, working

WHERE = ["before", "after"]
SCRIPTS = (
    "ordered_push",
    "ordered_claim",
    "ordered_settle",
    "ordered_free",
    "ordered_act",
    "ordered_drop",
    "ordered_move",
)
BASE = "hm:ordered:ids/"
GONE = "h:1:abcdefabcdef"


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rescue, "WATCH", RESCUE_AFTER)
    monkeypatch.setattr(heart, "PULSE", PULSE)
    monkeypatch.setattr(session, "SETTLED", 4.0)  # longer than a thread may take from what it read to holding it
    yield
    failpoints.close()


class Scene:
    """A server, and a trace of what ran on two ids."""

    def __init__(self, redis: Redis, url: str, folder: Path) -> None:
        self.redis, self.folder = redis, folder
        self.trace = folder / "trace"
        self.trace.touch()
        self.order = {"url": url, "trace": self.trace, "folder": folder, "ordered": True}
        self._url = url

    def tracked_by(self, script: str) -> str:
        """The script itself; with ``_tracked`` behind its name its queues are tracked from here on."""
        if script.endswith("_tracked"):
            self.order["track"] = True
            self.redis.set("hm:history:on", "strict 1000000")
        return script.removesuffix("_tracked")

    def app(self) -> App:
        return make_app(self._url, self.trace, ordered=True, track="track" in self.order)

    def recorded(self, keys: set[str]) -> None:
        """Each payload that was accepted has a record, which has ended well, once."""
        lives: dict[str, list[dict[str, str]]] = {}
        for row in stream(self.redis):
            lives.setdefault(row["j"], []).append(row)
        names = [json.loads(life[0]["d"])["args"][1][0] for life in lives.values()]
        assert sorted(names) == sorted(keys)
        statuses = [[row["s"] for row in life] for life in lives.values()]
        assert all(life[0] == "enqueued" and life.index("finished") == len(life) - 1 for life in statuses), statuses

    def push(self, *, seconds: float = 0.0) -> None:
        """Three payloads under x, one under y."""
        app = self.app()
        rows = [("x", ["x1", seconds], 1), ("x", ["x2", 0], 2), ("y", ["y1", seconds], 1), ("x", ["x3", 0], 3)]
        job: Any = app.registry.get("ids")
        job.push_many(rows)
        app.close()

    def told(self, event: str) -> list[list[str]]:
        """The words of each line of ``event``: id, token, key."""
        lines = [line.split() for line in self.trace.read_text().splitlines()]
        return [words[1].split(".") for words in lines if words[0] == event]

    def time_passes(self) -> None:
        self.redis.delete("hm:lifeline", "hm:staging", *self.redis.keys("hm:lease:*"))  # type: ignore[misc]
        with self.trace.open("a") as trace:
            trace.writelines(f"start {key} 0\n" for key in ("x1", "y1"))

    def idle(self) -> bool:
        return not self.redis.exists(f"{BASE}due", "hm:ordered:other/due") and not list(
            self.redis.scan_iter("hm:held:*")
        )

    def ended_well(self, *, twice: bool, keys: tuple[str, ...] = ("x1", "x2", "x3", "y1")) -> None:
        """Each payload ran, each id in order; ``twice``: what was held may have run again, under a higher token."""
        until(lambda: {words[2] for words in self.told("run")} >= set(keys) and self.idle(), "all ran, nothing is left")
        for name in ("x", "y"):
            mine = [words[1:] for words in self.told("run") if words[0] == name]
            wanted = [key for key in keys if key[0] == name]
            tokens = [int(token) for token, _ in mine]
            assert tokens == sorted(tokens), "tokens rise"
            last = [key for token, key in mine if int(token) == max(tokens, default=0)]
            before = [key for token, key in mine if int(token) != max(tokens, default=0)]  # killed, maybe halfway
            assert before == (wanted[: len(before)] if twice else [])
            assert last == wanted
        left = {key.decode().removeprefix(BASE) for key in self.redis.scan_iter(f"{BASE}*")}
        assert left <= {"meta", "stat", "wake"}
        if "track" in self.order:
            until(lambda: [row["s"] for row in stream(self.redis)].count("finished") == len(keys), "told")
            self.recorded(set(keys))


@pytest.fixture
def scene(redis: Redis, redis_url: str, tmp_path: Path) -> Scene:
    return Scene(redis, redis_url, tmp_path)


def waiting(scene: Scene) -> None:
    scene.push()


def orphaned(scene: Scene) -> None:
    """Both ids are held by a process whose host is gone."""
    scene.push()
    app = scene.app()
    held = app.keys.held(GONE, 1, "ids")
    app.connections.run(leases.join(app.keys, GONE, [held], 60_000))
    claimed = app.connections.run(ordered.claim(app.keys, GONE, 1, "ids", 2, 0, 1, 1000, 60_000))
    assert len(claimed.claims) == 2
    app.connections.run(ordered.ring(app.keys, "ids"))
    scene.redis.delete(app.keys.lease(GONE))
    app.close()


WORKER: dict[str, Callable[[Scene], None]] = {
    "ordered_claim": waiting,
    "ordered_settle": waiting,
    "BZPOPMIN": waiting,
    "ordered_free": orphaned,
    "ordered_claim_tracked": waiting,
    "ordered_settle_tracked": waiting,
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", WORKER)
def test_a_worker_of_ids_is_killed(scene: Scene, mortals: Nursery, script: str, where: str) -> None:
    prepare = WORKER[script]
    script = scene.tracked_by(script)
    prepare(scene)
    fault = f"kill@{script}:{where}#1"

    assert mortals.run(part="worker", faults=fault, **scene.order) == -signal.SIGKILL

    assert (scene.folder / fault).exists()
    scene.time_passes()
    with working(scene.app()):
        # who frees ids may be given them in the same moment, and have run them when it is killed
        scene.ended_well(twice=script in ("ordered_settle", "ordered_free", "BZPOPMIN"))


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", WORKER)
def test_a_worker_of_ids_loses_its_connection(scene: Scene, script: str, where: str) -> None:
    """Nothing runs twice for that: a claim that was not heard of is freed by who made it, a settling is sent again."""
    prepare = WORKER[script]
    script = scene.tracked_by(script)
    prepare(scene)
    app = scene.app()
    app.connections  # noqa: B018 - connects before the points are open
    heard = Heard(app, "late")
    failpoints.open_points(f"drop@{script}:{where}#1", scene.folder)
    with working(app):
        until(lambda: any(one.name.startswith("drop") for one in scene.folder.iterdir()), "it was struck")
        scene.ended_well(twice=False)
    assert script == "ordered_free" or not heard["late"], "it is not said of what was settled that it was not"


PUSHES = ["ordered_push", "ordered_push_tracked"]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", PUSHES)
def test_a_client_is_killed_while_it_pushes_payloads(scene: Scene, mortals: Nursery, script: str, where: str) -> None:
    script = scene.tracked_by(script)
    order = {"part": "client", "do": "ordered_push", **scene.order}

    assert mortals.run(faults=f"kill@{script}:{where}#2", **order) == -signal.SIGKILL

    accepted = ["c0"] if where == "before" else ["c0", "c1"]  # executed is executed, though nobody heard of it
    with working(scene.app()):
        until(lambda: len(scene.told("done")) == 2 and scene.idle(), "both ids ran")
    for name in ("x", "y"):
        assert [words[2] for words in scene.told("run") if words[0] == name] == accepted, "of both ids, or of none"


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", PUSHES)
def test_a_client_that_pushes_payloads_loses_its_connection(scene: Scene, script: str, where: str) -> None:
    script = scene.tracked_by(script)
    app = scene.app()
    job: Any = app.registry.get("ids")
    failpoints.open_points(f"drop@{script}:{where}")
    with pytest.raises(ServerAway) as caught:
        job.push("x", ["c0", 0], score=1)
    assert caught.value.executed is None
    failpoints.close()
    job.push("x", ["c1", 0], score=2)
    with working(app):
        until(lambda: scene.told("done") and scene.idle(), "it ran")
    assert [words[2] for words in scene.told("run")] == (["c1"] if where == "before" else ["c0", "c1"])


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", ["ordered_act", "ordered_drop", "ordered_move"])
def test_who_acts_on_ids_is_killed(scene: Scene, mortals: Nursery, script: str, where: str) -> None:
    """An id is gone, or moved, as a whole or not at all, and of one payload as well; nothing is in both queues."""
    scene.push()
    do = {"ordered_act": "ordered_delete"}.get(script, script)

    assert mortals.run(part="client", do=do, faults=f"kill@{script}:{where}#1", **scene.order) == -signal.SIGKILL

    here, there = (set(scene.redis.zrange(f"hm:ordered:{queue}/due", 0, -1)) for queue in ("ids", "other"))
    kept = {b"x", b"y"} if where == "before" or script != "ordered_act" else set()
    assert (here | there, here & there) == (kept, set())
    assert bool(there) == (script == "ordered_move" and where == "after")
    with working(scene.app()):
        keys = ("x1", "x2", "x3", "y1") if kept else ()
        scene.ended_well(twice=False, keys=keys[1:] if script == "ordered_drop" and where == "after" else keys)
