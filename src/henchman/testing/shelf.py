"""A server in memory, as far as pushing and staging go: it answers calls by their name and refuses all others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from henchman.store.call import Call
from henchman.store.keys import Keys
from henchman.testing.iterations import Iterations
from henchman.testing.ordered_shelf import OrderedShelf, is_ordered_push
from henchman.testing.pushes import NotFaked, Push, arguments, name_and_jid, pushes
from henchman.work.outcome import Outcome

__all__ = ["FakeRunner", "Waiting"]

T = TypeVar("T")


class Waiting(NamedTuple):
    """One payload that waits. ``place``: "queue", "schedule", "retry" or "dead"; ``at`` when it is due, or died."""

    place: str
    queue: str
    payload: bytes
    at: float | None


class FakeRunner:
    """Answers calls in place of a server. ``pushed`` is every push, ``waiting`` what has not come to its end."""

    def __init__(self, keys: Callable[[], Keys], now: Callable[[], float]) -> None:
        self.pushed: list[Push] = []
        self.waiting: list[Waiting] = []
        self.dead: list[Waiting] = []
        self.cancelled: set[str] = set()
        self.ordered = OrderedShelf(now)
        self._iterations = Iterations()
        self._keys = keys
        self._now = now
        self._lock = threading.RLock()

    def run(self, call: Call[T]) -> T:
        """The answer of a server; NotFaked when only a real one has it."""
        with self._lock:
            if is_ordered_push(call):
                return call.decode(self.ordered.push(call))
            found = pushes(call, self._keys(), self._now())
            reply = self._push(found) if found is not None else self._answer(call)
        return call.decode(reply)

    def _push(self, found: list[Push]) -> Any:
        self.pushed += found
        for queue, payload, at in found:
            self.waiting.append(Waiting("queue" if at is None else "schedule", queue, payload, at))
        return len(found)

    def _answer(self, call: Call[Any]) -> Any:
        if call.script is not None and call.name == "cancel":
            self.cancelled.add(str(arguments(call)[1][0]))
            self._iterations.cancel(call)
            return 0
        if call.script is not None and call.name == "due":
            return self._due()
        if call.script is not None and call.name == "move":
            return self._move(call)
        if self._iterations.knows(call, self._keys()):
            return self._iterations.answer(call)
        raise NotFaked(call, "fake")

    def _due(self) -> Any:
        """What was due first, and that moment as the time: as a stager in time would have found it."""
        scores = [one.at for one in self.waiting if one.at is not None and one.at <= self._now()]
        if not scores:
            return [1, repr(self._now()), [], [], b"", 0, b"0"]
        first = min(scores)
        found: dict[str, list[bytes]] = {"retry": [], "schedule": []}
        for one in self.waiting:
            if one.at is not None and one.at <= first:
                found[one.place].append(one.payload)
        return [1, repr(first), found["retry"], found["schedule"], b"", 0, b"0"]

    def _move(self, call: Call[Any]) -> Any:
        (source, *_), args = arguments(call)
        place = "retry" if source == self._keys().retry else "schedule"
        statuses = []
        for i in range(3, len(args), 5):
            target, queue, old, new = args[i : i + 4]
            which = next((one for one in self.waiting if one.place == place and one.payload == old), None)
            statuses.append(int(which is not None))
            if which is None or not isinstance(new, bytes):
                continue
            self.waiting.remove(which)
            if target == 0:
                self.dead.append(Waiting("dead", which.queue, new, self._now()))
            elif int(target) > 0:
                self.waiting.append(Waiting("queue", str(queue), new, None))
        return statuses

    def take(self, wanted: Callable[[str], bool], queue: str | None = None) -> Waiting | None:
        """The payload that is next to run, of a ``wanted`` class, of one queue if asked; it waits no more."""
        with self._lock:
            for index, one in enumerate(self.waiting):
                fits = one.place == "queue" and (queue is None or one.queue == queue)
                if fits and wanted(name_and_jid(one.payload)[0]):
                    return self.waiting.pop(index)
        return None

    def put_back(self, one: Waiting) -> None:
        """``one`` is next to run again."""
        with self._lock:
            self.waiting.insert(0, one)

    def next_at(self, wanted: Callable[[str], bool]) -> float | None:
        """When the next payload of a ``wanted`` class is due; None when none waits for its time."""
        with self._lock:
            times = [one.at for one in self.waiting if one.at is not None and wanted(name_and_jid(one.payload)[0])]
        return min(times, default=None)

    def settle(self, one: Waiting, outcome: Outcome) -> None:
        """Put the payload that has run where its outcome sends it, as ``settle.lua`` does."""
        with self._lock:
            ending, due = outcome.ending, self._now() + outcome.delay
            self._iterations.settle(self._keys(), one.payload, ending)
            if ending in ("retry", "snoozed"):
                place = "retry" if ending == "retry" else "schedule"
                self.waiting.append(Waiting(place, one.queue, outcome.stored, due))
            elif ending in ("dead", "invalid"):
                self.dead.append(Waiting("dead", one.queue, outcome.stored, self._now()))
            elif ending == "interrupted":
                self.waiting.append(one._replace(payload=outcome.stored))
            elif ending == "released":
                self.put_back(one)
            elif ending == "cancelled":
                self.cancelled.discard(name_and_jid(one.payload)[1])

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            for held in (self.pushed, self.waiting, self.dead, self.cancelled, self._iterations, self.ordered):
                held.clear()
