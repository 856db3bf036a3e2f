"""Who is on call reads on the first page what was done lately, where a queue is going, and has it all as text."""

from __future__ import annotations

import time

import msgspec
import pytest
from redis import Redis

from henchman import App
from henchman.console.chart import pace
from henchman.inspector.metrics import mark_deploy
from henchman.store.call import run
from henchman.store.queues import Level
from support.browsing import Browser
from support.incidents import NightShop


def test_what_people_did_and_deployed_stands_there_the_newest_first(app: App, redis: Redis) -> None:
    night = NightShop(app, redis)
    browser = Browser(night.app.console())
    assert "What people did" not in browser.get("/").words
    run(app.connections, mark_deploy(app.keys, "v2.4.1"))
    browser.post("/queues/mail/do/pause", {"token": browser.token("/metrics"), "reason": "provider outage"})
    browser.act("/metrics", "/queues/mail/do/nothing")
    words = browser.get("/").words
    said = words.partition("What people did")[2]
    assert "mail is paused: jobs wait, and none starts 127.0.0.1" in said
    assert "deploy v2.4.1" in said
    assert "nothing" not in said.partition("Last hour")[0].partition("deploy")[0]


def test_the_findings_are_there_as_text(app: App, redis: Redis) -> None:
    night = NightShop(app, redis)
    night.no_consumer()
    words = Browser(app.console(label="shop")).get("/").words
    assert "Overview 1 critical" in words
    text = words.partition("As text, for a ticket or the incident channel")[2]
    assert text.startswith(" shop at ")
    assert "- CRITICAL" in text
    assert "pay" in text.partition("- CRITICAL")[2][:80]


@pytest.mark.parametrize(
    ("then", "now", "shown"),
    [(100, 700, "grows 2.0 a second"), (900, 300, "empty in 2 min"), (300, 300, "steady"), (None, 300, "–")],
)
def test_a_queue_says_where_it_goes(app: App, redis: Redis, then: int | None, now: int, shown: str) -> None:
    night = NightShop(app, redis)
    redis.sadd("queues", "pay")
    redis.lpush("queue:pay", *[night.put("pay", "shop.charge")] * now)
    past = Level(time.time() - 300, 0, {"pay": then} if then is not None else {})
    redis.delete(app.keys.levels)
    redis.lpush(app.keys.levels, _json(past))
    browser = Browser(app.console())
    for page in ("/queues", "/"):
        row = browser.get(page).words.partition(" Trend ")[2].partition("pay ")[2]
        assert shown in row[:120], page


def _json(one: Level) -> bytes:

    return msgspec.json.encode(one)


def test_a_pace_is_of_a_minute_at_least() -> None:
    assert pace([Level(100.0, 0, {"a": 1})], "a", 100, 130.0) is None
    assert pace([Level(60.0, 0, {"a": 1}), Level(0.0, 0, {"a": 1})], "a", 121, 120.0) == 1.0
    assert pace([], "a", 1, 1.0) is None
