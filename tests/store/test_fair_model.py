"""A fair queue against a model: random pushes, fetches, settlings, deaths, moves and clears, by several processes.

After each step nothing is lost and nothing stands in two places; what is known of lines and turns is what is there.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from typing import Any

import pytest

from henchman.store import fair, jobs, leases, queues
from support.store import DAY, Store

TENANTS = ["", "a", "b", 'c"d', "é", "x@y+z"]
LEVELS = ["", "", "high", "low"]


class Process:
    """One that serves the queue."""

    def __init__(self, store: Store, number: int) -> None:
        self.identity = f"host:{number}:0123456789ab"
        self.flight = store.keys.in_flight(self.identity, 1, "f")


class Model:
    """The queue, and where every job is by what was done: "waiting", a process, "gone"."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.draw, self.number = store, random.Random(seed), 0
        self.where: dict[str, str] = {}
        self.payload: dict[str, bytes] = {}
        self.processes: list[Process] = []
        store.run(fair.declare(store.keys, "f", {"Ruby": 0}))
        store.run(fair.set_weight(store.keys, "f", "b", 3))
        for _ in range(3):
            self.join()

    def join(self) -> None:
        self.number += 1
        one = Process(self.store, self.number)
        self.store.run(leases.join(self.store.keys, one.identity, [one.flight], 60_000))
        self.processes.append(one)

    def made(self) -> bytes:
        """A new job, of Python, of Ruby, or no job at all."""
        self.number += 1
        jid, tenant, level = f"j{self.number}", self.draw.choice(TENANTS), self.draw.choice(LEVELS)
        fields: dict[str, Any] = {"class": "a", "args": [1], "jid": jid, "enqueued_at": float(self.number)}
        if self.draw.random() < 0.3:
            fields = {"retry": True, "class": "Ruby", "args": [tenant], "jid": jid}
        else:
            fields = ({"fair": tenant} if tenant else {}) | ({"priority": level} if level else {}) | fields
        text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
        self.where[jid], self.payload[jid] = "waiting", text
        return text

    def push(self) -> None:
        self.store.push("f", *(self.made() for _ in range(self.draw.choice([1, 1, 2, 30]))))

    def take_in(self) -> None:
        self.store.run(fair.take_in(self.store.keys, "f"))

    def fetch(self) -> None:
        one = self.draw.choice(self.processes)
        count, extra = self.draw.choice([1, 1, 3, 10]), self.draw.choice([0, 0, 5])
        call = fair.fetch(self.store.keys, one.identity, "f", one.flight, count=count, extra=extra, lease_ms=60_000)
        found = self.store.run(call)
        assert len(found.payloads) <= count + extra
        assert found.left == 0
        waiting = [jid for jid, place in self.where.items() if place == "waiting"]
        assert len(found.payloads) == min(count + extra, len(waiting)), "it serves as long as anybody waits"
        levels = [("high", "normal", "low").index(json.loads(p).get("priority") or "normal") for p in found.payloads]
        assert levels == sorted(levels), "the highest level first"
        self._moved(found.payloads, one.identity)

    def woken(self) -> None:
        """A wait of a process ends with what stands in the list."""
        one = self.draw.choice(self.processes)
        payload = self.store.ask("LMOVE", "queue:f", one.flight, "RIGHT", "LEFT")
        if payload is not None:
            self._moved([payload], one.identity)

    def _moved(self, payloads: list[bytes], place: str) -> None:
        for one in payloads:
            jid = json.loads(one)["jid"]
            assert self.where[jid] == "waiting", f"{jid} is with {self.where[jid]} already"
            self.where[jid] = place

    def settle(self) -> None:
        one = self.draw.choice(self.processes)
        mine = [jid for jid, place in self.where.items() if place == one.identity][: self.draw.choice([1, 5])]
        ending = self.draw.choice(["done", "done", "released", "interrupted", "retry"])
        units = [jobs.Settlement(1, self.payload[jid], ending, self.payload[jid]) for jid in mine]
        if units:
            pairs = [(one.flight, self.store.keys.queue("f"))]
            told = self.store.run(
                jobs.settle(
                    *(self.store.keys, one.identity, pairs, units),
                    lease_ms=60_000,
                    day=DAY,
                    dead_max=9,
                    dead_timeout=9.0,
                )
            )
            assert told == [1] * len(units)
        if ending == "retry":  # and the stager has moved it at once
            moves = [jobs.Move(self.payload[jid], self.payload[jid], "f") for jid in mine]
            assert not moves or self.store.move(self.store.keys.retry, *moves) == [1] * len(moves)
        self.where |= dict.fromkeys(mine, "gone" if ending == "done" else "waiting")

    def die(self) -> None:
        """A process is killed, and what it held is given back."""
        one = self.processes.pop(self.draw.randrange(len(self.processes)))
        self.store.run(leases.entomb(self.store.keys, one.identity, force=True))
        while self.store.run(jobs.give_back(self.store.keys, one.flight, "f", 7)):
            pass
        for jid, place in self.where.items():
            if place == one.identity:
                self.where[jid] = "waiting"
        self.join()

    def delete(self) -> None:
        waiting = [jid for jid, place in self.where.items() if place == "waiting"]
        if waiting:
            jid = self.draw.choice(waiting)
            assert any(self.store.run(queues.remove(self.store.keys, name, self.payload[jid])) for name in self.names())
            self.where[jid] = "gone"

    def clear(self) -> None:
        """A line is cleared, or what stands in the list."""
        if self.draw.random() < 0.2:
            name = self.draw.choice(self.names())
            held = [json.loads(one)["jid"] for one in self.store.queue(name)]
            assert self.store.run(queues.clear(self.store.keys, name, 100_000, {})).taken == len(held)
            self.where |= dict.fromkeys(held, "gone")

    def names(self) -> list[str]:
        keys = {key.decode() for key in self.store.ask("KEYS", "queue:*")}
        return sorted({"f", *(one.removeprefix("queue:") for one in keys)})

    def step(self) -> None:
        acts = [self.push, self.fetch, self.fetch, self.settle, self.settle, self.woken, self.take_in, self.delete]
        self.draw.choice([*acts, *acts, *acts, self.die, self.clear])()

    def check(self) -> None:
        """Every job is where it should be, once; lines, turns and counts agree."""
        keys = self.store.keys
        waiting: Counter[str] = Counter()
        for name in self.names():
            waiting.update(json.loads(one)["jid"] for one in self.store.queue(name))
        assert waiting == Counter(jid for jid, place in self.where.items() if place == "waiting")
        for one in self.processes:
            held = Counter(json.loads(p)["jid"] for p in self.store.ask("LRANGE", one.flight, 0, -1))
            assert held == Counter(jid for jid, place in self.where.items() if place == one.identity)
        lines = {name for name in self.names() if name != "f"}
        turns = {
            fair.line_name("f", level, tenant.decode())
            for level in fair.LEVELS
            for tenant in self.store.ask("ZRANGE", keys.fair_turns("f", level), 0, -1)
        }
        assert lines <= turns, "every line has its turn"
        in_lines = sum(self.store.ask("LLEN", f"queue:{name}") for name in lines)
        assert self.store.run(fair.waiting(keys, ["f"])) == [in_lines]


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_and_nothing_stands_twice(store: Store, seed: int) -> None:
    model = Model(store, seed)
    for _ in range(250):
        model.step()
        model.check()

    for _ in range(2000):  # in the end all of it is served
        if not any(place != "gone" for place in model.where.values()):
            break
        model.fetch()
        for one in model.processes:
            mine = [jid for jid, place in model.where.items() if place == one.identity]
            for jid in mine:
                assert store.ask("LREM", one.flight, 1, model.payload[jid]) == 1
            model.where |= dict.fromkeys(mine, "gone")
    model.check()
    model.take_in()
    assert set(model.where.values()) <= {"gone"}
    left = {key.decode() for key in store.ask("KEYS", "*")}
    assert {one for one in left if one.startswith(("queue:", "hm:fair:turns", "hm:flight:"))} == set()
    assert store.run(fair.waiting(store.keys, ["f"])) == [0]


