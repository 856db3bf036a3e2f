"""The jobs that the benches push, under names that do not depend on how this file is imported."""

from __future__ import annotations

import time

from board import Board

from henchman import App

app = App()
QUEUES = ("bench_a", "bench_b", "bench_c", "bench_d")
board = Board.of_environment()


@app.job(name="bench.noop", queue="bench_load")
def noop(number: int) -> None:
    """Nothing."""


@app.job(name="bench.tell", queue=QUEUES[0])
def tell(number: int, sleep: float = 0.0) -> None:
    """Write when this job started on the bench's board, then hold the slot for ``sleep`` seconds."""
    if board is not None:
        board.write(number)
    if sleep:
        time.sleep(sleep)
