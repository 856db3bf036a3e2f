"""The body of one worker process (``python -m henchman.supervisor.worker_main``)."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import mmap
import os
import queue
import signal
import sys
import threading

import msgspec

from henchman.app import App
from henchman.config import Config
from henchman.errors import ConfigError, HenchmanError
from henchman.kernel.scoreboard import SCOREBOARD_BYTES, Scoreboard
from henchman.kernel.text import described, mask_url
from henchman.log import handler as log
from henchman.log.events import log_text
from henchman.supervisor.child import EXIT_CONFIG, EXIT_CUT_OFF, WorkerArgs
from henchman.supervisor.load import load_app, their_traceback
from henchman.worker.heart import resident_kb
from henchman.worker.launcher import Launcher, default_capsules
from henchman.worker.processor import in_child

_WORDS = {
    signal.SIGTERM: "stop",
    signal.SIGINT: "stop",
    signal.SIGTSTP: "quiet",
    signal.SIGTTIN: "dump",
    signal.SIGHUP: "ignore",
}
_SHOWN = 20  # queues in the line of a start
LOOK_UP = 0.5  # seconds
GRACE = 25.0  # seconds, for whom no configuration has been read yet
PYTHONS = 700  # objects that may come before the collector looks at the youngest, as Python has it
COLLECTED = 20_000  # and as it is in a worker
MARGIN = 20.0  # seconds for giving back and saying goodbye, also where the server does not answer


class Child:
    """One worker process: obeys signals and its supervisor, tells it who it is, ends with it."""

    def __init__(self, args: WorkerArgs) -> None:
        self._args = args
        self._events: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._board = Scoreboard(mmap.mmap(args.pulse_fd, SCOREBOARD_BYTES))
        self._beats = 0
        self._asked = False
        self.launcher: Launcher | None = None
        for fd in (args.status_fd, args.lifeline_fd, args.pulse_fd, args.crash_fd):
            os.set_inheritable(fd, False)  # programs that jobs start are no workers
        in_child(self)
        # A signal for the child may come before it has heard what signals mean to it: that waits.
        self._held = threading.local()
        os.register_at_fork(before=self._block_signals, after_in_parent=self._unblock_signals)

    def _block_signals(self) -> None:
        self._held.before = signal.pthread_sigmask(signal.SIG_BLOCK, _WORDS)

    def _unblock_signals(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._held.before)

    def forked(self) -> None:
        """In a child that a job forked: signals mean there what they mean anywhere, and our supervisor hears
        nothing."""
        for number in _WORDS:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        self._unblock_signals()
        faulthandler.enable()  # its crashes are not those of the worker
        faulthandler.unregister(signal.SIGUSR2)
        for fd in (self._args.status_fd, self._args.lifeline_fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._args.status_fd = self._args.lifeline_fd = -1

    def catch_signals(self) -> None:
        """Take signals from here on, before any of the user's code is imported."""
        for number, word in _WORDS.items():
            signal.signal(number, lambda *_, word=word: self._events.put(word))
        faulthandler.enable(self._args.crash_fd)  # a crash: which line it was
        faulthandler.register(signal.SIGUSR2, self._args.crash_fd)  # the last word of a process that hangs
        threading.Thread(target=self._outlive, name="henchman-orphan", daemon=True).start()

    def _outlive(self) -> None:
        """End of file on the pipe means that the supervisor is gone: quiet, finish, give back, end."""
        with contextlib.suppress(OSError):
            while os.read(self._args.lifeline_fd, 1):
                pass
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            faulthandler.enable(2)  # nobody reads the file of crashes any more
        self._end_within(GRACE if self.launcher is None else self.launcher.runtime.config.shutdown_timeout)
        self._events.put("stop")

    @staticmethod
    def _end_within(grace: float) -> None:
        """Whatever our threads do, we end a little after ``grace``: a thread that is none of Python's sees to it, and
        tells where each stood. Who comes after us gives back what we hold."""
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            faulthandler.dump_traceback_later(grace + MARGIN, exit=True, file=2)

    def tell(self, **facts: object) -> None:
        """Tell the supervisor; nothing happens when it is gone."""
        with contextlib.suppress(OSError):
            os.write(self._args.status_fd, msgspec.json.encode(facts) + b"\n")

    def pulse(self) -> None:
        """Show the supervisor that the interpreter turns; ask for a successor at a limit."""
        self._beats += 1
        if self.launcher is None:
            return
        self._board.beat(self._beats, self._state(self.launcher))
        if self._asked:
            return
        config = self.launcher.runtime.config
        if config.max_jobs is not None and self.launcher.started >= config.max_jobs:
            self.replace(f"{self.launcher.started} jobs run, max_jobs is {config.max_jobs}")
        elif config.max_memory is not None and resident_kb() > config.max_memory * 1024:
            self.replace(f"{resident_kb() // 1024} MB in use, max_memory is {config.max_memory} MB")

    @staticmethod
    def _state(launcher: Launcher) -> int:
        """A key of ``kernel.scoreboard.STATES``; hung when the event loop is, though threads may go on."""
        if launcher.loop.blocked_for() > launcher.runtime.config.hang_after:
            return 3
        return 2 if launcher.renewal.away else int(launcher.fetching())

    def replace(self, reason: str) -> None:
        """Ask for another process in our place, once."""
        if not self._asked:
            self._asked = True
            self.tell(replace=reason)

    def work(self) -> int:
        """Load the app and work; the exit status. What ends us is told to the app before anybody else."""
        app = self._load()
        try:
            return self._work(app)
        except Exception as error:
            app.events.emit("last_words", error=error)
            raise

    def _work(self, app: App) -> int:
        """Start, wait for the word to stop, stop."""
        app.configure(**self._args.settings)
        config = app.config
        if config.configure_logging:
            log.setup(config.log_format, config.log_level, process_tag=str(self._args.number))
        announcer = log.subscribe(app.events, config.log_level)
        self.tell(config=config.to_json())
        self.launcher = launcher = Launcher(
            app,
            default_capsules(app),
            announce=lambda identity: self.tell(identity=identity),
            pulse=self.pulse,
            replace=self.replace,
            board=self._board,
            place=self._args.target,
            inherited=(self._args.status_fd,),
        )
        launcher.control.on("stop", lambda _: self._events.put("stop"))
        _spare_collector()
        launcher.start()
        self.tell(ready=True, **_facts(launcher))
        self._obey(launcher)
        self._end_within(config.shutdown_timeout)
        finished = launcher.stop(config.shutdown_timeout)
        app.close()
        announcer.flush()
        return 0 if finished else EXIT_CUT_OFF

    def _load(self) -> App:
        """The user's app; ConfigError when his code does not import: another try would end the same way."""
        return load_app(self._args.target)

    def _next(self) -> str:
        """The next word. It looks up each half second: a signal that comes in the moment before the wait, or that the
        system gives to another thread, ends no wait, and its handler runs only when this thread turns.
        """
        while True:
            with contextlib.suppress(queue.Empty):
                return self._events.get(timeout=LOOK_UP)

    def _obey(self, launcher: Launcher) -> None:
        while True:
            word = self._next()
            if word == "stop":
                return
            if word == "quiet":
                launcher.quiet()
            elif word == "dump":
                launcher.dump()


