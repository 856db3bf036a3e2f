"""The demo's pushing side: ``python -m henchman.demo.push [ROWS]`` enqueues the product file as one batch,
row by row, while several producers, each a thread of its own, send price changes in whatever order.

It is a process of its own, as a web server would be: it knows the app and the server's address and nothing else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from henchman.demo.jobs import app, change_prices, import_product, imported
from henchman.demo.offers import PRODUCERS, planned, produced
from henchman.demo.products import read
from henchman.demo.record import DESCRIPTION

SOME = 10  # changes that a producer sends at a time
PAUSE = 0.03  # seconds between two of its sendings: prices change while the import goes on


def main(arguments: list[str]) -> int:
    """Enqueue the first ROWS rows of the file, or all of them."""
    rows = list(read(most=int(arguments[0]) if arguments else None))
    plan = planned(rows)
    with ThreadPoolExecutor(PRODUCERS, "producer") as pool:
        producers = [pool.submit(_produce, produced(plan, number)) for number in range(PRODUCERS)]
        with app.batch(DESCRIPTION, on_complete=imported, tags=["demo"]):
            pushed = import_product.enqueue_many((row,) for row in rows)
    print(pushed.count, sum(one.result() for one in producers))
    return 0


def _produce(changes: Sequence[tuple[object, ...]]) -> int:
    """Push these changes, some at a time."""
    for first in range(0, len(changes), SOME):
        change_prices.push_many(changes[first : first + SOME])
        time.sleep(PAUSE)
    return len(changes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
