"""A fair queue: one tenant's jobs drained beside plain ones; and how long another tenant waits beside many of them.

The worker runs in this program. The second part is the promise: tenant A has very many jobs of 5 ms waiting, tenant B
pushes one now and then, and starts within a turn.
"""

from __future__ import annotations

import sys
import time
from statistics import median

from options import arguments

from henchman import App
from henchman.bench.report import Report, percentile
from henchman.bench.server import Raw, server, wait_for

app = App(concurrency=10, log_level="error")
waits: list[float] = []


@app.job(name="bench.plain", queue="plain")
def plain(tenant: str, number: int) -> None: ...


@app.job(name="bench.fair", queue="fair", fair_by="tenant")
def fair(tenant: str, number: int) -> None: ...


@app.job(name="bench.five", queue="fair", fair_by="tenant")
def five(tenant: str, pushed: float) -> None:
    if tenant == "B":
        waits.append((time.monotonic() - pushed) * 1000)
    time.sleep(0.005)


def _drained(raw: Raw, kind: str, jobs: int) -> float:
    """Jobs a second."""
    before = raw.number("GET", "stat:processed")
    {"plain": plain, "fair": fair}[kind].enqueue_many((f"t{number % 100}", number) for number in range(jobs))
    with app.embed():
        since, first = time.monotonic(), before
        wait_for("the first", lambda: raw.number("GET", "stat:processed") > before)
        if (seen := raw.number("GET", "stat:processed")) < before + jobs:  # few jobs have ended at the first look
            since, first = time.monotonic(), seen
        wait_for("the last", lambda: raw.number("GET", "stat:processed") >= before + jobs)
        return (before + jobs - first) / (time.monotonic() - since)


def _waited(jobs: int, others: int) -> None:
    """B pushes so many, four a second, while A's wait."""
    five.enqueue_many(("A", 0.0) for _ in range(jobs))
    with app.embed():
        five.enqueue("B", time.monotonic())
        wait_for("the worker", lambda: len(waits) == 1)
        waits.clear()
        for number in range(others):
            time.sleep(0.25)
            five.enqueue("B", time.monotonic())
            wait_for("its run", lambda number=number: len(waits) > number)  # type: ignore[misc]
        app.queues["fair"].clear()


def main() -> int:
    """Take turns and compare the medians."""
    parser = arguments("Drain a fair queue beside a plain one, and let a tenant wait beside another.")
    parser.add_argument("--jobs", type=int, default=50_000, help="no-op jobs in a run")
    parser.add_argument("--waiting", type=int, default=200_000, help="jobs of 5 ms that wait of the first tenant")
    parser.add_argument("--others", type=int, default=40, help="jobs of the second")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    options = parser.parse_args()
    with server() as made:
        app.configure(redis_url=made.url)
        raw = made.connect()
        figures = Report("fair", raw)
        taken: dict[str, list[float]] = {"plain": [], "fair": []}
        for _ in range(options.runs):
            for kind, some in taken.items():
                some.append(_drained(raw, kind, options.jobs))
        figures.add("plain", "a worker, a plain queue", median(taken["plain"]), "jobs/s")
        figures.add(
            "fair", "a worker, a fair queue of a hundred tenants", median(taken["fair"]), "jobs/s", least=32_000
        )
        ratio = median(two / one for one, two in zip(taken["plain"], taken["fair"], strict=True))
        figures.add("fair_ratio", "… beside the plain one", ratio, least=0.5)
        _waited(options.waiting, options.others)
        figures.add("turn_p50", "push to start beside a tenant with very many, median", percentile(waits, 0.5), "ms")
        figures.add("turn_most", "…, the longest", max(waits), "ms", most=100)
        return figures.finish(as_json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
