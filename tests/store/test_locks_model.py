"""Business keys against a model: random pushes, some sent again since no answer came, starts, ends, deaths,
late words, queues that are cleared, deletions behind our back, audits.

After each step every lock names the job that the model says; a key is never held by two that run. In the end nothing is
left. Without the comparison of owners the model and the server disagree, as the last test shows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from henchman import App
from henchman.batch.lock_auditor import APART, OLD, LockAuditor
from henchman.errors import LeaseLost
from henchman.store import admission, batches, jobs, leases, locks, queues
from henchman.store.call import Call, Script
from henchman.store.jobs import Move, Settlement
from henchman.store.locks import Claimant
from henchman.work.effects import EndingFacts, of_payload
from henchman.worker.rescue import rescue
from support.locks import FREED, SCOPE, job, left_of_keys
from support.store import DAY, Store, changed

PHASES = {"a": "o", "b": "u", "c": "w", "d": "r", "e": "wr", "f": "ur"}  # by key
SEEDS, STEPS = 12, 250
ENDS = [one for one in FREED if one not in ("rescued", "staged", "started", "trimmed", "deleted", "poisoned", "kept")]


class Model:
    """What should be: who holds each lock, who waits in each line, where each job is."""

    def __init__(self, store: Store, app: App, seed: int) -> None:
        self.store, self.random, self.now = store, random.Random(seed), 1000.0
        self.app, self.auditor = app, LockAuditor(app, monotonic=lambda: self.now)
        self.locks: dict[tuple[str, str], str] = {}
        self.lines: dict[str, list[str]] = {key: [] for key in PHASES}  # of running jobs
        self.place: dict[str, str] = {}  # jid → queue, flight, running, retry, dead, parked, lost
        self.keys: dict[str, str] = {}
        self.latest: dict[str, bytes] = {}  # newer arguments that a job will start with
        self.took: set[str] = set()  # jobs that run with such
        self.identity, self.number = "", 0
        self.sent: list[tuple[Call[Any], Any]] = []  # pushes and their answers
        self.live()

    def live(self) -> None:
        self.number += 1
        self.identity = f"host:{self.number}:0123456789ab"
        self.store.join("a", identity=self.identity)

    def payload(self, jid: str) -> bytes:
        return job(jid, PHASES[self.keys[jid]], key=self.keys[jid])

    @property
    def flight(self) -> str:
        return self.store.keys.in_flight(self.identity, 1, "a")

    def some(self, *places: str) -> str | None:
        found = [jid for jid, place in self.place.items() if place in places]
        return self.random.choice(found) if found else None

    def free(self, jid: str, ending: str) -> None:
        """The table of endings."""
        key = self.keys[jid]
        stored = ending in ("retry", "snoozed", "interrupted", "dead", "invalid")
        if "o" in FREED[ending] or (stored and jid in self.took):  # over, or stored with them
            self.latest.pop(jid, None)
        self.took.discard(jid)
        for phase in FREED[ending]:
            if phase in PHASES[key] and self.locks.get((phase, key)) == jid:
                del self.locks[phase, key]
                if phase == "r" and self.lines[key]:
                    heir = self.locks[phase, key] = self.lines[key].pop(0)
                    self.place[heir] = "queue"

    # what happens

    def push(self, *, again: bool = False) -> None:
        self.number += 1
        jid, key = f"{self.number:024x}", self.random.choice(list(PHASES))
        at_push, self.keys[jid] = set(PHASES[key]) - {"r"}, key
        asked = {"scope": SCOPE, "phases": PHASES[key], "conflict": "skip", "once_for": 604_800}
        row = admission.KeyedPush(jid, "", self.payload(jid), "", key)
        ask = json.dumps(asked | ({"again": True} if again else {})).encode()
        call = admission.push(self.store.keys, "a", ask, [row], (jid, 1))
        answers = self.store.run(call)
        self.sent.append((call, answers))
        holders = [self.locks[phase, key] for phase in at_push if (phase, key) in self.locks]
        if not again and (holders or answers[0][0] == "R"):  # R: one of this key has succeeded
            assert answers[0][:2] == ["D", *holders] if holders else key == "a"
            for phase in at_push:
                self.store.ask("ZADD", self.store.keys.doubt, 1, f"{phase} {SCOPE}\n{key}")
            return
        assert answers == [["C"]]
        self.place[jid] = "queue"
        for phase in at_push:
            self.locks[phase, key] = jid
            self.store.ask("HSET", self.store.keys.lock(phase, SCOPE), key, f"{jid} 1.5 ")  # long ago

    def push_again(self) -> None:
        """The answer of a push was lost, and it is sent again, after whatever became of the job."""
        if self.sent:
            call, answers = self.random.choice(self.sent)
            queued = self.store.ask("LLEN", "queue:a")
            assert self.store.run(call) == answers
            assert self.store.ask("LLEN", "queue:a") == queued

    def clear_queue(self) -> None:
        """All that is queued is removed by hand; who is let go by that may be removed, too."""
        queued = [json.loads(one)["jid"] for one in reversed(self.store.ask("LRANGE", "queue:a", 0, -1))]
        self.app.queues["a"].clear()
        left = {json.loads(one)["jid"] for one in self.store.ask("LRANGE", "queue:a", 0, -1)}
        while queued:
            for jid in queued:
                self.place[jid] = "over"
                self.free(jid, "deleted")
            queued = [jid for jid, place in self.place.items() if place == "queue" and jid not in left]

    def again(self) -> None:
        self.push(again=True)

    def replace(self) -> None:
        """A push whose arguments go to who waits."""
        waiting = [jid for (phase, _), jid in self.locks.items() if phase == "w"]
        if waiting:
            jid = self.random.choice(waiting)
            self.latest[jid] = b"%d" % self.random.randrange(10**6)
            self.store.ask("HSET", self.store.keys.latest, jid, self.latest[jid])

    def trim(self) -> None:
        """The dead set has no room for it."""
        if (jid := self.some("dead")) is not None:
            self.store.ask("ZREM", "dead", self.payload(jid))
            self.store.ask("RPUSH", self.store.keys.trimmed, self.payload(jid))
            text = of_payload(self.store.keys, self.payload(jid), "trimmed")
            assert self.store.run(queues.forget_trimmed(self.store.keys, self.payload(jid), text)) == 1
            self.place[jid] = "over"
            self.free(jid, "trimmed")

    def fetch(self) -> None:
        for payload in self.store.fetch("a", count=3, identity=self.identity)[0]:
            self.place[json.loads(payload)["jid"]] = "flight"

    def start(self) -> None:
        ready = [jid for jid, place in self.place.items() if place in ("flight", "running")][:3]
        asking = [Claimant(self.payload(one), one, self.keys[one], 1, SCOPE, PHASES[self.keys[one]]) for one in ready]
        lists = [(self.flight, self.store.keys.queue("a"))]
        if not asking:
            return
        call = locks.claim(self.store.keys, self.identity, lists, asking, 30_000)
        answers, _ = self.store.run(call)
        if self.random.random() < 0.3:  # the answer was lost, and it is asked for again
            again, _ = self.store.run(call)
            assert [one.token > 0 for one in again] == [one.token > 0 for one in answers]
            assert all(two.token > one.token for one, two in zip(answers, again, strict=True) if one.token)
        for jid, answer in zip(ready, answers, strict=True):
            key = self.keys[jid]
            if answer.token:
                assert answer.latest == self.latest.get(jid, b"")
                self.took |= {jid} if answer.latest else set()
            holder = self.locks.get(("r", key)) if "r" in PHASES[key] else None
            assert answer.parked == (holder not in (None, jid)), (jid, answer, holder)
            if answer.parked:
                assert answer.holder == holder
                self.place[jid] = "parked"
                self.lines[key].append(jid)
                continue
            assert answer.token
            self.place[jid] = "running"
            if "r" in PHASES[key]:
                self.locks["r", key] = jid
            if self.locks.get(("w", key)) == jid:
                del self.locks["w", key]

    def end(self) -> None:
        if (jid := self.some("flight", "running")) is None:
            return
        ending = self.random.choice(ENDS)
        assert self.settle(self.identity, jid, ending) == [1]
        self.place[jid] = {
            **dict.fromkeys(("retry", "snoozed", "deferred"), "retry"),
            **dict.fromkeys(("released", "interrupted"), "queue"),
            **dict.fromkeys(("dead", "invalid"), "dead"),
        }.get(ending, "over")
        if ending in ("snoozed", "deferred"):
            self.store.ask("ZREM", "schedule", self.payload(jid))
            self.store.ask("ZADD", "retry", 1, self.payload(jid))
        self.free(jid, ending)

    def settle(self, identity: str, jid: str, ending: str) -> list[int | bytes]:
        payload, keys = self.payload(jid), self.store.keys
        told = EndingFacts(latest=jid in self.took)
        unit = Settlement(1, payload, ending, payload, effects=of_payload(keys, payload, ending, told))
        lists = [(keys.in_flight(identity, 1, "a"), keys.queue("a"))]
        rest: dict[str, Any] = {"lease_ms": 30_000, "day": DAY, "dead_max": 10_000, "dead_timeout": 1e12}
        return self.store.run(jobs.settle(keys, identity, lists, [unit], **rest))

    def stage(self) -> None:
        if (jid := self.some("retry")) is not None:
            payload = self.payload(jid)
            text = of_payload(self.store.keys, payload, "staged")
            assert self.store.move("retry", Move(payload, payload, "a", effects=text)) == [1]
            self.place[jid] = "queue"

    def revive(self) -> None:
        if (jid := self.some("dead")) is None:
            return
        payload, key = self.payload(jid), self.keys[jid]
        (status,) = self.store.move(
            "dead", Move(payload, payload, "a", effects=of_payload(self.store.keys, payload, "revived"))
        )
        held = [self.locks[one, key] for one in "ou" if one in PHASES[key] and (one, key) in self.locks]
        if any(one != jid for one in held):
            assert status == f"HELD {held[0]}".encode()
        elif status == 1:  # else another has succeeded since, as is remembered
            self.place[jid] = "queue"
            self.locks |= {(one, key): jid for one in "ou" if one in PHASES[key]}

    def die(self) -> None:
        """Its process is killed; its last words come too late."""
        dead, held = self.identity, [jid for jid, place in self.place.items() if place in ("flight", "running")]
        self.store.run(leases.entomb(self.store.keys, dead, force=True))
        rescue(self.app, dead, None)
        self.live()
        lists = [(self.store.keys.in_flight(dead, 1, "a"), self.store.keys.queue("a"))]
        asking = [Claimant(self.payload(one), one, self.keys[one], 1, SCOPE, PHASES[self.keys[one]]) for one in held]
        with pytest.raises(LeaseLost):
            self.store.run(locks.claim(self.store.keys, dead, lists, asking, 30_000))
        self.took -= set(held)
        for jid in held:
            self.place[jid] = "queue"
            with pytest.raises(LeaseLost):
                self.settle(dead, jid, "done")

    def word_of_a_zombie(self) -> None:
        """Effects of an end that was carried out before, once more."""
        if (jid := self.some("over")) is not None:
            text = of_payload(self.store.keys, self.payload(jid), "done")
            self.store.run(batches.note(self.store.keys, [text]))

    def delete(self) -> None:
        if (jid := self.some("queue")) is not None:
            text = of_payload(self.store.keys, self.payload(jid), "deleted")
            assert self.store.run(queues.remove(self.store.keys, "a", self.payload(jid), text)) == 1
            self.place[jid] = "over"
            self.free(jid, "deleted")

    def unlink(self) -> None:
        """Sidekiq's page removes it."""
        if (jid := self.some("queue")) is not None:
            assert self.store.ask("LREM", "queue:a", 1, self.payload(jid)) == 1
            self.place[jid] = "lost"

    def audit(self) -> None:
        for after in (0, OLD, APART, OLD):
            self.now += after + 1
            self.auditor.audit()
        now, doubts = self.store.now(), self.store.ask("ZRANGE", self.store.keys.doubt, 0, -1)
        assert now
        for (phase, key), jid in list(self.locks.items()):
            if self.place[jid] == "lost" and self.store.ask("HGET", self.store.keys.lock(phase, SCOPE), key) is None:
                assert f"{phase} {SCOPE}\n{key}".encode() not in doubts
                self.locks.pop((phase, key))

    def check(self) -> None:
        latest = self.store.ask("HGETALL", self.store.keys.latest)
        latest = latest if isinstance(latest, dict) else dict(zip(latest[::2], latest[1::2], strict=True))
        assert {jid.decode(): text for jid, text in latest.items()} == self.latest
        for key, phases in PHASES.items():
            for phase in phases:
                value = self.store.ask("HGET", self.store.keys.lock(phase, SCOPE), key)
                found = None if value is None else value.decode().rsplit(" ", 2)[0]
                assert found == self.locks.get((phase, key)), (phase, key, self.place.get(found or ""))
            line = self.store.ask("ZRANGE", self.store.keys.awaits(f"r{SCOPE}\n{key}"), 0, -1)
            assert [one.decode() for one in line] == self.lines[key]
            if "r" in phases:
                running = [one for one, at in self.place.items() if at == "running" and self.keys[one] == key]
                assert len(running) <= 1, "two run with one key"


