"""What the demo's jobs are about: products, made of rows or refused, and their prices.

``clean`` mends what is only untidy and refuses the rest with one reason: the first that applies, so that a row is
always refused for the same one. Nothing here knows about jobs beyond ``Failure``.
"""

from __future__ import annotations

import html
import re
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from random import Random

from henchman.demo.rows import EURO, Row
from henchman.errors import Failure

__all__ = ["PRODUCERS", "VERSIONS", "PriceChange", "PriceError", "Product"]
__all__ += ["ask", "clean", "meant", "misbehaviour", "planned", "produced", "retail"]

DEAREST = Decimal(250_000)  # dearer than this, in any of our currencies, is a slip of the keyboard
GRAMS = {"g": Decimal(1), "kg": Decimal(1000), "oz": Decimal("28.349523"), "lb": Decimal("453.59237")}
WEIGHT = re.compile(r"(\d+(?:[.,]\d+)?)\s*([a-z]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Product:
    """A product fit for the catalogue; ``cost`` is in hundredths of ``currency``, ``weight`` in grams."""

    sku: str
    ean: str
    name: str
    weight: int
    cost: int
    currency: str
    available_from: str
    available_until: str | None


def clean(row: Row) -> Product:
    """The product that ``row`` means; Failure with the reason when it cannot be imported."""
    _refuse_if(row.first != row.number, "SKU repeats an earlier row")
    name = " ".join(html.unescape(row.name).split())
    _refuse_if(not name, "name is missing")
    _refuse_if(re.search(r"</?[a-zA-Z][^>]*>", name), "name contains HTML")
    cost = _cost(row.price)
    currency = row.currency.strip().upper()
    _refuse_if(currency not in EURO, "currency is unknown")
    start = _date(row.available_from)
    end = _date(row.available_until) if row.available_until.strip() else None
    _refuse_if(end is not None and end < start, "dates are in the wrong order")
    ean = re.sub(r"[\s-]", "", row.ean)
    _refuse_if(not re.fullmatch(r"[0-9]{13}", ean), "EAN is malformed")
    check = sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(ean))
    _refuse_if(check % 10, "EAN is malformed")
    until = end.isoformat() if end else None
    return Product(row.sku.strip(), ean, name, _grams(row.weight), cost, currency, start.isoformat(), until)


def meant(row: Row) -> Product | str:
    """The product that the row means, or the reason for which it is refused."""
    try:
        return clean(row)
    except Failure as failure:
        return str(failure)


def _refuse_if(wrong: object, reason: str) -> None:
    if wrong:
        raise Failure(reason)


def _cost(text: str) -> int:
    try:
        price = Decimal(text.strip().replace(",", "."))
    except InvalidOperation:
        raise Failure("price is not a number") from None
    _refuse_if(not price.is_finite(), "price is not a number")
    _refuse_if(price < 0, "price is negative")
    _refuse_if(not 0 < price <= DEAREST, "price is absurd")
    return int((price * 100).to_integral_value())


def _grams(text: str) -> int:
    found = WEIGHT.fullmatch(text.strip())
    unit = GRAMS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise Failure("weight is in no unit of weight")
    return int((Decimal(found[1].replace(",", ".")) * unit).to_integral_value())


def _date(text: str) -> date:
    for form in ("%Y-%m-%d", "%d.%m.%Y"):
        try:
            return datetime.strptime(text.strip(), form).date()  # noqa: DTZ007 - a date has no time zone
        except ValueError:
            continue
    raise Failure("date is not a date")


# ---- the price service: it stands in for one across the net, and misbehaves as those do

ANSWER = 0.004  # seconds that a good answer takes
#: a draw below this, of 1000 → what the service does to the first attempts; later ones succeed, so retries heal all
ACTS = ((30, ("503",)), (45, ("drop",)), (48, ("stall",)), (56, ("503", "503")), (60, ("drop", "503")))


class PriceError(Exception):
    """The price service did not answer, or answered with an error; worth another try."""


def misbehaviour(sku: str) -> tuple[str, ...]:
    """What the service does to the first attempts for ``sku``, by a hash of it: "503", "drop" or "stall" each."""
    draw = zlib.crc32(f"7:{sku}".encode()) % 1000
    return next((acts for limit, acts in ACTS if draw < limit), ())


def ask(product: Product, attempt: int) -> int:
    """Today's price of ``product`` in euro cents; PriceError when the service does not give one. When it stalls, only
    the job's own ``timeout=`` helps."""
    time.sleep(ANSWER)
    act = dict(enumerate(misbehaviour(product.sku), start=1)).get(attempt)
    while act == "stall":
        time.sleep(ANSWER)
    if act == "503":
        raise PriceError("price service answered 503")
    if act == "drop":
        raise PriceError("price service broke off")
    return retail(product)


def retail(product: Product) -> int:
    """What the shop asks, in euro cents: the cost in euro, and a margin of 20 to 60 %."""
    margin = 120 + zlib.crc32(product.sku.encode()) % 41
    return max(1, product.cost * margin // EURO[product.currency])


# ---- price changes: what three producers send, each out of order and unaware of the others

PRODUCERS = 3
VERSIONS = 4  # price changes of a product
EVERY = 10  # products change their price, one in so many


@dataclass(frozen=True, slots=True)
class PriceChange:
    """From ``version`` on a product costs ``price`` euro cents."""

    version: int
    price: int


def planned(rows: Iterable[Row]) -> dict[str, list[PriceChange]]:
    """Every tenth product that can be imported, with its changes, oldest first."""
    good = [product.sku for row in rows if isinstance(product := meant(row), Product)]
    return {
        sku: [
            PriceChange(version, zlib.crc32(f"{sku} {version}".encode()) % 100_000)
            for version in range(1, VERSIONS + 1)
        ]
        for sku in good[::EVERY]
    }


def produced(plan: dict[str, list[PriceChange]], producer: int) -> list[tuple[str, PriceChange, int]]:
    """What one producer sends, in its order: (SKU, change, version); each change has one producer."""
    everything = [(sku, one, one.version) for sku, changes in plan.items() for one in changes]
    Random(11).shuffle(everything)  # noqa: S311 - a show, the same at each run
    return everything[producer::PRODUCERS]
