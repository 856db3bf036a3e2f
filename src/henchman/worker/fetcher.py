"""Brings work: as much as there are free slots for, and of short jobs a little ahead.

While there is work it is fetched by script, many at a time; when there is none, the watcher waits for the next push.
What was fetched and could not start within 50 ms, because every slot is busy after all, goes back in order.

The fetcher sleeps until it is rung, and one rule says who rings: whoever changes the answer to "may I fetch, and is
there anything that nobody will announce?", after the change. A pool rings when its first slot gets free and when the
buffer has room, the acker when few enough outcomes wait, the lease when it is valid again, the watcher when it does
not wait for a queue, a source when it has something, whoever unpauses, gives back, ends an isolation or renames us.
The fetcher clears its wish to look before it looks, never afterwards, so that what is said meanwhile counts.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from henchman.errors import LeaseLost, ServerAway, ServerError
from henchman.kernel.clock import awake, capped_backoff
from henchman.kernel.service import Service
from henchman.store.jobs import LeaseLapsed, fetch
from henchman.work.outcome import Outcome
from henchman.work.source import Source
from henchman.work.unit import InFlightList, Unit
from henchman.worker.capsule import Capsule
from henchman.worker.control import Cancels
from henchman.worker.host import Host
from henchman.worker.pool import Pool
from henchman.worker.run import Run
from henchman.worker.session import LeaseSession
from henchman.worker.shared import Shared
from henchman.worker.watcher import Watcher

__all__ = ["Fetcher", "Gather"]

_marks = itertools.count(1)  # places on the board, two a fetcher: its own thread's, the watcher's

AHEAD = 0.02  # seconds of work that may be fetched beyond the free slots
AHEAD_MOST = 500
AHEAD_BYTES = 8 << 20  # of payloads that a process may have fetched beyond its slots, all capsules together
PATIENCE = 0.05  # seconds that a fetched job may wait beside busy slots
TICK = 0.005
WATCHED = 5.0  # seconds between two looks at our own state while waits are open
UNWATCHED = 0.5  # seconds between two looks into the queues when no wait is open: too many of them, no connection yet
FRESH = 10.0  # seconds for which one answered fetch proves that work is taken


class Fetcher(Service):
    """Manager one pool from one capsule's queues."""

    name = "fetcher"

    def __init__(self, shared: Shared, capsule: Capsule, pool: Pool) -> None:
        super().__init__()
        self._host, self._session, self._acker, self._intake, self._cancels, self._isolation, *_ = shared
        sources, self._board = shared.sources, shared.board
        self._mark, self._watcher_mark = next(_marks), next(_marks)
        self._gather = Gather(self._host, self._session, self._cancels, sources, capsule)
        self._capsule = capsule
        self._pool = self.pool = pool
        self._wake = threading.Event()
        self._ahead: dict[str, int] = {}
        self._hold_until = 0.0
        self.ahead_bytes = AHEAD_BYTES
        self._look = True  # the queues may hold something that nobody will announce
        self._unknown = False
        self._fetched = 0.0
        self._buried: str | None = None
        self._failures = 0
        self.quieted = threading.Event()
        self.paused: frozenset[str] = frozenset()
        self.watcher: Watcher | None = None
        self._gather.waits_for = lambda queue: self.watcher is not None and self.watcher.waits_for(queue)
        pool.on_room = self.ring
        self._acker.on_unknown = self.unknown  # any of them will do: the epoch is the whole process's

    def interrupt(self) -> None:
        self._wake.set()

    def quiet(self) -> None:
        """Fetch nothing more; what has not started goes back."""
        self.quieted.set()
        if self.watcher is not None:
            self.watcher.disarm()
        self._wake.set()

    def ring(self) -> None:
        """What may be fetched has changed: a slot is free, outcomes were committed, the lease is valid again."""
        self._wake.set()

    def look(self) -> None:
        """Look into the queues now."""
        self._gather.look_all()
        self.unwatched()

    def unwatched(self) -> None:
        """Nobody waits for pushes into a queue: look into the queues now."""
        self._look = True
        self._wake.set()

    def rang(self, queue: str) -> None:
        """Something was put into a queue that is no plain list (the watcher tells, on its thread)."""
        self._gather.rang(queue)
        self._look = True
        self._wake.set()

    def unknown(self) -> None:
        """It is not known what a wait or fetch brought: go on with fresh lists."""
        self._unknown = True
        self._wake.set()

    def buried(self, identity: str) -> None:
        """Somebody declared this process dead under ``identity``: go on under a new name."""
        self._buried = identity
        self._wake.set()

    def takes_work(self) -> bool:
        """Whether a push would be taken: waited for, or looked for lately, or every slot is busy; not while quiet."""
        if self.quieted.is_set() or not self.alive:
            return False
        return self._pool.free == 0 or self._watched() or time.monotonic() - self._fetched < FRESH

    def may_arm(self, queue: str) -> bool:
        """Whether to wait for ``queue``: not while quiet or paused, not without a free slot."""
        if self.quieted.is_set() or self._isolation.pending or queue in self.paused:
            return False
        if self._pool.free <= 0:
            self._look = True  # whoever frees a slot rings, and the queue is looked into then
        return self._pool.free > 0  # asked once more: a slot that got free before that line rang for nothing

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                pause = self._step()
                if self._failures:
                    self._failures = 0
                    self._host.events.emit("server_back", part="fetcher")
            except LeaseLost as error:
                pause = self._lost(error)
            except ServerAway as error:
                self._unknown = self._unknown or error.executed is None
                pause = self._away(error)
            except ServerError as error:
                pause = self._away(error)
            except Exception as error:  # a defect of ours must not end the fetching for ever
                self._host.events.emit("part_failed", part=self.name, error=error)
                self._look, pause = True, 1.0
            self._wake.wait(pause)
            self._wake.clear()

    def _away(self, error: BaseException) -> float:
        self._failures += 1
        self._host.events.emit("server_away", part="fetcher", error=error, failures=self._failures)
        self._look = True
        return capped_backoff(self._failures, most=2.0)

    def _lost(self, error: LeaseLost) -> float:
        """Renew what merely lapsed; when we were buried, drop what has not started and go on under a new name."""
        if isinstance(error, LeaseLapsed):
            self._session.renew()
        else:
            self._buried = self._gather.asked_as
        self._look = True
        return 0.0

    def _rejoin(self, lost: str) -> None:
        """What was held as ``lost`` and had not started is another's now: drop it; take a new name, once for all."""
        ours = []
        for run in self._pool.take_back():
            if run.unit.flight.identity == lost:
                self._session.held.discard(run.unit)
            else:
                ours.append(run)
        self._pool.put(ours)
        if self._session.identity == lost:
            self._host.events.emit("lease_lost", identity=lost)
        self._session.join(lost)
        if self.watcher is not None:
            self.watcher.renew_identity()

    def _step(self) -> float:
        """Do what is to be done now; the seconds until the next look."""
        if self._buried is not None:
            self._rejoin(self._buried)
            self._buried, self._look = None, True
        if self._unknown:
            self._session.raise_epoch()
            self._unknown, self._look = False, True
        if self.quieted.is_set():
            self._gather.pass_on()
            for unit in reversed(self._isolation.give_up()):
                self._settle(unit, Outcome("released"))
            self.give_back()
            return 1.0
        if self._isolation.pending:
            self.give_back()
            self._look = True
            return self._isolation.step()
        self._give_back_stuck()
        want = self._wanted()
        if not want:
            self._look = True
            self._gather.pass_on()
            return self._idle(full=True)
        if self._look or not self._watched() or not self._gather.due_in(self.paused):
            return 0.0 if self._fetch(want) else self._idle()
        return self._idle()

    def _wanted(self) -> int:
        """How many jobs to ask for now."""
        waiting = self._pool.waiting
        if self._acker.full or self._session.valid_for() <= 0:
            return 0
        free = self._pool.free - waiting
        if free > 0:
            return free
        if self._ahead and waiting <= self._pool.low_water and time.monotonic() > self._hold_until:
            return int(self._pool.waiting_bytes() < self.ahead_bytes)
        return 0

    def _fetch(self, want: int) -> bool:
        """Fetch once; False when the queues had nothing (then the watcher waits for the next push)."""
        hold = time.monotonic() < self._hold_until
        started = time.monotonic()
        self._look = found = False
        for name, units in self._gather.fetch(want, lambda one: 0 if hold else self._ahead.get(one, 0), self.paused):
            found = True
            self.accept(units, name)
        self._fetched = started
        if found:
            self._look = True
        elif self.watcher is not None:
            self.watcher.arm()
        return found

    def accept(self, units: Sequence[Unit], queue: str, *, beyond: bool = False, place: int | None = None) -> None:
        """Read units and put them to work; what cannot run is settled at once. ``beyond``: there is no slot for them,
        so they go back if they are not short. ``place``: where this thread marks what it reads."""
        self._session.held.update(units)
        runs = self._runs(units, self._mark if place is None else place)
        if runs:
            cost = sum([AHEAD if run.compiled.cost is None else run.compiled.cost for run in runs])
            self._ahead[queue] = min(AHEAD_MOST, int(AHEAD * len(runs) / cost)) if cost else AHEAD_MOST
            if self._ahead[queue] < 2:
                self._ahead.pop(queue, None)
            self._pool.low_water = max(list(self._ahead.values()), default=0) // 2
        unwanted = self.quieted.is_set() or queue in self.paused or self._isolation.pending
        if unwanted or (beyond and queue not in self._ahead):
            self._release(runs)
        else:
            self._pool.put(runs)

    def _runs(self, units: Sequence[Unit], place: int) -> list[Run]:
        """What of ``units`` can run now. A suspect is not even read beside others; what is read is marked on the board,
        so that the supervisor knows whose fault it is when that ends the process."""
        runs, cancels, mark = [], self._cancels, self._board.mark
        for unit in units:
            if unit.suspect or (cancels.suspects and cancels.suspected(unit.payload)):
                self._isolation.add(self, unit)
                continue
            mark(place, unit.payload)
            read = self._read(unit)
            if not isinstance(read, Run):
                self._settle(unit, read)
            elif cancels.suspects and read.jid in cancels.suspects:  # its id stands there in another spelling
                self._isolation.add(self, unit)
            else:
                runs.append(read)
        mark(place, b"")
        return runs

    def start_alone(self, unit: Unit) -> None:
        """Read a suspect and start it; what cannot run is settled."""
        self._pool.put(self._runs_alone(unit))

    def _runs_alone(self, unit: Unit) -> list[Run]:
        self._board.mark(self._mark, unit.payload)
        read = self._read(unit)
        runs = [read] if isinstance(read, Run) else []
        if not isinstance(read, Run):
            self._settle(unit, read)
        self._board.mark(self._mark, b"")
        return runs

    def _read(self, unit: Unit) -> Run | Outcome:
        try:
            return self._intake.read(unit)
        except BaseException as error:  # of a type's own code, a SystemExit too: it is one unit's failure
            outcome = self._intake.unreadable(unit, error)
            self._host.events.emit("part_failed", part="intake", error=error, secrets=self._intake.secrets(unit))
            return outcome

    def delivered(self, units: list[Unit], backlog: bool) -> None:
        """What the watcher brought, on its thread."""
        queue = units[0].flight.queue
        beyond = self._pool.free - self._pool.waiting <= 0
        self.accept(units, queue, beyond=beyond, place=self._watcher_mark)
        time.sleep(0)  # the interpreter lock goes to the job now, not when this thread next waits
        if self._pool.free <= 0:
            self.unwatched()
        elif backlog:
            self.look()
        elif self._pool.waiting:
            self._wake.set()  # somebody has to see when the job that they wait behind is not short after all

    def _settle(self, unit: Unit, outcome: Outcome) -> None:
        self._acker.submit(unit, outcome, unit.job)

    def _release(self, runs: Sequence[Run]) -> None:
        """Give runs back that were not started: the oldest last, so that it is next to run."""
        for run in reversed(runs):
            self._acker.submit(run.unit, Outcome("released"), run.job)

    def give_back(self) -> None:
        """Give back everything that has not started, before anything else is fetched: the order stays."""
        runs = self._pool.take_back()
        if runs:
            self._release(runs)
            self._acker.flush()
            self.unwatched()

    def _give_back_stuck(self) -> None:
        since = self._pool.stuck_since()
        if since is not None and time.monotonic() - since > PATIENCE:
            self._hold_until = time.monotonic() + 1.0
            self.give_back()

    def _idle(self, *, full: bool = False) -> float:
        """How long nothing needs to be looked at, if nobody rings; ``full``: not before there is room."""
        if self._pool.waiting:
            self._pool.tick()
            return TICK
        most = WATCHED if self._watched() else UNWATCHED
        return most if full else min(most, self._gather.due_in(self.paused))

    def _watched(self) -> bool:
        """Whether a push rings: if not (too many queues, no connection yet) the queues are looked at now and then."""
        return self.watcher is not None and self.watcher.watches(self._capsule.queues)


