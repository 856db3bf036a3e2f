"""Moves what is due from the retry and schedule sets into its queue, and ends what the dead set has no room for.

One process stages at a time (a lease of 2 s). It looks at most every 0.9 s and, in between, at the exact time of the
earliest entry it saw. An entry leaves its set and enters its queue in one script: nothing can fall between.

A job for which a client middleware raises stays in its set, with a later time, and is tried again with back-off. When
one after the other fails, what the middleware asks is probably away: the look is broken off, and the next one waits.

When the server's clock steps, times that were computed before move along (``_rebase``); until then nothing is staged.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import PayloadError
from henchman.kernel.clock import STEP, capped_backoff
from henchman.kernel.middleware import compile_sync
from henchman.kernel.threads import Ticker
from henchman.store.call import Call
from henchman.store.jobs import EARLIER, Due, Move, TimesPage, due, move, rebase, rebase_page
from henchman.store.leases import STAGING_MS, Leader
from henchman.store.queues import forget_trimmed
from henchman.wire import payload
from henchman.wire.deadlines import has_begun, is_over
from henchman.wire.payload import delay_of, sanitise
from henchman.work.context import keep_stored
from henchman.work.effects import EndingFacts, batch_of, encoded, of_payload, overdue_dead, overdue_facts
from henchman.work.limits import has_time
from henchman.worker.decide import Decisions

__all__ = ["Stager"]

LOOK = 0.9
CHUNK = 500
IN_A_ROW = 10  # failures of the middleware, one after the other, that break a look off
WAIT = 1.0, 15.0  # seconds until a job is tried again whose middleware failed, at first and at most
FORGET = 4 * WAIT[1]  # a job that was not tried for so long was deleted, or another process stages
MOST_KNOWN = 10_000
PAGE = 250  # times that one script moves along
_TOMBS, _RETRY, _SCHEDULE, _UNTIL, _DUE, _DEAD = range(6)  # sets of times that move along
#: in which order: who is let go of the parked meanwhile comes into the schedule, and never with too early a time
_FORWARD = (_TOMBS, _RETRY, _UNTIL, _DUE, _SCHEDULE, _DEAD)
_BACK = (_TOMBS, _RETRY, _SCHEDULE, _UNTIL, _DUE, _DEAD)
_MOMENTS = (_TOMBS, _DEAD)  # when something was: of the others, when it is to be


class Stager(Ticker):
    """``staged`` counts what it moved."""

    name = "stager"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self.leader = Leader(runtime.keys.staging, STAGING_MS)
        self.staged = 0
        self._stepped, self._looked = runtime.clock.stepped, runtime.clock.sent()
        self._quiet = self._behind = False
        self._middleware = _Middleware(runtime)
        self._decisions = Decisions(runtime)

    def quiet(self) -> None:
        """Stage nothing more."""
        self._quiet = True

    def hears_of_due(self) -> None:
        """Something is due before the next look."""
        if self.leader.leads:
            self.wake()

    def stop(self, timeout: float = 5.0) -> bool:
        """Stage no more, and let another process do so at once."""
        ended = super().stop(timeout)
        self.leader.resign(self._runtime.connections, self._runtime.events, self.name)
        return ended

    def tick(self) -> float:
        """Look once and move what is due; seconds until the next look."""
        if self._quiet:
            return 5.0
        keys = self._runtime.keys
        started = time.monotonic()
        wait = self._middleware.begin(started)
        seen = self._look(0 if wait or self._behind else CHUNK)
        self.leader.leads = seen.mine
        if not seen.mine:
            self._middleware = _Middleware(self._runtime)  # who stages now says how it goes
            return LOOK
        if seen.step:
            self._runtime.events.emit("clock_stepped", seconds=round(seen.step, 3))
        if seen.left:
            return self._rebase(seen.left)
        self._behind = False
        if wait:  # the look keeps the lease: another process would fare no better
            return min(LOOK, wait)
        self._stage(keys.retry, seen.retries, seen.now)
        self._stage(keys.schedule, seen.scheduled, seen.now)
        self._end_trimmed(seen.trimmed)
        decided = self._decisions.carry_out(seen)
        if wait := self._middleware.end():
            return min(LOOK, wait)
        if seen.more or seen.trimmed or decided:
            return 0.0
        return self._pause(seen, time.monotonic() - started)

    def _end_trimmed(self, payloads: Sequence[bytes]) -> None:
        """The dead set had no room for these: what they held until now is free."""
        for one in payloads:
            effects = of_payload(self._runtime.keys, one, "trimmed")
            self._runtime.connections.run(forget_trimmed(self._runtime.keys, one, effects))

    def _look(self, most: int) -> Due:
        """Look once; and once more when the clock has stepped forward, so that the server knows it. It sees by itself
        when its clock went back, also when no process lived then."""
        clock, runner = self._runtime.clock, self._runtime.connections
        sent = clock.sent()
        since_last = sent - self._looked + STEP  # the call may take some time
        ask = partial(due, self._runtime.keys, self.leader.identity, STAGING_MS)
        seen = runner.run(ask(most, since_last if self.leader.leads else None))
        clock.heard(seen.now, sent)
        forward, self._stepped, self._looked = clock.stepped - self._stepped, clock.stepped, sent
        # a clock that somebody else has seen there meanwhile has not stepped: ours had stood still
        if seen.mine and forward > STEP and seen.gap is not None and seen.gap > forward - STEP / 2:
            seen = runner.run(ask(0, since_last, forward))
        return seen

    def _rebase(self, left: bytes) -> float:
        """Move times along, page by page, for about half the time until the lease needs a look."""
        self._behind, pause = True, time.monotonic() + LOOK / 2
        while left and time.monotonic() < pause and not self.stopping.is_set():
            first, *rest = left.splitlines(keepends=True)
            step = _Step.read(first)
            source = self._set(step.place)
            page = self._runtime.connections.run(step.page(source))
            until = _Step.read(rest[0]).before if rest else page.now
            moves = list(step.moves(page, self._waits(step.place, page), until))
            then = step.then(page, moves)
            if not self._runtime.connections.run(rebase(self._runtime.keys, source, first, then, moves)):
                break  # another process goes on with it
            left = then + b"".join(rest)
        return 0.0

    def _set(self, place: int) -> str:
        keys = self._runtime.keys
        return (keys.tombs, keys.retry, keys.schedule, keys.parked_until, keys.parked_due, keys.dead)[place]

    def _waits(self, place: int, page: TimesPage) -> Mapping[bytes, float]:
        """Seconds after which each is due, but for those that are due at a moment; nobody knows those of a retry."""
        if place in (_UNTIL, _DUE):
            return self._decisions.waits([one for one, _ in page.found], limited=place == _UNTIL)
        if place == _SCHEDULE:
            return {one: delay for one, _ in page.found if (delay := delay_of(one)) is not None}
        return {one: 0.0 for one, _ in page.found}

    def _pause(self, seen: Due, took: float) -> float:
        if seen.next_at is None:
            return LOOK
        return min(LOOK, max(seen.next_at - seen.now - took, 0.0) + 0.001)

    def _stage(self, source: str, entries: Sequence[bytes], now: float) -> None:
        if not entries or self._middleware.gave_up:
            return
        config = self._runtime.config
        moves = list(self._planned(entries, now))
        call = move(self._runtime.keys, source, moves, dead_max=config.dead_max, dead_timeout=config.dead_timeout)
        statuses = self._runtime.connections.run(call)
        for one, status in zip(moves, statuses, strict=True):
            if status in (1, EARLIER):
                self.staged += one.later is None
            elif status != 0:
                self._runtime.events.emit("refused", unit=one.old, ending="staged", reason=str(status))

    def _planned(self, entries: Iterable[bytes], now: float) -> Iterable[Move]:
        stamp = self._runtime.stamp(now)
        for entry in entries:
            try:
                job = payload.decode(entry)
            except PayloadError as error:
                yield Move(entry, payload.invalid(entry, str(error), "default", now))
                continue
            queue = job.get("queue")
            if not isinstance(queue, str) or not queue:
                queue = "default"
            if is_over(job, now):
                yield self._overdue(entry, job, queue, stamp)
                continue
            mended, timed = sanitise(job), has_time(job)
            if self._runtime.client_middleware.links:
                yield self._through_middleware(entry, job, queue, stamp)
                if self._middleware.gave_up:
                    return
            elif mended:
                stored = payload.encode(job | {"enqueued_at": msgspec.json.decode(stamp)})
                yield Move(entry, stored, queue, effects=encoded(self._runtime.keys, job, "staged"), next=timed)
            else:
                stored = payload.with_field(entry, "enqueued_at", stamp)
                yield Move(entry, stored, queue, effects=encoded(self._runtime.keys, job, "staged"), next=timed)

    def _overdue(self, entry: bytes, job: dict[str, Any], queue: str, stamp: bytes) -> Move:
        """Its deadline has passed while it waited: nobody need see it start."""
        facts = overdue_facts(job, "for its retry" if "retry_count" in job else "for its time")
        if not has_begun(job):
            return Move(entry, delete=True, effects=encoded(self._runtime.keys, job, "expired", facts))
        effects = encoded(self._runtime.keys, dead := _sanitised(entry), "dead", facts)
        return Move(
            entry, payload.encode(overdue_dead(dead, queue, stamp, facts)), effects=effects, batch=batch_of(dead)
        )

    def _through_middleware(self, entry: bytes, job: dict[str, Any], queue: str, stamp: bytes) -> Move:
        """As at a push: the chain may change the job. One that stops it sends it to the dead set, with the reason; one
        that raises leaves it where it is, to be tried again.
        """
        reached: list[dict[str, Any]] = []
        try:
            compile_sync(self._runtime.client_middleware, reached.append)(job)
            made = self._pushed(entry, reached[-1], queue, stamp) if reached else self._stopped(entry, queue, stamp)
        except BaseException as error:  # the link is somebody else's code: its sys.exit() must not end the staging
            return Move(entry, later=self._middleware.failed(entry, error))
        self._middleware.passed(entry)
        return made

    def _pushed(self, entry: bytes, job: dict[str, Any], queue: str, stamp: bytes) -> Move:
        final = keep_stored(job, payload.decode(entry)) | {"enqueued_at": msgspec.json.decode(stamp)}
        target = final.get("queue")
        name = target if isinstance(target, str) and target else queue
        effects = encoded(self._runtime.keys, final, "staged")
        return Move(entry, payload.encode(final), name, effects=effects, next=has_time(final))

    def _stopped(self, entry: bytes, queue: str, stamp: bytes) -> Move:
        dead, kind = _sanitised(entry), "PushStopped"
        reason = "a client middleware stopped this job when it became due"
        effects = encoded(
            self._runtime.keys, dead, "dead", EndingFacts(detail={"error_class": kind, "message": reason})
        )
        stored = payload.encode(_as_dead(dead, queue, kind, reason, stamp))
        return Move(entry, stored, effects=effects, batch=batch_of(dead))


class _Step(NamedTuple):
    """A step of the server's clock with which times have yet to be moved along: a line of what is left to do.

    It went ``by`` seconds, was seen at ``at``, and came after ``since``, both by the clock as it is now. A set is gone
    through upwards where it went back, else downwards, so that nothing is met again where it was moved to; the next
    page begins behind ``skip`` members of the score ``cursor`` in the set number ``place``.
    """

    by: float
    at: float
    since: float
    place: int
    cursor: str
    skip: int

    @classmethod
    def read(cls, line: bytes) -> _Step:
        by, at, since, place, cursor, skip = line.decode().split()
        return cls(float(by), float(at), float(since), int(place), cursor, int(skip))

    @property
    def before(self) -> float:
        """The time that it would have been at ``at`` without the step."""
        return self.at - self.by

    def page(self, source: str) -> Call[TimesPage]:
        """The next page; of the schedule what is due after a delay, as its payloads note."""
        noted = '"delay"' if self.place == _SCHEDULE else ""
        return rebase_page(source, self._start, self.skip, PAGE, down=self.by > 0, noted=noted)

    def moves(
        self, page: TimesPage, waits: Mapping[bytes, float], until: float
    ) -> Iterator[tuple[bytes, float, float]]:
        """What was written before the step, with its time now and its new one; what is due by now stays. ``waits``: so
        many seconds before its time; ``until``: the latest time at which anything was written since.

        Where it went back, a time between ``since`` and ``until`` has been twice, and what was written then stays: it
        may be due late, and never early.
        """
        for member, score in page.found:
            if member not in waits or not math.isfinite(score):
                continue
            written = score - waits[member]
            if self.by < 0:
                old = score > until and not self.since <= written <= until
            else:
                old = score >= self._floor and written < self.since
            if old:
                yield member, score, score + self.by

    def then(self, page: TimesPage, moves: Sequence[tuple[bytes, float, float]]) -> bytes:
        """The line that takes this one's place when ``page`` was moved; empty after the last page of the last set."""
        if page.seen and not (self.by > 0 and float(page.last) < self._floor):
            last = float(page.last)
            stayed = page.ties - sum(score == last for _, score, _ in moves)
            return self._line(self.place, page.last, stayed + (self.skip if last == float(self._start) else 0))
        order = _BACK if self.by < 0 else _FORWARD
        behind = order[order.index(self.place) + 1 :]
        return self._line(behind[0], "-", 0) if behind else b""

    @property
    def _start(self) -> str:
        if self.cursor != "-":
            return self.cursor
        if self.by < 0:
            return f"{self.at:.6f}"
        return "+inf" if self.place in (_SCHEDULE, _UNTIL, _DUE) else f"{self.since:.6f}"

    @property
    def _floor(self) -> float:
        """What stands below it was due before the clock went forward. Of moments all move: the ages of the dead."""
        return -math.inf if self.place in _MOMENTS else self.before

    def _line(self, place: int, cursor: str, skip: int) -> bytes:
        return f"{self.by:.6f} {self.at:.6f} {self.since:.6f} {place} {cursor} {skip}\n".encode()


