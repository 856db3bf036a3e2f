"""What the demo's products cost now: price changes that arrive out of order, and who wrote which of them when.

Several producers send new prices at once, each with a rising version, none knows of the others. A product's latest
version is what must stand in the catalogue at the end. The ledger beside it notes every turn that a product had, so
that the demo can show that no two of them overlapped.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from henchman.demo.catalogue import Catalogue
from henchman.demo.products import Row, clean
from henchman.errors import Failure

__all__ = ["PRODUCERS", "VERSIONS", "Change", "Offers", "PriceChange", "Prices", "Turn", "planned", "produced", "wrong"]

PRODUCERS = 3
VERSIONS = 4  # price changes of a product
EVERY = 10  # products change their price, one in so many
SEED = 11
# A change that is older than what stands there came too late; a token that is lower is the word of somebody who lost
# the product to another.
PUT_OFFER = """
INSERT INTO offers (sku, version, price, token) VALUES (?, ?, ?, ?)
ON CONFLICT (sku) DO UPDATE SET version = excluded.version, price = excluded.price, token = excluded.token
    WHERE excluded.version > version AND excluded.token >= token"""
PUT_CHANGE = "INSERT INTO changes (sku, version, token, written) VALUES (?, ?, ?, ?)"
PUT_TURN = "INSERT INTO turns (sku, token, began, ended) VALUES (?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class PriceChange:
    """From ``version`` on a product costs ``price`` euro cents."""

    version: int
    price: int


class Change(NamedTuple):
    """A price change that was handled; ``written``: it was newer than what stood there."""

    sku: str
    version: int
    token: int
    written: bool


class Turn(NamedTuple):
    """One product in the hands of one handler, from ``began`` to ``ended`` on this machine's monotonic clock."""

    sku: str
    token: int
    began: float
    ended: float


class _OfProduct(Protocol):
    @property
    def sku(self) -> str: ...


T = TypeVar("T", bound=_OfProduct)


class Prices(NamedTuple):
    """The figures of the summary: products, their changes, and how many of these came too late to be written."""

    products: int
    changes: int
    turns: int
    late: int


class Offers:
    """The prices in the catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def change(self, claim: Mapping[str, Sequence[PriceChange]], token: int, began: float) -> None:
        """Write the changes of each product that are newer than what stands there, lowest version first."""
        with self._catalogue.writing() as db:
            for sku, changes in claim.items():
                for one in changes:
                    written = db.execute(PUT_OFFER, (sku, one.version, one.price, token)).rowcount
                    db.execute(PUT_CHANGE, (sku, one.version, token, written))
                db.execute(PUT_TURN, (sku, token, began, time.monotonic()))

    def now(self) -> dict[str, PriceChange]:
        """What each product costs."""
        rows = self._catalogue.read("SELECT sku, version, price FROM offers")
        return {sku: PriceChange(version, price) for sku, version, price in rows}

    def changes(self) -> list[Change]:
        """Every change that was handled, in the order of their writing."""
        rows = self._catalogue.read("SELECT sku, version, token, written FROM changes ORDER BY rowid")
        return [Change(sku, version, token, bool(written)) for sku, version, token, written in rows]

    def turns(self) -> list[Turn]:
        """Every turn of every product, by their beginnings."""
        return [Turn(*row) for row in self._catalogue.read("SELECT sku, token, began, ended FROM turns ORDER BY began")]

    def figures(self) -> Prices:
        """For the summary."""
        changes = self.changes()
        late = sum(not one.written for one in changes)
        return Prices(len({one.sku for one in changes}), len(changes), len(self.turns()), late)


# ---- what is to come


def planned(rows: Iterable[Row]) -> dict[str, list[PriceChange]]:
    """Every tenth product that can be imported, with its changes, oldest first."""
    return {
        sku: [PriceChange(number, _price(sku, number)) for number in range(1, VERSIONS + 1)]
        for sku in islice(_good(rows), 0, None, EVERY)
    }


def _good(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        try:
            yield clean(row).sku
        except Failure:
            continue


def _price(sku: str, version: int) -> int:
    return 100 + zlib.crc32(f"{sku} {version}".encode()) % 100_000


def produced(plan: Mapping[str, Sequence[PriceChange]], producer: int) -> list[tuple[str, PriceChange, int]]:
    """What one producer sends: (sku, change, its version as the score), thoroughly mixed up."""
    mine = [
        (sku, one, one.version)
        for sku, changes in plan.items()
        for one in changes
        if zlib.crc32(f"{one.version} {sku}".encode()) % PRODUCERS == producer
    ]
    Random(SEED + producer).shuffle(mine)  # noqa: S311 - a show, the same at each run
    return mine


# ---- the proof


def wrong(plan: Mapping[str, Sequence[PriceChange]], offers: Offers) -> Iterator[str]:
    """One line for each product whose price is not its newest, or whose changes were not handled one after another."""
    now, handled, turns = offers.now(), _by_sku(offers.changes()), _by_sku(offers.turns())
    for sku, changes in plan.items():
        mine = handled.pop(sku, [])
        missing = {one.version for one in changes} - {one.version for one in mine}
        if missing:
            yield f"{sku}: price changes {sorted(missing)} were never handled"
        if now.get(sku) != changes[-1]:
            yield f"{sku}: the price is {now.get(sku)}; it should be {changes[-1]}"
        if any(one.token == after.token and one.version > after.version for one, after in pairwise(mine)):
            yield f"{sku}: a turn did not get its changes by version"
        written = [one.version for one in mine if one.written]
        if written != sorted(written):
            yield f"{sku}: the price went back: versions {written} were written in this order"
        for one, after in pairwise(turns.get(sku, [])):
            if after.began < one.ended:
                yield f"{sku}: two had it at once, with the tokens {one.token} and {after.token}"
            elif after.token <= one.token:
                yield f"{sku}: the token {after.token} came after {one.token}"
    for sku in handled:
        yield f"{sku}: a price was changed that nobody asked to change"


def _by_sku(things: Iterable[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for one in things:
        found.setdefault(one.sku, []).append(one)
    return found
