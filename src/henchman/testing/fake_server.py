"""A server in memory, as far as a fake needs one: it takes pushes and cancellations, moves payloads that are due, keeps
where iterable jobs stand, batches and results, and merges and claims payloads of ordered ids. It answers calls by their
name and refuses all others.

It is no queue with several workers: one unit runs at a time, so ceilings, groups and pauses of ordered queues mean
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, TypeVar

from henchman.app import App
from henchman.errors import HenchmanError, PayloadError
from henchman.ordered.claim import Claim
from henchman.store.call import Call
from henchman.store.jobs import LATE
from henchman.store.keys import Keys
from henchman.store.ordered import ClaimedId, Verdict
from henchman.testing.batches import FakeBatches
from henchman.testing.calls import (
    NotFaked,
    OrderedRow,
    PlainPush,
    as_bytes,
    class_of,
    is_script,
    level_of,
    ordered_rows,
    pushes,
    script_arguments,
)
from henchman.wire.payload import decode
from henchman.work.effects import EndingFacts, effects
from henchman.work.outcome import Outcome
from henchman.work.unit import InFlightList, Unit

__all__ = ["Entity", "FakeServer", "Iterations", "Waiting", "ordered_unit", "plain_unit"]

T = TypeVar("T")


# --- units -----------------------------------------------------------------------------------------------------------


def plain_unit(app: Any, queue: str, payload: bytes) -> Unit:
    """A payload as a worker of ``app`` fetches it."""
    return Unit(payload, InFlightList(queue, app.keys.queue(queue), "", "testing", 1), time.monotonic())


def ordered_unit(app: Any, queue: str, claim: Claim) -> Unit:
    """A claim as a worker of ``app`` gets it."""
    source = app.sources()[queue]
    return Unit(b"", source.in_flight_list("testing", 1), time.monotonic(), source, claim)


class Iterations:
    """The states of iterable jobs, and checkpoints, by their key."""

    def __init__(self) -> None:
        self._states: dict[str, dict[bytes, bytes]] = {}

    def knows(self, call: Call[Any], keys: Keys) -> bool:
        """Whether ``call`` is about such a state."""
        if call.script is not None:
            return call.name in ("iterate", "checkpoint")
        command, *rest = call.parts[0]
        prefix = {"HGETALL": keys.iteration(""), "GET": keys.checkpoint("")}.get(str(command))
        return prefix is not None and len(call.parts) == 1 and str(rest[0]).startswith(prefix)

    def answer(self, call: Call[Any]) -> Any:
        """The reply of a server."""
        if call.name == "checkpoint":
            (_, key), (_, text, _) = script_arguments(call)
            self._states[str(key)] = {b"": as_bytes(text)}
            return 1
        if call.script is None and call.parts[0][0] == "GET":
            return self._states.get(str(call.parts[0][1]), {}).get(b"")
        if call.script is None:
            return [text for pair in self._states.get(str(call.parts[0][1]), {}).items() for text in pair]
        keys, (executions, cursor, run_time, *_) = script_arguments(call)
        state = self._states.setdefault(str(keys[0]), {})
        if int(state.get(b"ex", 0)) > int(executions):
            return LATE
        state |= {b"ex": as_bytes(executions), b"c": as_bytes(cursor), b"rt": as_bytes(run_time)}
        return int(b"cancelled" in state)

    def cancel(self, call: Call[Any], keys: Keys) -> str:
        """Note what ``cancel.lua`` notes for a job that may be an iterable one; the jid that is cancelled."""
        jid, *_, is_job = script_arguments(call)[1]
        if is_job:
            state = self._states.setdefault(keys.iteration(str(jid)), {})
            state.setdefault(b"cancelled", b"1")
            state.setdefault(b"c", b"null")
        return str(jid)

    def settle(self, keys: Keys, payload: bytes, ending: str) -> None:
        """A job ended: forget its state, if a server would."""
        try:
            job = decode(payload)
        except PayloadError:
            return
        told = EndingFacts(checkpoint=True)
        for kind, *rest in effects(keys, job | {"hm": {"iterable": True}}, ending, told):  # only these are kept here
            if kind == "uniterate":
                self._states.pop(rest[0], None)

    def clear(self) -> None:
        """Forget them."""
        self._states.clear()


# --- ordered queues --------------------------------------------------------------------------------------------------


@dataclass
class Entity:
    """The payloads of an id: (score, number of its arrival, payload), lowest first."""

    due: float
    number: int = 0  # of its first push: the order of ids that are due together
    retry_count: int = -1
    waiting: list[tuple[float, int, bytes]] = field(default_factory=list)

    def add(self, score: float, number: int, payload: bytes, collapse: str) -> None:
        """Merge a payload in."""
        if collapse == "latest":
            if not self.waiting or score >= self.waiting[0][0]:
                self.waiting = [(score, number, payload)]
            return
        if collapse == "min":
            equal = next((one for one in self.waiting if one[2] == payload), None)
            if equal is not None:
                self.waiting.remove(equal)
                score = min(score, equal[0])
        self.waiting.append((score, number, payload))
        self.waiting.sort(key=lambda one: (one[0], one[1] if collapse == "none" else 0, one[2]))


EntityKey = tuple[str, bytes]  #: queue and id


class _Ordered:
    """Ordered queues: ``pushed`` is every push; waiting payloads and dead ones by queue and id."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.pushed: list[OrderedRow] = []
        self.waiting: dict[EntityKey, Entity] = {}
        self.morgue: dict[EntityKey, Entity] = {}
        self._claimed: dict[EntityKey, Entity] = {}
        self._collapse: dict[str, str] = {}
        self._now = now
        self._numbers = count(1)

    def push(self, collapse: str, rows: list[OrderedRow]) -> int:
        """Take pushes; how many ids had nothing waiting."""
        created = 0
        for row in rows:
            self.pushed.append(row)
            self._collapse[row.queue] = collapse
            key, number, now = (row.queue, row.id), next(self._numbers), self._now()
            created += key not in self.waiting and key not in self._claimed
            entity = self.waiting.setdefault(key, Entity(now if row.at is None else row.at, number))
            own = now + number / 1e6  # a hair apart: the order of pushes stays
            entity.add(own if row.score is None else row.score, number, row.payload, collapse)
        return created

    def claim(self, definitions: dict[str, Any]) -> tuple[str, Claim] | None:
        """The next claim that is due in one of these queues, and its queue."""
        now = self._now()
        free = [(one.due, one.number, key) for key, one in self.waiting.items() if key not in self._claimed]
        ready = [key for due, _, key in sorted(free) if due <= now and key[0] in definitions]
        if not ready:
            return None
        queue = ready[0][0]
        options = definitions[queue].ordered
        keys = [key for key in ready if key[0] == queue][: options.claim_size]
        fresh = [key for key in keys if self.waiting[key].retry_count < 0]
        ids = []
        for key in fresh if keys[0] in fresh else keys[:1]:  # an id that failed before is claimed alone
            entity = self._claimed[key] = self.waiting.pop(key)
            given = [(score, payload) for score, _, payload in entity.waiting[: options.payload_cap]]
            ids.append(ClaimedId(key[1], entity.retry_count, 0, given))
        return queue, Claim(next(self._numbers), ids)

    def settle(self, queue: str, claim: Claim) -> None:
        """End each id of a claim as it was judged."""
        for one, verdict in zip(claim.ids, claim.verdicts or claim.all("done"), strict=True):
            key = queue, one.id
            entity, arrived = self._claimed.pop(key), self.waiting.pop(key, None)
            left = self._left(key, entity, len(one.payloads), verdict)
            if arrived is not None and not left.waiting:
                left = arrived
            elif arrived is not None:
                for score, number, payload in arrived.waiting:
                    left.add(score, number, payload, self._collapse[queue])
            if left.waiting:
                self.waiting[key] = left

    def _left(self, key: EntityKey, entity: Entity, given: int, verdict: Verdict) -> Entity:
        """An id after its claim."""
        now = self._now()
        match verdict.verdict:
            case "done":
                return Entity(now, entity.number, waiting=entity.waiting[given:])
            case "to_morgue":
                self.morgue.setdefault(key, Entity(now)).add(*entity.waiting[0], "min")
                return Entity(now, entity.number, waiting=entity.waiting[1:])
            case "retry":
                return Entity(now + verdict.delay, entity.number, entity.retry_count + 1, entity.waiting)
            case "snooze":
                return Entity(now + verdict.delay, entity.number, entity.retry_count, entity.waiting)
        return entity

    def dues(self, queues: Collection[str]) -> list[float]:
        """When each id of these queues is due."""
        return [one.due for key, one in self.waiting.items() if key[0] in queues]

    def clear(self) -> None:
        """Forget everything."""
        for held in (self.pushed, self.waiting, self.morgue, self._claimed):
            held.clear()


