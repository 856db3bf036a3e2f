"""Busy: beside each running job how long its class usually takes, those far beyond it marked, and first by choice."""

from __future__ import annotations

import datetime as dt
import json
import re
import time

import pytest
from redis import Redis

from henchman import App
from henchman.inspector.metrics import usual_times
from henchman.store import metrics
from henchman.store.call import run
from henchman.wire.payload import encode
from support.browsing import Browser
from support.incidents import NightShop

HERE = "host-7:77:" + "c" * 12


@pytest.fixture
def night(app: App, redis: Redis) -> NightShop:
    """Three jobs run: a quick one for a minute, a slow one for ten, and one of which nothing is known, for a second."""
    shop = NightShop(app, redis)
    shop.alive(HERE, queues=["mail"], busy=3)
    for slot, name, ago in (("t1", "shop.quick", 60), ("t2", "shop.slow", 600), ("t3", "shop.unheard", 1)):
        payload = shop.put("mail", name, jid=slot * 12).decode()
        record = encode({"queue": "mail", "run_at": time.time() - ago, "payload": payload})
        for kind in ("work", "workers"):
            redis.hset(f"{HERE}:{kind}", slot, record)
    for name, ms, many in (("shop.quick", 400, 96), ("shop.quick", 18_000, 4), ("shop.slow", 900_000, 3)):
        steps = [0] * 26
        steps[metrics.bucket_of(ms)] = many
        counted = {name: metrics.Counted(many, 0, ms * many, steps)}
        app.connections.run(metrics.flush(app.keys, dt.datetime.now(dt.UTC), counted, ("8",)))
    return shop


def test_the_page_says_what_is_usual_and_marks_what_is_far_beyond(night: NightShop) -> None:
    browser = Browser(night.app.console())
    words = browser.get("/busy").words
    assert words.index("shop.slow") < words.index("shop.quick") < words.index("shop.unheard"), "the longest first"
    assert re.search(r"1[23]\d × usual usually < 500 ms", words)
    assert re.search(r"10 min( \d s)? usually 15 min", words), (
        "beyond every limit of a histogram: the mean, and no mark"
    )
    assert "usual time unknown" in words
    sorted_ = browser.get("/busy?by=usual").words
    assert sorted_.index("shop.quick") < sorted_.index("shop.slow") < sorted_.index("shop.unheard")
    assert "× usual" in browser.get(f"/processes/{HERE.replace(':', '~3A')}").words


def test_programs_are_told_the_same(night: NightShop) -> None:
    found = json.loads(Browser(night.app.console()).get("/api/v1/running").text)["items"]
    usual = {one["job"]["class"]: one["usual"] for one in found}
    assert usual["shop.unheard"] is None
    quick, slow = usual["shop.quick"], usual["shop.slow"]
    assert (quick["half_s"], quick["most_s"], quick["mean_s"]) == (0.5, 0.5, pytest.approx(1.104))
    assert 119 < quick["times"] < 150
    assert (slow["half_s"], slow["most_s"], slow["mean_s"]) == (None, None, 900.0)
    assert slow["times"] == pytest.approx(600 / 900, abs=0.1)


def test_names_are_found_as_metrics_have_them(app: App) -> None:
    steps = [0] * 26
    steps[0] = 1
    counted = {metrics.metric_name("A|b/c"): metrics.Counted(1, 0, 5, steps)}
    app.connections.run(metrics.flush(app.keys, dt.datetime.now(dt.UTC), counted, ("8",)))
    assert list(run(app.connections, usual_times(app.keys, ["A|b/c", "none"]))) == ["A|b/c"]
    assert run(app.connections, usual_times(app.keys, [])) == {}


def runs_for(night: NightShop, slot: str, name: str, ago: float) -> None:
    """Let a job of the class run for so long."""
    payload = night.put("mail", name, jid=slot * 12).decode()
    record = encode({"queue": "mail", "run_at": time.time() - ago, "payload": payload})
    for kind in ("work", "workers"):
        night.redis.hset(f"{HERE}:{kind}", slot, record)


def long_runs(night: NightShop) -> list[str]:
    found = json.loads(Browser(night.app.console()).get("/api/v1/findings").text)["items"]
    return sorted(one["text"] for one in found if one["kind"] == "long run")


def test_a_long_run_is_a_finding_where_it_is_unusual(night: NightShop) -> None:
    """A class that takes an hour each time is nobody's alarm; one that takes half a second is."""
    assert long_runs(night) == []
    for slot, name in (("t1", "shop.quick"), ("t2", "shop.slow"), ("t3", "shop.unheard")):
        runs_for(night, slot, name, 1260)
    assert [re.sub(r"21 min( \d s)?", "21 min", one) for one in long_runs(night)] == [
        "shop.quick has been running for 21 min; 95 of 100 end within 500 ms.",
        "shop.unheard has been running for 21 min.",
    ]
    runs_for(night, "t2", "shop.slow", 9_100)
    assert "shop.slow has been running for 2 h 31 min." in long_runs(night), "ten times its mean"
    shown = Browser(night.app.console()).get("/")
    assert f"/jobs/{'t2' * 12}/do/cancel" in shown.links
    assert f"/jobs/{'t2' * 12}" in " ".join(shown.links)
