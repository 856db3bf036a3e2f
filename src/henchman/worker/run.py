"""One run of one job: what ``current_job()`` answers from, and what it says while it runs.

The reporter carries what tracked jobs say to the server, ahead of their ends: messages, progress and starts. It reports
a start when the run has lasted a while; the end of a shorter run tells when it began. It drops and counts the oldest
messages when they come faster than it can send them; of progress it sends only the latest.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import msgspec

from henchman.client.registry import Definition
from henchman.client.runtime import Runtime
from henchman.config.defaults import timeouts_of
from henchman.errors import ArgumentError, HenchmanError, ServerAway
from henchman.kernel.events import Events
from henchman.kernel.middleware import Chain, compile_async, compile_sync, in_thread
from henchman.store import batches
from henchman.store.call import command
from henchman.store.keys import Keys
from henchman.wire import payload, times
from henchman.wire.arguments import Signature
from henchman.wire.deadlines import deadline_of
from henchman.wire.secret import NO_SECRETS, Secrets, marked, places_of
from henchman.work import checkpoint
from henchman.work.effects import EndingFacts, attempt_of, batch_of, encoded, keeps_result
from henchman.work.limits import check_spent
from henchman.work.locks import needs_of
from henchman.work.steps import NO_RESULTS, StepResults
from henchman.work.unit import Unit

__all__ = ["TINY", "CompiledJob", "JobReporter", "Run", "Slot", "secrets_of", "task_name"]

LASTED = 0.05  # seconds after which a run is written down as started
SAID = 0.1  # seconds that words wait for company
AWAY = 0.5  # seconds between two tries while the server is away
MOST = 10_000  # words that wait
CHUNK = 500  # notes in one call
_TEXT = 10_000  # characters of one message


class Run(msgspec.Struct, eq=False):
    """A unit of work whose job is known, ready to start or started. Fits ``CurrentJob``."""

    unit: Unit
    compiled: CompiledJob
    args: Sequence[Any]
    kwargs: dict[str, Any]
    jid: str
    timeout: float | None
    started: float = 0.0
    started_at: float = 0.0
    deadline: float | None = None
    cancelled: bool = False
    stopping: bool = False
    abandoned: bool = False
    ended: bool = False  # its outcome is on its way to the server
    released: bool = False
    struck: type[BaseException] | None = None
    late: Callable[[], None] | None = None  # raises what could not be raised yet, where that is safe
    task: Any = None  # of the event loop; of an isolated run its process
    pool: Any = None  # that it has a slot of, of an async run
    expires: float | None = None
    until: float | None = None  # the server's time at which its job is over, and, once it starts, ``ends``:
    ends: float | None = None  # the same by ``time.monotonic()``
    batch_id: str = ""
    batch_expires: float | None = None
    tracked: bool = False  # its life is written down
    keeps: bool = False  # what it returns is kept
    hidden: Secrets | None = None  # what ``secrets`` found

    @classmethod
    def of(
        cls, unit: Unit, job: dict[str, Any], compiled: CompiledJob, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Self:
        """The run of ``unit``, whose ``job`` was read."""
        if unit.job is not job:
            unit.job = job
        run = cls(unit, compiled, args, kwargs, job.get("jid") or "", compiled.timeout)
        if compiled.is_limited or "hm" in job:
            run._apply_limits(job)
        return run

    def __repr__(self) -> str:
        return f"<run of {self.compiled.name} {self.jid}>"

    def _apply_limits(self, job: dict[str, Any]) -> None:
        """Time-out, expiry and deadline: what the push said goes before what definition, queue and app say."""
        said = job.get("hm")
        limits = said if isinstance(said, dict) else {}
        timeout = payload.seconds(limits.get("timeout"))
        if timeout is None:
            timeout = self.compiled.timeouts.get(self.unit.flight.queue, self.timeout)
        self.timeout = timeout if timeout and timeout > 0 else None
        expires = payload.seconds(limits.get("expires", self.compiled.expires))
        if expires is not None and self.due:
            self.expires = self.due + expires
        if "deadline" in limits and (until := deadline_of(job)) is not None:
            self.until, self.expires = until, until if self.expires is None else self.expires
        if "batch" in limits or "track" in limits or "result_ttl" in limits:
            self._read_tracking(limits)

    def _read_tracking(self, hm: dict[str, Any]) -> None:
        self.batch_id = batch_of(self.unit.job)
        self.tracked = bool(self.batch_id) or hm.get("track") is True
        self.keeps = self.tracked or "result_ttl" in hm
        self.batch_expires = payload.seconds(hm.get("batch_expires"))
        if self.batch_expires is not None:
            self.expires = min(self.batch_expires, payload.LONGEST if self.expires is None else self.expires)

    @property
    def due(self) -> float:
        """The Unix time at which it was enqueued, 0.0 when its payload does not say so."""
        return times.read(self.unit.job.get("enqueued_at")) or times.read(self.unit.job.get("created_at")) or 0.0

    @property
    def queue(self) -> str:
        """The queue it was fetched from."""
        return self.unit.flight.queue

    @property
    def attempt(self) -> int:
        """1 in the first run, 2 in the first retry."""
        return attempt_of(self.unit.job)

    @property
    def token(self) -> int | None:
        """Of an ordered claim, or a job with a key: rises with each start."""
        return None if self.unit.claim is None else self.unit.claim.token

    @property
    def payload(self) -> dict[str, Any]:
        """The job as stored, decoded: a copy of its own."""
        if self.unit.source is not None:
            return dict(self.unit.job)
        return payload.decode(self.unit.newest)  # whatever is done to it: the end of this job is found from our own

    @property
    def name(self) -> str:
        """The job's name on the wire."""
        return self.compiled.name

    @property
    def elapsed(self) -> float:
        """Seconds since it started."""
        return time.monotonic() - self.started if self.started else 0.0

    @property
    def by_deadline(self) -> bool:
        """Whether what ends it is the deadline of its job, and not its own time-out."""
        return self.ends is not None and self.deadline is not None and self.deadline >= self.ends - 0.001

    @property
    def batch(self) -> Any:
        """The batch that it is a member of, to add to; None outside of one."""
        if not self.batch_id:
            return None
        return self.compiled.open_batch(self.batch_id, self.jid, self.batch_expires, keeps_result(self.unit.job), "")

    @property
    def results(self) -> StepResults:
        """What the steps returned whose results it takes; see ``step_run.py``."""
        return NO_RESULTS

    @property
    def needs(self) -> dict[str, str]:
        """What became of each job that it waited for."""
        return needs_of(self.unit.job)

    @property
    def secrets(self) -> Secrets:
        """What must not be shown of its secret arguments: of those that its job calls so, or its payload."""
        if self.hidden is None:
            signature = self.compiled.signature
            if not signature.secret and ("hm" not in self.unit.job or not places_of(self.unit.job)):
                self.hidden = NO_SECRETS
                return NO_SECRETS
            calls = [(self.args, self.kwargs)]
            with contextlib.suppress(HenchmanError):  # read anew: the job may have emptied the values that it was given
                job = payload.decode(self.unit.payload)
                args, kwargs = job.get("args") or [], job.get("kwargs") or {}
                calls += [(args, kwargs), signature.decode(args, kwargs)]
            self.hidden = secrets_of(signature, self.unit.job, *calls)
        return self.hidden

    @property
    def records(self) -> Sequence[str]:
        """The jids under which history hears what it says: its own, of an ordered claim those of its payloads."""
        if self.unit.claim is not None:
            jids: list[str] = self.unit.claim.records
            return jids
        return (self.jid,) if self.tracked else ()

    def checkpoint(self, state: Any) -> None:
        """Keep ``state`` for a later run of this job."""
        checkpoint.save(self.compiled.runtime, self.unit, self.jid, self.name, state)

    async def acheckpoint(self, state: Any) -> None:
        """``checkpoint``, awaited."""
        await in_thread(self.checkpoint, state)

    def last_checkpoint(self) -> Any:
        """What was kept last; None when nothing was."""
        return checkpoint.load(self.compiled.runtime, self.unit, self.jid, self.name)

    async def alast_checkpoint(self) -> Any:
        """``last_checkpoint``, awaited."""
        return await in_thread(self.last_checkpoint)

    def spent(self, points: int) -> None:
        """How many points of its limits this run took."""
        self.unit.spent = check_spent(self.unit.job, points)

    def log(self, message: str) -> None:
        """Write ``message`` to the log with the job's id and class; of a tracked job also into history."""
        message = self.secrets.hide(str(message)) if self.secrets else message
        self.compiled.events.emit("job_log", run=self, message=message)
        if self.compiled.reporter is not None:
            self.compiled.reporter.log(self, message)

    def progress(self, done: float, total: float | None = None) -> None:
        """Of a tracked job: how far it is, for history and those who watch."""
        for value in (done, total):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ArgumentError(f"progress({done!r}, {total!r}): give numbers")
        if self.compiled.reporter is not None:
            self.compiled.reporter.progress(self, done, total)


