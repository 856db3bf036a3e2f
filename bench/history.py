"""How fast the recorder drains a backlog into SQL, and how soon a page of failures of a large batch is there.

The entries are written straight into the stream, two a job (enqueued, finished): no job runs, so that the recorder has
the machine for itself. ``--database`` is the address of an empty database; without it a SQLite file of its own.
Beside the rate stands the processor time of the recorder's own process: on a busy machine it says more.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from server import Figures, arguments, median, server

from henchman.config import Config
from henchman.history import migrate, schema
from henchman.history.database import Database
from henchman.history.reading import FAILURES, History
from henchman.history.recorder import Recorder
from henchman.history.rows import EventRow, Rows
from henchman.history.writer import write
from henchman.kernel.events import Events
from henchman.store.connection import Connections
from henchman.store.keys import Keys

BAR_DRAIN = 15_000  # entries a second
BAR_PAGE = 0.050  # seconds
BATCH, LARGE = "b" * 32, "f" * 32


class Home:
    """What a recorder needs of an app."""

    def __init__(self, url: str) -> None:
        self.config = Config(redis_url=url, history_bytes=2**33)
        self.keys = Keys()
        self.events = Events()
        self.connections = Connections(url)
        self.events.on("part_failed", self._failed)
        self.events.on("history_away", self._failed)

    def _failed(self, **facts: Any) -> None:
        raise SystemExit(f"the recorder failed: {facts}")


def tell(raw: Any, jobs: int, phase: str) -> None:
    """Write the entries of ``jobs`` jobs, their jids in no order."""
    for first in range(0, jobs, 1000):
        for number in range(first, min(first + 1000, jobs)):
            jid = f"{number * 2_654_435_761 % 2**96:024x}"
            if phase != "finished":
                told = {
                    "class": "shop.create_product",
                    "queue": "default",
                    "args": [number, {"price": 5, "name": "shoe"}],
                }
                _entry(raw, jid, "enqueued", "0", "", told)
            if phase != "enqueued":
                told = {"ending": "done", "started": time.time(), "elapsed": 0.01}
                _entry(raw, jid, "finished", "1", "host-1:77:0123456789ab", told)
        raw.flush()


def _entry(raw: Any, jid: str, status: str, attempt: str, process: str, told: dict[str, Any]) -> None:
    told_text = json.dumps(told)
    fields = ["k", "job", "j", jid, "b", BATCH, "s", status, "a", attempt, "w", process, "d", told_text]
    raw.add("XADD", "hm:history", "*", *fields)
    raw.add("INCRBY", "hm:history:bytes", str(60 + sum(map(len, fields))))


class Pipe:
    """Commands sent many at a time."""

    def __init__(self, connections: Connections) -> None:
        self._line = connections.open()
        self._sent = 0

    def add(self, *parts: str) -> None:
        self._line.send(*parts)
        self._sent += 1

    def flush(self) -> None:
        while self._sent:
            self._line.read()
            self._sent -= 1


def drain(recorder: Recorder) -> tuple[float, float]:
    """Seconds, and seconds of this process's own processor time."""
    began, used = time.perf_counter(), time.process_time()
    assert recorder.drain(600), "the backlog was not drained within ten minutes"
    return time.perf_counter() - began, time.process_time() - used


def fill(database: Database, count: int) -> None:
    """Events straight into the table, a fifth of them failures."""
    for first in range(0, count, 5000):
        rows = Rows({}, {}, {}, [], [])
        for number in range(first, first + 5000):
            status = ("failed", "error")[number % 2] if number % 5 == 0 else "finished"
            rows.events[str(number)] = EventRow(
                f"L{number * 2_654_435_761 % 2**92:023x}",
                LARGE,
                "shop.create_product",
                "default",
                "[1]",
                status=status,
                message="no such product",
                born=number + 1,
                changed=number + 1,
            )
        with database.writing() as connection:
            write(connection, database.kind, rows, 2**24)


def pages(database: Database, count: int) -> Iterator[float]:
    """Seconds of pages of failures, all over the batch."""
    history = History(database)
    history.events(LARGE, FAILURES)
    for after in range(0, count, count // 20):
        began = time.perf_counter()
        assert history.events(LARGE, FAILURES, after=after, limit=100).events
        yield time.perf_counter() - began


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=30_000, help="jobs of a phase, two entries each")
    parser.add_argument("--events", type=int, default=500_000, help="events of the batch whose failures are read")
    parser.add_argument("--database", help="address of an empty database")
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder, server() as made:
        address = chosen.database or f"sqlite:///{Path(folder) / 'history.sqlite'}"
        figures = Figures("history", made.connect())
        measure(figures, made.url, address, chosen)
        return figures.finish(chosen)


def measure(figures: Figures, url: str, address: str, chosen: Any) -> None:
    """Every figure, on one database."""
    database = Database(address)
    migrate.upgrade(database)
    home = Home(url)
    recorder = Recorder(home, database)
    pipe = Pipe(home.connections)
    figures.note("database", database.kind)
    for phase in ("enqueued", "finished", "both"):
        entries = chosen.jobs * (2 if phase == "both" else 1)
        if phase == "both":
            with database.writing() as connection:
                for table in (schema.events, schema.runs, schema.changes):
                    connection.execute(table.delete())
        tell(pipe, chosen.jobs, phase)
        seconds, used = drain(recorder)
        figures.add(phase, f"{database.kind}: {phase}, drained", entries / seconds, "a s", least=BAR_DRAIN)
        figures.add(f"{phase}_cpu", "  processor time of the recorder's process, an entry", used / entries * 1e6, "us")
    fill(database, chosen.events)
    found = sorted(pages(database, chosen.events))
    what = f"{database.kind}: 100 failures of {chosen.events:,} events"
    figures.add("page", f"{what}, median", median(found) * 1000, "ms", most=BAR_PAGE * 1000)
    figures.add("page_worst", f"{what}, worst", found[-1] * 1000, "ms")
    recorder.stop()
    home.connections.close()


if __name__ == "__main__":
    sys.exit(main())
