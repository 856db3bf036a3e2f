"""Acts on all jobs of a batch as operations: what gave up is pushed once more, what waits is cancelled. A batch may
have half a million jobs: whoever asks for it does not wait, sees how far it is, and may abort it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from henchman.batch import procedures
from henchman.batch.batch import find_batch
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError
from henchman.inspector.operations import Wish, sources, write_down
from henchman.inspector.operator import Carrier, OperationWork, Steps
from henchman.kernel.text import count
from henchman.store.call import next_page, run
from henchman.store.leases import ask_time
from henchman.store.operations import DOER_MS, OperationSlice, Turned

__all__ = ["CARRIERS", "BatchAct", "begin_on_batch", "concerned"]

BatchAct = Literal["retry", "cancel"]


def concerned(runtime: Runtime, batch: str, act: BatchAct) -> int:
    """How many jobs of a batch an act would concern now. UnknownBatch when there is none of this id, BatchError when
    the act cannot be done."""
    status = find_batch(runtime, batch).status()
    if act == "cancel":
        return status.total - status.done
    run(runtime.connections, procedures.may_retry(runtime, batch))
    return status.counts["error"]


def begin_on_batch(runtime: Runtime, author: str, batch: str, act: BatchAct, rate: float = 0.0) -> str:
    """Begin an operation on a batch: its number. ArgumentError when no job of it is concerned; as ``concerned``."""
    many = concerned(runtime, batch, act)
    if act == "retry" and not many:
        raise ArgumentError(f"nothing to {act} any more: no job of batch {batch} has given up")
    now = runtime.connections.run(ask_time(runtime.clock))
    return write_down(runtime, author, Wish(act, "batches", "", now, batch, rate=rate, planned=many))


def _on_all(work: OperationWork) -> Steps:
    """Begun anew by whoever goes on: what was done is not met again."""
    carry = _retry if work.one.wish.act == "retry" else _cancel
    while True:
        try:
            return (yield from carry(work))
        except Turned as turned:
            if turned.state not in ("LOST", "running") or not work.again():
                return


def _retry(work: OperationWork) -> Steps:
    """What gave up by the moment of the operation goes into its queues, slice by slice."""
    runtime, wish, stayed = work.runtime, work.one.wish, 0

    def part() -> OperationSlice:
        return OperationSlice(work.one.number, work.identity, work.name(), DOER_MS)

    work.begin()
    pages = procedures.retry_pages(runtime, wish.name, work.most, wish.frozen, part)
    while (statuses := run(runtime.connections, next_page(pages))) is not None:
        stayed += statuses.count(2)
        yield work.pause(len(statuses))
    work.end("running", "done", f"{count(stayed, 'job')} stayed dead" if stayed else "")


def _cancel(work: OperationWork) -> Steps:
    """First nothing starts any more; then what waits for its time or a retry goes, of the batch and those in it."""
    runtime, wish = work.runtime, work.one.wish
    work.begin()
    pages, stays = procedures.cancel_pages(runtime, wish.name, "cancelled"), list[str]()
    while (ids := run(runtime.connections, next_page(pages))) is not None:
        if not work.again():
            return
        yield 0.0
        for one in ids:
            for source in sources(runtime, Wish("cancel", "batches", "", wish.frozen, one)):
                if not (yield from work.through(source, stays)):
                    return
    work.end("running", "done", "")


CARRIERS: Final[Mapping[str, Carrier]] = {"batches": _on_all}
