"""What it costs to see every job: no-op jobs drained untracked and as one batch with SQL history, in one run.

The tracked ones are members of one batch, and the worker records their history into SQLite while it drains. On the way:
memory of the server for each tracked job that waits, how long ``batch_status`` takes while the worker is at it, and how
far the record is behind when the last job has ended.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from jobs import app, noop
from server import LIMIT, Figures, Raw, arguments, median, percentile, server, wait_for, worker

BAR = 1 / 2
QUEUE = "bench_load"


def drained(raw: Raw, count: int, concurrency: int, batch: str = "") -> tuple[float, list[float]]:
    """(jobs a second from the first that is counted to the last, seconds of each look at the batch's status)."""
    looks: list[float] = []
    raw.ask("DEL", "stat:processed")
    with worker(raw, concurrency=concurrency):
        raw.ask("SREM", "paused", QUEUE)
        raw.ask("PUBLISH", "hm:control", f"unpause {QUEUE}")
        wait_for("the first job", lambda: raw.number("GET", "stat:processed") > 0, LIMIT, pause=0.001)
        first, began = raw.number("GET", "stat:processed"), time.monotonic()
        last, ended = first, began + 1e-9
        while last < count:
            time.sleep(0.02)
            if batch:
                looked = time.monotonic()
                app.batch_status(batch)
                looks.append(time.monotonic() - looked)
            last, ended = raw.number("GET", "stat:processed"), time.monotonic()
            if ended - began > LIMIT:
                sys.exit(f"{last} of {count} jobs ran within {LIMIT:g} s")
        if batch:
            recorded(raw)
    return (last - first) / (ended - began), looks


def recorded(raw: Raw) -> None:
    """Wait until the history has taken everything out of its stream."""
    wait_for("the record", lambda: raw.number("XLEN", "hm:history") == 0, LIMIT, pause=0.005)


def fill(raw: Raw, count: int) -> None:
    """Plain jobs in a paused queue."""
    raw.ask("FLUSHALL")
    raw.ask("SADD", "paused", QUEUE)
    noop.enqueue_many((number,) for number in range(count))


def fill_batch(raw: Raw, count: int, most_bytes: int) -> tuple[str, float]:
    """(id of a batch of as many, bytes of the server for each job beyond its payload, without the stream)."""
    raw.ask("FLUSHALL")
    raw.ask("SADD", "paused", QUEUE)
    noop.enqueue_many((number,) for number in range(count))
    plain = int(raw.info("memory")["used_memory"])
    raw.ask("FLUSHALL")
    raw.ask("SADD", "paused", QUEUE)
    empty = int(raw.info("memory")["used_memory"])
    with app.batch("bench") as batch:
        noop.enqueue_many((number,) for number in range(count))
    more = (int(raw.info("memory")["used_memory"]) - empty - (plain - empty)) / count
    raw.ask("FLUSHALL")
    raw.ask("SADD", "paused", QUEUE)
    raw.ask("SET", "hm:history:on", f"strict {most_bytes}")
    with app.batch("bench") as batch:
        noop.enqueue_many((number,) for number in range(count))
    return batch.id, more


def main() -> int:
    """Take turns and compare the medians."""
    parser = arguments("Drain no-op jobs untracked, and as one batch with SQL history.")
    parser.add_argument("--jobs", type=int, default=50_000, help="no-op jobs in a run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument("--concurrency", type=int, default=10, help="slots of the worker process")
    parser.add_argument("--database", default="", help="record into this database in place of a SQLite file")
    options = parser.parse_args()
    plain, tracked, looks, behind = [], [], [], []
    with server() as made, tempfile.TemporaryDirectory(prefix="hm-bench-") as folder:
        raw = made.connect()
        figures = Figures("tracked", raw)
        for turn in range(options.runs):
            fill(raw, options.jobs)
            plain.append(drained(raw, options.jobs, options.concurrency)[0])
            os.environ["HENCHMAN_DATABASE_URL"] = options.database or f"sqlite:///{Path(folder) / f'{turn}.sqlite'}"
            batch, more = fill_batch(raw, options.jobs, 256 * 1024 * 1024)
            rate, took = drained(raw, options.jobs, options.concurrency, batch)
            del os.environ["HENCHMAN_DATABASE_URL"]
            tracked.append(rate)
            looks += took
            status = app.batch_status(batch)
            assert (status.done, status.counts["finished"]) == (options.jobs, options.jobs), status
            behind.append(more)
            print(f"  turn {turn + 1}: untracked {plain[-1]:,.0f}, tracked {rate:,.0f} jobs/s", flush=True)
        figures.add("plain", f"untracked, median of {options.runs}", median(plain), "jobs/s")
        figures.add("tracked", f"in a batch, with history, median of {options.runs}", median(tracked), "jobs/s")
        figures.add("ratio", "tracked / untracked", median(tracked) / median(plain), least=BAR)
        figures.add("memory", "server memory of a waiting member beyond its payload", median(behind), "bytes", most=250)
        figures.add("status", "batch_status while it drains, p99", percentile(looks, 0.99) * 1000, "ms")
        figures.add("status_p50", "batch_status while it drains, median", median(looks) * 1000, "ms", most=5)
        return figures.finish(options)


if __name__ == "__main__":
    sys.exit(main())