@pytest.mark.parametrize("seed", range(3))
def test_no_tenant_waits_longer_than_a_turn(store: Store, seed: int) -> None:
    """Between two jobs of a tenant that waits all the time, each other one is served at most by its weight."""
    draw = random.Random(seed)
    store.run(fair.declare(store.keys, "f", {}))
    store.run(fair.set_weight(store.keys, "f", "t0", 4))
    flight = store.keys.in_flight("host:1:0123456789ab", 1, "f")
    store.run(leases.join(store.keys, "host:1:0123456789ab", [flight], 60_000))
    served: list[str] = []
    for n in range(400):
        store.push(
            "f", *(b'{"fair":"t%d","class":"a","jid":"x%d-%d"}' % (tenant, n, tenant) for tenant in (0, 0, 0, 1))
        )
    for _ in range(3):
        store.run(fair.take_in(store.keys, "f"))
    for n in range(120):
        store.push(
            "f",
            *(
                b'{"fair":"t%d","class":"a","jid":"%d-%d"}' % (tenant, n, place)
                for place, tenant in enumerate(draw.choices(range(6), [50, 20, 1, 1, 1, 1], k=10))
            ),
        )
        call = fair.fetch(
            store.keys, "host:1:0123456789ab", "f", flight, count=draw.choice([1, 5, 12]), extra=0, lease_ms=60_000
        )
        served += [json.loads(one)["fair"] for one in store.run(call).payloads]
    places = [place for place, one in enumerate(served) if one == "t1"]
    for here, there in itertools.pairwise(places):
        between = Counter(served[here + 1 : there])
        assert between["t0"] <= 4 + 1, "its weight, and one that was on its way"
        assert all(count <= 2 for tenant, count in between.items() if tenant not in ("t0", "t1"))
