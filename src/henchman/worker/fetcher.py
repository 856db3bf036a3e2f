"""Brings work: as much as there are free slots for, and of short jobs a little ahead.

While there is work the fetcher takes it by script, many jobs at a time; when there is none, the watcher waits for the
next push. What the fetcher took and could not start within 50 ms, because every slot is busy after all, goes back in
order.

The fetcher sleeps until it is rung, and one rule says who rings: whoever changes the answer to "may I fetch, and is
there anything that nobody will announce?", after the change. A pool rings when its first slot gets free and when the
buffer has room, the acker when few enough outcomes wait, the session when the lease is valid again, the watcher when it
does not wait for a queue, a source when it has something, whoever unpauses, gives back, ends an isolation or renames
us. The fetcher clears its wish to look before it looks, never afterwards, so that what is said meanwhile counts.

Plain queues are asked by one script. Any other queue has a source, and the fetcher asks it only when it may have
something: it rang, or the time has come that it named. While nobody waits for its ring (every slot is busy, or there
are too many queues) the fetcher asks it now and then: else the queues that always have something would starve it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial

from henchman.client.runtime import Runtime
from henchman.config.capsules import Capsule
from henchman.errors import LeaseLost, ServerAway, ServerError
from henchman.kernel.clock import awake, capped_backoff
from henchman.kernel.scoreboard import Scoreboard
from henchman.kernel.threads import Service
from henchman.store import fair
from henchman.store.jobs import Fetched, LeaseLapsed, fetch
from henchman.work.outcome import Outcome
from henchman.work.source import Source
from henchman.work.unit import InFlightList, Unit
from henchman.worker.acker import Acker
from henchman.worker.claim import Room
from henchman.worker.loop import Loop
from henchman.worker.pool import Isolation, Pool
from henchman.worker.processor import Processor
from henchman.worker.run import Run
from henchman.worker.session import LeaseSession
from henchman.worker.watcher import Cancels, Watcher

__all__ = ["Doing", "Fetcher"]

_marks = itertools.count(1)  # places on the scoreboard, two a fetcher: its own thread's, the watcher's

AHEAD = 0.02  # seconds of work that may be fetched beyond the free slots
AHEAD_MOST = 500
LATE_RUNS = 1000  # at most, that wait for places of limits which others have here
AHEAD_BYTES = 8 << 20  # of payloads that a process may have fetched beyond its slots, all capsules together
PATIENCE = 0.05  # seconds that a fetched job may wait beside busy slots
TICK = 0.005
WATCHED = 5.0  # seconds between two looks at our own state while waits are open
UNWATCHED = 0.5  # seconds between two looks into the queues when no wait is open: too many of them, no connection yet
FRESH = 10.0  # seconds for which one answered fetch proves that work is taken
SURE = 30.0  # seconds after which a source is asked without a ring: a process may die after popping the wake marker
NOW_AND_THEN = 0.05  # seconds between two looks into a source for which nobody waits


class Doing(Enum):
    """What a fetcher is doing: of several for which there is a reason, the first."""

    RENEWING = "takes its lease again, a new name or fresh lists"
    WINDING_DOWN = "is quiet: gives back what has not started"
    ISOLATING = "lets a suspect run alone"
    GIVING_BACK = "gives back what no slot has taken in time"
    FULL = "waits for room"
    FETCHING = "asks the queues"
    RESTING = "waits until it is rung"


class Fetcher(Service):
    """Fills the slots of one capsule from its queues. ``doing``: what its thread does now.

    ``room()``: how many more jobs this process may take, where that is limited (``max_jobs``).
    """

    name = "fetcher"
    doing = Doing.RESTING
    _is_lapsed = False  # the server has said that our lease ran out
    _asked_as = ""  # the identity under which it asked last
    _full: frozenset[str] = frozenset()  # queues of which all that came last stands in line for its limits
    _drained: frozenset[str] = frozenset()  # queues of short jobs that the last fetch brought something of

    def __init__(
        self,
        runtime: Runtime,
        capsule: Capsule,
        processor: Processor,
        loop: Loop,
        *,
        session: LeaseSession,
        acker: Acker,
        cancels: Cancels,
        isolation: Isolation,
        watcher: Watcher,
        sources: Mapping[str, Source],
        board: Scoreboard,
        room: Callable[[], int] | None = None,
    ) -> None:
        super().__init__()
        self._runtime, self.capsule = runtime, capsule
        self._wake = session.bell()
        self.pool = Pool(capsule.concurrency, processor, loop, runtime.events, self._wake.set)
        self._session, self._acker, self._reader, self._cancels = session, acker, processor.reader, cancels
        self._isolation, self._watcher, self._board, self._room = isolation, watcher, board, room
        self._mark, self._watcher_mark, self._claims = next(_marks), next(_marks), processor.claims
        self._sources = {name: sources[name] for name in capsule.queues if name in sources}
        drawn = capsule.mode != "strict" and len(capsule.queues) > 1
        self._fixed = None if drawn else list(capsule.queues)
        self._is_scheduled = drawn and len(self._sources) > 1  # by the scheduler of their kind
        self._look_at = dict.fromkeys(self._sources, 0.0)  # time.monotonic() from which a source may have something
        self._asked = dict.fromkeys(self._sources, 0.0)
        self._passed_on: set[str] = set()
        self._ahead: dict[str, int] = {}
        self._left = Counter[str]()  # of a fair queue: jobs that have yet to be taken into lines
        self._hold_until = self._fetched = 0.0
        self.ahead_bytes = AHEAD_BYTES
        self._look = True  # the queues may hold something that nobody will announce
        self._buried: str | None = None
        self._want = self._failures = 0  # how many jobs to ask for; how often in a row the server was away
        self.quieted = threading.Event()
        self.paused = self.fair = frozenset[str]()
        watcher.serve(capsule.queues, self)

    # What other threads say

    def interrupt(self) -> None:
        self._wake.set()

    def quiet(self) -> None:
        """Fetch nothing more; what has not started goes back."""
        self.quieted.set()
        self.pool.close()
        self._watcher.disarm()
        self._wake.set()

    def look(self) -> None:
        """Look into every queue now: any may have something."""
        for queue in self._look_at:
            self._may_hold(queue)
        self.unwatched()

    def unwatched(self) -> None:
        """Nobody waits for pushes into a queue: look into the queues now."""
        self._look = True
        self._wake.set()

    def rang(self, queue: str) -> None:
        """A source has something (the watcher calls this, on its thread)."""
        self._may_hold(queue)
        self.unwatched()

    def buried(self, identity: str) -> None:
        """Another process declared this one dead under ``identity``: go on under a new name."""
        self._buried = identity
        self._wake.set()

    def takes_work(self) -> bool:
        """Whether a push would be taken: waited for, or looked for lately, or every slot is busy; not while quiet."""
        if self.quieted.is_set() or not self.alive:
            return False
        return self.pool.free == 0 or self._watched() or time.monotonic() - self._fetched < FRESH

    def may_arm(self, queue: str) -> bool:
        """Whether to wait for ``queue``: not while quiet or paused, not without a free slot."""
        if self.quieted.is_set() or self._isolation.waiting or queue in self.paused:
            return False
        if self._room is not None and self._room() <= 0:
            return False
        if queue in self.fair and (self._look or self.doing is Doing.FETCHING):  # its lines come first
            return False
        if queue in self._drained:  # it is asked again in a moment: a wait would bring its jobs one by one meanwhile
            self._look = True
            return False
        if self.pool.free <= 0:
            self._look = True  # the thread that frees a slot rings, and the fetcher looks into the queue then
        return self.pool.free > 0  # asked once more: a slot that got free before that line rang for nothing

    def delivered(self, units: list[Unit], backlog: bool) -> None:
        """Take what the watcher brought, on its thread."""
        queue = units[0].flight.queue
        beyond = self.pool.free - self.pool.waiting <= 0
        self.accept(units, queue, mark=self._watcher_mark, beyond=beyond)
        time.sleep(0)  # the interpreter lock goes to the job now, not when this thread next waits
        if self.pool.free <= 0:
            self.unwatched()
        elif backlog or queue in self.fair:  # what waits in lines, nobody announces
            self.look()
        elif self.pool.waiting:
            self._wake.set()  # the fetcher must see when the job that they wait behind is not short after all

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.doing = self._due()
                pause = _STEPS[self.doing](self)
                if self._failures and self.doing not in (Doing.RENEWING, Doing.GIVING_BACK):  # which something follows
                    self._failures = 0
                    self._runtime.events.emit("server_back", part="fetcher")
            except LeaseLost as error:
                pause = self._lost(error)
            except ServerError as error:
                if isinstance(error, ServerAway) and error.executed is None:
                    self._session.doubts += 1
                pause = self._away(error)
            except Exception as error:  # a defect of ours must not end the fetching for ever
                self._runtime.events.emit("part_failed", part=self.name, error=error)
                self._look, pause = True, 1.0
            self._wake.wait(pause)
            self._wake.clear()

    def _due(self) -> Doing:
        """What is to be done now."""
        if self._buried is not None or self._is_lapsed or self._session.doubts != self._session.settled_doubts:
            return Doing.RENEWING
        if self.quieted.is_set():
            return Doing.WINDING_DOWN
        if self._isolation.waiting:
            return Doing.ISOLATING
        if self._is_stuck():
            return Doing.GIVING_BACK
        self._want = self._wanted()
        if not self._want:
            return Doing.FULL
        return Doing.FETCHING if self._look or not self._watched() or not self._due_in() else Doing.RESTING

    def _isolate(self) -> float:
        """A suspect waits or runs: nothing else may start."""
        self.give_back()
        self._look = True
        return self._isolation.step()

    def _wait_for_room(self) -> float:
        """Nothing more may be fetched: whoever makes room rings."""
        self._look = True
        if self.pool.free <= 0:
            self._pass_on()
        return self._idle()

    def _away(self, error: BaseException) -> float:
        self._failures += 1
        self._runtime.events.emit("server_away", part="fetcher", error=error, failures=self._failures)
        self._look = True
        return capped_backoff(self._failures, most=2.0)

    def _lost(self, error: LeaseLost) -> float:
        """The lease lapsed, or we were buried: what follows is a step of its own, for the server may be away again."""
        if isinstance(error, LeaseLapsed):
            self._is_lapsed = True
        else:
            self._buried = self._asked_as
        self._look = True
        return 0.0

    def _renew_lists(self) -> float:
        """Take a lapsed lease again; a new name after a burial; fresh lists, when it is not known what ours hold."""
        self._asked_as = self._session.identity
        if self._is_lapsed:
            self._is_lapsed = False  # if that fails, the next fetch says so again
            self._session.renew()
        if self._buried is not None:
            self._rejoin(self._buried)
            self._buried, self._look = None, True
        if self._session.settle_doubts():
            self._look = True
        return 0.0

    def _rejoin(self, lost: str) -> None:
        """What was held as ``lost`` and had not started is another's now: drop it; take a new name, once for all."""
        back = self.pool.take_back()
        self._acker.places.forget([run.unit for run in back])
        self._session.held.difference_update([run.unit for run in back if run.unit.flight.identity == lost])
        self._release(self.pool.put([run for run in back if run.unit.flight.identity != lost]))
        if self._session.identity == lost:
            self._runtime.events.emit("lease_lost", identity=lost)
        self._session.join(lost)
        self._watcher.renew_identity()

    def _wind_down(self) -> float:
        """Quiet: everything that has not started goes back."""
        self._pass_on()
        for unit in reversed(self._isolation.give_up()):
            self._acker.submit(unit, Outcome("released"), unit.job)
        self.give_back()
        return 1.0

    def give_back(self) -> None:
        """Give back everything that has not started, before anything else is fetched: the order stays."""
        runs = self.pool.take_back()
        if runs:
            self._release(runs)
            self._acker.flush()
            self.unwatched()

    def _is_stuck(self) -> bool:
        since = self.pool.stuck_since()
        return since is not None and time.monotonic() - since > PATIENCE

    def _give_back_stuck(self) -> float:
        self._hold_until = time.monotonic() + 1.0
        self.give_back()
        return 0.0

    def _release(self, runs: Sequence[Run]) -> None:
        """Give runs back that were not started: the oldest last, so that it is next to run."""
        for run in reversed(runs):
            self._acker.submit(run.unit, Outcome("released"), run.unit.job)

    def _wanted(self) -> int:
        """How many jobs to ask for now."""
        waiting = self.pool.waiting + self.pool.late
        if self._acker.full or awake() >= self._session.valid_until:
            return 0
        free = self.pool.free - waiting
        if self._room is not None:
            return max(min(free, self._room()), 0)
        if free > 0:
            return free
        if self._ahead and waiting <= self.pool.low_water and time.monotonic() > self._hold_until:
            return int(self.pool.waiting_bytes() < self.ahead_bytes)
        return 0

    def _idle(self) -> float:
        """How long nothing needs to be looked at, if nobody rings."""
        if self.pool.waiting or self.pool.late:
            self.pool.tick()
            return TICK
        most = WATCHED if self._watched() else UNWATCHED
        return most if self.doing is Doing.FULL else min(most, self._due_in())

    def _watched(self) -> bool:
        """Whether a push rings: if not (too many queues, no connection yet) the queues are looked at now and then."""
        return self._watcher.watches(self.capsule.queues)

    def _may_hold(self, queue: str) -> None:
        """The source of ``queue`` may have something."""
        self._look_at[queue] = 0.0
        self._passed_on.discard(queue)

    def _due_in(self) -> float:
        """Seconds until a source that is not paused should be asked again; 0 when one should be now."""
        soonest = min([at for name, at in self._look_at.items() if name not in self.paused], default=None)
        return SURE if soonest is None else max(soonest - time.monotonic(), 0.0)

    def _pass_on(self) -> None:
        """There is no room here for what the sources may have: let another process look, once each."""
        now = time.monotonic()
        for queue, at in self._look_at.items():
            if at <= now and queue not in self._passed_on:
                self._passed_on.add(queue)
                try:
                    self._sources[queue].ring()
                except ServerError as error:  # a courtesy: it looks again itself when there is room
                    self._runtime.events.failed("fetcher", error)

    def _fetch(self) -> float:
        """Fetch once; when the queues had nothing, the watcher waits for the next push."""
        started, want = time.monotonic(), self._want
        ahead = {} if self._room is not None or started < self._hold_until else self._ahead
        if self._full:
            ahead = {name: most for name, most in ahead.items() if name not in self._full}
        self._look, drained = False, list[str]()
        current = self._session.current  # as one value: another capsule may change the epoch meanwhile
        self._asked_as = current[self.capsule.queues[0]].identity
        for names in _stretches(self._order(), {*self._sources, *self.fair} if self.fair else self._sources):
            for name, units in self._ask(names, want, ahead, current):
                want -= len(units)
                if (order := self._session.orders.get(current[name].key)) is not None:
                    order.fetched(units)
                self.accept(units, name)
                drained.append(name)
            if names[0] in self.fair:
                self._take_in(names[0])
            if want <= 0:
                break
        self._fetched, self._drained = started, frozenset(self._ahead.keys() & drained)
        if want < self._want:
            self._look = True
            return 0.0
        self.doing = Doing.RESTING
        self._watcher.arm()
        return self._idle()

    def _order(self) -> list[str]:
        """The queues to look at now, as the capsule draws them."""
        order = self._fixed or self.capsule.order()
        if self.paused:
            order = [name for name in order if name not in self.paused]
        return self._scheduled(order) if self._is_scheduled else order

    def _scheduled(self, order: list[str]) -> list[str]:
        """``order``, with the places of sources that may have something as their scheduler says."""
        places = [place for place, name in enumerate(order) if name in self._sources and self._may_have(name)]
        if len(places) > 1:
            names = [order[place] for place in places]
            for place, name in zip(places, self._sources[names[0]].order(names), strict=True):
                order[place] = name
        return order

    def _may_have(self, name: str) -> bool:
        """Whether the source should be asked now."""
        now = time.monotonic()
        return self._look_at[name] <= now or (
            now >= self._asked[name] + NOW_AND_THEN and not self._watcher.watches([name])
        )

    def _ask(
        self, names: Sequence[str], want: int, ahead: Mapping[str, int], current: Mapping[str, InFlightList]
    ) -> list[tuple[str, list[Unit]]]:
        """(queue, units) of what the plain queues ``names`` have, by one script; or of what one source has."""
        if names[0] in self._sources:
            return self._claim(names[0], want, ahead.get(names[0], 0), current[names[0]])
        session, identity, started = self._session, current[names[0]].identity, awake()
        asked = [(name, current[name].queue_key, current[name].key, ahead.get(name, 0)) for name in names]
        if names[0] in self.fair:
            fetched = self._by_turns(names[0], current[names[0]], want, ahead.get(names[0], 0))
        else:
            fetched = self._runtime.connections.run(fetch(self._runtime.keys, identity, asked, want, session.lease_ms))
        session.valid_until = max(session.valid_until, started + session.lease)
        self._cancels.catch_up(fetched.cancels)
        now = time.monotonic()  # units are a hair apart, so that what goes back keeps its order
        return [
            (name, [Unit(one, current[name], now + place * 1e-7) for place, one in enumerate(payloads)])
            for name, payloads in zip(names, fetched.payloads, strict=True)
            if payloads
        ]

    def _by_turns(self, name: str, lists: InFlightList, want: int, extra: int) -> Fetched:
        """What the fair queue ``name`` has."""
        call = fair.fetch(
            *(self._runtime.keys, lists.identity, name, lists.key),
            count=want,
            extra=extra,
            lease_ms=self._session.lease_ms,
        )
        found = self._runtime.connections.run(call)
        self._left[name] = found.left
        return Fetched(found.cancels, [found.payloads])

    def _take_in(self, name: str) -> None:
        """Take all that was pushed into a fair queue into its lines: only who stands there has turns. Not while slots
        wait for a fetch, which does a thousand too."""
        while self._left[name] and not self.stopping.is_set() and self.pool.free - self.pool.waiting <= 0:
            self._left[name] = self._runtime.connections.run(fair.take_in(self._runtime.keys, name))

    def _claim(self, name: str, want: int, extra: int, lists: InFlightList) -> list[tuple[str, list[Unit]]]:
        """What the source ``name`` has, if it may have anything."""
        if not self._may_have(name):
            return []
        self._asked[name] = time.monotonic()
        self._look_at[name] = time.monotonic() + SURE  # before asking: what rings from here on counts
        self._passed_on.discard(name)
        started = awake()
        try:
            units, look_in = self._sources[name].fetch(lists, want, extra)
        except BaseException:
            self._look_at[name] = 0.0
            raise
        self._session.valid_until = max(self._session.valid_until, started + self._session.lease)
        if look_in is not None:
            self._look_at[name] = min(self._look_at[name], time.monotonic() + look_in)
        return [(name, units)] if units else []

    def accept(self, units: Sequence[Unit], queue: str, *, beyond: bool = False, mark: int | None = None) -> None:
        """Read units and put them to work; what cannot run is settled at once. ``beyond``: there is no slot for them,
        so they go back if they are not short. ``mark``: where this thread marks on the scoreboard what it reads."""
        self._session.held.update(units)
        runs = self._runs(units, self._mark if mark is None else mark)
        if runs:
            cost = sum([AHEAD if run.compiled.cost is None else run.compiled.cost for run in runs])
            self._ahead[queue] = min(AHEAD_MOST, int(AHEAD * len(runs) / cost)) if cost else AHEAD_MOST
            if self._ahead[queue] < 2:
                self._ahead.pop(queue, None)
            self.pool.low_water = max(list(self._ahead.values()), default=0) // 2
        if self._cancels.paused:
            runs = self._claims.not_paused(runs)
        unwanted = self.quieted.is_set() or queue in self.paused or self._isolation.waiting
        if unwanted or (beyond and queue not in self._ahead):
            self._release(runs)
        else:  # what the pool does not take any more goes back
            self._release(self.pool.put(self._claimed(runs, queue, mark) if self._reader.keyed else runs))

    def _claimed(self, runs: Sequence[Run], queue: str, mark: int | None) -> list[Run]:
        """Those of ``runs`` that may start. While their jobs are short, more may wait for places that these have."""
        is_short = queue in self._ahead and self._room is None and time.monotonic() > self._hold_until
        most = LATE_RUNS - self.pool.late if is_short and not self._cancels.suspects else 0
        read = partial(self._runs, mark=self._mark if mark is None else mark)
        starting = self._claims.claimed(runs, Room(self.pool.keep, max(most, 0), read))
        stand_in_line = most > 0 and not any(run.unit in self._session.held for run in runs)
        self._full = self._full | {queue} if stand_in_line else self._full - {queue}
        return starting

    def _runs(self, units: Sequence[Unit], mark: int) -> list[Run]:
        """What of ``units`` can run now. A suspect is not even read beside others."""
        runs, cancels = [], self._cancels
        for unit in units:
            read = self._reader.read if not unit.suspect and not cancels.suspects else self._read_beside_others
            if (run := read(unit, mark)) is not None:
                runs.append(run)
        self._board.mark(mark, b"")
        return runs

    def _read_beside_others(self, unit: Unit, mark: int) -> Run | None:
        """The run of ``unit``, where there are suspects: one of them waits until it is alone."""
        suspects = self._cancels.suspects
        if unit.suspect or self._cancels.suspected(unit.payload):
            self._isolation.add(unit, self._start_alone)
            return None
        run = self._reader.read(unit, mark)
        if run is not None and run.jid in suspects:  # its id stands there in another spelling
            self._isolation.add(unit, self._start_alone)
            return None
        return run

    def _start_alone(self, unit: Unit) -> None:
        """Read a suspect and start it."""
        run = self._reader.read(unit, self._mark)
        self._board.mark(self._mark, b"")
        self._release(self.pool.put(self._claims.alone(run) if run is not None else []))


# Each does what its state says, and returns the seconds until the next look.
_STEPS: dict[Doing, Callable[[Fetcher], float]] = {
    Doing.RENEWING: Fetcher._renew_lists,
    Doing.WINDING_DOWN: Fetcher._wind_down,
    Doing.ISOLATING: Fetcher._isolate,
    Doing.GIVING_BACK: Fetcher._give_back_stuck,
    Doing.FULL: Fetcher._wait_for_room,
    Doing.FETCHING: Fetcher._fetch,
    Doing.RESTING: Fetcher._idle,
}


def _stretches(order: Sequence[str], alone: Collection[str]) -> Iterator[list[str]]:
    """Plain queues that stand beside each other together, each of those ``alone`` by itself; the order stays."""
    for is_alone, stretch in itertools.groupby(order, alone.__contains__):
        names = list(stretch)
        yield from ([name] for name in names) if is_alone else [names]
