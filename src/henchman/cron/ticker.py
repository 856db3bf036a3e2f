"""The worker's half of crons: enqueues what is due. One process ticks at a time, and it does not matter which.

A lease of 2 s says who. Were two to tick at once, or one to die in the middle, nothing would be lost or doubled: the
script that pushes compares and sets the planned time (``cron_tick.lua``). The leader looks once a second and, between
two looks, wakes at the exact time of the next tick. Without crons there is nothing to lead: a look a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from henchman.client.runtime import Runtime
from henchman.cron.definition import Cron, build_tick, decoded, encoded
from henchman.cron.timing import Plan, Timing, plan, read_timing
from henchman.errors import DefinitionError, ServerError
from henchman.kernel.threads import Ticker
from henchman.store import cron as store
from henchman.store import history
from henchman.store.call import Call
from henchman.store.leases import CRON_MS, Leader

__all__ = ["CronTicker"]

T = TypeVar("T")

LOOK = 1.0
LOOK_EMPTY = 5.0, 60.0  # with no cron anywhere: at first, and at last; the control channel announces new ones
DECLARE = 15.0  # well below store.cron.FRESH
FORGET = 7 * 86400.0  # a cron that no worker has declared for so long is removed
CHUNK = 200
HELD_UP = 5.0  # seconds until a cron that could not be enqueued is tried again


class ScheduledCron(NamedTuple):
    """A cron that this process looks after. ``last``: dealt with until there; ``next``: its next planned time."""

    cron: Cron
    timing: Timing
    last: float
    next: float


def scheduled_cron(cron: Cron, timing: Timing, last: float) -> ScheduledCron:
    """With the next planned time after ``last``; never, when there is none."""
    return ScheduledCron(cron, timing, last, next(timing.after(last), float("inf")))


class CronTicker(Ticker):
    """A companion of a worker process. ``runtime.crons`` holds what the code of this app declares."""

    name = "cron"

    def __init__(self, runtime: Runtime, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self._leader = Leader(runtime.keys.cron_leader, CRON_MS)
        self._monotonic = monotonic
        self._declared: Mapping[str, Cron] = {}
        self._registered = False
        self._declare_at = 0.0
        self._look_at = 0.0
        self._changed = False
        self._empty = LOOK_EMPTY[0]
        self._seen: store.CronLook | None = None
        self._stepped = runtime.clock.stepped
        self._hold_until = 0.0  # the server's clock went forward: nobody is forgotten before all have declared again
        self._read_at = 0.0  # on our clock, when the answer to the look came
        self._revision: bytes | None = None
        self._retired: frozenset[str] | None = None
        self._scheduled: dict[str, ScheduledCron] = {}
        self._failing: set[str] = set()  # crons whose job no middleware lets through just now
        self._handled: float | None = None
        self._quiet = False
        self._offered = False

    @property
    def verbs(self) -> Mapping[str, Callable[[str], None]]:
        """What the control channel may tell us."""
        return {"crons": lambda _: self.look_now()}

    @property
    def leads(self) -> bool:
        """Whether this process ticks."""
        return self._seen is not None and self._seen.mine

    def look_now(self) -> None:
        """A cron was changed."""
        self._changed = True
        self.wake()

    def quiet(self) -> None:
        """Tick no more; another process may."""
        self._quiet = True
        self.wake()

    def stop(self, timeout: float = 5.0) -> bool:
        """Tick no more, and let another process do so at once."""
        ended = super().stop(timeout)
        self._let_go()
        return ended

    def tick(self) -> float:
        """Look when it is time, enqueue what is due; seconds until the next look or planned time."""
        if self._quiet:
            self._let_go()
            return 60.0
        if not self._registered:
            self._register()
        if self._changed or self._monotonic() >= self._look_at:
            self._look()
        if self.leads:
            self._fire()
        wait = self._look_at - self._monotonic()
        if self.leads and self._scheduled:
            wait = min(wait, min(one.next for one in self._scheduled.values()) - self._now())
        return wait

    def _run(self, call: Call[T]) -> T:
        return self._runtime.connections.run(call)

    def _register(self) -> None:
        """Tell the server what the code declares."""
        self._declared = self._runtime.crons.declared
        if self._declared:
            definitions = [(name, encoded(cron)) for name, cron in self._declared.items()]
            self._run(store.put(self._runtime.keys, "code", definitions))
        self._registered = True
        self._look_at = 0.0

    def _now(self) -> float:
        """The server's time, or a moment less: so that nothing is sent before it is due."""
        return 0.0 if self._seen is None else self._seen.now + self._monotonic() - self._read_at

    def _look(self) -> None:
        started = self._monotonic()
        self._changed = False  # before we ask: a change from here on is announced again
        self._look_at = started + LOOK  # also when it fails
        names = tuple(self._declared) if started >= self._declare_at else ()
        led, handled = self.leads, self._handled
        call = store.look(self._runtime.keys, self._leader.identity, CRON_MS, handled if led else None, names)
        clock = self._runtime.clock
        sent = clock.sent()
        seen = self._run(call)
        clock.heard(seen.now, sent)
        self._seen, self._read_at = seen, self._monotonic()
        if not (led and seen.mine):  # what we know may be old
            self._handled, self._revision, self._scheduled = None, None, {}
        if names:
            self._declare_at = started + DECLARE
        if seen.lost:  # the server was emptied, or a process removed what no worker had declared
            self._registered = False
        if not seen.crons:
            self._look_at = started + self._empty
            self._empty = min(2 * self._empty, LOOK_EMPTY[1])
        stepped, self._stepped = clock.stepped - self._stepped, clock.stepped
        if stepped > store.FRESH / 4:  # what was declared before seems old now
            self._hold_until, self._declare_at, self._look_at = started + 2 * DECLARE, 0.0, started
        if seen.mine and (seen.revision, seen.retired) != (self._revision, self._retired):
            self._load(seen)

    def _load(self, seen: store.CronLook) -> None:
        """Read every cron that is to tick."""
        stored = self._run(store.read(self._runtime.keys))
        self._revision, self._retired = stored.revision, seen.retired
        self._scheduled = {}
        for name, text in stored.definitions.items():
            if name in stored.paused or name in seen.retired:
                continue
            try:
                cron = decoded(text)
                self._scheduled[name] = scheduled_cron(
                    cron, read_timing(cron.timing), stored.last.get(name, stored.now)
                )
            except (msgspec.MsgspecError, DefinitionError) as error:
                self._runtime.events.emit("cron_unreadable", cron=name, error=error)
        if self._monotonic() < self._hold_until:
            self._retired = None  # it is loaded again at the next look
            return
        for name in seen.retired:
            if stored.declared.get(name, stored.now) < stored.now - FORGET:
                self._run(store.remove(self._runtime.keys, name))

    def _fire(self) -> None:
        """Enqueue what is due; a cron that cannot be enqueued is tried again later and stops no other."""
        now = self._now()
        due = iter(list(self._due(now)))
        while chunk := list(islice(due, CHUNK)):
            if not self._send(chunk):
                return
        if all(one.next > now for one in self._scheduled.values()):
            self._handled = now

    def _due(self, now: float) -> Iterator[store.Tick]:
        assert self._seen is not None  # noqa: S101 - only the leader asks
        seen = self._seen.seen if self._handled is None else self._handled
        for name, one in list(self._scheduled.items()):
            if one.next > now:
                continue
            planned = plan(one.timing, one.cron.missed, one.last, now, seen)
            if planned.passed_over:
                self._runtime.events.emit("cron_missed", cron=name, since=one.last, enqueued=len(planned.ticks))
            yield from self._ticks(name, one, planned, now)

    def _ticks(self, name: str, one: ScheduledCron, planned: Plan, now: float) -> Iterator[store.Tick]:
        if planned.floor is not None:
            yield store.Tick(name, planned.floor)
        try:
            made = [build_tick(self._runtime, name, one.cron, moment, now) for moment in planned.ticks]
        except BaseException as error:  # client middleware is user code: its sys.exit() must not stop other crons
            if name not in self._failing:
                self._failing.add(name)
                self._runtime.events.emit("part_failed", part=f"cron {name}", error=error)
            self._scheduled[name] = one._replace(next=now + HELD_UP)
            return
        if name in self._failing:
            self._failing.discard(name)
            self._runtime.events.emit("cron_back", cron=name)
        if not all(tick.payload for tick in made):
            self._runtime.events.emit("cron_stopped", cron=name)
        yield from made

    def _send(self, ticks: Sequence[store.Tick]) -> bool:
        """Whether all of ``ticks`` are dealt with; what is not comes up again."""
        if not self._offered and any(one.detail for one in ticks):
            self._offered = True
            if keep := self._runtime.config.history_kept():  # no recorder may have led yet
                self._run(history.offer(self._runtime.keys, keep))
        answer = self._run(store.tick(self._runtime.keys, self._revision or b"0", ticks))
        if answer.statuses is None:
            self.look_now()
            return False
        assert self._seen is not None  # noqa: S101 - only the leader sends
        self._seen, self._read_at = self._seen._replace(now=answer.now), self._monotonic()
        fine = True
        for one, status in zip(ticks, answer.statuses, strict=True):
            known = self._scheduled[one.name]
            if isinstance(status, bytes):
                fine = False
                error = ServerError(status.decode("utf-8", "replace"))
                self._runtime.events.emit("part_failed", part=f"cron {one.name}", error=error)
                self._scheduled[one.name] = known._replace(next=answer.now + HELD_UP)
            elif status < 0:
                fine = False
            elif one.planned > known.last:
                self._scheduled[one.name] = scheduled_cron(known.cron, known.timing, one.planned)
                if status == 2:
                    self._runtime.events.emit("cron_overlap", cron=one.name, planned=one.planned)
                elif status == 1 and one.payload:
                    self._runtime.events.emit("cron_enqueued", cron=one.name, jid=one.jid, planned=one.planned)
        return fine

    def _let_go(self) -> None:
        """End our lease, so that another process ticks at its next look."""
        if not self.leads:
            return
        handled, self._seen = self._handled, None
        try:
            self._run(store.look(self._runtime.keys, self._leader.identity, 0, handled))
        except ServerError as error:
            self._runtime.events.emit("part_failed", part=self.name, error=error)
