"""Puts the parts of one worker process together, starts them in order, stops them in the other order."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from henchman.client.runtime import Companion, Runtime
from henchman.config import Config
from henchman.config.capsules import Capsule, capsules_of, served
from henchman.config.settings import ARGUMENT_ALIASES
from henchman.errors import ConfigError, HenchmanError, JobCancelled, JobShutdown, ServerError
from henchman.isolation.processes import RunProcesses, place_of
from henchman.kernel.middleware import in_thread
from henchman.kernel.scoreboard import Scoreboard
from henchman.kernel.threads import beside
from henchman.store import leases
from henchman.store.leases import ask_time
from henchman.work.locks import is_exclusive
from henchman.worker.acker import Acker
from henchman.worker.claim import declare_limits
from henchman.worker.fetcher import AHEAD_BYTES, Fetcher
from henchman.worker.heart import Heart, Renewal
from henchman.worker.loop import Loop
from henchman.worker.manager import Manager
from henchman.worker.pool import Isolation, Pool
from henchman.worker.processor import Processor, in_child
from henchman.worker.rescue import Lifeline
from henchman.worker.retry import DeathNotices, RetryPolicy
from henchman.worker.run import Run, task_name
from henchman.worker.session import LeaseSession
from henchman.worker.stager import Stager
from henchman.worker.watchdog import AFTER_STRIKE, Standstill, Watchdog, dump, frames_of, strike
from henchman.worker.watcher import Cancels, Control, Watcher

__all__ = ["Embedded", "Launcher", "default_capsules", "embedded_config"]

LOOP_BLOCKED = 1.0  # seconds without a turn after which the event loop gets no more jobs
CLEAN_UP = 3.0  # seconds for what jobs do after they were told that the worker stops
LINGER = 0.2  # seconds between two looks whether a handler has ended that outlived its worker


def default_capsules(runtime: Runtime) -> list[Capsule]:
    """The capsules that the configuration names; without queues every queue of the registered jobs, at random."""
    return capsules_of(runtime.config, runtime.registry.queues())


class Launcher:
    """One worker process. ``announce(identity)`` tells the supervisor who we are before we hold anything.

    ``pulse()`` is called each second; ``replace(reason)`` asks for another process in place of this one. ``place``:
    where the app was imported from; ``inherited``: what processes of isolated runs hold open for the supervisor.
    """

    def __init__(
        self,
        runtime: Runtime,
        capsules: Sequence[Capsule],
        *,
        announce: Callable[[str], None] = lambda identity: None,
        pulse: Callable[[], None] = lambda: None,
        replace: Callable[[str], None] = lambda reason: None,
        embedded: bool = False,
        board: Scoreboard | None = None,
        place: str = "",
        inherited: Sequence[int] = (),
    ) -> None:
        self.runtime = runtime
        self._replace, self._on_pulse = replace, pulse
        self._stopped, self._embedded = False, embedded
        self.manager = Manager()
        capsules, queues = self._placed(capsules)
        self.companions: Sequence[Companion] = runtime.companions(alone=board is None)
        self.board, self._supervised = board or Scoreboard(), board is not None
        self.session = LeaseSession(runtime, queues, announce, self.sources)
        self.cancels = Cancels(runtime, self._tell_cancelled)
        self.control = Control(runtime.events, self._verbs())
        self.acker = Acker(runtime, self.session, self.cancels, self.board)
        self.policy = RetryPolicy(runtime)
        self.watchdog = Watchdog(strike, self._abandon, runtime.events.failed)
        self.standstill = Standstill()
        fence = self.session, self.cancels
        self.processor = Processor(runtime, self.acker, self.policy, self.watchdog, *fence, self.board)
        self.isolation = self._isolation(capsules, place, inherited)
        self.loop = Loop(self.processor, runtime.events)
        self.watcher = Watcher(runtime, self.session, queues, self.sources, self.control, self.cancels)
        self.manager.extend(self._fetchers(capsules))
        self.stager = Stager(runtime)
        self.lifeline = Lifeline(runtime, self.acker.metrics.count)
        self.notices = DeathNotices(runtime, self.policy)
        self.renewal = Renewal(runtime, self.manager, self.session, self._pulse)
        figures = self.acker.metrics, self.policy.failures, self.isolation
        heard = self.cancels, self.control, *figures, lambda: self.renewal.round_trip
        self.heart = Heart(runtime, self.manager, self.session, *heard, embedded)

    def _placed(self, capsules: Sequence[Capsule]) -> tuple[list[Capsule], list[str]]:
        """What this process serves: the capsules without queues that are another's, and all their queues."""
        wanted = [queue for capsule in capsules for queue in capsule.queues]
        sources = {name: one for name, one in self.runtime.sources().items() if name in wanted}
        mine = self.runtime.placement(list(sources))
        self.sources = {name: one for name, one in sources.items() if name in mine}
        kept = served(capsules, sources.keys() - mine)
        return kept, [queue for capsule in kept for queue in capsule.queues]

    def _isolation(self, capsules: Sequence[Capsule], place: str, inherited: Sequence[int]) -> RunProcesses:
        """Where isolated runs get their processes from: one a slot at most."""
        runtime, slots = self.runtime, sum(one.concurrency for one in capsules)
        made = RunProcesses(runtime.config, runtime.events, lambda: place or place_of(runtime), slots, inherited)
        self.processor.reader.isolation = made.call
        in_child(made)
        return made

    def _try(self, part: str, step: Callable[[], object]) -> None:
        """Take a step that the way on does not depend on: a server that is away or refuses is told of."""
        try:
            step()
        except ServerError as error:
            self.runtime.events.failed(part, error)

    def _fetchers(self, capsules: Sequence[Capsule]) -> list[Fetcher]:
        """One for each capsule, with its slots; suspects are alone among all of them."""
        isolation = Isolation(self.session, self.acker, self.board, busy=self.manager.busy, look=self.manager.look)
        limited = self._supervised and self.runtime.config.max_jobs is not None
        room = self._room if limited else None
        fetchers = [
            Fetcher(
                self.runtime,
                capsule,
                self.processor,
                self.loop,
                session=self.session,
                acker=self.acker,
                cancels=self.cancels,
                isolation=isolation,
                watcher=self.watcher,
                sources=self.sources,
                board=self.board,
                room=room,
            )
            for capsule in capsules
        ]
        for fetcher in fetchers:
            fetcher.ahead_bytes = AHEAD_BYTES // len(fetchers)
        return fetchers

    def _room(self) -> int:
        """How many more jobs may be taken before ``max_jobs``: then this process waits for its successor, and asks."""
        waiting = sum(fetcher.pool.waiting for fetcher in self.manager)
        left = (self.runtime.config.max_jobs or 0) - self.started - waiting
        if left <= 0:
            self.renewal.wake()
        return left

    @property
    def pool(self) -> Pool:
        """The slots of the first capsule."""
        return self.manager[0].pool

    @property
    def fetcher(self) -> Fetcher:
        """The fetcher of the first capsule."""
        return self.manager[0]

    @property
    def started(self) -> int:
        """Jobs started in the life of this process."""
        return self.manager.started()

    def fetching(self) -> bool:
        """Whether this process takes work: it holds its lease, is not quiet, and waits for pushes or is full."""
        return self.session.valid_for() > 0 and all(fetcher.takes_work() for fetcher in self.manager)

    def _verbs(self) -> dict[str, Callable[[str], object]]:
        """The orders that the control channel and Sidekiq's Web UI may give."""
        verbs: dict[str, Callable[[str], object]] = {
            "cancel": self.cancels.add,
            "news": lambda _: self.cancels.look(),
            "pause": self._pause,
            "unpause": self.manager.unpause,
            "due": lambda _: self.stager.hears_of_due(),
            "quiet": lambda _: self.quiet(),
            "dump": lambda _: self.dump(),
        }
        for companion in self.companions:
            verbs.update(companion.verbs)
        return verbs

    def start(self) -> None:
        """Start every part; ServerError when the server cannot be reached, ConfigError when a startup hook raises."""
        runner = self.runtime.connections
        if any(one.signature.sealing is not None for one in self.runtime.registry):
            self.runtime.client.keyring.check()
        runner.run(ask_time(self.runtime.clock))  # before anything is judged by it
        self.cancels.load()
        declare_limits(self.runtime)
        self.manager.declare(self.runtime, self.sources)
        self.manager.hear(self.runtime)  # before anything waits for a push
        for source in self.sources.values():
            source.declare()
        self.runtime.hooks.loop = lambda: self.loop.running
        self.runtime.hooks.startup()
        self.session.join()
        capsules = [fetcher.capsule for fetcher in self.manager]
        queues = [name for capsule in capsules for name in capsule.queues]
        ordered = {"ordered": sorted(self.sources)} if self.sources else {}
        self.runtime.events.emit(
            "startup", queues=queues, slots=sum(capsule.concurrency for capsule in capsules), **ordered
        )
        for part in (
            self.acker,
            self.watchdog,
            self.renewal,
            self.heart,
            *self.manager,
            self.watcher,
            self.stager,
            self.lifeline,
            self.notices,
        ):
            part.start()
        if any(one.options.isolate is not None for one in self.runtime.registry):
            self.isolation.start()
        for companion in self.companions:
            companion.start()

    def quiet(self) -> None:
        """Take no new work; what runs goes on. Cannot be undone."""
        if not self.fetcher.quieted.is_set():
            self.runtime.events.emit("quiet")
        self.processor.stopping = True  # for what starts from now on
        for run in self.manager.running():
            run.stopping = True
        self.stager.quiet()
        for companion in self.companions:
            companion.quiet()
        for fetcher in self.manager:
            fetcher.quiet()

    def stop(self, timeout: float) -> bool:
        """Quiet, wait up to ``timeout`` seconds for running jobs, give back the rest; True when all had finished."""
        if self._stopped:
            return True
        self._stopped, end = True, time.monotonic() + timeout
        self.quiet()
        self.acker.in_haste = True
        self._tell_stopping()
        finished = self.manager.wait_idle(timeout, lambda: self.standstill.found and not self.pool.tasks)
        if not finished:
            unfinished = [run for run in self.manager.running() if not run.ended]
            self.runtime.events.emit("cut_off", jobs=[task_name(run) for run in unfinished], count=len(unfinished))
            self._interrupt(unfinished)
            self.manager.wait_idle(CLEAN_UP)
        self.notices.stop()  # before a shutdown hook sends what its handlers have gathered
        self.runtime.events.emit("shutdown")
        self.runtime.hooks.shutdown(max(end - time.monotonic(), 0.0))
        for companion in self.companions:
            companion.stop()
        self.stager.stop()
        disarmed = self._disarm()
        self.watcher.stop(2.0)
        for fetcher in self.manager:
            fetcher.stop(2.0)
            fetcher.pool.stop()
        self.isolation.stop()
        self._flush()
        self.acker.stop()
        for part in (self.heart, self.lifeline):
            part.stop()
        if self._embedded and self._exclusive():
            threading.Thread(target=self._linger, args=(disarmed,), name="henchman-linger", daemon=True).start()
        else:
            self._end(disarmed)
        return finished

    def _exclusive(self) -> bool:
        """Whether a handler still runs that has a key, or ids, which nobody else may have beside it."""
        runs = [*self.manager.running(), *self.manager.tasks()]
        return any(not run.ended and is_exclusive(run.unit) for run in runs)

    def _linger(self, disarmed: bool) -> None:
        """An embedded worker ends before such a handler, and its process goes on: the lease is kept as long."""
        while self._exclusive():
            time.sleep(LINGER)
        self._flush()
        self._end(disarmed)

    def _end(self, disarmed: bool) -> None:
        for part in (self.renewal, self.watchdog, self.loop):
            part.stop()
        self._leave(disarmed)

    def _tell_stopping(self) -> None:
        """If we are killed from here on, that is a deploy's haste, and no job's fault."""
        stopping = leases.stopping(self.runtime.keys, self.session.identity)
        self._try("launcher", lambda: self.runtime.connections.run(stopping))

    def _interrupt(self, unfinished: Iterable[Run]) -> None:
        """The deadline has passed: give back first, then raise in the jobs; ordered ids and keys go back after that."""
        self.session.forget_orders()
        for run in unfinished:
            if not run.abandoned and not run.ended and not is_exclusive(run.unit) and not run.compiled.isolated:
                run.released = True
                self.session.held.discard(run.unit)
        self.acker.flush()
        self._try("launcher", self.session.give_back_all)  # the server alone knows in which order they came
        for slot in self.manager.slots():
            if (struck := slot.run) is not None and struck.compiled.isolated:
                struck.struck = JobShutdown  # whoever drives it tells it, kills its process, and gives it back then
            elif struck is not None:
                self.watchdog.strike(struck, slot, JobShutdown)
        for run in self.manager.tasks():
            self.loop.strike(run, JobShutdown)

    def _disarm(self) -> bool:
        """Whether no wait is open any more, so that nothing can arrive under our name. Where the server does not let us
        end one, it is not waited for: its connection is closed, but something may be on its way."""
        deadline = time.monotonic() + 6.0
        while self.watcher.armed and time.monotonic() < deadline:
            if not self.watcher.disarm():
                break
            time.sleep(0.01)
        return not self.watcher.armed

    def _flush(self) -> None:
        self.acker.again()
        deadline = time.monotonic() + 5.0
        while not self.acker.flush() and time.monotonic() < deadline:
            time.sleep(0.2)

    def _leave(self, disarmed: bool) -> None:
        """Off the books; where something may still arrive, the lifeline sweeps after us."""
        self.acker.end()
        try:
            holds = disarmed and not self.session.leave()
            if not disarmed:
                self.session.entomb()
            self.runtime.connections.run(leases.strike_off(self.runtime.keys, self.session.identity, holds=holds))
            for source in self.sources.values():
                source.ring()  # whoever rang us last may not have been heard
        except HenchmanError as error:
            self.runtime.events.failed("launcher", error)

    def _pulse(self) -> None:
        """Each second: tell the supervisor, and see whether the event loop still turns, and the threads get on."""
        self._on_pulse()
        self.acker.again()
        self._look_for_a_standstill()
        self.loop.look()
        blocked = self.loop.blocked_for() > LOOP_BLOCKED
        if blocked != self.pool.hold_tasks:
            self.manager.hold_tasks(blocked)
            stack = frames_of(self.loop.thread_id) if blocked else []
            self.runtime.events.emit("loop_blocked" if blocked else "loop_back", stack=stack)

    def _look_for_a_standstill(self) -> None:
        """Ask for another process when all that runs waits for a lock. Ask first: a log line may need that lock."""
        known = self.standstill.found
        limit = AFTER_STRIKE if self.watchdog.struck else self.runtime.config.hang_after
        found = self.standstill.look(self.manager.taken(), limit)
        if found and not known:
            self._replace(f"every job in it waits for a lock that nobody gives back: {found[0]}")
            self.runtime.events.emit("standstill", waiting=found)

    def _abandon(self, run: Run) -> None:
        """A job ignores its time-out: settle it, and ask for another process, because the thread is lost.

        Hooks may wait: the watchdog, whose thread this is, does not.
        """
        run.abandoned, abandon = True, partial(self._try, "watchdog", partial(self.processor.abandon, run))
        if self.policy.hooked(run):
            beside(abandon, "henchman-hook")
        else:
            abandon()
        self._replace(f"{run.compiled.name} {run.jid} ignores its time-out")

    def _tell_cancelled(self) -> None:
        """Tell running jobs that were cancelled, however we heard of it; each once."""
        for run in self.manager.running():
            if not run.cancelled and self.cancels.has(run):
                run.cancelled = True
                if run.compiled.is_async and not run.compiled.hears_cancel:
                    self.loop.strike(run, JobCancelled)

    def _pause(self, queue: str) -> None:
        """What was brought goes back, and the wait for its next push ends."""
        self.manager.pause(queue)
        self._try("control", lambda: self.watcher.disarm(queue))

    def dump(self) -> None:
        """Announce where every thread and task stands, write it into this process's file, and keep it on the server for
        the console."""
        identity = self.session.identity
        text = dump(self.runtime, identity, self.manager.slots(), self.manager.tasks(), self.loop.stacks())
        keep = leases.keep_stacks(self.runtime.keys, identity, text)
        beside(partial(self._try, "dump", lambda: self.runtime.connections.run(keep)), "henchman-dump")


