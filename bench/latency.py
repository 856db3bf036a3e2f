"""How soon a job starts: on an idle worker, on one that is busy, at its due time; and what idling costs.

A job writes ``time.monotonic_ns()`` (one clock for all processes of a host) into shared memory; the time of its push
is taken before ``enqueue`` is called, so the client's work is in the figure. The ping-pong does the same without
Henchman: a raw LPUSH, and a process that sits in BLMOVE and writes.

Idle commands are read with MONITOR, which names each command and tells those that clients sent from those that a
script called. The heartbeat is everything (records, leases, who looks after the dead) except what belongs to waiting
for work (BLMOVE), fetching, staging and crons; INFO commandstats before and after are shown beside it, inner calls
included.
"""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import os
import random
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from board import PLACES, Board
from busy import measure_busy
from jobs import QUEUES, tell
from server import LIMIT, Figures, Raw, Server, arguments, pack, percentile, server, wait_for, worker

import henchman
from henchman.store.call import load

MS = 1e-6  # of nanoseconds
PONG_LIST, PONG_SEEN = "bench:pong", "bench:pong:seen"


def idle_latencies(board: Board, first: int, count: int, push: object) -> list[float]:
    """Milliseconds from push to start of one job at a time, each on an idle receiver."""
    chance = random.Random(first)
    taken = []
    for number in range(first, first + count):
        time.sleep(chance.uniform(0.004, 0.012))  # jobs that come now and then are what is measured
        before = time.monotonic_ns()
        push(number)
        while not board.monotonic(number):
            if time.monotonic_ns() - before > LIMIT * 1e9:
                sys.exit(f"job {number} has not started within {LIMIT:g} s")
            time.sleep(0.0002)
        taken.append((board.monotonic(number) - before) * MS)
    return taken


def pong(path: str) -> None:
    """The other end of the ping-pong, a process of its own: wait in BLMOVE, write the time, and again."""
    raw = Raw(Path(path))
    board = Board(Path(os.environ["BENCH_BOARD"]))
    wait = pack("BLMOVE", PONG_LIST, PONG_SEEN, "RIGHT", "LEFT", 0)
    while True:
        raw.socket.settimeout(None)
        raw.socket.sendall(wait)
        number = int(raw.read())
        if number < 0:
            return
        board.write(number)


@contextmanager
def ping(made: Server, raw: Raw) -> Iterator[object]:
    """A push to a process that waits in BLMOVE."""
    before = int(raw.info("clients")["blocked_clients"])
    other = subprocess.Popen([sys.executable, __file__, "--pong", str(made.path)], stdin=subprocess.DEVNULL)
    try:
        wait_for("the ping-pong", lambda: int(raw.info("clients")["blocked_clients"]) > before)
        yield lambda number: raw.ask("LPUSH", PONG_LIST, number)
    finally:
        raw.ask("LPUSH", PONG_LIST, -1)
        other.wait(LIMIT)


def measure_idle(figures: Figures, made: Server, raw: Raw, board: Board, count: int) -> None:
    """Push to start on an idle worker, and the ping-pong, in turns."""
    pushes = [tell.using(queue=name).enqueue for name in QUEUES]
    chance = random.Random(1)
    ours: list[float] = []
    bare: list[float] = []
    share = count // 4  # of the places 1 to 40,000 on the board

    def push(number: int) -> None:
        chance.choice(pushes)(number)

    with ping(made, raw) as bare_push:
        for turn in range(4):
            first = 1 + turn * 2 * share
            bare += idle_latencies(board, first, share, bare_push)
            ours += idle_latencies(board, first + share, share, push)
    figures.add("bare_p50", "bare LPUSH → BLMOVE, median", percentile(bare, 0.5), "ms")
    figures.add("bare_p99", "bare LPUSH → BLMOVE, 99 of 100", percentile(bare, 0.99), "ms")
    figures.add("idle_p50", "push → start, idle worker on 4 queues, median", percentile(ours, 0.5), "ms")
    figures.add("idle_p99", "push → start, 99 of 100", percentile(ours, 0.99), "ms", most=5)
    figures.add("idle_max", "push → start, the slowest", max(ours), "ms")
    figures.add("idle_ratio", "median / median of bare", percentile(ours, 0.5) / percentile(bare, 0.5), most=2)


def measure_steady(figures: Figures, board: Board, first: int, rate: int, seconds: float) -> None:
    """``rate`` jobs a second over 4 queues; one of 100 holds its slot for 200 ms, and nobody may wait for it."""
    pushes = [tell.using(queue=name).enqueue for name in QUEUES]
    count = int(rate * seconds)
    pushed = []
    began = time.monotonic()
    for turn in range(count):
        ahead = began + turn / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)  # this is what makes the rate
        pushed.append(time.monotonic_ns())
        pushes[turn % 4](first + turn, 0.2 if turn % 100 == 99 else 0.0)
    took = time.monotonic() - began
    wait_for("the jobs", lambda: board.all_written(range(first, first + count)))
    waits = [(board.monotonic(first + turn) - pushed[turn]) * MS for turn in range(count)]
    figures.add("steady_rate", "jobs a second over 4 queues, as pushed", count / took, "jobs/s")
    figures.add("steady_p50", "push → start, median", percentile(waits, 0.5), "ms")
    figures.add("steady_p99", "push → start, 99 of 100", percentile(waits, 0.99), "ms")
    figures.add("steady_max", "push → start, the slowest (slots were free)", max(waits), "ms", most=100)


