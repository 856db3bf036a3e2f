"""Keys from the push to the end: what one side takes, the other gives back, for each option and each way a job ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from henchman import App, Discard, Failure, Kill, current_job
from support.locks import left_of_keys
from support.store import Store
from support.worker import until, working

WAYS: dict[str, dict[str, Any]] = {
    "once": {"once": True},
    "until_success": {"unique": "until_success"},
    "queued": {"unique": "queued"},
    "running": {"unique": "running"},
    "queued and running": {"unique": ("queued", "running")},
    "once and running": {"once": True, "unique": "running"},
}
ENDS: dict[str, BaseException | None] = {
    "done": None,
    "failed": Failure("no"),
    "discarded": Discard("no"),
    "gone": ValueError("no"),
    "dead": Kill("no"),
}


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, concurrency=4)
    yield made
    made.close()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", WAYS)
def test_what_a_push_takes_the_end_gives_back(store: Store, app: App, way: str, end: str) -> None:
    ran: list[str] = []

    @app.job(name="pay", key="order", retry=False, **WAYS[way])
    def pay(order: str) -> None:
        ran.append(order)
        if (error := ENDS[end]) is not None:
            raise error

    handles = [pay.enqueue(f"{number % 3}") for number in range(9)]
    with working(app):
        created = sum(one.admission == "created" for one in handles)
        assert created == (9 if way == "running" else 3)
        until(lambda: len(ran) == created, "each has run")
        dead = created if end == "dead" else 0
        until(lambda: app.dead.size() == dead and not store.ask("EXISTS", "queue:default"), "and has ended")
        if dead:
            app.dead.clear()
        until(lambda: not left_of_keys(store), "no key is held any more")
    assert not store.ask("EXISTS", store.keys.broken)


def test_who_waits_for_a_push_comes_when_the_first_has_succeeded(store: Store, app: App) -> None:
    ran: list[int] = []
    may_end = threading.Event()

    @app.job(name="close", key="account", unique="until_success", on_conflict="wait")
    def close(account: str, month: int) -> None:
        ran.append(month)
        may_end.wait(30)

    with working(app):
        first = close.enqueue("a", 1)
        until(lambda: ran == [1], "the first runs")
        later = [close.enqueue("a", month) for month in (2, 3)]
        assert [first.admission, *(one.admission for one in later)] == ["created", "blocked", "blocked"]
        assert later[0].status().state == "blocked"
        assert first.jid in later[0].status().text
        may_end.set()
        until(lambda: ran == [1, 2, 3], "the others follow in their order")
        until(lambda: not left_of_keys(store), "no key is held any more")


def test_newer_arguments_reach_the_job_that_waits(store: Store, app: App) -> None:
    ran: list[tuple[int, str]] = []

    @app.job(name="feed", key="user", unique=("queued", "running"), on_conflict="replace")
    def feed(user: int, what: str) -> None:
        ran.append((user, what))
        assert current_job().token is not None

    first = feed.enqueue(1, "old")
    again = feed.enqueue(1, "new")
    assert again.jid == first.jid
    with working(app):
        until(lambda: not left_of_keys(store), "it has ended")
    assert ran == [(1, "new")]
