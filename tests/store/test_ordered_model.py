"""The scripts of ordered queues against a model in plain Python, over many steps that hypothesis chooses.

The suite runs the same few examples each time. For more, and others::

    HENCHMAN_MODEL=2000x50 HENCHMAN_MODEL_SEED=7 pytest -s --timeout 3600 tests/store/test_ordered_model.py

Time stands still where it matters: leases are long, and a rule writes the due times that another moment would bring.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import hypothesis.strategies as st
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from henchman.errors import LeaseLost
from henchman.store import leases, ordered
from henchman.store.jobs import LeaseLapsed
from henchman.store.ordered import Push, Verdict
from support.ordered import LOOK, OrderedQueue
from support.ordered_model import Model, Window
from support.ordered_records import Records
from support.store import Store

NAMES = st.sampled_from([b"a", b"b|\0", b"g/1", b"g/2", b"g/3", b"h/\n"])
BODIES = st.sampled_from([b"1", b"2", b"\0x", b"x" * 70])
SCORES = st.sampled_from(["-1", "-0.0", "0", "1", "2.5", "9007199254740992"])
WHENS = st.sampled_from(["", "", "5", "7.5", "+1000", "4000000000"])
ROWS = st.lists(st.builds(Push, NAMES, WHENS, SCORES, BODIES), min_size=1, max_size=6)
COLLAPSES = st.sampled_from(["min", "min", "latest", "none"])
WHICH = st.integers(0, 1)
PLACE = st.integers(0, 99)
VERDICTS = st.tuples(
    st.sampled_from(["done", "done", "retry", "to_morgue", "snooze", "release"]), st.sampled_from([0.0, 1000.0])
)


class Machine(RuleBasedStateMachine):
    """Two queues and up to three processes, which die and are followed by others."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        store.ask("FLUSHALL")
        self.store = store
        self.queues: list[OrderedQueue] = []
        self.models: list[Model] = []
        self.living: list[str] = []
        self.lapsed: set[str] = set()
        self.unfreed: list[str] = []
        self.born = 0
        self.old_tokens: list[tuple[int, bytes]] = []
        self.records = Records(store)

    @contextmanager
    def window(self) -> Iterator[Window]:
        made = Window(time.time(), 0)
        yield made
        made.end = time.time()

    def be_born(self) -> None:
        self.born += 1
        name = f"host:{self.born}:0123456789ab"
        for queue in self.queues:
            queue.join(name)
        self.living.append(name)

    @initialize(
        collapses=st.tuples(COLLAPSES, COLLAPSES),
        tracked=st.tuples(st.booleans(), st.booleans()),
        group_limit=st.integers(0, 2),
        limit=st.integers(0, 3),
    )
    def begin(self, collapses: tuple[str, str], tracked: tuple[bool, bool], group_limit: int, limit: int) -> None:
        for name, collapse, told in zip("qr", collapses, tracked, strict=True):
            self.queues.append(OrderedQueue(self.store, name, collapse, tracked=told))
            self.models.append(Model(collapse, group_limit, limit))
            self.queues[-1].declare(limit, group_limit, "/")
            self.queues[-1].tracked_from_birth = all(tracked)  # else payloads without records are moved in
        for _ in range(3):
            self.be_born()

    @rule(which=WHICH, rows=ROWS)
    def push(self, which: int, rows: list[Push]) -> None:
        with self.window() as window:
            created = self.queues[which].push(*rows)
        assert created == self.models[which].push(rows, window)

    @rule(
        which=WHICH,
        who=PLACE,
        claims=st.integers(1, 3),
        extra=st.integers(0, 2),
        size=st.integers(1, 4),
        cap=st.sampled_from([1, 2, 1000]),
    )
    def claim(self, which: int, who: int, claims: int, extra: int, size: int, cap: int) -> None:
        owner = self.living[who % len(self.living)]
        queue, model = self.queues[which], self.models[which]
        queue.silence()
        with self.window() as window:
            try:
                reply = queue.claim(owner, claims, extra=extra, size=size, cap=cap)
            except LeaseLapsed:
                assert owner in self.lapsed
                return
        assert owner not in self.lapsed
        model.claimed(owner, (claims, extra, size, cap), reply, queue.kept(), window)
        self.old_tokens += [(token, one.id) for token, ids in reply.claims for one in ids]

    @rule(which=WHICH, who=PLACE, verdicts=st.lists(VERDICTS, min_size=1, max_size=5), at=PLACE)
    def settle(self, which: int, who: int, verdicts: list[tuple[str, float]], at: int) -> None:
        """Some of what a process holds ends, twice over: a row that comes again counts once."""
        owner, model = self.living[who % len(self.living)], self.models[which]
        held = [(one.token, name) for name, one in sorted(model.ids.items()) if one.token and one.holder == owner]
        rows = []
        for place, (verdict, delay) in enumerate(verdicts[: len(held)]):
            token, name = held[(at + place) % len(held)]
            rows.append(Verdict(token, name, verdict, delay, at % 5, f"error {at}"))
        if not rows:
            return
        rows.append(rows[0])
        with self.window() as window:
            statuses = self.queues[which].settle(owner, *rows)
        assert statuses == [model.settle(owner, row, window) for row in rows]
        assert statuses[-1] == 0

    @precondition(lambda self: self.old_tokens)
    @rule(which=WHICH, who=PLACE, at=PLACE, verdict=VERDICTS, shift=st.sampled_from([0, 0, 1, -1]))
    def zombie(self, which: int, who: int, at: int, verdict: tuple[str, float], shift: int) -> None:
        """Somebody speaks of a claim that it does not hold any more, or never held."""
        token, name = self.old_tokens[at % len(self.old_tokens)]
        now = self.models[which].ids.get(name)
        if now is None or now.token != token + shift:
            owner = self.living[who % len(self.living)]
            assert self.queues[which].settle(owner, Verdict(token + shift, name, verdict[0], verdict[1])) == [0]

    @rule(who=PLACE, how=st.sampled_from(["free", "free", "bury", "leave"]), charge=st.booleans(), alone=st.booleans())
    def die(self, who: int, how: str, charge: bool, alone: bool) -> None:
        owner = self.living.pop(who % len(self.living))
        self.lapsed.discard(owner)
        for queue, model in zip(self.queues, self.models, strict=True):
            if how == "leave":
                queue.leave(owner)
            else:
                queue.bury(owner)
            model.gone.add(owner)
        if how == "free":
            self.free(owner, charge, alone)
        else:
            self.unfreed.append(owner)
        if how != "leave":
            for act in (
                lambda: self.queues[0].claim(owner),
                lambda: self.queues[1].settle(owner, Verdict(1, b"a", "done")),
            ):
                try:
                    act()
                except LeaseLost:
                    continue
                raise AssertionError("the buried are told")
        self.be_born()

    def free(self, owner: str, charge: bool, alone: bool) -> None:
        for queue, model in zip(self.queues, self.models, strict=True):
            assert queue.free(owner, charge=charge, alone=alone) == model.free(owner, charge=charge, alone=alone)
            assert queue.free(owner, charge=charge, alone=alone) == 0

    @precondition(lambda self: self.unfreed)
    @rule(charge=st.booleans(), alone=st.booleans())
    def free_later(self, charge: bool, alone: bool) -> None:
        """The lifeline comes to one that died long ago; some of what it held may run elsewhere by now."""
        self.free(self.unfreed.pop(0), charge, alone)

    @rule(who=PLACE)
    def lapse(self, who: int) -> None:
        owner = self.living[who % len(self.living)]
        self.store.ask("DEL", self.store.keys.lease(owner))
        self.lapsed.add(owner)

    @precondition(lambda self: self.lapsed)
    @rule()
    def renew(self) -> None:
        self.store.run(leases.renew(self.store.keys, self.lapsed.pop(), int(LOOK * 1000)))

    @rule(which=WHICH, places=st.sets(st.integers(0, 9), min_size=1), at=st.sampled_from([1.0, 6.0]))
    def time_passes(self, which: int, places: set[int], at: float) -> None:
        """Some ids are due now: those that wait may run, those in flight are looked at."""
        queue, model = self.queues[which], self.models[which]
        put_off = queue.kept().put_off
        for place, (name, one) in enumerate(sorted(model.ids.items())):
            if place in places:
                one.due = max(
                    at, put_off.get(model.group(name) or b"", {}).get(name, at)
                )  # put off is later, never sooner
                queue.set_due(name, one.due)
                if one.token is not None:
                    ticket = b"%d|%s" % (one.token, one.holder.encode())
                    if ticket in model.open:
                        model.open[ticket] = at
                        self.store.ask("ZADD", queue.key("open"), "XX", at, ticket)
                    if group := model.group(name):
                        self.store.ask("ZADD", queue.base.encode() + b"g:" + group, "XX", at, name)

    @rule(which=WHICH, limit=st.integers(1, 3))
    def change_the_ceiling(self, which: int, limit: int) -> None:
        model = self.models[which]
        if model.limit:  # one that had none does not know of claims of before
            model.limit = limit
            self.queues[which].declare(limit, model.group_limit, "/")

    @rule(which=WHICH, names=st.lists(NAMES, max_size=3))
    def move(self, which: int, names: list[bytes]) -> None:
        source, target = self.queues[which], self.queues[1 - which]
        before, before_there = source.kept(), target.kept()
        call = ordered.move(self.store.keys, source.name, target.name, target.collapse, ids=names)
        asked = names or [name for _, name in sorted((at, name) for name, at in before.due.items())]
        assert self.store.run(call) == self.models[which].move(self.models[1 - which], asked, before, before_there)

    @rule()
    def scripts_are_forgotten(self) -> None:
        self.store.ask("SCRIPT", "FLUSH")

    @invariant()
    def all_is_as_the_model_has_it(self) -> None:
        self.records.agree(self.queues)
        for queue, model in zip(self.queues, self.models, strict=True):
            model.check(queue.kept())
            for owner in self.living:
                mine = {name: b"%d" % (one.token or 0) for name, one in model.ids.items() if one.holder == owner}
                assert queue.held(owner) == {name: token for name, token in mine.items() if token != b"0"}
            for owner in self.unfreed:
                assert queue.held(owner).keys() >= {
                    name for name, one in model.ids.items() if one.token and one.holder == owner
                }

    def teardown(self) -> None:
        """With nothing but time passing, everything is done, and nothing is left."""
        if not self.queues:
            return
        while self.unfreed:
            self.free_later(False, False)
        while self.lapsed:
            self.renew()
        for which, model in enumerate(self.models):
            for _ in range(200):
                if not model.ids:
                    break
                for who in range(len(self.living)):
                    self.settle(which, who, [("done", 0.0)] * 6, 0)
                    self.all_is_as_the_model_has_it()
                self.time_passes(which, set(range(10)), 1.0)
                self.claim(which, 0, 3, 2, 4, 1000)
                self.all_is_as_the_model_has_it()
            assert not model.ids, "it was not done in the end"
            left = {key for key in self.queues[which].left() if key not in ("morgue", "merr")}
            assert all(key.startswith(("m:", "jm:")) for key in left), left
            assert self.queues[which].held(self.living[0]) == {}


def test_the_scripts_do_what_the_model_does(store: Store) -> None:
    examples, steps = (int(one) for one in os.environ.get("HENCHMAN_MODEL", "50x40").split("x"))
    wanted = os.environ.get("HENCHMAN_MODEL_SEED")
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=wanted is None,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    def machine() -> Machine:
        return Machine(store)

    if wanted is not None:
        number = int(wanted) if wanted.isdecimal() else random.randrange(2**32)
        print(f"HENCHMAN_MODEL={examples}x{steps} HENCHMAN_MODEL_SEED={number}")
        seed(number)(machine)
    run_state_machine_as_test(machine, settings=profile)
