"""Measures of the long form: a drain of each kind of job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from henchman.bench.jobs import (
    LOAD,
    app,
    await_job,
    changes,
    compute,
    fail_once,
    newest,
    noop,
    once,
    queued,
    running,
    sleep,
    tell_id,
    text,
    unique,
)
from henchman.bench.measures import Ground, Measure, pushed_and_drained
from henchman.bench.report import percentile
from henchman.bench.server import LIMIT, BenchError, wait_for
from henchman.bench.worker import Drain, drain, pause, release, worker

__all__ = ["KINDS"]

CORES = os.cpu_count() or 1
SLOTS = 10
ORDERED = "bench_ordered"
KEYED = (
    ("once", once),
    ("until_success", unique),
    ("queued", queued),
    ("running", running),
    ("queued_running", newest),
)
TRACKED = 150_000  # jobs: some 250 looks at the status of their batch, of which 99 of 100 are told
PAYLOADS = (("100 B", 100, 20_000), ("10 KB", 10_000, 5_000), ("1 MB", 1_000_000, 100))


def measure_sleep(ground: Ground) -> None:
    """Jobs that wait 1 ms: ten slots could end 10,000 a second."""
    _against_ideal(ground, "sleep", sleep, 0.001, ground.count(10_000), SLOTS, SLOTS / 0.001)


def measure_compute(ground: Ground) -> None:
    """Jobs that use a core for 10 ms, on as many processes as there are cores."""
    count = ground.count(150 * CORES)
    _against_ideal(ground, "compute", compute, 0.010, count, SLOTS, CORES / 0.010, processes=CORES)


def measure_async(ground: Ground) -> None:
    """Coroutines that wait 100 ms: a hundred slots could end 1,000 a second."""
    _against_ideal(ground, "async", await_job, 0.1, ground.count(2_000), 100, 100 / 0.1)


def _against_ideal(
    ground: Ground, key: str, job: object, seconds: float, count: int, slots: int, ideal: float, processes: int = 1
) -> None:
    job.enqueue_many([(seconds,)] * count)  # type: ignore[attr-defined]
    found = drain(ground.server, ground.raw, LOAD, count, concurrency=slots, processes=processes)
    where = f"{processes} × {slots} slots" if processes > 1 else f"{slots} slots"
    ground.report.add(key, f"a worker with {where}", found.rate, "jobs/s")
    ground.report.add(f"{key}_share", "… of what these slots could do", found.rate / ideal)


def measure_retries(ground: Ground) -> None:
    """Jobs that raise in their first run: how fast they fail, and how soon all have run again."""
    made, raw, count = ground.server, ground.raw, ground.count(5_000)
    fail_once.enqueue_many((number,) for number in range(count))
    pause(made, raw, LOAD)
    with worker(made, "--log-level", "error"):
        done, rate = release(made, raw, LOAD, count)
        failed = time.monotonic()
        wait_for("the second runs", lambda: raw.number("GET", made.keys.stat_processed) >= 2 * count, LIMIT, 0.005)
        again = time.monotonic() - failed
    if raw.number("ZCARD", made.keys.retry) or raw.number("ZCARD", made.keys.dead) or done < count:
        raise BenchError("jobs are left in the retry or in the dead set")
    ground.report.add("raise", "runs that raise, and go into the retry set", rate, "jobs/s")
    ground.report.add("retried", f"all {count:,} have run again, due after 1 s", again, "s")


def measure_ordered(ground: Ground) -> None:
    """Ids with one payload each, beside plain jobs: drain, the server's memory, push to start."""
    made, raw, add, count = ground.server, ground.raw, ground.report.add, ground.count(60_000)
    noop.enqueue_many((number,) for number in range(count))
    plain = drain(made, raw, LOAD, count)
    made.clear(raw)
    before = int(raw.info("memory")["used_memory"])
    changes.push_many((f"entity-{number:06d}", "x" * 198, number) for number in range(count))
    waiting = (int(raw.info("memory")["used_memory"]) - before) / count
    found = drain(made, raw, ORDERED, count)
    if raw.ask("KEYS", f"{made.keys.prefix}hm:held:*"):
        raise BenchError("something is still held")
    add("ordered", "distinct ids, one payload a claim", found.rate, "ids/s", least=45_000)
    add("ordered_ratio", "… beside plain jobs", found.rate / plain.rate)
    _costs(ground, "ordered", "an id", found)
    add("ordered_memory", "the server's memory of a waiting id, 200-byte payload", waiting, "bytes", most=450)
    taken = _ordered_start(ground)
    add("ordered_p50", "push to start, idle worker, median", percentile(taken, 0.5), "ms", most=1)
    add("ordered_p99", "…, 99 of 100", percentile(taken, 0.99), "ms")


def _costs(ground: Ground, key: str, one: str, found: Drain) -> None:
    ground.report.add(f"{key}_worker", f"the worker's processor time {one}", found.worker_us, "µs")
    ground.report.add(f"{key}_server", f"the server's processor time {one}", found.server_us, "µs")


