"""The measures that ``henchman bench`` takes, and that the long form takes too.

A measure is a function that takes a ``Ground`` and adds figures to its report. Measures are repeated in turns, so that
what slows the machine for a while slows every one of them in one of its runs, and no one in all.
"""

from __future__ import annotations

import datetime as dt
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from henchman.bench.bare import drain_bare, fill, push_bare
from henchman.bench.jobs import LOAD, QUEUES, noop, roomy, tell, tight
from henchman.bench.report import Report, percentile
from henchman.bench.server import LIMIT, BenchError, Raw, Server, pack, wait_for
from henchman.bench.stamps import Stamps
from henchman.bench.worker import Drain, drain, worker

__all__ = [
    "MEASURES",
    "Ground",
    "Measure",
    "ping",
    "push_costs",
    "pushed",
    "pushed_and_drained",
    "run_measures",
    "waits",
]

MS = 1e-6  # of nanoseconds
PIECES, BULK = 10, 10  # pieces of the pushes; jobs pushed in bulk for one pushed alone
LIMITED = (("roomy", "a limit with room", roomy), ("tight", "a limit of 10 that is full", tight))
_IMPORT = "import time; t = time.perf_counter(); import henchman; print(time.perf_counter() - t)"


class Ground(NamedTuple):
    """What a measure stands on. ``scale``: 1 for the sizes of the short form; tests take less, the long form more."""

    server: Server
    raw: Raw
    report: Report
    stamps: Stamps
    scale: float = 1.0

    def count(self, number: int) -> int:
        """So many, at this scale."""
        return max(10, int(number * self.scale))


class Measure(NamedTuple):
    """One measure: its name on the command line, its title in the report. ``once``: too long to be repeated."""

    name: str
    title: str
    take: Callable[[Ground], None]
    once: bool = False


def run_measures(ground: Ground, measures: Iterable[Measure], runs: int, say: Callable[[str], None]) -> None:
    """Take each measure ``runs`` times, in turns."""
    chosen = list(measures)
    for turn in range(runs):
        for measure in chosen:
            if turn and measure.once:
                continue
            say(f"run {turn + 1} of {runs}: {measure.title}")
            ground.report.section = measure.title
            ground.server.clear(ground.raw)
            measure.take(ground)
    ground.server.clear(ground.raw)


# ---- drain


def measure_drain(ground: Ground) -> None:
    """No-op jobs: the two bare loops, and a worker process with 10 slots."""
    made, raw, add = ground.server, ground.raw, ground.report.add
    count = ground.count(100_000)
    rates = {}
    for settling in ("rows", "runs"):
        fill(made, raw, count)
        began = time.monotonic()
        drain_bare(made, raw, count, settling)
        rates[settling] = count / (time.monotonic() - began)
        add(f"bare_{settling}", f"a bare loop that settles {settling}", rates[settling], "jobs/s")
    fill(made, raw, count)
    ours = drain(made, raw, LOAD, count)
    add("drain", "a worker process with 10 slots", ours.rate, "jobs/s")
    add("drain_rows_ratio", "… beside the loop that settles rows", ours.rate / rates["rows"])
    add("drain_ratio", "… beside the loop that settles runs", ours.rate / rates["runs"], least=0.45)
    if ours.worker_us:
        add("drain_worker", "the worker's processor time a job", ours.worker_us, "µs", most=5)
    if made.own:
        add("drain_server", "the server's processor time a job", ours.server_us, "µs", most=1.3)
    if ours.end_mb:
        add("memory_end", "memory of the worker process after the drain", ours.end_mb, "MB", most=45)


# ---- jobs with limits


def pushed_and_drained(ground: Ground, job: object, count: int) -> tuple[float, Drain]:
    """``count`` jobs: how many a second went in by ``enqueue_many``, and their drain by a worker process."""
    ground.server.clear(ground.raw)
    began = time.perf_counter()
    job.enqueue_many((number,) for number in range(count))  # type: ignore[attr-defined]
    rate = count / (time.perf_counter() - began)
    return rate, drain(ground.server, ground.raw, LOAD, count)


