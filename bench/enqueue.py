"""How fast jobs are pushed, one by one and in bulk, and what it takes to begin: import, start, memory.

The bare push is a socket that sends SADD + LPUSH in one write with a payload made beforehand, and reads both answers.
Both sides take turns on one server.
"""

from __future__ import annotations

import subprocess
import sys
import time

from jobs import noop
from server import Figures, Raw, arguments, median, pack, server, wait_for, worker

_IMPORT = "import time; t = time.perf_counter(); import henchman; print(time.perf_counter() - t)"
_QUEUE = "bench_load"


def by_henchman(count: int) -> float:
    """Jobs a second, pushed one by one."""
    push = noop.enqueue
    started = time.perf_counter()
    for number in range(count):
        push(number)
    return count / (time.perf_counter() - started)


def by_socket(raw: Raw, count: int, payload: bytes) -> float:
    """The same with nothing but a socket."""
    write = pack("SADD", "queues", _QUEUE) + pack("LPUSH", f"queue:{_QUEUE}", payload)
    send, read = raw.socket.sendall, raw.read
    started = time.perf_counter()
    for _ in range(count):
        send(write)
        read()
        read()
    return count / (time.perf_counter() - started)


def in_bulk(count: int) -> float:
    """Jobs a second, pushed with ``enqueue_many``."""
    started = time.perf_counter()
    noop.enqueue_many((number,) for number in range(count))
    return count / (time.perf_counter() - started)


def import_ms() -> float:
    """Milliseconds that ``import henchman`` takes in a fresh interpreter."""
    answer = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, check=True, timeout=60)
    return float(answer.stdout) * 1000


def measure_pushes(figures: Figures, raw: Raw, runs: int, count: int, bulk: int) -> None:
    """One by one, bare and in bulk, in turns."""
    noop.enqueue(0)
    payload = raw.ask("LINDEX", f"queue:{_QUEUE}", 0)
    ours, bare, many = [], [], []
    for _ in range(runs):
        for rates, rate in ((bare, by_socket(raw, count, payload)), (ours, by_henchman(count)), (many, in_bulk(bulk))):
            rates.append(rate)
        assert raw.number("LLEN", f"queue:{_QUEUE}") >= 2 * count + bulk
        raw.ask("FLUSHALL")
    figures.add("bare", "bare socket, SADD + LPUSH in one write", median(bare), "jobs/s")
    figures.add("single", "enqueue, one by one", median(ours), "jobs/s")
    figures.add("ratio", "enqueue / bare", median(ours) / median(bare), least=0.5)
    figures.add("bulk", "enqueue_many", median(many), "jobs/s", least=300_000)


def measure_worker(figures: Figures, raw: Raw, runs: int) -> None:
    """A worker process, started anew each time."""
    command, child, ready, busy = [], [], [], []
    for _ in range(runs):
        raw.ask("FLUSHALL")
        with worker(raw) as made:
            command.append(made.ready_after)
            child.append(made.child_ready_after)
            ready.append(made.rss())
            in_bulk(20_000)
            wait_for("20,000 jobs", lambda: raw.number("GET", "stat:processed") >= 20_000)
            busy.append(made.rss())
    figures.add("child_ready", "worker process: from its start until it waits for work", median(child), "s", most=0.6)
    figures.add("command_ready", "the command: until its worker process waits for work", median(command), "s")
    figures.add("rss_ready", "memory of the worker process, ready", median(ready), "MB", most=45)
    figures.add("rss_busy", "memory after 20,000 jobs", median(busy), "MB", most=45)


def main() -> int:
    """All of it."""
    parser = arguments("How fast jobs are pushed, and what it takes to begin.")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs one by one in a run")
    parser.add_argument("--bulk", type=int, default=200_000, help="jobs in bulk in a run")
    parser.add_argument("--runs", type=int, default=5, help="runs of each")
    options = parser.parse_args()
    with server() as made:
        raw = made.connect()
        figures = Figures("enqueue", raw)
        measure_pushes(figures, raw, options.runs, options.jobs, options.bulk)
        figures.add("import", "import henchman", median([import_ms() for _ in range(10)]), "ms", most=100)
        measure_worker(figures, raw, min(3, options.runs))
        return figures.finish(options)


if __name__ == "__main__":
    sys.exit(main())