AT_EXIT = 5.0
#: the settings that one worker may have for itself; the others are the whole app's, or need a supervisor
OF_A_WORKER = {
    *("queues", "concurrency", "capsules", "ordered_scheduler", "ordered_nodes", "ordered_node"),
    *("shutdown_timeout", "lease", "hang_after", "heartbeat", "max_retries", "dead_max", "dead_timeout"),
    *("dump_folder", "tag", "labels", "isolated_memory", "isolated_ready"),
}
_OF_A_SUPERVISOR = {"max_memory", "max_jobs", "health", "log_format", "log_level"}


def embedded_config(config: Config, settings: Mapping[str, object]) -> Config:
    """The settings of an embedded worker: ``settings`` go before ``config``. ConfigError for what it cannot have."""
    made = config.with_arguments(**settings)
    given = {ARGUMENT_ALIASES.get(name, name) for name, value in settings.items() if value is not None}
    for name in sorted(given - OF_A_WORKER):
        value = getattr(made, name)
        if name == "processes" and value != 1:
            raise ConfigError(f"processes = {value}: an embedded worker is part of this process; leave it out")
        if name in _OF_A_SUPERVISOR:
            raise ConfigError(f"{name}: an embedded worker has no supervisor and no log of its own; leave it out")
        if name != "processes" and value != getattr(config, name):
            raise ConfigError(f"{name} is a setting of the whole app, not of one worker: App({name}=…)")
    return made


