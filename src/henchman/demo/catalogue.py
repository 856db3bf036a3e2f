"""The demo's shop: a SQLite file that many jobs in several processes write to.

A job may run twice (a time-out that strikes after the commit, a worker that was killed), so every write of a product is
an upsert: the second run changes nothing but the count of ``writes``. SQLite lets one writer in at a time: inside a
process a lock keeps the order, between processes SQLite's own busy wait does.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, NamedTuple

from henchman.demo.products import PriceChange, Product

__all__ = ["Catalogue", "HandledChange"]

BUSY = 10.0  # seconds to wait for another writer
COLUMNS = tuple(one.name for one in fields(Product))
SCHEMA = f"""
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS products (
    {", ".join(COLUMNS)}, retail INTEGER NOT NULL, writes INTEGER NOT NULL DEFAULT 1, PRIMARY KEY (sku));
CREATE TABLE IF NOT EXISTS offers (sku TEXT PRIMARY KEY, version INTEGER, price INTEGER, token INTEGER);
CREATE TABLE IF NOT EXISTS changes (
    sku TEXT, version INTEGER, token INTEGER, began REAL, ended REAL, written INTEGER);
CREATE TABLE IF NOT EXISTS called (batch TEXT);
"""
PUT_PRODUCT = f"""
INSERT INTO products ({", ".join(COLUMNS)}, retail) VALUES ({", ".join("?" * len(COLUMNS))}, ?)
ON CONFLICT (sku) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in (*COLUMNS, "retail"))},
    writes = writes + 1"""  # noqa: S608 - made of our own column names
# A version that is older than the one there came too late; a lower token is the word of a process that lost the
# product to another.
PUT_OFFER = """
INSERT INTO offers (sku, version, price, token) VALUES (?, ?, ?, ?)
ON CONFLICT (sku) DO UPDATE SET version = excluded.version, price = excluded.price, token = excluded.token
    WHERE excluded.version > version AND excluded.token >= token"""


class HandledChange(NamedTuple):
    """A price change that was handled by the claim ``token``, from ``began`` to ``ended`` on this machine's monotonic
    clock; ``written``: it was newer than the price there."""

    sku: str
    version: int
    token: int
    began: float
    ended: float
    written: bool


class Catalogue:
    """The file at ``path``; one connection, safe to use from many threads."""

    def __init__(self, path: Path | str) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=BUSY, isolation_level="IMMEDIATE", check_same_thread=False)
        self._db.executescript(SCHEMA)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def put(self, product: Product, price: int) -> None:
        """Store the product, at ``price`` euro cents."""
        self.write(PUT_PRODUCT, (*astuple(product), price))

    def change_prices(self, claim: Mapping[str, Sequence[PriceChange]], token: int, began: float) -> None:
        """Write the changes of each product that are newer than the price there, lowest version first."""
        with self._lock, self._db as db:
            for sku, changes in claim.items():
                for one in changes:
                    written = db.execute(PUT_OFFER, (sku, one.version, one.price, token)).rowcount
                    change = HandledChange(sku, one.version, token, began, time.monotonic(), bool(written))
                    db.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?)", change)

    def write(self, statement: str, values: Sequence[object]) -> None:
        """Execute one statement, in a transaction of its own."""
        with self._lock, self._db as db:
            db.execute(statement, values)

    def read(self, query: str) -> list[Any]:
        """Every row that ``query`` finds."""
        with self._lock:
            return self._db.execute(query).fetchall()

    def products(self) -> dict[str, tuple[Product, int]]:
        """Every product with its price, by SKU."""
        found = self.read(f"SELECT {', '.join(COLUMNS)}, retail FROM products")  # noqa: S608
        return {line[0]: (Product(*line[:-1]), line[-1]) for line in found}

    def prices(self) -> dict[str, PriceChange]:
        """The price that the latest change gave each product."""
        return {sku: PriceChange(*one) for sku, *one in self.read("SELECT sku, version, price FROM offers")}

    def changes(self) -> list[HandledChange]:
        """Every change that was handled, in the order of their writing."""
        return [HandledChange(*one) for one in self.read("SELECT * FROM changes ORDER BY rowid")]

    def called(self) -> list[str]:
        """The batches that have called back, once for each time."""
        return [batch for (batch,) in self.read("SELECT batch FROM called")]