# --- the server ------------------------------------------------------------------------------------------------------


class Waiting(NamedTuple):
    """One payload that waits. ``place``: "queue", "schedule", "retry" or "dead"; ``at`` when it is due, or died."""

    place: str
    queue: str
    payload: bytes
    at: float | None


class FakeServer:
    """Answers calls. ``pushed`` is every push, ``waiting`` the payloads that have not come to their end."""

    def __init__(self, app: App, now: Callable[[], float]) -> None:
        self.pushed: list[PlainPush] = []
        self.waiting: list[Waiting] = []
        self.dead: list[Waiting] = []
        self.cancelled: set[str] = set()
        self.ordered = _Ordered(now)
        self._iterations = Iterations()
        self._batches = FakeBatches(app, now, self._replace)
        self._app = app
        self._now = now
        self._lock = threading.RLock()

    def run(self, call: Call[T]) -> T:
        """The answer of a server; NotFaked when only a real one has it."""
        with self._lock:
            return call.decode(self._answer(call))

    def _answer(self, call: Call[Any]) -> Any:
        now = self._now()
        if (ordered := ordered_rows(call, now)) is not None:
            return self.ordered.push(*ordered)
        if (found := pushes(call, self._app.keys, now)) is not None:
            self._take(found)
            return [1] * len(found) if is_script(call, "deliver") else len(found)
        if (answer := self._batches.answer(call)) is not None:
            self._take(answer[1])
            return answer[0]
        if is_script(call, "cancel") and script_arguments(call)[1][-1]:
            jid = self._iterations.cancel(call, self._app.keys)
            self._take(self._batches.let_go(self._batches.keys.needs.cancel(jid)))
            self.cancelled.add(jid)
            return 0
        if is_script(call, "limit_enter"):
            return [1, 0]  # who asks is alone: nobody else has a place
        if is_script(call, "limit_leave"):
            return []
        if is_script(call, "due"):
            return self._due(now)
        if is_script(call, "move"):
            return self._move(call)
        if self._iterations.knows(call, self._app.keys):
            return self._iterations.answer(call)
        raise NotFaked(call, "fake")

    def blocked(self) -> list[PlainPush]:
        """The jobs that wait for others."""
        with self._lock:
            return [one.push for one in self._batches.keys.needs.parked.values()]

    def _take(self, found: list[PlainPush]) -> None:
        buried, self._batches.dead = self._batches.dead, []
        self.dead += [Waiting("dead", one.queue, one.payload, self._now()) for one in buried]
        self.pushed += found
        self.waiting += [Waiting("queue" if one.at is None else "schedule", *one) for one in found]

    def _replace(self, jid: str, push: PlainPush) -> bool:
        """Put ``push`` in the place of the scheduled job ``jid``, if that waits still."""
        for index, one in enumerate(self.waiting):
            if one.place == "schedule" and decode(one.payload).get("jid") == jid:
                self.waiting[index] = Waiting("schedule", *push)
                return True
        return False

    def open(self, io_timeout: float | None = None) -> Any:
        """What waits for a result listens on a connection of its own."""
        raise HenchmanError("a fake has no worker: this job has not run, or it kept no result; drain first")

    def _due(self, now: float) -> Any:
        """The payloads that were due first, and that moment as the time: what a punctual stager would get."""
        self._take(self._batches.let_go(self._batches.keys.needs.expired()))
        dues = [one.at for one in self.waiting if one.at is not None and one.at <= now]
        first = min(dues, default=now)
        found: dict[str, list[bytes]] = {"retry": [], "schedule": []}
        for one in self.waiting if dues else ():
            if one.at is not None and one.at <= first:
                found[one.place].append(one.payload)
        return [1, repr(first), found["retry"], found["schedule"], b"", 0, b"", b"0", b"", []]

    def _move(self, call: Call[Any]) -> Any:
        (_, source), args = script_arguments(call)
        place = "retry" if source == self._app.keys.retry else "schedule"
        statuses = []
        for i in range(2, len(args), 5):
            target, name, old, new = args[i : i + 4]
            which = next((one for one in self.waiting if one.place == place and one.payload == old), None)
            statuses.append(int(which is not None))
            if which is None or not isinstance(new, bytes):
                continue
            self.waiting.remove(which)
            if target == "dead" and not name:
                self.dead.append(Waiting("dead", which.queue, new, self._now()))
            elif target == "queue":
                self.waiting.append(Waiting("queue", str(name), new, None))
            self._take(self._batches.staged(args[i + 4]))
        return statuses

    def take(self, wanted: Callable[[str], bool], queue: str | None, ordered: dict[str, Any]) -> Unit | None:
        """The unit that is next to run: of a ``wanted`` class, of one queue if asked, or a claim of one of ``ordered``
        (definitions by queue). It waits no more."""
        with self._lock:
            for index, one in self._in_order():
                if one.place == "queue" and queue in (None, one.queue) and wanted(class_of(one.payload)):
                    del self.waiting[index]
                    return plain_unit(self._app, one.queue, self._batches.keys.started(one.payload))
            claimed = self.ordered.claim(ordered)
        return None if claimed is None else ordered_unit(self._app, *claimed)

    def _in_order(self) -> Iterable[tuple[int, Waiting]]:
        """What waits, with its place: as it came, and where jobs have priorities, by these."""
        if not self._app.registry.fair_queues():
            return enumerate(self.waiting)
        return sorted(enumerate(self.waiting), key=lambda pair: level_of(pair[1].payload))

    def put_back(self, unit: Unit) -> None:
        """``unit`` is next to run again."""
        with self._lock:
            if unit.source is not None:
                unit.claim.verdicts = unit.claim.all("release")
                self.ordered.settle(unit.flight.queue, unit.claim)
            else:
                self.waiting.insert(0, Waiting("queue", unit.flight.queue, unit.payload, None))

    def next_at(self, wanted: Callable[[str], bool], ordered: Collection[str] = ()) -> float | None:
        """When the next payload of a ``wanted`` class, or id of these ordered queues, is due; None when none waits."""
        with self._lock:
            times = [one.at for one in self.waiting if one.at is not None and wanted(class_of(one.payload))]
            times += self._batches.keys.needs.deadlines(lambda payload: wanted(class_of(payload)))
            return min([*times, *self.ordered.dues(ordered)], default=None)

    def settle(self, unit: Unit, outcome: Outcome) -> None:
        """Put a unit that has run where its outcome sends it, as ``settle.lua`` does."""
        with self._lock:
            if unit.source is not None:
                self.ordered.settle(unit.flight.queue, unit.claim)
                return
            queue, now = unit.flight.queue, self._now()
            self._iterations.settle(self._app.keys, unit.payload, outcome.ending)
            match outcome.ending:
                case "retry":
                    self.waiting.append(Waiting("retry", queue, outcome.stored, now + outcome.delay))
                case "snoozed":
                    self.waiting.append(Waiting("schedule", queue, outcome.stored, now + outcome.delay))
                case "interrupted":
                    self.waiting.append(Waiting("queue", queue, outcome.stored, None))
                case "dead" | "invalid":
                    self.dead.append(Waiting("dead", queue, outcome.stored, now))
                case "released":
                    self.put_back(unit)
                case "cancelled":
                    self.cancelled.discard(str(unit.job.get("jid")))
            self._take(self._batches.settle(unit, outcome))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            for held in (
                self.pushed,
                self.waiting,
                self.dead,
                self.cancelled,
                self._iterations,
                self._batches,
                self.ordered,
            ):
                held.clear()
