"""The outbox of the run: a PostgreSQL of our own, and the process that sells there.

What the database has at the end is the truth: an order stands there if, and only if, its transaction was committed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import clocks  # noqa: F401 - it finds the tests' folder
from groups import HERE, children_of
from ledger import Ledger
from server import alive
from spawn import spawn
from sqlalchemy import Column, MetaData, Table, Text, create_engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from henchman.outbox.database import OutboxDatabase
from henchman.outbox.schema import outbox
from support.databases import PostgreSQL, available

__all__ = ["Market", "missing", "orders"]

missing = "" if available(PostgreSQL) else "PostgreSQL is not installed: apt install postgresql"
GONE = 30.0  # seconds for killed processes to be gone
LINE = 60  # keys in one line of the ledger
ORDERS = MetaData()
orders = Table("orders", ORDERS, Column("key", Text, primary_key=True))
SMALL = {"shared_buffers": "16MB", "max_worker_processes": "0", "fsync": "off"}  # what is written survives a kill -9


class _Server(PostgreSQL):
    """The kernel kills a server when the thread ends that started it: one that lives as long as the run starts it."""

    def __init__(self) -> None:
        super().__init__()
        self._starter = ThreadPoolExecutor(1, "postgres")

    def command(self) -> list[str]:
        return [*super().command(), *(part for name, value in SMALL.items() for part in ("-c", f"{name}={value}"))]

    def start(self) -> None:
        self._starter.submit(super().start).result()

    def kill(self) -> int:
        """kill -9 of the postmaster and of all its children; how many processes that were."""
        if self._process is None or self._process.poll() is not None:
            return 0
        pids = [self._process.pid, *children_of(self._process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        super().kill()
        end = time.monotonic() + GONE
        while any(map(alive, pids)) and time.monotonic() < end:
            time.sleep(0.02)  # else the next one finds the memory of this one in use
        return len(pids)


class Market:
    """A database with an outbox and orders, and the seller. ``close`` ends both."""

    def __init__(self) -> None:
        self.database = _Server()
        self.seller: subprocess.Popen[bytes] | None = None
        self.database.install()
        self.database.start()
        made = OutboxDatabase(self.url)
        made.upgrade()
        made.close()
        self._engine = create_engine(self.url.replace("postgresql:", "postgresql+psycopg:"), pool_pre_ping=True)
        ORDERS.create_all(self._engine)

    @property
    def url(self) -> str:
        return self.database.url

    def sell(self, seed: int, rate: float, folder: Path, env: Mapping[str, str]) -> None:
        """Start the seller: about so many orders a second."""
        command = [sys.executable, str(HERE / "seller.py"), str(seed), str(rate)]
        self.seller = spawn(command, folder / "seller.log", env=dict(env) | {"CHAOS_ROLE": "selling"})

    def rows(self) -> int:
        """How many rows stand in the outbox; 0 also when the database is away."""
        found = self._ask(select(func.count()).select_from(outbox))
        return found[0] if found else 0

    def tell(self, ledger: Ledger) -> None:
        """Write down what was committed, and how many rows are left, as the database has it. Nothing if it is away."""
        keys, rows = self._ask(select(orders.c.key).order_by(orders.c.key)), self.rows()
        for start in range(0, max(len(keys or ()), 1) if keys is not None else 0, LINE):
            ledger.write("committed", rows, *(keys or ())[start : start + LINE])

    def _ask(self, query: Any) -> list[Any] | None:
        try:
            with self._engine.connect() as connection:
                return list(connection.execute(query).scalars())
        except SQLAlchemyError:
            return None

    def close(self) -> None:
        """End the seller and the database."""
        if self.seller is not None:
            self.seller.kill()
            self.seller.wait(10)
        self._engine.dispose()
        self.database.stop()
