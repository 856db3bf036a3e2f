"""The body of a process for isolated runs (``isolation/process.py`` starts it).

The main thread runs one job after the other; a thread beside it hears what the worker says. Middleware, arguments and
``current_job()`` are those of any run: the payload is read here as a worker reads it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ctypes
import faulthandler
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from collections import deque
from typing import Any, NamedTuple

import msgspec

from henchman.app import App
from henchman.errors import HenchmanError, JobCancelled, JobShutdown, JobTimeout
from henchman.isolation.channel import Channel
from henchman.isolation.failure import to_facts
from henchman.kernel.events import Events
from henchman.kernel.text import described
from henchman.log import handler as log
from henchman.supervisor.load import load_app, their_traceback
from henchman.wire.arguments import to_json
from henchman.wire.payload import decode
from henchman.work.current import running
from henchman.work.steps import step_of
from henchman.work.unit import InFlightList, Unit
from henchman.worker.heart import resident_kb
from henchman.worker.processor import end_child, in_child, meaning
from henchman.worker.run import CompiledJob, Run, Slot
from henchman.worker.step_run import StepRun
from henchman.worker.watchdog import Watchdog, calm, strike

LOOK_UP = 1.0  # seconds: a job that closes every file closes the channel too, which ends no wait that is under way
_DEATHSIG = 1  # PR_SET_PDEATHSIG
_STRIKES = {"JobShutdown": JobShutdown, "JobCancelled": JobCancelled}


class _Start(NamedTuple):
    """What a job with a key was given at its start; see ``worker/claim.py``."""

    token: int
    payload: bytes
    records: list[str]


class _ToldUnit(Unit):
    """A unit whose worker hears at once that it keeps a checkpoint, and how many points of its limits it took."""

    channel: Any = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "checkpoint" and value and not self.checkpoint:
            self.channel.send("checkpoint")
        super().__setattr__(name, value)
        if name == "spent":
            self.channel.send("spent", value)


class _RunReporter:
    """What a run says, told to the worker."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def log(self, run: Run, message: str) -> None:
        """A job says something."""
        self._channel.send("log", message)

    def progress(self, run: Run, done: float, total: float | None) -> None:
        """A job says how far it is."""
        self._channel.send("progress", done, total)


