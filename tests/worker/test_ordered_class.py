"""Ordered queues as classes, run by a real worker: the methods are called, and one instance serves a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from henchman import App, Failure, OrderedWorker, current_job, testing
from support.store import Store
from support.worker import until


@dataclass(frozen=True)
class Price:
    amount: int


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    made = Store(redis_url)
    yield made
    made.connections.close()


@pytest.mark.parametrize("awaited", [False, True], ids=["def", "async def"])
def test_a_class_retries_and_gives_up_by_its_own_methods(app: App, store: Store, redis_url: str, awaited: bool) -> None:
    made: list[Any] = []
    asked: list[Any] = []
    gone: list[Any] = []
    tokens: list[int | None] = []

    class Sync(OrderedWorker):
        queue_name = "products"
        batch_size = 10
        max_retry_count = 1

        def __init__(self) -> None:
            made.append(self)

        def answer(self, claim: dict[str, list[Price]]) -> dict[str, Exception]:
            tokens.append(current_job().token)
            assert all(isinstance(one, Price) for many in claim.values() for one in many)
            return {name: ValueError(f"no {name}") for name in claim if name == "bad"}

        def retry_in(self, count: int, error: BaseException) -> float:
            asked.append((self is made[0], count, str(error)))
            return 0.05

        def retries_exhausted(self, items: list[Any]) -> None:
            gone.extend(items)

    class Plain(Sync):
        def perform(self, claim: dict[str, list[Price]]) -> Any:
            return self.answer(claim)

    class Awaited(Sync):
        async def perform(self, claim: dict[str, list[Price]]) -> Any:
            return self.answer(claim)

    worker_class = app.ordered(name="it")(Awaited if awaited else Plain)
    worker_class.push_many([("good", Price(1)), ("bad", Price(2), 2), ("bad", Price(1), 1)])
    with testing.worker(app, url=redis_url) as worker:
        until(lambda: len(gone) == 2, "both payloads are given up")
        worker.drain()
    assert len(made) == 1
    assert asked == [(True, 0, "no bad")] * 2, "each of the two payloads had a budget of its own"
    assert [(item["id"], [payload for payload, _ in item["payloads"]]) for item in gone] == [
        ("bad", [{"amount": 1}]),
        ("bad", [{"amount": 2}]),
    ]
    assert all(tokens)
    assert tokens == sorted(tokens)  # type: ignore[type-var]  # numbers, as was just seen
    assert store.members(store.keys.ordered("products") + "due") == []
    assert store.members(store.keys.morgue("products")) == [b"bad"]


def test_one_instance_serves_all_threads(app: App, redis_url: str) -> None:
    made: list[Any] = []
    barrier = threading.Barrier(3, timeout=60)

    @app.ordered(name="it")
    class Sync(OrderedWorker):
        def __init__(self) -> None:
            made.append(self)

        def perform(self, claim: dict[str, list[int]]) -> None:
            barrier.wait()
            raise Failure("enough")

    with testing.worker(app, url=redis_url, concurrency=3) as worker:
        Sync.push_many([("a", 1), ("b", 2), ("c", 3)])
        worker.drain(60)
    assert len(made) == 1
    assert worker.errors == []
