"""How fast one worker process drains no-op jobs, beside the bare loop, in one run on one server.

The rate of the worker is counted by the server (``stat:processed`` rises when a job is settled), from the first jobs
that it shows to the last one, so the start of the process is not in it. Bare and worker take turns.
"""

from __future__ import annotations

import sys

from bare import drain, fill
from rate import pause, released
from server import Figures, Raw, arguments, median, server, worker

BAR = 1 / 3


def drain_by_worker(raw: Raw, count: int, concurrency: int) -> tuple[float, float, float]:
    """(jobs a second, megabytes when it was ready, megabytes at the end)."""
    pause(raw, "bench_load")
    with worker(raw, concurrency=concurrency) as made:
        before = made.rss()
        last, rate = released(raw, "bench_load", count)
        after = made.rss()
    left = raw.number("LLEN", "queue:bench_load")
    flying = raw.ask("KEYS", "hm:flight:*")
    assert (last, left, flying) == (count, 0, []), (
        f"{last} of {count} jobs ran, {left} in the queue, in flight {flying}"
    )
    return rate, before, after


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
