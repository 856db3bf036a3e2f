"""The processes of one worker for isolated runs: some are kept ready, and each run borrows one.

The thread of a slot drives its run: it hands over the payload, hears what the job says, tells it what happens, kills it
when it does not heed that, and waits for its end before the run is over. So whatever is exclusive is free only when the
process is gone. The runs are those of ``worker/run.py``, which stands above this room.
"""

from __future__ import annotations

import base64
import contextlib
import math
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from henchman.config import Config
from henchman.errors import ConfigError, JobCancelled, JobDeadline, JobShutdown, JobTimeout, ProcessCrashed, ServerAway
from henchman.isolation.failure import rebuilt
from henchman.isolation.options import Isolated
from henchman.isolation.process import RunProcess
from henchman.kernel.clock import capped_backoff
from henchman.kernel.events import Events
from henchman.kernel.text import described
from henchman.kernel.threads import Ticker
from henchman.store.metrics import count_isolated

__all__ = ["Returned", "RunProcesses", "place_of"]

LOOK = 0.05  # seconds between two looks at what a running job should be told
STARTS_WITHIN = 60.0  # seconds for which a run waits for a process
IDLE = 60.0  # seconds after which a process ends that is not among those kept ready
AT_STOP = 1.0  # seconds between JobShutdown inside and the kill: the worker is about to end
GOODBYE = 5.0  # seconds for shutdown hooks of processes that are dismissed
AGAIN = 0.5  # seconds after a start that the system refused
GROWN = 0.5  # a process is replaced that has taken so much of what its limit leaves


class Returned(NamedTuple):
    """What an isolated run returned: plain JSON, or why it cannot be kept."""

    value: Any
    problem: str = ""


