"""How long jobs wait for a worker whose slots are busy now and then, beside a queue that is served without any loss.

Each case pushes jobs of one length at random moments (Poisson) to a worker whose slots they keep busy for a given share
of the time, by the run times that a burst of such jobs had before. The moment of each push, start and end is recorded.
A simulation serves the same arrivals first come, first served, with as many servers and with the recorded run times:
what a job waited longer than there is what the worker adds (round trips, wake-ups, threads, the machine).
"""

from __future__ import annotations

import heapq
import random
import statistics
import time
from collections.abc import Iterable, Sequence
from itertools import product

from board import Board
from jobs import hold
from server import Figures, Raw, percentile, wait_for, worker

SLOTS = (1, 4, 10)
LOADS = (0.1, 0.5, 0.8)
LENGTHS = (0.001, 0.008, 0.030)  # seconds
LATE = 0.020  # seconds: a job that waits so much longer than in the simulation is late
BURST = 30  # jobs a slot that tell how long a run really takes
MOST = 20_000  # jobs in a case
FIRST = 100_000  # place on the board


def simulated(arrivals: Iterable[float], runs: Iterable[float], servers: int) -> list[float]:
    """The waits (seconds) of jobs that ``servers`` serve in the order of their arrival, each for its time."""
    free = [0.0] * servers
    waits = []
    for arrival, run in zip(arrivals, runs, strict=True):
        start = max(arrival, free[0])
        heapq.heapreplace(free, start + run)
        waits.append(start - arrival)
    return waits


def learnt(board: Board, slots: int, length: float) -> float:
    """Seconds that a job of ``length`` holds its slot in this worker while all slots are busy."""
    places = range(FIRST, FIRST + 2 * BURST * slots)
    board.clear(places)
    hold.enqueue_many((number, length) for number in places[::2])
    wait_for("the jobs", lambda: board.all_written(places))
    return statistics.fmean(run_times(board, places))


def run_times(board: Board, places: range) -> list[float]:
    """Seconds from start to end of the jobs at every second of ``places``."""
    return [(board.monotonic(number + 1) - board.monotonic(number)) / 1e9 for number in places[::2]]


def one_case(board: Board, slots: int, load: float, length: float, seconds: float) -> Sequence[float]:
    """Seconds that each job of a case waited longer than in the simulation."""
    rate = load * slots / learnt(board, slots, length)
    count = max(min(int(rate * seconds), MOST), 5)
    places = range(FIRST, FIRST + 2 * count)
    board.clear(places)
    chance = random.Random(f"{slots} {load} {length}")
    arrivals = []
    at = time.monotonic()
    for number in places[::2]:
        at += chance.expovariate(rate)
        ahead = at - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)  # this is what makes the rate
        arrivals.append(time.monotonic())
        hold.enqueue(number, length)
    wait_for("the jobs", lambda: board.all_written(places))
    starts = [board.monotonic(number) / 1e9 for number in places[::2]]
    waits = simulated(arrivals, run_times(board, places), slots)
    return [start - arrival - wait for start, arrival, wait in zip(starts, arrivals, waits, strict=True)]


def measure_busy(figures: Figures, raw: Raw, board: Board, seconds: float) -> None:
    """Every case; the bar is one late job in a thousand (in a small case: one)."""
    late_in_all = jobs_in_all = 0
    for slots in SLOTS:
        with worker(raw, "-q", "bench_hold", concurrency=slots):
            for length, load in product(LENGTHS, LOADS):
                more = one_case(board, slots, load, length, seconds)
                late = sum(one > LATE for one in more)
                late_in_all, jobs_in_all = late_in_all + late, jobs_in_all + len(more)
                name = f"{slots} slots, {length * 1000:g} ms jobs, {load:.0%} load"
                middle, worst = percentile(more, 0.5) * 1000, max(more) * 1000
                print(
                    f"    {name}: {len(more):,} jobs, longer by {middle:.2f} ms (median), {worst:.1f} (most)",
                    flush=True,
                )
                allowed = max(len(more) / 1000, 1) / len(more)
                key = f"late_{slots}_{length * 1000:g}_{load * 100:g}"
                figures.add(key, f"{name}: jobs late", late / len(more), most=allowed)
    figures.add("late", "jobs that waited 20 ms longer than in the simulation", late_in_all / jobs_in_all, most=0.001)
