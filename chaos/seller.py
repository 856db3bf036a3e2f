"""The seller: transactions of orders and of the jobs that are rows beside them, which end in all the ways there are.

``python seller.py SEED RATE``. Before a job is written: ``push KEY`` and ``order KEY unknown``; after its transaction
``order KEY`` with accepted (the commit was answered), refused (it was undone, or never committed) or unknown (its
commit was not answered). One thread has short transactions, another one long ones, with low ids and late commits. Some
rows have a key, the same as the producers push.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from typing import Any

import contracts
import jobs
from key_pushes import fails_once, new_names
from ledger import Ledger
from market import orders
from sqlalchemy import create_engine, insert
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from henchman.errors import OutboxError

KEYED = 0.2  # of all transactions
STYLES = {"session": 8, "many": 2, "connection": 3, "undone": 3, "savepoint": 3, "left": 1}
MOST = 3  # orders of a transaction
LONG = (2.0, 6.0)  # seconds


Row = tuple[Any, ...]  # the arguments of a job, its key first


class Undone(Exception):
    """The transaction ends badly, as its style says."""


class Seller:
    """Sells until it is told to stop. ``commits`` tells each thread whether its COMMIT was sent."""

    def __init__(self, seed: int, rate: float) -> None:
        url = os.environ["HENCHMAN_OUTBOX"].replace("postgresql:", "postgresql+psycopg:")
        self._engine = create_engine(url, pool_pre_ping=True)
        self._seed, self._rate = seed, rate
        self._ledger = Ledger(jobs.FOLDER, "seller")
        self._lock = threading.Lock()
        self._number = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        """Both threads, until ``stopping``."""
        slow = threading.Thread(target=self._sell, args=("slow", 1 / LONG[1]))
        slow.start()
        self._sell("quick", self._rate / (MOST + 1) * 2)
        slow.join()

    def _sell(self, name: str, each_second: float) -> None:
        chance = random.Random(f"{self._seed} {name}")  # noqa: S311 - to be repeated, not to be secret
        while not self.stopping.wait(chance.expovariate(each_second)):
            style = chance.choices(list(STYLES), list(STYLES.values()))[0]
            named = chance.random() < KEYED
            many = chance.randint(2 if style == "savepoint" else 1, MOST)
            rows = [self._row(chance.choice(new_names()) if named else "") for _ in range(many)]
            pause = chance.uniform(*LONG) if name == "slow" else 0.0
            job = contracts.once if named else contracts.sold.using(delay=2.0 if chance.random() < 0.1 else None)
            self._transaction(style, rows, job, pause)

    def _row(self, name: str) -> Row:
        """The arguments of a job with this name for its key, or without a key."""
        with self._lock:
            self._number += 1
            key = f"{'once' if name else 'sold'}-seller-{self._number}"
        if name:
            self._ledger.write("named", key, "once", name)
        self._ledger.write("push", key, *([f"fails={fails_once(name)}"] if name else []))
        self._ledger.write("order", key, "unknown")
        return (key, name, fails_once(name)) if name else (key,)

    def _transaction(self, style: str, rows: list[Row], job: Any, pause: float) -> None:
        """One transaction of some orders, and what came of it. Of "savepoint" the last order is undone alone."""
        undone = rows[-1:] if style == "savepoint" else rows if style in ("undone", "left") else []
        committing: list[bool] = []
        try:
            if style == "connection":
                self._by_connection(rows, job, pause, committing)
            else:
                self._by_session(style, rows, job, pause, committing)
            verdict = "accepted"
        except Undone:
            verdict = "refused"
        except (SQLAlchemyError, OutboxError) as error:
            verdict = "unknown" if committing else "refused"
            self._ledger.write("note", f"{style}: {error!r}"[:300])
        for row in rows:
            self._ledger.write("order", row[0], "refused" if row in undone else verdict)

    def _by_connection(self, rows: list[Row], job: Any, pause: float, committing: list[bool]) -> None:
        with self._engine.connect() as connection:
            for row in rows:
                connection.execute(insert(orders).values(key=row[0]))
                jobs.app.outbox.write(connection, job, *row)
            self.stopping.wait(pause)
            committing.append(True)
            connection.commit()
        jobs.app.outbox.wake()

    def _by_session(self, style: str, rows: list[Row], job: Any, pause: float, committing: list[bool]) -> None:
        with Session(self._engine) as session:
            if style == "many":
                session.execute(insert(orders), [{"key": row[0]} for row in rows])
                jobs.app.outbox.write_many(session, job, rows)
            else:
                for row in rows[:-1] if style == "savepoint" else rows:
                    self._order(session, row, job)
            if style == "savepoint":
                inner = session.begin_nested()
                self._order(session, rows[-1], job)
                inner.rollback()
            self.stopping.wait(pause)
            if style == "undone":
                session.rollback()
                raise Undone
            if style == "left":
                raise Undone  # closed without a commit
            committing.append(True)
            session.commit()

    @staticmethod
    def _order(session: Session, row: Row, job: Any) -> None:
        session.execute(insert(orders).values(key=row[0]))
        jobs.app.outbox.write(session, job, *row)


def main() -> None:
    """Sell until TERM."""
    seller = Seller(int(sys.argv[1]), float(sys.argv[2]))
    signal.signal(signal.SIGTERM, lambda *_: seller.stopping.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's to obey
    seller.run()
    jobs.app.close()


if __name__ == "__main__":
    main()
