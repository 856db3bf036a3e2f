"""Who carries operations out: each is done by one at a time, in slices of a hundred jobs; who dies leaves what the next
one that looks goes on with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import count as numbers
from typing import Final

from henchman.client.runtime import Runtime
from henchman.errors import HenchmanError, ServerAway
from henchman.inspector.base import Entry
from henchman.inspector.due import spread_time
from henchman.inspector.operations import Matches, Operation, Wish, operation, sources
from henchman.inspector.queues import Queue
from henchman.inspector.sets import JobSet
from henchman.kernel.text import described
from henchman.kernel.threads import beside
from henchman.store import fair
from henchman.store import operations as store
from henchman.store.call import Procedure, run
from henchman.store.jobs import MOST_BYTES, Move
from henchman.store.leases import Leader
from henchman.wire import jsontext, payload
from henchman.work.effects import EndingFacts, encoded, of_payload

__all__ = ["SLICE", "Carrier", "OperationWork", "Operator", "Steps", "carry_out"]

SLICE: Final = 100  # jobs
_BACK: Final = 50  # jobs that one call puts back
_LOOK: Final = 5.0  # seconds after which a look for open operations is worth another
_PATIENCE: Final = 60  # looks in a row that fail before the thread ends
#: what carries an operation out: gives the seconds to wait after each slice
Steps = Generator[float, None, None]
#: by place, what carries operations there out in a way of its own: of the work
Carrier = Callable[["OperationWork"], Steps]
_PLAIN: Final[Mapping[str, Carrier]] = {}


def carry_out(runtime: Runtime, number: str, carriers: Mapping[str, Carrier] = _PLAIN) -> bool:
    """Carry an operation out here; False: another does."""
    steps, began = _steps(runtime, number, carriers), False
    for pause in steps:
        began = True
        time.sleep(pause)
    return began


def _steps(runtime: Runtime, number: str, carriers: Mapping[str, Carrier]) -> Steps:
    """One operation, slice by slice, as long as it is open and nobody else does it."""
    leader = Leader(runtime.keys.doer(number), store.DOER_MS)
    leader.contend(runtime.connections)
    if not leader.leads:
        return
    try:
        one = run(runtime.connections, operation(runtime.keys, number))
        if one is None or not one.works:
            runtime.connections.run(store.turn(runtime.keys, number, "failed", ("running", "undoing"), "unreadable"))
            return
        yield 0.0
        work = OperationWork(runtime, one, leader)
        carry = carriers.get(one.wish.place, OperationWork.do)
        yield from work.undo() if one.state == "undoing" else carry(work)
    except (ServerAway, GeneratorExit):
        raise
    except Exception as error:  # of this operation alone: it is said there, and the others go on
        text = described(error)
        runtime.connections.run(store.turn(runtime.keys, number, "failed", ("running", "undoing"), text[:300]))
    finally:
        leader.resign(runtime.connections, runtime.events, "operations")


class OperationWork:
    """One operation in the hands of one doer."""

    def __init__(self, runtime: Runtime, one: Operation, leader: Leader) -> None:
        self.runtime, self.one, self._leader = runtime, one, leader
        self._slices = numbers()
        self._began, self._done = time.monotonic(), 0

    @property
    def identity(self) -> str:
        """Who does it."""
        return self._leader.identity

    def begin(self) -> None:
        """It is gone through from the beginning on."""
        self.runtime.connections.run(store.begun(self.runtime.keys, self.one.number))
        self._began, self._done = time.monotonic(), 0

    def pause(self, many: int) -> float:
        """The seconds to wait after so many jobs more, so that its rate is kept."""
        self._done += many
        rate = self.one.wish.rate
        return max(self._began + self._done / rate - time.monotonic(), 0.0) if rate else 0.0

    @property
    def most(self) -> int:
        """Jobs of a slice."""
        rate = self.one.wish.rate
        return min(SLICE, max(int(rate), 1)) if rate else SLICE

    def do(self) -> Steps:
        """What it is about, from the beginning on: what was done is not there any more."""
        stays: list[str] = []
        self.begin()
        wish = self.one.wish
        for source in sources(self.runtime, wish):
            if not (yield from self.through(source, stays)):
                return
        if wish.place == "queues":
            run(self.runtime.connections, fair.tidy(self.runtime.keys, wish.name))
        self.end("running", "done", f"{len(stays)} could not be read or written: {stays[0]}" if stays else "")

    def through(self, source: Matches, stays: list[str]) -> Generator[float, None, bool]:
        """All of one source; False: it is not to go on. ``stays``: why some could not be read or written."""
        for some in _slices(source.entries, self.most):
            if self._slice(source, some, self.one.wish, stays) != "running":
                return False
            yield self.pause(len(some))
        return True

    def undo(self) -> Steps:
        """Put back what lies in the trash, what was moved last first; into a queue so that its order is as before."""
        first = self.one.wish.place == "queues"
        while True:
            keys, number = self.runtime.keys, self.one.number
            call = store.back(keys, number, self.identity, self.name(), _BACK, first=first)
            answer = self.runtime.connections.run(call)
            if answer.state == "LOST" and self.again():
                continue
            if answer.state != "undoing":
                return
            if not answer.left:
                return self.end("undoing", "undone", "")
            yield 0.0

    def _slice(self, source: Matches, some: list[Entry], wish: Wish, stays: list[str]) -> str:
        moves, why = run(self.runtime.connections, _moves(self.runtime, source, some, wish))
        stays += why
        config, keys, queue = self.runtime.config, self.runtime.keys, ""
        key = source.jobs.key if isinstance(source.jobs, JobSet) else keys.queue(queue := source.jobs.name)
        name = self.name()
        while True:
            call = store.operate(
                keys,
                self.one.number,
                self.identity,
                name,
                key,
                moves,
                looked=len(some),
                dead_max=config.dead_max,
                dead_timeout=config.dead_timeout,
                queue=queue,
            )
            state = self.runtime.connections.run(call)
            if state != "LOST" or not self.again():
                return state

    def name(self) -> str:
        return f"{self.identity}:{next(self._slices)}"

    def again(self) -> bool:
        """Whether it is ours again after so long a silence that another might have taken it."""
        self._leader.contend(self.runtime.connections)
        return self._leader.leads

    def end(self, state: str, target: str, text: str) -> None:
        self.runtime.connections.run(store.turn(self.runtime.keys, self.one.number, target, (state,), text))


def _slices(entries: Iterator[Entry], most: int) -> Iterator[list[Entry]]:
    """So many at a time, or as many as have 4 MB."""
    some, size = list[Entry](), 0
    for one in entries:
        some.append(one)
        size += 2 * len(one.payload)
        if len(some) == most or size >= MOST_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _moves(
    runtime: Runtime, source: Matches, some: Iterable[Entry], wish: Wish
) -> Procedure[tuple[list[Move], list[str]]]:
    if wish.act == "move":
        return _into(wish.into, some)
    if isinstance(source.jobs, Queue):
        effects = ((one, of_payload(runtime.keys, one.payload, "deleted")) for one in some)
        return [Move(one.payload, delete=True, effects=told) for one, told in effects], []
    if wish.act == "cancel":
        ends = EndingFacts(detail={"reason": "its batch was cancelled"})
        told = ((one, encoded(runtime.keys, dict(one.job), "cancelled", ends)) for one in some)
        return [Move(one.payload, delete=True, effects=effects) for one, effects in told], []
    if wish.act == "reschedule":
        return [Move(one.payload, _without_delay(one.payload), at=wish.to) for one in some], []
    if wish.act == "spread":
        spread = ((one, spread_time(one, wish.to or 0.0, wish.over)) for one in some)
        return [Move(one.payload, _without_delay(one.payload), at=at) for one, at in spread], []
    return (yield from source.jobs.prepare(some, wish.act))


def _into(queue: str, some: Iterable[Entry]) -> tuple[list[Move], list[str]]:
    """Into another queue: all of a payload but its queue stays as it is; what cannot be read stays where it is."""
    moves, why, name = list[Move](), list[str](), jsontext.encode(queue)
    for one in some:
        if one.problem:
            why.append(one.problem)
        else:
            moves.append(Move(one.payload, payload.with_field(one.payload, "queue", name), queue=queue, next=True))
    return moves, why


def _without_delay(stored: bytes) -> bytes:
    """A delay becomes a time: with its note it would move along when the server's clock steps."""
    return stored if payload.delay_of(stored) is None else payload.with_delay(stored, None)


