"""The jobs that benches push."""

from __future__ import annotations

import asyncio
import time

from henchman import App, Concurrent, Failure, current_job
from henchman.bench.stamps import Stamps

app = App()
QUEUES = ("bench_a", "bench_b", "bench_c", "bench_d")
LOAD = "bench_load"  # the queue that is drained
stamps = Stamps.of_environment()


@app.job(name="bench.ready", queue="bench_ready")
def ready() -> None:
    """The worker runs jobs."""


@app.job(name="bench.noop", queue=LOAD)
def noop(number: int) -> None:
    """Nothing."""


@app.job(name="bench.each", queue=LOAD, ack="each")
def each(number: int) -> None:
    """Nothing, and settled alone."""


@app.job(name="bench.text", queue=LOAD)
def text(value: str) -> None:
    """Take a text, and do nothing."""


@app.job(name="bench.pause", queue=LOAD)
def sleep(seconds: float) -> None:
    """Wait, as for a database."""
    time.sleep(seconds)


@app.job(name="bench.await", queue=LOAD)
async def await_job(seconds: float) -> None:
    """Wait, as for a network."""
    await asyncio.sleep(seconds)


@app.job(name="bench.compute", queue=LOAD)
def compute(seconds: float) -> None:
    """Use the processor for so long."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@app.job(name="bench.fail_once", queue=LOAD, retry=3, retry_in=1)
def fail_once(number: int) -> None:
    """Raise in the first run."""
    if current_job().attempt == 1:
        raise RuntimeError("the first run fails")


@app.job(name="bench.once", queue=LOAD, key="number", once=True, once_for=3600)
def once(number: int) -> None:
    """Nothing, once for each number."""


@app.job(name="bench.unique", queue=LOAD, key="number", unique="until_success")
def unique(number: int) -> None:
    """Nothing, for each number one at a time."""


@app.job(name="bench.queued", queue=LOAD, key="number", unique="queued")
def queued(number: int) -> None:
    """Nothing, for each number one that waits."""


@app.job(name="bench.running", queue=LOAD, key="number", unique="running")
def running(number: int) -> None:
    """Nothing, for each number one that runs."""


@app.job(name="bench.newest", queue=LOAD, key="number", unique=("queued", "running"))
def newest(number: int) -> None:
    """Nothing, for each number one that waits and one that runs."""


@app.job(name="bench.roomy", queue=LOAD, limits=[Concurrent("bench_roomy", 100_000)])
def roomy(number: int) -> None:
    """Nothing, under a limit that has room for all."""


@app.job(name="bench.tight", queue=LOAD, limits=[Concurrent("bench_tight", 10)])
def tight(number: int) -> None:
    """Nothing, under a limit that is full as long as jobs wait."""


@app.job(name="bench.refuse", queue=LOAD)
def refuse(number: int) -> None:
    """One in twenty says no."""
    if number % 20 == 0:
        raise Failure(f"reason {number % 7}")


@app.ordered(name="bench.changes", queue="bench_ordered")
def changes(claim: dict[str, list[object]]) -> None:
    """Nothing."""


@app.ordered(name="bench.tell_id", queue="bench_tell_id")
def tell_id(claim: dict[str, list[int]]) -> None:
    """Note when each payload, a number, was started."""
    for numbers in claim.values():
        for number in numbers:
            if stamps is not None:
                stamps.write(number)


@app.job(name="bench.tell", queue=QUEUES[0])
def tell(number: int, sleep: float = 0.0) -> None:
    """Note when this job started, then hold the slot for ``sleep`` seconds."""
    if stamps is not None:
        stamps.write(number)
    if sleep:
        time.sleep(sleep)


@app.job(name="bench.hold", queue="bench_hold")
def hold(number: int, seconds: float) -> None:
    """Hold the slot; note when this job started at place ``number``, its end at the place after it."""
    if stamps is not None:
        stamps.write(number)
        time.sleep(seconds)
        stamps.write(number + 1)
