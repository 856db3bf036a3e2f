"""The demo's proof: the file read once more, row by row, against what the jobs left in the catalogue.

It asks the same pure functions what each row should have become; what it proves is that the way there, through
queues, retries and several processes, lost nothing, doubled nothing and mixed nothing up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from henchman.demo.catalogue import Catalogue, Result
from henchman.demo.prices import retail
from henchman.demo.products import Product, Row, clean
from henchman.errors import Failure

__all__ = ["differences"]


def differences(rows: Iterable[Row], catalogue: Catalogue) -> Iterator[str]:
    """One line for each row that is missing, doubled, or not what the file says; nothing when all is right."""
    results = {result.row: result for result in catalogue.results()}
    products = catalogue.products()
    for row in rows:
        result = results.pop(row.number, None)
        wrong = _wrong(row, result, products)
        if wrong:
            yield f"row {row.number} ({row.sku.strip()}): {wrong}"
    for number in results:
        yield f"row {number}: in the ledger, but not in the file"
    for sku in products:
        yield f"{sku}: in the catalogue, but no row of the file asks for it"


def _wrong(row: Row, result: Result | None, products: dict[str, tuple[Product, int]]) -> str | None:
    """What is wrong with this row, or None. Takes the product that it accounts for out of ``products``."""
    try:
        expected = clean(row)
    except Failure as failure:
        if result is None:
            return f"missing; it should have been refused: {failure}"
        if (result.outcome, result.reason) != ("refused", str(failure)):
            return f"{result.outcome} {result.reason}".strip() + f"; it should have been refused: {failure}"
        return None
    found = products.pop(expected.sku, None)
    if result is None:
        return "missing; it should have been imported"
    if result.outcome != "imported":
        return f"{result.outcome}: {result.reason}; it should have been imported"
    if found is None:
        return "called imported, but the catalogue does not have it"
    price = retail(expected.sku, expected.cost, expected.currency)
    if found != (expected, price):
        return f"the catalogue has {found}; it should have {(expected, price)}"
    return None
