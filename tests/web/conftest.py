"""One import of thirty rows, run by a real worker and recorded in SQLite; every test of this folder only reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from henchman import App, Failure, current_job
from henchman.errors import HistoryAway
from henchman.history.database import Database
from henchman.history.reading import History
from henchman.store.call import command
from henchman.web.api import Api, api
from support.asgi import TOKEN
from support.server import running_server
from support.web import HOSTILE, SECRET, Import
from support.worker import until, working


@pytest.fixture(scope="package")
def _own_server() -> Iterator[str]:
    """Not the run's server: others empty it."""
    with running_server() as server:
        yield server.url


@pytest.fixture(scope="package")
def imported(_own_server: str, tmp_path_factory: pytest.TempPathFactory) -> Import:
    """Rows 0, 3, 6… are refused, row 1 fails with an error, the rest is done."""
    folder: Path = tmp_path_factory.mktemp("web")
    app = App(
        redis_url=_own_server,
        database_url=f"sqlite:///{folder}/history.sqlite",
        api_token=TOKEN,
    )

    @app.job(name="shop.create", retry=False, secret=("card",))
    def create(row: int, sku: str, *, card: str) -> int:
        current_job().log(f"looked at {sku}")
        if row % 3 == 0:
            raise Failure(HOSTILE if row == 0 else f"no such product: {sku}")
        if row == 1:
            raise ValueError("price is missing")
        return row

    with working(app):
        until(lambda: app.connections.run(command("EXISTS", app.keys.history_on)), "history is on")
        with app.batch("Import products.csv", tags=["shop"], results=True) as batch:
            create.enqueue_many([{"row": row, "sku": f"sku-{row}", "card": SECRET} for row in range(30)])
        until(lambda: app.batch_status(batch.id).state == "complete", "the batch is complete")
        history = History(Database(str(app.config.database_url)))
        until(lambda: recorded(history, batch.id), "it is recorded")
        history.close()
    return Import(app, batch.id)


@pytest.fixture
def web(imported: Import) -> Iterator[Api]:
    made = api(imported.app)
    yield made
    made.close()
    imported.app.close()


def recorded(history: History, batch: str) -> bool:
    """Whether the end of the batch and those of all its jobs are in SQL."""
    try:
        found = history.batch(batch)
    except HistoryAway:  # the worker makes the tables just now
        return False
    return found is not None and found.state == "complete" and set(found.counts) == {"finished", "failed", "error"}
