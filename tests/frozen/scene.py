"""One of everything: a server with jobs in every place, a worker that runs one, a record in SQLite."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from henchman import App, Failure, current_job
from henchman.errors import HistoryAway
from henchman.history.database import Database
from henchman.history.reading import History
from henchman.store.call import command
from support.worker import until, working

__all__ = ["Scene", "filled"]

DUE = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


class Scene(NamedTuple):
    """The app; a finished batch; jobs by where they are."""

    app: App
    batch: str
    jids: dict[str, str]


@contextmanager
def filled(url: str, folder: Path) -> Iterator[Scene]:
    """The scene while its worker runs."""
    app = App(redis_url=url, database_url=f"sqlite:///{folder}/history.sqlite", api_token="t" * 20, heartbeat=0.2)
    enough = threading.Event()
    jobs = defined(app, enough)
    try:
        with working(app):
            try:
                yield fill(app, jobs)
            finally:
                enough.set()
    finally:
        app.close()


def defined(app: App, enough: threading.Event) -> dict[str, Any]:
    @app.job(name="shop.create", retry=False)
    def create(row: int, *, lang: str = "en") -> int:
        current_job().log("looked")
        current_job().progress(1, 2)
        if row == 0:
            raise Failure("no such product")
        if row == 1:
            raise ValueError("price is missing")
        return row

    @app.job(name="shop.flaky", retry=3, retry_in=86_400, backtrace=True)
    def flaky(number: int) -> None:
        raise ValueError("not yet")

    @app.job(name="shop.broken", retry=0, tags=["vip"])
    def broken(number: int) -> None:
        raise ValueError("never")

    @app.job(name="shop.long")
    def long() -> None:
        assert enough.wait(600)  # it runs for as long as it is looked at

    @app.ordered(queue="products", name="shop.sync", retry_in=86_400.0)
    def sync(claim: dict[str, list[Any]]) -> dict[str, Exception]:
        return {id: ValueError("no") for id in claim if id == "bad"}

    @app.ordered(queue="strict", name="shop.strict", max_retries=0)
    def strict(claim: dict[str, list[Any]]) -> None:
        raise ValueError("never")

    return {"create": create, "flaky": flaky, "broken": broken, "long": long, "sync": sync, "strict": strict}


def fill(app: App, jobs: dict[str, Any]) -> Scene:
    until(lambda: app.connections.run(command("EXISTS", app.keys.history_on)), "history is on")
    app.mark_deploy("v1")  # before anything fails
    with app.batch("Import", tags=["shop"]) as batch:
        jobs["create"].enqueue_many([(0,), (1,), (2,), {"row": 3, "lang": "de"}])
    with app.batch("Another") as other:
        jobs["create"].enqueue(4)
    jids = {name: jobs[name].enqueue(1).jid for name in ("flaky", "broken")}
    jids["waiting"] = app.enqueue("HardJob", 1, queue="ruby").jid
    jids["scheduled"] = app.enqueue("HardJob", 1, queue="ruby", at=DUE).jid
    jids["working"] = jobs["long"].enqueue().jid
    for id in ("good", "bad"):
        jobs["sync"].push(id, {"price": 1}, score=1)
    jobs["sync"].push("later", {"price": 1}, score=1, at=DUE)
    jobs["strict"].push("dead", {"price": 1}, score=1)
    app.crons.add("nightly", "HardJob", "0 3 * * *", args=["all"], queue="ruby")
    app.crons.run("nightly")
    wait(app, batch.id, other.id)
    return Scene(app, batch.id, jids)


def wait(app: App, batch: str, other: str) -> None:
    until(lambda: all(app.batch_status(one).state == "complete" for one in (batch, other)), "the batches are complete")
    until(lambda: app.retries.size() == 1 and app.dead.size() == 1, "one is retried, one dead")
    until(lambda: app.work.size() == 1, "the worker tells of its running job")
    ordered = app.ordered_queues
    until(lambda: ordered["products"].stats().retries and ordered["strict"].stats().morgue_length, "ids failed")
    until(lambda: {"shop.create", "shop.flaky", "shop.broken"} <= classes(app), "metrics are written")
    history = History(Database(str(app.config.database_url)))
    try:
        until(lambda: recorded(history, batch), "all is recorded")
    finally:
        history.close()


def classes(app: App) -> set[str]:
    return {one.name for one in app.metrics().classes}


def recorded(history: History, batch: str) -> bool:
    try:
        found = history.batch(batch)
    except HistoryAway:  # the worker makes the tables just now
        return False
    return found is not None and found.state == "complete" and sum(found.counts.values()) == 4
