"""What settings do to a drain of no-op jobs: slots, the way of settling, coroutines, what the server keeps on disk.

All variants take turns. docs/performance.md says what follows from the figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from options import arguments

from henchman.bench.jobs import LOAD, await_job, each, noop
from henchman.bench.report import Report
from henchman.bench.server import server
from henchman.bench.worker import drain


class Variant(NamedTuple):
    """One way to drain: the job and its arguments, slots, options of the server, a share of the jobs."""

    name: str
    said: str
    job: Any = noop
    argument: float = 0
    slots: int = 10
    options: tuple[str, ...] = ()
    share: float = 1.0


VARIANTS = (
    Variant("plain", "10 slots, no persistence"),
    Variant("slots_1", "1 slot", slots=1),
    Variant("slots_50", "50 slots", slots=50),
    Variant("each", 'ack="each"', job=each, share=0.1),
    Variant("async", "an async job", job=await_job, share=0.3),
    Variant("everysec", "appendonly yes, appendfsync everysec", options=("--appendonly", "yes")),
    Variant("always", "appendonly yes, appendfsync always", options=("--appendonly", "yes", "--appendfsync", "always")),
)


@contextmanager
def filled(variant: Variant, jobs: int) -> Iterator[tuple[Any, int]]:
    """A server with the jobs of a variant."""
    with server("", *variant.options) as made:
        count = max(100, int(jobs * variant.share))
        variant.job.enqueue_many([(variant.argument,)] * count)
        yield made, count


def main() -> int:
    """Take turns."""
    parser = arguments("What settings do to a drain of no-op jobs.")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs of a drain")
    parser.add_argument("--runs", type=int, default=3, help="runs of each variant")
    options = parser.parse_args()
    with server() as made:
        figures = Report("tuning", made.connect(), live=False)
    for _ in range(options.runs):
        for variant in VARIANTS:
            with filled(variant, options.jobs) as (made, count):
                found = drain(made, made.connect(), LOAD, count, concurrency=variant.slots)
            figures.add(variant.name, variant.said, found.rate, "jobs/s")
            figures.add(f"{variant.name}_worker", "… the worker's processor time a job", found.worker_us, "µs")
            figures.add(f"{variant.name}_server", "… the server's", found.server_us, "µs")
    print(figures.markdown())
    return figures.finish(as_json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