class RunProcesses(Ticker):
    """``most``: slots of the worker. ``place``: where the app is imported from, ``pkg.mod:app``.

    ``inherited``: descriptors that each process holds open and does not use, so that the supervisor sees when the last
    one has ended. All processes are started by this one thread, because the kernel ends them with it.
    """

    name = "isolation"

    def __init__(
        self, config: Config, events: Events, place: Callable[[], str], most: int, inherited: Sequence[int] = ()
    ) -> None:
        super().__init__(events.failed)
        self._config = config
        self._events = events
        self._place = place
        self._most = most
        self._inherited = tuple(inherited)
        self._idle: deque[RunProcess] = deque()  # the last one ran last; those that have just been started come first
        self._busy: set[RunProcess] = set()
        self._leaving: list[RunProcess] = []
        self._waiting = 0
        self._changed = threading.Condition()
        self._failures = 0
        self._not_before = 0.0
        self._again_at = 0.0
        self._refusal = ""
        self._hopeless = False  # whether waiting does not help against the refusal
        self._ended = Counter[str]()  # processes that were killed or have crashed, and are not written down yet
        self.used = False  # whether there ever was a process

    def __len__(self) -> int:
        """How many processes there are."""
        return len(self._idle) + len(self._busy)

    @property
    def pids(self) -> list[int]:
        """Those of all processes."""
        with self._changed:
            return [one.pid for one in (*self._idle, *self._busy)]

    def flush(self, runtime: Any, now: float) -> None:
        """Write down how many processes were killed and have crashed. ServerAway: it goes with the next. ServerError:
        it is lost."""
        with self._changed:
            ended, self._ended = self._ended, Counter()
        if not ended:
            return
        try:
            runtime.connections.run(count_isolated(runtime.keys, ended))
        except ServerAway:
            with self._changed:
                self._ended += ended
            raise

    def killed(self, run: Any, process: RunProcess, reason: str) -> None:
        """Count and announce a process that we killed in the middle of a run."""
        self._count("killed")
        self._events.emit("process_killed", run=run, child=process.pid, reason=reason)

    def crashed(self, run: Any, process: RunProcess, reason: str) -> None:
        """Count and announce a process that ended in the middle of a run."""
        self._count("crashed")
        self._events.emit("process_crashed", run=run, child=process.pid, reason=reason)

    def _count(self, ending: str) -> None:
        with self._changed:
            self._ended[ending] += 1

    # --- the life of processes ----------------------------------------------------------------------------------------

    def tick(self) -> float:
        """Start what is wanted, end what is not; seconds until the next look."""
        with self._changed:
            dead = [one for one in self._idle if not one.alive]
            for one in dead:
                self._idle.remove(one)
                if not one.ready:
                    self._failed()
        for one in dead:
            one.wait()
        self._end_idle()
        self._reap()
        self._spawn_wanted()
        return 0.2 if self._leaving or self._waiting else 1.0

    def _failed(self) -> None:
        self._failures += 1
        self._not_before = time.monotonic() + capped_backoff(self._failures)

    def _wanted(self) -> int:
        """How many more processes should be idle. Those who wait come first; after failures nobody is kept ready."""
        ready = self._config.isolated_ready if time.monotonic() >= self._not_before else 0
        return min(max(self._waiting, ready) - len(self._idle), self._most - len(self))

    def _spawn_wanted(self) -> None:
        while not self.stopping.is_set() and time.monotonic() >= self._again_at and self._wanted() > 0:
            try:
                made = RunProcess.spawn(self._hello(), self._inherited)
            except (OSError, MemoryError, ConfigError) as error:
                self._failed()
                with self._changed:
                    self._refusal, self._hopeless = described(error), isinstance(error, ConfigError)
                    self._again_at = time.monotonic() + AGAIN
                    self._changed.notify_all()
                return
            with self._changed:
                late = self.stopping.is_set()  # a stop meanwhile has looked already at what there is
                if not late:
                    self._refusal, self.used = "", True
                    self._idle.appendleft(made)
                    self._changed.notify()
            if late:
                made.kill()

    def _hello(self) -> dict[str, Any]:
        return {"target": self._place(), "config": self._config.to_json(), "path": [str(one) for one in sys.path]}

    def _end_idle(self) -> None:
        """Let processes go that nobody needed for a while."""
        with self._changed:
            before = time.monotonic() - IDLE
            while len(self._idle) > self._config.isolated_ready and self._idle[0].since < before:
                self._dismiss(self._idle.popleft())

    def _dismiss(self, process: RunProcess) -> None:
        process.since = time.monotonic()
        process.dismiss()
        self._leaving.append(process)

    def _reap(self) -> None:
        for one in list(self._leaving):
            if not one.alive or time.monotonic() - one.since > GOODBYE:
                one.kill()
                self._leaving.remove(one)

    def stop(self, timeout: float = 5.0) -> bool:
        """End every process: the idle ones by their own, those that still run something at once."""
        self.stopping.set()
        with self._changed:
            while self._idle:
                self._dismiss(self._idle.pop())
            busy = list(self._busy)
        for one in busy:
            one.kill()
        end = time.monotonic() + timeout
        while self._leaving and time.monotonic() < end:
            self._reap()
            time.sleep(0.01)
        for one in self._leaving:
            one.kill()
        return super().stop(timeout)

    def forked(self) -> None:
        """In a child that a job of the worker forked: it has no part in this."""
        for one in (*self._idle, *self._busy, *self._leaving):
            with contextlib.suppress(OSError):
                one.channel.close()

    # --- a run --------------------------------------------------------------------------------------------------------

    def call(self, run: Any) -> Returned:
        """Run ``run`` in a process; what it returned. Raises what it raised, or what ended it."""
        options: Isolated = run.compiled.definition.options.isolate
        process = self._take(run)
        try:
            memory = options.megabytes or self._config.isolated_memory
            ended = _Drive(process, run, options, memory, self).to_its_end()
        except BaseException:
            process.kill()
            self._drop(process)
            raise
        finally:
            run.task = None
        self._put_back(process, options, memory, ended)
        if "error" in ended:
            raise rebuilt(ended["error"])
        return Returned(ended.get("result"), ended.get("problem", ""))

    def _take(self, run: Any) -> RunProcess:
        """A process for this run, which has imported the app; ProcessCrashed when there is none to be had."""
        self.start()
        end = time.monotonic() + STARTS_WITHIN
        with self._changed:
            self._waiting += 1
            self._hopeless = False
            try:
                while not self._idle:
                    self.wake()
                    self._changed.wait(LOOK)
                    _heed(run)
                    if not self._idle and (self._hopeless or self.stopping.is_set() or time.monotonic() > end):
                        raise ProcessCrashed(
                            f"no process for an isolated run could be started: {self._refusal or 'none came up'}"
                        )
                process = self._idle.pop()
                self._busy.add(process)
            finally:
                self._waiting -= 1
        run.task = process
        try:
            if not process.ready:
                self._await_ready(process, run, end)
        except BaseException:
            process.kill()
            self._drop(process)
            raise
        return process

    def _await_ready(self, process: RunProcess, run: Any, end: float) -> None:
        why = ""
        try:
            while time.monotonic() < end:
                message = process.channel.receive(LOOK)
                if message is None:
                    _heed(run)
                elif message[0] == "ready":
                    process.ready, process.base_kb, self._failures = True, int(message[1]), 0
                    return
                else:
                    why = f": {message[1]}"
            status = f"it was not ready within {STARTS_WITHIN:g} s"
        except EOFError:
            status = _end_of(process.over(), None)
        self._failed()
        raise ProcessCrashed(f"the process for isolated runs did not start: {status}{why}")

    def _drop(self, process: RunProcess) -> None:
        with self._changed:
            self._busy.discard(process)
        self.wake()

    def _put_back(self, process: RunProcess, options: Isolated, memory: int | None, ended: dict[str, Any]) -> None:
        """Keep the process for the next run, unless it has done its share or has grown."""
        left = float("inf") if memory is None else memory * 1024 - process.base_kb
        spent = process.runs >= options.reuse or ended["spent"] or ended["rss"] - process.base_kb > GROWN * left
        with self._changed:
            self._busy.discard(process)
            process.since = time.monotonic()
            if spent or self.stopping.is_set():
                self._dismiss(process)
            else:
                self._idle.append(process)
                self._changed.notify()
        if spent:
            self.wake()


