"""Where a job's microseconds go: each step of a worker, one after another in one thread, and the server's part of each.

The parts are those of a worker that has not started: nothing runs beside them, and what a step takes is the least
processor time of several rounds. In a worker that runs, threads wake each other and wait for the interpreter lock:
what it takes in all is in the last lines, from a drain by a worker process.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from options import arguments

from henchman.bench.bare import fill
from henchman.bench.jobs import LOAD, app, noop
from henchman.bench.report import Report
from henchman.bench.server import Raw, Server, server
from henchman.bench.worker import drain
from henchman.config.capsules import capsules_of
from henchman.store.jobs import fetch
from henchman.store.leases import ask_time
from henchman.work.unit import Unit
from henchman.worker.launcher import Launcher
from henchman.worker.run import Slot

BATCH = 500
STEPS = {
    "fetch": "fetch: pack the call, read the answer",
    "units": "a unit for each payload, noted as held",
    "read": "read: JSON, definition, arguments, a run",
    "execute": "execute: may it start, begin, call, outcome, hand over",
    "settle": "settle: pack, send, count",
}


class Clock:
    """The least that each step took: processor time of this thread, and the server's own count of its scripts."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self.here: dict[str, float] = defaultdict(lambda: float("inf"))
        self.server: dict[str, float] = defaultdict(lambda: float("inf"))

    def forget(self) -> None:
        """Begin anew."""
        self.here.clear()
        self.server.clear()

    def take(self, name: str, step: Callable[[], Any]) -> Any:
        """Take a step of one round, for BATCH jobs."""
        server, began = self._scripts(), time.thread_time()
        result = step()
        self.here[name] = min(self.here[name], (time.thread_time() - began) / BATCH * 1e6)
        self.server[name] = min(self.server[name], (self._scripts() - server) / BATCH)
        return result

    def _scripts(self) -> float:
        stats = self._raw.info("commandstats")
        return float(stats.get("cmdstat_evalsha", "usec=0,").split("usec=")[1].split(",")[0])


def rounds(made: Server, raw: Raw, count: int) -> Clock:
    """Several rounds of BATCH jobs through the parts of one worker."""
    fill(made, raw, count * BATCH)
    clock, launcher = Clock(raw), Launcher(app, capsules_of(app.config, [LOAD]))
    app.connections.run(ask_time(app.clock))
    session, processor, acker = launcher.session, launcher.processor, launcher.acker
    session.join()
    slot, lists = Slot("steps", 0), session.current[LOAD]
    call = fetch(app.keys, session.identity, [(LOAD, lists.queue_key, lists.key, 0)], BATCH, session.lease_ms)

    def hold(payloads: list[bytes]) -> list[Unit]:
        units = [Unit(one, lists, time.monotonic()) for one in payloads]
        session.orders[lists.key].fetched(units)
        return units

    def execute(runs: list[Any]) -> None:
        for run in runs:
            processor.execute(slot, run)

    for turn in range(count):
        if turn == 1:
            clock.forget()  # the first round had the server load the scripts
        payloads = clock.take("fetch", lambda: app.connections.run(call)).payloads[0]
        units = clock.take("units", lambda payloads=payloads: hold(payloads))
        runs = clock.take("read", lambda units=units: [processor.reader.read(unit, 0) for unit in units])
        clock.take("execute", lambda runs=runs: execute(runs))
        clock.take("settle", acker.flush)
    assert not session.held, f"{len(session.held)} units were not settled"
    session.leave()
    return clock


def main() -> int:
    """Step by step, then a drain."""
    parser = arguments("Where a job's microseconds go: the steps of a worker, one after another.")
    parser.add_argument("--rounds", type=int, default=30, help=f"rounds of {BATCH} jobs")
    parser.add_argument("--jobs", type=int, default=200_000, help="no-op jobs of the drain")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("at least 2 rounds: the first one is not counted")
    with server() as made:
        raw = made.connect()
        figures = Report("steps", raw)
        clock = rounds(made, raw, options.rounds)
        for name, said in STEPS.items():
            figures.add(name, said, clock.here[name], "µs")
        figures.add("sum", "all steps", sum(clock.here.values()), "µs")
        figures.add("server_fetch", "the server: fetch.lua", clock.server["fetch"], "µs")
        figures.add("server_settle", "the server: settle_oldest.lua", clock.server["settle"], "µs")
        fill(made, raw, options.jobs)
        found = drain(made, raw, LOAD, options.jobs)
        figures.add("worker", "a worker process that drains: processor time a job", found.worker_us, "µs")
        figures.add("server", "the server meanwhile: processor time a job", found.server_us, "µs")
        figures.add("rate", f"{noop.name}: drained", found.rate, "jobs/s")
        return figures.finish(as_json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
