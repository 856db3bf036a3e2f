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

from henchman.bench.jobs import hold
from henchman.bench.measures import Ground
from henchman.bench.report import percentile
from henchman.bench.server import wait_for
from henchman.bench.stamps import Stamps
from henchman.bench.worker import worker

SLOTS = (1, 4, 10)
LOADS = (0.1, 0.5, 0.8)
LENGTHS = (0.001, 0.008, 0.030)  # seconds
LATE = 0.020  # seconds: a job that waits so much longer than in the simulation is late
BURST = 30  # jobs a slot that tell how long a run really takes
MOST = 20_000  # jobs in a case
SECONDS = 1.5  # of a case
FIRST = 100_000  # place among the stamps


def simulated(arrivals: Iterable[float], runs: Iterable[float], servers: int) -> list[float]:
    """The waits (seconds) of jobs that ``servers`` serve in the order of their arrival, each for its time."""
    free = [0.0] * servers
    waits = []
    for arrival, run in zip(arrivals, runs, strict=True):
        start = max(arrival, free[0])
        heapq.heapreplace(free, start + run)
        waits.append(start - arrival)
    return waits


def learnt(stamps: Stamps, slots: int, length: float) -> float:
    """Seconds that a job of ``length`` holds its slot in this worker while all slots are busy."""
    places = range(FIRST, FIRST + 2 * BURST * slots)
    stamps.clear(places)
    hold.enqueue_many((number, length) for number in places[::2])
    wait_for("the jobs", lambda: stamps.all_written(places))
    return statistics.fmean(run_times(stamps, places))


def run_times(stamps: Stamps, places: range) -> list[float]:
    """Seconds from start to end of the jobs at every second of ``places``."""
    return [(stamps.monotonic(number + 1) - stamps.monotonic(number)) / 1e9 for number in places[::2]]


def one_case(stamps: Stamps, slots: int, load: float, length: float, seconds: float) -> Sequence[float]:
    """Seconds that each job of a case waited longer than in the simulation."""
    rate = load * slots / learnt(stamps, slots, length)
    count = max(min(int(rate * seconds), MOST), 5)
    places = range(FIRST, FIRST + 2 * count)
    stamps.clear(places)
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
    wait_for("the jobs", lambda: stamps.all_written(places))
    starts = [stamps.monotonic(number) / 1e9 for number in places[::2]]
    waits = simulated(arrivals, run_times(stamps, places), slots)
    return [start - arrival - wait for start, arrival, wait in zip(starts, arrivals, waits, strict=True)]


def measure_busy(ground: Ground) -> None:
    """Every case; the bar is one late job in a thousand (in a small case: one)."""
    late_in_all = jobs_in_all = 0
    for slots in SLOTS:
        with worker(ground.server, "-q", "bench_hold", concurrency=slots):
            for length, load in product(LENGTHS, LOADS):
                more = one_case(ground.stamps, slots, load, length, SECONDS * ground.scale)
                late = sum(one > LATE for one in more)
                late_in_all, jobs_in_all = late_in_all + late, jobs_in_all + len(more)
                name = f"{slots} slots, {length * 1000:g} ms jobs, {load:.0%} load"
                key = f"busy_{slots}_{length * 1000:g}_{load * 100:g}"
                ground.report.add(
                    key, f"{name}: longer than the simulation, 99 of 100", percentile(more, 0.99) * 1000, "ms"
                )
    what = "jobs that waited 20 ms longer than in the simulation"
    ground.report.add("late", what, late_in_all / jobs_in_all, most=max(0.001, 1 / jobs_in_all))
