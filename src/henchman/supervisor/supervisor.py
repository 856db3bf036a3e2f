"""The parent of worker processes: starts them, keeps their leases, replaces the dead, gives their work back.

It imports nothing of the user's. A child tells it over a pipe who it is and which server it uses; from then on the
supervisor renews the child's lease too, as long as the child's interpreter turns.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from henchman import __version__
from henchman.kernel.clock import capped_backoff
from henchman.kernel.text import described
from henchman.log import handler as log
from henchman.log.events import log_text
from henchman.supervisor.child import EXIT_CONFIG, EXIT_CUT_OFF, ChildProcess, Say
from henchman.supervisor.child_leases import ChildLeases
from henchman.supervisor.history_process import HistoryProcess
from henchman.supervisor.probes import Health, Notifier
from henchman.supervisor.scrape import Scrapes
from henchman.worker.rescue import Death

TAG = "supervisor"  # in its log lines
MOST_PATIENCE = 10.0  # seconds between two tries to start a process that the system refuses
QUICK = 2.0  # seconds; a child that lives shorter than this was not worth an immediate successor
CAREFUL = 60.0  # seconds for which outcomes are settled one by one, after a process crashed while it settled some
# What a process does to itself while it packs an outcome. SIGKILL comes from outside and says nothing of outcomes: at
# almost any moment of a busy process some are on their way.
CRASHES = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})
AFTER_DEFECT = 0.2  # seconds to wait after a step of the loop that failed, so that it cannot spin


class Supervisor:
    """``count`` children for ``target``; ``say`` writes lines of the log; ``health``: where probes are answered."""

    def __init__(
        self,
        target: str,
        settings: Mapping[str, Any],
        count: int,
        say: Say,
        health: str | None = None,
    ) -> None:
        self._target = target
        self._settings = dict(settings)
        self._count = count
        self._grace = 25.0
        self._say = say
        self._children: list[ChildProcess] = []
        self._leaving: list[ChildProcess] = []
        self._rolling: list[ChildProcess] = []
        self._leases = ChildLeases(say)
        self._history = HistoryProcess(say)
        self._notifier = Notifier()
        self._health = Health(health, self.facts, Scrapes(self._leases.server).answer) if health else None
        self._signals: list[int] = []
        self._stopping = self._was_ready = self._quiet = False
        self._deadline: float | None = None
        self._status = 0
        self._cut_off = False
        self._failures = self._refused = 0
        self._logs_as = ("", "")
        self._next_start = 0.0
        self._troubles: dict[str, str] = {}
        self._careful_until = 0.0
        self._wakeup, self._waker = socket.socketpair()

    def run(self) -> int:
        """Until told to stop and every child has ended; the exit status, EXIT_CUT_OFF when jobs were cut off."""
        self._catch_signals()
        self._leases.start()
        if self._health is not None:
            self._health.start()
        steps = (
            *(self._start_missing, self._take_care, self._wait, self._obey_signals, self._reap, self._list_the_living),
            *(self._kill_hung, self._announce, self._enforce),
        )
        try:
            while not self._done():
                for step in steps:
                    self._safely(step.__name__.strip("_").replace("_", " "), step)
        finally:
            self._end()
        return self._status or (EXIT_CUT_OFF if self._cut_off else 0)

    def _safely(self, name: str, step: Callable[[], object]) -> None:
        """Take a step. One that fails is said, once each, and stops no other: healthy children outlive our troubles."""
        try:
            step()
        except Exception as error:
            text = described(error)
            if self._troubles.get(name) != text:
                self._troubles[name] = text
                self._say("the supervisor could not take a step, and tries again", step=name, error=text)
            time.sleep(AFTER_DEFECT)
        else:
            self._troubles.pop(name, None)

    def _each(self, what: str, care: Callable[[ChildProcess], None]) -> None:
        """Take care of each child, whatever happens while another is cared for."""
        for child in [*self._children, *self._leaving]:
            self._safely(f"{what} process {child.pid}", partial(care, child))

    def _list_the_living(self) -> None:
        self._leases.children = [child for child in (*self._children, *self._leaving) if child.alive]

    def facts(self) -> dict[str, Any]:
        """What probes are told. Ready: every process takes work. Alive: none is stuck; a server that is away, a stop
        and a quiet are no reason to be killed."""
        children = list(self._children)
        states = [child.state for child in children]
        told = self._stopping or self._quiet
        return {
            "live": told or not any(child.stuck for child in children),
            "ready": not told and len(children) == self._count and set(states) == {"fetching"},
            "stopping": self._stopping,
            "quiet": self._quiet,
            "processes": [{"pid": child.pid, "state": state} for child, state in zip(children, states, strict=True)],
        }

    def _announce(self) -> None:
        """Tell systemd, if it asked: ready, and now and then alive."""
        facts = self.facts()
        if facts["ready"]:
            self._notifier.ready()
        self._notifier.alive(facts["live"])

    def _done(self) -> bool:
        return self._stopping and not self._children and not self._leaving

    def _catch_signals(self) -> None:
        for end in (self._wakeup, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for name in ("SIGTERM", "SIGINT", "SIGTSTP", "SIGTTIN", "SIGHUP", "SIGCHLD"):
            signal.signal(getattr(signal, name), lambda number, _: self._signals.append(number))

    def _wait(self) -> None:
        pipes = [child.status_fd for child in (*self._children, *self._leaving) if child.status_fd >= 0]
        ready, _, _ = select.select([self._wakeup.fileno(), *pipes], [], [], 0.5)
        if self._wakeup.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                self._wakeup.recv(4096)
        self._each("hear", lambda child: self._read_messages(child) if child.status_fd in ready else None)

    def _read_messages(self, child: ChildProcess) -> None:
        for message in child.read():
            self._take_message(child, message)

    def _take_message(self, child: ChildProcess, message: dict[str, Any]) -> None:
        if "config" in message:
            config = self._leases.connect(message["config"])
            self._history.want(config)
            self._grace = config.shutdown_timeout
            if (config.log_format, config.log_level) != self._logs_as:
                self._logs_as = config.log_format, config.log_level
                log.setup(*self._logs_as, process_tag=TAG)
            if "processes" not in self._settings:
                self._count = config.processes
        if message.get("ready"):
            if not self._was_ready:
                self._say_ready(message)
            self._was_ready = True
            self._failures = self._status = 0
            if self._quiet:
                child.signal(signal.SIGTSTP)
            self._roll_on()
        if "replace" in message and child in self._children:
            self._say("a worker process is replaced", child=child.pid, reason=message["replace"])
            self._retire(child)

    def _say_ready(self, message: dict[str, Any]) -> None:
        """What people want to see at a start, and how it is stopped."""
        facts = {name: message.get(name) for name in ("jobs", "queues", "slots", "server")}
        stop = f"Ctrl-C, or TERM to {os.getpid()}"
        facts |= {"processes": self._count, "app": self._target, "version": __version__, "stop": stop}
        self._say("Henchman is ready", level=logging.INFO, **facts)

    def _start_missing(self) -> None:
        now = time.monotonic()
        wanted = 0 if self._stopping or self._quiet else self._count
        while len(self._children) < wanted and now >= self._next_start:
            taken = {child.number for child in self._children}
            number = next(one for one in range(self._count) if one not in taken)
            try:
                self._children.append(ChildProcess.spawn(self._target, self._settings, number))
            except (OSError, MemoryError) as error:  # no process, memory or descriptor to be had now
                self._put_off(error)
            else:
                if self._refused:
                    self._refused = 0
                    self._say("another worker process could be started", child=self._children[-1].pid)

    def _take_care(self) -> None:
        """After a crash among outcomes that were settled together nobody knows whose fault it was: for a while every
        process settles them one by one, so that the next crash says."""
        careful = time.monotonic() < self._careful_until
        for child in (*self._children, *self._leaving):
            child.board.one_by_one(careful)

    def _put_off(self, error: BaseException) -> None:
        """The system refuses another process: those that live go on, and we try again, later each time."""
        if not self._refused:
            words = "the system refuses another worker process: tried again until it can be started"
            self._say(words, error=described(error))
        self._refused += 1
        self._next_start = time.monotonic() + capped_backoff(self._refused, most=MOST_PATIENCE)

    def _retire(self, child: ChildProcess) -> None:
        """Let a child finish what it runs; its successor is started at once."""
        self._children.remove(child)
        self._leaving.append(child)
        child.signal(signal.SIGTERM)

    def _obey_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stop()
            elif number == signal.SIGHUP and not self._quiet:
                self._say("rolling the worker processes over, one by one", level=logging.INFO)
                self._rolling = list(self._children)
                self._roll_on()
            elif number in (signal.SIGTSTP, signal.SIGTTIN):
                if number == signal.SIGTSTP:
                    self._say("quiet: no new work; send TERM to stop", level=logging.INFO)
                    self._quiet = True
                for child in (*self._children, *self._leaving):
                    if child.identities:  # one that does not listen yet would be stopped by the kernel
                        child.signal(number)

    def _roll_on(self) -> None:
        """Replace the next child that was there when the roll began, once its predecessor's successor is ready."""
        if self._rolling and all(child.ready for child in self._children):
            child = self._rolling.pop(0)
            if child in self._children:
                self._retire(child)

    def _stop(self) -> None:
        if self._stopping:
            self._say("told to stop a second time: ending at once; unfinished jobs are given back", level=logging.INFO)
            for child in (*self._children, *self._leaving):
                child.signal(signal.SIGKILL)
            return
        words = "stopping: running jobs may finish; press Ctrl-C again to end at once"
        self._say(words, level=logging.INFO, grace=self._grace)
        self._end_all()

    def _end_all(self) -> None:
        """Tell every child to stop; the loop ends when they have."""
        self._stopping = True
        self._notifier.stopping()
        self._rolling = []
        self._deadline = time.monotonic() + self._grace + 15.0
        for child in (*self._children, *self._leaving):
            child.signal(signal.SIGTERM)

    def _enforce(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            for child in (*self._children, *self._leaving):
                self._say("a worker process did not end in time: killed; its jobs are given back", child=child.pid)
                child.signal(signal.SIGKILL)
            self._deadline = time.monotonic() + 5.0

    def _kill_hung(self) -> None:
        self._each("look at", self._kill_if_hung)

    def _kill_if_hung(self, child: ChildProcess) -> None:
        reason = child.hung(self._leases.hang_after, self._leases.lease)
        if reason is None:
            return
        if not child.doomed:
            words = "a worker process is killed, its jobs are given back"
            self._say(words, level=logging.ERROR, child=child.pid, reason=reason)
            child.doomed = True
            child.signal(signal.SIGUSR2)  # faulthandler writes where it stands; the next look kills it
        else:
            child.signal(signal.SIGKILL)

    def _reap(self) -> None:
        """Every child that has ended; as PID 1 also orphans that are not ours."""
        ended = dict(self._orphans()) if os.getpid() == 1 else {}
        self._safely("keep the history process", lambda: self._history.keep(ended))
        self._each("reap", lambda child: self._reap_one(child, child.ended(ended)))

    def _reap_one(self, child: ChildProcess, status: int | None) -> None:
        if status is None or child.outlived():
            return
        expected = child in self._leaving or self._stopping
        try:
            self._read_messages(child)  # its last words: among them names under which it held work
        finally:
            for group in (self._children, self._leaving):
                if child in group:
                    group.remove(child)
            self._give_back(child, status, expected)

    def _give_back(self, child: ChildProcess, status: int, expected: bool) -> None:
        worked = child.ready or bool(child.board.started())  # jobs begin a moment before it says that it is ready
        self._cut_off |= self._stopping and worked and status not in (0, 1)
        hung = child.doomed and not child.was_stopped
        if not expected and child.board.was_settling() and (hung or -status in CRASHES):
            self._careful_until = time.monotonic() + CAREFUL
        self._leases.give_back(child.identities, self._death(child, status, expected))
        self._after_death(child, status, expected, worked)
        child.close()

    @staticmethod
    def _death(child: ChildProcess, status: int, expected: bool) -> Death | None:
        """The death that its running jobs are charged with; None when it ended as we wished: no job is to blame."""
        started = child.board.started()
        if expected or status in (0, 1, EXIT_CUT_OFF, EXIT_CONFIG) or (child.doomed and len(started) != 1):
            return None
        how, kind = f"it ended with {_described(status)}", "hang" if child.doomed else "crash"
        return Death(how, started, child.board.was_alone(), child.board.marked(), kind)

    @staticmethod
    def _orphans() -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            found.append((pid, os.waitstatus_to_exitcode(status)))

    def _after_death(self, child: ChildProcess, status: int, expected: bool, worked: bool) -> None:
        if expected:
            if status == EXIT_CUT_OFF:
                self._say("a worker process could not wait for every job: those are given back", child=child.pid)
            elif status not in (0, 1) and not self._stopping:
                self._say("a worker process ended otherwise than asked", child=child.pid, end=_described(status))
            return
        if not child.ready and child.failed:
            self._status = 1
            if child.fatal(status) and not self._was_ready:
                self._end_all()
                return
        then = "" if self._quiet else ", another is started"
        what = "its jobs are given back" if worked else "it had not begun to work"
        facts = {"child": child.pid, "end": _described(status), "then": f"{what}{then}"}
        self._say("a worker process ended", level=logging.ERROR, text=child.where_it_stood(), **facts)
        quick = time.monotonic() - child.started < QUICK
        self._failures = self._failures + 1 if quick else 0
        self._next_start = time.monotonic() + (capped_backoff(self._failures) if quick else 0.0)

    def _end(self) -> None:
        for child in (*self._children, *self._leaving):  # only after an error in this very loop
            child.signal(signal.SIGKILL)
            child.wait(2.0)
            self._leases.give_back(child.identities)
        self._safely("give back what is left", self._leases.finish)
        self._safely("end the history process", self._history.stop)
        if self._health is not None:
            self._safely("end the probes", self._health.stop)
        signal.set_wakeup_fd(-1)


def _described(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-status).name}"
    return f"signal {-status}"


def say(words: str, /, *, level: int = logging.WARNING, text: str = "", **facts: Any) -> None:
    """One line of the log; ``text`` stands where a traceback would."""
    log_text(logging.getLogger("henchman.supervisor"), level, words, text, **facts)