class _Drive:
    """One run in its process."""

    def __init__(
        self, process: RunProcess, run: Any, options: Isolated, memory: int | None, owner: RunProcesses
    ) -> None:
        self._process = process
        self._channel = process.channel
        self._run = run
        self._grace = options.grace
        self._memory = memory
        self._owner = owner
        self._told: dict[str, float] = {}  # what the job was told, and when

    def to_its_end(self) -> dict[str, Any]:
        """Hand the run over and hear it; what the process says of its end. Raises what ended the process instead."""
        run, process = self._run, self._process
        process.runs += 1
        if run.deadline is not None:  # to wait for a process costs the job nothing of its time
            run.deadline = min(time.monotonic() + run.timeout, math.inf if run.ends is None else run.ends)
        try:
            self._channel.send("run", _assignment(run, process.runs, self._memory))
            while True:
                message = self._channel.receive(LOOK)
                if message is not None and message[0] == "end":
                    run.struck = JobTimeout if message[1]["timed_out"] else run.struck
                    ended: dict[str, Any] = message[1]
                    return ended
                if message is not None:
                    self._hear(message)
                self._look()
        except (EOFError, OSError):
            raise self._crashed(process.over()) from None

    def _hear(self, message: list[Any]) -> None:
        match message:
            case ["log", text]:
                self._run.log(text)
            case ["progress", done, total]:
                self._run.progress(done, total)
            case ["spent", points]:
                self._run.spent(points)
            case ["checkpoint"]:
                self._run.unit.checkpoint = True

    def _look(self) -> None:
        """Tell the job what happens; end it when it was told and does not heed that."""
        run, now = self._run, time.monotonic()
        if run.stopping and "stopping" not in self._told:
            self._tell("stopping", now)
        if run.struck is JobShutdown:
            self._tell("JobShutdown", now)
            if now > self._told["JobShutdown"] + min(self._grace, AT_STOP):
                self._kill("the worker stops", JobShutdown())
        if run.cancelled:
            self._tell("cancelled", now)
            if now > self._told["cancelled"] + self._grace:
                self._tell("JobCancelled", now)
                if now > self._told["JobCancelled"] + self._grace:
                    self._kill("it does not heed its cancellation", JobCancelled())
        if run.deadline is not None and now > run.deadline + self._grace:
            if run.by_deadline:
                text = "its deadline passed while it ran and it did not heed that: its process was killed"
                self._kill("it runs after its deadline", JobDeadline(text))
            limit = f"longer than its timeout of {run.timeout:g} s"
            self._kill(
                f"it runs {limit}", JobTimeout(f"the job ran {limit} and did not heed it: its process was killed")
            )

    def _tell(self, word: str, now: float) -> None:
        if word not in self._told:
            self._told[word] = now
            self._channel.send("told", self._process.runs, word)

    def _kill(self, reason: str, error: BaseException) -> None:
        """End the process, see that it is gone, and raise ``error``."""
        self._process.kill()
        self._owner.killed(self._run, self._process, reason)
        raise error

    def _crashed(self, status: int) -> BaseException:
        run = self._run
        if run.struck is JobShutdown:
            return JobShutdown()
        end = _end_of(status, self._memory)
        self._owner.crashed(run, self._process, end)
        error = ProcessCrashed(f"its process {end}")
        if status == -9:  # nobody of ours did that
            error.cause = "memory"
        return error