def _ordered_start(ground: Ground) -> list[float]:
    """Milliseconds from the push to the first line of the handler, one at a time in a worker that idles."""
    stamps, count, taken = ground.stamps, ground.count(200), []
    stamps.clear(range(1, count + 1))
    with worker(ground.server, "-q", "bench_ready", "-q", "bench_tell_id"):
        for number in range(1, count + 1):
            time.sleep(0.008)
            before = time.monotonic_ns()
            tell_id.push(number, number)
            wait_for(f"payload {number}", lambda number=number: stamps.monotonic(number) > 0, LIMIT, 0.0002)  # type: ignore[misc]
            taken.append((stamps.monotonic(number) - before) / 1e6)
    return taken


def measure_tracked(ground: Ground) -> None:
    """One batch whose history goes into SQLite, beside the same jobs untracked."""
    made, raw, add, count = ground.server, ground.raw, ground.report.add, ground.count(TRACKED)
    noop.enqueue_many((number,) for number in range(count))
    plain = drain(made, raw, LOAD, count)
    made.clear(raw)
    pause(made, raw, LOAD)
    database = made.folder / f"{time.monotonic_ns()}.sqlite"
    os.environ["HENCHMAN_DATABASE_URL"] = f"sqlite:///{database}"
    raw.ask("SET", made.keys.history_on, f"strict {2**28}")
    try:
        with app.batch("bench") as batch:
            noop.enqueue_many((number,) for number in range(count))
        with worker(made):
            rate, looks = _watched(ground, batch.id, count)
            ended = time.monotonic()
            wait_for("the record", lambda: raw.number("XLEN", made.keys.history) == 0, LIMIT)
            behind = time.monotonic() - ended
        status = app.batch_status(batch.id)
    finally:
        del os.environ["HENCHMAN_DATABASE_URL"]
    if (status.done, status.counts["finished"]) != (count, count):
        raise BenchError(f"the batch is not done: {status}")
    add("tracked", "members of a batch, with history", rate, "jobs/s", least=35_000)
    add("tracked_ratio", "… beside untracked ones", rate / plain.rate)
    add("tracked_behind", "the record is complete after the last job's end", behind, "s")
    add("status_p50", "batch_status while it drains, median", percentile(looks, 0.5) * 1000, "ms")
    add("status_p99", "…, 99 of 100", percentile(looks, 0.99) * 1000, "ms", most=5)


def _watched(ground: Ground, batch: str, count: int) -> tuple[float, list[float]]:
    """(jobs a second from the first that is counted to the last, seconds of each look at the batch's status)."""
    made, raw, looks = ground.server, ground.raw, []
    raw.ask("SREM", made.keys.paused, LOAD)
    raw.ask("PUBLISH", made.keys.control_all, f"unpause {LOAD}")
    since = time.monotonic()
    first = last = 0
    while last < count:
        time.sleep(0.01)
        began = time.monotonic()
        app.batch_status(batch)
        ended = time.monotonic()
        looks.append(ended - began)
        last = raw.number("GET", made.keys.stat_processed)
        if not first and last:
            first, since = last % count, ended
        if ended - since > LIMIT:
            raise BenchError(f"{last} of {count} jobs ran within {LIMIT:g} s")
    return (last - first) / (time.monotonic() - since), looks


def measure_keyed(ground: Ground) -> None:
    """Jobs with a key, pushed and drained beside jobs without one."""
    made, raw, add, count = ground.server, ground.raw, ground.report.add, ground.count(20_000)
    plain = pushed_and_drained(ground, noop, count)
    for name, job in KEYED:
        push, found = pushed_and_drained(ground, job, count)
        add(f"bulk_{name}", f"enqueue_many, {name}", push, "jobs/s")
        add(f"drain_{name}", f"a worker, {name}", found.rate, "jobs/s")
        add(f"drain_{name}_ratio", f"… beside jobs without a key, {name}", found.rate / plain[1].rate)
        if made.own:
            add(f"drain_{name}_server", f"the server's processor time a job, {name}", found.server_us, "µs")
    made.clear(raw)


def measure_payloads(ground: Ground) -> None:
    """Arguments of three sizes: pushed, and drained."""
    for name, size, most in PAYLOADS:
        count, value = ground.count(most), "x" * size
        push: Callable[[str], object] = text.enqueue
        ground.server.clear(ground.raw)
        began = time.perf_counter()
        for _ in range(count):
            push(value)
        rate = count / (time.perf_counter() - began)
        found = drain(ground.server, ground.raw, LOAD, count)
        key = name.replace(" ", "").lower()
        ground.report.add(f"push_{key}", f"enqueue, {name}", rate, "jobs/s")
        ground.report.add(f"drain_{key}", f"a worker, {name}", found.rate, "jobs/s")
        ground.report.add(f"drain_{key}_mb", f"… that is, {name}", found.rate * size / 1e6, "MB/s")


KINDS = (
    Measure("sleep", "Jobs that wait 1 ms", measure_sleep),
    Measure("compute", "Jobs that compute for 10 ms", measure_compute),
    Measure("async", "Coroutines that wait 100 ms", measure_async),
    Measure("retries", "Retries", measure_retries),
    Measure("ordered", "Ordered queues", measure_ordered),
    Measure("tracked", "Tracked jobs", measure_tracked),
    Measure("keyed", "Jobs with a key", measure_keyed),
    Measure("payloads", "Sizes of arguments", measure_payloads),
)