DOING = ["push"] * 6 + ["fetch"] * 3 + ["start"] * 4 + ["end"] * 6 + ["stage"] * 3 + ["delete", "die", "again"]
DOING += [
    "word_of_a_zombie",
    "revive",
    "revive",
    "trim",
    "replace",
    "replace",
    "push_again",
    "push_again",
    "clear_queue",
]


def play(model: Model, steps: int) -> None:
    for _ in range(steps):
        getattr(model, model.random.choice(DOING))()
        model.check()


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_locks_are_those_of_the_model_and_nothing_is_left(store: Store, app: App, seed: int) -> None:
    model = Model(store, app, seed)
    play(model, STEPS)
    for jid in [jid for jid, place in model.place.items() if place == "dead"]:
        text = of_payload(store.keys, model.payload(jid), "deleted")
        store.move("dead", Move(model.payload(jid), delete=True, effects=text))
        model.place[jid] = "over"
        model.free(jid, "deleted")
        model.check()
    while any(place in ("queue", "retry", "flight", "running", "parked") for place in model.place.values()):
        for step in (model.stage, model.fetch, model.start):
            step()
        for jid in [jid for jid, place in model.place.items() if place == "running"]:
            assert model.settle(model.identity, jid, "done") == [1]
            model.place[jid] = "over"
            model.free(jid, "done")
        model.check()
    scene = LockAuditor(app)
    scene.audit()
    assert left_of_keys(store) == set()
    assert not store.ask("EXISTS", store.keys.broken)


