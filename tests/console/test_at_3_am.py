"""Incidents at 3 am: whoever follows the first link of the first finding, and the first one there, stands
before what broke and the act against it. No JavaScript is needed; ``tests/browser`` clicks the same in Chromium."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from redis import Redis

from henchman import App
from support.browsing import Browser
from support.incidents import INCIDENTS, Content, NightShop


@pytest.fixture
def three_am(app: App, redis: Redis) -> Iterator[NightShop]:
    yield NightShop(app, redis)
    redis.config_set("maxmemory", 0)
    redis.config_set("maxmemory-policy", "noeviction")


def followed(browser: Browser, page: str, part: str) -> str:
    """Where the first link of a part of a page goes; the page itself where it tells of nothing else."""
    shown = browser.get(page)
    assert shown.status == 200, (page, shown.status)
    links = Content(shown.text, part).links
    return links[0] if links else page


@pytest.mark.parametrize("incident", INCIDENTS)
def test_two_clicks_lead_to_what_broke(three_am: NightShop, incident: str) -> None:
    happens, causes, act = INCIDENTS[incident]
    happens(three_am)
    browser = Browser(App(redis_url=three_am.app.config.redis_url).console())
    first = followed(browser, "/", "findings")
    second = followed(browser, first, "main")
    shown = browser.get(second)
    for cause in causes:
        assert cause in shown.words, (first, second, shown.words)
    assert act in shown.words or any(act in link for link in shown.links), (first, second, shown.links)


def test_of_a_thousand_processes_the_lost_and_the_busiest_are_shown(three_am: NightShop) -> None:
    for one in range(300):
        three_am.alive(f"crowd-{one}:{one + 1}:{one:012x}", queues=["mail"], busy=one % 7)
    three_am.dead_host()
    browser = Browser(App(redis_url=three_am.app.config.redis_url).console())
    shown = browser.get("/busy")
    assert len(shown.body) < 60_000
    assert shown.words.index("host-3:412") < shown.words.index("crowd-104:105") < shown.words.index("and 282 more")
    assert "crowd-1:2 " not in shown.words
    assert "crowd-1:2 " in browser.get("/busy?q=crowd-1%3A").words
    assert "No process is called so." in browser.get("/busy?q=nobody").words


def test_many_of_one_kind_are_one_sentence_more(three_am: NightShop) -> None:
    for one in range(12):
        died = {"error_class": "PoisonPill", "error_message": f"pill {one}", "jid": f"{one:024}"}
        three_am.redis.zadd("dead", {three_am.put("pay", "shop.resize", **died): time.time() - 60})
    words = Browser(App(redis_url=three_am.app.config.redis_url).console()).get("/").words
    assert words.partition("As text")[0].count("shop.resize ended every process that ran it") == 5
    assert "And 7 more like this." in words


def test_a_shop_at_work_has_no_findings(three_am: NightShop) -> None:
    browser = Browser(App(redis_url=three_am.app.config.redis_url).console())
    assert "All is well." in browser.get("/").words


def test_it_says_after_which_deploy_an_error_came(three_am: NightShop) -> None:
    three_am.new_error()
    words = Browser(three_am.app.console()).get("/").words
    assert "New: TimeoutError in shop.sync, 6 times" in words
    assert "after the deploy v2.4.1" in words
