"""How fast one worker process drains no-op jobs, beside the bare loop, in one run on one server.

The rate of the worker is counted by the server (``stat:processed`` rises when a job is settled), from the first jobs
that it shows to the last one, so the start of the process is not in it. Bare and worker take turns.
"""

from __future__ import annotations

import sys
import time

from bare import drain, fill
from server import LIMIT, Figures, Raw, arguments, median, server, wait_for, worker

BAR = 1 / 3


def drain_by_worker(raw: Raw, count: int, concurrency: int) -> tuple[float, float, float]:
    """(jobs a second, megabytes when it was ready, megabytes at the end)."""
    raw.ask("SADD", "paused", "bench_load")  # until the worker has settled down
    with worker(raw, concurrency=concurrency) as made:
        before = made.rss()
        raw.ask("SREM", "paused", "bench_load")
        raw.ask("PUBLISH", "hm:control", "unpause bench_load")
        first, began = watch(raw, count)
        last, ended = watch(raw, count, until=count)
        rate = (last - first) / (ended - began)
        after = made.rss()
    left = raw.number("LLEN", "queue:bench_load")
    flying = raw.ask("KEYS", "hm:flight:*")
    assert (last, left, flying) == (count, 0, []), (
        f"{last} of {count} jobs ran, {left} in the queue, in flight {flying}"
    )
    return rate, before, after


def watch(raw: Raw, count: int, until: int = 1) -> tuple[int, float]:
    """(jobs settled, time) as soon as ``until`` jobs are settled."""
    seen = [0]

    def look() -> bool:
        seen[0] = raw.number("GET", "stat:processed")
        return seen[0] >= until

    wait_for(f"{until:,} of {count:,} jobs", look, LIMIT, pause=0.01)
    return seen[0], time.monotonic()


def main() -> int:
    """Take turns and compare the medians."""
    parser = arguments("Drain no-op jobs with one worker process, beside the bare loop.")
    parser.add_argument("--jobs", type=int, default=200_000, help="no-op jobs in a run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument("--concurrency", type=int, default=10, help="slots of the worker process")
    options = parser.parse_args()
    with server() as made:
        raw = made.connect()
        figures = Figures("load", raw)
        bare, ours = [], []
        for turn in range(options.runs):
            fill(raw, options.jobs)
            bare.append(drain(raw, options.jobs))
            fill(raw, options.jobs)
            rate, before, after = drain_by_worker(raw, options.jobs, options.concurrency)
            ours.append(rate)
            print(f"  turn {turn + 1}: bare {bare[-1]:,.0f} jobs/s, worker {rate:,.0f} jobs/s", flush=True)
        figures.note("bare_rates", [round(rate) for rate in bare])
        figures.note("worker_rates", [round(rate) for rate in ours])
        figures.add("bare", f"bare loop, median of {options.runs}", median(bare), "jobs/s")
        figures.add("worker", f"worker, {options.concurrency} slots, median of {options.runs}", median(ours), "jobs/s")
        figures.add("ratio", "worker / bare", median(ours) / median(bare), least=round(BAR, 4))
        figures.add("rss_ready", "memory of the worker process when it was ready", before, "MB", most=45)
        figures.add("rss_end", f"memory after {options.jobs:,} jobs", after, "MB")
        return figures.finish(options)


if __name__ == "__main__":
    sys.exit(main())
