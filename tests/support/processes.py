"""Real worker processes for tests: ``henchman work support.acting:app`` in a process group of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from redis import Redis

import henchman
from support.worker import push_raw, until

__all__ = [
    "PATHS",
    "START",
    "Work",
    "children_of",
    "clean_environ",
    "cpu_of",
    "holds_on",
    "push",
    "records",
    "state_of",
]

PATHS = [str(Path(henchman.__file__).parents[1]), str(Path(__file__).parents[1])]
START = "import sys; from henchman.cli.work import work; work(sys.argv[1:])"


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def state_of(pid: int) -> str:
    """R, S, T, Z…; empty when the process is gone."""
    return next(iter(_stat(pid)), "")


def holds_on(pid: int) -> bool:
    """Whether a thread of it lives: the first may be a zombie while others still hold its connections open, and a
    wait of theirs takes the next push."""
    fields = _stat(pid)
    return bool(fields) and not (fields[0] == "Z" and fields[17] == "1")


def clean_environ() -> dict[str, str]:
    """This process's environment without settings of Henchman and of the server."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("HENCHMAN_", "REDIS_"))}


def cpu_of(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def children_of(pid: int) -> list[int]:
    """The living children of a process."""
    stats = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdecimal()}
    return sorted(one for one, stat in stats.items() if stat and int(stat[1]) == pid and stat[0] != "Z")


def _writes_history(pid: int) -> bool:
    try:
        return b"henchman.supervisor.history_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class Work:
    """A supervisor with its children, their log and the trace of their jobs."""

    def __init__(
        self,
        folder: Path,
        url: str | None,
        *args: str,
        target: str | None = "support.acting:app",
        before: Iterable[str] = (),
        **env: str,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.trace_file = folder / "trace"
        self.trace_file.touch()
        self.log_file = folder / "log"
        settings = {"HENCHMAN_REDIS_URL": url} if url else {}
        self.env = (
            clean_environ() | settings | {"PYTHONPATH": os.pathsep.join(PATHS), "ACTING_TRACE": str(self.trace_file)}
        )
        self.env |= {"HENCHMAN_DUMP_FOLDER": str(folder)} | env
        command = [*before, sys.executable, "-c", START, *([target] if target else []), *args]
        with self.log_file.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
                env=self.env,
                process_group=0,
            )
        self._known: set[int] = set()

    def __enter__(self) -> Work:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The supervisor."""
        return self.process.pid

    @property
    def children(self) -> list[int]:
        """Its living worker processes; the one that writes history is none."""
        found = [pid for pid in children_of(self.pid) if not _writes_history(pid)]
        self._known.update(found)
        return found

    @property
    def scribe(self) -> int:
        """The pid of the process that writes history; 0 while there is none."""
        return next((pid for pid in children_of(self.pid) if _writes_history(pid)), 0)

    @property
    def log(self) -> str:
        """What was written for people so far."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def ready(self, redis: Redis, count: int = 1) -> list[int]:
        """Wait until ``count`` of its processes have shown themselves; their pids."""

        def shown() -> list[int]:
            assert self.process.poll() is None, f"the supervisor ended: {self.log}"
            known = records(redis)
            if len(known) < count:  # to look for children takes a look at every process of the machine
                return []
            pids = self.children
            return pids if len(pids) == count and known.keys() >= set(pids) else []

        return until(shown, "workers are ready")

    def signal(self, number: int) -> None:
        """Send a signal to the supervisor alone."""
        os.kill(self.pid, number)

    def wait(self, limit: float = 90.0) -> int:
        """Wait for the supervisor's end; its exit status."""
        return self.process.wait(limit)

    def stop(self, limit: float = 90.0) -> int:
        """TERM, and wait."""
        self.signal(signal.SIGTERM)
        return self.wait(limit)

    def open(self) -> None:
        """Let jobs go on that are ``held``, or ``gated``."""
        self.trace_file.with_suffix(".open").touch()

    def kill_one(self, pid: int = 0) -> None:
        """kill -9 of one child, which is dead then: the next look does not find it again."""
        pid = pid or until(lambda: self.children, "a child lives")[0]
        os.kill(pid, signal.SIGKILL)
        _gone([pid])

    def kill_all(self) -> None:
        """kill -9 of the supervisor first, then of every child, so that nobody can give back."""
        self._hold()
        pids = [self.pid, *self.children]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process.wait(90)
        _gone(pids)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """For the length of the block the supervisor does nothing: it gives nothing back, and starts nobody."""
        self._hold()
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def _hold(self) -> None:
        """From now on the supervisor makes no more children."""
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: state_of(self.pid) in ("T", "Z"), "the supervisor stands still")

    def end(self) -> None:
        """Leave nothing running: the next test may be on the same server, where one that lives would take its jobs."""
        if self.process.poll() is None:
            self._hold()
            self._known.update(children_of(self.pid))
            self.process.kill()
            self.process.wait(90)
        ours = [pid for pid in self._known if str(self.trace_file).encode() in _environ(pid)]
        for pid in ours:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _gone(ours)

    def trace(self) -> list[list[str]]:
        """Lines [event, name, pid, attempt] so far."""
        return [line.split() for line in self.trace_file.read_text(encoding="utf-8").splitlines()]

    def count(self, event: str) -> Counter[str]:
        """How often each name had ``event``."""
        return Counter(line[1] for line in self.trace() if line[0] == event)

    def pids(self, event: str, name: str) -> list[int]:
        """In which processes ``name`` had ``event``, in order."""
        return [int(line[2]) for line in self.trace() if line[:2] == [event, name]]


def _gone(pids: list[int]) -> None:
    until(lambda: not any(map(holds_on, pids)), "the killed processes are gone")


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def records(redis: Redis) -> dict[int, dict[str, Any]]:
    """The information of every process that shows itself, by pid."""
    found = {}
    for identity in redis.smembers("processes"):  # type: ignore[union-attr]
        info = redis.hget(identity.decode(), "info")
        if info:
            told = json.loads(info)  # type: ignore[arg-type]
            found[told["pid"]] = told
    return found


def push(redis: Redis, job: str, *rows: tuple[Any, ...], queue: str = "default", **fields: Any) -> list[str]:
    """Push a job for each row of arguments, the first to run first; their jids."""
    jids = [os.urandom(12).hex() for _ in rows]
    now = time.time()
    job_fields = {"class": job, "queue": queue, "retry": True, "created_at": now, "enqueued_at": now} | fields
    payloads = [json.dumps(job_fields | {"args": row, "jid": jid}) for row, jid in zip(rows, jids, strict=True)]
    push_raw(redis, *payloads, queue=queue)
    return jids
