"""What an isolated run costs: one worker with one slot drains no-op jobs, plain ones and isolated ones, in turns.

A no-op job on one slot is a round trip: the next one starts when the one before has ended. Processor time is that of
the worker, which runs in this program, and of its processes.
"""

from __future__ import annotations

import resource
import sys
import time
from statistics import median

from options import arguments

from henchman import App
from henchman.bench.report import Report
from henchman.bench.server import Raw, server, wait_for

app = App(concurrency=1, log_level="error")


@app.job(name="bench.plain")
def plain() -> None: ...


@app.job(name="bench.isolated", isolate=True)
def isolated() -> None: ...


def _used() -> float:
    """Seconds of processor time of this program, in which the worker runs, and of the processes that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def _drained(raw: Raw, kind: str, jobs: int) -> tuple[float, float]:
    """Microseconds of a job: by the clock, and of the processors. The second counts the end of the worker: only then
    the system knows what the processes of isolated runs have used."""
    job = {"plain": plain, "isolated": isolated}[kind]
    used = _used()
    with app.embed():
        before = raw.number("GET", "stat:processed")
        job.enqueue()
        _wait_for(raw, before + 1)
        job.enqueue_many([()] * jobs)
        started = time.monotonic()
        _wait_for(raw, before + 1 + jobs)
        seconds = time.monotonic() - started
    return seconds / jobs * 1e6, (_used() - used) / jobs * 1e6


def _wait_for(raw: Raw, processed: int) -> None:
    wait_for("the jobs are settled", lambda: raw.number("GET", "stat:processed") >= processed)


def main() -> int:
    """Take turns and compare the medians."""
    parser = arguments("Drain no-op jobs by one slot, in the worker and in a process of their own.")
    parser.add_argument("--jobs", type=int, default=5_000, help="no-op jobs in a run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    options = parser.parse_args()
    with server() as made:
        app.configure(redis_url=made.url)
        raw = made.connect()
        figures = Report("isolated", raw)
        taken: dict[str, list[tuple[float, float]]] = {"plain": [], "isolated": []}
        for _ in range(options.runs):
            for kind, some in taken.items():
                some.append(_drained(raw, kind, options.jobs))
        for kind, some in taken.items():
            figures.add(f"{kind}_clock", f"{kind}: a job, by the clock", median([one for one, _ in some]), "µs")
            figures.add(
                f"{kind}_processor", f"{kind}: a job, of the processors", median([one for _, one in some]), "µs"
            )
        return figures.finish(as_json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
