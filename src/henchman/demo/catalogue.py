"""The demo's catalogue: a SQLite file that many jobs in several processes write to, and the demo's ledger in it.

A job may run twice (a time-out that strikes after the commit, a worker that was killed), so every write is an upsert:
the second run changes nothing but the count of ``runs``. A product and the line in the ledger that says so are one
transaction. SQLite lets one writer in at a time: inside a process a lock keeps the order, between processes
SQLite's own busy wait does.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from henchman.demo.products import Product

__all__ = ["Catalogue", "Counts", "Result", "Run", "Slow"]

BUSY = 10.0  # seconds to wait for another writer
COLUMNS = tuple(one.name for one in fields(Product))
SCHEMA = f"""
CREATE TABLE products (
    {", ".join(f"{name} NOT NULL" for name in COLUMNS[:-1])}, {COLUMNS[-1]}, price INTEGER NOT NULL,
    writes INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (sku));
CREATE TABLE results (
    row INTEGER PRIMARY KEY, outcome TEXT NOT NULL, reason TEXT NOT NULL, sku TEXT NOT NULL,
    attempts INTEGER NOT NULL, ms REAL NOT NULL, runs INTEGER NOT NULL DEFAULT 1);
CREATE TABLE errors (
    row INTEGER NOT NULL, attempt INTEGER NOT NULL, error TEXT NOT NULL, ms REAL NOT NULL,
    PRIMARY KEY (row, attempt)) WITHOUT ROWID;
CREATE TABLE called (batch TEXT NOT NULL);
CREATE TABLE offers (sku TEXT PRIMARY KEY, version INTEGER NOT NULL, price INTEGER NOT NULL, token INTEGER NOT NULL);
CREATE TABLE changes (
    sku TEXT NOT NULL, version INTEGER NOT NULL, token INTEGER NOT NULL, written INTEGER NOT NULL);
CREATE TABLE turns (sku TEXT NOT NULL, token INTEGER NOT NULL, began REAL NOT NULL, ended REAL NOT NULL);
"""
PUT_PRODUCT = f"""
INSERT INTO products ({", ".join(COLUMNS)}, price) VALUES ({", ".join("?" * len(COLUMNS))}, ?)
ON CONFLICT (sku) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in (*COLUMNS, "price"))},
    writes = writes + 1"""  # noqa: S608 - made of our own column names
PUT_RESULT = """
INSERT INTO results (row, outcome, reason, sku, attempts, ms) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (row) DO UPDATE SET outcome = excluded.outcome, reason = excluded.reason, sku = excluded.sku,
    attempts = excluded.attempts, ms = excluded.ms, runs = runs + 1"""
PUT_ERROR = "INSERT OR REPLACE INTO errors (row, attempt, error, ms) VALUES (?, ?, ?, ?)"
OUTCOMES = "SELECT outcome, count(*) FROM results GROUP BY outcome"
OPEN_ERRORS = "SELECT count(DISTINCT row) FROM errors WHERE row NOT IN (SELECT row FROM results)"
HEALED = """
SELECT error, count(*) FROM errors WHERE row IN (SELECT row FROM results WHERE outcome <> 'dead')
GROUP BY error ORDER BY 2 DESC, error"""
REASONS = "SELECT reason, count(*) FROM results WHERE outcome = ? GROUP BY reason ORDER BY 2 DESC, reason"
SLOWEST = """
SELECT r.row, r.sku, r.attempts, r.ms + coalesce((SELECT sum(ms) FROM errors e WHERE e.row = r.row), 0) AS total
FROM results r ORDER BY total DESC LIMIT 1"""


class Counts(NamedTuple):
    """How far the import is, in rows."""

    imported: int
    refused: int
    dead: int
    retrying: int
    price_changes: int = 0

    @property
    def settled(self) -> int:
        """Rows whose job has ended for good."""
        return self.imported + self.refused + self.dead


class Result(NamedTuple):
    """What became of one row: ``outcome`` is "imported", "refused" or "dead"; ``runs``: how often it was settled."""

    row: int
    outcome: str
    reason: str
    sku: str
    attempts: int
    ms: float
    runs: int


class Slow(NamedTuple):
    """The job that kept a slot busy longest, over all its attempts."""

    row: int
    sku: str
    attempts: int
    ms: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one job: which row, which attempt, and how long it took in milliseconds."""

    row: int
    attempt: int
    ms: float


