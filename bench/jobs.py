"""The jobs that the benches push, under names that do not depend on how this file is imported."""

from __future__ import annotations

import os
import time

from board import Board

from henchman import App, Failure

app = App()
QUEUES = ("bench_a", "bench_b", "bench_c", "bench_d")
board = Board.of_environment()
if traced := os.environ.get("BENCH_TRACED"):
    from traced import trace_app

    trace_app(app, traced)


@app.job(name="bench.noop", queue="bench_load")
def noop(number: int) -> None:
    """Nothing."""


@app.job(name="bench.once", queue="bench_load", key="number", once=True, once_for=3600)
def once(number: int) -> None:
    """Nothing, once for each number."""


@app.job(name="bench.unique", queue="bench_load", key="number", unique="until_success")
def unique(number: int) -> None:
    """Nothing, for each number one at a time."""


@app.job(name="bench.queued", queue="bench_load", key="number", unique="queued")
def queued(number: int) -> None:
    """Nothing, for each number one that waits."""


@app.job(name="bench.running", queue="bench_load", key="number", unique="running")
def running(number: int) -> None:
    """Nothing, for each number one that runs."""


@app.job(name="bench.newest", queue="bench_load", key="number", unique=("queued", "running"))
def newest(number: int) -> None:
    """Nothing, for each number one that waits and one that runs."""


@app.job(name="bench.refuse", queue="bench_load")
def refuse(number: int) -> None:
    """One in twenty says no."""
    if number % 20 == 0:
        raise Failure(f"reason {number % 7}")


@app.ordered(name="bench.changes", queue="bench_ordered")
def changes(claim: dict[str, list[object]]) -> None:
    """Nothing."""


@app.ordered(name="bench.tell_id", queue="bench_tell_id")
def tell_id(claim: dict[str, list[int]]) -> None:
    """Write when each payload, a number, was started."""
    for numbers in claim.values():
        for number in numbers:
            if board is not None:
                board.write(number)


@app.job(name="bench.tell", queue=QUEUES[0])
def tell(number: int, sleep: float = 0.0) -> None:
    """Write when this job started on the bench's board, then hold the slot for ``sleep`` seconds."""
    if board is not None:
        board.write(number)
    if sleep:
        time.sleep(sleep)


@app.job(name="bench.hold", queue="bench_hold")
def hold(number: int, seconds: float) -> None:
    """Hold the slot; write when this job started at place ``number`` of the board, its end at the place after it."""
    if board is not None:
        board.write(number)
        time.sleep(seconds)
        board.write(number + 1)
