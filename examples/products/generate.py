"""Makes the 10,000-row product file that ``henchman demo`` imports: the same bytes each time it is run.

The file is what a supplier really sends: mostly good, some of it untidy (decimal commas, odd spaces, lower-case
currencies, pounds for grams: an import should mend these), some of it wrong (an import must refuse these, each with
its reason). ``rows()`` also tells which flaw was put into which row, so that tests can hold the import to it.

    python examples/products/generate.py            # writes the file anew
    python examples/products/generate.py --check    # exit 1 if the committed file is not what this script makes
"""

from __future__ import annotations

import csv
import html
import io
import sys
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path
from random import Random

from words import BRANDS, COLOURS, CURRENCIES, GROUPS, QUALITIES

SEED = 20260301
COUNT = 10_000
PATH = Path(__file__).resolve().parents[2] / "src" / "henchman" / "demo" / "products.csv"
COLUMNS = (
    "sku", "ean", "name", "brand", "category", "size", "weight", "price", "currency", "stock", "available_from",
    "available_until",
)  # fmt: skip

Row = dict[str, str]


def ean13(rng: Random) -> str:
    """A 13-digit article number with a right check digit."""
    prefix = rng.choice(("400", "403", "301", "590", "859", "520", "460", "490", "880", "690", "841", "871", "501"))
    digits = prefix + f"{rng.randrange(10**9):09d}"
    total = sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(digits))
    return digits + str(-total % 10)


def product(rng: Random, number: int) -> Row:
    """A good product, written tidily."""
    group = rng.choice(GROUPS)
    brand = rng.choice(BRANDS)
    size = rng.choice(group.sizes.split("|"))
    colour, short = rng.choice(COLOURS) if group.coloured else ("", "STD")
    if rng.random() < 0.3:
        thing = rng.choice(group.foreign.split("|"))
    else:
        quality = f"{rng.choice(QUALITIES)} " if rng.random() < 0.6 else ""
        thing = quality + rng.choice(group.nouns.split("|")) + (f", {colour}" if colour else "")
    name = f"{brand} {thing}, {size}"
    if rng.random() < 0.015:
        name += rng.choice((" 🎁", " ✨ NEW", " 🌿 vegan", " 🇫🇷", " ❤️", " 👩‍🍳"))
    currency, rate = rng.choice(CURRENCIES)
    cheap, dear = group.cents
    cents = int(cheap + (dear - cheap) * rng.random() ** 3) * rate // 100  # many cheap things, few dear ones
    light, heavy = group.grams
    start = date(2024, 1, 1) + timedelta(days=rng.randrange(900))
    end = start + timedelta(days=30 + rng.randrange(700)) if rng.random() < 0.4 else None
    return {
        "sku": f"{group.code}-{100_000 + number * 7}-{short}",
        "ean": ean13(rng),
        "name": name,
        "brand": brand,
        "category": group.shelf,
        "size": size,
        "weight": f"{int(light + (heavy - light) * rng.random() ** 2)} g",
        "price": f"{cents // 100}.{cents % 100:02d}",
        "currency": currency,
        "stock": str(rng.randrange(0, 800)),
        "available_from": start.isoformat(),
        "available_until": end.isoformat() if end else "",
    }


# ---- untidy, to be mended ------------------------------------------------------------------------------------------


def _comma(rng: Random, row: Row) -> None:
    row["price"] = row["price"].replace(".", ",")


def _spaces(rng: Random, row: Row) -> None:
    row["name"] = rng.choice(("  {}", "{}   ", "\u00a0{} ", "{}\t")).format(row["name"]).replace(" ", "  ", 1)
    row["sku"] += rng.choice(("", " "))


def _currency_case(rng: Random, row: Row) -> None:
    row["currency"] = rng.choice((row["currency"].lower(), f" {row['currency']} "))


def _ean_groups(rng: Random, row: Row) -> None:
    ean = row["ean"]
    row["ean"] = rng.choice((f"{ean[0]} {ean[1:7]} {ean[7:]}", f"{ean[:3]}-{ean[3:]}"))


def _entities(rng: Random, row: Row) -> None:
    row["name"] = html.escape(row["name"].replace(", ", " & ", 1))


def _units(rng: Random, row: Row) -> None:
    grams = int(row["weight"].split()[0])
    row["weight"] = rng.choice((f"{grams / 1000:g} kg", f"{grams / 28.349523:.1f} oz", f"{grams}g", f"{grams} G"))


