"""What a fleet costs its server: processes that idle, and the end of a job by how many end in one call.

Each process of the fleet is simulated by connections of its own, on which it does what an idle worker does, at the same
pace and with the same calls: it holds a lease and renews it, waits in BLMOVE on each of its queues, looks for what is
due and for the dead, writes its record. Only the server is measured; ``--processes`` says how large the fleets are.
``docs/scaling.md`` holds its model against these figures.
"""

from __future__ import annotations

import heapq
import resource
import selectors
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from options import arguments

from henchman.bench.report import Report
from henchman.bench.server import BenchError, Raw, Server, server
from henchman.config import Config
from henchman.store import fair, jobs, leases
from henchman.store.call import Call, command
from henchman.store.connection import Connections

LEASE_MS = int(Config().lease * 1000)
QUEUES = 4
WAIT = 5.0  # seconds of one BLMOVE
BATCHES = (1, 10, 100, 500)
FACTS = {"concurrency": 10, "busy": 0, "quiet": "false", "rss": 47_000, "rtt_us": 300, "info": "x" * 400}
PAYLOAD = b'{"class":"noop","jid":"%024d","args":[1],"queue":"fleet","created_at":1790000000000,"retry":true}'


class Process:
    """One process of the fleet: its calls and their pace, as ``MONITOR`` shows them of an idle worker."""

    def __init__(self, made: Server, number: int) -> None:
        keys = made.keys
        self.identity = f"host-{number // 8}:{number}:{number:012x}"
        self._connections = Connections(made.url, io_timeout=60.0)
        self._lists = [keys.in_flight(self.identity, 1, f"fleet_{one}") for one in range(QUEUES)]
        self._queues = [keys.queue(f"fleet_{one}") for one in range(QUEUES)]
        self.lines = [self._connections.open(60.0) for _ in range(QUEUES)]
        self.run(leases.join(keys, self.identity, self._lists, LEASE_MS))
        renew = leases.renew_known(keys, self.identity, LEASE_MS)
        self.duties: list[tuple[float, Call[object]]] = [
            (0.9, jobs.due(keys, self.identity, 2000, 100)),
            (1.0, leases.watch(keys, self.identity, 4000)),
            (2.5, renew),  # the process, and its supervisor beside it
            (3.0, renew),
            (5.0, fair.paused_and_fair(keys)),
            (5.0, command("GET", keys.cancels)),
            (5.0, leases.beat(keys, self.identity, FACTS, {}, old_work=True, every=5.0)),
            (5.0, leases.sizes(dict.fromkeys(self._lists, "list"))),
            (5.0, command("ZRANGE", keys.tombs, 0, -1)),
        ]

    def run(self, call: Call[object]) -> None:
        """One of its calls, on its own connection."""
        self._connections.run(call)

    def wait(self, place: int) -> None:
        """Wait for a push into one of its queues."""
        self.lines[place].send("BLMOVE", self._queues[place], self._lists[place], "RIGHT", "LEFT", WAIT)

    def close(self) -> None:
        """Close its connections."""
        for line in self.lines:
            line.close()
        self._connections.close()


class Fleet:
    """So many processes, driven by one thread."""

    def __init__(self, made: Server, size: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Process, float, Call[object]]] = []
        self.processes: list[Process] = []
        for number in range(size):
            one = Process(made, number)
            self.processes.append(one)
            for place, line in enumerate(one.lines):
                self._selector.register(line, selectors.EVENT_READ, (one, place))
                one.wait(place)
            for pace, call in one.duties:
                at = (
                    time.monotonic() + pace * number / size
                )  # spread out, as processes are that began at their own time
                heapq.heappush(self._due, (at, len(self._due), one, pace, call))

    def live(self, seconds: float) -> int:
        """Do what is due for so long; how many calls and waits that were."""
        end, count = time.monotonic() + seconds, 0
        while (now := time.monotonic()) < end:
            while self._due[0][0] <= now:
                at, order, one, pace, call = self._due[0]
                one.run(call)
                heapq.heapreplace(self._due, (max(at + pace, now - 1.0), order, one, pace, call))
                count += 1
            for key, _ in self._selector.select(min(max(self._due[0][0] - time.monotonic(), 0), 0.05)):
                one, place = key.data
                one.lines[place].read()
                one.wait(place)
                count += 1
        return count

    def close(self) -> None:
        """Close every connection."""
        self._selector.close()
        for one in self.processes:
            one.close()