class RunBody:
    """Runs what the worker hands over, one run at a time."""

    def __init__(self, app: App, channel: Channel) -> None:
        self._app = app
        self._channel = channel
        self._reporter: Any = _RunReporter(channel)
        self._events = Events()  # what the worker announces of a run is not announced twice
        self._compiled: dict[str, CompiledJob] = {}
        self._slot = Slot("isolated", 0)
        self._slot.thread_id = threading.get_ident()
        self._watchdog = Watchdog(strike, lambda run: None, self._events.failed)
        self._runner: asyncio.Runner | None = None
        self._run: Run | None = None
        self._number = 0
        self._early: deque[str] = deque()  # what was said before the run was read
        self._deaf = False  # nobody hears the worker any more: this run is the last one
        self._handed: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.is_fork = False
        in_child(self)

    def forked(self) -> None:
        """In a child that a job forked: it ends with the job that it is in, and the worker hears nothing of it."""
        self.is_fork = True
        self._channel.close()

    def _end_fork(self, problem: BaseException | None) -> None:
        if self.is_fork:
            end_child(problem)

    def serve(self) -> None:
        """Run jobs until the worker has none for us any more."""
        self._watchdog.start()
        threading.Thread(target=self._listen, name="henchman-channel", daemon=True).start()
        self._channel.send("ready", resident_kb())
        while (handed := self._handed.get()) is not None:
            ended = self._execute(handed)
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # a job may have closed it
                    stream.flush()
            self._channel.send("end", ended)

    # --- what the worker says -----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Hear the worker. When it is gone, so are we: what runs is another's from now on."""
        try:
            while True:
                match self._channel.receive(LOOK_UP):
                    case ["run", handed]:
                        self._number = handed["number"]
                        self._early.clear()
                        self._handed.put(handed)
                    case ["told", number, word] if number == self._number:
                        self._hear(word)
        except (EOFError, OSError):
            if self._run is not None:
                os.killpg(os.getpgrp(), signal.SIGKILL)
        except MemoryError:  # at the limit of what runs
            self._deaf = True
        self._handed.put(None)

    def _hear(self, word: str) -> None:
        run = self._run
        if run is None:
            self._early.append(word)
            return
        if word == "stopping":
            run.stopping = True
            return
        if word == "cancelled":
            run.cancelled = True
        if run.compiled.is_async:
            self._cancel(run, _STRIKES.get(word, JobCancelled))
        elif word in _STRIKES:
            self._watchdog.strike(run, self._slot, _STRIKES[word])

    @staticmethod
    def _cancel(run: Run, error: type[BaseException]) -> None:
        task = run.task
        if run.struck is None and error is not JobCancelled:
            run.struck = error
        if task is not None:
            with contextlib.suppress(RuntimeError):  # its loop was closed
                task.get_loop().call_soon_threadsafe(task.cancel)

    # --- a run --------------------------------------------------------------------------------------------------------

    def _execute(self, handed: dict[str, Any]) -> dict[str, Any]:
        """Run a job to its end; what the worker is told of that."""
        problem: BaseException | None = None
        ended: dict[str, Any] = {"timed_out": False, "spent": self._deaf}
        memory = handed["memory"]
        run: Run | None = None
        result: Any = None
        try:
            run = self._read(handed)
            _limit(memory)
            result = self._awaited(run) if run.compiled.is_async else self._called(run)
        except BaseException as error:
            problem = error
        finally:
            _limit(None)
        self._run = self._slot.run = None
        self._end_fork(problem)
        if problem is not None:
            ended["error"] = to_facts(problem)
            if isinstance(problem, MemoryError) and memory is not None:
                ended["error"]["message"] = f"memory limit {memory} MB{f': {problem}' if str(problem) else ''}"
                ended["spent"] = True
        elif run is not None and run.keeps and result is not None:
            try:
                ended["result"] = to_json(run.compiled.definition.function, result)
            except ValueError as error:
                ended["problem"] = f"its result cannot be kept: {error}"
        ended["timed_out"] = run is not None and run.struck is JobTimeout
        problem = result = None
        return ended | {"rss": resident_kb()}

    def _read(self, handed: dict[str, Any]) -> Run:
        """The run, as the worker read it."""
        stored, newest = base64.b64decode(handed["payload"]), handed["newest"]
        claim = None if newest is None else _Start(handed["token"], base64.b64decode(newest), [])
        unit = _ToldUnit(stored, InFlightList(*handed["flight"]), time.monotonic(), None, claim, channel=self._channel)
        job = decode(unit.newest)
        compiled = self._compiled.get(job["class"]) or self._compile(job["class"])
        args, kwargs = compiled.signature.decode(job.get("args") or [], job.get("kwargs"))
        kind = StepRun if "step" in (job.get("hm") or {}) and step_of(job) else Run
        run = kind.of(unit, job, compiled, args, kwargs)
        run.deadline, run.ends = handed["deadline"], handed["ends"]
        run.cancelled, run.stopping = handed["cancelled"], handed["stopping"]
        run.started, run.started_at = handed["started"]
        if not compiled.is_async:
            self._slot.run = run
        self._run = run
        while self._early:
            self._hear(self._early.popleft())
        return run

    def _compile(self, name: str) -> CompiledJob:
        app = self._app
        known = app.registry.get(name), app.server_middleware, self._events, self._reporter, app.batch_of, app
        made = self._compiled[name] = CompiledJob(*known)
        return made

    def _called(self, run: Run) -> Any:
        """What a sync job returns. It is struck as in a worker's thread."""
        problem: BaseException | None = None
        result: Any = None
        token = running.set(run)
        try:
            try:
                self._watchdog.watch(run, self._slot)
                result = run.compiled.call(run)
            except BaseException as error:
                problem = error
            self._end_fork(problem)  # its locks may be held for ever, by threads that it has not
            self._leave(run)
        except (JobTimeout, JobShutdown, JobCancelled) as late:  # struck between the job's end and leaving it
            self._leave(run)
            problem = late if problem is None else problem
        running.reset(token)
        if problem is not None:
            raise problem
        return result

    def _leave(self, run: Run) -> None:
        with self._slot.lock:
            self._slot.run = None
            if run.struck is not None:
                calm(self._slot)
        run.late = None
        self._watchdog.forget(run)

    def _awaited(self, run: Run) -> Any:
        """What an async job returns. All share one event loop, which connections of theirs may be bound to."""
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(self._within_its_time(run))

    async def _within_its_time(self, run: Run) -> Any:
        running.set(run)
        run.task = asyncio.current_task()
        if run.task is not None and (run.cancelled or run.struck is not None):  # it was told before it began
            run.task.cancel()
        left = None if run.deadline is None else run.deadline - time.monotonic()
        try:
            async with asyncio.timeout(left) as limit:
                result = await run.compiled.call(run)
                self._end_fork(None)
                return result
        except BaseException as error:
            self._end_fork(error)
            meant = meaning(run, error, limit.expired())
            run.struck = JobTimeout if isinstance(meant, JobTimeout) else run.struck
            if meant is error:
                raise
            raise meant from None
        finally:
            run.task = None


def _limit(megabytes: int | None) -> None:
    """How much this process may allocate from here on."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    wanted = resource.RLIM_INFINITY if megabytes is None else megabytes * 1024**2
    soft = hard if wanted == resource.RLIM_INFINITY else wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with contextlib.suppress(OSError, ValueError):  # where the system knows no such limit
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _end_with(parent: int) -> None:
    """Be killed by the kernel when the worker ends, whatever runs here then."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _load(hello: dict[str, Any]) -> App:
    """The app, with the settings of the worker."""
    sys.path[:] = hello["path"]
    app = load_app(hello["target"])
    app.configure(**msgspec.json.decode(hello["config"])["values"])
    if app.config.configure_logging:
        log.setup(app.config.log_format, app.config.log_level, process_tag="isolated")
    app.hooks.startup()
    return app


def main() -> None:
    """Greet, load the app, run jobs, say goodbye."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the worker says when we end, and nobody else
        signal.signal(number, lambda *_: None)
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)
    channel = Channel(end)
    message = channel.receive()
    hello = {} if message is None else message[1]
    for descriptor in hello["inherited"]:
        os.set_inheritable(descriptor, False)  # programs that jobs start are not ours
    _end_with(hello["parent"])
    faulthandler.enable()
    try:
        app = _load(hello)
    except BaseException as error:
        cause = error.__cause__ if isinstance(error, HenchmanError) and error.__cause__ is not None else error
        sys.stderr.write(their_traceback(cause))
        with contextlib.suppress(OSError):
            channel.send("failed", described(error))
        os._exit(1)
    with contextlib.suppress(OSError):  # the worker is gone
        RunBody(app, channel).serve()
    app.hooks.shutdown(0.0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread that a job left behind must not keep the process