class Embedded:
    """A worker inside one's own process: a web server, a notebook, a test. Touches no signals.

    Use it with ``with``, or call ``start`` and ``stop``. There is no supervisor: the heart alone keeps the lease, so
    code that holds the interpreter lock for longer than the lease loses its jobs to others; a job that ignores its
    time-out keeps its thread; and after a fork only the parent has the worker.
    """

    def __init__(self, runtime: Runtime) -> None:
        config = runtime.config
        self._grace = config.shutdown_timeout
        self._launcher = Launcher(runtime, capsules_of(config, runtime.registry.queues()), embedded=True)
        self._started = False
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await self.astart()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.astop()

    def __repr__(self) -> str:
        return f"<embedded worker {self.identity or 'that was not started'}>"

    @property
    def identity(self) -> str:
        """The name of this worker in process lists; empty before the start."""
        return self._launcher.session.identity

    def start(self) -> None:
        """Start it; nothing happens when it runs. ServerAway when the server cannot be reached."""
        if not self._started:
            try:
                self._launcher.start()
            except BaseException:
                self._launcher.stop(0.0)
                raise
            self._started = True
            atexit.register(self.stop, AT_EXIT)

    async def astart(self) -> None:
        """``start``, awaited."""
        await in_thread(self.start)

    def quiet(self) -> None:
        """Take no new work; what runs goes on. Cannot be undone."""
        self._launcher.quiet()

    def fetching(self) -> bool:
        """Whether it takes work now: it holds its lease and waits for pushes, or every slot is busy."""
        return self._started and self._launcher.fetching()

    def stop(self, timeout: float | None = None) -> bool:
        """Stop it: running jobs may finish within ``timeout`` seconds, the rest goes back. True when all finished."""
        atexit.unregister(self.stop)
        if not self._started or os.getpid() != self._pid:
            return True
        return self._launcher.stop(self._grace if timeout is None else timeout)

    async def astop(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - the same word as above
        """``stop``, awaited: the event loop turns meanwhile, for jobs that wait for it."""
        stopped: bool = await in_thread(self.stop, timeout)
        return stopped