@contextmanager
def fleet(made: Server, size: int) -> Iterator[Fleet]:
    """A fleet for the length of a block."""
    begun = Fleet(made, size)
    try:
        yield begun
    finally:
        begun.close()


def measure_idle(figures: Report, made: Server, raw: Raw, sizes: list[int], seconds: float) -> None:
    """The server's time a second, by the size of the fleet."""
    for size in sizes:
        made.clear(raw)
        with fleet(made, size) as begun:
            begun.live(6.0)  # every duty was done once
            used, since = raw.cpu(), time.monotonic()
            count = begun.live(seconds)
            spent, passed = raw.cpu() - used, time.monotonic() - since
            memory = int(raw.info("memory")["used_memory"])
        what = f"{size:,} idle processes"
        figures.add(f"commands_{size}", f"{what}: commands", count / passed, "a s")
        figures.add(f"share_{size}", "  of the server's core", spent / passed * 100, "%")
        figures.add(f"process_{size}", "  the server's time a process", spent / passed / size * 1e6, "µs a s")
        figures.add(f"memory_{size}", "  the server's memory", memory / 1e6, "MB")


def measure_ends(figures: Report, made: Server, raw: Raw, count: int) -> None:
    """The server's time for fetching and ending a plain job, by how many go in one call."""
    for batch in BATCHES:
        made.clear(raw)
        one, keys = Process(made, 0), made.keys
        queue, flight = keys.queue("fleet"), keys.in_flight(one.identity, 1, "fleet")
        one.run(leases.join(keys, one.identity, [flight], LEASE_MS))
        total = max(count // (500 // batch), batch) // batch * batch
        for first in range(0, total, 500):
            raw.ask("LPUSH", queue, *(PAYLOAD % number for number in range(first, min(first + 500, total))))
        call = jobs.fetch(keys, one.identity, [("fleet", queue, flight, 0)], batch, LEASE_MS)
        used = raw.cpu()
        for _ in range(total // batch):
            one.run(call)
        for first in range(0, total, batch):
            ends = PAYLOAD % first, PAYLOAD % (first + batch - 1)
            one.run(jobs.settle_oldest(keys, one.identity, flight, ends, batch, LEASE_MS, "2026-01-01"))
        figures.add(f"end_{batch}", f"fetch and end, {batch} in a call", (raw.cpu() - used) / total * 1e6, "µs a job")
        if raw.number("EXISTS", queue, flight):
            raise BenchError("jobs are left")
        one.close()


def allow_connections(raw: Raw, most: int) -> None:
    """As many open files, here and at the server, as the largest fleet has connections."""
    need = most * (QUEUES + 1) + 200
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY,) and hard < need:
        raise BenchError(f"{most:,} processes need {need:,} open files, and this user may have {hard:,}: ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    raw.ask("CONFIG", "SET", "maxclients", need)


def main() -> int:
    """Fleets of several sizes, then ends of several sizes."""
    parser = arguments("What a fleet of processes costs its server.")
    parser.add_argument("--processes", type=int, nargs="+", default=[100, 300, 1000], help="sizes of the fleets")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long each is looked at")
    parser.add_argument(
        "--jobs", type=int, default=100_000, help="jobs that are ended 500 in a call; fewer of the others"
    )
    options = parser.parse_args()
    with server() as made:
        raw = made.connect()
        allow_connections(raw, max(options.processes))
        figures = Report("fleet", raw)
        measures: list[Callable[[], None]] = [
            lambda: measure_idle(figures, made, raw, options.processes, options.seconds),
            lambda: measure_ends(figures, made, raw, options.jobs),
        ]
        for measure in measures:
            measure()
        return figures.finish(as_json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(main())
