"""What a contract costs: jobs with a key beside jobs without one, pushed one by one and in bulk, and remembered.

All sides take turns on one server. The time that the server takes is its own count of it (commandstats). What a drain
of them costs is a measure of the long form (run.py --only keyed).
"""

from __future__ import annotations

import datetime as dt
import sys
import time
from statistics import median
from typing import Any

from options import arguments

from henchman.bench.jobs import noop, once, unique
from henchman.bench.report import Report
from henchman.bench.server import Raw, server
from henchman.store import jobs, leases
from henchman.store.call import Call, load
from henchman.store.keys import Keys
from henchman.work.effects import of_payload

PUSHED = {"plain": noop, "until_success": unique, "once": once}
KEYED = ("until_success", "once")
QUEUE = "bench_load"
IDENTITY = "memory:1:000000000000"


def one_by_one(job: Any, count: int) -> float:
    """Pushes a second."""
    push = job.enqueue
    started = time.perf_counter()
    for number in range(count):
        push(number)
    return count / (time.perf_counter() - started)


def in_bulk(job: Any, count: int) -> float:
    """Pushes a second, with ``enqueue_many``."""
    started = time.perf_counter()
    pushed = job.enqueue_many((number,) for number in range(count))
    taken = time.perf_counter() - started
    assert pushed.count == count
    return count / taken


def server_time(raw: Raw) -> dict[str, float]:
    """Microseconds that the server has spent on each command so far."""
    stats = raw.info("commandstats").items()
    return {name: float(one.split("usec=")[1].split(",")[0]) for name, one in stats if "usec=" in one}


def since(before: dict[str, float], raw: Raw) -> float:
    """Microseconds that the server has spent since ``before``. What a script calls is in the time of the script too,
    and under its own name besides: where scripts ran, theirs is all.
    """
    spent = {name: time_of - before.get(name, 0) for name, time_of in server_time(raw).items()}
    return spent.get("cmdstat_evalsha") or sum(spent.values())


def measure_pushes(figures: Report, raw: Raw, runs: int, count: int, bulk: int) -> None:
    """One by one, in bulk, and once more the same keys: duplicates."""
    single: dict[str, list[float]] = {name: [] for name in PUSHED}
    ratios: dict[str, list[float]] = {name: [] for name in KEYED}
    many: dict[str, list[float]] = {name: [] for name in PUSHED}
    again: dict[str, list[float]] = {name: [] for name in KEYED}
    spent: dict[str, list[float]] = {name: [] for name in PUSHED}
    for _ in range(runs):
        for name, job in PUSHED.items():
            raw.ask("FLUSHALL", "SYNC")
            single[name].append(one_by_one(job, count))
            raw.ask("FLUSHALL", "SYNC")
            before = server_time(raw)
            many[name].append(in_bulk(job, bulk))
            spent[name].append(since(before, raw) / bulk)
            assert raw.number("LLEN", f"queue:{QUEUE}") == bulk
            if name in KEYED:
                ratios[name].append(single["plain"][-1] / single[name][-1])
                again[name].append(in_bulk(job, bulk))
                assert raw.number("LLEN", f"queue:{QUEUE}") == bulk, "duplicates are not pushed"
    for name in PUSHED:
        figures.add(f"single_{name}", f"enqueue, one by one, {name}", median(single[name]), "jobs/s")
        figures.add(f"bulk_{name}", f"enqueue_many, {name}", median(many[name]), "jobs/s")
        figures.add(f"server_{name}", f"the server's time a row in bulk, {name}", median(spent[name]), "us")
    for name in KEYED:
        figures.add(f"single_{name}_times", f"plain / {name}, one by one", median(ratios[name]), most=1.8)
        figures.add(f"bulk_{name}_times", f"plain / {name}, in bulk", median(many["plain"]) / median(many[name]))
        figures.add(f"duplicates_{name}", f"enqueue_many of duplicates, {name}", median(again[name]), "jobs/s")


def _run(raw: Raw, call: Call[Any]) -> Any:
    replies = [raw.ask(*part) for part in call.parts]
    return call.decode(replies if len(replies) > 1 else replies[0])


def end_all(raw: Raw, count: int) -> None:
    """Fetch and end ``count`` jobs without running them."""
    keys, today = Keys(), dt.datetime.now(dt.UTC).date().isoformat()
    flight, queue = keys.in_flight(IDENTITY, 1, QUEUE), keys.queue(QUEUE)
    for script in ("join", "fetch", "settle"):
        raw.ask("SCRIPT", "LOAD", load(script).text)
    _run(raw, leases.join(keys, IDENTITY, [flight], 600_000))
    done = 0
    while done < count:
        payloads = _run(raw, jobs.fetch(keys, IDENTITY, [(QUEUE, queue, flight, 0)], 500, 600_000)).payloads[0]
        rows = [jobs.Settlement(1, one, "done", effects=of_payload(keys, one, "done")) for one in payloads]
        limits: dict[str, Any] = {"lease_ms": 600_000, "day": today, "dead_max": 9, "dead_timeout": 9.0}
        statuses = _run(raw, jobs.settle(keys, IDENTITY, [(flight, queue)], rows, **limits))
        assert statuses.count(1) == len(rows) > 0
        done += len(rows)


def measure_memory(figures: Report, raw: Raw, counts: list[int]) -> None:
    """What a key takes while it is held, and while it is remembered."""
    for count in counts:
        raw.ask("FLUSHALL", "SYNC")
        in_bulk(unique, count)
        held = raw.number("MEMORY", "USAGE", "hm:lock:u:bench.unique", "SAMPLES", 0) / count
        figures.add(f"lock_{count}", f"a live lock, of {count:,}", held, "bytes", most=130)
        raw.ask("FLUSHALL", "SYNC")
        in_bulk(once, 1000)
        end_all(raw, 1000)
        raw.ask("SCRIPT", "FLUSH")
        raw.ask("FLUSHALL", "SYNC")
        before = int(raw.info("memory")["used_memory"])
        in_bulk(once, count)
        end_all(raw, count)
        rest = [key for key in raw.ask("KEYS", "hm:*") if not key.startswith(b"hm:once:")]
        raw.ask("DEL", *rest, "queues", "stat:processed")
        bar = 55 if count >= 100_000 else 0.0
        took = (int(raw.info("memory")["used_memory"]) - before) / count
        figures.add(f"remembered_{count}", f"a remembered key, of {count:,}", took, "bytes", most=bar)


def main() -> int:
    """All of it."""
    parser = arguments("What a key costs, beside jobs without one in the same run.")
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs one by one in a run")
    parser.add_argument("--bulk", type=int, default=50_000, help="jobs in bulk in a run")
    parser.add_argument("--runs", type=int, default=3, help="runs of each")
    parser.add_argument(
        "--memory", type=int, nargs="*", default=[10_000, 100_000], help="keys whose memory is measured"
    )
    options = parser.parse_args()
    with server() as made:
        raw = made.connect()
        figures = Report("contracts", raw)
        if options.runs:
            measure_pushes(figures, raw, options.runs, options.jobs, options.bulk)
        measure_memory(figures, raw, options.memory)
        return figures.finish(as_json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
