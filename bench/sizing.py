"""What a job takes of the server's memory while it waits, and what a worker process takes: memory, connections."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from options import arguments

from henchman.bench.jobs import app, noop, once, text
from henchman.bench.report import Report
from henchman.bench.server import Raw, server, wait_for
from henchman.bench.worker import worker

ROUND = 1000


def used(raw: Raw) -> int:
    """Bytes that the server's data take."""
    said = raw.ask("INFO", "memory").decode()
    return int(next(line for line in said.splitlines() if line.startswith("used_memory:")).partition(":")[2])


def weigh(raw: Raw, count: int, push: Callable[[Iterable[tuple[Any, ...]]], object]) -> float:
    """Bytes of the server a job, of ``count`` that wait."""
    raw.ask("FLUSHALL", "SYNC")
    before = used(raw)
    push((number,) for number in range(count))
    return (used(raw) - before) / count


def in_a_batch(rows: Iterable[tuple[Any, ...]]) -> None:
    """The same job as members of one batch."""
    with app.batch("sizing"):
        noop.enqueue_many(rows)


def main() -> int:
    """Weigh each kind of job, then one worker process."""
    parser = arguments("Weigh jobs that wait, and a worker process.")
    parser.add_argument("--jobs", type=int, default=50_000, help="jobs of each kind")
    options = parser.parse_args()
    with server() as made:
        raw = made.connect()
        figures = Report("sizing", raw)
        kinds: dict[str, Callable[[Iterable[tuple[Any, ...]]], object]] = {
            "plain": noop.enqueue_many,
            "1 kB of arguments": lambda rows: text.enqueue_many(("x" * ROUND,) for _ in rows),
            "due later": noop.using(delay=3600).enqueue_many,
            "with a key, once": once.enqueue_many,
            "member of a batch": in_a_batch,
        }
        for kind, push in kinds.items():
            figures.add(kind, f"a job that waits, {kind}", weigh(raw, options.jobs, push), "bytes")
        raw.ask("FLUSHALL", "SYNC")
        clients = _clients(raw)
        for slots in (1, 10, 50):
            with worker(made, concurrency=slots) as process:
                figures.add(f"rss_{slots}", f"memory of a worker process, {slots} slots", process.rss(), "MB")
                seen = len(_clients(raw) - clients)
                figures.add(f"connections_{slots}", f"connections of a worker, {slots} slots", seen)
            wait_for("its connections to close", lambda: _clients(raw) <= clients)
        return figures.finish(as_json=options.json, check=options.check)


def _clients(raw: Raw) -> set[bytes]:
    """The ids of those who are connected."""
    return {line.split()[0] for line in raw.ask("CLIENT", "LIST").splitlines()}


if __name__ == "__main__":
    sys.exit(main())
