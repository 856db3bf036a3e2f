"""Procedures of a batch: make, close, release, expire, pause, cancel, retry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from henchman.batch.options import BatchOptions, callback_fields
from henchman.client.runtime import Runtime
from henchman.errors import BatchError, PayloadError, UnknownBatch
from henchman.store import batches, history, jobs, pauses, queues
from henchman.store.call import Page, Pages, Procedure, command, next_page
from henchman.store.jobs import cancel_batch
from henchman.store.keys import Keys
from henchman.store.leases import ask_time
from henchman.store.operations import OperationSlice
from henchman.wire import times
from henchman.wire.deadlines import forgive_deadline
from henchman.wire.payload import LONGEST, decode, encode, seconds
from henchman.work.effects import EndingFacts, batch_of, encoded, step_effects
from henchman.work.locks import SaidNeed, lock_effects, said_needs
from henchman.work.waits import await_effect, need_names, states_of_needs, waits_again

__all__ = [
    "cancel",
    "cancel_pages",
    "close",
    "expire",
    "make",
    "may_retry",
    "pause",
    "release",
    "retry",
    "retry_pages",
    "unpause",
]

PAGE = 500
#: fields that a job loses when it is retried by hand: it begins anew
_SPENT = ("retry_count", "failed_at", "retried_at", "error_message", "error_class", "error_backtrace")


def make(
    runtime: Runtime, batch: str, options: BatchOptions, callbacks: Mapping[str, list[dict[str, Any]]]
) -> Procedure[float | None]:
    """Write down an open batch; the Unix time at which it expires.

    ``callbacks``: the jobs as the client middleware let them through. Where history is on for this app, the server
    keeps it from the first job on, though no recorder has run yet.
    """
    keys, expires = runtime.keys, None
    if options.expires is not None or options.atomic:  # steps of a workflow may have deadlines
        yield ask_time(runtime.clock)
    if options.expires is not None:
        expires = times.rounded(runtime.clock.now() + options.expires)
    if kept := runtime.config.history_kept():
        yield history.offer(keys, kept)
    fields = options.fields(expires)
    for which, reached in callbacks.items():
        for job in reached:
            fields |= callback_fields(which, job)
    yield batches.make(keys, batch, fields, options.record(expires))
    return expires


def close(keys: Keys, batch: str, why: str) -> Procedure[str]:
    """Close a batch; parked jobs are let go, into their queues if it ended well."""
    state: str = yield batches.close(keys, batch, why)
    yield from release(keys, batch)
    return state


def release(keys: Keys, batch: str) -> Procedure[None]:
    """Let parked jobs go, as the end of their batch says."""
    while (yield batches.release(keys, batch, PAGE)):
        pass


def expire(runtime: Runtime, batch: str) -> Procedure[None]:
    """Nothing of a batch starts any more: its time is over. What waits for its time, a retry, or a pause's end goes."""
    yield pauses.unpause(runtime.keys, batch)
    yield from close(runtime.keys, batch, "expired")
    for key in (runtime.keys.schedule, runtime.keys.retry):
        yield from _sweep(runtime, key, batch, "expired", "its batch had expired")


def pause(runtime: Runtime, batch: str, reason: str, by: str) -> Procedure[None]:
    """Let no job of a batch start any more, nor of those that are part of it, until they go on."""
    yield pauses.pause(runtime.keys, _known(batch), (yield from pauses.beginning(reason, by)))
    yield from _each_child(runtime.keys, batch, lambda child: pause(runtime, child, reason, by))


def unpause(runtime: Runtime, batch: str) -> Procedure[None]:
    """Let a batch go on, and those that are part of it."""
    yield pauses.unpause(runtime.keys, _known(batch))
    yield from _each_child(runtime.keys, batch, lambda child: unpause(runtime, child))


def _known(batch: str) -> str:
    """The id; UnknownBatch for one that no batch can have: it would name a class, or a tag."""
    if ":" in batch:
        raise batches.unknown(batch)
    return batch


def _each_child(keys: Keys, batch: str, act: Callable[[str], Procedure[None]]) -> Procedure[None]:
    """``act`` on every batch that is part of this one, as far as there is something to do."""
    pages = _children(keys, batch)
    while (some := (yield from next_page(pages))) is not None:
        for child in some:
            with suppress(BatchError):  # it is gone, or complete by now
                yield from act(child)


def _children(keys: Keys, batch: str) -> Pages[str]:
    """The ids of the batches that are part of this one and not complete, a step of a scan a page."""
    found: batches.Facts = yield batches.facts(keys, batch)
    cursor = -1 if found.facts.get("children", "0") != "0" else 0
    while cursor:
        cursor, members = yield batches.live(keys, batch, max(cursor, 0))
        yield Page([name.removeprefix("batch:") for name, status in members.items() if status == "child"])


def cancel_pages(runtime: Runtime, batch: str, why: str) -> Pages[str]:
    """Cancel a batch and those that are part of it, step by step; the ids of those that it is done with.

    First every process hears of it, so that nothing starts any more. Jobs in queues end when they are fetched; those
    that wait for their time or a retry have to be taken out of their sets.
    """
    keys = runtime.keys
    yield cancel_batch(keys, batch)
    state: str = yield batches.close(keys, batch, why)
    if state == "complete":
        return
    while (yield batches.release(keys, batch, PAGE)):
        yield Page()
    children = _children(keys, batch)
    while (some := (yield from next_page(children))) is not None:
        yield Page()
        for child in some:
            with suppress(UnknownBatch):  # it is gone: the auditor settles what its parent still counts
                yield from cancel_pages(runtime, child, why)
    yield Page([batch])


