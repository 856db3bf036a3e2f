"""Limits against what they promise, at random: pushes, starts, ends of every kind, deaths with late words,
cancellations of who waits, deletions, sizes that change while jobs run; and jobs that wait in their process for the
places of others, and begin before the end of those is told.

After each step: nobody starts beyond a limit's size; a job has all of its places or none, or those of one that has
ended; who waits waits for a place that is taken; a place belongs to a job that runs, or is about to. In the end nothing
is left of any of them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from henchman import App
from henchman.batch.lock_auditor import LockAuditor
from henchman.errors import LeaseLost
from henchman.store import batches, jobs, leases, limits, locks, queues
from henchman.store.jobs import Move, Settlement
from henchman.store.locks import Claimant
from henchman.work.effects import EndingFacts, of_payload
from henchman.work.limits import SaidLimit, has_time, limits_asked, limits_of, limits_text, places_end, without_time
from henchman.work.locks import key_of
from henchman.worker.decide import Decisions
from henchman.worker.rescue import rescue
from support.locks import FREED
from support.store import DAY, ME, Store

SEEDS, STEPS = 12, 250
ENDS = [one for one in FREED if one not in ("rescued", "staged", "started", "trimmed", "deleted", "poisoned", "kept")]
#: name, whose → how many at first
SIZES = {("bank", "x"): 2, ("bank", "y"): 1, ("shop", ""): 3}
KINDS = (["bank"], ["shop"], ["bank", "shop"], ["bank", "rate"], ["bank", "shop", "rate"], ["bank", "key"])


class Jobs:
    """What was pushed, and where it is by now; the server says the rest."""

    def __init__(self, store: Store, app: App, seed: int) -> None:
        self.store, self.app, self.random = store, app, random.Random(seed)
        self.payloads: dict[str, bytes] = {}  # as it was pushed
        self.flight: dict[str, bytes] = {}  # fetched, and not started
        self.running: dict[str, bytes] = {}
        self.behind: dict[str, bytes] = {}  # in flight, they wait for the places of who runs
        self.ended: list[tuple[str, bytes, str, str]] = []  # jid, payload, ending, heir: the server has not heard of it
        self.over: set[str] = set()
        self.size = dict(SIZES)
        self.before: Counter[tuple[str, str]] = Counter()
        self.number = 0
        self.decisions = Decisions(app)
        self.live()

    def live(self) -> None:
        self.number += 1
        self.identity = f"host:{self.number}:0123456789ab"
        self.store.join("a", identity=self.identity)

    # what happens

    def push(self) -> None:
        self.number += 1
        jid, whose = f"{self.number:024x}", self.random.choice("xy")
        kinds = self.random.choice(KINDS)
        said: list[list[Any]] = []
        said += [["c", "bank", whose, 2 if whose == "x" else 1, 0, 1]] * ("bank" in kinds)
        said += [["c", "shop", "", 3, 0, 1]] * ("shop" in kinds)
        said += [["l", "rate", "", 3, 0.05, 1]] * ("rate" in kinds)
        hm = {"limits": said} | ({"key": ["pay", whose, "r"]} if "key" in kinds else {})
        fields = {"class": "m.f", "args": [], "jid": jid, "queue": "a", "retry": True, "created_at": 1.5, "hm": hm}
        self.payloads[jid] = json.dumps(fields, separators=(",", ":")).encode()
        self.store.push("a", self.payloads[jid])

    def fetch(self) -> None:
        for payload in self.store.fetch("a", count=3, identity=self.identity)[0]:
            self.flight[json.loads(payload)["jid"]] = payload

    def claimant(self, jid: str, payload: bytes) -> Claimant:
        job = json.loads(payload)
        key = key_of(job)
        runs = None if key is None else (key.scope, key.name)
        said = limits_text(limits_of(job), runs)
        holds = any(self.places_of(one) == said for one in self.running.values())
        asked = limits_asked(job, said, self.random.choice((0, 1, 5, 5)), holds=holds)
        name, scope, phases = ("", "", "-") if key is None else (key.name, key.scope, key.phases)
        return Claimant(payload, jid, name, 1, scope, phases, "wait", "", asked)

    def start(self) -> None:
        asking = [self.claimant(*one) for one in list({**self.flight, **self.running}.items())[:3]]
        if not asking:
            return
        lists = [(self.store.keys.in_flight(self.identity, 1, "a"), self.store.keys.queue("a"))]
        answers, drawn = self.store.run(locks.claim(self.store.keys, self.identity, lists, asking, 30_000))
        self.behind |= {json.loads(one.payload)["jid"]: one.payload for one in drawn}
        for one, answer in zip(asking, answers, strict=True):
            assert not answer.refused
            if answer.behind:
                self.behind[one.jid] = self.flight.pop(one.jid)
            elif answer.token:
                self.running[one.jid] = one.payload
                self.flight.pop(one.jid, None)
            else:
                assert answer.parked, answer
                assert one.jid not in self.running, "it had started"
                del self.flight[one.jid]

    def settle(self, identity: str, payload: bytes, ending: str, stored: bytes) -> list[int | bytes]:
        keys = self.store.keys
        unit = Settlement(1, payload, ending, stored, effects=of_payload(keys, payload, ending))
        lists = [(keys.in_flight(identity, 1, "a"), keys.queue("a"))]
        rest: dict[str, Any] = {"lease_ms": 30_000, "day": DAY, "dead_max": 10_000, "dead_timeout": 1e12}
        return self.store.run(jobs.settle(keys, identity, lists, [unit], **rest))

    def end(self, ending: str = "") -> None:
        here = {**self.flight, **self.running}
        if not here:
            return
        jid = self.random.choice(sorted(self.running or here))
        ending = ending or self.random.choice(ENDS)
        payload = here[jid]
        if self.places_of(payload):
            self.end_of_places(jid, payload, ending)
            return
        assert self.settle(self.identity, payload, ending, without_time(payload)) == [1]
        self.running.pop(jid, None)
        self.flight.pop(jid, None)
        if ending in ("done", "failed", "discarded", "gone", "expired", "cancelled"):
            self.over.add(jid)

    @staticmethod
    def places_of(payload: bytes) -> str:
        """The limits of a job that needs places alone."""
        job = json.loads(payload)
        said = limits_of(job)
        return limits_text(said, None) if "key" not in job["hm"] and all(one.kind == "c" for one in said) else ""

    def end_of_places(self, jid: str, payload: bytes, ending: str) -> None:
        """The next behind it begins at once; the server hears of ends later, of some together."""
        same = [one for one, other in self.behind.items() if self.places_of(other) == self.places_of(payload)]
        heir = same[0] if same and jid in self.running else ""
        self.running.pop(jid, None)
        self.flight.pop(jid, None)
        if heir:
            self.running[heir] = self.behind.pop(heir)
        self.ended.append((jid, payload, ending, heir))
        if self.random.random() < 0.5:
            self.tell()

    def tell(self) -> None:
        keys, units, ended = self.store.keys, [], self.ended
        for jid, payload, ending, heir in ended:
            text = of_payload(keys, payload, ending, EndingFacts(heir=heir))
            if ending == "done":
                text = places_end(limits_of(json.loads(payload))) + f"{jid} {heir}".encode()
            units.append(Settlement(1, payload, ending, payload, effects=text))
        if units:
            lists = [(keys.in_flight(self.identity, 1, "a"), keys.queue("a"))]
            rest: dict[str, Any] = {"lease_ms": 30_000, "day": DAY, "dead_max": 10_000, "dead_timeout": 1e12}
            assert set(self.store.run(jobs.settle(keys, self.identity, lists, units, **rest))) == {1}
        over = ("done", "failed", "discarded", "gone", "expired", "cancelled")
        self.over |= {jid for jid, _, ending, _ in ended if ending in over}
        self.ended = []

    def wait_no_longer(self) -> None:
        """Who waits behind and finds nobody there, or waited too long, goes back."""
        texts = {self.places_of(one) for one in self.running.values()}
        for jid, payload in list(self.behind.items()):
            if self.places_of(payload) not in texts or self.random.random() < 0.1:
                del self.behind[jid]
                self.ended.append((jid, payload, "released", ""))
        self.tell()

    def stage(self) -> None:
        """What is due goes into its queue; who has its time is next."""
        for source in ("schedule", "retry"):
            for payload in self.store.ask("ZRANGE", source, 0, -1):
                job = json.loads(payload)
                text = of_payload(self.store.keys, payload, "staged")
                move = Move(payload, payload, "a", effects=text, next=has_time(job))
                assert self.store.move(source, move) == [1]

    def revive(self) -> None:
        for payload in self.store.ask("ZRANGE", "dead", 0, 0):
            text = of_payload(self.store.keys, payload, "revived")
            assert self.store.move("dead", Move(payload, payload, "a", effects=text)) == [1]

    def die(self) -> None:
        """Its process is killed, what it had goes back; its last words come too late."""
        dead, held = self.identity, {**self.flight, **self.running, **self.behind}
        held |= {jid: payload for jid, payload, *_ in self.ended}
        self.store.run(leases.entomb(self.store.keys, dead, force=True))
        rescue(self.app, dead, None)
        self.live()
        for payload in held.values():
            with pytest.raises(LeaseLost):
                self.settle(dead, payload, "done", payload)
        self.flight, self.running, self.behind, self.ended = {}, {}, {}, []

    def word_of_a_zombie(self) -> None:
        """Effects of an end that was carried out before, once more."""
        if self.over:
            text = of_payload(self.store.keys, self.payloads[self.random.choice(sorted(self.over))], "done")
            self.store.run(batches.note(self.store.keys, [text]))

    def delete(self) -> None:
        for payload in self.store.ask("LRANGE", "queue:a", 0, 0):
            text = of_payload(self.store.keys, payload, "deleted")
            assert self.store.run(queues.remove(self.store.keys, "a", payload, text)) == 1
            self.over.add(json.loads(payload)["jid"])

    def cancel_who_waits(self) -> None:
        parked = sorted(self.store.ask("HKEYS", self.store.keys.parked))
        if parked:
            jid = self.random.choice(parked).decode()
            self.app.cancel(jid)
            seen = self.store.run(jobs.due(self.store.keys, "tests", 2000, 100, None))
            self.decisions.carry_out(seen)
            self.over.add(jid)

    def resize(self) -> None:
        name, whose = self.random.choice(list(SIZES))
        n = self.random.randint(0, 4)
        self.store.run(limits.resize(self.store.keys, name, n, None))
        for other in SIZES:
            if other[0] == name:
                self.size[other] = n
        while self.store.run(limits.hand(self.store.keys, name, whose)):
            pass
        for _, by in [one for one in SIZES if one[0] == name]:
            self.store.run(limits.hand(self.store.keys, name, by))

    def job(self, jid: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.payloads[jid])
        return found

    # what must be true

    def check(self) -> None:
        keys, places = self.store.keys, dict[tuple[str, str], set[str]]()
        parked = {one.decode() for one in self.store.ask("HKEYS", keys.parked)}
        queued = {json.loads(one)["jid"] for one in self.store.ask("LRANGE", "queue:a", 0, -1)}
        for one in SIZES:
            places[one] = {jid.decode() for jid in self.store.ask("HKEYS", keys.places(*one))}
            held = len(places[one])
            assert held <= max(self.size[one], self.before[one]), f"{held} places of {one}, of {self.size[one]}"
            self.before[one] = held
        heirs = {heir for *_, heir in self.ended}
        here = {*self.running, *queued, *self.flight, *self.behind, *(jid for jid, *_ in self.ended)}
        for jid in {*parked, *here}:
            wanted = {(one.name, one.by) for one in limits_of(json.loads(self.payloads[jid])) if one.kind == "c"}
            got = {one for one, jids in places.items() if jid in jids}
            assert got in (set(), wanted), "one without the other"
            assert got == wanted or jid not in self.running or jid in heirs, "it runs without a place"
            assert not got or jid not in parked, "it has a place and waits"
        for one, jids in places.items():
            assert jids <= here, "a place of nobody"
            wanting = [jid for jid in self.running if one in {(o.name, o.by) for o in limits_of(self.job(jid))}]
            assert len(wanting) <= len(jids), "more run than have places"
            line = self.store.ask("ZRANGE", keys.awaits(limits.limit_line(*one)), 0, -1)
            assert not line or len(jids) >= self.size[one], f"they wait for {one}, which has room"
            assert not {jid.decode() for jid in line} - parked - self.over, "nobody knows who waits there"
        assert not self.store.ask("EXISTS", keys.broken), self.store.ask("LRANGE", keys.broken, 0, -1)


DOING = ["push"] * 6 + ["fetch"] * 4 + ["start"] * 5 + ["end"] * 7 + ["stage"] * 2
DOING += ["tell"] * 2 + ["wait_no_longer"] * 2
DOING += ["die", "delete", "revive", "word_of_a_zombie", "cancel_who_waits", "resize", "resize"]


@pytest.fixture
def app(redis_url: str) -> Any:
    made = App(redis_url=redis_url)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_places_are_those_of_who_runs_and_nothing_is_left(store: Store, app: App, seed: int) -> None:
    world = Jobs(store, app, seed)
    store.run(limits.declare(store.keys, [("c", "bank", 2, 0.0), ("c", "shop", 3, 0.0), ("l", "rate", 3, 0.05)]))
    world.size["bank", "y"] = 2
    for _ in range(STEPS):
        getattr(world, world.random.choice(DOING))()
        world.check()
    for name in ("bank", "shop"):
        store.run(limits.resize(store.keys, name, 3, None))
        world.size |= {one: 3 for one in SIZES if one[0] == name}
        for one in SIZES:
            store.run(limits.hand(store.keys, *one))
    store.ask("DEL", "dead")
    for _ in range(5_000):
        waiting = (store.ask("EXISTS", one) for one in ("queue:a", "schedule", "retry", store.keys.parked))
        if not world.flight and not world.running and not any(waiting):
            break
        for step in (world.stage, world.fetch, world.start):
            step()
        world.end("done")
        world.wait_no_longer()
        world.check()
    LockAuditor(app).audit()  # whoever waited in a line and was cancelled left it in doubt
    beginnings = ("hm:slots", "hm:await", "hm:parked", "hm:behind", "hm:doubt", "hm:lock")
    assert [one for one in store.all_keys() if one.startswith(beginnings)] == []


def test_a_whole_fetch_waits_behind_the_first_of_it(store: Store) -> None:
    """None of it stands in a line on the server, from which it would be drawn again."""
    limits = [SaidLimit("c", "bank", "", 10, 0, 1)]
    store.join("a")
    payloads = [
        json.dumps({"class": "m.f", "args": [], "jid": f"{n:024x}", "hm": {"limits": [list(limits[0])]}}).encode()
        for n in range(600)
    ]
    store.push("a", *payloads)
    fetched = store.fetch("a", count=600)[0]
    asked = limits_asked({}, limits_text(limits, None), 1000)
    asking = [Claimant(one, json.loads(one)["jid"], "", 1, "", "-", "wait", "", asked) for one in fetched]
    lists = [(store.keys.in_flight(ME, 1, "a"), store.keys.queue("a"))]
    answers, drawn = store.run(locks.claim(store.keys, ME, lists, asking, 30_000))
    assert (len([one for one in answers if one.token]), len([one for one in answers if one.behind])) == (600, 590)
    assert drawn == []
    assert store.ask("SCARD", store.keys.behind) == 590
