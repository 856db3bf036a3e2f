"""The bare loop: one thread, a socket, hiredis, msgspec. Fetch by script, read JSON, call, settle by script.

It runs the very scripts of the product (fetch.lua, settle.lua), 100 jobs at a time, and does nothing else: no threads,
no middleware, no time-outs, no heartbeat, no waiting for work. What a worker adds is measured against it by load.py.
"""

from __future__ import annotations

import datetime as dt
import sys
import time

import msgspec
from jobs import noop
from server import Figures, Raw, arguments, median, pack, server

from henchman.store import jobs, leases
from henchman.store.call import load
from henchman.store.keys import Keys

BATCH = 100
LEASE_MS = 30_000
IDENTITY = "bare:1:000000000000"

__all__ = ["drain", "fill"]


def fill(raw: Raw, count: int) -> None:
    """``count`` no-op jobs on an otherwise empty server, pushed with the product's own bulk push."""
    raw.ask("FLUSHALL")
    pushed = noop.enqueue_many((number,) for number in range(count))
    assert pushed.created == count, pushed


def drain(raw: Raw, count: int) -> float:
    """Jobs a second: run ``count`` jobs from the queue, from the first fetch to the last settlement."""
    keys = Keys()
    queue = noop.options.queue
    flight = keys.in_flight(IDENTITY, 1, queue)
    registry = {noop.name: noop.function}
    decode = msgspec.json.Decoder().decode
    for script in ("fetch", "settle", "join"):
        raw.ask("SCRIPT", "LOAD", load(script).text)
    raw.ask(*leases.join(keys, IDENTITY, [flight], LEASE_MS).parts[0])
    fetch = pack(*jobs.fetch(keys, IDENTITY, [(queue, keys.queue(queue), flight, 0)], BATCH, LEASE_MS).parts[0])
    day = dt.datetime.now(dt.UTC).date().isoformat()
    # all that goes before the units: script, keys, limits
    settle = jobs.settle(
        keys,
        IDENTITY,
        [(flight, keys.queue(queue))],
        (),
        lease_ms=LEASE_MS,
        day=day,
        dead_max=10_000,
        dead_timeout=15_552_000.0,
    ).parts[0][:-2]
    done = 0
    started = time.monotonic()
    while done < count:
        raw.socket.sendall(fetch)
        payloads = raw.read()[1]
        settlement = [*settle, len(payloads), 1]  # and one pair of in-flight list and queue
        for payload in payloads:
            job = decode(payload)
            registry[job["class"]](*job["args"])
            settlement += (1, payload, "done", b"", 0, b"")
        statuses = raw.ask(*settlement)
        assert statuses.count(1) == len(payloads) > 0, f"after {done} jobs the queue gave {len(payloads)}"
        done += len(payloads)
    return count / (time.monotonic() - started)


def main() -> int:
    """Drain a few times and print the median."""
    parser = arguments("The bare loop that load.py measures a worker against.")
    parser.add_argument("--jobs", type=int, default=200_000, help="no-op jobs in a run")
    parser.add_argument("--runs", type=int, default=3, help="runs")
    options = parser.parse_args()
    with server() as made:
        raw = made.connect()
        figures = Figures("bare", raw)
        rates = []
        for _ in range(options.runs):
            fill(raw, options.jobs)
            rates.append(drain(raw, options.jobs))
        figures.note("rates", [round(rate) for rate in rates])
        figures.add("rate", f"bare loop, median of {options.runs}", median(rates), "jobs/s")
        return figures.finish(options)


if __name__ == "__main__":
    sys.exit(main())
