"""The demo's pushing side: ``python -m henchman.demo.push ROWS`` enqueues the product file as one batch, row by row,
while several producers, each a thread of its own, send price changes in whatever order.

It is a process of its own, as a web server would be: it knows the app and the server's address and nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from henchman.demo.jobs import app, change_prices, import_product, imported
from henchman.demo.products import PRODUCERS, planned, produced, rows

__all__ = ["main"]

SOME = 10  # changes that a producer sends at a time
PAUSE = 0.03  # seconds between two of its sendings: prices change while the import goes on


def main(most: int) -> None:
    """Enqueue the first ``most`` rows of the file, and the price changes of their products."""
    file = rows(most)
    plan = planned(file)
    with ThreadPoolExecutor(PRODUCERS, "producer") as pool:
        producers = [pool.submit(_produce, produced(plan, number)) for number in range(PRODUCERS)]
        with app.batch("Import products.csv", on_complete=imported, tags=["demo"]):
            import_product.enqueue_many((row,) for row in file)
    for one in producers:
        one.result()


def _produce(changes: Sequence[tuple[object, ...]]) -> None:
    for first in range(0, len(changes), SOME):
        change_prices.push_many(changes[first : first + SOME])
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(int(sys.argv[1]))