def measure_limited(ground: Ground) -> None:
    """Jobs under a limit, which has room or is full, drained beside jobs without one."""
    add, count = ground.report.add, ground.count(20_000)
    plain = pushed_and_drained(ground, noop, count)[1]
    for name, words, job in LIMITED:
        found = pushed_and_drained(ground, job, count)[1]
        add(f"drain_{name}", f"a worker, {words}", found.rate, "jobs/s")
        add(f"drain_{name}_ratio", f"… beside jobs without a limit, {words}", found.rate / plain.rate)
        if found.worker_us:
            add(f"drain_{name}_worker", f"the worker's processor time a job, {words}", found.worker_us, "µs")
        if ground.server.own:
            add(f"drain_{name}_server", f"the server's processor time a job, {words}", found.server_us, "µs")
    ground.server.clear(ground.raw)


# ---- pushing


def pushed(count: int) -> float:
    """Jobs a second, pushed one by one."""
    push = noop.enqueue
    began = time.perf_counter()
    for number in range(count):
        push(number)
    return count / (time.perf_counter() - began)


def push_costs(ground: Ground, count: int, clock: Callable[[], float]) -> tuple[float, float, float]:
    """What a push takes by ``clock``: by a bare socket, by ``enqueue``, in bulk. Short pieces of each alternate."""
    piece, bare, ours, bulk = max(1, count // PIECES), 0.0, 0.0, 0.0
    push_bare(ground.server, ground.raw, 1)
    for _ in range(PIECES):
        at = [clock()]
        push_bare(ground.server, ground.raw, piece)
        at.append(clock())
        pushed(piece)
        at.append(clock())
        noop.enqueue_many((number,) for number in range(BULK * piece))
        at.append(clock())
        ground.server.clear(ground.raw)
        bare, ours, bulk = bare + at[1] - at[0], ours + at[2] - at[1], bulk + at[3] - at[2]
    return bare / (PIECES * piece), ours / (PIECES * piece), bulk / (PIECES * piece * BULK)


def measure_pushes(ground: Ground) -> None:
    """One by one, by a bare socket, and in bulk."""
    add = ground.report.add
    bare, ours, bulk = push_costs(ground, ground.count(20_000), time.perf_counter)
    add("push_bare", "a bare socket: SADD and LPUSH in one write", 1 / bare, "jobs/s")
    add("push", "enqueue, one by one", 1 / ours, "jobs/s")
    add("push_ratio", "… beside the bare socket", bare / ours, least=1)
    add("bulk", "enqueue_many", 1 / bulk, "jobs/s", least=800_000)


# ---- how soon


def waits(stamps: Stamps, first: int, count: int, push: Callable[[int], Any]) -> list[float]:
    """Milliseconds from push to start of one job at a time, each on an idle receiver."""
    chance = random.Random(first)  # noqa: S311 - moments, not secrets
    taken = []
    stamps.clear(range(first, first + count))
    for number in range(first, first + count):
        time.sleep(chance.uniform(0.004, 0.012))  # jobs that come now and then are what is measured
        before = time.monotonic_ns()
        push(number)
        while not stamps.monotonic(number):
            if time.monotonic_ns() - before > LIMIT * 1e9:
                raise BenchError(f"job {number} has not started within {LIMIT:g} s")
            time.sleep(0.0002)
        taken.append((stamps.monotonic(number) - before) * MS)
    return taken


def pong(url: str, waiting: str, seen: str) -> None:
    """The other end of the ping-pong, a process of its own: wait in BLMOVE, note the time, and again."""
    raw, stamps = Raw(url), Stamps.of_environment()
    wait = pack("BLMOVE", waiting, seen, "RIGHT", "LEFT", 0)
    raw.socket.settimeout(None)
    while stamps is not None:
        raw.socket.sendall(wait)
        number = int(raw.read())
        if number < 0:
            return
        stamps.write(number)


@contextmanager
def ping(made: Server, raw: Raw, stamps: Stamps) -> Iterator[Callable[[int], Any]]:
    """A push to a process that waits in BLMOVE."""
    names = made.keys.prefix + "bench:ping", made.keys.prefix + "bench:ping:seen"
    code = f"from henchman.bench.measures import pong; pong({made.url!r}, *{names!r})"
    stamps.clear(range(1))
    with subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE, cwd=made.folder) as other:
        assert other.stdin is not None  # noqa: S101 - for mypy
        other.stdin.write(code.encode())  # not an argument: the URL may have a password
        other.stdin.close()
        try:
            raw.ask("LPUSH", names[0], 0)
            wait_for("the ping-pong", lambda: stamps.monotonic(0) > 0)
            yield lambda number: raw.ask("LPUSH", names[0], number)
        finally:
            raw.ask("LPUSH", names[0], -1)
            other.wait(LIMIT)


