"""People act on ids while clients push and workers claim: whatever comes between two calls, nothing is lost or doubled.

Scripts are atomic, so every race is an order of calls: here are many, drawn at random, and the forms for all are broken
up into their calls, with anything in between.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from typing import Any

import pytest

from henchman.inspector.ordered_id import OrderedCommands
from henchman.inspector.sets import Acted
from henchman.store.call import Procedure, run
from henchman.store.ordered import Verdict
from support.ordered import FAR, Kept, OrderedQueue
from support.store import ME, Store

IDS = [b"%d" % number for number in range(12)]
OWNERS = ["host:1:0123456789ab", "host:2:0123456789ab"]


class Crowd:
    """Clients, two workers and a few people at one queue. Each payload is pushed once and bears its number."""

    def __init__(self, store: Store, seed: int, *, deletes: bool) -> None:
        self.queue = OrderedQueue(store)
        self.queue.join(*OWNERS)
        self.acts = OrderedCommands(store.keys, self.queue.name)
        self.draw = random.Random(seed)
        self.held: dict[bytes, tuple[str, int, list[bytes]]] = {}
        self.pushed: list[bytes] = []
        self.done: Counter[bytes] = Counter()
        self.plans: list[tuple[Procedure[Acted], Any]] = []
        self.kinds = ["revive", "kill", "run", "revive", "run", *(["delete", "purge"] if deletes else [])]
        self.score = 0

    def push(self) -> None:
        self.score += 1
        payload = b"%d" % self.score
        when = self.draw.choice(["", "", "", FAR])
        self.queue.put(self.draw.choice(IDS), payload, self.score, when)
        self.pushed.append(payload)

    def claim(self) -> None:
        owner = self.draw.choice(OWNERS)
        for token, one in self.queue.take(owner, claims=self.draw.randint(1, 3)):
            assert one.id not in self.held, "two holders of one id"
            assert one.payloads, "an id without payloads was given"
            assert one.payloads == sorted(one.payloads), "in order"
            self.held[one.id] = (owner, token, [payload for _, payload in one.payloads])

    def settle(self) -> None:
        if not self.held:
            return
        name = self.draw.choice(sorted(self.held))
        owner, token, payloads = self.held.pop(name)
        end = self.draw.choice(["done", "done", "retry", "to_morgue", "release", "snooze"])
        delay = self.draw.choice([0.0, 1e6])
        assert self.queue.settle(owner, Verdict(token, name, end, delay, self.draw.randint(0, 9), "Boom")) == [1]
        self.done.update(payloads if end == "done" else [])

    def act(self) -> None:
        """One call of somebody's action: of one that was begun, or of a new one."""
        if len(self.plans) < 3:
            self.plans.append((self.begin(), None))
        plan, answer = self.plans.pop(self.draw.randrange(len(self.plans)))
        with contextlib.suppress(StopIteration):
            self.plans.append((plan, self.queue.store.run(plan.send(answer))))

    def begin(self) -> Procedure[Acted]:
        what: Any = self.draw.choice(self.kinds)
        if self.draw.random() < 0.4:
            part = {"revive": "morgue", "purge": "morgue", "run": "due"}.get(what, "retry")
            return self.acts.on_all(what, part, only_failed=part == "retry")
        return self.acts.on(what, self.draw.sample(IDS, self.draw.randint(1, 4)))

    def finish(self) -> None:
        """Everybody goes home: claims end well, the dead are revived, all that waits is run."""
        while self.held:
            name, (owner, token, payloads) = self.held.popitem()
            assert self.queue.settle(owner, Verdict(token, name, "done")) == [1]
            self.done.update(payloads)
        for what, part in (("revive", "morgue"), ("run", "due")):
            acted = run(self.queue.store.connections, self.acts.on_all(what, part))  # type: ignore[arg-type]
            assert (acted.stayed, acted.stopped) == (0, False)
        while taken := self.queue.take(ME, claims=50):
            for token, one in taken:
                assert self.queue.settle(ME, Verdict(token, one.id, "done")) == [1]
                self.done.update(payload for _, payload in one.payloads)


def sound(kept: Kept, held: set[bytes]) -> None:
    """Every structure says the same."""
    assert kept.both == set()
    assert kept.payloads.keys() == kept.due.keys()
    assert kept.busy.keys() == held
    assert kept.arrived.keys() == kept.arrived_due.keys() <= held
    assert kept.retry.keys() | kept.errors.keys() | kept.crashes.keys() <= kept.due.keys()
    assert kept.retry.keys() == kept.errors.keys()
    assert kept.morgue.keys() == kept.morgue_errors.keys()
    assert all([*kept.payloads.values(), *kept.arrived.values(), *kept.morgue.values()])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("deletes", [False, True], ids=["nothing is deleted", "some are deleted"])
def test_nothing_is_lost_doubled_or_left(store: Store, seed: int, deletes: bool) -> None:
    crowd = Crowd(store, seed, deletes=deletes)
    for step in range(1200):
        crowd.draw.choice([crowd.push, crowd.claim, crowd.settle, crowd.act, crowd.act])()
        if step % 20 == 0:
            sound(crowd.queue.kept(), {*crowd.held})
    sound(crowd.queue.kept(), {*crowd.held})
    crowd.finish()
    assert crowd.queue.left() == set()
    assert crowd.done.keys() <= set(crowd.pushed)
    assert set(crowd.done.values()) == {1}, "each ended well once"
    if not deletes:
        assert crowd.done.keys() == set(crowd.pushed), "nothing is lost"
    assert len(crowd.done) > 50
