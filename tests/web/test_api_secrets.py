"""No answer of the API shows a secret, in whatever spelling a job's failure, message or argument has it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman.history.database import Database
from henchman.history.reading import History
from henchman.web.api import Api, api
from support.asgi import TOKEN, ask
from support.secrets_said import CODE, NUMBER, PIN, VALUE, WAYS, Card, Shop, seen
from support.worker import in_flight, push_raw, until, working


@dataclass
class Fatal:
    number: str

    def __post_init__(self) -> None:
        raise SystemExit(f"no such card: {self.number!r}")


@pytest.fixture
def shop(redis_url: str, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(redis_url, tmp_path)
    yield made
    made.app.close()


@pytest.fixture
def web(shop: Shop) -> Iterator[Api]:
    made = api(shop.app, token=TOKEN)
    yield made
    made.close()


def test_no_answer_shows_a_secret(web: Api, shop: Shop, redis: Redis) -> None:
    batch = _everything_failed(shop, redis)
    history = History(Database(shop.database))
    jids = [one.jid for one in history.events(batch, limit=1000).events]
    tracked = [json.loads(one) for one in (*redis.zrange("dead", 0, -1), *redis.zrange("retry", 0, -1))]  # type: ignore[misc]
    jids += [one["jid"] for one in tracked if one["hm"].get("track")]
    history.close()
    addresses = [f"/batches/{batch}", *(f"/batches/{batch}/{rest}" for rest in ("events?limit=1000", "failures.csv"))]
    addresses += [f"/batches/{batch}?since=0&limit=1000", *(f"/jobs/{jid}" for jid in sorted({*jids}))]
    answers = {address: ask(web, address) for address in addresses}
    redis.delete(*redis.keys(f"hm:batch:{batch}*"))  # type: ignore[misc]
    answers["of history"] = ask(web, f"/batches/{batch}")
    assert answers["of history"].json["source"] == "history"
    assert {one.status for one in answers.values()} == {200}
    whole = b"".join(one.body for one in answers.values()).decode("utf-8-sig")
    assert whole.count("***") > 10 * len(WAYS)
    for word in ("refused", "ExceptionGroup", "KeyError", "no use for", "no such card", "pay.v2"):
        assert word in whole, word
    found = {
        address: parts for address, one in answers.items() if (parts := seen("\n".join(_texts(one.body.decode()))))
    }
    assert found == {}


def _everything_failed(shop: Shop, redis: Redis) -> str:
    """The id of a batch whose jobs have ended in all ways, in a worker; everything is in SQL."""
    app = shop.app

    @app.job(name="pay_fatal", secret=("card",), retry=0)
    def pay_fatal(card: Fatal) -> None: ...

    @app.job(name="pay.v2", retry=0)  # of another version of the app, that calls nothing secret
    def renamed(way: str, card: Any) -> Any:
        return WAYS[way](card)

    with working(app):
        until(lambda: redis.get("hm:history:on"), "history is on")
        with app.batch("all ways") as batch:
            for way in WAYS:
                for retry in (False, 3):
                    shop.pay.using(retry=retry).enqueue(way, VALUE)
                    shop.pay_async.using(retry=retry).enqueue(way, card=VALUE)
                app.enqueue("pay", way, VALUE, queue="default", retry=0)
            shop.pay_typed.enqueue(Card(NUMBER, [PIN, PIN]))
            app.enqueue("pay_fatal", {"number": NUMBER}, queue="default", retry=0)
            _pushed_by_another(shop, batch.id)
        _raw(redis)
        until(lambda: not redis.exists("queue:default") and not in_flight(redis), "all ran")
        until(lambda: not redis.xlen("hm:history"), "history is written")
    return batch.id


def _pushed_by_another(shop: Shop, batch: str) -> None:
    """Members from an app whose client middleware gives them a name that it does not know itself."""

    def rename(job: dict[str, Any], call_next: Any) -> Any:
        job["class"] = "pay.v2" if job["queue"] == "default" else "pay.unknown"
        return call_next()

    shop.app.client_middleware.add(rename)
    try:
        for way in WAYS:
            shop.pay.using(retry=0).enqueue(way, VALUE)
        shop.pay_async.using(retry=0, queue="elsewhere").enqueue("kill", card=VALUE)
    finally:
        shop.app.client_middleware.remove(rename)


def _raw(redis: Redis) -> None:
    """Tracked jobs whose payloads do not fit, or are of a class that nobody knows."""
    plain = {"queue": "default", "retry": 0, "hm": {"track": True, "secret": [0]}}
    jobs = [
        {"class": "pay_typed", "args": [{"number": [NUMBER], "pins": PIN}]},
        {"class": "pay_typed", "args": [NUMBER, CODE]},
        {"class": "pay.nobody", "args": [NUMBER]},
    ]
    push_raw(redis, *(json.dumps({**plain, **job, "jid": f"{index:024x}"}) for index, job in enumerate(jobs)))


def _texts(body: str) -> Iterator[str]:
    """The body, and every text in it as a reader of JSON or CSV has it."""
    yield body
    try:
        yield from _leaves(json.loads(body))
    except ValueError:
        for row in csv.reader(io.StringIO(body.removeprefix("\ufeff"), newline="")):
            yield from row


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield str(value)
