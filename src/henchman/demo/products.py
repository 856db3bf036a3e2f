"""What the demo's jobs are about: rows of a product file, products, made of rows or refused, and their prices.

The file has 10,000 rows as a supplier sends them, made by a seeded function, the same at each run. About nine rows in
ten can be imported; some of these are untidy (decimal commas, odd spaces, kilograms for grams). The rest is wrong, and
refused for one reason each. All brands are invented.

``clean`` mends what is only untidy and refuses the rest with one reason: the first that applies, so that a row is
always refused for the same one. Nothing here knows about jobs beyond ``Failure``.
"""

from __future__ import annotations

import html
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from random import Random

from henchman.errors import Failure

__all__ = ["COUNT", "PRODUCERS", "VERSIONS", "PriceChange", "PriceError", "Product", "Row", "made", "rows"]

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