def cancel(runtime: Runtime, batch: str, why: str) -> Procedure[None]:
    """Cancel a batch and those that are part of it; what waits for its time or a retry goes at once."""
    pages = cancel_pages(runtime, batch, why)
    while (some := (yield from next_page(pages))) is not None:
        for one in some:
            for key in (runtime.keys.schedule, runtime.keys.retry):
                yield from _sweep(runtime, key, one, "cancelled", f"its batch was {why}")


def _sweep(runtime: Runtime, key: str, batch: str, ending: str, reason: str) -> Procedure[None]:
    """Take every job of ``batch`` out of a sorted set for good."""
    keys, config = runtime.keys, runtime.config
    facts, place, more = EndingFacts(detail={"reason": reason}), 0, True
    while more:
        call = queues.set_stretch(key, place, queues.SEARCHED, newest_first=True, text=batch)
        found: queues.Stretch = yield call
        more, moves = found.more, []
        for member in found.holding(batch):
            try:
                job = decode(member.payload)
            except PayloadError:
                continue
            if batch_of(job) == batch:
                effects = encoded(keys, job, ending, facts)
                moves.append(jobs.Move(member.payload, delete=True, effects=effects))
        place += found.step()
        if moves:
            statuses: list[int | bytes] = yield jobs.move(
                keys, key, moves, dead_max=config.dead_max, dead_timeout=config.dead_timeout
            )
            place = max(place - statuses.count(1) - statuses.count(jobs.EARLIER), 0)


def may_retry(runtime: Runtime, batch: str) -> Procedure[None]:
    """BatchError when jobs of a batch cannot be pushed once more now, UnknownBatch when there is none."""
    found: batches.Facts = yield batches.facts(runtime.keys, batch)
    if not found.facts:
        raise UnknownBatch(f"there is no batch {batch!r} on this server (any more)")
    why = found.facts.get("why", "")
    if why in ("cancelled", "invalidated", "expired") and found.facts["state"] != "complete":
        raise BatchError(f"batch {batch} was {why}, and some of its jobs have not ended yet: retry it when they have")


def retry(runtime: Runtime, batch: str) -> Procedure[int]:
    """Push every job of a batch that gave up once more, as if for the first time; how many."""
    pushed, pages = 0, retry_pages(runtime, batch)
    while (statuses := (yield from next_page(pages))) is not None:
        pushed += statuses.count(1)
    return pushed


def retry_pages(
    runtime: Runtime,
    batch: str,
    most: int = PAGE,
    before: float | None = None,
    part: Callable[[], OperationSlice] | None = None,
) -> Pages[int]:
    """Push the jobs of a batch that gave up once more, ``most`` at a time; of each what ``batches.retry`` says.
    ``before``: those that died by then; ``part``: names a slice of the operation that this is."""
    keys = runtime.keys
    yield from may_retry(runtime, batch)
    yield ask_time(runtime.clock)
    yield jobs.uncancel(keys, [f"batch:{batch}"])  # also one that was cancelled when it was complete
    dead = keys.batch(batch) + ":dead"
    left: int = yield command("ZCOUNT", dead, "-inf", "+inf" if before is None else repr(before), decode=int)
    kept = 0
    coming: set[tuple[str, str]] | None = None  # what the dead are waited for by
    while left > 0:
        page = (yield batches.dead(keys, batch, kept, min(most, left))).members
        if not page:
            break
        left -= len(page)
        found_jobs = [(member.payload, job) for member in page if (job := _readable(member.payload)) is not None]
        if coming is None and any(said_needs(job) for _, job in found_jobs):
            coming = yield from _coming(keys, batch, left + len(page))
        states = yield from states_of_needs(keys, [job for _, job in found_jobs])
        again = [_again(runtime, one, job, waits_again(job, states, coming or set())) for one, job in found_jobs]
        kept += len(page) - len(again)
        if again:
            yield jobs.uncancel(keys, [one.jid for one in again])
            named = {} if part is None else {"part": part()}
            statuses: list[int] = yield batches.retry(keys, batch, again, **named)
            kept += statuses.count(2)  # another job has the key
            yield Page(statuses)


def _readable(payload: bytes) -> dict[str, Any] | None:
    """None for what no worker can run: it stays with the dead."""
    try:
        return decode(payload)
    except PayloadError:
        return None


def _coming(keys: Keys, batch: str, many: int) -> Procedure[set[tuple[str, str]]]:
    """By what others wait for the dead jobs of a batch."""
    found, first = set[tuple[str, str]](), 0
    while first < many:
        page = (yield batches.dead(keys, batch, first, PAGE)).members
        if not page:
            break
        first += len(page)
        found |= need_names(job for member in page if (job := _readable(member.payload)) is not None)
    return found


def _again(runtime: Runtime, payload: bytes, job: dict[str, Any], waits: Sequence[SaidNeed]) -> batches.Retried:
    for name in _SPENT:
        job.pop(name, None)
    hm = job.get("hm")
    if isinstance(hm, dict) and (seconds(hm.get("batch_expires")) or LONGEST) < runtime.clock.now():
        hm.pop("batch_expires")  # a retry by hand now wants it to run
    forgive_deadline(job, runtime.clock.now())
    if not waits:
        job["enqueued_at"] = msgspec.json.decode(runtime.stamp(runtime.clock.now()))
    queue = job.get("queue")
    queue = queue if isinstance(queue, str) and queue else "default"
    effects: list[Any] = [*lock_effects(job, "revived", latest=False), *step_effects(job, "revived")]
    if waits:
        effects.append(await_effect(job, waits))
    text = msgspec.json.encode(effects) if effects else b""
    return batches.Retried(str(job.get("jid", "")), queue, payload, encode(job), text)
