"""Batches and results in memory, as far as a fake needs them: members are counted, callbacks come when a batch is
complete, results are kept until the block ends. To cancel, pause or retry a batch takes a server.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from henchman.store.call import Arg, Call
from henchman.testing.calls import PlainPush, as_bytes, as_text, class_of, due_at, script_arguments
from henchman.testing.keys import FakeKeys, Replace
from henchman.wire.arguments import to_json
from henchman.wire.payload import decode, encode
from henchman.work.effects import STATUS, EndingFacts, batch_of, effects, facts_of
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit

__all__ = ["FakeBatches"]

_OVER = frozenset({"finished", "failed", "error", "cancelled", "expired"})
Answer = tuple[Any, list[PlainPush]]


class _Batch:
    """``members``: jid → status of each job that has not ended, ``batch:<id>`` of each batch that is part of it. Where
    results are kept, ``rows``: the name and the jid of each job, ``results``: jid → what became of it. ``steps``: of a
    workflow, step → jid and name of its job."""

    def __init__(self, facts: dict[str, str]) -> None:
        self.facts = facts
        self.members: dict[str, str] = {}
        self.reasons: dict[str, int] = {}
        self.parked: list[tuple[str, PlainPush, bytes]] = []
        self.rows: list[tuple[str, str]] = []
        self.results: dict[str, str] = {}
        self.steps: dict[str, str] = {}

    def add(self, field: str, by: int = 1) -> None:
        """Count in a field."""
        self.facts[field] = str(int(self.facts.get(field, "0")) + by)

    def result_of(self, jid: str) -> str:
        """What became of a row, as a server tells it."""
        return self.results.get(jid) or f"?{self.members.get(jid, '')}"


class FakeBatches:
    """Answers what is asked of batches and results, and hears how jobs end. ``now``: the Unix time of the fake.

    What an answer, or an end, pushes is returned: jobs of a batch, those that were parked, callbacks, jobs that waited
    for a key. ``replace``: see ``FakeKeys``.
    """

    def __init__(self, app: Any, now: Callable[[], float], replace: Replace = lambda jid, push: False) -> None:
        self._app = app
        self._now = now
        self.keys = FakeKeys(app, now, replace)
        self.keys.needs.end = self._end
        self.dead: list[PlainPush] = []  # those that never ran because what they waited for did not succeed
        self._batches: dict[str, _Batch] = {}
        self._results: dict[str, bytes] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.keys.clear()
        self.dead.clear()
        self._batches.clear()
        self._results.clear()

    def answer(self, call: Call[Any]) -> Answer | None:
        """The reply of a server, and what is pushed with it; None for a call about something else."""
        if call.script is not None:
            acts: dict[str, Callable[..., Answer | None]] = {"batch_make": self._make, "batch_push": self._push}
            acts |= {"batch_close": self._close, "batch_release": self._release, "batch_results": self._read_results}
            acts |= {"keyed_push": self.keys.push}
            return acts[call.name](*script_arguments(call)[1]) if call.name in acts else None
        command, key, *_ = (as_text(one) for one in (*call.parts[0], ""))
        keys = self._app.keys
        if command == "GET" and key.startswith(keys.result("")):
            return self._results.get(key), []
        if command == "TIME" and len(call.parts) == 1:
            return self._time(), []
        if command == "TIME":  # facts: TIME, HGETALL, EXISTS, HGETALL
            command, key = (as_text(one) for one in call.parts[1])
        if command == "SET" and key == keys.history_on:
            return None, []
        if command == "SET" and key.endswith(":producer"):  # no lease of a fake runs out
            return b"OK" if len(call.parts) == 1 else [b"OK"] * len(call.parts), []
        id, _, part = key.removeprefix(keys.batch("")).partition(":")
        batch = self._batches.get(id)
        if command == "HMGET" and batch is not None and part in ("results", "names"):
            held = batch.results if part == "results" else batch.steps
            return [
                None if (text := held.get(as_text(one))) is None else text.encode() for one in call.parts[0][2:]
            ], []
        facts = {} if batch is None else {name.encode(): value.encode() for name, value in batch.facts.items()}
        if command == "HGETALL" and len(call.parts) == 4 and key.startswith(keys.batch("")):
            reasons = {} if batch is None else {name.encode(): b"%d" % n for name, n in batch.reasons.items()}
            return [self._time(), facts, int(facts.get(b"state") == b"open"), reasons], []
        if command == "HMGET" and key.startswith(keys.batch("")):
            return [facts.get(as_bytes(one)) for one in call.parts[0][2:]], []
        return None

    def _time(self) -> tuple[int, int]:
        now = self._now()
        return int(now), int(now % 1 * 1e6)

    def _make(self, id: Arg, _: Arg, *fields: Arg) -> Answer:
        words = [as_text(one) for one in fields]
        facts = dict(zip(words[::2], words[1::2], strict=True))
        facts.pop("record", None)
        parent = self._batches.get(facts.get("parent", ""))
        if facts.get("parent") and (parent is None or parent.facts["state"] == "complete" or parent.facts["why"]):
            return b"PARENT", []
        if parent is not None:
            parent.members[f"batch:{as_text(id)}"] = "child"
            parent.add("children")
        first = {"state": "open", "why": "", "created": repr(self._now()), "generation": "1", "total": "0"}
        self._batches[as_text(id)] = _Batch({**first, **facts})
        return 1, []

    def _push(self, id: Arg, member: Arg, queue: Arg, *rest: Arg) -> Answer | None:
        keyed = bool(rest[7])  # what is asked of the first row
        if not id and not keyed:
            return None  # tracked, in no batch: a push as any other
        batch, pushed, answers = self._batches.get(as_text(id)), list[PlainPush](), list[str]()
        if batch is None and id:
            return b"ABSENT", []
        if batch is not None and not self._takes(batch, as_text(member)):
            return b"CLOSED", []
        if batch is not None and (step := self._other_step(batch, rest)):
            return b"STEP " + step.encode(), []
        for i in range(3, len(rest), 5):
            jid, when, payload, _, ask = rest[i : i + 5]
            if batch is not None and (step := _step_of(ask)):
                if step in batch.steps:  # pushed again
                    answers.append("C")
                    continue
                batch.steps[step] = f"{as_text(jid)} {class_of(as_bytes(payload))}"
            due = as_text(when).removeprefix("parked")
            push = PlainPush(as_text(queue), as_bytes(payload), due_at(due, self._now()))
            parked = due != as_text(when)
            answer, now_pushed = ("C", [push]) if parked or not keyed else self._admitted(ask, as_text(jid), push)
            answers.append(answer)
            if batch is not None and answer[0] in "CB":
                status = "blocked" if parked or answer[0] == "B" else "enqueued" if push.at is None else "scheduled"
                batch.members[as_text(jid)] = status
                batch.rows.append((class_of(push.payload), as_text(jid)))
                batch.add("total")
                batch.add(f"n:{status}")
            if batch is not None and parked:
                batch.parked.append((as_text(jid), push, as_bytes(ask)))
            else:
                pushed += now_pushed
        return ("\n".join(answers).encode() if keyed else len(answers)), pushed

    def _other_step(self, batch: _Batch, rest: Sequence[Arg]) -> str:
        """The first step of a push that is another job by now; "" when there is none."""
        for i in range(3, len(rest), 5):
            step = _step_of(rest[i + 4])
            if step in batch.steps and batch.steps[step].partition(" ")[0] != as_text(rest[i]):
                return step
        return ""

    def _takes(self, batch: _Batch, member: str) -> bool:
        known = batch.facts
        may = known["state"] == "open" or (known["state"] == "closed" and member in batch.members)
        return may and known["why"] in ("", "aborted") and self._now() <= float(known.get("expires") or "inf")

    def _admitted(self, ask: Arg, jid: str, push: PlainPush) -> tuple[str, list[PlainPush]]:
        """The answer to a job with a key, and what it pushes."""
        return self.keys.admitted(json.loads(as_bytes(ask)), jid, push)

    def let_go(self, pushes: list[PlainPush]) -> list[PlainPush]:
        """Jobs that waited go their way, which their batches see."""
        called = list[PlainPush]()
        for push in pushes:
            job = decode(push.payload)
            if batch := batch_of(job):
                called += self._changed(batch, job["jid"], "enqueued" if push.at is None else "scheduled", "")
        return [*pushes, *called]

    def _end(self, push: PlainPush, ending: str, reason: str) -> list[PlainPush]:
        """A job ends that never ran, because of what it waited for."""
        job = decode(push.payload)
        if ending == "dead":
            self.dead.append(
                push._replace(payload=encode(job | {"error_class": "DependencyFailed", "error_message": reason}))
            )
        let_go = self.keys.settle(push.payload, ending)
        return let_go + self.carry_out(effects(self._app.keys, job, ending, EndingFacts(detail={"reason": reason})))

    def _read_results(self, id: Arg, first: Arg, most: Arg) -> Answer:
        batch = self._batches.get(as_text(id))
        if batch is None or batch.facts.get("results") != "1":
            return (b"ABSENT" if batch is None else b"NONE"), []
        number = {name: b"%d" % place for place, name in enumerate(dict.fromkeys(name for name, _ in batch.rows))}
        page: list[bytes] = []
        for name, jid in batch.rows[int(first) : int(first) + int(most)]:
            page += [b"%b %b" % (number[name], jid.encode()), batch.result_of(jid).encode()]
        names = [part for name, one in number.items() for part in (name.encode(), one)]
        return [len(batch.rows), names, page], []

    def _close(self, id: Arg, why: Arg) -> Answer:
        batch = self._batches.get(as_text(id))
        if batch is None or batch.facts["state"] == "complete":
            return (b"ABSENT" if batch is None else b"complete"), []
        batch.facts["why"] = batch.facts["why"] or as_text(why)
        called: list[PlainPush] = []
        if batch.facts["state"] == "open":
            batch.facts |= {"state": "closed", "closed": repr(self._now())}
            called = self._complete_if_empty(as_text(id))
        return batch.facts["state"].encode(), called

    def _release(self, id: Arg, _: Arg) -> Answer:
        batch, pushed = self._batches[as_text(id)], []
        parked, batch.parked = batch.parked, []
        for jid, push, ask in parked:
            if batch.facts["why"]:
                batch.results[jid] = '!{"status":"cancelled","message":"the batch was not released"}'
                pushed += self._changed(as_text(id), jid, "cancelled", "")
                continue
            answer, let_go = self._admitted(ask, jid, push) if ask else ("C", [self.keys.stamped(push)])
            if answer == "C":
                pushed += self._changed(as_text(id), jid, "enqueued" if push.at is None else "scheduled", "")
                pushed += let_go
            elif answer[0] != "B":  # a duplicate is no member
                del batch.members[jid]
                batch.add("total", -1)
                batch.add("n:blocked", -1)
                pushed += self._complete_if_empty(as_text(id))
        return 0, pushed

    def settle(self, unit: Unit, outcome: Outcome) -> list[PlainPush]:
        """A job has ended as ``outcome`` says, or goes on later; the callbacks that are due with it."""
        try:
            job = decode(unit.payload)
        except Exception:  # no job at all: nothing waits for its end
            return []
        if outcome.result is not None:
            outcome = self._with_json_result(job, outcome)
        released = self.let_go(self.keys.settle(unit.payload, outcome.ending))
        if outcome.ending not in STATUS:
            return released
        return released + self.carry_out(effects(self._app.keys, job, outcome.ending, facts_of(unit, outcome, job)))

    def _with_json_result(self, job: Mapping[str, Any], outcome: Outcome) -> Outcome:
        """The outcome with its result as JSON, as a worker keeps it."""
        try:
            return outcome._replace(result=to_json(self._app.registry.get(job["class"]).function, outcome.result))
        except ValueError as error:
            return outcome._replace(result=None, reason=f"its result cannot be kept: {error}")

    def staged(self, text: Arg) -> list[PlainPush]:
        """A job has come out of the schedule; ``text``: its effects."""
        return self.carry_out(json.loads(as_bytes(text) or b"[]"))

    def carry_out(self, found: Any) -> list[PlainPush]:
        """Effects of a change, as ``lib/effects.lua`` carries them out."""
        called: list[PlainPush] = []
        for kind, *rest in found:
            if kind == "result":
                self._results[rest[0]] = rest[2].encode()
            elif kind == "step_result" and (batch := self._batches.get(rest[0])) is not None:
                batch.results[rest[1]] = rest[2]
            elif kind == "track" and rest[0]:
                called += self._changed(rest[0], rest[1], rest[2], rest[6])
        return called

    def _changed(self, id: str, jid: str, status: str, reason: str) -> list[PlainPush]:
        """A member goes from one status to another."""
        batch = self._batches.get(id)
        old = None if batch is None else batch.members.get(jid)
        if batch is None or old is None:
            return []
        batch.add(f"n:{old}", -1)
        batch.add(f"n:{status}")
        if status not in _OVER:
            batch.members[jid] = status
            return []
        del batch.members[jid]
        batch.facts.setdefault("first", repr(self._now()))
        if status in ("failed", "error"):
            name = f"{status} {reason}"
            batch.reasons[name] = batch.reasons.get(name, 0) + 1
        called = self._called(batch, "death") if status == "error" else []
        return called + self._complete_if_empty(id)

    def _complete_if_empty(self, id: str) -> list[PlainPush]:
        batch = self._batches.get(id)
        if batch is None or batch.facts["state"] != "closed" or batch.members:
            return []
        facts = batch.facts
        bad = int(facts.get("bad_children", "0")) + sum(int(facts.get(f"n:{one}", 0)) for one in _OVER - {"finished"})
        well = not bad and not facts["why"]
        facts |= {"state": "complete", "completed": repr(self._now())}
        called = self._called(batch, "complete") + (self._called(batch, "success") if well else [])
        parent = self._batches.get(facts.get("parent", ""))
        if parent is not None and f"batch:{id}" in parent.members:
            del parent.members[f"batch:{id}"]
            parent.add("bad_children", 0 if well else 1)
            called += self._complete_if_empty(facts["parent"])
        return called

    def _called(self, batch: _Batch, which: str) -> list[PlainPush]:
        """A callback, once."""
        facts, base, mark = batch.facts, f"cb:{which}:", f"called:{which}:1"
        if f"{base}queue" not in facts or mark in facts:
            return []
        facts[mark] = "1"
        payload = f"{facts[base + 'head']}{facts[base + 'jid']}{facts[base + 'tail']}".encode()
        payload += b',"enqueued_at":%b}' % self._app.stamp(self._now())
        return [PlainPush(facts[f"{base}queue"], payload, None)]


def _step_of(ask: Arg) -> str:
    """The step of a workflow that a job is, by what is asked of it."""
    text = as_bytes(ask)
    return str(json.loads(text).get("step", "")) if text else ""
