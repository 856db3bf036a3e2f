"""The page of a cron: when it runs next, also in its own zone, what it enqueued last, and what it missed."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from redis import Redis

from henchman import App
from henchman.cron.timing import in_zone
from support.browsing import XSS, Browser


@pytest.fixture
def browser(shop: App) -> Browser:
    shop.crons.add("nightly report", "shop.mail", "30 2 * * *", tz="Europe/Berlin", queue="mail", args=[1])
    return Browser(shop.console())


def test_times_are_shown_as_clocks_show_them_in_the_zone() -> None:
    spring = datetime(2026, 3, 29, 0, 30, tzinfo=UTC).timestamp()  # the clocks go from 2 to 3 then
    assert in_zone(spring, "Europe/Berlin") == "Sun 2026-03-29 01:30 CET"
    assert in_zone(spring + 3600, "Europe/Berlin") == "Sun 2026-03-29 03:30 CEST"
    assert in_zone(spring + 7, "UTC") == "Sun 2026-03-29 00:30:07 UTC"
    assert in_zone(spring, None) == "Sun 2026-03-29 00:30 UTC"


def test_a_cron_shows_its_next_times_and_its_last_jobs(browser: Browser, redis: Redis) -> None:
    assert "/crons/nightly~20report" in browser.get("/crons").links
    planned = time.time() - 3600
    redis.lpush("hm:cron:past:nightly report", f"{planned} {planned + 90} {'a' * 24}")
    redis.lpush("hm:cron:past:nightly report", f"{planned + 9} {planned + 9} {'b' * 24} dead {planned + 19}")
    redis.lpush("hm:cron:past:nightly report", *(f"{planned + n} {planned + n} {'c' * 24} done 1e9" for n in (20, 30)))
    shown = browser.get("/crons/nightly~20report")
    assert shown.status == 200
    assert shown.text.count("02:30 CE") == 10, "ten times, CET or CEST"
    assert "1 min 30 s later" in shown.words
    assert "2 done, 1 dead, 1 without an end; the newest to the right" in shown.words
    assert "dead after 10 s" in shown.words
    assert shown.text.count("<rect") == 4
    assert "At 02:30 every day" in shown.words
    every = browser.get("/crons").words
    assert "At 02:30 every day" in every
    assert "job done" in every, "how the last one ended"
    assert f"/jobs/{'a' * 24}" in shown.links
    assert {"/queues/mail", "/metrics/shop.mail"} <= set(shown.links)
    assert "It missed" not in shown.words
    redis.zadd("hm:cron:ticks", {"nightly report": time.time() - 2 * 86_400})
    assert "It missed" in browser.get("/crons/nightly~20report").words
    assert "nightly report missed" in browser.get("/crons").words


def test_acts_of_a_cron_lead_back_to_its_page(browser: Browser, shop: App) -> None:
    page = "/crons/nightly~20report"
    assert 'name="back" value="one"' in browser.get(page).text
    answer = browser.post(f"{page}/do/pause", {"token": browser.token(page), "back": "one"})
    assert answer.headers["location"].startswith(f"{page}?said=")
    assert [one.state for one in shop.crons.list()] == ["paused"]
    shown = browser.get(page)
    assert "It is paused (" in shown.words
    assert "ago): what is planned meanwhile is left out." in shown.words
    assert f"{page}/do/resume" in shown.links
    assert "/do/" not in Browser(shop.console(read_only=True)).get(page).text


def test_an_unknown_cron_is_told_with_the_nearest_name_and_a_broken_one_with_its_problem(
    browser: Browser, redis: Redis
) -> None:
    answer = browser.get("/crons/nightly~20repor")
    assert answer.status == 404
    assert "nightly report" in answer.words
    redis.hset("hm:crons", "odd", XSS)
    shown = browser.get("/crons/odd")
    assert shown.status == 200
    assert "unreadable" in shown.words
    assert "/do/" not in shown.text
    assert XSS not in shown.text


def test_programs_read_one_cron(browser: Browser) -> None:
    found = json.loads(browser.get("/api/v1/crons/nightly~20report").body)
    assert (found["name"], len(found["next"]), found["state"]) == ("nightly report", 10, "active")
    assert found["words"] == "At 02:30 every day"
    assert browser.get("/api/v1/crons/nothing").status == 404
