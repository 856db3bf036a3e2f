"""How fast the recorder drains a burst into SQL, how far it is behind at a steady rate, how soon a page of failures is
there.

What the scripts would tell of jobs is written straight into the stream, in their words and bundles: pushes of 500 jobs
together, ends of 50, one job in ten also says that it runs; no job runs. At the steady rate the recorder is the process
that a worker's supervisor starts, and the producer another. ``--database`` is the address of an empty database; without
it a SQLite file of its own. Beside the rate of the burst stands the processor time of the recorder's process (the
server of the database has its own): on a busy machine it says more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from options import arguments

from henchman.bench.report import Report, percentile
from henchman.bench.server import LIMIT, server, wait_for
from henchman.config import Config
from henchman.history import schema
from henchman.history.checkpoint import write
from henchman.history.database import Database
from henchman.history.reading import FAILURES, History
from henchman.history.recorder import Recorder
from henchman.history.schema import EventRow
from henchman.history.stream import Rows
from henchman.kernel.events import Events
from henchman.store import history as store
from henchman.store.connection import Connections
from henchman.store.keys import Keys

BAR_DRAIN = 15_000  # jobs a second
BAR_LAG, STEADY, STEADY_MYSQL = 1.0, 5000, 2000  # seconds; jobs a second
BAR_PAGE = 0.050  # seconds
BATCH, LARGE = "b" * 32, "f" * 32
ME = "host-1:77:0123456789ab"
PUSHED, ENDED = 500, 50  # jobs of one entry
TICK = 0.05  # seconds of the producer


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


class Pipe:
    """Entries of the stream, sent many at a time."""

    def __init__(self, connections: Connections) -> None:
        self._line = connections.open()
        self._sent = 0

    def together(self, status: str, attempt: str, process: str, lines: list[str]) -> None:
        """One entry for the jobs of ``lines``, as ``lua/lib/batch.lua`` writes it."""
        fields = ["k", "jobs", "b", BATCH, "s", status, "a", attempt, "w", process, "d", "\n".join(lines)]
        self._line.send("XADD", "hm:history", "*", *fields)
        self._line.send("INCRBY", "hm:history:bytes", str(60 + sum(map(len, fields))))
        self._sent += 2

    def flush(self) -> None:
        """Everything has arrived."""
        while self._sent:
            self._line.read()
            self._sent -= 1


def jid(number: int) -> str:
    """In no order."""
    return f"{number * 2_654_435_761_000_003 % 2**96:024x}"


def parts(numbers: Iterable[int], size: int) -> Iterator[list[int]]:
    """As many at a time."""
    found = list(numbers)
    for first in range(0, len(found), size):
        yield found[first : first + size]


def push(pipe: Pipe, numbers: Iterable[int]) -> None:
    """These jobs were pushed."""
    for some in parts(numbers, PUSHED):
        told = '{{"class":"shop.create_product","queue":"default","args":[{},{{"price":5,"name":"shoe"}}]}}'
        pipe.together("enqueued", "0", "", [f"{jid(number)} {told.format(number)}" for number in some])
        pipe.flush()


def end(pipe: Pipe, numbers: Iterable[int]) -> None:
    """These jobs ran; some of them took long enough to say so on the way."""
    for some in parts(numbers, ENDED):
        now = time.time()
        lines = [f"{jid(number)} " + '{"ending":"started"}' for number in some if number % 10 == 0]
        pipe.together("working", "1", ME, lines)
        told = json.dumps({"ending": "done", "started": now, "elapsed": 0.012345}, separators=(",", ":"))
        pipe.together("finished", "1", ME, [f"{jid(number)} {told}" for number in some])
        pipe.flush()


def produce(url: str, rate: int, seconds: float) -> None:
    """Tell of ``rate`` jobs a second, each ended a moment after it was pushed; the body of the producer."""
    pipe, began, pushed, ended = Pipe(Connections(url)), time.monotonic(), 0, 0
    while (now := time.monotonic() - began) < seconds or not pushed:  # it may not have been let run in that time
        due = int(now * rate)
        push(pipe, range(pushed, due))
        end(pipe, range(ended, max(pushed - rate // 10, ended)))
        ended, pushed = max(pushed - rate // 10, ended), due
        time.sleep(max(0.0, TICK - (time.monotonic() - began - now)))
    print(pushed)


def burst(figures: Report, recorder: Recorder, pipe: Pipe, jobs: int) -> None:
    """Many jobs are pushed, and then they end; everything waits when the recorder begins."""
    recorder.tick()
    push(pipe, range(jobs))
    end(pipe, range(jobs))
    began, used = time.perf_counter(), time.process_time()
    assert recorder.drain(600), "the backlog was not drained within ten minutes"
    spent, used = time.perf_counter() - began, time.process_time() - used
    kind = recorder.database.kind
    least = 0 if kind == "mysql" else BAR_DRAIN
    figures.add("drained", f"{kind}: a burst of {jobs:,} jobs drained", jobs / spent, "jobs/s", least=least)
    figures.add("changes", "  changes of jobs recorded", jobs * 2.1 / spent, "a s")
    figures.add("cpu", "  processor time of the recorder's process, a job", used / jobs * 1e6, "us")


def steady(figures: Report, home: Home, address: str, rate: int, seconds: float) -> None:
    """The lag of a recorder in a process of its own, looked at while a producer goes on."""
    config = Config(redis_url=home.config.redis_url, database_url=address, history_bytes=2**33)
    recorder = subprocess.Popen([sys.executable, "-m", "henchman.supervisor.history_main"], stdin=subprocess.PIPE)
    assert recorder.stdin is not None
    recorder.stdin.write(config.to_json().encode() + b"\n")
    recorder.stdin.flush()
    run, looks = home.connections.run, list[float]()
    wait_for("the recorder", lambda: bool(run(store.backlog(home.keys)).recorder), LIMIT)
    command = [
        sys.executable,
        __file__,
        "--produce",
        str(rate),
        "--seconds",
        str(seconds),
        "--url",
        str(config.redis_url),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as producer:
        while producer.poll() is None:
            looks.append(run(store.backlog(home.keys)).lag)
            time.sleep(0.02)  # between two looks
        told = int((producer.stdout.read() if producer.stdout else "") or 0)
    recorder.stdin.close()
    recorder.wait(LIMIT)
    figures.add("rate", f"  jobs told of, of {rate:,} a second that were asked for", told / seconds, "jobs/s")
    figures.add("lag", "  behind, median", median(looks), "s")
    figures.add("lag_p99", "  behind, p99", percentile(looks, 0.99), "s", most=BAR_LAG)
    figures.add("lag_worst", "  behind, worst", max(looks), "s")


def fill(database: Database, count: int) -> None:
    """Events straight into the table, a fifth of them failures."""
    for first in range(0, count, 5000):
        rows = Rows({}, {}, [], [])
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
    for after in range(0, count, count // 40):
        began = time.perf_counter()
        assert history.events(LARGE, FAILURES, after=after, limit=100).events
        yield time.perf_counter() - began


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of the burst")
    parser.add_argument("--events", type=int, default=500_000, help="events of the batch whose failures are read")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long the steady rate lasts")
    parser.add_argument(
        "--rate", type=int, help=f"the steady rate; {STEADY:,} jobs a second, {STEADY_MYSQL:,} of MySQL"
    )
    parser.add_argument("--database", help="address of an empty database")
    parser.add_argument("--produce", type=int, help="tell of so many jobs a second (the bench calls itself)")
    parser.add_argument("--url", help="where to")
    chosen = parser.parse_args()
    if chosen.produce:
        produce(chosen.url, chosen.produce, chosen.seconds)
        return 0
    with TemporaryDirectory() as folder, server() as made:
        address = chosen.database or f"sqlite:///{Path(folder) / 'history.sqlite'}"
        figures = Report("history", made.connect())
        measure(figures, made.url, address, chosen)
        return figures.finish(as_json=chosen.json, check=chosen.check)


def measure(figures: Report, url: str, address: str, chosen: Any) -> None:
    """Every figure, on one database."""
    database = Database(address)
    database.upgrade()
    home = Home(url)
    recorder = Recorder(database, home.config, home.keys, home.events, home.connections)
    figures.note("database", database.kind)
    burst(figures, recorder, Pipe(home.connections), chosen.jobs)
    recorder.stop()
    with database.writing() as connection:
        for table in (schema.events, schema.changes):
            connection.execute(table.delete())
    database.close()
    rate = chosen.rate or (STEADY_MYSQL if database.kind == "mysql" else STEADY)
    steady(figures, home, address, rate, chosen.seconds)
    fill(database, chosen.events)
    found = sorted(pages(database, chosen.events))
    what = f"{database.kind}: 100 failures of {chosen.events:,} events"
    figures.add("page", f"{what}, median", median(found) * 1000, "ms", most=BAR_PAGE * 1000)
    figures.add("page_worst", f"{what}, worst", found[-1] * 1000, "ms")
    database.close()
    home.connections.close()


if __name__ == "__main__":
    sys.exit(main())