def _german_date(rng: Random, row: Row) -> None:
    row["available_from"] = date.fromisoformat(row["available_from"]).strftime("%d.%m.%Y")


UNTIDY: tuple[tuple[float, Callable[[Random, Row], None]], ...] = (
    (0.050, _comma),
    (0.040, _spaces),
    (0.030, _currency_case),
    (0.030, _ean_groups),
    (0.010, _entities),
    (0.040, _units),
    (0.020, _german_date),
)

# ---- wrong, to be refused ------------------------------------------------------------------------------------------


def _no_name(rng: Random, row: Row) -> None:
    row["name"] = rng.choice(("", "   ", "\u00a0", "\t"))


def _html(rng: Random, row: Row) -> None:
    form = rng.choice(("<b>{}</b>", "{}<br/>", '<span style="color:red">SALE</span> {}', "<p>{}"))
    row["name"] = form.format(row["name"])


def _negative(rng: Random, row: Row) -> None:
    row["price"] = "-" + row["price"]


def _absurd(rng: Random, row: Row) -> None:
    row["price"] = rng.choice(("0.00", "999999.99", "10000000", "0"))


def _no_number(rng: Random, row: Row) -> None:
    row["price"] = rng.choice(("", "n/a", "auf Anfrage", "TBD", "12.3.4", "#REF!"))


def _currency(rng: Random, row: Row) -> None:
    row["currency"] = rng.choice(("", "€", "ERU", "DM", "BTC", "XXX", "Euros"))


def _check_digit(rng: Random, row: Row) -> None:
    ean = row["ean"]
    other = str((int(ean[-1]) + 1 + rng.randrange(9)) % 10)
    row["ean"] = rng.choice((ean[:-1] + other, ean[:-1] + other, ean[:-1], ean[:5] + "O" + ean[6:]))


def _dates(rng: Random, row: Row) -> None:
    start = date.fromisoformat(row["available_from"])
    row["available_until"] = (start - timedelta(days=1 + rng.randrange(300))).isoformat()


def _weight(rng: Random, row: Row) -> None:
    number = row["weight"].split()[0]
    row["weight"] = rng.choice((f"{number} ml", f"{number} cm", number, "heavy", f"{number} st"))


WRONG: tuple[tuple[float, str, Callable[[Random, Row], None]], ...] = (
    (0.008, "name is missing", _no_name),
    (0.007, "name contains HTML", _html),
    (0.010, "price is negative", _negative),
    (0.007, "price is absurd", _absurd),
    (0.006, "price is not a number", _no_number),
    (0.012, "currency is unknown", _currency),
    (0.018, "EAN is malformed", _check_digit),
    (0.008, "dates are in the wrong order", _dates),
    (0.007, "weight is in no unit of weight", _weight),
)
REPEATED = "SKU repeats an earlier row"
REPEATS = 0.009

# ---- the file ------------------------------------------------------------------------------------------------------


def rows(count: int = COUNT, seed: int = SEED) -> Iterator[tuple[Row, str | None]]:
    """``count`` rows, each with the reason for which it must be refused, or None when it must be imported."""
    rng = Random(seed)
    skus: list[str] = []
    for number in range(count):
        row = product(rng, number)
        if skus and rng.random() < REPEATS:  # the same SKU again, with other data: which one is meant?
            row["sku"] = rng.choice(skus)
            yield row, REPEATED
            continue
        skus.append(row["sku"])
        reason, spoil = _flaw(rng.random())
        if spoil is not None:
            spoil(rng, row)
        else:
            for share, blur in UNTIDY:
                if rng.random() < share:
                    blur(rng, row)
        yield row, reason


def _flaw(at: float) -> tuple[str | None, Callable[[Random, Row], None] | None]:
    for share, reason, spoil in WRONG:
        if at < share:
            return reason, spoil
        at -= share
    return None, None


def text(count: int = COUNT, seed: int = SEED) -> str:
    """The whole file."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row for row, _ in rows(count, seed))
    return out.getvalue()


def main(arguments: list[str]) -> int:
    """Write the file, or with ``--check`` compare it."""
    made = text().encode()
    if arguments == ["--check"]:
        same = PATH.is_file() and PATH.read_bytes() == made
        print(f"{PATH}: {'as generated' if same else 'differs from what generate.py makes; run it without --check'}")
        return 0 if same else 1
    if arguments:
        print(f"unknown argument {arguments[0]!r}; the only one is --check", file=sys.stderr)
        return 2
    PATH.write_bytes(made)
    print(f"{PATH}: {COUNT:,} rows, {len(made):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
