"""What a worker does with Django's connections around each run, on PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.test.utils import override_settings

from henchman import App
from henchman.contrib.django.connections import ConnectionCare
from support.worker import until

pytestmark = pytest.mark.frameworks("it runs jobs that use Django's connections")

Count = Callable[[], int]


@pytest.fixture
def cared(app: App, databases: Callable[..., None], postgresql_url: str) -> Iterator[App]:
    """The app, on a database of which every connection is kept for ever unless a test says otherwise."""
    databases(default=postgresql_url)
    connections.close_all()
    connections.settings["default"] |= {"CONN_MAX_AGE": None, "OPTIONS": {"application_name": "care"}}
    app.server_middleware.prepend(ConnectionCare(app.events))
    return app


@pytest.fixture
def count(postgresql_url: str) -> Iterator[Count]:
    """How many connections the database has of us."""
    with psycopg.connect(postgresql_url, autocommit=True) as looking:
        question = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'care'"
        yield lambda: int((looking.execute(question).fetchone() or (0,))[0])


@pytest.fixture
def rows(postgresql_url: str) -> Callable[[], list[int]]:
    def read() -> list[int]:
        with psycopg.connect(postgresql_url) as looking:
            return [row[0] for row in looking.execute("SELECT n FROM t ORDER BY n").fetchall()]

    return read


def insert(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (%s)", [number])


def test_what_a_slot_kept_is_closed_when_its_thread_ends(cared: App, count: Count, rows: Any) -> None:
    job = cared.job(name="insert")(insert)
    with cared.embed(concurrency=2):
        job.enqueue_many([(number,) for number in range(4)])
        until(lambda: len(rows()) == 4, "the jobs have run")
        assert 1 <= count() <= 2
    until(lambda: count() == 0, "nothing is left", 10)


def test_after_a_time_out_the_next_job_begins_anew(cared: App, rows: Any) -> None:
    @cared.job(name="late", timeout=0.4, retry=False)
    def late() -> None:
        with transaction.atomic():
            insert(1)
            end = time.monotonic() + 30
            while time.monotonic() < end:
                time.sleep(0.01)  # a job that computes

    seen: list[Any] = []

    @cared.job(name="next")
    def following() -> None:
        seen.append((connection.in_atomic_block, connection.connection))
        insert(2)

    with cared.embed(concurrency=1):
        late.enqueue()
        following.enqueue()
        until(lambda: rows() == [2], "the next has run")
    assert seen == [(False, None)]


def test_a_transaction_that_a_job_leaves_open_is_none_of_the_next(cared: App, rows: Any) -> None:
    @cared.job(name="leaves")
    def leaves() -> None:
        transaction.atomic().__enter__()
        insert(1)

    job = cared.job(name="insert")(insert)
    with cared.embed(concurrency=1):
        leaves.enqueue()
        job.enqueue(2)
        until(lambda: rows() == [2], "the next has run, and the first was rolled back")


def test_with_debug_no_run_finds_the_queries_of_earlier_ones(cared: App, rows: Any) -> None:
    found: list[int] = []

    @cared.job(name="asks")
    def asks(number: int) -> None:
        found.append(len(connection.queries))
        insert(number)
        assert len(connection.queries) == 1

    with override_settings(DEBUG=True), cared.embed(concurrency=1):
        asks.enqueue_many([(number,) for number in range(5)])
        until(lambda: len(rows()) == 5, "all have run")
    assert found == [0] * 5


def test_the_orm_of_coroutines_is_looked_after_on_its_thread(cared: App, count: Count, rows: Any) -> None:
    connections.settings["default"]["CONN_MAX_AGE"] = 0

    @cared.job(name="awaited")
    async def awaited(number: int) -> None:
        await sync_to_async(insert)(number)

    with cared.embed(concurrency=3):
        awaited.enqueue_many([(number,) for number in range(6)])
        until(lambda: len(rows()) >= 6, "they have run")
        until(lambda: count() == 0, "and keep no connection", 10)
    assert rows() == [*range(6)], "each once"


def test_a_run_within_the_callers_transaction_touches_nothing(cared: App) -> None:
    """As fakes of tests run jobs, in a TestCase."""
    care = ConnectionCare(cared.events)
    with transaction.atomic():
        insert(1)
        before = connection.connection
        care(object(), lambda: insert(2))
        assert connection.connection is before
        transaction.set_rollback(True)
    connections.close_all()
