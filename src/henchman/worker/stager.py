"""Moves what is due from the retry and schedule sets into its queue.

One process stages at a time (a lease of 2 s). It looks at most every 0.9 s and, in between, at the exact time of the
earliest entry it saw. An entry leaves its set and enters its queue in one script: nothing can fall between.

A job for which a client middleware raises stays in its set, with a later time, and is tried again with back-off. When
one after the other fails, what the middleware asks is probably away: the look is broken off, and the next one waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import PayloadError
from henchman.kernel.clock import STEP, capped_backoff
from henchman.kernel.middleware import compile_sync
from henchman.kernel.threads import Ticker
from henchman.store.call import command
from henchman.store.jobs import Due, Move, due, move, rebase
from henchman.store.leases import STAGING_MS, Leader
from henchman.wire import payload
from henchman.wire.payload import sanitise
from henchman.work.effects import EndingFacts, batch_of, encoded

__all__ = ["Stager"]

LOOK = 0.9
CHUNK = 500
IN_A_ROW = 10  # failures of the middleware, one after the other, that break a look off
WAIT = 1.0, 15.0  # seconds until a job is tried again whose middleware failed, at first and at most
FORGET = 4 * WAIT[1]  # a job that was not tried for so long was deleted, or another process stages
MOST_KNOWN = 10_000


class Stager(Ticker):
    """``staged`` counts what it moved."""

    name = "stager"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self.leader = Leader(runtime.keys.staging, STAGING_MS)
        self.staged = 0
        self._stepped = runtime.clock.stepped
        self._quiet = False
        self._middleware = _Middleware(runtime)

    def quiet(self) -> None:
        """Stage nothing more."""
        self._quiet = True

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
        wait, sent = self._middleware.begin(started), self._runtime.clock.sent()
        seen = self._runtime.connections.run(due(keys, self.leader.identity, STAGING_MS, 0 if wait else CHUNK))
        self._runtime.clock.heard(seen.now, sent)
        stepped, self._stepped = self._runtime.clock.stepped - self._stepped, self._runtime.clock.stepped
        self.leader.leads = seen.mine
        if not seen.mine:
            self._middleware = _Middleware(self._runtime)  # who stages now says how it goes
            return LOOK
        if seen.back > STEP or stepped > STEP:
            self._step(-seen.back if seen.back > STEP else stepped, seen.now)
        if wait:  # the look keeps the lease: another process would fare no better
            return min(LOOK, wait)
        self._stage(keys.retry, seen.retries, seen.now)
        self._stage(keys.schedule, seen.scheduled, seen.now)
        if wait := self._middleware.end():
            return min(LOOK, wait)
        if seen.more:
            return 0.0
        return self._pause(seen, time.monotonic() - started)

    def _step(self, seconds: float, now: float) -> None:
        """The server's clock has stepped. What failed is tried again after the wait that was meant, where it went back;
        times that a user gave stay, and so do delays, which nobody can tell from those."""
        runner, keys = self._runtime.connections, self._runtime.keys
        runner.run(command("HSET", keys.clock, "by", f"{seconds:.3f}", "at", f"{now:.6f}"))
        self._runtime.events.emit("clock_stepped", seconds=round(seconds, 3))
        ahead = f"({now:.6f}"  # what lies there was computed before a clock that went back
        runner.run(rebase(keys.tombs, ahead if seconds < 0 else "-inf", -seconds, CHUNK))  # an hour is an hour
        moved, start = int(seconds < 0), ahead
        while moved and not self.stopping.is_set():
            moved, start = runner.run(rebase(keys.retry, start, -seconds, CHUNK))

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
            if status == 1:
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
            mended = sanitise(job)
            if self._runtime.client_middleware.links:
                yield self._through_middleware(entry, job, queue, stamp)
                if self._middleware.gave_up:
                    return
            elif mended:
                stored = payload.encode(job | {"enqueued_at": msgspec.json.decode(stamp)})
                yield Move(entry, stored, queue, effects=encoded(self._runtime.keys, job, "staged"))
            else:
                stored = payload.with_field(entry, "enqueued_at", stamp)
                yield Move(entry, stored, queue, effects=encoded(self._runtime.keys, job, "staged"))

    def _through_middleware(self, entry: bytes, job: dict[str, Any], queue: str, stamp: bytes) -> Move:
        """As at a push: the chain may change the job. One that stops it sends it to the dead set, with the reason; one
        that raises leaves it where it is, to be tried again.
        """
        reached: list[dict[str, Any]] = []
        try:
            compile_sync(self._runtime.client_middleware, reached.append)(job)
            made = self._pushed(entry, reached[-1], queue, stamp) if reached else self._stopped(entry, queue, stamp)
        except Exception as error:  # the link is somebody else's code: its failure must not stop its neighbours
            return Move(entry, later=self._middleware.failed(entry, error))
        self._middleware.passed(entry)
        return made

    def _pushed(self, entry: bytes, job: dict[str, Any], queue: str, stamp: bytes) -> Move:
        final = job | {"enqueued_at": msgspec.json.decode(stamp)}
        target = final.get("queue")
        name = target if isinstance(target, str) and target else queue
        return Move(entry, payload.encode(final), name, effects=encoded(self._runtime.keys, final, "staged"))

    def _stopped(self, entry: bytes, queue: str, stamp: bytes) -> Move:
        dead, kind = _sanitised(entry), "PushStopped"
        reason = "a client middleware stopped this job when it became due"
        effects = encoded(
            self._runtime.keys, dead, "dead", EndingFacts(detail={"error_class": kind, "message": reason})
        )
        stored = payload.encode(_as_dead(dead, queue, kind, reason, stamp))
        return Move(entry, stored, effects=effects, batch=batch_of(dead))


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

    def failed(self, entry: bytes, error: Exception) -> float:
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
