"""How fast the relay brings a burst of committed rows to the server, and how soon a row is there after its commit.

Every part is a process of its own, as in life: the relay, those who write, and the one who takes the jobs. At the
steady rate several processes commit transactions of one job each; the time of a job is from the return of its COMMIT to
its arrival. ``--database`` is the address of an empty database; without it a SQLite file of its own, to which the bars
do not apply.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from options import arguments
from sqlalchemy.orm import Session

from henchman import App
from henchman.bench.report import Report, percentile
from henchman.bench.server import LIMIT, Raw, Server, server, wait_for
from henchman.outbox.database import OutboxDatabase
from henchman.outbox.relay import Relay

BAR_BURST = 5000  # jobs a second
BAR_LAG = 0.1  # seconds, p99
WRITERS = 4
QUEUE = "queue:default"


class Shop:
    """Who writes."""

    def __init__(self, url: str, address: str) -> None:
        self.app = App(redis_url=url, outbox=address)
        self.database = OutboxDatabase(address)
        self.job = self.app.job(name="ship")(_ship)
        self.engine = self.database.engine.execution_options(henchman_writes=True)

    def commit(self, first: int, count: int) -> None:
        """One transaction."""
        with Session(self.engine) as session, session.begin():
            self.app.outbox.write_many(session, self.job, [(number,) for number in range(first, first + count)])

    def close(self) -> None:
        self.app.close()
        self.database.close()


def _ship(number: int) -> None: ...


# --- the parts that are processes of their own: each reads lines of JSON, and writes some -----------------------------


def relay(url: str, address: str) -> None:
    """Relay until standard input ends."""
    app = App(redis_url=url, outbox=address)
    made = Relay(app, OutboxDatabase(address))
    made.start()
    sys.stdin.read()
    made.stop()
    app.close()


def write(url: str, address: str, place: int, rate: float, seconds: float) -> None:
    """Say that it is ready; from the time that it is told, commit orders at ``rate`` a second. Then tell when each was
    committed. Times are those of the machine's monotonic clock, which all processes share."""
    shop, committed = Shop(url, address), []
    with shop.database.reading():
        print("true", flush=True)
    began, number = json.loads(sys.stdin.readline()), 0
    while (due := number / rate) < seconds:
        time.sleep(max(0.0, began + due - time.monotonic()))
        order = number * WRITERS + place
        shop.commit(order, 1)
        committed.append((order, time.monotonic()))
        number += 1
    print(json.dumps([committed, time.monotonic() - began]), flush=True)
    shop.close()


def take(path: str) -> None:
    """Say when the first job has come, and take jobs until as many have come as it is told; then tell when each did."""
    raw, arrived, wanted = Raw(path), [], list[int]()
    threading.Thread(target=lambda: wanted.append(json.loads(sys.stdin.readline())), daemon=True).start()
    while not wanted or len(arrived) < wanted[0]:
        popped = raw.ask("BRPOP", QUEUE, 1)
        if popped:
            arrived.append((time.monotonic(), popped[1]))
        if popped and len(arrived) == 1:
            print("true", flush=True)
    print(json.dumps([(json.loads(payload)["args"][0], at) for at, payload in arrived]), flush=True)


PARTS: dict[str, Callable[..., None]] = {"relay": relay, "write": write, "take": take}


