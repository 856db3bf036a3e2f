"""Moves what is due from the retry and schedule sets into its queue.

One process stages at a time (a lease of 2 s). It looks at most every 0.9 s and, in between, at the exact time of the
earliest entry it saw. An entry leaves its set and enters its queue in one script: nothing can fall between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from henchman.errors import PayloadError
from henchman.kernel.bridge import compile_sync
from henchman.kernel.service import Ticker
from henchman.store.jobs import Due, Move, due, move
from henchman.wire import payload
from henchman.wire.mend import mend
from henchman.work.effects import Told, batch_of, encoded
from henchman.worker.host import Host

__all__ = ["Stager"]

LOOK = 0.9
STAGING_MS = 2000
CHUNK = 500


class Stager(Ticker):
    """``identity()`` gives the name of this process; ``staged`` counts what it moved."""

    name = "stager"

    def __init__(self, host: Host, identity: Callable[[], str]) -> None:
        super().__init__(host.events.failed)
        self._host = host
        self._identity = identity
        self.staged = 0
        self._quiet = False

    def quiet(self) -> None:
        """Stage nothing more."""
        self._quiet = True

    def tick(self) -> float:
        """Look once and move what is due; seconds until the next look."""
        if self._quiet:
            return 5.0
        keys = self._host.keys
        started = time.monotonic()
        seen = self._host.connections.run(due(keys, self._identity(), STAGING_MS, CHUNK))
        if not seen.mine:
            return LOOK
        self._stage(keys.retry, seen.retries, seen.now)
        self._stage(keys.schedule, seen.scheduled, seen.now)
        if len(seen.retries) == CHUNK or len(seen.scheduled) == CHUNK:
            return 0.0
        return self._pause(seen, time.monotonic() - started)

    def _pause(self, seen: Due, took: float) -> float:
        if seen.next_at is None:
            return LOOK
        return min(LOOK, max(seen.next_at - seen.now - took, 0.0) + 0.001)

    def _stage(self, source: str, entries: Sequence[bytes], now: float) -> None:
        if not entries:
            return
        config = self._host.config
        moves = list(self._planned(entries, now))
        call = move(self._host.keys, source, moves, dead_max=config.dead_max, dead_timeout=config.dead_timeout)
        statuses = self._host.connections.run(call)
        for one, status in zip(moves, statuses, strict=True):
            if status == 1:
                self.staged += 1
            elif status != 0:
                self._host.events.emit("refused", unit=one.old, ending="staged", reason=str(status))

    def _planned(self, entries: Iterable[bytes], now: float) -> Iterable[Move]:
        stamp = self._host.stamp(now)
        for entry in entries:
            try:
                job = payload.decode(entry)
            except PayloadError as error:
                yield Move(entry, payload.invalid(entry, str(error), "default", now))
                continue
            queue = job.get("queue")
            if not isinstance(queue, str) or not queue:
                queue = "default"
            mended = mend(job)
            if len(self._host.client_middleware):
                yield self._through_middleware(entry, job, queue, stamp)
            elif mended:
                stored = payload.encode(job | {"enqueued_at": msgspec.json.decode(stamp)})
                yield Move(entry, stored, queue, effects=encoded(self._host.keys, job, "staged"))
            else:
                stored = entry[: entry.rindex(b"}")] + b',"enqueued_at":' + stamp + b"}"
                yield Move(entry, stored, queue, effects=encoded(self._host.keys, job, "staged"))

    def _through_middleware(self, entry: bytes, job: dict[str, Any], queue: str, stamp: bytes) -> Move:
        """As at a push: the chain may change the job. One that stops it, or fails, sends it to the dead set, told."""
        reached: list[dict[str, Any]] = []
        reason, kind = "a client middleware stopped this job when it became due", "PushStopped"
        try:
            compile_sync(self._host.client_middleware, reached.append)(job)
            if reached:
                final = reached[-1] | {"enqueued_at": msgspec.json.decode(stamp)}
                target = final.get("queue")
                effects = encoded(self._host.keys, final, "staged")
                name = target if isinstance(target, str) and target else queue
                return Move(entry, payload.encode(final), name, effects=effects)
        except Exception as error:  # the link is somebody else's code: its failure must not stop its neighbours
            self._host.events.emit("part_failed", part="client middleware", error=error)
            reason, kind = f"a client middleware failed when this job became due: {error}", type(error).__name__
        dead = _mended(entry)
        told = Told(detail={"error_class": kind, "message": reason})
        effects = encoded(self._host.keys, dead, "dead", told)
        stored = payload.encode(_told(dead, queue, kind, reason, stamp))
        return Move(entry, stored, effects=effects, batch=batch_of(dead))


def _mended(entry: bytes) -> dict[str, Any]:
    job = payload.decode(entry)
    mend(job)
    return job


def _told(job: dict[str, Any], queue: str, kind: str, reason: str, stamp: bytes) -> dict[str, Any]:
    """``job`` as it goes to the dead set, with the reason where people and Sidekiq's pages look for it."""
    told = {"queue": queue, "failed_at": msgspec.json.decode(stamp), "error_class": kind, "error_message": reason}
    return job | told | {"retry_count": job.get("retry_count", 0)}
