"""Puts the parts of one worker process together, starts them in order, stops them in the other order."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from henchman.errors import ConfigError, HenchmanError, JobCancelled, JobShutdown, ServerError
from henchman.kernel.scoreboard import Scoreboard
from henchman.store import leases
from henchman.store.leases import ask_time
from henchman.store.queues import paused
from henchman.worker.acker import Acker
from henchman.worker.capsule import Capsule, capsules_of, served
from henchman.worker.control import Cancels, Control, Isolation
from henchman.worker.fetcher import AHEAD_BYTES, Fetcher
from henchman.worker.heart import Heart
from henchman.worker.host import Companion, Host
from henchman.worker.lifeline import Lifeline
from henchman.worker.loop import Loop
from henchman.worker.manager import Feed, Manager
from henchman.worker.pool import Pool
from henchman.worker.processor import Intake, Processor
from henchman.worker.renewal import Renewal
from henchman.worker.retry import RetryPolicy
from henchman.worker.run import Run
from henchman.worker.session import LeaseSession
from henchman.worker.shared import Shared
from henchman.worker.stager import Stager
from henchman.worker.watchdog import AFTER_STRIKE, Standstill, Watchdog, dump, frames_of, strike
from henchman.worker.watcher import Watcher

__all__ = ["Embedded", "Launcher", "default_capsules"]

LOOP_BLOCKED = 1.0  # seconds without a turn after which the event loop gets no more jobs
CLEAN_UP = 3.0  # seconds for what jobs do after they were told that the worker stops


def default_capsules(host: Host) -> list[Capsule]:
    """The capsules that the configuration names; without queues every queue of the registered jobs, at random."""
    return capsules_of(host.config, host.registry.queues())


class Launcher:
    """One worker process. ``announce(identity)`` tells the supervisor who we are before we hold anything.

    ``pulse()`` is called each second; ``replace(reason)`` asks for another process in place of this one.
    """

    def __init__(
        self,
        host: Host,
        capsules: Sequence[Capsule],
        *,
        announce: Callable[[str], None] = lambda identity: None,
        pulse: Callable[[], None] = lambda: None,
        replace: Callable[[str], None] = lambda reason: None,
        embedded: bool = False,
        board: Scoreboard | None = None,
    ) -> None:
        self.host = host
        self._replace, self._on_pulse = replace, pulse
        self._stopped = False
        self.control = Control(host)
        capsules, queues = self._placed(capsules)
        self.session = LeaseSession(host, queues, announce, self.sources)
        self.cancels = Cancels(host, self._tell_cancelled)
        self.board = board or Scoreboard()
        self.acker = Acker(host, self.session, self.board)
        self.acker.on_called_off = lambda: self._try("cancels", self.cancels.load)
        self.manager = Manager()
        self._build_running()
        self.manager += [self._feed(capsule) for capsule in capsules]
        self._build_watcher(queues)
        self.stager = Stager(host)
        self.lifeline = Lifeline(host)
        self.renewal = Renewal(host, self.manager, self.session, self._pulse)
        self.heart = Heart(
            host,
            self.manager,
            self.session,
            self.cancels,
            self.control,
            self.acker.metrics,
            round_trip=lambda: self.renewal.round_trip,
            embedded=embedded,
        )
        self.companions: Sequence[Companion] = host.companions(alone=board is None)
        self._obey()

    def _placed(self, capsules: Sequence[Capsule]) -> tuple[list[Capsule], list[str]]:
        """What this process serves: the capsules without queues that are another's, and all their queues."""
        wanted = [queue for capsule in capsules for queue in capsule.queues]
        sources = {name: one for name, one in self.host.sources().items() if name in wanted}
        mine = self.host.placement(list(sources))
        self.sources = {name: one for name, one in sources.items() if name in mine}
        kept = served(capsules, sources.keys() - mine)
        return kept, [queue for capsule in kept for queue in capsule.queues]

    def _try(self, part: str, step: Callable[[], object]) -> None:
        """Take a step that the way on does not depend on: a server that is away or refuses is told of."""
        try:
            step()
        except ServerError as error:
            self._failed(part, error)

    def _failed(self, part: str, error: BaseException) -> None:
        self.host.events.failed(part, error)

    def _build_running(self) -> None:
        """What runs jobs: threads, the event loop, the watchdog."""
        self.policy = RetryPolicy(self.host)
        self.watchdog = Watchdog(strike, self._abandon, self._failed)
        fence = self.session, self.cancels
        self.processor = Processor(self.host, self.acker, self.policy, self.watchdog, *fence, self.board)
        self.standstill = Standstill()
        self.loop = Loop(self.processor.aexecute)
        self.loop.on_done = lambda run: run.pool.task_done(run)
        self.loop.on_ended = lambda error: self.host.events.emit("loop_ended", error=error)
        self.loop.on_lost = self._give_back_lost
        isolation = Isolation(self.board, self.acker, self.manager.busy, self.manager.look, self.session.held)
        intake = Intake(self.host, self.policy, self.acker.notes)
        parts = self.host, self.session, self.acker, intake, self.cancels, isolation, self.sources, self.board
        self._shared = Shared(*parts)

    def _feed(self, capsule: Capsule) -> Feed:
        """The slots of one capsule and who fills them."""
        pool = Pool(capsule.concurrency, self.processor.execute, self.loop.launch)
        pool.on_defect = lambda error: self._failed("processor", error)
        fetcher = Fetcher(self._shared, capsule, pool)
        return Feed(capsule, pool, fetcher)

    def _build_watcher(self, queues: Sequence[str]) -> None:
        """Who is woken by a push, for every capsule on one thread."""
        by_queue = {queue: feed.fetcher for feed in self.manager for queue in feed.capsule.queues}
        self.watcher = Watcher(
            self.host,
            self.session,
            queues,
            self.sources,
            on_ring=lambda queue: by_queue[queue].rang(queue),
            on_unwatched=lambda queue: by_queue[queue].unwatched(),
            on_units=lambda units, backlog: by_queue[units[0].flight.queue].delivered(units, backlog),
            on_control=self.control.message,
            on_listening=self.cancels.load,
            on_unknown=self.fetcher.unknown,
            may_arm=lambda queue: by_queue[queue].may_arm(queue),
        )
        for feed in self.manager:
            feed.fetcher.watcher = self.watcher
            feed.fetcher.ahead_bytes = AHEAD_BYTES // len(self.manager)
        self.acker.on_room = self.session.on_valid = self.manager.ring

    @property
    def pool(self) -> Pool:
        """The slots of the first capsule."""
        return self.manager[0].pool

    @property
    def fetcher(self) -> Fetcher:
        """Who fills the slots of the first capsule."""
        return self.manager[0].fetcher

    @property
    def started(self) -> int:
        """Jobs started in the life of this process."""
        return self.manager.started()

    def fetching(self) -> bool:
        """Whether this process takes work: it holds its lease, is not quiet, and waits for pushes or is full."""
        return self.session.valid_for() > 0 and all(feed.fetcher.takes_work() for feed in self.manager)

    def _obey(self) -> None:
        """What the control channel and Sidekiq's Web UI may tell us."""
        self.control.on("cancel", self.cancels.add)
        self.control.on("pause", self._pause)
        self.control.on("unpause", self.manager.unpause)
        self.control.on("quiet", lambda _: self.quiet())
        self.control.on("dump", lambda _: self.dump())
        for verb, handler in (pair for companion in self.companions for pair in companion.verbs.items()):
            self.control.on(verb, handler)

    def start(self) -> None:
        """Start every part; ServerError when the server cannot be reached."""
        self.host.connections.run(ask_time(self.host.clock))  # before anything is judged by it
        self.cancels.load()
        self.manager.set_paused(self.host.connections.run(paused(self.host.keys)))  # before anything waits for a push
        for source in self.sources.values():
            source.declare()
        self.session.join()
        queues = [name for feed in self.manager for name in feed.capsule.queues]
        ordered = {"ordered": sorted(self.sources)} if self.sources else {}
        self.host.events.emit(
            "startup", queues=queues, slots=sum(feed.capsule.concurrency for feed in self.manager), **ordered
        )
        fetchers = [feed.fetcher for feed in self.manager]
        for part in (
            self.acker,
            self.watchdog,
            self.renewal,
            self.heart,
            *fetchers,
            self.watcher,
            self.stager,
            self.lifeline,
        ):
            part.start()
        for companion in self.companions:
            companion.start()

    def quiet(self) -> None:
        """Take no new work; what runs goes on. Cannot be undone."""
        if not self.fetcher.quieted.is_set():
            self.host.events.emit("quiet")
        self.processor.stopping = True  # for what starts from now on
        for run in self.manager.running():
            run.stopping = True
        self.stager.quiet()
        for companion in self.companions:
            companion.quiet()
        for feed in self.manager:
            feed.fetcher.quiet()

    def stop(self, timeout: float) -> bool:
        """Quiet, wait up to ``timeout`` seconds for running jobs, give back the rest; True when all had finished."""
        if self._stopped:
            return True
        self._stopped = True
        self.quiet()
        self._tell_stopping()
        finished = self.manager.wait_idle(timeout, lambda: self.standstill.found and not self.pool.tasks)
        if not finished:
            self._interrupt(self.manager.running())
            self.manager.wait_idle(CLEAN_UP)
        self.host.events.emit("shutdown")
        for companion in self.companions:
            companion.stop()
        self.stager.stop()
        disarmed = self._disarm()
        self.watcher.stop(2.0)
        for feed in self.manager:
            feed.fetcher.stop(2.0)
            feed.pool.stop()
        self._flush()
        self.acker.stop()
        for part in (self.heart, self.lifeline, self.renewal):
            part.stop()
        self.watchdog.stop()
        self.loop.stop()
        self._leave(disarmed)
        return finished

    def _tell_stopping(self) -> None:
        """If we are killed from here on, that is a deploy's haste, and no job's fault."""
        self._try("launcher", lambda: self.host.connections.run(leases.stopping(self.host.keys, self.session.identity)))

    def _interrupt(self, unfinished: Iterable[Run]) -> None:
        """The deadline has passed: give back first, then raise in the jobs; ordered ids go back after that."""
        for run in unfinished:
            if not run.abandoned and not run.ended and run.unit.source is None:
                run.released = True
                self.session.held.discard(run.unit)
        self.acker.flush()
        self._try("launcher", self.session.give_back_all)  # the server alone knows in which order they came
        for feed in self.manager:
            for slot in feed.pool.slots:
                if (struck := slot.run) is not None:
                    self.watchdog.strike(struck, slot, JobShutdown)
            for run in list(feed.pool.tasks):
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
        deadline = time.monotonic() + 5.0
        while not self.acker.flush() and time.monotonic() < deadline:
            time.sleep(0.2)

    def _leave(self, disarmed: bool) -> None:
        """Off the books; where something may still arrive, the lifeline sweeps after us."""
        try:
            if disarmed:
                self.session.leave()
            else:
                self.session.entomb()
            self.host.connections.run(leases.strike_off(self.host.keys, self.session.identity))
            for source in self.sources.values():
                source.ring()  # whoever rang us last may not have been heard
        except HenchmanError as error:
            self._failed("launcher", error)

    def _pulse(self) -> None:
        """Each second: tell the supervisor, and see whether the event loop still turns, and the threads get on."""
        self._on_pulse()
        self._look_for_a_standstill()
        self.loop.look()
        blocked = self.loop.blocked_for() > LOOP_BLOCKED
        if blocked != self.pool.hold_tasks:
            self.manager.hold_tasks(blocked)
            stack = frames_of(self.loop.thread_id) if blocked else []
            self.host.events.emit("loop_blocked" if blocked else "loop_back", stack=stack)

    def _give_back_lost(self) -> None:
        """The event loop was closed: the jobs on it start again, on the next."""
        for run in self.manager.running():
            if self.loop.is_lost(run):
                self.processor.give_back(run, "its event loop was closed")
                self.loop.drop(run)

    def _look_for_a_standstill(self) -> None:
        """Ask for another process when every job of ours waits for a lock. Ask first: a log line may need that lock."""
        known = self.standstill.found
        limit = AFTER_STRIKE if self.watchdog.struck else self.host.config.hang_after
        found = self.standstill.look(self.manager.slots(), limit)
        if found and not known:
            self._replace(f"every job in it waits for a lock that nobody gives back: {found[0]}")
            self.host.events.emit("standstill", waiting=found)

    def _abandon(self, run: Run) -> None:
        """A job ignores its time-out: settle it, and ask for another process, because the thread is lost."""
        self._try("watchdog", lambda: self.processor.abandon(run))
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
        """Announce where every thread and task stands, and write it into this process's file."""
        dump(self.host, self.session.identity, self.manager.slots(), self.manager.tasks(), self.loop.stacks())


AT_EXIT = 5.0


class Embedded:
    """A worker inside one's own process: a web server, a notebook, a test. Touches no signals.

    Use it with ``with``, or call ``start`` and ``stop``. There is no supervisor: the heart alone keeps the lease, so
    code that holds the interpreter lock for longer than the lease loses its jobs to others; a job that ignores its
    time-out keeps its thread; and after a fork only the parent has the worker.
    """

    def __init__(self, host: Host, settings: dict[str, Any]) -> None:
        config = host.config.with_arguments(**settings)
        if config.processes != 1:
            raise ConfigError(
                f"processes = {config.processes}: an embedded worker is part of this process; leave it out"
            )
        self._grace = config.shutdown_timeout
        self._launcher = Launcher(host, capsules_of(config, host.registry.queues()), embedded=True)
        self._started = False
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

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
