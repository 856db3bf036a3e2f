"""What tracing costs a worker: one process drains no-op jobs with tracing off and on, in turns, in one run.

The payloads carry a context in every turn. ``none``: nothing is sampled; ``tenth``: one run in ten; ``all``: each run
is recorded, batched, and thrown away by the exporter.
"""

from __future__ import annotations

import os
import sys

from bare import fill
from jobs import app
from load import drain_by_worker
from opentelemetry.sdk.trace import TracerProvider
from server import Figures, arguments, median, server
from traced import KINDS

from henchman.contrib.otel import instrument


def main() -> int:
    """Take turns and compare the medians."""
    parser = arguments("Drain no-op jobs with one worker process, with and without tracing.")
    parser.add_argument("--jobs", type=int, default=100_000, help="no-op jobs in a run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument("--concurrency", type=int, default=10, help="slots of the worker process")
    options = parser.parse_args()
    instrument(app, tracer_provider=TracerProvider())
    with server() as made:
        raw = made.connect()
        figures = Figures("tracing", raw)
        rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for turn in range(options.runs):
            for kind in KINDS:
                os.environ["BENCH_TRACED"] = kind
                fill(raw, options.jobs)
                rates[kind].append(drain_by_worker(raw, options.jobs, options.concurrency)[0])
            print(f"  turn {turn + 1}: " + ", ".join(f"{kind} {rates[kind][-1]:,.0f}/s" for kind in KINDS), flush=True)
        for kind in KINDS:
            figures.add(kind, f"worker, tracing {kind}, median of {options.runs}", median(rates[kind]), "jobs/s")
            if kind != "off":
                figures.add(
                    f"{kind}_costs", f"{kind}: share of the rate", 1 - median(rates[kind]) / median(rates["off"])
                )
        return figures.finish(options)


if __name__ == "__main__":
    sys.exit(main())
