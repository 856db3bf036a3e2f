"""How fast one worker process drains an ordered queue of distinct ids, beside plain no-op jobs, on one server.

Both with one payload a call: a claim is one id with one payload, as a plain job is one payload. On the way: how much
memory of the server a waiting id takes, and how soon a push to an idle worker is started. Lowkiq's published figures
for 100,000 empty jobs are 155 to 214 s (its README).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from board import Board
from jobs import app, changes, tell_id
from rate import pause, released
from server import LIMIT, Figures, Raw, arguments, median, percentile, server, wait_for, worker

BAR = 1 / 2
LOWKIQ = 155.0  # seconds for 100,000
MS = 1e-6  # of nanoseconds
PLAIN, ORDERED = "bench_load", "bench_ordered"


def drained(raw: Raw, count: int, queue: str, concurrency: int) -> float:
    """Jobs a second, counted by the server from the first that it shows to the last."""
    pause(raw, queue)
    raw.ask("DEL", "stat:processed")
    with worker(raw, concurrency=concurrency):
        last, rate = released(raw, queue, count)
    assert last == count, f"{last} of {count} ran"
    assert not raw.ask("KEYS", "hm:held:*"), "something is still held"
    assert not raw.ask("KEYS", "hm:flight:*"), "something is still in flight"
    return rate


def fill_plain(raw: Raw, count: int) -> None:
    """No-op jobs as ``enqueue_many`` makes them."""
    app.registry.get("bench.noop").enqueue_many([(number,) for number in range(count)])  # type: ignore[attr-defined]


def fill_ordered(raw: Raw, count: int, size: int = 20) -> None:
    """Distinct ids with one payload of ``size`` bytes each."""
    changes.push_many((f"entity-{number:06d}", "x" * (size - 2), number) for number in range(count))


def memory(raw: Raw, count: int) -> float:
    """Bytes of the server's memory for each waiting id of 13 bytes with a payload of 200."""
    before = int(raw.info("memory")["used_memory"])
    fill_ordered(raw, count, 200)
    return (int(raw.info("memory")["used_memory"]) - before) / count


def push_to_start(board: Board, first: int, count: int) -> list[float]:
    """Milliseconds from the push to the first line of the handler, one at a time in a worker that idles."""
    taken = []
    for number in range(first, first + count):
        time.sleep(0.008)
        before = time.monotonic_ns()
        tell_id.push(number, number)
        wait_for(f"payload {number}", lambda number=number: board.monotonic(number) > 0, LIMIT, pause=0.0002)  # type: ignore[misc]
        taken.append((board.monotonic(number) - before) * MS)
    return taken


def main() -> int:
    """Take turns and compare the medians."""
    parser = arguments("Drain an ordered queue of distinct ids with one worker process, beside plain no-op jobs.")
    parser.add_argument("--jobs", type=int, default=100_000, help="payloads in a run, each of an id of its own")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument("--concurrency", type=int, default=10, help="slots of the worker process")
    parser.add_argument("--samples", type=int, default=300, help="pushes to an idle worker")
    options = parser.parse_args()
    turns: tuple[tuple[str, Callable[[Raw, int], None]], ...] = ((PLAIN, fill_plain), (ORDERED, fill_ordered))
    rates: dict[str, list[float]] = {PLAIN: [], ORDERED: []}
    with server() as made, tempfile.TemporaryDirectory(prefix="hm-bench-") as folder:
        raw = made.connect()
        figures = Figures("ordered", raw)
        for turn in range(options.runs):
            for queue, fill in turns:
                raw.ask("FLUSHALL")
                fill(raw, options.jobs)
                rates[queue].append(drained(raw, options.jobs, queue, options.concurrency))
            now = f"plain {rates[PLAIN][-1]:,.0f}, ordered {rates[ORDERED][-1]:,.0f} a second"
            print(f"  turn {turn + 1}: {now}", flush=True)
        plain, ordered = median(rates[PLAIN]), median(rates[ORDERED])
        figures.add("plain", f"plain no-op jobs, median of {options.runs}", plain, "jobs/s")
        figures.add("ordered", f"ordered, distinct ids, batch 1, median of {options.runs}", ordered, "ids/s")
        figures.add("ratio", "ordered / plain", ordered / plain, least=BAR)
        figures.add("lowkiq", "times Lowkiq's best published rate (100,000 in 155 s)", ordered * LOWKIQ / 100_000)
        raw.ask("FLUSHALL")
        waiting = memory(raw, 100_000)
        figures.add("memory", "server memory of a waiting id, 200-byte payload", waiting, "bytes", most=450)
        raw.ask("FLUSHALL")
        os.environ["BENCH_BOARD"] = str(Path(folder) / "board")
        board = Board(Path(os.environ["BENCH_BOARD"]))
        with worker(raw, concurrency=options.concurrency):
            push_to_start(board, 1, 30)
            taken = push_to_start(board, 100, options.samples)
        figures.add("start_p50", "push to start on an idle worker, p50", percentile(taken, 0.5), "ms", most=1)
        figures.add("start_p99", "push to start on an idle worker, p99", percentile(taken, 0.99), "ms")
        return figures.finish(options)


if __name__ == "__main__":
    sys.exit(main())
