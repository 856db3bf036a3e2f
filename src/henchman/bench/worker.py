"""A worker under measurement: ``henchman work`` as users start it, and how fast it drains a queue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from henchman.bench.jobs import ready
from henchman.bench.server import LIMIT, BenchError, Raw, Server, wait_for

__all__ = ["Drain", "MeasuredWorker", "drain", "pause", "release", "worker"]

STOP = 60.0  # seconds, for a worker that is told to stop
_START = "from henchman.cli.work import work; work()"


class MeasuredWorker:
    """``henchman work``. It has run its first job when this returns, and ``stat:processed`` counts from 0."""

    def __init__(
        self, made: Server, *options: str, concurrency: int = 10, processes: int = 1, target: str = "", folder: str = ""
    ) -> None:
        words = [target or "henchman.bench.jobs:app", "-p", str(processes), "-c", str(concurrency)]
        queue = options[options.index("-q") + 1] if "-q" in options else "bench_ready"
        self._server, self._raw, self._processes = made, made.connect(), processes
        ready.using(queue=queue).enqueue()
        started = time.monotonic()
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when the worker has stopped
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter
            [sys.executable, "-c", _START, *words, "--log-level", "warning", *options],
            cwd=folder or made.folder,
            stdin=subprocess.DEVNULL,
            stderr=self._log,
            start_new_session=True,
        )
        self.pids: list[int] = []
        self._born = 0.0
        try:
            wait_for("the worker", self._has_begun, pause=0.002)
        except BaseException:
            self.stop()
            raise
        now = time.monotonic()
        self.ready_after = now - started
        self.child_ready_after = now - self._born
        self._raw.ask("DEL", made.keys.stat_processed)
        self._raw.close()

    def _has_begun(self) -> bool:
        """Whether every process has joined, and the first job has ended."""
        if self._process.poll() is not None:
            raise BenchError(f"the worker ended with status {self._process.returncode}:\n{self._said()}")
        if not self._born and self._children():
            self._born = time.monotonic()
        keys = self._server.keys
        if self._raw.number("GET", keys.stat_processed) < 1:
            return False
        joined = [one.decode() for one in self._raw.ask("ZRANGE", keys.identities, 0, -1)]
        self.pids = [int(one.split(":")[-2]) for one in joined]
        self._born = self._born or time.monotonic()
        return len(joined) >= self._processes

    def _children(self) -> bool:
        path = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return bool(path.exists() and path.read_text().split())

    def rss(self) -> float:
        """Megabytes of memory that its worker processes hold now; 0 where the system has no /proc."""
        sizes = [_read(pid, "statm") for pid in self.pids]
        return sum(int(one.split()[1]) for one in sizes if one) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu(self) -> float:
        """Seconds of processor time that its worker processes have used; 0 where the system has no /proc."""
        fields = [one.rpartition(")")[2].split() for one in (_read(pid, "stat") for pid in self.pids) if one]
        return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")

    def _said(self) -> str:
        """What it wrote to standard error, but for the news that it stops."""
        self._log.seek(0)
        return "".join(line for line in self._log if ": stopping: " not in line)

    def stop(self) -> None:
        """TERM, and KILL for all its processes when that does not help."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            print(f"the worker did not stop within {STOP:g} s and was killed", file=sys.stderr)
            for pid in self.pids:
                os.kill(pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait(10)
        print(self._said(), file=sys.stderr, end="")
        self._log.close()


def _read(pid: int, name: str) -> str:
    path = Path(f"/proc/{pid}/{name}")
    return path.read_text() if path.exists() else ""


@contextmanager
def worker(
    made: Server, *options: str, concurrency: int = 10, processes: int = 1, target: str = "", folder: str = ""
) -> Iterator[MeasuredWorker]:
    """A worker for the length of a block."""
    begun = MeasuredWorker(made, *options, concurrency=concurrency, processes=processes, target=target, folder=folder)
    try:
        yield begun
    finally:
        begun.stop()


class Drain(NamedTuple):
    """One drain: jobs a second, microseconds of processor time a job (of the worker and of the server), megabytes of
    the worker when it was ready and at the end.
    """

    rate: float
    worker_us: float
    server_us: float
    ready_mb: float
    end_mb: float


def drain(
    made: Server,
    raw: Raw,
    queue: str,
    count: int,
    *,
    concurrency: int = 10,
    processes: int = 1,
    target: str = "",
    folder: str = "",
) -> Drain:
    """Let a worker drain ``count`` jobs that wait in ``queue``; BenchError when something is left."""
    pause(made, raw, queue)
    with worker(made, concurrency=concurrency, processes=processes, target=target, folder=folder) as begun:
        ready_mb, used, server_used = begun.rss(), begun.cpu(), raw.cpu()
        done, rate = release(made, raw, queue, count)
        spent, server_spent, end_mb = begun.cpu() - used, raw.cpu() - server_used, begun.rss()
    left = raw.number("LLEN", made.keys.queue(queue))
    if (done, left) != (count, 0):
        raise BenchError(f"{done} of {count} jobs ran, {left} in the queue")
    return Drain(rate, spent / count * 1e6, server_spent / count * 1e6, ready_mb, end_mb)


def pause(made: Server, raw: Raw, queue: str) -> None:
    """Nothing starts from it: before there is a worker."""
    raw.ask("SADD", made.keys.paused, queue)


def release(made: Server, raw: Raw, queue: str, count: int) -> tuple[int, float]:
    """Let the queue go on: (jobs settled once there are ``count``, jobs a second).

    The rate counts from the first jobs that the server shows to the last. When this process was not let look before all
    were settled, it counts from the moment at which the queue went on.
    """
    since = time.monotonic()
    raw.ask("SREM", made.keys.paused, queue)
    raw.ask("PUBLISH", made.keys.control_all, f"unpause {queue}")
    first, began = _watch(made, raw, count, until=1)
    last, ended = _watch(made, raw, count, until=count)
    if last == first:
        first, began = 0, since
    return last, (last - first) / (ended - began)


def _watch(made: Server, raw: Raw, count: int, until: int) -> tuple[int, float]:
    """(jobs settled, time) as soon as ``until`` are."""
    seen = [0]

    def look() -> bool:
        seen[0] = raw.number("GET", made.keys.stat_processed)
        return seen[0] >= until

    wait_for(f"{until:,} of {count:,} jobs", look, LIMIT, pause=0.005)
    return seen[0], time.monotonic()