class Catalogue:
    """The file at ``path``; one connection, safe to use from many threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA synchronous = NORMAL")

    @classmethod
    def create(cls, path: Path) -> Catalogue:
        """A new, empty catalogue, ready for many writers."""
        made = cls(path)
        made._db.execute("PRAGMA journal_mode = WAL")
        made._db.executescript(SCHEMA)
        return made

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    # ---- written by jobs

    def put(self, product: Product, price: int, run: Run) -> None:
        """The product is imported, at ``price`` euro cents."""
        with self.writing() as db:
            db.execute(PUT_PRODUCT, (*astuple(product), price))
            db.execute(PUT_RESULT, (run.row, "imported", "", product.sku, run.attempt, run.ms))

    def refuse(self, sku: str, reason: str, run: Run) -> None:
        """The row is refused for good."""
        with self.writing() as db:
            db.execute(PUT_RESULT, (run.row, "refused", reason, sku, run.attempt, run.ms))

    def bury(self, sku: str, error: str, run: Run) -> None:
        """The row's job has failed for the last time."""
        with self.writing() as db:
            db.execute(PUT_RESULT, (run.row, "dead", error, sku, run.attempt, run.ms))

    def stumble(self, error: str, run: Run) -> None:
        """This run failed and will be tried again."""
        with self.writing() as db:
            db.execute(PUT_ERROR, (run.row, run.attempt, error, run.ms))

    def note(self, batch: str) -> None:
        """The batch has called back."""
        with self.writing() as db:
            db.execute("INSERT INTO called VALUES (?)", (batch,))

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, of which nothing stays when the block is left by an error."""
        with self._lock:
            if self._db.in_transaction:  # a time-out struck between BEGIN and its try
                self._db.rollback()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.rollback()
                raise
            self._db.commit()

    # ---- read by the demo

    def read(self, query: str) -> list[Any]:
        """Every row that ``query`` finds."""
        with self._lock:
            return self._db.execute(query).fetchall()

    def counts(self) -> Counts:
        """How far the import is."""
        with self._lock:
            by = {str(outcome): int(count) for outcome, count in self._db.execute(OUTCOMES)}
            (retrying,) = self._db.execute(OPEN_ERRORS).fetchone()
        return Counts(by.get("imported", 0), by.get("refused", 0), by.get("dead", 0), int(retrying))

    def price_changes(self) -> int:
        """How many price changes were handled."""
        return int(self.read("SELECT count(*) FROM changes")[0][0])

    def called(self) -> list[str]:
        """The batches that have called back, once for each time."""
        return [batch for (batch,) in self.read("SELECT batch FROM called")]

    def results(self) -> Iterator[Result]:
        """The whole ledger, in order of rows."""
        with self._lock:
            lines = self._db.execute("SELECT row, outcome, reason, sku, attempts, ms, runs FROM results ORDER BY row")
            return iter([Result(*line) for line in lines])

    def products(self) -> dict[str, tuple[Product, int]]:
        """Every product with its price, by SKU."""
        with self._lock:
            lines = self._db.execute(f"SELECT {', '.join(COLUMNS)}, price FROM products").fetchall()  # noqa: S608
        return {line[0]: (Product(*line[:-1]), line[-1]) for line in lines}

    def reasons(self, outcome: str = "refused") -> list[tuple[str, int]]:
        """Why rows were refused (or are dead), most frequent first."""
        with self._lock:
            return self._db.execute(REASONS, (outcome,)).fetchall()

    def healed(self) -> list[tuple[str, int]]:
        """Errors after which a later attempt settled the row, most frequent first."""
        return self.read(HEALED)

    def slowest(self) -> Slow | None:
        """The slowest job, or None when nothing has run."""
        with self._lock:
            line = self._db.execute(SLOWEST).fetchone()
        return Slow(*line) if line else None