def task_name(run: Run) -> str:
    """The name of a run's task, in stacks."""
    return f"{run.compiled.name} {run.jid}"


def secrets_of(signature: Signature, job: Mapping[str, Any], *calls: tuple[Sequence[Any], dict[str, Any]]) -> Secrets:
    """What must not be shown of ``calls`` of ``job``, by what the signature and the payload say."""
    places = places_of(job)
    found = signature.secrets(*calls)
    return found | Secrets.of([one for call in calls for one in marked(places, *call)]) if places else found


class Slot:
    """Where a thread runs its jobs. ``lock`` guards the moment at which a run is left.

    Whoever wants to raise something in the thread does it under ``lock`` and only while ``run`` is the run it means.
    """

    __slots__ = ("lock", "name", "place", "run", "thread_id", "wake")

    def __init__(self, name: str, place: int) -> None:
        self.name = name
        self.place = place
        self.lock = threading.Lock()
        self.wake = threading.Lock()  # held while there is nothing to run: releasing it wakes the thread
        self.wake.acquire()
        self.run: Run | None = None
        self.thread_id = 0


TINY = 0.0002  # seconds; jobs cheaper than this are not worth a second thread


def _no_batch(*facts: Any) -> None:
    """Where there is no server, a job is in no batch."""


class CompiledJob:
    """What a process knows of one job. ``cost``: the usual seconds of a run (a running median), None before the first.

    ``hears_cancel``: a cancelled run starts all the same and ends by itself, and its task is not cancelled.
    ``iterable``: where it stands is kept apart, and removed with the job.
    ``isolated``: a run has a process of its own, which ``call`` drives from a thread, also that of an async job.
    ``timeouts``: by queue, where one says something else. ``is_limited``: its runs have limits of their own.
    ``ack_each``: a run is settled in a call of its own, before its slot is free.
    ``reporter``: carries what its tracked runs say. ``open_batch(id, jid, expires, results)``: the batch of
    a run.
    ``runtime``: where checkpoints are kept. ``taking``: the same for steps that take results, see ``step_run.py``.
    ``call(run)`` runs the job within the middleware; for an async job it is awaited.
    """

    __slots__ = (
        "ack_each",
        "call",
        "cost",
        "definition",
        "events",
        "expires",
        "hears_cancel",
        "is_async",
        "is_limited",
        "isolated",
        "iterable",
        "name",
        "open_batch",
        "reporter",
        "runtime",
        "signature",
        "taking",
        "timeout",
        "timeouts",
    )

    def __init__(
        self,
        definition: Definition,
        middleware: Chain,
        events: Events,
        reporter: JobReporter | None = None,
        open_batch: Callable[..., Any] = _no_batch,
        runtime: Any = None,
        isolation: Callable[[Any], Any] | None = None,
    ) -> None:
        self.definition = definition
        self.name = definition.name
        self.isolated = isolation is not None
        self.is_async = definition.is_async and isolation is None
        self.hears_cancel = definition.hears_cancel
        self.signature = definition.signature
        said = definition.options.timeout
        self.timeout, self.timeouts = (said or None, {}) if runtime is None else timeouts_of(runtime.config, said)
        self.expires = definition.options.expires
        self.is_limited = self.expires is not None or bool(self.timeouts)
        self.iterable = definition.options.iterable
        self.ack_each = definition.options.ack == "each"
        self.events = events
        self.cost: float | None = None
        self.reporter = reporter
        self.open_batch = open_batch
        self.runtime = runtime
        self.call: Callable[[Any], Any] = isolation or self._compiled(middleware)
        self.taking: CompiledJob | None = None

    def _compiled(self, middleware: Chain) -> Callable[[Any], Any]:
        function = self.definition.function
        if self.is_async:
            return compile_async(middleware, lambda run: function(*run.args, **run.kwargs))
        return compile_sync(middleware, lambda run: function(*run.args, **run.kwargs))

    def learn(self, seconds: float) -> None:
        """Take a run's duration into account: up a tenth when it took longer than usual, else down."""
        cost = self.cost
        if cost is None:
            self.cost = max(seconds, 1e-6)
        elif seconds > cost:
            self.cost = cost * 1.1
        else:
            self.cost = max(cost * 0.909, 1e-6)


