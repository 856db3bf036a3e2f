"""One process for isolated runs, as its worker sees it: started anew, in a process group of its own.

It is spawned, never forked: it has none of the worker's threads, locks, connections or monkey patches. It ends with its
worker: the kernel kills it when the thread ends that started it (``PR_SET_PDEATHSIG``), and end of file on its channel
means the same where there is no such thing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Self

from henchman.isolation.channel import Channel

__all__ = ["RunProcess"]

#: not ``-m``: the frames of the body are known by the name of its module
BODY = "from henchman.supervisor.isolated_main import main; main()"
GOODBYE = 1.0  # seconds that a process may take to end after it closed its channel; then it is killed


class RunProcess:
    """``runs``: how many it has begun. ``ready``: it has imported the app. ``since``: when it was left idle."""

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self._process = process
        self.channel = channel
        self.pid = process.pid
        self.runs = 0
        self.ready = False
        self.since = time.monotonic()
        self.base_kb = 0  # resident memory before its first run

    @classmethod
    def spawn(cls, hello: dict[str, Any], inherited: Sequence[int]) -> Self:
        """Start a process, and tell it ``hello``. OSError or MemoryError when the system refuses one.

        The kernel ties the process to the calling thread: one that lives as long as the worker.
        """
        ours, theirs = socket.socketpair()
        try:
            process = subprocess.Popen(  # noqa: S603 - ourselves
                [sys.executable, "-c", BODY, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), *inherited),
                process_group=0,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        made = cls(process, Channel(ours))
        with contextlib.suppress(OSError):  # it has ended already: whoever takes it sees that
            made.channel.send("hello", {**hello, "parent": os.getpid(), "inherited": list(inherited)})
        return made

    @property
    def alive(self) -> bool:
        """Whether it has not been seen to end."""
        return self._process.poll() is None

    def kill(self) -> int:
        """Kill it and what it started, and wait for its end; its exit status, negative: the signal."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end, however long that takes: what is exclusive is free only then."""
        status = self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):  # what it started and left behind
            os.killpg(self.pid, signal.SIGKILL)
        self.channel.close()
        return status

    def over(self) -> int:
        """Its exit status, after its channel was closed from its side."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GOODBYE)
        return self.kill()

    def dismiss(self) -> None:
        """Let it end by itself: its channel is closed."""
        self.channel.close()
