"""Ordered queues as a type checker sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from henchman import App
from henchman.ordered.definition import DerivingJob, OrderedJob
from henchman.ordered.push import OrderedPush, OrderedPushed

app = App()


@dataclass
class Price:
    amount: int


@app.ordered(queue="products", claim_size=10, max_parallel=24)
def sync_product(claim: dict[str, list[Price]]) -> dict[str, Exception]:
    return {}


@app.ordered
async def touch(claim: Mapping[str, Sequence[int]]) -> None: ...


@app.ordered(queue="loose")
def loose(claim):  # type: ignore[no-untyped-def]
    return None


@app.ordered(derive=lambda payload: payload.amount)
def derived(claim: dict[str, list[Price]]) -> None: ...


assert_type(sync_product, OrderedJob[Price])
assert_type(touch, OrderedJob[int])
assert_type(derived, DerivingJob[Price])
assert_type(sync_product.push("42", Price(5), score=1001), OrderedPush)
assert_type(sync_product.push_many([("42", Price(5))]), OrderedPushed)
sync_product.push(42, Price(5), delay=timedelta(seconds=5))
sync_product.push(42, at=datetime.now(UTC))
sync_product.push(4.2, Price(5))  # expect-error: arg-type
sync_product.push("42", 5)  # expect-error: arg-type
sync_product.push("42", Price(5), score="high")  # expect-error: arg-type
sync_product.push("42", Price(5), priority=1)  # expect-error: call-arg
sync_product({"42": [Price(5)]})
sync_product({"42": [5]})  # expect-error: list-item
loose.push("42", {"anything": 1})
derived.push(Price(5), id="42")
derived.push(5)  # expect-error: arg-type


@app.ordered(queue="wrong")  # expect-error: arg-type
def wrong(user_id: int) -> None: ...


async def awaited() -> None:
    assert_type(await sync_product.apush("42", Price(5)), OrderedPush)
    assert_type(await touch.apush_many([(1, 2)]), OrderedPushed)


def anything(claim: dict[str, list[Any]]) -> None: ...


assert_type(app.ordered(queue="any")(anything), OrderedJob[Any])
