"""Measures of the long form: the same jobs in other surroundings."""

from __future__ import annotations

import collections
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from busy import measure_busy

import henchman
from henchman.bench.jobs import LOAD, QUEUES, app, noop, tell
from henchman.bench.measures import MS, Ground, Measure, on_queues, pushed
from henchman.bench.report import percentile
from henchman.bench.server import Raw, Server, wait_for
from henchman.bench.worker import drain, pause, release, worker
from henchman.store.call import load

__all__ = ["SURROUNDINGS"]

DEPTHS = (1_000, 100_000, 1_000_000)
MANY = 200  # queues
PROCESSES = (1, 2, 4)
SUPERVISORS = 8
DELAY = 0.001  # seconds, in either direction
STEADY = 1000  # jobs a second
HERE = Path(__file__).resolve().parent
LUA = Path(henchman.__file__).parent / "store" / "lua"


def measure_processes(ground: Ground) -> None:
    """No-op jobs on one, two and four processes."""
    count, alone = ground.count(100_000), 0.0
    for processes in PROCESSES:
        ground.server.clear(ground.raw)
        noop.enqueue_many((number,) for number in range(count))
        found = drain(ground.server, ground.raw, LOAD, count, processes=processes)
        alone = alone or found.rate
        ground.report.add(f"processes_{processes}", f"{processes} processes with 10 slots each", found.rate, "jobs/s")
        ground.report.add(f"processes_{processes}_ratio", "… beside one", found.rate / alone)


def measure_supervisors(ground: Ground) -> None:
    """No-op jobs on eight workers that know nothing of each other, as on eight hosts."""
    made, raw, count = ground.server, ground.raw, ground.count(100_000)
    noop.enqueue_many((number,) for number in range(count))
    pause(made, raw, LOAD)
    with ExitStack() as stack:
        for _ in range(SUPERVISORS):
            stack.enter_context(worker(made))
        used = raw.cpu()
        _, rate = release(made, raw, LOAD, count)
        spent = raw.cpu() - used
    ground.report.add("supervisors", f"{SUPERVISORS} supervisors with a process each", rate, "jobs/s")
    ground.report.add("supervisors_server", "… the server's processor time a job", spent / count * 1e6, "µs")


def measure_queues(ground: Ground) -> None:
    """Jobs spread over many queues, one worker that serves them all."""
    made, raw = ground.server, ground.raw
    each = ground.count(20_000) // MANY + 1
    names = [f"bench_{number:03d}" for number in range(MANY)]
    for name in names:
        noop.using(queue=name).enqueue_many((number,) for number in range(each))
        pause(made, raw, name)
    pause(made, raw, LOAD)
    with worker(made, *[word for name in ("bench_ready", *names) for word in ("-q", name)]):
        for name in names:
            raw.ask("SREM", made.keys.paused, name)
        _, rate = release(made, raw, LOAD, each * MANY)
    ground.report.add("queues", f"one worker on {MANY} queues", rate, "jobs/s")


