"""The demo's product file: 10,000 rows as a supplier sends them, made by a seeded function, the same at each run.

About nine rows in ten can be imported. Some of these are untidy (decimal commas, odd spaces, kilograms for grams): the
import mends them. The rest is wrong, and the import refuses each wrong row for one reason. All brands are invented.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

__all__ = ["COUNT", "EURO", "Row", "made", "rows"]

COUNT = 10_000
SEED = 20260301
REPEATED, REPEATS = "SKU repeats an earlier row", 0.009
EURO = {"EUR": 100, "USD": 109, "GBP": 85, "CHF": 95, "PLN": 428, "CZK": 2510, "SEK": 1125, "JPY": 16200}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the file as it stands there; ``number`` counts from 1, ``first`` is the first row with this SKU."""

    number: int
    first: int
    sku: str
    ean: str
    name: str
    weight: str
    price: str
    currency: str
    available_from: str
    available_until: str


CURRENCIES = ("EUR",) * 7 + tuple(EURO)
BRANDS = (
    "Arvela",
    "Brightwell & Sons",
    "Casa Lumo",
    "Dröm",
    "Ékla",
    "Fjordhus",
    "Grünwerk",
    "Hokuto Works",
    "Ilmari",
    "Juniper & Rye",
    "Kolibřík",
    "Lagom",
    "Maison Veyre",
    "O'Dell",
    "Pequeño Sol",
    "Umbra Nova",
    "Valdør",
    "Żubrówek",
)
QUALITIES = ("Classic ", "Compact ", "Deluxe ", "Handmade ", "Heavy-Duty ", "Recycled ", "Travel ", "", "", "", "", "")
EXTRAS = (*[""] * 300, " 🎁", " ✨ NEW", " 🌿 vegan", " 🇫🇷", " 👩‍🍳")
#: the code in the SKU, names, sizes, the most that one costs (euro cents), the most that one weighs (grams)
SHELVES = (
    ("KIT", "Saucepan|Colander|French Press|Schöpfkanne|Džbán|Κατσαρόλα|炒锅|急須", "1 l|2.5 l", 14900, 3800),
    ("GRO", "Rolled Oats|Green Tea|Acacia Honey|Müsli|Гречка ядрица|龙井茶|زعتر بلدي", "100 g|250 g|1 kg", 1890, 1100),
    ("CLO", "T-Shirt|Chinos|Lodenjacke|Camisa de lino|Ζακέτα πλεκτή|浴衣|Terlik", "XS|S|M|L|XL|XXL", 19900, 1600),
    ("TOY", "Marble Run|Rag Doll|Klocki drewniane|Παζλ|Матрёшка|積み木|곰인형", "24 pieces|100 pieces", 8900, 3200),
    ("GAR", "Hand Trowel|Planter|Gießkanne|Zahradní nůžky|Лейка|植木鉢|호미", "single|set of 2|set of 3", 12900, 9000),
    ("OFF", "Notebook|Pencils HB|Trombones dorés|Zeszyt w kratkę|Τετράδιο|毛笔", "A4|A5|pack of 12", 2900, 900),
    ("ELE", "USB-C Cable|Webcam|Kopfhörer|Câble tressé|Sluchátka|充電器|케이블", "single|twin pack", 24900, 1500),
)  # fmt: skip

_Flaw = Callable[[Random, str], str]


def _one_of(*forms: str) -> _Flaw:
    return lambda rng, text: rng.choice(forms).format(text)


def _other_unit(rng: Random, text: str) -> str:
    grams = int(text.split()[0])
    return rng.choice((f"{grams / 1000:g} kg", f"{grams / 28.349523:.1f} oz", f"{grams}g", f"{grams} G"))


def _wrong_ean(rng: Random, ean: str) -> str:
    other = (int(ean[-1]) + 1 + rng.randrange(9)) % 10
    return rng.choice((f"{ean[:-1]}{other}", ean[:-1], f"{ean[:5]}O{ean[6:]}"))