SURE = 30.0  # seconds after which a source is asked though nothing rang: a marker may be lost with the one who took it
NOW_AND_THEN = 0.05  # seconds between two looks into a source for which nobody waits


class Gather:
    """One capsule's way to the server. ``asked_as``: the name under which it asked last."""

    def __init__(
        self, host: Host, flights: LeaseSession, cancels: Cancels, sources: Mapping[str, Source], capsule: Capsule
    ) -> None:
        self._host = host
        self._session = flights
        self._cancels = cancels
        self._capsule = capsule
        self._sources = {name: sources[name] for name in capsule.queues if name in sources}
        self._look_at = dict.fromkeys(self._sources, 0.0)  # time.monotonic() from which a source may have something
        self._asked = dict.fromkeys(self._sources, 0.0)
        self._passed_on: set[str] = set()
        self.asked_as = ""
        self.waits_for: Callable[[str], bool] = lambda queue: False  # whether a push into the queue would ring

    def rang(self, queue: str) -> None:
        """Somebody put something into the queue of a source."""
        self._look_at[queue] = 0.0
        self._passed_on.discard(queue)

    def look_all(self) -> None:
        """Any queue may have something."""
        for queue in self._look_at:
            self.rang(queue)

    def due_in(self, paused: Collection[str]) -> float:
        """Seconds until a source that is not ``paused`` should be asked again; 0 when one should be now."""
        soonest = min([at for name, at in self._look_at.items() if name not in paused], default=None)
        return SURE if soonest is None else max(soonest - time.monotonic(), 0.0)

    def pass_on(self) -> None:
        """There is no room here for what the sources may have: let another process look, once each."""
        now = time.monotonic()
        for queue, at in self._look_at.items():
            if at <= now and queue not in self._passed_on:
                self._passed_on.add(queue)
                try:
                    self._sources[queue].ring()
                except ServerError as error:  # a courtesy: it looks again itself when there is room
                    self._host.events.failed("fetcher", error)

    def fetch(self, want: int, extra: Callable[[str], int], paused: frozenset[str]) -> Iterator[tuple[str, list[Unit]]]:
        """(queue, units) for at most ``want`` units, and up to ``extra(queue)`` more from the queue that fills it."""
        current = self._session.current  # as one value: another capsule may change the epoch meanwhile
        self.asked_as = current[self._capsule.queues[0]].identity
        order = self._order(paused)
        for names in _stretches(order, self._sources):
            if want <= 0:
                return
            brought = (
                self._claim(names[0], want, extra, current)
                if names[0] in self._sources
                else (self._fetch(names, want, extra, current))
            )
            for name, units in brought:
                want -= len(units)
                yield name, units

    def _order(self, paused: frozenset[str]) -> list[str]:
        """The queues as the capsule drew them; places of sources that may have something, as their scheduler says."""
        order = [name for name in self._capsule.order() if name not in paused]
        if len(self._sources) < 2 or self._capsule.mode == "strict":
            return order
        places = [place for place, name in enumerate(order) if name in self._sources and self._may_have(name)]
        if len(places) > 1:
            names = [order[place] for place in places]
            for place, name in zip(places, self._sources[names[0]].order(names), strict=True):
                order[place] = name
        return order

    def _may_have(self, name: str) -> bool:
        """Whether the source should be asked now."""
        now = time.monotonic()
        return self._look_at[name] <= now or (now >= self._asked[name] + NOW_AND_THEN and not self.waits_for(name))

    def _fetch(
        self, names: Sequence[str], want: int, extra: Callable[[str], int], current: Mapping[str, InFlightList]
    ) -> list[tuple[str, list[Unit]]]:
        """What the plain queues ``names`` have, by one script."""
        flights, lists = self._session, current[names[0]]
        started = awake()
        asked = [(name, extra(name)) for name in names]
        call = fetch(self._host.keys, lists.identity, lists.epoch, asked, want, flights.lease_ms)
        fetched = self._host.connections.run(call)
        flights.renewed = max(flights.renewed, started)
        self._cancels.catch_up(fetched.cancels)
        now = time.monotonic()
        # a hair apart, so that what goes back keeps its order
        return [
            (name, [Unit(one, current[name], now + place * 1e-7) for place, one in enumerate(payloads)])
            for name, payloads in zip(names, fetched.payloads, strict=True)
            if payloads
        ]

    def _claim(
        self, name: str, want: int, extra: Callable[[str], int], current: Mapping[str, InFlightList]
    ) -> list[tuple[str, list[Unit]]]:
        """What the source ``name`` has, if it may have anything."""
        if not self._may_have(name):
            return []
        self._asked[name] = time.monotonic()
        self._look_at[name] = time.monotonic() + SURE  # before asking: what rings from here on counts
        self._passed_on.discard(name)
        started = awake()
        try:
            units, look_in = self._sources[name].fetch(current[name], want, extra(name))
        except BaseException:
            self._look_at[name] = 0.0
            raise
        self._session.renewed = max(self._session.renewed, started)
        if look_in is not None:
            self._look_at[name] = min(self._look_at[name], time.monotonic() + look_in)
        return [(name, units)] if units else []


def _stretches(order: Sequence[str], sources: Mapping[str, Source]) -> Iterator[list[str]]:
    """Plain queues that stand beside each other together, each of the others alone; the order stays."""
    plain: list[str] = []
    for name in order:
        if name not in sources:
            plain.append(name)
            continue
        if plain:
            yield plain
            plain = []
        yield [name]
    if plain:
        yield plain
