"""A worker process as its supervisor sees it: started anew, in a process group of its own, joined by pipes."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from henchman.kernel.scoreboard import SCOREBOARD_BYTES, Scoreboard

SILENT = 30.0  # seconds; a job may hold the interpreter lock for a while
NO_WORK = 10.0  # seconds for which a process that turns may take no work: it starts, or joins anew
OUTLIVED = 5.0  # seconds for which the dead child's isolated runs are waited for
CRASH_MOST = 100_000  # bytes that are told of where a process stood
EXIT_CUT_OFF = 3  # stopped as told, but not every running job ended in its time: the others were given back
EXIT_CONFIG = 78  # as sysexits.h: the configuration is wrong, another try would end the same way


#: writes a line of the log: ``say("a process ended", level=logging.INFO, child=4711)``; the level is warning
Say = Callable[..., None]


class WorkerArgs(msgspec.Struct):
    """What a supervisor tells its child at start. Descriptors are inherited; ``settings`` go before the app's own.

    It is one line on the child's standard input: an address holds a password, which everybody on the machine could read
    in a command line.
    """

    target: str
    settings: dict[str, Any]
    status_fd: int
    lifeline_fd: int
    pulse_fd: int
    crash_fd: int  # a file, for what ``faulthandler`` writes when the process crashes
    number: int


class ChildProcess:
    """One child. ``identities``: every name under which it has held work, the newest last."""

    def __init__(
        self,
        number: int,
        process: subprocess.Popen[bytes],
        status_fd: int,
        lifeline_fd: int,
        memory: mmap.mmap,
        crash: IO[bytes],
    ) -> None:
        self.number = number
        self._process = process
        self.pid = process.pid
        self.status_fd = status_fd
        self._lifeline_fd = lifeline_fd
        self._memory = memory
        self._crash = crash
        self.board = Scoreboard(memory)
        self.doomed = False  # killed by us: nobody is to blame but the one job that it was about
        self._unread = b""
        self._beats = b""
        self._said = "starting"
        self._turned = self._well = self.started = time.monotonic()
        self._stopped_since: float | None = None
        self._ended = 0.0
        self.identities: list[str] = []
        self.ready = False
        self.failed: str | None = None

    @classmethod
    def spawn(cls, target: str, settings: Mapping[str, Any], number: int) -> Self:
        """Start a child; OSError or MemoryError when the system refuses, and nothing is left open then."""
        with contextlib.ExitStack() as undo:
            status_read, status_write = _pipe(undo)
            lifeline_read, lifeline_write = _pipe(undo)
            with tempfile.TemporaryFile() as file:  # shared memory that needs no name and outlives nobody
                file.truncate(SCOREBOARD_BYTES)
                memory = mmap.mmap(file.fileno(), SCOREBOARD_BYTES)
                undo.callback(memory.close)
                crash = undo.enter_context(tempfile.TemporaryFile(buffering=0))
                inherited = (status_write, lifeline_read, file.fileno(), crash.fileno())
                args = WorkerArgs(target, dict(settings), *inherited, number)
                command = [sys.executable, "-m", "henchman.supervisor.worker_main", target]
                process = subprocess.Popen(  # noqa: S603 - ourselves
                    command,
                    stdin=subprocess.PIPE,
                    # many threads, each with a heap of its own, would cost more memory than they save time
                    env={"MALLOC_ARENA_MAX": "2", **os.environ},
                    pass_fds=inherited,
                    process_group=0,
                )
            undo.pop_all()
        if process.stdin is not None:
            with contextlib.suppress(OSError), process.stdin as words:  # it has ended already: the next look sees it
                words.write(msgspec.json.encode(args) + b"\n")
        os.close(status_write)
        os.close(lifeline_read)
        os.set_blocking(status_read, False)
        return cls(number, process, status_read, lifeline_write, memory, crash)

    @property
    def alive(self) -> bool:
        """Whether it has not been seen to end."""
        return self._process.returncode is None

    def read(self) -> list[dict[str, Any]]:
        """What it has told since the last time."""
        with contextlib.suppress(BlockingIOError, OSError):
            while chunk := os.read(self.status_fd, 65536):
                self._unread += chunk
            if not chunk:
                self._hang_up()
        *lines, self._unread = self._unread.split(b"\n")
        messages = []
        for line in lines:
            with contextlib.suppress(msgspec.DecodeError):
                message = msgspec.json.decode(line)
                self._note(message)
                messages.append(message)
        return messages

    def _note(self, message: dict[str, Any]) -> None:
        if "identity" in message:
            self.identities.append(message["identity"])
        if message.get("ready"):
            self.ready, self._well = True, time.monotonic()
        if "failed" in message:
            self.failed = message["failed"]

    def _hang_up(self) -> None:
        if self.status_fd >= 0:
            os.close(self.status_fd)
            self.status_fd = -1

    def fatal(self, status: int) -> bool:
        """Whether another try would end the same way: its configuration is wrong."""
        return status == EXIT_CONFIG

    def turns(self) -> bool:
        """Whether its interpreter has turned since the last look."""
        beats, said = self.board.last_beat()
        if beats == self._beats:
            return False
        self._beats = beats
        self._turned = now = time.monotonic()
        if said != "stuck":
            self._said, self._well = said, now
        elif self._said != "starting" or self._takes_no_work:
            self._said = said
        return True

    @property
    def _takes_no_work(self) -> bool:
        return time.monotonic() - self._well > NO_WORK

    @property
    def state(self) -> str:
        """``starting``, ``fetching``, ``away`` (its server is), ``hung`` (its loop) or ``stuck``, as it said last."""
        if not self.ready:
            return "starting"
        return self._said if time.monotonic() - self._turned < SILENT else "stuck"

    @property
    def stuck(self) -> bool:
        """Whether it has been stuck for so long that it must be told: a moment without work is usual."""
        return self.state == "stuck" and self._takes_no_work

    def deserves_renewal(self, hang_after: float, lease: float) -> bool:
        """Whether its lease is ours to prolong: it turned lately and is not stopped for long."""
        self.turns()
        return self.alive and self.hung(hang_after, lease) is None

    @property
    def was_stopped(self) -> bool:
        """Whether the last look found it stopped from outside (SIGSTOP): nothing that it did is to blame for that."""
        return self._stopped_since is not None

    def hung(self, hang_after: float, lease: float) -> str | None:
        """Why this child must be killed, or None. A held interpreter lock of a minute is allowed."""
        now = time.monotonic()
        self.turns()
        if self._is_stopped():
            self._stopped_since = self._stopped_since or now
            if now - self._stopped_since > lease:
                return f"is stopped for more than {lease:g} s"
        else:
            self._stopped_since = None
        # Its jobs may begin a moment before it says that it is ready; before its first turn it imports.
        if (self.ready or any(self._beats)) and now - self._turned > hang_after:
            return f"has not turned for {hang_after:g} s"
        if self._said == "hung":
            return f"has an event loop that has not turned for {hang_after:g} s"
        return None

    def _is_stopped(self) -> bool:
        try:
            text = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        return text.rpartition(")")[2].split()[:1] in (["T"], ["t"])

    def signal(self, number: int) -> None:
        """Send it a signal; nothing happens when it has ended."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
                if number == signal.SIGTERM:
                    os.kill(self.pid, signal.SIGCONT)  # a stopped process would never hear it

    def ended(self, reaped: Mapping[int, int]) -> int | None:
        """Its exit status (negative: the signal that ended it), or None while it lives."""
        if self.pid in reaped:
            self._process.returncode = reaped[self.pid]
        return self._process.poll()

    def outlived(self) -> bool:
        """Whether processes of its isolated runs live on, now that it has ended: they hold our pipe open. The kernel
        kills them; what they run is nobody else's before they are gone, or ``OUTLIVED`` seconds are over."""
        self._ended = self._ended or time.monotonic()
        return self.status_fd >= 0 and time.monotonic() - self._ended < OUTLIVED

    def wait(self, timeout: float) -> None:
        """Wait for its end, at most ``timeout`` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)

    def where_it_stood(self) -> str:
        """What it wrote when it crashed, or when it was to be killed because it hung: where its threads stood."""
        with contextlib.suppress(OSError):
            self._crash.seek(0)
            return self._crash.read(CRASH_MOST).decode("utf-8", "replace")
        return ""

    def close(self) -> None:
        """Close the pipes."""
        self._hang_up()
        self._crash.close()
        with contextlib.suppress(OSError):
            os.close(self._lifeline_fd)
        self._memory.close()


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    """Both ends of a pipe, which ``undo`` closes."""
    ends = os.pipe()
    for end in ends:
        undo.callback(os.close, end)
    return ends