#: what the import mends: share of the rows, column, what becomes of it
UNTIDY: tuple[tuple[float, str, _Flaw], ...] = (
    (0.050, "price", lambda rng, text: text.replace(".", ",")),
    (0.040, "name", _one_of("  {}", "{}   ", "\u00a0{} ", "{}\t")),
    (0.020, "sku", _one_of("{} ")),
    (0.030, "currency", lambda rng, text: rng.choice((text.lower(), f" {text} "))),
    (0.030, "ean", lambda rng, text: rng.choice((f"{text[0]} {text[1:7]} {text[7:]}", f"{text[:3]}-{text[3:]}"))),
    (0.010, "name", lambda rng, text: html.escape(text.replace(", ", " & ", 1))),
    (0.040, "weight", _other_unit),
    (0.020, "available_from", lambda rng, text: date.fromisoformat(text).strftime("%d.%m.%Y")),
)
#: what the import refuses: share of the rows, reason, column, what becomes of it
WRONG: tuple[tuple[float, str, str, _Flaw], ...] = (
    (0.008, "name is missing", "name", _one_of("", "   ", "\u00a0", "\t")),
    (0.007, "name contains HTML", "name", _one_of("<b>{}</b>", "{}<br/>", '<span style="color:red">SALE</span> {}')),
    (0.010, "price is negative", "price", _one_of("-{}")),
    (0.007, "price is absurd", "price", _one_of("0.00", "999999.99", "10000000", "0")),
    (0.006, "price is not a number", "price", _one_of("", "n/a", "auf Anfrage", "12.3.4", "#REF!")),
    (0.012, "currency is unknown", "currency", _one_of("", "€", "ERU", "DM", "BTC", "Euros")),
    (0.018, "EAN is malformed", "ean", _wrong_ean),
    (0.008, "dates are in the wrong order", "available_until", _one_of("2023-10-24", "2022-02-28")),
    (0.007, "weight is in no unit of weight", "weight", _one_of("250 ml", "30 cm", "450", "heavy")),
)


def rows(most: int = COUNT) -> list[Row]:
    """The first ``most`` rows of the file."""
    return [row for row, _ in made(most)]


def made(most: int = COUNT) -> Iterator[tuple[Row, str]]:
    """The first ``most`` rows, each with the reason for which the import must refuse it; "": it must be imported."""
    rng = Random(SEED)  # noqa: S311 - a show
    first: dict[str, int] = {}
    for number in range(1, min(most, COUNT) + 1):
        row = _product(rng, number)
        if first and rng.random() < REPEATS:  # the SKU of an earlier row, with other data: which one is meant?
            row["sku"], reason = rng.choice(list(first)), REPEATED
        else:
            reason = _spoil(rng, row)
        yield Row(number, first.setdefault(row["sku"].strip(), number), **row), reason


def _product(rng: Random, number: int) -> dict[str, str]:
    """A good row, written tidily."""
    code, names, sizes, dearest, heaviest = rng.choice(SHELVES)
    name = f"{rng.choice(QUALITIES)}{rng.choice(names.split('|'))}, {rng.choice(sizes.split('|'))}"
    currency = rng.choice(CURRENCIES)
    cents = (90 + int(dearest * rng.random() ** 3)) * EURO[currency] // 100  # many cheap products, few dear ones
    digits = rng.choice(("400", "301", "590", "859", "490", "690")) + f"{rng.randrange(10**9):09d}"
    start = date(2024, 1, 1) + timedelta(days=rng.randrange(900))
    end = start + timedelta(days=30 + rng.randrange(700)) if rng.random() < 0.4 else ""
    return {
        "sku": f"{code}-{100_000 + number * 7}",
        "ean": digits + str(-sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(digits)) % 10),
        "name": f"{rng.choice(BRANDS)} {name}{rng.choice(EXTRAS)}",
        "weight": f"{20 + int(heaviest * rng.random() ** 2)} g",
        "price": f"{cents // 100}.{cents % 100:02d}",
        "currency": currency,
        "available_from": str(start),
        "available_until": str(end),
    }


def _spoil(rng: Random, row: dict[str, str]) -> str:
    """Put one flaw that the import refuses into some rows, and small ones that it mends into others; the reason."""
    draw = rng.random()
    for share, reason, column, flaw in WRONG:
        draw -= share
        if draw < 0:
            row[column] = flaw(rng, row[column])
            return reason
    for share, column, flaw in UNTIDY:
        if rng.random() < share:
            row[column] = flaw(rng, row[column])
    return ""
