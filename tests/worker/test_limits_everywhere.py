"""Limits hold whichever way a job comes: of a batch, a workflow, the outbox, a cron, a fair queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from henchman import App, Concurrent
from henchman.client.job import Job
from support.outbox import made_anew
from support.store import Store
from support.worker import until, working

JOBS = 12


class Bank:
    """A job of which two may run at once; ``most``: how many did."""

    def __init__(self, app: App) -> None:
        self.app, self.ran, self.now, self.most = app, 0, 0, 0
        self._lock = threading.Lock()

    def job(self, fair_by: str | None = None) -> Job[[int], None]:
        def pay(number: int) -> None:
            self.pay()

        return self.app.job(name="pay", queue="a", limits=[Concurrent("bank", 2)], fair_by=fair_by)(pay)

    def pay(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.01)
        with self._lock:
            self.now -= 1
            self.ran += 1


def members(bank: Bank) -> None:
    job = bank.job()
    with bank.app.batch("some") as batch:
        job.enqueue_many([(number,) for number in range(JOBS)])
    with working(bank.app):
        until(lambda: bank.app.batch_status(batch.id).counts["finished"] == JOBS, "its batch has counted all of them")


def steps(bank: Bank) -> None:
    job = bank.job()
    with bank.app.workflow("some") as flow:
        first = [flow.add(job.call(number)) for number in range(JOBS // 2)]
        for number in range(JOBS // 2):
            flow.add(job.call(number), after=first)
    with working(bank.app):
        until(lambda: bank.app.batch_status(flow.id).counts["finished"] == JOBS, "its steps have run")


def rows(bank: Bank) -> None:
    job = bank.job()
    assert bank.app.config.outbox is not None
    engine = create_engine(bank.app.config.outbox)
    with engine.begin() as connection:
        for number in range(JOBS):
            bank.app.outbox.write(connection, job, number)
    engine.dispose()
    with working(bank.app):
        until(lambda: bank.ran == JOBS, "the rows have come and run")


def ticks(bank: Bank) -> None:
    bank.job()
    for number in range(JOBS):
        bank.app.crons.add(f"cron{number}", "pay", every=3600, args=(number,))
    for number in range(JOBS):
        bank.app.crons.run(f"cron{number}")
    with working(bank.app):
        until(lambda: bank.ran == JOBS, "the ticks have run")


def turns(bank: Bank) -> None:
    job = bank.job(fair_by="number")
    job.enqueue_many([(number % 3,) for number in range(JOBS)])
    with working(bank.app):
        until(lambda: bank.ran == JOBS, "every tenant had its turns")


@pytest.fixture
def bank(redis_url: str, tmp_path: Path) -> Iterator[Bank]:
    outbox = f"sqlite:///{tmp_path}/shop.sqlite"
    made_anew(outbox)
    app = App(redis_url=redis_url, queues=("a",), concurrency=6, outbox=outbox)
    yield Bank(app)
    app.close()


@pytest.mark.parametrize("way", [members, steps, rows, ticks, turns], ids=lambda way: way.__name__)
def test_limits_hold_whichever_way_a_job_comes(store: Store, bank: Bank, way: Callable[[Bank], None]) -> None:
    way(bank)
    assert (bank.ran, bank.most) == (JOBS, 2)
    names = ("hm:slots:", "hm:limited:", "hm:await:", "hm:parked", "hm:flight:", "queue:")
    until(lambda: not [one for one in store.all_keys() if one.startswith(names)], "and nothing is left")
    assert not store.ask("EXISTS", store.keys.broken)
