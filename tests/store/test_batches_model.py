"""Batches against a model of a few lines: whatever happens in whatever order, the counts are right and sum up."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from henchman.errors import BatchClosed
from henchman.store import batches, jobs
from henchman.work.effects import FINAL, STATUS, EndingFacts, encoded
from support.store import ME, Store

PARENT, CHILD = "a" * 32, "b" * 32
WHICH = ("success", "complete", "death")
ENDINGS = sorted(set(STATUS) - {"started", "invalid"})
Batch = Literal["parent", "child"]
BATCH = st.sampled_from(["parent", "child"])
JID = st.integers(0, 5).map(str)


def payload(batch: str, jid: str) -> bytes:
    return json.dumps({"class": "j", "args": [], "jid": jid, "queue": "q", "hm": {"batch": batch}}).encode()


class Model:
    """What a batch should be."""

    def __init__(self, parent: Model | None) -> None:
        self.parent = parent
        self.children: dict[str, bool] = {}  # the live ones
        self.bad_children = 0
        self.live: dict[str, str] = {}
        self.final: dict[str, int] = {}
        self.dead: list[str] = []
        self.state, self.why, self.generation, self.total = "open", "", 1, 0
        self.bad = False
        self.called: list[str] = []

    def call(self, which: str) -> None:
        name = f"{which}{'' if self.generation == 1 else f'-g{self.generation}'}"
        if name not in self.called:
            self.called.append(name)

    def end(self, jid: str, status: str) -> None:
        if jid not in self.live:
            return
        if status in ("finished", "failed", "error", "cancelled", "expired"):
            del self.live[jid]
            self.final[status] = self.final.get(status, 0) + 1
            if status == "error":
                self.call("death")
            self.settle()
        else:
            self.live[jid] = status

    def settle(self) -> None:
        if self.state != "closed" or self.live or self.children:
            return
        self.state = "complete"
        wrong = any(count for status, count in self.final.items() if status != "finished") or self.bad_children > 0
        self.bad = wrong or self.why != ""
        self.call("complete")
        if not self.bad:
            self.call("success")
        if self.parent is not None and self.parent.children.pop("child", None):
            self.parent.bad_children += self.bad
            self.parent.settle()

    def reopen(self) -> None:
        if self.state != "complete":
            return
        self.state, self.why, self.generation = "closed", "", self.generation + 1
        if self.parent is not None:
            self.parent.children["child"] = True
            self.parent.bad_children -= self.bad
            self.parent.reopen()


class Batches(RuleBasedStateMachine):
    """A batch, and one that is part of it."""

    store: Store

    @initialize()
    def begin(self) -> None:
        self.store.ask("FLUSHALL")
        self.ids = {"parent": PARENT, "child": CHILD}
        parent = Model(None)
        parent.children["child"] = True
        self.models = {"parent": parent, "child": Model(parent)}
        self.lane = 0
        for name, batch in self.ids.items():
            fields: dict[str, Any] = {"keep": "100", "parent": PARENT if name == "child" else ""}
            for which in WHICH:
                base = f"cb:{which}:"
                fields |= {base + "queue": "calls", base + "head": f'{{"class":"{name}","args":[],"jid":"'}
                fields |= {base + "jid": which, base + "tail": '"'}
            self.store.run(batches.make(self.store.keys, batch, fields, b"{}"))
        self.store.join("q")

    @rule(
        name=BATCH,
        jids=st.lists(JID, unique=True, max_size=4),
        when=st.sampled_from(["", "+9.0", "parked"]),
        again=st.booleans(),
        member=st.one_of(st.just(""), JID),
    )
    def push(self, name: Batch, jids: list[str], when: str, again: bool, member: str) -> None:
        model = self.models[name]
        may = model.state == "open" or (model.state == "closed" and member in model.live)
        may = may and model.why in ("", "aborted")
        self.lane += 1
        rows = [batches.TrackedPush(jid, when, payload(self.ids[name], jid), b"{}") for jid in jids]
        call = batches.push(self.store.keys, self.ids[name], "q", rows, member=member, lane=("lane", self.lane))
        if not may:
            with pytest.raises(BatchClosed):
                self.store.run(call)
            return
        fresh = [jid for jid in jids if jid not in model.live]
        status = {"": "enqueued", "+9.0": "scheduled", "parked": "blocked"}[when]
        assert self.store.run(call) == len(fresh)
        model.live |= dict.fromkeys(fresh, status)
        model.total += len(fresh)
        if again:
            assert self.store.run(call) == len(fresh)

    @rule(name=BATCH, jid=JID, ending=st.sampled_from(ENDINGS))
    def end(self, name: Batch, jid: str, ending: str) -> None:
        """By whoever ends jobs, of what may not be a member any more."""
        batch, model, one = self.ids[name], self.models[name], payload(self.ids[name], jid)
        text = encoded(self.store.keys, json.loads(one), ending, EndingFacts(ME, 1, {}))
        if ending == "kept":
            if jid not in model.live:
                return  # who is dead twice is kept once: the payload is the same
            self.store.ask("LPUSH", self.store.flight("q"), one)
            unit = jobs.Settlement(1, one, ending, one, batch, text)
            assert self.store.settle(unit, queues=("q",)) == [1]
            if jid not in model.dead:
                model.dead.append(jid)
        else:
            self.store.run(batches.note(self.store.keys, [text]))
        assert (STATUS[ending] in ("finished", "failed", "error", "cancelled", "expired")) == (ending in FINAL)
        model.end(jid, STATUS[ending])

    @rule(name=BATCH, why=st.sampled_from(["", "", "", "aborted", "cancelled", "expired", "invalidated"]))
    def close(self, name: Batch, why: str) -> None:
        model = self.models[name]
        weight = ["", "aborted", "expired", "cancelled", "invalidated"].index
        if model.state != "complete":
            if min(weight(why), 3) > min(weight(model.why), 3):
                model.why = why
            if model.state == "open":
                model.state = "closed"
                model.settle()
        assert self.store.run(batches.close(self.store.keys, self.ids[name], why)) == model.state

    @rule(name=BATCH)
    def release(self, name: Batch) -> None:
        model = self.models[name]
        parked = list(self.store.ask("LRANGE", self.store.keys.batch(self.ids[name]) + ":parked", 0, -1))
        assert self.store.run(batches.release(self.store.keys, self.ids[name], 100)) == 0
        for row in parked:
            jid = row.split(b" ", 3)[3][:1].decode()
            why = self.models[name].why
            if why:
                model.end(jid, "cancelled")
            elif model.live.get(jid) == "blocked":
                model.end(jid, "enqueued")

    @rule(name=BATCH, most=st.integers(1, 3))
    def retry(self, name: Batch, most: int) -> None:
        model, batch = self.models[name], self.ids[name]
        old = [one.payload for one in self.store.run(batches.dead(self.store.keys, batch, 0, most)).members]
        again = [batches.Retried(json.loads(one)["jid"], "q", one, one) for one in old]
        if not again or any(one.jid in model.live for one in again):
            return  # a jid that was pushed once more meanwhile
        assert self.store.run(batches.retry(self.store.keys, batch, again)) == [1] * len(again)
        for one in again:
            model.dead.remove(one.jid)
            model.reopen()
            model.live[one.jid] = "enqueued"
            model.final["error"] -= 1

    @invariant()
    def fits(self) -> None:
        if not hasattr(self, "models"):
            return
        calls = [json.loads(one) for one in self.store.queue("calls")]
        for name, model in self.models.items():
            told = self.store.run(batches.facts(self.store.keys, self.ids[name])).facts
            counts = {key.removeprefix("n:"): int(value) for key, value in told.items() if key.startswith("n:")}
            expected = {status: count for status, count in model.final.items() if count}
            for status in model.live.values():
                expected[status] = expected.get(status, 0) + 1
            assert {status: count for status, count in counts.items() if count} == expected
            assert sum(counts.values()) == int(told["total"]) == model.total
            assert (told["state"], told["why"], int(told["generation"])) == (model.state, model.why, model.generation)
            assert int(told.get("bad_children", 0)) == model.bad_children
            assert [one["jid"] for one in calls if one["class"] == name] == model.called
            live = self.store.ask("HLEN", self.store.keys.batch(self.ids[name]) + ":jobs")
            assert live == len(model.live) + len(model.children)
        assert self.store.ask("LLEN", self.store.keys.broken) == 0


@pytest.mark.parametrize("length", [50])
def test_any_order_of_events(redis_url: str, length: int) -> None:
    Batches.store = Store(redis_url)
    run_state_machine_as_test(
        Batches,
        settings=settings(
            max_examples=60, stateful_step_count=length, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    Batches.store.connections.close()