def _assignment(run: Any, number: int, memory: int | None) -> dict[str, Any]:
    """What the process must know of a run."""
    unit = run.unit
    return {
        "number": number,
        "payload": base64.b64encode(unit.payload).decode("ascii"),
        "newest": None if unit.claim is None else base64.b64encode(unit.newest).decode("ascii"),
        "token": run.token,
        "flight": list(unit.flight),
        "checkpoint": unit.checkpoint,
        "deadline": run.deadline,
        "ends": run.ends,
        "started": [run.started, run.started_at],
        "cancelled": run.cancelled,
        "stopping": run.stopping,
        "memory": memory,
    }


def _heed(run: Any) -> None:
    """End a run that waits for its process when its worker stops or somebody cancels it."""
    if run.struck is JobShutdown:
        raise JobShutdown
    if run.cancelled:
        raise JobCancelled


_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def _end_of(status: int, memory: int | None) -> str:
    """How a process ended, in words."""
    limit = "" if memory is None else f"; its memory limit is {memory} MB"
    if status >= 0:
        return f"ended with exit status {status} in the middle of the run{limit}"
    name = f" ({_SIGNALS[-status]})" if -status in _SIGNALS else ""
    by = ": not by Henchman; the kernel does that when memory runs out" if status == -9 else ""
    return f"was killed by signal {-status}{name}{by}{limit}"


def place_of(runtime: Any) -> str:
    """Where the app of ``runtime`` can be imported from: ``pkg.mod:app``. ConfigError when no module names it."""
    for name, module in list(sys.modules.items()):
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if type(value) is type(runtime) and value.registry is runtime.registry:
                if name != "__main__":
                    return f"{name}:{attribute}"
                spec, file = getattr(module, "__spec__", None), getattr(module, "__file__", None)
                if spec is not None or file:
                    main = Path(str(file)).stem if spec is None else str(spec.name).removesuffix(".__main__")
                    return f"{main}:{attribute}"
    raise ConfigError(
        "isolated runs import the app in a process of their own, and no module names it: write app = App(…) at the top "
        "of a module"
    )