def measure_due(figures: Figures, board: Board, first: int, count: int) -> None:
    """Scheduled jobs, due 1.5 to 6.5 s after the push: how late each starts."""
    chance = random.Random(2)
    due = {}
    for number in range(first, first + count):
        at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=chance.uniform(1.5, 6.5))
        tell.using(at=at, queue=chance.choice(QUEUES)).enqueue(number)
        due[number] = at.timestamp()
    wait_for("the jobs", lambda: board.all_written(range(first, first + count)))
    late = [board.wall(number) / 1e6 - at * 1000 for number, at in due.items()]
    figures.add("due_p50", "scheduled job late by, median", percentile(late, 0.5), "ms")
    figures.add("due_p99", "scheduled job late by, 99 of 100", percentile(late, 0.99), "ms", most=100)
    figures.add("due_first", "scheduled job, the earliest (must not be negative)", min(late), "ms")


_LINE = re.compile(rb'^\+?(?P<at>[0-9.]+) \[\d+ (?P<who>[^\]]*)\] "(?P<name>[^"]*)"(?: "(?P<second>[^"]*)")?')
WAITING = frozenset({"BLMOVE", "BZPOPMIN", "fetch", "due", "cron_look"})  # all else is the heartbeat's
LUA = Path(henchman.__file__).parent / "store" / "lua"


def measure_cost(figures: Figures, made: Server, raw: Raw, seconds: float) -> None:
    """Commands a second that an idle worker and its supervisor send, by name, with and without the heartbeat."""
    names = {load(file.stem).sha.encode(): file.stem for file in LUA.glob("*.lua")}
    stats = counted(raw)
    others: collections.Counter[str] = collections.Counter()
    heartbeat: collections.Counter[str] = collections.Counter()
    for line in monitored(made, seconds):
        match = _LINE.match(line)
        if match is None or match["who"] == b"lua":
            continue
        name = match["name"].decode().upper()
        if name in ("EVALSHA", "EVAL"):
            name = names.get(match["second"] or b"", "another script")
        if name not in ("INFO", "MONITOR"):
            (others if name in WAITING else heartbeat)[name] += 1
    total = {name: calls - stats.get(name, 0) for name, calls in counted(raw).items() if calls > stats.get(name, 0)}
    figures.add(
        "idle_commands", "commands a second, idle, without the heartbeat", others.total() / seconds, "/s", most=2
    )
    figures.add("heartbeat_commands", "commands a second of the heartbeat", heartbeat.total() / seconds, "/s", most=3)
    for what, counts in (("idle", others), ("heartbeat", heartbeat), ("commandstats", collections.Counter(total))):
        shown = {name: round(number / seconds, 2) for name, number in counts.most_common()}
        figures.note(f"{what}_by_name", shown)
        print(f"    {what}, a second: " + ", ".join(f"{name} {number}" for name, number in shown.items()))


def counted(raw: Raw) -> dict[str, int]:
    """Calls of each command since the server started."""
    stats = raw.info("commandstats")
    return {name.removeprefix("cmdstat_"): int(text.split("calls=")[1].split(",")[0]) for name, text in stats.items()}


def monitored(made: Server, seconds: float) -> list[bytes]:
    """The lines that MONITOR gives in ``seconds``."""
    listener = made.connect()
    listener.ask("MONITOR")
    end = time.monotonic() + seconds
    text = b""
    while (left := end - time.monotonic()) > 0:
        if select.select([listener.socket], [], [], left)[0]:
            text += listener.socket.recv(1 << 16)
    return text.split(b"\r\n")


def main() -> int:
    """What the arguments ask for."""
    parser = arguments("How soon a job starts, and what idling costs.")
    parser.add_argument("--samples", type=int, default=1000, help="pushes to an idle worker")
    parser.add_argument("--rate", type=int, default=1000, help="jobs a second in the steady part")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of the steady part")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds in which idle commands are counted")
    parser.add_argument("--busy", type=float, default=4.0, help="seconds of each of the 27 cases of a busy worker")
    parser.add_argument("--only-busy", action="store_true", help="leave out everything but the busy worker")
    parser.add_argument("--pong", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not 4 <= options.samples < 15_000 or options.rate * options.seconds > PLACES - 50_000:
        parser.error(f"at most 15,000 samples, and {PLACES - 50_000:,} jobs in the steady part")
    if options.pong:
        pong(options.pong)
        return 0
    with server() as made:
        raw = made.connect()
        figures = Figures("latency", raw)
        board = Board(Path(os.environ["BENCH_BOARD"]))
        if not options.only_busy:
            measure_first(figures, made, raw, board, options)
        if options.busy:
            measure_busy(figures, raw, board, options.busy)
        return figures.finish(options)


def measure_first(figures: Figures, made: Server, raw: Raw, board: Board, options: argparse.Namespace) -> None:
    """One worker, four queues, four questions."""
    queues = [word for name in QUEUES for word in ("-q", name)]
    with worker(raw, *queues):
        tell.enqueue(0)
        wait_for("the first job", lambda: board.all_written(range(1)))
        measure_idle(figures, made, raw, board, options.samples)
        measure_due(figures, board, 40_000, 300)
        measure_steady(figures, board, 50_000, options.rate, options.seconds)
        time.sleep(1.0)  # let the last acknowledgements pass: idle is what is counted next
        measure_cost(figures, made, raw, options.idle)


if __name__ == "__main__":
    sys.exit(main())
