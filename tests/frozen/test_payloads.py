"""What each kind of push leaves on the server, byte for byte: other programs, and older and newer workers, read it.

(What Sidekiq itself writes, and that we read it so: tests/unit/test_wire_golden.py.)
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from redis import Redis

from frozen.conftest import Frozen
from frozen.stored import stored
from henchman import App
from henchman.store import history

DUE: Final = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


def plain(app: App) -> None:
    app.enqueue("HardJob", "bob", 5, None, True, 1.5, {"a": [1, "é"]}, queue="ruby")


def defined(app: App) -> None:
    @app.job(name="shop.pay", queue="mail", retry=5, timeout=30, tags=["money"], backtrace=10, expires=60)
    def pay(order: int, *, lang: str = "en") -> None: ...

    pay.enqueue(1)
    pay.enqueue(2, lang="de")
    pay.using(queue="other", retry=False, tags=["vip"], result_ttl=60).enqueue(3)


def delayed(app: App) -> None:
    app.enqueue("HardJob", at=DUE)
    app.enqueue("HardJob", delay=60)


def in_bulk(app: App) -> None:
    @app.job(name="shop.pay")
    def pay(order: int, *, lang: str = "en") -> None: ...

    pay.enqueue_many([(1,), {"order": 2}, pay.call(3, lang="fr")])


def in_a_batch(app: App) -> None:
    @app.job(name="shop.row")
    def row(number: int) -> None: ...

    @app.job(name="shop.notify")
    def notify(batch: str) -> None: ...

    with app.batch("Import", on_complete=notify, on_success="Notify", tags=["shop"]):
        row.enqueue(1)
        row.enqueue_many([(2,), (3,)])


def in_a_batch_that_keeps_results(app: App) -> None:
    @app.job(name="shop.row")
    def row(number: int) -> int:
        return number

    with app.batch("Export", results=True):
        row.enqueue_many([(1,), (2,)])
        app.enqueue("other.row")


def in_an_atomic_batch_that_is_open(app: App) -> None:
    @app.job(name="shop.row")
    def row(number: int) -> None: ...

    app.batch("Import", atomic=True, expires=60).open().add(row, [(1,)])


def tracked(app: App) -> None:
    app.connections.run(history.turn_on(app.keys, "strict", 1 << 20))

    @app.job(name="shop.pay", track=True, secret=("card",))
    def pay(order: int, card: str) -> None: ...

    pay.enqueue(1, "4111")


def iterable(app: App) -> None:
    def rows(first: int, cursor: int | None) -> Iterator[tuple[int, int]]:
        yield first, first

    @app.iterable(over=rows, name="shop.walk", queue="imports")
    def walk(row: int, first: int) -> None: ...

    walk.enqueue(7)


def a_tick_of_a_cron(app: App) -> None:
    app.crons.add("nightly", "shop.clean", "0 3 * * *", tz="Europe/Paris", args=["all"], queue="low")
    app.crons.run("nightly")


def ordered(app: App) -> None:
    @app.ordered(queue="products", name="shop.sync", max_parallel=24)
    def sync(claim: dict[str, list[Any]]) -> None: ...

    sync.push("42", {"price": 5}, score=1001)
    sync.push("42", {"price": 6}, score=1002)
    sync.push_many([{"id": "43", "payload": {"price": 7}, "score": 1003, "at": DUE}])


def a_cancellation(app: App) -> None:
    app.cancel(app.enqueue("HardJob").jid)


def milliseconds(app: App) -> None:
    app.enqueue("HardJob")


KINDS: Final[tuple[Callable[[App], None], ...]] = (
    *(plain, defined, delayed, in_bulk, in_a_batch, in_a_batch_that_keeps_results, in_an_atomic_batch_that_is_open),
    *(tracked, iterable),
    *(a_tick_of_a_cron, ordered, a_cancellation, milliseconds),
)
SETTINGS: Final[dict[Callable[[App], None], dict[str, Any]]] = {milliseconds: {"sidekiq": "8", "timestamps": "ms"}}


def left_by(kind: Callable[[App], None], url: str, redis: Redis, namespace: str = "") -> list[str]:
    redis.flushall()
    app = App(redis_url=url, namespace=namespace, **SETTINGS.get(kind, {}))
    try:
        kind(app)
    finally:
        app.close()
    return list(stored(redis))


def test_what_a_push_leaves(redis_url: str, redis: Redis, frozen: Frozen) -> None:
    lines = []
    for kind in KINDS:
        lines += [f"== {kind.__name__.replace('_', ' ')}", *left_by(kind, redis_url, redis)]
    frozen("what a push leaves", lines)


def test_a_namespace_goes_before_every_key_and_changes_nothing_else(redis_url: str, redis: Redis) -> None:
    for kind in KINDS:
        without, within = (left_by(kind, redis_url, redis, one) for one in ("", "shop"))
        assert [re.sub(r"^(\w+) shop:", r"\1 ", line) for line in within] == without, kind.__name__
