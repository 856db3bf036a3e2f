"""The demo's product file: reading it, and turning a row into a product or a refusal.

``clean`` mends what is only untidy (decimal commas, spaces, pounds for grams) and refuses the rest with one clear
reason: the first that applies, so that a row is always refused for the same one. Nothing here knows about jobs
beyond ``Failure``. The file is made by ``examples/products/generate.py``.
"""

from __future__ import annotations

import csv
import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path

from henchman.errors import Failure

__all__ = ["CURRENCIES", "FILE", "Product", "Row", "clean", "read"]

FILE = Path(__file__).with_name("products.csv")
CURRENCIES = frozenset({"EUR", "USD", "GBP", "CHF", "PLN", "CZK", "SEK", "JPY"})
MOST = Decimal(250_000)  # dearer than this, in any of our currencies, is a slip of the keyboard
GRAMS = {"g": Decimal(1), "kg": Decimal(1000), "oz": Decimal("28.349523"), "lb": Decimal("453.59237")}
TAG = re.compile(r"</?[a-zA-Z][^>]*>")
WEIGHT = re.compile(r"(\d+(?:[.,]\d+)?)\s*([a-z]*)", re.IGNORECASE)
DATE_FORMS = ("%Y-%m-%d", "%d.%m.%Y")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the file as it stands there; ``number`` counts from 1, ``first`` is the first row with this SKU."""

    number: int
    first: int
    sku: str
    ean: str
    name: str
    brand: str
    category: str
    size: str
    weight: str
    price: str
    currency: str
    stock: str
    available_from: str
    available_until: str


@dataclass(frozen=True, slots=True)
class Product:
    """A product fit for the catalogue; ``cost`` is in hundredths of ``currency``, ``weight`` in grams."""

    sku: str
    ean: str
    name: str
    brand: str
    category: str
    size: str
    weight: int
    cost: int
    currency: str
    stock: int
    available_from: str
    available_until: str | None


def read(path: Path = FILE, most: int | None = None) -> Iterator[Row]:
    """The rows of the file, read lazily, at most ``most``."""
    first: dict[str, int] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for number, line in enumerate(csv.DictReader(file), start=1):
            if most is not None and number > most:
                return
            yield Row(number=number, first=first.setdefault(line["sku"].strip(), number), **line)


def clean(row: Row) -> Product:
    """The product that ``row`` means; Failure with the reason when it cannot be imported."""
    if row.first != row.number:
        raise Failure("SKU repeats an earlier row")
    name = _name(row.name)
    cost = _cost(row.price)
    currency = row.currency.strip().upper()
    if currency not in CURRENCIES:
        raise Failure("currency is unknown")
    start = _date(row.available_from)
    end = _date(row.available_until) if row.available_until.strip() else None
    if end is not None and end < start:
        raise Failure("dates are in the wrong order")
    return Product(
        sku=row.sku.strip(),
        ean=_ean(row.ean),
        name=name,
        brand=row.brand,
        category=row.category,
        size=row.size,
        weight=_grams(row.weight),
        cost=cost,
        currency=currency,
        stock=int(row.stock),
        available_from=start.isoformat(),
        available_until=end.isoformat() if end else None,
    )


def _name(text: str) -> str:
    name = " ".join(html.unescape(text).split())
    if not name:
        raise Failure("name is missing")
    if TAG.search(name):
        raise Failure("name contains HTML")
    return name


def _cost(text: str) -> int:
    try:
        price = Decimal(text.strip().replace(",", "."))
    except InvalidOperation:
        raise Failure("price is not a number") from None
    if not price.is_finite():
        raise Failure("price is not a number")
    if price < 0:
        raise Failure("price is negative")
    if not 0 < price <= MOST:
        raise Failure("price is absurd")
    return int((price * 100).to_integral_value())


def _ean(text: str) -> str:
    ean = re.sub(r"[\s-]", "", text)
    if len(ean) != 13 or not (ean.isascii() and ean.isdigit()):
        raise Failure("EAN is malformed")
    if sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(ean)) % 10:
        raise Failure("EAN is malformed")
    return ean


def _grams(text: str) -> int:
    found = WEIGHT.fullmatch(text.strip())
    unit = GRAMS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise Failure("weight is in no unit of weight")
    return int((Decimal(found[1].replace(",", ".")) * unit).to_integral_value())


def _date(text: str) -> date:
    for form in DATE_FORMS:
        try:
            return datetime.strptime(text.strip(), form).date()  # noqa: DTZ007 - a date has no time zone
        except ValueError:
            continue
    raise Failure("date is not a date")