def _spare_collector() -> None:
    """What was loaded stays for the life of this process: the collector looks for garbage among what came since, and
    not each time that 700 objects came, which is every 200 jobs. An app that has chosen its own figures keeps them."""
    gc.collect()
    gc.freeze()
    if gc.get_threshold()[0] == PYTHONS:
        gc.set_threshold(COLLECTED, *gc.get_threshold()[1:])


def _facts(launcher: Launcher) -> dict[str, object]:
    """What the supervisor tells people of its workers."""
    config, capsules = launcher.runtime.config, [fetcher.capsule for fetcher in launcher.manager]
    queues = [name for capsule in capsules for name in capsule.queues]
    more = f" and {len(queues) - _SHOWN} more" if len(queues) > _SHOWN else ""
    return {
        "jobs": len(launcher.runtime.registry),
        "queues": ", ".join(queues[:_SHOWN]) + more,
        "slots": sum(capsule.concurrency for capsule in capsules),
        "server": mask_url(config.redis_url) if config.redis_url else f"embedded, in {config.server_folder()}",
    }


def _say_last(args: WorkerArgs, error: Exception) -> None:
    """A line of the log on why this process ends, with the user's part of the traceback; the handler may not be there
    yet: nothing is set up before the user's code is imported."""
    root = logging.getLogger()
    cause = error.__cause__ if isinstance(error, HenchmanError) else error
    words = str(error) if isinstance(error, HenchmanError) else described(error)
    message = "the worker process ends"
    try:
        config = Config.load(arguments=args.settings)
        if config.configure_logging or not root.handlers:
            log.setup(config.log_format, config.log_level, process_tag=str(args.number))
        else:
            message += f": {words}"  # a format of the user's own need not show the field
    except ConfigError:
        log.setup("auto", "info", process_tag=str(args.number))
    text = "" if cause is None else their_traceback(cause)
    log_text(logging.getLogger("henchman"), logging.CRITICAL, message, text, error=words)


def main() -> None:
    """The body of ``python -m henchman.supervisor.worker_main``; its WorkerArgs are a line of standard input."""
    args = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerArgs)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # what jobs start reads nothing of ours
    sys.argv = ["henchman", "work", args.target]
    child = Child(args)
    child.catch_signals()
    try:
        status = child.work()
    except Exception as error:
        status = EXIT_CONFIG if isinstance(error, ConfigError) else 1
        _say_last(args, error)
        if isinstance(error, HenchmanError):
            child.tell(failed=str(error))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a job that ignores its end must not keep the process


if __name__ == "__main__":
    main()
