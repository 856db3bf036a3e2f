"""The demo's jobs: what a user's own jobs module looks like.

``henchman demo`` starts its worker processes on ``henchman.demo.jobs:app`` and tells them by the environment
where the catalogue and the price service are. One job imports one row: it validates (a refusal is a ``Failure``, which
is never retried), asks for a price (an error, or a time-out, is retried) and writes to the catalogue. All rows are one
batch, and ``imported`` is called when it is complete. Price changes come through an ordered queue: those of one product
are handled together, lowest version first, never by two at once.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from henchman import App, Failure, JobTimeout, current_job
from henchman.demo.catalogue import Catalogue, Run
from henchman.demo.offers import Offers, PriceChange
from henchman.demo.prices import ask
from henchman.demo.products import Row, clean

__all__ = ["CATALOGUE", "CHANGES", "PRICES", "QUEUE", "app", "change_prices", "import_product", "imported"]

CATALOGUE, PRICES = "DEMO_CATALOGUE", "DEMO_PRICES"  # environment: a file, a URL
QUEUE, CHANGES = "products", "price-changes"
RETRIES = 8
TIMEOUT = 1.5
SHOP = 0.003  # seconds that the shop takes to hear of new prices

app = App()

_opening = threading.Lock()
_opened: dict[str, Catalogue] = {}


@app.job(queue=QUEUE, retry=RETRIES, retry_in=0.5, timeout=TIMEOUT)
def import_product(row: Row) -> None:
    """Import one row of the product file."""
    started, attempt = time.monotonic(), current_job().attempt

    def run() -> Run:
        return Run(row.number, attempt, (time.monotonic() - started) * 1000)

    try:
        product = clean(row)
        price = ask(os.environ[PRICES], product)
        _catalogue().put(product, price, run())
    except Failure as failure:
        _catalogue().refuse(row.sku.strip(), str(failure), run())
        raise
    except (Exception, JobTimeout) as error:
        what = f"stopped by timeout={TIMEOUT}" if isinstance(error, JobTimeout) else str(error)
        _catalogue().stumble(what, run())
        if attempt > RETRIES:
            _catalogue().bury(row.sku.strip(), what, run())
        raise


@app.job(queue=QUEUE)
def imported(batch: str) -> None:
    """Called once, when every row is settled: a shop would send a message now."""
    _catalogue().note(batch)


@app.ordered(queue=CHANGES, claim_size=10, retry_in=0.5)
def change_prices(claim: dict[str, list[PriceChange]]) -> None:
    """Give up to ten products their new prices."""
    began, token = time.monotonic(), current_job().token
    time.sleep(SHOP)
    Offers(_catalogue()).change(claim, token or 0, began)


def _catalogue() -> Catalogue:
    """The catalogue, opened once in each worker process."""
    path = os.environ[CATALOGUE]
    with _opening:
        if path not in _opened:
            _opened[path] = Catalogue(Path(path))
        return _opened[path]
