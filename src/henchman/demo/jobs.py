"""The demo's jobs: what a user's own jobs module looks like.

``henchman demo`` starts its worker processes on ``henchman.demo.jobs:app`` and tells them by the environment where the
catalogue is. One job imports one row. All rows are one batch, and ``imported`` is called when it is complete. Price
changes come through an ordered queue: those of one product are handled together, lowest version first, never by two at
once.
"""

from __future__ import annotations

import os
import time
from functools import cache

from henchman import App, current_job
from henchman.demo.catalogue import Catalogue
from henchman.demo.products import PriceChange, Row, ask, clean

__all__ = ["app", "change_prices", "import_product", "imported"]

app = App()


@cache
def _catalogue() -> Catalogue:
    return Catalogue(os.environ["DEMO_CATALOGUE"])


@app.job(queue="products", retry=8, retry_in=0.5, timeout=1.5)
def import_product(row: Row) -> None:
    """Import one row: a refusal is a ``Failure``, which is never retried; an error or a time-out is."""
    product = clean(row)
    price = ask(product, current_job().attempt)
    _catalogue().put(product, price)


@app.job(queue="products")
def imported(batch: str) -> None:
    """Called once, when every row is settled: a shop would send a message now."""
    _catalogue().write("INSERT INTO called VALUES (?)", (batch,))


@app.ordered(queue="price-changes", claim_size=10, retry_in=0.5)
def change_prices(claim: dict[str, list[PriceChange]]) -> None:
    """Give up to ten products their new prices."""
    began, token = time.monotonic(), current_job().token
    time.sleep(0.003)  # the shop hears of the new prices
    _catalogue().change_prices(claim, token or 0, began)
