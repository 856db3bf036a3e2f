"""The hostile corpus through every door: each unit ends in a named place, and its honest neighbours are all done.

Beside it stand jobs whose results and exceptions cannot be read. In-process, real server.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman import App
from henchman.batch.auditor import APART, STILL, Auditor
from henchman.batch.batch import Batch
from henchman.cli.main import henchman
from henchman.config import Config
from henchman.store.leases import in_flight_lists, join
from henchman.supervisor.child_leases import ChildLeases
from henchman.wire.payload import decode
from henchman.work.unit import Unit
from henchman.worker.fetcher import Fetcher
from henchman.worker.rescue import Death
from henchman.worker.run import CompiledJob
from support.dead import entomb_and_rescue
from support.hostile import Hostile, corpus
from support.store import ME
from support.worker import Heard, in_flight, teller, until, working

HONEST = 20


class Scene:
    """An app, a batch whose members are the corpus and honest jobs, and what ran."""

    def __init__(self, redis: Redis, url: str) -> None:
        self.redis, self.url = redis, url
        self.honest: Counter[int] = Counter()
        self.app = self.made()
        honest: Any = self.app.registry.get("honest")
        with self.app.batch("hostile") as self.batch:
            self.corpus = corpus(self.batch.id)
            honest.enqueue_many([(n,) for n in range(HONEST)])
            self.jids = [one.jid for one in self.corpus if one.jid]
            redis.hset(self.jobs, mapping=dict.fromkeys(self.jids, "enqueued"))
            redis.hincrby(f"hm:batch:{self.batch.id}", "n:enqueued", len(self.jids))
        redis.lpush("queue:default", *(one.payload for one in self.corpus))
        rows = redis.lrange("queue:default", 0, -1)
        redis.delete("queue:default")
        redis.rpush("queue:default", *(row for pair in _spread(rows) for row in pair))

    def made(self) -> App:
        """An app of these jobs: "honest", "fine", "raises"."""
        app = App(redis_url=self.url, concurrency=4, heartbeat=0.2, lease=5)

        @app.job(name="honest")
        def honest(number: int) -> None:
            self.honest[number] += 1

        @app.job(name="fine")
        def fine(number: int) -> int:
            return number

        @app.job(name="raises")
        def raises() -> None:
            raise ValueError("as always")

        return app

    @property
    def jobs(self) -> str:
        return f"hm:batch:{self.batch.id}:jobs"

    @property
    def payloads(self) -> list[bytes]:
        return self.redis.lrange("queue:default", 0, -1)  # type: ignore[return-value]

    def into(self, key: str, score: float) -> None:
        """Everything that waits goes into a set instead."""
        rows = self.payloads
        self.redis.delete("queue:default")
        self.redis.zadd(key, dict.fromkeys(rows, score))

    def fetched(self) -> None:
        """Everything that waits is held by a process that is not there any more."""
        keys, flight = self.app.keys, self.app.keys.in_flight(ME, 1, "default")
        self.app.connections.run(join(keys, ME, [flight], 30_000))
        self.redis.rename("queue:default", flight)

    def ended(self) -> None:
        """A worker takes what waits; every honest job ran once, nothing is in flight, the batch counts each member."""
        app = self.made()
        heard = Heard(app, "part_failed", "refused")
        with working(app) as launcher:
            launcher.stager.quiet()
            until(lambda: len(self.honest) == HONEST, "the honest jobs run")
            until(lambda: self.empty() and not launcher.session.held and self.empty(), "everything is settled")
            parts = (launcher.fetcher, launcher.watcher, launcher.acker, launcher.heart, launcher.watchdog)
            assert all(part.alive for part in parts)
        assert set(self.honest.values()) == {1}
        assert not heard["part_failed"], heard["part_failed"]
        assert not heard["refused"], heard["refused"]
        self.nothing_broken()
        left = Counter(self.redis.hvals(self.jobs))
        assert set(left) <= {b"retrying"}, left

    def empty(self) -> bool:
        """Whether nothing waits, nor is in flight; what goes back is in one of both."""
        waits, flies = self.redis.exists("queue:default"), in_flight(self.redis)
        return not waits and not flies and not self.redis.exists("queue:default")

    def nothing_broken(self) -> None:
        assert self.redis.lrange("hm:broken", 0, 0) == []
        found = {key for key in self.redis.keys("hm:batch:*") if key.count(b":") > 3}  # type: ignore[union-attr]
        assert not found, "the dead lie where nobody looks"


def _spread(rows: list[bytes]) -> Iterator[list[bytes]]:
    """The honest jobs, which are last of ``rows``, among the others."""
    rest, honest = rows[:-HONEST], rows[-HONEST:]
    step = len(rest) // HONEST + 1
    for place, one in enumerate(honest):
        yield [*rest[place * step : (place + 1) * step], one]


@pytest.fixture
def scene(redis: Redis, redis_url: str) -> Iterator[Scene]:
    made = Scene(redis, redis_url)
    yield made
    made.app.close()


def test_fetch_run_settle(scene: Scene) -> None:
    scene.ended()
    stored = [*scene.redis.zrange("retry", 0, -1), *scene.redis.zrange("dead", 0, -1)]  # type: ignore[misc]
    for one in stored:
        assert decode(one)["error_message"], one[:300]
    for _, score in scene.redis.zrange("retry", 0, -1, withscores=True):  # type: ignore[misc]
        assert score < time.time() + 1e10, "a year that Ruby can show"


def test_a_busy_process_gives_back_what_it_cannot_start(scene: Scene) -> None:
    before = scene.payloads
    with working(scene.app, start=False) as launcher:
        launcher.session.join()
        queue = launcher.session.current["default"]
        fetcher: Fetcher = launcher.fetcher
        fetcher.quieted.set()
        scene.redis.rename("queue:default", queue.key)
        units = [_unit(one, queue) for one in before]
        fetcher.accept(units, "default")
        until(launcher.acker.flush, "settled")
        launcher.session.give_back_all()
        assert not in_flight(scene.redis)
        for end in (launcher.watcher._bell, launcher.watcher._ring):  # it was never started
            end.close()
    runnable = {one for one in before if one in scene.payloads}
    assert len([one for one in runnable if b'"honest"' in one]) == HONEST
    scene.nothing_broken()
    scene.ended()


def _unit(payload: bytes, flight: Any) -> Any:
    return Unit(payload, flight, time.monotonic())


def test_the_supervisor_gives_back_and_charges(scene: Scene) -> None:
    before = scene.payloads
    scene.fetched()
    said: list[str] = []
    leases = ChildLeases(teller(said))
    leases.connect(Config(redis_url=scene.url).to_json())
    leases.give_back([ME], Death("it ended with signal SIGKILL", [jid.encode()[:40] for jid in scene.jids], False))
    until(lambda: leases.tick() == 1.0, "it gives back")
    assert not [line for line in said if "cannot" in line], said
    assert leases._link is not None
    leases._link.connections.close()
    assert scene.payloads == before, "byte for byte, in their order"
    assert not in_flight(scene.redis)
    known = {jid[:40] for jid in scene.jids}
    assert {one.decode()[:40] for one in scene.redis.hkeys("hm:deaths")} >= known - {""}  # type: ignore[union-attr]
    scene.nothing_broken()
    scene.redis.delete("hm:suspects", "hm:deaths")
    scene.ended()


def test_another_host_rescues(scene: Scene) -> None:
    before = scene.payloads
    scene.fetched()
    scene.redis.delete(f"hm:lease:{ME}")
    assert entomb_and_rescue(scene.app, ME) == (len(before), None)
    assert scene.payloads == before
    assert scene.app.connections.run(in_flight_lists(scene.app.keys, ME))
    scene.nothing_broken()
    scene.redis.delete("hm:suspects", "hm:deaths")
    scene.ended()


def test_three_deaths_alone_bury_each(scene: Scene) -> None:
    """The longest way: each is charged three times by itself, and ends as a poison pill or is no job."""
    for death in range(3):
        who = f"host:{death}:0123456789ab"
        for place, one in enumerate(scene.corpus):
            _dies_alone(scene, f"{who}{place}", one)
    assert not in_flight(scene.redis)
    scene.nothing_broken()
    assert not scene.redis.hkeys(scene.jobs) or not {*scene.redis.hkeys(scene.jobs)} & {
        jid.encode() for jid in scene.jids
    }
    scene.redis.delete("hm:suspects", "hm:deaths")
    scene.ended()


def _dies_alone(scene: Scene, identity: str, one: Hostile) -> None:
    if not scene.redis.lrem("queue:default", 1, one.payload):  # type: ignore[arg-type]
        return
    keys, flight = scene.app.keys, scene.app.keys.in_flight(identity, 1, "default")
    scene.app.connections.run(join(keys, identity, [flight], 30_000))
    scene.redis.rpush(flight, one.payload)
    scene.redis.delete(f"hm:lease:{identity}")
    assert entomb_and_rescue(scene.app, identity) is not None


def test_due_entries_are_staged(scene: Scene) -> None:
    scene.into("retry", 1.0)
    heard = Heard(scene.app, "part_failed", "refused")
    with working(scene.app) as launcher:
        until(lambda: len(scene.honest) == HONEST, "the honest jobs run")
        launcher.stager.quiet()
        until(lambda: not scene.redis.zcount("retry", "-inf", 2.0), "nothing is left behind")
        until(scene.empty, "everything is settled")
    assert not heard["part_failed"], heard["part_failed"]
    assert not heard["refused"], heard["refused"]
    scene.nothing_broken()


@pytest.mark.parametrize("which", ["retries", "dead", "scheduled"])
def test_lists(scene: Scene, which: str) -> None:
    scene.into({"retries": "retry", "dead": "dead", "scheduled": "schedule"}[which], time.time() + 100)
    found: Any = getattr(scene.app, which)
    everything = list(found)
    for one in everything:
        json.dumps(one.to_json())
        for looked in (one.call_text(), repr(one), one.attempts, one.tags, one.error, one.backtrace, one.queue):
            assert looked is None or repr(looked)
    assert found.find(scene.jids[7]) is not None
    for words in (f"{which} list --most 1000", f"{which} list --most 1000 --json", f"job {scene.jids[7]}"):
        result = CliRunner().invoke(henchman, ["--redis", scene.url, *words.split()])
        assert result.exit_code == 0, (words, result.output[-500:], result.exception)


def test_the_queue_is_listed(scene: Scene) -> None:
    for one in scene.app.queues["default"]:
        json.dumps(one.to_json())
        assert one.call_text() is not None
    result = CliRunner().invoke(henchman, ["--redis", scene.url, "queues", "default", "--json"])
    assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit), result.exception


ACTS: dict[str, tuple[str, str]] = {
    "retry by hand": ("dead", "retry"),
    "delete": ("retries", "delete"),
    "kill": ("retries", "kill"),
    "clear": ("retries", "clear"),
    "retry all": ("retries", "retry"),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("door", ["api", "command line"])
def test_acts_of_people(scene: Scene, act: str, door: str) -> None:
    which, verb = ACTS[act]
    scene.into({"retries": "retry", "dead": "dead"}[which], time.time() + 100)
    if door == "api":
        found: Any = getattr(scene.app, which)
        done = found.clear() if verb == "clear" else getattr(found, verb)(list(found))
        assert not done.stopped, done
    else:
        words = [which, verb, *([] if verb == "clear" else ["--all"]), "--yes"]
        result = CliRunner().invoke(henchman, ["--redis", scene.url, *words])
        assert result.exit_code == 0 or verb == "retry", (words, result.output[-800:], result.exception)
    scene.nothing_broken()
    left = scene.redis.zcard({"retries": "retry", "dead": "dead"}[which])
    if verb == "retry":
        assert left == len([one for one in scene.corpus if not _readable(one)]), "who is no job stays"
        assert len([one for one in scene.payloads if b'"honest"' in one]) == HONEST
        scene.ended()
    else:
        assert left == 0
    members = Counter(scene.redis.hvals(scene.jobs))
    assert not {b"enqueued", b"working"} & set(members), members


def _readable(one: Hostile) -> bool:
    try:
        decode(one.payload)
    except Exception:
        return False
    return True


def test_the_dead_of_a_batch_are_retried(scene: Scene) -> None:
    scene.into(f"hm:batch:{scene.batch.id}:dead", time.time())
    scene.redis.delete(scene.jobs)
    pushed = _batch(scene).retry()
    assert pushed == len([one for one in scene.corpus if _readable(one) and one.jid]) + HONEST or pushed > HONEST
    assert len([one for one in scene.payloads if b'"honest"' in one]) == HONEST


@pytest.mark.parametrize("how", ["cancel", "expire"])
def test_a_batch_ends_before_its_time(scene: Scene, how: str) -> None:
    scene.into("retry", time.time() + 100)
    if how == "cancel":
        _batch(scene).cancel()
    else:
        scene.redis.hset(f"hm:batch:{scene.batch.id}", "expires", "1")
        Auditor(scene.app).audit()
    assert scene.redis.hlen(scene.jobs) == 0, "every member was settled"
    scene.nothing_broken()


def _batch(scene: Scene) -> Batch:
    found: Batch = scene.app.get_batch(scene.batch.id)
    return found


def test_the_auditor(scene: Scene) -> None:
    """It looks for every member among the corpus, in queues, sets, and in flight; two are gone."""
    clock = [1000.0]
    auditor = Auditor(scene.app, monotonic=lambda: clock[0])
    gone = [one for one in scene.corpus if one.jid][:2]
    for one in gone:
        assert scene.redis.lrem("queue:default", 1, one.payload) == 1  # type: ignore[arg-type]
    rows = scene.payloads
    third = len(rows) // 3
    scene.redis.zadd("retry", dict.fromkeys(rows[:third], time.time() + 100))
    scene.redis.zadd("dead", dict.fromkeys(rows[third : 2 * third], time.time() + 100))
    scene.redis.ltrim("queue:default", 2 * third, -1)
    settled = 0
    for after in (0.0, *(STILL + 1, APART + 1) * 2):  # the dead are settled first
        clock[0] += after
        settled += auditor.audit().settled
    assert settled >= len(gone)
    for one in gone:
        assert not scene.redis.hexists(scene.jobs, one.jid)
    scene.nothing_broken()


@pytest.mark.parametrize("seed", [1, 2, random.SystemRandom().randrange(10**6)], ids=["one", "two", "any"])
def test_payloads_made_at_random(scene: Scene, seed: int) -> None:
    """Fields and values of the corpus mixed, texts cut and bytes changed: 400 of them among the honest jobs."""
    rng = random.Random(seed)
    parts = [json.loads(one.payload) for one in scene.corpus if one.jid]
    made = []
    for number in range(400):
        job = {"class": rng.choice(["fine", "raises", "nobody"]), "args": [1], "jid": f"z{number}"}
        for part in rng.sample(parts, rng.randrange(5)):
            job |= dict(rng.sample(sorted(part.items()), rng.randrange(1, 4))) | {"jid": f"z{number}"}
        raw = bytearray(json.dumps(job).encode())
        if rng.random() < 0.3:
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        made.append(bytes(raw[: rng.randrange(len(raw))] if rng.random() < 0.1 else raw))
    rows = scene.payloads
    scene.redis.delete("queue:default")
    mixed = made + [row for row in rows if b'"honest"' in row]
    rng.shuffle(mixed)
    scene.redis.rpush("queue:default", *(one for one in mixed if one))
    scene.redis.hdel(scene.jobs, *scene.jids)
    print("seed", seed)
    scene.ended()


# What jobs return and raise


class BadStr(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text")


class BadRepr(Exception):
    def __repr__(self) -> str:
        raise SystemExit("no repr")

    __str__ = __repr__


class BadClass(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class BadTruth(Exception):
    def __bool__(self) -> bool:
        raise SystemExit("neither")


class BadTraceback(Exception):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise SystemExit("no traceback")


class BadDict(dict[str, Any]):
    def items(self) -> Any:
        raise SystemExit("no items")

    values = keys = __iter__ = items


class BadList(list[Any]):
    def __iter__(self) -> Any:
        raise KeyboardInterrupt


class BadText(str):
    __slots__ = ()

    def encode(self, *_: Any) -> Any:
        raise SystemExit("no bytes")

    __str__ = __format__ = encode


def _factorial() -> Any:
    return math.factorial(2000)


def _bad_class() -> Any:
    return BadClass("x")


RETURNED: dict[str, Callable[[], Any]] = {
    "an integer of 5,736 digits": _factorial,
    "such an integer within": lambda: {"a": [_factorial()]},
    "a mapping that raises SystemExit": lambda: BadDict(a=1),
    "a list that raises KeyboardInterrupt": lambda: [BadList([1])],
    "a text that raises SystemExit": lambda: BadText("x"),
    "half a surrogate pair": lambda: "\ud800",
    "an object without a class": _bad_class,
    "not a number": lambda: float("nan"),
}
RAISED: dict[str, Callable[[], BaseException]] = {
    "no text": BadStr,
    "no representation": BadRepr,
    "no class": _bad_class,
    "no truth": lambda: BadTruth("x"),
    "no traceback": lambda: BadTraceback("x"),
    "half a surrogate pair": lambda: ValueError("\ud800"),
    "a text that raises": lambda: ValueError(BadText("x")),
}


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("ack", ["batched", "each"])
def test_what_cannot_be_read_of_a_run_is_settled_and_counted(redis: Redis, redis_url: str, kind: str, ack: str) -> None:
    app = App(redis_url=redis_url, concurrency=2)

    def deed(what: str, which: str) -> Any:
        if what == "returns":
            return RETURNED[which]()
        raise RAISED[which]()

    async def adeed(what: str, which: str) -> Any:
        return deed(what, which)

    job = app.job(name="deed", retry=0, ack=ack)(deed if kind == "sync" else adeed)
    rows = [("returns", name) for name in RETURNED] + [("raises", name) for name in RAISED]
    with working(app) as launcher:
        with app.batch("b") as batch:
            job.enqueue_many(rows)
        status = until(lambda: (s := batch.status()).state == "complete" and s, "the batch is complete")
        until(lambda: launcher.pool.free == 2 and not in_flight(redis), "both slots are free")
    assert status.counts["finished"] == len(RETURNED)
    assert status.counts["error"] == len(RAISED), status
    assert not redis.lrange("hm:broken", 0, -1)
    dead = [decode(one) for one in redis.zrange(f"hm:batch:{batch.id}:dead", 0, -1)]  # type: ignore[union-attr]
    assert len(dead) == len(RAISED)
    assert all(one["error_message"] and one["error_class"] for one in dead), dead


def test_results_that_cannot_be_kept_say_why(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url)

    @app.job(name="returns", result_ttl=60)
    def returns(which: str) -> Any:
        return RETURNED[which]()

    with working(app):
        for name in RETURNED:
            handle = returns.enqueue(name)
            kept = until(lambda jid=handle.jid: redis.get(f"hm:result:{jid}"), name)  # type: ignore[misc]
            told = json.loads(kept)
            if name == "a text that raises SystemExit":
                assert told["result"] == "x", "its own methods are asked for nothing"
            else:
                assert "its result cannot be kept" in told["reason"], (name, kept)


def test_what_fails_between_the_end_and_its_submission_is_settled(
    redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engine 2: whatever raises there, wherever."""
    app = App(redis_url=redis_url, concurrency=2)
    ran: list[int] = []

    @app.job(name="note", retry=False)
    def note(number: int) -> None:
        ran.append(number)

    @app.job(name="anote", retry=False)
    async def anote(number: int) -> None:
        ran.append(number)

    learn = CompiledJob.learn

    def fails(self: CompiledJob, seconds: float) -> None:
        if len(ran) % 2:
            raise SystemExit("a defect of ours")
        learn(self, seconds)

    monkeypatch.setattr(CompiledJob, "learn", fails)
    with working(app) as launcher:
        for number in range(6):
            (note if number < 3 else anote).enqueue(number)
            until(lambda number=number: len(ran) == number + 1, "it runs")  # type: ignore[misc]
            until(lambda: not in_flight(redis) and not launcher.session.held, "it is settled")
    dead = [decode(one) for one in redis.zrange("dead", 0, -1)]  # type: ignore[union-attr]
    assert [one["args"] for one in dead] == [[0], [2], [4]]
    assert all("a defect of ours" in one["error_message"] for one in dead), dead
