"""The bare loop: one thread, a socket, hiredis, msgspec. Fetch by script, read JSON, call, settle by script.

It runs the very scripts of the product, 100 jobs at a time, and does nothing else: no threads, no middleware, no
time-outs, no heartbeat, no waiting for work. What a worker adds is measured against it. There are two, for the product
settles in two ways: ``rows`` settles each job by a row of settle.lua (what a job with effects needs), ``runs`` settles
a hundred together by settle_oldest.lua (what plain jobs get). A figure beside a bare loop says beside which.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from henchman.bench.jobs import noop
from henchman.bench.server import BenchError, Raw, Server, pack
from henchman.store import jobs, leases
from henchman.store.call import load

__all__ = ["drain_bare", "fill", "push_bare"]

BATCH = 100
LEASE_MS = 30_000
IDENTITY = "bare:1:000000000000"
_Settle = Callable[[Sequence[bytes]], Sequence[Any]]


def fill(made: Server, raw: Raw, count: int) -> None:
    """``count`` no-op jobs and nothing else, pushed with the product's own bulk push."""
    made.clear(raw)
    pushed = noop.enqueue_many((number,) for number in range(count))
    if pushed.created != count:
        raise BenchError(f"{pushed.created} of {count} jobs were pushed")


def push_bare(made: Server, raw: Raw, count: int) -> None:
    """Push ``count`` jobs one by one with nothing but a socket: SADD + LPUSH in one write, a payload made before."""
    queue, keys = str(noop.options.queue), made.keys
    noop.enqueue(0)
    payload = raw.ask("LINDEX", keys.queue(queue), 0)
    write = pack("SADD", keys.queues, queue) + pack("LPUSH", keys.queue(queue), payload)
    send, read = raw.socket.sendall, raw.read
    for _ in range(count):
        send(write)
        read()
        read()


def drain_bare(made: Server, raw: Raw, count: int, settling: Literal["rows", "runs"]) -> None:
    """Run ``count`` jobs from the queue, from the first fetch to the last settlement."""
    keys, queue = made.keys, str(noop.options.queue)
    flight = keys.in_flight(IDENTITY, 1, queue)
    registry: dict[str, Any] = {noop.name: noop.function}
    decode = msgspec.json.Decoder().decode
    for script in ("fetch", "settle", "settle_oldest", "join"):
        raw.ask("SCRIPT", "LOAD", load(script).text)
    raw.ask(*leases.join(keys, IDENTITY, [flight], LEASE_MS).parts[0])
    fetch = pack(*jobs.fetch(keys, IDENTITY, [(queue, keys.queue(queue), flight, 0)], BATCH, LEASE_MS).parts[0])
    settle = (_by_rows if settling == "rows" else _by_runs)(made, raw, flight, keys.queue(queue))
    done = 0
    while done < count:
        raw.socket.sendall(fetch)
        payloads = raw.read()[1]
        for payload in payloads:
            job = decode(payload)
            registry[job["class"]](*job["args"])
        if set(settle(payloads)) != {1}:
            raise BenchError(f"after {done} jobs the queue gave {len(payloads)}, and they could not be settled")
        done += len(payloads)


def _today() -> str:
    return dt.datetime.now(dt.UTC).date().isoformat()


def _by_rows(made: Server, raw: Raw, flight: str, queue: str) -> _Settle:
    pairs = [(flight, queue)]
    limits: dict[str, Any] = {"lease_ms": LEASE_MS, "day": _today(), "dead_max": 10_000, "dead_timeout": 15_552_000.0}
    # all that goes before the units: script, keys, limits
    words = jobs.settle(made.keys, IDENTITY, pairs, (), **limits).parts[0][:-2]

    def settle(payloads: Sequence[bytes]) -> Sequence[Any]:
        rows = [*words, len(payloads), 1]  # and one pair of in-flight list and queue
        for payload in payloads:
            rows += (1, payload, "done", b"", 0, b"")
        statuses: list[Any] = raw.ask(*rows)
        return statuses

    return settle


def _by_runs(made: Server, raw: Raw, flight: str, queue: str) -> _Settle:
    day = _today()

    def settle(payloads: Sequence[bytes]) -> Sequence[Any]:
        ends = payloads[0], payloads[-1]
        call = jobs.settle_oldest(made.keys, IDENTITY, flight, ends, len(payloads), LEASE_MS, day)
        statuses: list[Any] = raw.ask(*call.parts[0])
        return statuses

    return settle
