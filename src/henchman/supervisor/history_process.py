"""The history process as its supervisor sees it: it runs while it is wanted, and is started anew when it ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping

from henchman.config import Config
from henchman.kernel.clock import capped_backoff
from henchman.kernel.text import described
from henchman.supervisor.child import EXIT_CONFIG, Say

QUICK = 60.0  # seconds; one that lives shorter than this is started again with back-off
PATIENCE = 10.0  # seconds for it to end by itself


class HistoryProcess:
    """At most one process."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._config: Config | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = self._refused = 0
        self._started = self._next = 0.0

    @property
    def pid(self) -> int:
        """Of the process; 0 when there is none."""
        return 0 if self._process is None else self._process.pid

    def want(self, config: Config) -> None:
        """Write history as ``config`` says, if it does."""
        if config.history_url() is not None:
            self._config = config

    def keep(self, reaped: Mapping[int, int]) -> None:
        """See to it that it runs. ``reaped``: exit status by pid of what the caller has waited for."""
        if self._process is not None:
            status = reaped.get(self._process.pid, self._process.poll())
            if status is None:
                return
            self._ended(status)
        if self._config is not None and time.monotonic() >= self._next:
            self._start(self._config)

    def _start(self, config: Config) -> None:
        self._started = time.monotonic()
        command = [sys.executable, "-m", "henchman.supervisor.history_main"]
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)  # noqa: S603 - ourselves
        except (OSError, MemoryError) as error:  # no process, memory or descriptor to be had now
            if not self._refused:
                self._say("history cannot be written, another try follows", error=described(error))
            self._refused += 1
            self._next = self._started + capped_backoff(self._refused)
            return
        self._refused = 0
        self._process = process
        if process.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended already: the next look sees it
                os.write(process.stdin.fileno(), config.to_json().encode() + b"\n")

    def _ended(self, status: int) -> None:
        self._hang_up()
        self._process = None
        now = time.monotonic()
        self._failures = self._failures + 1 if now - self._started < QUICK else 0
        self._next = now + capped_backoff(self._failures)
        if status == EXIT_CONFIG:
            self._config = None  # it has said why; another would end the same way
            return
        self._say("the process that writes history ended; another is started", status=status)

    def _hang_up(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def stop(self) -> None:
        """Let it finish, for some seconds at most."""
        if self._process is None:
            return
        self._hang_up()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it is dead, or will be
                self._process.wait(2.0)
        self._process = None
        self._config = None