# --- what runs say ----------------------------------------------------------------------------------------------------


class JobReporter:
    """One a process; many threads speak. ``ring()`` wakes the thread that sends.

    While neither ``timed`` nor ``since`` is set there is nothing to send: who sends need not ask.
    """

    def __init__(self, runtime: Runtime, ring: Callable[[], None] = lambda: None) -> None:
        self._runtime = runtime
        self._ring = ring
        self._fresh: dict[Run, None] = {}  # running, and not written down yet; the first began first
        self._words: deque[tuple[str, ...]] = deque()
        self._progress: dict[str, tuple[str, ...]] = {}
        self.since = 0.0  # ``time.monotonic()`` of the first word that was not sent
        self._not_before = 0.0
        self._dropped = 0
        self._begun = False  # a run began since the last look
        self.timed = False  # whoever sends will look by itself
        self._sending = threading.Lock()

    def begin(self, run: Run) -> None:
        """A tracked run starts."""
        self._fresh[run] = None
        self._begun = True
        if not self.timed:  # else whoever sends looks again in a moment: short runs must not wake it each time
            self.timed = True
            self._ring()

    def end(self, run: Run) -> None:
        """It has ended: its end says everything."""
        self._fresh.pop(run, None)

    def log(self, run: Run, message: str) -> None:
        """A job says something."""
        records = run.records
        if not records:
            return
        text = str(message)[:_TEXT].encode("utf-8", "replace").decode()
        for jid in records:
            if len(self._words) >= MOST:
                self._words.popleft()
                self._dropped += 1
            self._words.append(_word("log", jid, run, {"text": text}))
        self._rung()

    def progress(self, run: Run, done: float, total: float | None) -> None:
        """A job says how far it is."""
        for jid in run.records:
            self._progress[jid] = _word("progress", jid, run, {"done": done, "total": total})
            self._rung()

    def _rung(self) -> None:
        if not self.since:
            self.since = time.monotonic()
            self._ring()

    def due_in(self) -> float | None:
        """Seconds until something should be sent; None when there is nothing."""
        if not self._fresh and not self.since:
            if self._begun:
                self._begun = False
                return LASTED
            self.timed = False
            if not self._fresh and not self.since:  # else one began just now, and did not ring
                return None
        self.timed = True
        due = self.since + SAID if self.since else None
        for run in list(self._fresh):
            at = run.started + LASTED
            due = at if due is None else min(due, at)
            break
        return None if due is None else max(due, self._not_before) - time.monotonic()

    def send(self) -> None:
        """Send what there is to say. What cannot be sent because the server is away is kept."""
        if not self._fresh and not self.since:
            return
        with self._sending:
            if time.monotonic() < self._not_before:
                return
            try:
                self._send_started()
                self._send_words()
            except ServerAway:
                self._not_before = time.monotonic() + AWAY
            except Exception as error:  # refused, or a defect of ours: jobs go on, and their ends are what counts
                self._not_before = time.monotonic() + AWAY
                self._runtime.events.emit("part_failed", part="notes", error=error)

    def _send_started(self) -> None:
        before = time.monotonic() - LASTED
        lasting = [run for run in list(self._fresh) if 0.0 < run.started < before][:CHUNK]
        if not lasting:
            return
        keys = self._runtime.keys
        started = [batches.Started(run.unit.flight.key, run.unit.payload, _start(keys, run)) for run in lasting]
        try:
            self._runtime.connections.run(batches.started(keys, started))
        except ServerAway as error:
            if error.executed is None:  # perhaps it was written: a batch knows that, nobody else does
                lasting = [run for run in lasting if not run.batch_id]
                self._forget(lasting)
            raise
        self._forget(lasting)

    def _forget(self, runs: list[Run]) -> None:
        for run in runs:
            self._fresh.pop(run, None)

    def _send_words(self) -> None:
        if not self.since:
            return
        self.since = 0.0
        keys, runner = self._runtime.keys, self._runtime.connections
        while self._words or self._progress:
            some = [self._words.popleft() for _ in range(min(CHUNK, len(self._words)))]
            said = dict(self._progress)
            try:
                runner.run(batches.note(keys, [msgspec.json.encode([*some, *said.values()])]))
            except ServerAway as error:
                if error.executed is False:
                    self._words.extendleft(reversed(some))
                self.since = time.monotonic()
                raise
            for jid, word in said.items():
                if self._progress.get(jid) is word:
                    del self._progress[jid]
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            runner.run(command("INCRBY", keys.history_dropped, dropped, again=False))


def _word(kind: str, jid: str, run: Run, detail: dict[str, Any]) -> tuple[str, ...]:
    text = msgspec.json.encode(detail).decode()
    return ("said", kind, jid, run.batch_id, run.unit.flight.identity, text)


def _start(keys: Keys, run: Run) -> bytes:
    told = EndingFacts(run.unit.flight.identity, attempt_of(run.unit.job), {"started": round(run.started_at, 6)})
    return encoded(keys, run.unit.job, "started", told)
