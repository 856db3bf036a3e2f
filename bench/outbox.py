"""How fast the relay brings a burst of committed rows to the server, and how soon a row is there after its commit.

The relay is a process of its own, as a worker has it. At the steady rate several threads commit transactions of one
job each; the time of a job is from the return of its COMMIT to its arrival in the queue. ``--database`` is the address
of an empty database; without it a SQLite file of its own, to which the bars do not apply.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from server import LIMIT, Figures, Raw, Server, arguments, median, percentile, server, wait_for
from sqlalchemy.orm import Session

from henchman import App
from henchman.outbox.database import OutboxDatabase
from henchman.outbox.relay import Relay

BAR_BURST = 5000  # jobs a second
BAR_LAG = 0.1  # seconds, p99
THREADS = 4
QUEUE = "queue:default"


def relay(url: str, address: str) -> None:
    """The body of the relay's process."""
    app = App(redis_url=url, outbox=address)
    made = Relay(app, OutboxDatabase(address))
    made.start()
    sys.stdin.read()
    made.stop()
    app.close()


class Shop:
    """Who writes."""

    def __init__(self, url: str, address: str) -> None:
        self.app = App(redis_url=url, outbox=address)
        self.database = OutboxDatabase(address)
        self.database.upgrade()
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


def burst(figures: Figures, shop: Shop, raw: Raw, made: Server, address: str, jobs: int) -> None:
    """Everything is committed when the relay begins."""
    for first in range(0, jobs, 1000):
        shop.commit(first, min(1000, jobs - first))
    sent = sent_of(shop)
    with relaying(made.url, address):
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


def sent_of(shop: Shop) -> str:
    return shop.app.keys.outbox_sent(shop.database.marker().name)


class relaying:  # noqa: N801 - used as a function
    """A relay's process for the length of a block."""

    def __init__(self, url: str, address: str) -> None:
        command = [sys.executable, __file__, "--relay", json.dumps([url, address])]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(LIMIT)


def steady(figures: Figures, shop: Shop, made: Server, address: str, rate: int, seconds: float) -> None:
    """Transactions at a steady rate, and when their jobs arrive."""
    committed: dict[int, float] = {}
    arrived: dict[int, float] = {}
    done = threading.Event()

    def take() -> None:
        raw = made.connect()
        while not done.is_set() or len(arrived) < len(committed):
            popped = raw.ask("BRPOP", QUEUE, 1)
            if popped:
                arrived[json.loads(popped[1])["args"][0]] = time.perf_counter()

    def write(place: int) -> None:
        began, number = time.perf_counter(), 0
        while (due := number * THREADS / rate) < seconds:
            time.sleep(max(0.0, began + due - time.perf_counter()))
            order = number * THREADS + place
            shop.commit(order, 1)
            committed[order] = time.perf_counter()
            number += 1

    with relaying(made.url, address):
        shop.commit(-1, 1)
        committed[-1] = 0.0
        taker = threading.Thread(target=take)
        taker.start()
        wait_for("the relay", lambda: -1 in arrived)
        began = time.perf_counter()
        writers = [threading.Thread(target=write, args=(place,)) for place in range(THREADS)]
        for one in writers:
            one.start()
        for one in writers:
            one.join()
        spent = time.perf_counter() - began
        done.set()
        taker.join(LIMIT)
    lags = [arrived[order] - at for order, at in committed.items() if order >= 0]
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
    parser.add_argument("--relay", help="be the relay (the bench calls itself)")
    chosen: Any = parser.parse_args()
    if chosen.relay:
        relay(*json.loads(chosen.relay))
        return 0
    with TemporaryDirectory() as folder, server() as made:
        address = chosen.database or f"sqlite:///{Path(folder) / 'shop.sqlite'}"
        figures = Figures("outbox", made.connect())
        shop = Shop(made.url, address)
        figures.note("database", shop.database.kind)
        burst(figures, shop, made.connect(), made, address, chosen.jobs)
        steady(figures, shop, made, address, chosen.rate, chosen.seconds)
        shop.close()
        return figures.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
