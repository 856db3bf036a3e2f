"""The demo's stage: everything that runs, set up in a folder of its own and cleared away whatever happens.

An embedded server, the price service, the catalogue, a supervisor with its worker processes, and for a moment a
process that pushes the jobs. The processes see nothing of the user's own settings: they get a clean environment and
the demo's folder to work in.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from henchman.demo.catalogue import Catalogue
from henchman.demo.prices import PriceService
from henchman.demo.record import Record, address
from henchman.embedded.server import EmbeddedServer
from henchman.kernel.text import shorten
from henchman.store.call import commands
from henchman.store.connection import Connections
from henchman.store.keys import Keys

__all__ = ["DemoError", "Left", "Size", "Stage"]

QUEUE, CHANGES = "products", "price-changes"  # as in demo_jobs, which the worker and pushing processes alone load
GRACE = 5  # seconds that running jobs get at a stop
STOP_LIMIT = 30.0  # seconds after which a process that does not stop is killed
LOG_LINES, LOG_WIDTH = 10, 300
MODULE = "henchman.demo.jobs"


class DemoError(Exception):
    """The demo cannot go on; the text says why, with the end of the log that tells."""


class Size(NamedTuple):
    """How much of everything: rows to import, worker processes, slots of each."""

    rows: int
    processes: int
    concurrency: int


class Left(NamedTuple):
    """What the server still holds: jobs, and products whose price changes wait or run."""

    queued: int
    retries: int
    scheduled: int
    changing: int
    dead: int


class Stage:
    """All parts of the demo; a context manager that clears them away, and the folder too unless ``keep``."""

    def __init__(self, size: Size, *, keep: bool = False) -> None:
        self.size = size
        self.keep = keep
        self.folder = Path()
        self.url = ""
        self.catalogue: Catalogue
        self.record: Record
        self.prices = PriceService()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()
        self._server: Connections

    def __enter__(self) -> Stage:
        with ExitStack() as stack:
            self.folder = Path(tempfile.mkdtemp(prefix="henchman-demo-"))
            if not self.keep:
                stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            server = EmbeddedServer(self.folder / "server")
            stack.callback(server.release)
            self.url = server.acquire()
            self._server = Connections(self.url)
            stack.callback(self._server.close)
            self.catalogue = Catalogue.create(self.folder / "catalogue.sqlite3")
            stack.callback(self.catalogue.close)
            self.record = Record(self._server, self.folder)
            stack.callback(self.record.close)
            stack.enter_context(self.prices)
            stack.callback(self.stop)
            self._environment = self._clean_environment()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start_workers(self) -> None:
        """Start the supervisor and its worker processes."""
        size = ["-p", str(self.size.processes), "-c", str(self.size.concurrency), "-t", str(GRACE)]
        self._start("workers", ["henchman", "work", f"{MODULE}:app", *size])

    def start_pushing(self) -> None:
        """Start the process that enqueues a job for each row."""
        self._start("push", ["henchman.demo.push", str(self.size.rows)])

    @property
    def pushing(self) -> bool:
        """Whether jobs are still being enqueued."""
        return self._processes["push"].poll() is None

    def check(self) -> None:
        """DemoError when a process has ended that should not have."""
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None and (status != 0 or name == "workers"):
                raise DemoError(f"the process {name!r} ended with status {status}\n{self.log_end(name)}".rstrip())

    def left(self) -> Left:
        """What the server still holds; of jobs those that run are not counted."""
        keys = Keys()
        return Left(
            *self._server.run(
                commands(
                    ("LLEN", keys.queue(QUEUE)),
                    ("ZCARD", keys.retry),
                    ("ZCARD", keys.schedule),
                    ("ZCARD", keys.ordered(CHANGES) + "due"),
                    ("ZCARD", keys.dead),
                )
            )
        )

    def log_end(self, name: str = "workers") -> str:
        """The last lines that a process wrote."""
        path = self.folder / f"{name}.log"
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        return "\n".join(f"  {name}| {shorten(line, LOG_WIDTH)}" for line in lines[-LOG_LINES:])

    def stop(self) -> None:
        """Stop the processes: politely, then not. Afterwards none of them is left."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()

    def _start(self, name: str, arguments: list[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", *arguments],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _clean_environment(self) -> dict[str, str]:
        theirs = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("HENCHMAN_") and name != "REDIS_URL"
        }
        return theirs | {
            "HENCHMAN_REDIS_URL": self.url,
            "HENCHMAN_DATABASE_URL": address(self.folder),
            "HENCHMAN_LOG_LEVEL": "warning",
            "DEMO_CATALOGUE": str(self.folder / "catalogue.sqlite3"),
            "DEMO_PRICES": self.prices.url,
        }