class _Middleware:
    """How the client middleware fares with what becomes due; says so when it begins to fail, and when all is well.

    ``gave_up``: this look is broken off.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._failing: dict[int, tuple[int, float]] = {}  # hash of an entry → failures, forget at (monotonic)
        self._said: set[type[BaseException]] = set()
        self._in_a_row = self._given_up = 0
        self._began = self._again_at = 0.0
        self.gave_up = False

    def begin(self, now: float) -> float:
        """A look begins; seconds that it is to wait, 0 when it may go on."""
        if now < self._again_at:
            return self._again_at - now
        self._began, self._in_a_row, self.gave_up = now, 0, False
        return 0.0

    def end(self) -> float:
        """The look is over; seconds that the next one is to wait, 0 when it was not broken off."""
        now = time.monotonic()
        self._failing = {known: one for known, one in self._failing.items() if one[1] > now}
        if self._said and not self._failing:
            self._said.clear()
            self._runtime.events.emit("middleware_back")
        if not self.gave_up:
            self._given_up = 0
            return 0.0
        wait = capped_backoff(self._given_up, first=WAIT[0], most=WAIT[1])
        self._given_up += 1
        self._again_at = now + wait
        return wait

    def passed(self, entry: bytes) -> None:
        """It took this one, or stopped it."""
        self._in_a_row = 0
        self._failing.pop(hash(entry), None)

    def failed(self, entry: bytes, error: BaseException) -> float:
        """It raised; seconds until it is asked about this one again."""
        now = time.monotonic()
        if len(self._failing) >= MOST_KNOWN:
            self._failing.pop(next(iter(self._failing)))
        count = self._failing.pop(hash(entry), (0, 0.0))[0]
        self._failing[hash(entry)] = count + 1, now + FORGET
        if type(error) not in self._said:
            self._said.add(type(error))
            self._runtime.events.emit("middleware_failing", unit=entry, error=error)
        self._in_a_row += 1
        self.gave_up = self._in_a_row >= IN_A_ROW or now - self._began > LOOK
        return capped_backoff(count, first=WAIT[0], most=WAIT[1])


def _sanitised(entry: bytes) -> dict[str, Any]:
    job = payload.decode(entry)
    sanitise(job)
    return job


def _as_dead(job: dict[str, Any], queue: str, kind: str, reason: str, stamp: bytes) -> dict[str, Any]:
    """``job`` as it goes to the dead set, with the reason where people and Sidekiq's pages look for it."""
    told = {"queue": queue, "failed_at": msgspec.json.decode(stamp), "error_class": kind, "error_message": reason}
    return job | told | {"retry_count": job.get("retry_count", 0)}
