"""One batch of half a million jobs: what it costs who fills it, who asks how it stands, and who reads its failures.

The producer is a process of its own that reads its rows from a generator; its memory is taken before the first and
after the last row. While it fills and while a worker drains, ``batch_status`` is asked all the time. One job in twenty
fails; at the end the pages of failures are read from the history in SQLite, each timed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from options import arguments

from henchman.bench.jobs import app, refuse
from henchman.bench.report import Report, percentile
from henchman.bench.server import LIMIT, Raw, Server, server
from henchman.bench.worker import worker
from henchman.config import Config
from henchman.history.reading import History
from henchman.store import batches

QUEUE = "bench_load"
PAGE = 100


def rss() -> float:
    """The most that this process had in memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rows(count: int) -> Iterator[tuple[int]]:
    """One job each."""
    for number in range(count):
        yield (number,)


def produce(count: int) -> None:
    """Fill one batch and print (MB before, MB after, jobs a second)."""
    app.connections.run(batches.newest(app.keys, 0, 1))  # connected, and everything loaded
    with app.batch("warm") as batch:
        refuse.enqueue_many(rows(2000))
    before, began = rss(), time.monotonic()
    with app.batch("large") as batch:
        refuse.enqueue_many(rows(count))
    print(batch.id, before, rss(), count / (time.monotonic() - began))


def looking(finished: Callable[[], bool], limit: float) -> list[float]:
    """Ask how the newest batch stands until it is finished, and once at least; the seconds that each look took."""
    looks, end = [], time.monotonic() + limit
    while not finished() or not looks:
        names = app.connections.run(batches.newest(app.keys, 0, 1))
        began = time.monotonic()
        if names:
            app.batch_status(names[0])
            looks.append(time.monotonic() - began)
        if time.monotonic() > end:
            sys.exit(f"not done within {limit:g} s")
        time.sleep(0.01)
    return looks


def pages(batch: str) -> list[float]:
    """The seconds that each page of failures takes, from the first to the last."""
    history, took, after = History.open(Config.load()), [], 0
    try:
        while after is not None:
            began = time.monotonic()
            after = history.events(batch, ("failed", "error"), after=after, limit=PAGE).after
            took.append(time.monotonic() - began)
    finally:
        history.close()
    return took[1:] or took  # the first one opens the database


def drain(made: Server, raw: Raw, figures: Report, batch: str, concurrency: int, limit: float) -> None:
    """Run them, looking on; then read what failed."""
    with worker(made, "--log-level", "error", concurrency=concurrency):
        raw.ask("SREM", "paused", QUEUE)
        raw.ask("PUBLISH", "hm:control", f"unpause {QUEUE}")
        began = time.monotonic()
        looks = looking(lambda: app.batch_status(batch).state == "complete", limit)
        status, spent = app.batch_status(batch), time.monotonic() - began
        looking(lambda: raw.number("XLEN", "hm:history") == 0, limit)
    figures.add("rate", "drained, with history", status.done / spent, "jobs/s")
    figures.add("status_drain", "batch_status while it drains, median", median(looks) * 1000, "ms", most=5)
    figures.add("status_drain_p99", "the same, p99", percentile(looks, 0.99) * 1000, "ms")
    took = pages(batch)
    figures.add("page", f"a page of {PAGE} failures, median of {len(took)}", median(took) * 1000, "ms")
    figures.add("page_worst", "the slowest page", max(took) * 1000, "ms", most=50)


def main() -> int:
    """Fill, drain, read."""
    parser = arguments("One large batch: memory of its producer, its status, its failures.")
    parser.add_argument("--jobs", type=int, default=500_000, help="jobs in the batch")
    parser.add_argument("--concurrency", type=int, default=10, help="slots of the worker process")
    parser.add_argument("--limit", type=float, default=max(LIMIT, 1800.0), help="seconds to drain it in")
    parser.add_argument("--produce", type=int, help="fill a batch and end (the bench calls itself)")
    options = parser.parse_args()
    if options.produce:
        produce(options.produce)
        return 0
    with server() as made, tempfile.TemporaryDirectory(prefix="hm-bench-") as folder:
        os.environ["HENCHMAN_DATABASE_URL"] = f"sqlite:///{Path(folder) / 'large.sqlite'}"
        raw = made.connect()
        figures = Report("large", raw)
        raw.ask("SADD", "paused", QUEUE)
        raw.ask("SET", "hm:history:on", f"strict {1024**3}")
        command = [sys.executable, __file__, "--produce", str(options.jobs)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as producer:
            looks = looking(lambda: producer.poll() is not None, options.limit)
            batch, before, after, rate = (producer.stdout.read() if producer.stdout else "").split()
        figures.add("producer", "memory of the producer at its most", float(after), "MB", most=100)
        figures.add("growth", "more than after its first 2,000 jobs", float(after) - float(before) + 0.001, "MB")
        figures.add("filling", "jobs pushed", float(rate), "jobs/s")
        figures.add("status_fill", "batch_status while it is filled, median", median(looks) * 1000, "ms", most=5)
        figures.add("status_fill_p99", "the same, p99", percentile(looks, 0.99) * 1000, "ms")
        drain(made, raw, figures, batch, options.concurrency, options.limit)
        return figures.finish(as_json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
