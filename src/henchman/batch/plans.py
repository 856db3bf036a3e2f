"""Procedures of a batch: close, release, expire, cancel, retry."""

from __future__ import annotations

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import BatchError, PayloadError, UnknownBatch
from henchman.store import batches, jobs, queues
from henchman.store.call import command
from henchman.store.jobs import cancel_batch
from henchman.store.keys import Keys
from henchman.store.leases import ask_time
from henchman.store.procedure import Procedure
from henchman.wire.numbers import LONGEST, seconds
from henchman.wire.payload import decode, encode
from henchman.work.effects import EndingFacts, batch_of, encoded

__all__ = ["cancel", "close", "expire", "release", "retry"]

PAGE = 500
#: what a job that is tried again by hand does not carry over: it begins anew
_SPENT = ("retry_count", "failed_at", "retried_at", "error_message", "error_class", "error_backtrace")


def close(keys: Keys, batch: str, why: str) -> Procedure[str]:
    """Close a batch; parked jobs are let go, into their queues if it ended well."""
    state: str = yield batches.close(keys, batch, why)
    yield from release(keys, batch)
    return state


def release(keys: Keys, batch: str) -> Procedure[None]:
    """Let parked jobs go, as the end of their batch says."""
    while (yield batches.release(keys, batch, PAGE)):
        pass


def expire(desk: Runtime, batch: str) -> Procedure[None]:
    """Nothing of a batch starts any more, its time is over; what waits for its time or a retry is taken out here."""
    yield from close(desk.keys, batch, "expired")
    for key in (desk.keys.schedule, desk.keys.retry):
        yield from sweep(desk, key, batch, "expired", "its batch had expired")


def cancel(desk: Runtime, batch: str, why: str) -> Procedure[None]:
    """Cancel a batch and those that are part of it.

    First everybody is told, so that nothing starts any more; what waits in queues ends when it is fetched. What waits
    for its time, or for a retry, is taken out here.
    """
    keys = desk.keys
    yield cancel_batch(keys, batch)
    state: str = yield batches.close(keys, batch, why)
    if state == "complete":
        return
    yield from release(keys, batch)
    told = yield batches.facts(keys, batch)
    if told.facts.get("children", "0") != "0":
        for child in (yield from _children(keys, batch)):
            try:
                yield from cancel(desk, child, why)
            except UnknownBatch:
                continue  # it is gone: the auditor settles what its parent still counts
    for key in (keys.schedule, keys.retry):
        yield from sweep(desk, key, batch, "cancelled", f"its batch was {why}")


def _children(keys: Keys, batch: str) -> Procedure[list[str]]:
    found: list[str] = []
    cursor = -1
    while cursor:
        cursor, members = yield batches.live(keys, batch, max(cursor, 0))
        found += [name.removeprefix("batch:") for name, status in members.items() if status == "child"]
    return found


def sweep(desk: Runtime, key: str, batch: str, ending: str, reason: str) -> Procedure[int]:
    """Take every job of ``batch`` out of a sorted set for good; how many those were."""
    keys, config = desk.keys, desk.config
    told = EndingFacts(detail={"reason": reason})
    swept, cursor = 0, -1
    while cursor:
        found: queues.Scanned = yield queues.set_scan(key, max(cursor, 0), batch)
        cursor = found.cursor
        moves = []
        for member in found.members:
            try:
                job = decode(member.payload)
            except PayloadError:
                continue
            if batch_of(job) == batch:
                effects = encoded(keys, job, ending, told)
                moves.append(jobs.Move(member.payload, delete=True, effects=effects))
        if moves:
            statuses = yield jobs.move(keys, key, moves, dead_max=config.dead_max, dead_timeout=config.dead_timeout)
            swept += statuses.count(1)
    return swept


def retry(desk: Runtime, batch: str) -> Procedure[int]:
    """Push every job of a batch that gave up once more, as if for the first time; how many."""
    keys = desk.keys
    told: batches.Facts = yield batches.facts(keys, batch)
    if not told.facts:
        raise UnknownBatch(f"there is no batch {batch!r} on this server (any more)")
    yield ask_time(desk.clock)
    why = told.facts.get("why", "")
    if why in ("cancelled", "invalidated", "expired") and told.facts["state"] != "complete":
        raise BatchError(f"batch {batch} was {why}, and some of its jobs have not ended yet: retry it when they have")
    yield jobs.uncancel(keys, [f"batch:{batch}"])  # also one that was cancelled when it was complete
    left: int = yield command("ZCARD", keys.batch(batch) + ":dead", decode=int)
    pushed = kept = 0
    while left > 0:
        page = (yield batches.dead(keys, batch, kept, min(PAGE, left))).members
        if not page:
            break
        left -= len(page)
        again = [one for one in (_again(desk, member.payload) for member in page) if one is not None]
        kept += len(page) - len(again)
        if again:
            yield jobs.uncancel(keys, [one.jid for one in again])
            pushed += yield batches.retry(keys, batch, again)
    return pushed


def _again(desk: Runtime, payload: bytes) -> batches.Retried | None:
    try:
        job = decode(payload)
    except PayloadError:
        return None  # nobody can run it: it stays with the dead
    for name in _SPENT:
        job.pop(name, None)
    hm = job.get("hm")
    if isinstance(hm, dict) and (seconds(hm.get("batch_expires")) or LONGEST) < desk.clock.now():
        hm.pop("batch_expires")  # who asks for it now wants it to run
    job["enqueued_at"] = msgspec.json.decode(desk.stamp(desk.clock.now()))
    queue = job.get("queue")
    queue = queue if isinstance(queue, str) and queue else "default"
    return batches.Retried(str(job.get("jid", "")), queue, payload, encode(job))