class Part:
    """One of them, as its parent sees it."""

    def __init__(self, name: str, *facts: Any) -> None:
        command = [sys.executable, __file__, "--part", json.dumps([name, *facts])]
        self._name = name
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, fact: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fact) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        """Its next line; the bench ends when none comes."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], LIMIT)[0]:
            raise SystemExit(f"gave up waiting for a word of {self._name} after {LIMIT:g} s")
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        """Let it end by itself, or end it."""
        try:
            self._process.communicate(timeout=LIMIT)
        finally:
            self._process.kill()


@contextmanager
def part(name: str, *facts: Any) -> Iterator[Part]:
    """A process for the length of a block."""
    made = Part(name, *facts)
    try:
        yield made
    finally:
        made.end()


# --- what is measured -------------------------------------------------------------------------------------------------


def burst(figures: Report, shop: Shop, raw: Raw, made: Server, address: str, jobs: int) -> None:
    """Everything is committed when the relay begins."""
    for first in range(0, jobs, 1000):
        shop.commit(first, min(1000, jobs - first))
    sent = shop.app.keys.outbox_sent(shop.database.marker().name)
    with part("relay", made.url, address):
        wait_for("the first job", lambda: raw.number("LLEN", QUEUE) > 0, LIMIT, 0.001)
        began, before = time.perf_counter(), raw.number("LLEN", QUEUE)
        wait_for("the burst", lambda: raw.number("LLEN", QUEUE) == jobs, LIMIT, 0.002)
        spent = time.perf_counter() - began
        wait_for("its deletion", lambda: raw.number("EXISTS", sent) == 0, LIMIT)
        gone = time.perf_counter() - began
    least = BAR_BURST if shop.database.kind == "postgresql" else 0
    what = f"{shop.database.kind}: a burst of {jobs:,} jobs relayed"
    figures.add("burst", what, (jobs - before) / spent, "jobs/s", least=least)
    figures.add("gone", "  until the last row was deleted, 2 s of delay included", jobs / gone, "jobs/s")
    raw.ask("DEL", QUEUE)


def steady(figures: Report, shop: Shop, made: Server, address: str, rate: int, seconds: float) -> None:
    """Transactions at a steady rate, and when their jobs arrive."""
    writers: list[Part] = []
    with part("relay", made.url, address), part("take", made.url) as taker:
        try:
            for place in range(WRITERS):
                writers.append(Part("write", made.url, address, place, rate / WRITERS, seconds))
            shop.commit(-1, 1)
            for one in (taker, *writers):
                one.hear()
            began = time.monotonic() + 0.5
            for one in writers:
                one.tell(began)
            told = [one.hear() for one in writers]
        finally:
            for one in writers:
                one.end()
        committed = {order: at for orders, _ in told for order, at in orders}
        spent = max(one for _, one in told)
        taker.tell(len(committed) + 1)
        arrived = dict(taker.hear())
    lags = [arrived[order] - at for order, at in committed.items()]
    bar = BAR_LAG * 1000 if shop.database.kind == "postgresql" else 0.0
    figures.add("rate", f"  transactions, of {rate:,} a second that were asked for", len(lags) / spent, "a s")
    figures.add("lag_p50", "  from the commit to the queue, median", max(median(lags), 0.0) * 1000, "ms")
    figures.add("lag_p99", "  from the commit to the queue, p99", percentile(lags, 0.99) * 1000, "ms", most=bar)
    figures.add("lag_worst", "  worst", max(lags) * 1000, "ms")


def main() -> int:
    parser = arguments(__doc__ or "")
    parser.add_argument("--jobs", type=int, default=50_000, help="jobs of the burst")
    parser.add_argument("--rate", type=int, default=500, help="transactions a second at the steady rate")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long the steady rate lasts")
    parser.add_argument("--database", help="address of an empty database")
    parser.add_argument("--part", help="be a part (the bench calls itself)")
    chosen: Any = parser.parse_args()
    if chosen.part:
        name, *facts = json.loads(chosen.part)
        PARTS[name](*facts)
        return 0
    with TemporaryDirectory() as folder, server() as made:
        address = chosen.database or f"sqlite:///{Path(folder) / 'shop.sqlite'}"
        figures = Report("outbox", made.connect())
        shop = Shop(made.url, address)
        shop.database.upgrade()
        figures.note("database", shop.database.kind)
        burst(figures, shop, made.connect(), made, address, chosen.jobs)
        steady(figures, shop, made, address, chosen.rate, chosen.seconds)
        shop.close()
        return figures.finish(as_json=chosen.json, check=chosen.check)


if __name__ == "__main__":
    sys.exit(main())
