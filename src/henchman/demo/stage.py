"""The demo's stage: everything that runs, set up in a folder of its own and cleared away whatever happens.

An embedded server, the catalogue, a supervisor with its worker processes, and for a moment a process that pushes the
jobs. The processes see nothing of the user's own settings: they get a clean environment and the demo's folder to work
in.
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
from typing import Any

from henchman.batch.batch import BatchStatus, status_of
from henchman.config import Config
from henchman.demo.catalogue import Catalogue
from henchman.embedded.server import EmbeddedServer
from henchman.history import as_csv, load
from henchman.history.records import MOST, Event
from henchman.kernel.text import shorten
from henchman.store import batches, history
from henchman.store.call import command, commands
from henchman.store.connection import Connections
from henchman.store.keys import Keys

__all__ = ["DemoError", "Stage", "why_not"]

STOP_LIMIT = 30.0  # seconds after which a process that does not stop is killed
LOG_LINES, LOG_WIDTH = 10, 300


class DemoError(Exception):
    """The demo cannot go on; the text says why, with the end of the log that tells."""


def _history_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'history.sqlite'}"


def why_not() -> str:
    """Empty when the demo can keep its history; else what is missing."""
    return Config().with_arguments(database_url=_history_url(Path("/"))).why_history_is_off()


class Stage:
    """All parts of the demo; a context manager that clears them away, and the folder too unless ``keep``."""

    def __init__(self, *, keep: bool = False) -> None:
        self.keep = keep
        self.folder = Path()
        self.url = ""
        self.catalogue: Catalogue
        self._keys = Keys()
        self._batch = ""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Stage:
        with ExitStack() as stack:
            self.folder = Path(tempfile.mkdtemp(prefix="henchman-demo-"))
            if not self.keep:
                stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            embedded = EmbeddedServer(self.folder / "server")
            stack.callback(embedded.release)
            self.url = embedded.acquire()
            self._server = stack.enter_context(contextlib.closing(Connections(self.url)))
            self.catalogue = stack.enter_context(contextlib.closing(Catalogue(self.folder / "catalogue.sqlite3")))
            config = Config().with_arguments(database_url=_history_url(self.folder))
            self._history: Any = stack.enter_context(contextlib.closing(load(config))).reading
            stack.callback(self.stop)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # ---- processes

    def start(self, name: str, *arguments: object) -> None:
        """Start ``python -m`` with these arguments; its output goes into ``name``.log."""
        theirs = {name: value for name, value in os.environ.items() if not name.startswith("HENCHMAN_")}
        ours = {
            "REDIS_URL": self.url,
            "HENCHMAN_DATABASE_URL": _history_url(self.folder),
            "HENCHMAN_LOG_LEVEL": "warning",
            "DEMO_CATALOGUE": str(self.folder / "catalogue.sqlite3"),
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", *map(str, arguments)],
                cwd=self.folder,
                env=theirs | ours,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """DemoError when a process has ended that should not have."""
        for name, process in self._processes.items():
            status = process.poll()
            if status is not None and (status != 0 or name != "push"):
                raise DemoError(f"the process {name!r} ended with status {status}\n{self.log_end(name)}".rstrip())

    def log_end(self, name: str = "workers") -> str:
        """The last lines that a process wrote."""
        lines = self.written(name).splitlines()
        return "\n".join(f"  {name}| {shorten(line, LOG_WIDTH)}" for line in lines[-LOG_LINES:])

    def written(self, name: str) -> str:
        """All that a process wrote."""
        path = self.folder / f"{name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

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

    # ---- what the server and history know

    def is_kept(self) -> bool:
        """Whether a recorder has turned history on: jobs that were pushed before have no full record."""
        return bool(self._server.run(command("EXISTS", self._keys.history_on)))

    def status(self) -> BatchStatus | None:
        """How the batch stands, as ``app.batch_status`` says it; None before it was made. It is the only one here."""
        if not self._batch:
            known: list[str] = self._server.run(batches.newest(self._keys, 0, 1))
            self._batch = known[0] if known else ""
        return status_of(self._batch, self._server.run(batches.facts(self._keys, self._batch))) if self._batch else None

    def left(self) -> dict[str, int]:
        """What still has to be done: jobs and price changes that wait or run, entries of history, the pushing."""
        keys = self._keys
        counts: list[int] = self._server.run(
            commands(
                ("LLEN", keys.queue("products")),
                ("ZCARD", keys.retry),
                ("ZCARD", keys.schedule),
                ("ZCARD", keys.ordered("price-changes") + "due"),
            )
        )
        left = dict(zip(("queued", "retries", "scheduled", "changing"), counts, strict=True))
        left["unrecorded"] = self._server.run(history.backlog(keys)).entries
        left["callbacks"] = int(not self.catalogue.called())
        left["producers"] = int(self._processes["push"].poll() is None)
        return left

    def events(self) -> list[Event]:
        """Every job of the batch, as history has it."""
        events: list[Event] = self._history.events(self._batch, limit=MOST).events
        return events

    def write_failures(self, path: Path) -> None:
        """The failures of the batch as CSV."""
        path.write_bytes(as_csv.head() + as_csv.lines(self._history.failures(self._batch)))
