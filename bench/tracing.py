"""What tracing costs a worker: one process drains no-op jobs with tracing off and on, in turns, in one run.

The payloads carry a context in every turn. ``none``: nothing is sampled; ``tenth``: one run in ten; ``all``: each run
is recorded, batched, and thrown away by the exporter. Processor time a job says it also on a machine that does other
work; the shares of jobs of 1 and 10 ms are reckoned from it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median

from opentelemetry.sdk.trace import TracerProvider
from options import arguments
from traced import KINDS

from henchman.bench.bare import fill
from henchman.bench.jobs import LOAD, app
from henchman.bench.report import Report
from henchman.bench.server import server
from henchman.bench.worker import drain
from henchman.contrib.otel import instrument

HERE = str(Path(__file__).resolve().parent)


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
        figures = Report("tracing", raw)
        rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
        spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for turn in range(options.runs):
            for kind in KINDS:
                os.environ["BENCH_TRACED"] = kind
                fill(made, raw, options.jobs)
                found = drain(
                    made, raw, LOAD, options.jobs, concurrency=options.concurrency, target="traced:app", folder=HERE
                )
                rates[kind].append(found.rate)
                spent[kind].append(found.worker_us)
            print(f"  turn {turn + 1}: " + ", ".join(f"{kind} {rates[kind][-1]:,.0f}/s" for kind in KINDS), flush=True)
        for kind in KINDS:
            figures.add(kind, f"worker, tracing {kind}, median of {options.runs}", median(rates[kind]), "jobs/s")
            figures.add(f"{kind}_cpu", f"{kind}: processor time a job, least", min(spent[kind]), "us")
            if kind != "off":
                more = min(spent[kind]) - min(spent["off"])
                figures.add(f"{kind}_costs", f"{kind}: share of a job that does nothing", more / min(spent["off"]))
                for length in (1, 10):
                    share = more / (length * 1000 + min(spent["off"]))
                    figures.add(f"{kind}_of_{length}ms", f"{kind}: share of a job of {length} ms", share)
        return figures.finish(as_json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
