"""Findings on the Overview: each with the act that mends it, and muted for a time with a reason."""

from __future__ import annotations

import json
import time

import pytest
from redis import Redis

from henchman import App
from henchman.oncall.mutes import HOURS
from support.browsing import XSS, Browser, Shown
from support.incidents import NightShop


@pytest.fixture
def night(app: App, redis: Redis) -> NightShop:
    return NightShop(app, redis)


def say_mute(browser: Browser, mute: str, hours: str, why: str) -> Shown:
    return browser.post(mute, {"token": browser.token(mute), "hours": hours, "reason": why})


def test_a_finding_is_mended_where_it_stands(night: NightShop, app: App) -> None:
    night.paused()
    browser = Browser(app.console())
    assert "/queues/mail/do/resume" in browser.get("/").links
    assert browser.act("/", "/queues/mail/do/resume").status == 303
    assert not app.queues["mail"].paused()
    assert "All is well." in browser.get("/").words
    night.missed_cron()
    assert "/crons/nightly~20report/do/run" in browser.get("/").links
    assert browser.act("/", "/crons/nightly~20report/do/run").status == 303
    assert app.queues["mail"].size() == 4


def test_what_asks_first_is_a_link_and_who_may_only_look_sees_no_act(night: NightShop, app: App) -> None:
    night.old_code()
    shown = Browser(app.console()).get("/")
    (stop,) = (one for one in shown.links if one.endswith("/do/stop"))
    assert f'href="{stop}"' in shown.text
    night.new_error()
    shown = Browser(app.console()).get("/")
    (retry,) = (one for one in shown.links if one.endswith("/do/retry"))
    assert f'href="{retry}"' in shown.text, "it counts first"
    assert "6 jobs" in Browser(app.console()).get(retry).words
    assert "/do/" not in Browser(app.console(read_only=True)).get("/").text


def test_a_finding_is_muted_with_a_reason_for_all_and_shown_again(night: NightShop, app: App, redis: Redis) -> None:
    night.paused()
    browser, other = Browser(app.console()), Browser(App(redis_url=app.config.redis_url).console())
    (mute,) = (one for one in browser.get("/").links if one.endswith("/do/mute"))
    asked = browser.get(mute)
    assert "unless it becomes critical" in asked.words
    answer = say_mute(browser, mute, "8", f"known {XSS}")
    assert answer.headers["location"].startswith("/findings?")
    for one in (browser, other):
        shown = one.get("/")
        assert "All is well." in shown.words
        assert "1 muted" in shown.words
        assert "known" in shown.words
        assert "<script>alert" not in shown.text
    seen = json.loads(browser.get("/api/v1/findings").text)
    assert seen["items"] == []
    assert (seen["muted"][0]["kind"], seen["muted"][0]["act"]["act"]) == ("paused", "resume")
    assert seen["muted"][0]["muted_until"] is not None
    assert json.loads(browser.get("/api/v1/overview").text)["findings"] == []
    left = redis.ttl("hm:findings:muted")
    assert 7 * 86_400 < left <= 8 * 86_400  # type: ignore[operator]
    assert browser.act("/", mute.replace("mute", "unmute")).status == 303
    assert "Queue mail is paused" in browser.get("/").words
    assert not redis.exists("hm:findings:muted")


def test_a_mute_ends_and_what_becomes_critical_is_not_muted(night: NightShop, app: App, redis: Redis) -> None:
    def behind(seconds: float) -> None:
        redis.delete("queue:mail")
        redis.lpush("queue:mail", night.put("mail", "shop.mail", enqueued_at=time.time() - seconds))

    behind(90)
    browser = Browser(app.console())
    (mute,) = (one for one in browser.get("/").links if one.endswith("/do/mute"))
    say_mute(browser, mute, "1", "")
    assert "All is well." in browser.get("/findings").words
    behind(400)
    assert "Queue mail is 6 min 40 s behind." in Browser(app.console()).get("/").words
    behind(90)
    (name,) = redis.hkeys("hm:findings:muted")
    redis.hset("hm:findings:muted", name, json.dumps([time.time() - 1, "", ""]))
    assert "behind." in Browser(app.console()).get("/").words, "its hour is over"


@pytest.mark.parametrize("hours", ["0", "-1", "1e9", "9" * 40, "1; DROP", "\u202e"])
def test_hours_that_nobody_offers_are_refused(night: NightShop, app: App, redis: Redis, hours: str) -> None:
    night.paused()
    browser = Browser(app.console())
    (mute,) = (one for one in browser.get("/").links if one.endswith("/do/mute"))
    refused = say_mute(browser, mute, hours, "")
    assert refused.status == 409
    assert ", ".join(map(str, HOURS)) in refused.words
    assert not redis.exists("hm:findings:muted")


def test_what_is_not_there_is_not_muted_nor_unmuted(night: NightShop, app: App, redis: Redis) -> None:
    browser = Browser(app.console())
    for verb in ("mute", "unmute"):
        answer = browser.post(f"/findings/{'0' * 12}/do/{verb}", {"token": browser.token("/queues/mail/do/pause")})
        assert answer.status == 409
        assert "any more" in answer.words
    redis.hset("hm:findings:muted", mapping={"x": "no JSON", "y": "[]", "z": b"\xff"})
    assert browser.get("/").status == 200


def test_a_hundred_are_muted_and_no_more_and_old_ones_make_room(night: NightShop, app: App, redis: Redis) -> None:
    night.paused()
    browser = Browser(app.console())
    (mute,) = (one for one in browser.get("/").links if one.endswith("/do/mute"))
    redis.hset("hm:findings:muted", mapping={f"f{n}": json.dumps([time.time() + 60, "", ""]) for n in range(100)})
    full = say_mute(browser, mute, "1", "")
    assert "unmute some" in full.words
    redis.hset("hm:findings:muted", mapping={f"f{n}": json.dumps([time.time() - 60, "", ""]) for n in range(100)})
    assert say_mute(browser, mute, "1", "").status == 303
    assert redis.hlen("hm:findings:muted") == 1
