"""The hooks of an ordered queue, run by a real worker: they decide about retries and hear of what is given up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from henchman import App, current_job, testing
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


@pytest.mark.parametrize("awaited", [False, True], ids=["def", "async def"])
def test_a_handler_retries_and_gives_up_by_its_hooks(app: App, store: Store, redis_url: str, awaited: bool) -> None:
    asked: list[Any] = []
    gone: list[Any] = []
    tokens: list[int] = []

    class Shop:
        def answer(self, claim: dict[str, list[Price]]) -> dict[str, Exception]:
            tokens.append(current_job().token or 0)
            assert all(isinstance(one, Price) for many in claim.values() for one in many)
            return {name: ValueError(f"no {name}") for name in claim if name == "bad"}

        def retry_in(self, count: int, error: BaseException) -> float:
            asked.append((self is shop, count, str(error)))
            return 0.05

        def retries_exhausted(self, items: list[Any]) -> None:
            gone.extend(items)

    shop = Shop()

    def plain(claim: dict[str, list[Price]]) -> Any:
        return shop.answer(claim)

    async def asynchronous(claim: dict[str, list[Price]]) -> Any:
        return shop.answer(claim)

    hooks = {"retry_in": shop.retry_in, "retries_exhausted": shop.retries_exhausted}
    sync = app.ordered(name="it", queue="products", claim_size=10, max_retries=1, **hooks)(
        asynchronous if awaited else plain
    )
    sync.push_many([("good", Price(1)), ("bad", Price(2), 2), ("bad", Price(1), 1)])
    with testing.worker(app, url=redis_url) as worker:
        until(lambda: len(gone) == 2, "both payloads are given up")
        worker.drain()
    assert asked == [(True, 0, "no bad")] * 2, "each of the two payloads had a budget of its own"
    assert [(item["id"], [payload for payload, _ in item["payloads"]]) for item in gone] == [
        ("bad", [{"amount": 1}]),
        ("bad", [{"amount": 2}]),
    ]
    assert all(tokens)
    assert tokens == sorted(tokens)
    assert store.members(store.keys.ordered("products") + "due") == []
    assert store.members(store.keys.morgue("products")) == [b"bad"]