def measure_latency(ground: Ground) -> None:
    """Push to start on an idle worker with four queues, and the ping-pong."""
    made, stamps, add = ground.server, ground.stamps, ground.report.add
    pushes = [tell.using(queue=name).enqueue for name in QUEUES]
    share = 10  # of each in turn: within minutes a machine becomes faster and slower
    bare: list[float] = []
    ours: list[float] = []
    with worker(made, *on_queues()), ping(made, ground.raw, stamps) as bare_push:
        for turn in range(ground.count(20)):
            first = 1 + turn * 2 * share
            bare += waits(stamps, first, share, bare_push)
            ours += waits(stamps, first + share, share, lambda number: pushes[number % len(pushes)](number))
    add("ping_p50", "a bare LPUSH to a process in BLMOVE, median", percentile(bare, 0.5), "ms")
    add("ping_p99", "…, 99 of 100", percentile(bare, 0.99), "ms")
    add("idle_p50", "push to start, idle worker, 4 queues, median", percentile(ours, 0.5), "ms")
    add("idle_p99", "…, 99 of 100", percentile(ours, 0.99), "ms", most=2)
    add("idle_ratio", "median beside the bare one's", percentile(ours, 0.5) / percentile(bare, 0.5), most=2)


def on_queues() -> list[str]:
    """The options of a worker on the four queues."""
    return [word for name in QUEUES for word in ("-q", name)]


def measure_scheduled(ground: Ground) -> None:
    """Jobs that are due 1 to 3 s after the push: how late each starts."""
    stamps, add, count = ground.stamps, ground.report.add, ground.count(200)
    chance, first = random.Random(2), 1  # noqa: S311 - moments
    stamps.clear(range(first, first + count))
    due = {}
    with worker(ground.server, *on_queues()):
        for number in range(first, first + count):
            at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=chance.uniform(1, 3))
            tell.using(at=at, queue=chance.choice(QUEUES)).enqueue(number)
            due[number] = at.timestamp()
        wait_for("the jobs", lambda: stamps.all_written(range(first, first + count)))
    late = [stamps.wall(number) / 1e6 - at * 1000 for number, at in due.items()]
    add("due_p50", "a scheduled job is late by, median", percentile(late, 0.5), "ms")
    add("due_p99", "…, 99 of 100", percentile(late, 0.99), "ms", most=20)
    add("due_first", "… the earliest (must not be negative)", min(late), "ms")


# ---- memory and start


def measure_start(ground: Ground) -> None:
    """Import, start until the first job has run, memory."""
    add = ground.report.add
    answer = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, check=True, timeout=60)  # noqa: S603
    add("import", "import henchman", float(answer.stdout) * 1000, "ms", most=90)
    with worker(ground.server) as begun:
        add("command_ready", "the command, until its first job has run", begun.ready_after, "s")
        add("process_ready", "… the worker process alone", begun.child_ready_after, "s", most=0.5)
        if begun.rss():
            add("memory", "memory of the worker process, ready", begun.rss(), "MB", most=42)


#: what ``henchman bench`` takes, and the long form too
MEASURES = (
    Measure("drain", "Drain: jobs that do nothing", measure_drain),
    Measure("limited", "Jobs with limits", measure_limited),
    Measure("push", "Pushing", measure_pushes),
    Measure("latency", "Push to start, idle worker", measure_latency),
    Measure("scheduled", "Scheduled jobs", measure_scheduled),
    Measure("start", "Start and memory", measure_start),
)