class Operator:
    """A thread of this process that carries open operations out, as long as there are any: all of them beside each
    other, slice by slice. ``wake`` begins it, at most every few seconds; whoever shows pages calls that."""

    def __init__(self, runtime: Runtime, carriers: Mapping[str, Carrier] = _PLAIN) -> None:
        self._runtime = runtime
        self._carriers = carriers
        self._lock = threading.Lock()
        self._busy = self._more = False
        self._looked = time.monotonic()

    def wake(self, *, now: bool = False) -> None:
        """Look for open operations soon; ``now``: there is one."""
        with self._lock:
            self._more = self._busy and (self._more or now)
            if self._busy or not (now or time.monotonic() - self._looked > _LOOK):
                return
            self._busy, self._looked = True, time.monotonic()
        beside(self._run, "henchman-operations")

    def _run(self) -> None:
        working: dict[str, tuple[Steps, float]] = {}
        failures = 0
        try:
            while failures < _PATIENCE:
                try:
                    for number in self._runtime.connections.run(store.still_open(self._runtime.keys)):
                        working.setdefault(number, (_steps(self._runtime, number, self._carriers), 0.0))
                    if not working and self._is_over():
                        return
                    self._turn(working)
                    failures = 0
                except HenchmanError:  # the server is away: what was begun is begun anew by whoever comes first
                    working.clear()
                    failures += 1
                    time.sleep(1.0)
        finally:
            with self._lock:
                self._busy = False

    def _is_over(self) -> bool:
        """Whether nobody has said since the last look that there is one."""
        with self._lock:
            self._busy, self._more = self._more, False
            return not self._busy

    def _turn(self, working: dict[str, tuple[Steps, float]]) -> None:
        """A slice of each that is due, for a second; one that another does is asked for again in the next."""
        until, others = time.monotonic() + 1.0, set[str]()
        while working and time.monotonic() < until:
            for number, (steps, due) in list(working.items()):
                if time.monotonic() < due:
                    continue
                pause = next(steps, None)
                if pause is None:
                    del working[number]
                    others.add(number)
                else:
                    working[number] = (steps, time.monotonic() + pause)
            time.sleep(max(min((due for _, due in working.values()), default=0.0) - time.monotonic(), 0.0))
        if others and not working:
            time.sleep(0.2)  # open, and another's
