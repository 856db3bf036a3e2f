"""Pushes inside Django's transactions: each row of the table of what Django does, on real databases."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase
from redis import Redis

from henchman import App
from henchman.errors import AmbiguousTransaction, DefinitionError

pytestmark = pytest.mark.frameworks("it runs jobs in transactions of Django, on each kind of database")

Numbers = Callable[[], list[int]]


class Rollback(Exception):
    """What a block fails with."""


def insert(number: int, alias: str = "default") -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (%s)", [number])


def rows(alias: str = "default") -> list[int]:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT n FROM t ORDER BY n")
        return [row[0] for row in cursor.fetchall()]


@pytest.fixture
def shop(databases: Callable[..., None]) -> None:
    """One database, in memory."""
    databases(default="sqlite://")


class TestOnEveryDatabase:
    @pytest.fixture(autouse=True)
    def _shop(self, databases: Callable[..., None], database_url: str) -> None:
        databases(default=database_url)

    def test_a_push_waits_for_the_commit(self, note: Any, pushed: Numbers) -> None:
        with transaction.atomic():
            insert(1)
            handle = note.enqueue(1)
            assert (len(handle.jid), handle.admission, handle.problem) == (24, "deferred", None)
            assert (handle.status().state, pushed()) == ("deferred", [])
        assert (handle.admission, handle.problem) == ("created", None)
        assert (handle.status().state, pushed(), rows()) == ("enqueued", [1], [1])

    def test_a_push_vanishes_with_a_rollback(self, note: Any, pushed: Numbers) -> None:
        with suppress(Rollback), transaction.atomic():
            insert(1)
            handle = note.enqueue(1)
            raise Rollback
        assert (pushed(), rows()) == ([], [])
        assert "rolled back" in str(handle.problem)
        assert handle.status().state == "unknown"
        note.enqueue(2)
        assert pushed() == [2]

    def test_an_inner_block_that_fails_and_is_caught_takes_its_own_pushes_along(
        self, note: Any, pushed: Numbers
    ) -> None:
        with transaction.atomic():
            insert(1)
            note.enqueue(1)
            with suppress(Rollback), transaction.atomic():
                insert(2)
                note.enqueue(2)
                with transaction.atomic():
                    insert(3)
                    note.enqueue(3)
                note.enqueue(4)
                raise Rollback
            note.enqueue(5)
        assert (pushed(), rows()) == ([1, 5], [1])

    def test_an_inner_block_without_a_savepoint_that_fails_takes_everything_along(
        self, note: Any, pushed: Numbers
    ) -> None:
        with transaction.atomic():
            insert(1)
            note.enqueue(1)
            with suppress(Rollback), transaction.atomic(savepoint=False):
                note.enqueue(2)
                raise Rollback
            with pytest.raises(TransactionManagementError):
                insert(3)
        assert (pushed(), rows()) == ([], [])

    def test_a_savepoint_that_is_rolled_back_by_hand_is_not_seen(self, note: Any, pushed: Numbers) -> None:
        """Nor by Django: its callbacks run as well. The page says so."""
        with transaction.atomic():
            savepoint = transaction.savepoint()
            insert(1)
            note.enqueue(1)
            transaction.savepoint_rollback(savepoint)
        assert (pushed(), rows()) == ([1], [])


@pytest.mark.usefixtures("shop")
class TestWhatDjangoDoes:
    def test_a_push_inside_a_callback_goes_at_once(self, note: Any, pushed: Numbers) -> None:
        seen = []

        def callback() -> None:
            seen.append(note.enqueue(2).admission)

        with transaction.atomic():
            note.enqueue(1)
            transaction.on_commit(callback)
        assert (seen, pushed()) == (["created"], [1, 2])

    def test_a_callback_that_raises_after_ours_finds_the_jobs_pushed(self, note: Any, pushed: Numbers) -> None:
        def callback() -> None:
            raise Rollback

        with suppress(Rollback), transaction.atomic():
            note.enqueue(1)
            transaction.on_commit(callback)
        assert pushed() == [1]

    def test_a_transaction_begun_by_hand_is_not_seen(self, note: Any, pushed: Numbers) -> None:
        transaction.set_autocommit(False)
        try:
            assert (note.enqueue(1).admission, pushed()) == ("created", [1])
        finally:
            transaction.rollback()
            transaction.set_autocommit(True)

    def test_another_thread_sees_no_transaction(self, note: Any, pushed: Numbers) -> None:
        with transaction.atomic():
            thread = threading.Thread(target=note.enqueue, args=[1])
            thread.start()
            thread.join()
            assert pushed() == [1]

    def test_a_coroutine_of_async_to_sync_sees_no_transaction(self, app: App, note: Any, pushed: Numbers) -> None:
        async def push() -> None:
            await note.aenqueue(1)
            await app.aconnections.close()

        with transaction.atomic():
            async_to_sync(push)()
            assert pushed() == [1]
            note.enqueue(2)
            assert pushed() == [1]
        assert pushed() == [1, 2]

    def test_now_goes_at_once_also_when_all_is_rolled_back(self, note: Any, pushed: Numbers) -> None:
        with suppress(Rollback), transaction.atomic():
            assert note.using(now=True).enqueue(1).admission == "created"
            raise Rollback
        assert pushed() == [1]

    def test_an_app_that_is_not_transactional_pushes_at_once(self, redis_url: str, pushed: Numbers) -> None:
        app = App(redis_url=redis_url)
        with transaction.atomic():
            assert app.enqueue("note", 1).admission == "created"
            assert pushed() == [1]
        app.close()

    def test_two_apps_wait_for_one_transaction(self, redis_url: str, note: Any, pushed: Numbers, redis: Redis) -> None:
        other = App(redis_url=redis_url, transactional=True)
        with transaction.atomic():
            note.enqueue(1)
            other.enqueue("theirs", 2, queue="theirs")
            note.enqueue(3)
            assert redis.keys("queue:*") == []
        assert pushed() == [1, 3]
        assert redis.llen("queue:theirs") == 1
        other.close()


class TestSeveralDatabases:
    @pytest.fixture(autouse=True)
    def _databases(self, databases: Callable[..., None]) -> None:
        databases(default="sqlite://", one="sqlite://", two="sqlite://")

    def test_the_one_that_is_open_is_meant(self, note: Any, pushed: Numbers) -> None:
        with transaction.atomic(using="two"):
            assert note.enqueue(1).admission == "deferred"
        assert pushed() == [1]

    def test_of_several_the_default_one_is_meant(self, note: Any, pushed: Numbers) -> None:
        with transaction.atomic(using="one"):
            with transaction.atomic():
                note.enqueue(1)
                assert pushed() == []
            assert pushed() == [1]

    def test_of_several_others_none_is_meant(self, note: Any, pushed: Numbers) -> None:
        with transaction.atomic(using="one"):
            with transaction.atomic(using="two"):
                with pytest.raises(AmbiguousTransaction, match=r"db='one' and db='two'.*using\(db=…\)"):
                    note.enqueue(1)
                note.using(db="two").enqueue(2)
                note.using(db="one").enqueue(3)
                note.using(now=True).enqueue(4)
                assert pushed() == [4]
            assert pushed() == [4, 2]
        assert pushed() == [4, 2, 3]

    def test_a_database_that_is_named_and_has_no_transaction(self, note: Any, pushed: Numbers) -> None:
        with transaction.atomic():
            assert note.using(db="two").enqueue(1).admission == "created"
        assert pushed() == [1]

    def test_a_database_that_there_is_not(self, note: Any) -> None:
        with pytest.raises(DefinitionError, match="db='three': DATABASES of Django has 'default', 'one', 'two'"):
            note.using(db="three").enqueue(1)


@pytest.mark.usefixtures("shop")
class TestOneGo:
    @pytest.fixture
    def calls(self, app: App, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """The names of the calls that the app sends."""
        names: list[str] = []
        run = app.connections.run
        monkeypatch.setattr(app.connections, "run", lambda call: (names.append(call.name), run(call))[1])
        return names

    def test_a_hundred_pushes_are_one_call_in_their_order(self, note: Any, pushed: Numbers, calls: list[str]) -> None:
        with transaction.atomic():
            for number in range(100):
                note.enqueue(number)
            assert calls == []
        assert (calls, pushed()) == (["deliver"], list(range(100)))

    def test_blocks_within_blocks_take_few_calls_and_keep_the_order(
        self, note: Any, pushed: Numbers, calls: list[str]
    ) -> None:
        with transaction.atomic():
            for number in range(0, 90, 3):
                with transaction.atomic():
                    note.enqueue(number)
                    with transaction.atomic():
                        note.enqueue(number + 1)
                    note.enqueue(number + 2)
        assert pushed() == list(range(90))
        assert len(calls) <= 2, calls

    def test_a_failed_block_between_others_loses_its_own_alone(self, note: Any, pushed: Numbers) -> None:
        with transaction.atomic():
            for number in range(20):
                with suppress(Rollback), transaction.atomic():
                    note.enqueue(number)
                    with transaction.atomic():
                        note.enqueue(100 + number)
                    if number % 3 == 0:
                        raise Rollback
        kept = [number for number in range(20) if number % 3]
        assert pushed() == [one for number in kept for one in (number, 100 + number)]

    def test_a_bulk_push_is_cut_into_slices(self, note: Any, pushed: Numbers, calls: list[str]) -> None:
        with transaction.atomic():
            made = note.enqueue_many([(number,) for number in range(1200)])
            assert (made.count, made.created, made.deferred) == (1200, 0, 1200)
        assert pushed() == list(range(1200))
        assert calls == ["deliver"] * 3

    def test_the_next_transaction_begins_anew(self, note: Any, pushed: Numbers) -> None:
        for number in range(3):
            with transaction.atomic():
                note.enqueue(number)
            assert pushed() == list(range(number + 1))
        with suppress(Rollback), transaction.atomic():
            note.enqueue(7)
            raise Rollback
        with transaction.atomic():
            note.enqueue(8)
        assert pushed() == [0, 1, 2, 8]


@pytest.mark.usefixtures("shop")
class TestInATestCase:
    """The blocks that Django's TestCase puts around a test."""

    @pytest.fixture(autouse=True)
    def _around(self, shop: None) -> Iterator[None]:
        around = transaction.atomic()
        around._from_testcase = True
        with around:
            yield
            transaction.set_rollback(True)

    def test_the_block_of_the_test_itself_counts_for_none(self, note: Any, pushed: Numbers) -> None:
        assert note.enqueue(1).admission == "created"
        assert pushed() == [1]

    def test_captured_callbacks_push(self, note: Any, pushed: Numbers) -> None:
        with transaction.atomic():
            note.enqueue(1)
        with TestCase.captureOnCommitCallbacks(execute=True) as callbacks:
            with transaction.atomic():
                note.enqueue(2)
                note.enqueue(3)
            with suppress(Rollback), transaction.atomic():
                note.enqueue(4)
                raise Rollback
            assert pushed() == []
        assert (len(callbacks), pushed()) == (2, [2, 3])

    def test_what_waits_is_known_without_callbacks(self, app: App, note: Any, pushed: Numbers) -> None:
        """What the fixture ``henchman_commits`` does."""
        with transaction.atomic():
            note.enqueue(1)
        with suppress(Rollback), transaction.atomic():
            note.enqueue(2)
            raise Rollback
        waiting = app.client.waiting()  # type: ignore[attr-defined]
        assert [one.by_queue.keys() for one in waiting] == [{"default"}]
        app.client.send(waiting)  # type: ignore[attr-defined]
        assert pushed() == [1]
        with TestCase.captureOnCommitCallbacks(execute=True):
            pass
        assert (pushed(), app.client.waiting()) == ([1], [])  # type: ignore[attr-defined]


@pytest.mark.usefixtures("shop")
def test_a_push_that_fails_after_the_commit_breaks_nothing(
    app: App, note: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, ran = app.connections.run, []

    def refuse(call: Any) -> Any:
        if call.name == "deliver":
            raise ValueError("a defect of ours")
        return run(call)

    monkeypatch.setattr(app.connections, "run", refuse)
    with caplog.at_level(logging.ERROR, "henchman"), transaction.atomic():
        insert(1)
        handle = note.enqueue(1)
        transaction.on_commit(lambda: ran.append(1))
    assert (ran, rows()) == ([1], [1])
    assert "a defect of ours" in str(handle.problem)
    assert [handle.jid in record.getMessage() for record in caplog.records] == [True]
