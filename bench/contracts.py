"""What a contract costs: jobs with a key beside jobs without one, pushed one by one and in bulk, and run.

All sides take turns on one server. The time that the server takes for a push is its own count of it (commandstats).
"""

from __future__ import annotations

import sys
import time
from typing import Any

from jobs import noop, once, unique
from server import Figures, Raw, arguments, median, server, wait_for, worker

SIDES = {"plain": noop, "until_success": unique, "once": once}
KEYED = ("until_success", "once")


def one_by_one(job: Any, count: int) -> float:
    """Pushes a second."""
    push = job.enqueue
    started = time.perf_counter()
    for number in range(count):
        push(number)
    return count / (time.perf_counter() - started)


def in_bulk(job: Any, count: int) -> float:
    """Pushes a second, with ``enqueue_many``."""
    started = time.perf_counter()
    pushed = job.enqueue_many((number,) for number in range(count))
    taken = time.perf_counter() - started
    assert pushed.count == count
    return count / taken


def server_time(raw: Raw) -> float:
    """Microseconds that the server has spent on commands so far."""
    stats = raw.info("commandstats").values()
    return sum(float(one.split("usec=")[1].split(",")[0]) for one in stats if "usec=" in one)


def measure_pushes(figures: Figures, raw: Raw, runs: int, count: int, bulk: int) -> None:
    """One by one, in bulk, and once more the same keys: duplicates."""
    single: dict[str, list[float]] = {name: [] for name in SIDES}
    many: dict[str, list[float]] = {name: [] for name in SIDES}
    again: dict[str, list[float]] = {name: [] for name in KEYED}
    spent: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(runs):
        for name, job in SIDES.items():
            raw.ask("FLUSHALL")
            single[name].append(one_by_one(job, count))
            raw.ask("FLUSHALL")
            before = server_time(raw)
            many[name].append(in_bulk(job, bulk))
            spent[name].append((server_time(raw) - before) / bulk)
            assert raw.number("LLEN", "queue:bench_load") == bulk
            if name in KEYED:
                again[name].append(in_bulk(job, bulk))
                assert raw.number("LLEN", "queue:bench_load") == bulk, "duplicates are not pushed"
    for name in SIDES:
        figures.add(f"single_{name}", f"enqueue, one by one, {name}", median(single[name]), "jobs/s")
        figures.add(f"bulk_{name}", f"enqueue_many, {name}", median(many[name]), "jobs/s")
        figures.add(f"server_{name}", f"the server's time a row in bulk, {name}", median(spent[name]), "us")
    for name in KEYED:
        ratio = median(single["plain"]) / median(single[name])
        figures.add(f"single_{name}_times", f"plain / {name}, one by one", ratio, most=1.8)
        figures.add(f"bulk_{name}_times", f"plain / {name}, in bulk", median(many["plain"]) / median(many[name]))
        figures.add(f"duplicates_{name}", f"enqueue_many of duplicates, {name}", median(again[name]), "jobs/s")


def drained(raw: Raw, job: Any, count: int) -> float:
    """Jobs a second of a worker that finds ``count`` jobs."""
    raw.ask("FLUSHALL")
    in_bulk(job, count)
    with worker(raw):
        started, first = time.monotonic(), raw.number("GET", "stat:processed")
        wait_for("the jobs", lambda: raw.number("GET", "stat:processed") >= count)
        return (count - first) / (time.monotonic() - started)


def measure_drain(figures: Figures, raw: Raw, runs: int, count: int) -> None:
    """A worker runs jobs that do nothing, with and without a key."""
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(runs):
        for name, job in SIDES.items():
            rates[name].append(drained(raw, job, count))
    for name in SIDES:
        figures.add(f"drain_{name}", f"a worker with 10 slots, {name}", median(rates[name]), "jobs/s")
    for name in KEYED:
        ratio = median(rates["plain"]) / median(rates[name])
        figures.add(f"drain_{name}_times", f"plain / {name}, drained", ratio, most=1.5)


def main() -> int:
    """All of it."""
    parser = arguments("What a key costs, beside jobs without one in the same run.")
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs one by one in a run")
    parser.add_argument("--bulk", type=int, default=50_000, help="jobs in bulk, and to drain, in a run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    options = parser.parse_args()
    with server() as made:
        raw = made.connect()
        figures = Figures("contracts", raw)
        measure_pushes(figures, raw, options.runs, options.jobs, options.bulk)
        measure_drain(figures, raw, options.runs, options.bulk)
        return figures.finish(options)


if __name__ == "__main__":
    sys.exit(main())
