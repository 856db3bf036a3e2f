"""Who is on call reads on the first page what was done lately, where a queue is going, and has it all as text."""

from __future__ import annotations

import time

import msgspec
import pytest
from redis import Redis

from henchman import App
from henchman.inspector.flow import flow_of
from henchman.inspector.metrics import mark_deploy
from henchman.inspector.queues import QueueState
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


def test_a_flow_is_of_a_minute_at_least() -> None:
    def net(past: list[Level], size: int, at: float) -> float | None:
        return flow_of(past, {}, QueueState("a", size, None, paused=False), at).net

    assert net([Level(100.0, 0, {"a": 1})], 100, 130.0) is None
    assert net([Level(60.0, 0, {"a": 1}), Level(0.0, 0, {"a": 1})], 121, 120.0) == 1.0
    assert net([], 1, 1.0) is None


@pytest.mark.parametrize(
    ("before", "sizes", "now", "size", "flow"),
    [
        (1000, {"a": 50}, 1600, 650, (4.0, 2.0, 2.0)),
        (1000, {"a": 1250}, 1600, 50, (0.0, 2.0, -4.0)),
        (1000, {}, 1600, 0, (2.0, 2.0, 0.0)),
        (None, {"a": 50}, 1600, 50, (None, None, 0.0)),
        (1000, {"a": 50}, 20, 50, (None, None, 0.0)),
    ],
    ids=["grows", "cleared", "passes", "not-counted", "counted-anew"],
)
def test_in_and_out_of_a_queue(
    before: int | None, sizes: dict[str, int], now: int, size: int, flow: tuple[float | None, ...]
) -> None:
    past = Level(1000.0, 0, sizes, {} if before is None else {"a": before})
    one = flow_of([past], {"a": now}, QueueState("a", size, None, paused=False), 1300.0)
    assert (one.entered, one.left, one.net) == flow


def test_pages_and_programs_tell_what_comes_in_and_goes_out(app: App, redis: Redis) -> None:
    redis.sadd("queues", "pay")
    redis.lpush("queue:pay", *[NightShop(app, redis).put("pay", "shop.charge")] * 650)
    redis.delete(app.keys.levels)
    redis.lpush(app.keys.levels, _json(Level(time.time() - 300, 0, {"pay": 50}, {"pay": 1000})))
    redis.hset(app.keys.ran, "pay", 1600)
    browser = Browser(app.console())
    row = browser.get("/queues").words.partition(" In/s Out/s Trend ")[2].partition("pay ")[2]
    assert "4.0 2.0 grows 2.0 a second" in row[:120]
    assert "In/s 4.0 Out/s 2.0 Trend grows 2.0 a second" in browser.get("/queues/pay").words
    for told in (msgspec.json.decode(browser.get("/api/v1/queues/pay").body), *_items(browser)):
        speeds = [told[f"{word}_per_second"] for word in ("in", "out", "net")]
        assert speeds == pytest.approx([4.0, 2.0, 2.0], rel=0.05)


def _items(browser: Browser) -> list[dict[str, float]]:
    return [one for one in msgspec.json.decode(browser.get("/api/v1/queues").body)["items"] if one["name"] == "pay"]
