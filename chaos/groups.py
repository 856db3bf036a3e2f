"""The processes under attack: supervisors with their workers, and the producers, each started again when it dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from clocks import Clock
from proxy import Route
from server import PASSWORD, WORKER, alive
from spawn import spawn
from suspended import VARIABLE, Suspension

__all__ = ["RECORD", "Filler", "Group", "children_of", "environment", "start_producer"]

HERE = Path(__file__).parent
_START = "import sys; from henchman.cli.work import work; work(sys.argv[1:])"
GRACE = "5"
FILLING = 30.0  # jobs a second of the producer that only fills batches
RECORD = "history.sqlite"  # beside the ledger


def environment(url: str, ledger: Path, outbox: str = "") -> dict[str, str]:
    """The environment of every process of the run; settings of the machine it runs on are left out. ``outbox``: the
    address of the database with the outbox, if there is one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HENCHMAN_", "REDIS_"))}
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    ours = {"HENCHMAN_REDIS_URL": url, "CHAOS_LEDGER": str(ledger), "PYTHONPATH": path}
    settings = {
        "HENCHMAN_DATABASE_URL": f"sqlite:///{ledger.parent / RECORD}",
        "HENCHMAN_LEASE": "5",
        "HENCHMAN_HEARTBEAT": "1",
        "HENCHMAN_DEAD_MAX": "1000000",  # half an hour kills more jobs than the dead set keeps, where the judge looks
        "PYTHONUNBUFFERED": "1",
    }
    if outbox:
        settings["HENCHMAN_OUTBOX"] = outbox
    return kept | ours | settings


def children_of(pid: int) -> list[int]:
    """The living children of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(stat[1]) == pid and stat[0] != "Z":
                    found.append(int(entry.name))
    return sorted(found)


class Group:
    """One supervisor with its worker processes, on a host of its own: behind a route, with its clocks. ``keep``
    replaces it when it is gone. ``least``: it may do no more on the server than a worker needs."""

    def __init__(
        self,
        number: int,
        folder: Path,
        ledger: Path,
        route: Route,
        args: Sequence[str],
        *,
        least: bool = False,
        outbox: str = "",
    ) -> None:
        self.number, self.route, self.least = number, route, least
        self._folder, self._args = folder, list(args)
        self.clock, self.suspension = Clock(folder / f"clock-{number}"), Suspension(folder / f"suspended-{number}")
        user = f"{WORKER}:{PASSWORD}@" if least else ""
        ours = self.clock.env | {VARIABLE: str(self.suspension.path)}
        self._env = environment(f"redis://{user}127.0.0.1:{route.port}/0", ledger, outbox) | ours
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self.supervisors: list[int] = []
        self.known: set[int] = set()  # every process that this group ever had
        self.frozen: set[int] = set()  # stopped by another attack: nobody else lets them go on

    @property
    def pid(self) -> int:
        """Its supervisor, dead or alive; 0 before the first."""
        return self._process.pid if self._process else 0

    @property
    def running(self) -> bool:
        """Whether its supervisor lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def workers(self) -> list[int]:
        """The living children of its supervisor."""
        found = children_of(self.pid) if self.running else []
        self.known.update(found)
        return found

    @property
    def log(self) -> str:
        """What its supervisors and workers have written for people."""
        path = self._folder / f"group-{self.number}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def keep(self) -> None:
        """Start a supervisor unless there is one."""
        with self._lock:
            if self.running or self._closed:
                return
            command = [sys.executable, "-c", _START, "jobs:app", "-t", GRACE, *self._args]
            self._process = spawn(command, self._folder / f"group-{self.number}.log", env=self._env, cwd=HERE)
            self.supervisors.append(self.pid)
            self.known.add(self.pid)

    def signal(self, number: int, pids: Sequence[int]) -> None:
        """Send a signal to processes of this group, those that still are."""
        for pid in pids:
            if number == signal.SIGCONT and pid in self.frozen:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self, limit: float) -> int | None:
        """TERM to the supervisor; its exit status, None when it has not ended within ``limit`` seconds."""
        with self._lock:
            self._closed = True
        if self._process is None:
            return 0
        if self.running:
            self.known.update(self.workers)
            self._process.terminate()
        try:
            return self._process.wait(limit)
        except subprocess.TimeoutExpired:
            return None

    def left(self) -> list[int]:
        """Its processes that live although they should not any more."""
        return [pid for pid in self.known if alive(pid) and b"CHAOS_LEDGER" in _environ(pid)]

    def end(self) -> None:
        """kill -9 of everything that it ever had."""
        self._closed = True
        if self._process is not None and self.running:
            self.known.update(self.workers)
            self._process.kill()
            self._process.wait(10)
        self.signal(signal.SIGKILL, self.left())


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


class Filler:
    """A producer that is killed while it fills batches. ``start`` another when it is gone."""

    def __init__(self, seed: int, folder: Path, env: Mapping[str, str]) -> None:
        self._seed, self._folder, self._env = seed, folder, env
        self.process: subprocess.Popen[bytes]
        self._number = 0
        self.start()

    def start(self) -> None:
        """The next of them; its jobs have names of their own."""
        self._number += 1
        name = f"filler{self._number}"
        self.process = start_producer(name, self._seed, FILLING, 0.0, self._folder, self._env, share=1.0)


def start_producer(
    name: str,
    seed: int,
    rate: float,
    offset: float,
    folder: Path,
    env: Mapping[str, str],
    *,
    share: float,
    clock: Clock | None = None,
) -> subprocess.Popen[bytes]:
    """Start one producer; TERM stops it. ``share``: of its jobs goes into batches. ``clock``: what it takes for the
    time, where it can be given one; else it is ``offset`` seconds off by itself."""
    command = [sys.executable, str(HERE / "producer.py"), name, *map(str, (seed, rate, offset, share))]
    settings = dict(env) | {"CHAOS_ROLE": "pushing", "HENCHMAN_IO_TIMEOUT": "2"}
    if clock is not None:
        clock.step(offset)
        settings |= clock.env
    return spawn(command, folder / f"producer-{name}.log", env=settings)