def measure_depths(ground: Ground) -> None:
    """The same pushes, looks and drain with a queue of each depth."""
    made, raw, add, count = ground.server, ground.raw, ground.report.add, ground.count(20_000)
    for depth in DEPTHS:
        deep = ground.count(depth)
        made.clear(raw)
        noop.enqueue_many((number,) for number in range(deep))
        used = raw.cpu()
        pushed(count // 4)
        cost = (raw.cpu() - used) / (count // 4) * 1e6
        add(f"depth_{depth}_push", f"{depth:,} jobs wait: the server's processor time a push", cost, "µs")
        looks = []
        for _ in range(50):
            began = time.perf_counter()
            app.queues["bench_load"].page(0, 50)
            looks.append((time.perf_counter() - began) * 1000)
        add(f"depth_{depth}_page", f"{depth:,} jobs wait: a page of 50, median", percentile(looks, 0.5), "ms")
        if deep < count:
            continue  # too few jobs for a rate
        pause(made, raw, LOAD)
        with worker(made):
            _, rate = release(made, raw, LOAD, count)
        add(f"depth_{depth}_drain", f"{depth:,} jobs wait: a worker", rate, "jobs/s")


@contextmanager
def far_away(made: Server) -> Iterator[Server]:
    """The bench's own server behind a network with a delay."""
    words = [sys.executable, str(HERE / "proxy.py"), str(made.folder / "s"), str(DELAY)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        url = f"redis://127.0.0.1:{proxy.stdout.readline().strip()}/0"
        far = made.reached_by(url)
        try:
            with far.used():
                yield far
        finally:
            proxy.terminate()


def measure_network(ground: Ground) -> None:
    """TCP with 1 ms of delay in either direction: a round trip takes 2 ms."""
    count, add = ground.count(40_000), ground.report.add
    with far_away(ground.server) as far:
        noop.enqueue_many((number,) for number in range(count))
        single = pushed(ground.count(300))
        found = drain(far, ground.raw, LOAD, count + ground.count(300))
    add("network_push", "enqueue, one by one (a round trip each)", single, "jobs/s")
    add("network_drain", "a worker process with 10 slots", found.rate, "jobs/s")


def measure_steady(ground: Ground) -> None:
    """1,000 jobs a second over 4 queues; one of 100 holds its slot for 200 ms, and nobody may wait for it."""
    stamps, add, count, first = ground.stamps, ground.report.add, ground.count(3_000), 50_000
    pushes = [tell.using(queue=name).enqueue for name in QUEUES]
    stamps.clear(range(first, first + count))
    times = []
    with worker(ground.server, *on_queues()):
        began = time.monotonic()
        for turn in range(count):
            ahead = began + turn / STEADY - time.monotonic()
            if ahead > 0:
                time.sleep(ahead)  # this is what makes the rate
            times.append(time.monotonic_ns())
            pushes[turn % 4](first + turn, 0.2 if turn % 100 == 99 else 0.0)
        wait_for("the jobs", lambda: stamps.all_written(range(first, first + count)))
    taken = [(stamps.monotonic(first + turn) - times[turn]) * MS for turn in range(count)]
    add("steady_p50", "push to start, median", percentile(taken, 0.5), "ms")
    add("steady_p99", "…, 99 of 100", percentile(taken, 0.99), "ms", most=5)
    add("steady_max", "…, the slowest (slots were free)", max(taken), "ms", most=100)


# ---- what idling costs: MONITOR names each command and tells those of clients from those of scripts

_LINE = re.compile(rb'^\+?(?P<at>[0-9.]+) \[\d+ (?P<who>[^\]]*)\] "(?P<name>[^"]*)"(?: "(?P<second>[^"]*)")?')
WAITING = frozenset({"BLMOVE", "BZPOPMIN", "fetch", "due", "cron_look"})  # all else is the heartbeat's


def measure_idle(ground: Ground) -> None:
    """Commands a second that an idle worker and its supervisor send, with and without the heartbeat's."""
    seconds = max(2.0, 15.0 * ground.scale)
    names = {load(file.stem).sha.encode(): file.stem for file in LUA.glob("*.lua")}
    found: dict[bool, collections.Counter[str]] = {True: collections.Counter(), False: collections.Counter()}
    with worker(ground.server, *on_queues()):
        time.sleep(app.config.heartbeat + 1.0)  # a beat has told of the job that ran: what follows is idle
        lines = monitored(ground.server.connect(), seconds)
    for match in map(_LINE.match, lines):
        if match is None or match["who"] == b"lua":
            continue
        name = match["name"].decode().upper()
        if name in ("EVALSHA", "EVAL"):
            name = names.get(match["second"] or b"", "another script")
        if name not in ("INFO", "MONITOR"):
            found[name in WAITING][name] += 1
    add, note = ground.report.add, ground.report.note
    add("idle_commands", "commands a second, without the heartbeat", found[True].total() / seconds, "/s", most=2)
    add("heartbeat_commands", "commands a second of the heartbeat", found[False].total() / seconds, "/s", most=3)
    counts = found[True] + found[False]
    note("Idle: commands a second, by name", {name: round(one / seconds, 2) for name, one in counts.most_common()})


def monitored(listener: Raw, seconds: float) -> list[bytes]:
    """The lines that MONITOR gives in ``seconds``."""
    listener.ask("MONITOR")
    end = time.monotonic() + seconds
    text = b""
    while (left := end - time.monotonic()) > 0:
        if select.select([listener.socket], [], [], left)[0]:
            text += listener.socket.recv(1 << 16)
    return text.split(b"\r\n")


SURROUNDINGS = (
    Measure("processes", "Several processes", measure_processes),
    Measure("supervisors", "Eight supervisors on one server", measure_supervisors),
    Measure("steady", "Push to start at 1,000 jobs a second", measure_steady),
    Measure("queues", "Many queues", measure_queues),
    Measure("network", "A network with 1 ms of delay each way", measure_network),
    Measure("depths", "Depth of the queue", measure_depths, once=True),
    Measure("busy", "Busy workers, beside a simulated first-come queue", measure_busy, once=True),
    Measure("idle", "What idling costs", measure_idle, once=True),
)