@pytest.mark.parametrize("seed", range(4))
def test_what_left_behind_our_back_is_freed(store: Store, app: App, seed: int) -> None:
    model = Model(store, app, 100 + seed)
    for _ in range(60):
        getattr(model, model.random.choice(["push"] * 5 + ["fetch", "start", "end", "unlink"]))()
        model.check()
    for phase, key in list(model.locks):
        store.ask("ZADD", store.keys.doubt, 1, f"{phase} {SCOPE}\n{key}")
        since = store.ask("HGET", store.keys.lock(phase, SCOPE), key).decode().rsplit(" ", 2)[0]
        store.ask("HSET", store.keys.lock(phase, SCOPE), key, f"{since} 1.5 ")
    auditor, now = LockAuditor(app, monotonic=lambda: model.now), model.now
    auditor.audit()
    model.now = now + APART + 1
    auditor.audit()
    for (phase, key), jid in model.locks.items():
        value = store.ask("HGET", store.keys.lock(phase, SCOPE), key)
        assert (value is None) == (model.place[jid] == "lost" and not (phase == "r" and model.lines[key]))


def test_the_model_finds_a_missing_comparison_of_owners(
    store: Store, app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (jobs, "_SETTLE"),
        (jobs, "_MOVE"),
        (batches, "_NOTE"),
        (queues, "_REMOVE"),
    ):
        script: Script = getattr(module, name)
        wrong = changed(script, "if lock_holder(phase, scope, name) ~= jid then", "if false then")
        monkeypatch.setattr(module, name, wrong)
    found = 0
    for seed in range(4):
        store.ask("FLUSHALL")
        try:
            play(Model(store, app, seed), STEPS)
        except AssertionError:
            found += 1
    assert found == 4
