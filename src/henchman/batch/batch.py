"""A batch: jobs under one id, counted by the server itself as they end; and how it stands."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar, overload

import msgspec

from henchman.batch import options as batch_options
from henchman.batch import procedures
from henchman.batch import results as batch_results
from henchman.batch.options import BatchOptions
from henchman.batch.results import BatchResult
from henchman.batch.step_states import StepState, step_states
from henchman.client.job import AnyRows, AsyncJob, Pushable, Row, Using
from henchman.client.options import Membership, within
from henchman.client.push import Pushed
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, BatchError, HenchmanError, UnknownBatch
from henchman.kernel.text import as_shown
from henchman.store import batches
from henchman.store.call import Procedure, aiterate, arun, iterate, run
from henchman.store.queues import Pause, read_pause

__all__ = ["FINAL", "LIVE", "Batch", "BatchStatus", "ProducerLeases", "Reason", "find_batch", "new_batch", "status_of"]

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

PAGE = 1000  # events of history


class Batch:
    """One batch, as ``app.batch(…)`` makes it and ``app.get_batch(id)`` finds it.

    ``with batch:`` (or ``async with``) opens it, lets every job that is enqueued inside belong to it, and closes it; an
    exception closes it as aborted and keeps what was pushed. Each method that talks to the server also exists awaited,
    with an ``a`` before its name. Pushes raise BatchClosed when it takes no more jobs; everything raises UnknownBatch
    when the server knows no batch of this id (any more).
    """

    def __init__(self, runtime: Runtime, membership: Membership, options: BatchOptions | None = None) -> None:
        self.membership = membership
        self._runtime = runtime
        self._options = options  # None: the server knows this batch
        self._tokens: list[Token[Membership | None]] = []

    def __repr__(self) -> str:
        return f"<batch {self.id}>"

    @property
    def id(self) -> str:
        """What ``app.get_batch`` and ``app.batch_status`` find it by; nobody can guess it."""
        return self.membership.id

    def open(self) -> Self:
        """Make it known to the server. Nothing happens when it is; BatchClosed when its parent takes nothing more."""
        if self._options is not None:
            jobs = batch_options.callbacks(self._runtime, self._options, self.id)
            self._run(self._open({which: self._runtime.client.through([job]) for which, job in jobs.items()}))
        return self

    async def aopen(self) -> Self:
        """``open``, awaited."""
        if self._options is not None:
            jobs = batch_options.callbacks(self._runtime, self._options, self.id)
            client = self._runtime.client
            await self._arun(self._open({which: await client.athrough([job]) for which, job in jobs.items()}))
        return self

    def add(self, job: Pushable[P], rows: Iterable[Row[P]]) -> Pushed:
        """Push one job for each row, as ``job.enqueue_many``; rows are read as they are pushed, never all at once."""
        pushed: Pushed = job.using(batch=self).enqueue_many(rows)
        return pushed

    async def aadd(self, job: Pushable[P], rows: AnyRows[Row[P]]) -> Pushed:
        """``add``, awaited; ``rows`` may be an async iterator."""
        pushed: Pushed = await job.using(batch=self).aenqueue_many(rows)
        return pushed

    def close(self) -> None:
        """No more jobs: it is complete when all that it has are settled. Parked jobs go into their queues."""
        self._run(self._close(""))

    async def aclose(self) -> None:
        """``close``, awaited."""
        await self._arun(self._close(""))

    def pause(self, reason: str = "", *, by: str = "") -> None:
        """Nothing of it starts any more, on any worker, until ``unpause``; what runs goes on to its end.

        A job whose turn comes meanwhile is taken out of its queue and waits (``blocked``): jobs of others behind it go
        on. Batches that are part of it are paused too. ``reason`` (up to 200 characters) and ``by`` are shown to
        whoever asks. ArgumentError for a longer one; BatchError when it is complete.
        """
        self._run(procedures.pause(self._runtime, self.id, reason, by))

    async def apause(self, reason: str = "", *, by: str = "") -> None:
        """``pause``, awaited."""
        await self._arun(procedures.pause(self._runtime, self.id, reason, by))

    def unpause(self) -> None:
        """It goes on: the jobs that wait go to the ends of their queues. Nothing happens when it is not paused."""
        self._run(procedures.unpause(self._runtime, self.id))

    async def aunpause(self) -> None:
        """``unpause``, awaited."""
        await self._arun(procedures.unpause(self._runtime, self.id))

    def cancel(self) -> None:
        """Waiting jobs never start, running ones hear of it; ``on_complete`` is called when all are settled.

        Batches that are part of it are cancelled too.
        """
        self._run(procedures.cancel(self._runtime, self.id, "cancelled"))

    async def acancel(self) -> None:
        """``cancel``, awaited."""
        await self._arun(procedures.cancel(self._runtime, self.id, "cancelled"))

    def invalidate(self) -> None:
        """As ``cancel``, and shown as invalidated: what it did is not wanted any more. ``on_success`` is not called."""
        self._run(procedures.cancel(self._runtime, self.id, "invalidated"))

    async def ainvalidate(self) -> None:
        """``invalidate``, awaited."""
        await self._arun(procedures.cancel(self._runtime, self.id, "invalidated"))

    def retry(self, status: Literal["error"] = "error") -> int:
        """Push the jobs that gave up once more, as if for the first time; how many. A complete batch opens its next
        generation, in which every callback may be called again."""
        return self._run(self._retry(status))

    async def aretry(self, status: Literal["error"] = "error") -> int:
        """``retry``, awaited."""
        return await self._arun(self._retry(status))

    def status(self) -> BatchStatus:
        """How it stands now: counts, progress, the most frequent reasons of failures. One look, whatever its size."""
        return self._run(self._status())

    async def astatus(self) -> BatchStatus:
        """``status``, awaited."""
        return await self._arun(self._status())

    def events(self, status: str | Sequence[str] | None = None) -> Iterator[Any]:
        """What became of each of its jobs, from history; see ``App.batch_events``."""
        reading = self._runtime.open_history().reading  # HistoryError now, not at the first event

        def pages() -> Iterator[Any]:
            after: int | None = 0
            while after is not None:
                page = reading.events(self.id, status, after=after, limit=PAGE)
                yield from page.events
                after = page.after

        return pages()

    async def aevents(self, status: str | Sequence[str] | None = None) -> AsyncIterator[Any]:
        """``events``, for ``async for``."""
        reading, after = self._runtime.open_history().reading, 0
        while after is not None:
            page = await reading.aevents(self.id, status, after=after, limit=PAGE)
            for one in page.events:
                yield one
            after = page.after

    @overload
    def results(self, job: None = None) -> Iterator[BatchResult[Any]]: ...
    @overload
    def results(self, job: AsyncJob[Any, R]) -> Iterator[BatchResult[R]]: ...
    @overload
    def results(self, job: Using[Any, R]) -> Iterator[BatchResult[R]]: ...
    def results(self, job: Any = None) -> Iterator[BatchResult[Any]]:
        """What became of each row, in the order in which the rows were pushed; of a batch made with ``results=True``.

        Nothing is left out: a row whose job failed, was cancelled or has not ended says so in ``status``, and raises
        when its ``value`` is asked for. ``job``: only its rows, typed by its return annotation. Rows are read as the
        loop goes on, a thousand or 4 MB at a time. Raises BatchError when the batch keeps no results.
        """
        return iterate(self._runtime.connections, batch_results.results(self._runtime, self.id, job))

    @overload
    def aresults(self, job: None = None) -> AsyncIterator[BatchResult[Any]]: ...
    @overload
    def aresults(self, job: AsyncJob[Any, R]) -> AsyncIterator[BatchResult[R]]: ...
    @overload
    def aresults(self, job: Using[Any, R]) -> AsyncIterator[BatchResult[R]]: ...
    def aresults(self, job: Any = None) -> AsyncIterator[BatchResult[Any]]:
        """``results``, for ``async for``."""
        return aiterate(self._runtime.aconnections, batch_results.results(self._runtime, self.id, job))

    def steps(self) -> list[StepState]:
        """Each step of a workflow as it stands now, in the order in which they were pushed: its name, job, jid, status,
        and what it waits for. The first 10,000; nothing of a batch that is no workflow."""
        return self._run(self._step_states())

    async def asteps(self) -> list[StepState]:
        """``steps``, awaited."""
        return await self._arun(self._step_states())

    def __enter__(self) -> Self:
        self.open()
        self._tokens.append(within.set(self.membership))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._leave(error))

    async def __aenter__(self) -> Self:
        await self.aopen()
        self._tokens.append(within.set(self.membership))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._arun(self._leave(error))

    def _open(self, callbacks: Mapping[str, list[dict[str, Any]]]) -> Procedure[None]:
        """``callbacks``: the jobs as the client middleware let them through; no job where a link stopped it."""
        options, runtime = self._options, self._runtime
        if options is None:
            raise BatchError(f"batch {self.id} is opened twice at once")
        self.membership.expires = yield from procedures.make(runtime, self.id, options, callbacks)
        self._options = None
        leases.hold(runtime, self.id)

    def _leave(self, error: BaseException | None) -> Procedure[None]:
        """Close it at the end of its block; an error of the block goes before one of the closing."""
        within.reset(self._tokens.pop())
        try:
            yield from self._close("aborted" if error is not None else "")
        except Exception as problem:
            if error is None:
                raise
            error.add_note(f"batch {self.id} could not be closed as aborted: {problem!r}")

    def _close(self, why: str) -> Procedure[None]:
        if not why:
            self._runtime.client.check_closing(self.id)
        leases.let_go(self.id)
        yield from procedures.close(self._runtime.keys, self.id, why)

    def _retry(self, status: str) -> Procedure[int]:
        if status != "error":
            raise ArgumentError(
                f"retry(status={status!r}): only jobs that gave up ('error') are kept to be tried again"
            )
        return procedures.retry(self._runtime, self.id)

    def _status(self) -> Procedure[BatchStatus]:
        return status_of(self.id, (yield batches.facts(self._runtime.keys, self.id)))

    def _step_states(self) -> Procedure[list[StepState]]:
        found, _ = yield from step_states(self._runtime.keys, self.id)
        if not found:
            yield from self._status()  # is it known at all?
        return found

    def _run(self, procedure: Procedure[T]) -> T:
        return run(self._runtime.connections, procedure)

    async def _arun(self, procedure: Procedure[T]) -> T:
        return await arun(self._runtime.aconnections, procedure)


def new_batch(runtime: Runtime, description: str, **options: Any) -> Batch:
    """A batch that is not open yet; DefinitionError says what is wrong with ``options``."""
    checked = batch_options.checked(description, **options)
    membership = Membership(secrets.token_hex(16), atomic=checked.atomic, results=checked.results)
    batch_options.callbacks(runtime, checked, membership.id)  # refused here, not when the first row has been read
    return Batch(runtime, membership, checked)


def find_batch(
    runtime: Runtime, batch: str, member: str = "", expires: float | None = None, results: bool = False
) -> Batch:
    """The batch of this id, wherever it was made; nothing is asked yet. ``member``: the jid of a running job of it,
    which knows whether it ``expires`` and keeps ``results``."""
    if not isinstance(batch, str) or not 0 < len(batch) <= 100 or not batch.isprintable():
        raise ArgumentError(f"get_batch({as_shown(batch, 100)}): give the id of a batch")
    return Batch(runtime, Membership(batch, member=member, expires=expires, results=results, known=bool(member)))


class ProducerLeases:
    """The batches of all apps that this process fills. One thread renews their leases; when the process dies, they show
    as abandoned half a minute later. A forked child fills none of its parent's."""

    RENEW = batches.PRODUCER_MS / 3000  # seconds

    def __init__(self) -> None:
        self._start_empty()
        os.register_at_fork(after_in_child=self._start_empty)

    def _start_empty(self) -> None:
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._filled: dict[str, Runtime] = {}
        self._thread: threading.Thread | None = None

    def hold(self, runtime: Runtime, batch: str) -> None:
        """Renew the lease of ``batch`` from now on."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._body, name="henchman-batches", daemon=True)
                thread.start()  # which the system may refuse: then nobody holds it
                self._thread = thread
            self._filled[batch] = runtime

    def let_go(self, batch: str) -> None:
        """Renew it no more."""
        with self._lock:
            self._filled.pop(batch, None)
            if not self._filled:
                self._bell.set()  # the thread has nothing to do any more, and ends

    def renew(self) -> None:
        """Renew every lease now; where the server is away, the next renewal does."""
        with self._lock:
            by_app: dict[int, tuple[Runtime, list[str]]] = {}
            for batch, runtime in self._filled.items():
                by_app.setdefault(id(runtime), (runtime, []))[1].append(batch)
        for runtime, names in by_app.values():
            try:
                self._renew(runtime, names)
            except HenchmanError:
                continue

    def _renew(self, runtime: Runtime, names: Sequence[str]) -> None:
        """A lease that had run out (the server was away, or its clock went forward) is taken again while the batch is
        open; one that another process closed is filled no more."""
        keys, send = runtime.keys, runtime.connections.run
        lapsed = send(batches.renew_producer(keys, names))
        if lapsed:
            states: list[str] = send(batches.states(keys, lapsed))
            still_open = [name for name, state in zip(lapsed, states, strict=True) if state == "open"]
            if still_open:
                send(batches.take_producer(keys, still_open))
            for name in set(lapsed).difference(still_open):
                self.let_go(name)

    def _body(self) -> None:
        while True:
            self._bell.wait(self.RENEW)
            with self._lock:
                self._bell.clear()
                if not self._filled:
                    self._thread = None
                    return
            self.renew()


leases = ProducerLeases()


# --- how a batch stands -----------------------------------------------------------------------------------------------

LIVE = ("blocked", "scheduled", "enqueued", "working", "retrying")
FINAL = ("finished", "failed", "error", "cancelled", "expired")


class Reason(msgspec.Struct, frozen=True):
    """Why jobs failed: ``status`` is failed or error, ``count`` how many said the same."""

    status: str
    reason: str
    count: int


class BatchStatus(msgspec.Struct, frozen=True):
    """A batch as it stands now. Times are Unix seconds, durations seconds; None: not yet, or not known.

    ``state``: "open" (jobs may come), "abandoned" (open, but whoever filled it is gone), "closed", "complete".
    ``why``: "" or aborted, cancelled, expired, invalidated. ``counts``: jobs by status; ``done``: those that ended.
    ``rate``: jobs that ended a second, since the first did. ``eta``: seconds until all have, at that rate, of a batch
    that gets no more. ``children``: batches that are part of it, ``bad_children``: those of them that are complete and
    did not end well. ``reasons``: the most frequent first. ``called``: callbacks that were enqueued, by the generation
    in which. ``paused``: since when, by whom and why no job of it starts; None: it is not paused.
    """

    id: str
    description: str
    tags: list[str]
    state: str
    why: str
    total: int
    counts: dict[str, int]
    done: int
    percent: float
    rate: float
    eta: float | None
    generation: int
    children: int
    bad_children: int
    parent: str | None
    created: float
    closed: float | None
    completed: float | None
    expires: float | None
    reasons: list[Reason]
    called: dict[str, list[int]]
    paused: Pause | None = None

    @property
    def well(self) -> bool:
        """Whether it is complete, and every job and every batch in it ended well: ``on_success`` is called then."""
        fine = not self.why and not self.bad_children and self.counts["finished"] == self.total
        return fine and self.state == "complete"

    @property
    def failures(self) -> list[Reason]:
        """``reasons``, as they are called in the design."""
        return self.reasons

    @property
    def failed(self) -> int:
        """How many ended badly: failed, error."""
        return self.counts["failed"] + self.counts["error"]


def _time(text: str | None) -> float | None:
    return float(text) if text else None


def status_of(batch: str, found: batches.Facts) -> BatchStatus:
    """The status in what the server keeps of a batch; UnknownBatch when it keeps nothing."""
    facts = found.facts
    if not facts:
        raise UnknownBatch(f"there is no batch {batch!r} on this server (any more)")
    counts = {status: int(facts.get(f"n:{status}", 0)) for status in (*LIVE, *FINAL)}
    done = sum(counts[status] for status in FINAL)
    total = int(facts.get("total", 0))
    state, completed = facts["state"], _time(facts.get("completed"))
    first = _time(facts.get("first"))
    spent = (completed or found.now) - first if first is not None else 0.0
    rate = done / max(spent, 0.001) if done else 0.0
    reasons = [Reason(*name.partition(" ")[::2], count) for name, count in found.reasons.items()]
    return BatchStatus(
        id=batch,
        description=facts.get("description", ""),
        tags=msgspec.json.decode(facts.get("tags") or "[]", type=list[str]),
        state="abandoned" if state == "open" and not found.filled else state,
        why=facts.get("why", ""),
        total=total,
        counts=counts,
        done=done,
        percent=100.0 * done / total if total else (100.0 if state == "complete" else 0.0),
        rate=rate,
        eta=(total - done) / rate if state == "closed" and rate else None,
        generation=int(facts.get("generation", 1)),
        children=int(facts.get("children", 0)),
        bad_children=int(facts.get("bad_children", 0)),
        parent=facts.get("parent") or None,
        created=float(facts["created"]),
        closed=_time(facts.get("closed")),
        completed=completed,
        expires=_time(facts.get("expires")),
        reasons=sorted(reasons, key=lambda one: (-one.count, one.status, one.reason)),
        called=_called(facts),
        paused=read_pause(facts["paused"].encode()) if "paused" in facts else None,
    )


def _called(facts: Mapping[str, str]) -> dict[str, list[int]]:
    called: dict[str, list[int]] = {}
    for name in facts:
        if name.startswith("called:"):
            which, _, generation = name.removeprefix("called:").rpartition(":")
            called.setdefault(which, []).append(int(generation))
    return {which: sorted(generations) for which, generations in sorted(called.items())}
