"""The pages of errors: groups, one group with its jobs, and the act that retries them."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.inspector.errors import error_group, errors
from henchman.inspector.metrics import mark_deploy
from henchman.store.call import run
from henchman.store.failures import group_errors
from support.browsing import XSS, Browser
from support.worker import jobs_in, settled, until, working


def group(name: str, at: float, *, count: int = 1, hours: dict[int, int] | None = None, **more: Any) -> dict[str, Any]:
    """A group as a worker writes it."""
    hour = int(at // 3600)
    found = {
        "id": name,
        "error": "ValueError",
        "message": "no",
        "place": "shop:charge",
        "trace": ["shop.py:7:in charge"],
    }
    found |= {"count": count, "first": at, "last": at, "jid": "j" * 24, "jobs": {"shop.charge": count}}
    found |= {
        "queues": {"pay": count},
        "hours": {str(hour - back): many for back, many in (hours or {0: count}).items()},
    }
    return found | more


def write(app: App, *groups: dict[str, Any]) -> None:
    app.connections.run(group_errors(app.keys, groups, time.time()))


def test_what_failed_is_a_group_and_its_jobs_are_retried(app: App, redis: Redis) -> None:
    @app.job(name="sync", retry=5)
    def sync(shop: int) -> None:
        raise TimeoutError(f"shop {shop} does not answer")

    @app.job(name="bill", retry=0)
    def bill() -> None:
        raise KeyError("customer")

    for shop in range(12):
        sync.enqueue(shop)
    sync.using(retry=0).enqueue(99)
    bill.enqueue()
    with working(app):
        settled(redis, 14)
    browser = Browser(app.console())
    page = browser.get("/errors")
    assert "Errors 2" in page.words
    assert "TimeoutError new" in page.words
    [link] = {
        link
        for link in page.links
        if re.fullmatch(r"/errors/[0-9a-f]{12}", link) and link in page.text[: page.text.index("TimeoutError</b>")]
    }
    shown = browser.get(link)
    assert "Times 13" in shown.words
    assert "test_errors.py:" in shown.words
    assert "sync(99)" in shown.words
    [act] = [one for one in shown.links if one.endswith("/do/retry")]
    assert f"13 jobs of error {link[8:]}, as of the page before, to be put into their queues" in browser.get(act).words
    bill.enqueue()  # which is another error, and nothing of it is touched
    done = browser.act(act, act)
    assert done.status == 303
    until(lambda: redis.llen("queue:default") == 14, "they are in their queue")
    assert (redis.zcard("retry"), redis.zcard("dead")) == (0, 1)
    assert [job["class"] for job in jobs_in(redis, "dead")] == ["bill"]
    assert browser.get(act).status == 409, "nothing is left to be done"


def test_what_failed_after_the_page_was_drawn_is_left_alone(app: App, redis: Redis) -> None:
    @app.job(name="bill", retry=0)
    def bill() -> None:
        raise KeyError("customer")

    bill.enqueue()
    with working(app):
        settled(redis, 1)
    [one] = run(app.connections, errors(app.keys)).groups
    browser = Browser(app.console())
    early = f"/errors/{one.id}/{int(time.time()) - 60}/do/retry"
    assert "nothing to retry any more" in browser.get(early).words
    assert browser.act(f"/errors/{one.id}/{int(time.time())}/do/retry", early).status == 409
    assert redis.zcard("dead") == 1
    assert browser.get(f"/errors/{one.id}/soon/do/retry").status == 409
    assert Browser(app.console(authorize=lambda request: "look")).post(early).status == 403


def test_new_and_rising_ones_come_first_and_filters_stay(app: App, redis: Redis) -> None:
    now = time.time()
    old = {"first": now - 90_000}
    write(
        app,
        group("aaa", now, count=9, hours=dict.fromkeys(range(24), 9), error="Steady", **old),
        group("bbb", now, count=90, hours={0: 90, 5: 1}, error="Rising", **old),
        group("ccc", now, error="Fresh", jobs={"mail": 1}, queues={"mail": 1}),
        group("ddd", now - 40_000, error="Quiet", **old),
    )
    run(app.connections, mark_deploy(app.keys, "v2", now=now - 90_000 - 120))
    found = run(app.connections, errors(app.keys, now=now))
    assert [(one.error, one.state(now)) for one in found.groups] == [
        ("Fresh", "new"),
        ("Rising", "rising"),
        ("Steady", "steady"),
        ("Quiet", "quiet"),
    ]
    risen = run(app.connections, error_group(app.keys, "bbb", now))
    assert risen is not None
    assert risen.after is not None
    assert risen.after.label == "v2"
    browser = Browser(app.console())
    only = browser.get("/errors?job=mail")
    assert "Errors 1" in only.words
    assert "/errors?job=mail&amp;show=new" in only.text
    assert "Errors 1" in browser.get("/errors?show=rising").words
    assert "Errors 3" in browser.get("/errors?queue=pay").words
    assert "No error fits" in browser.get("/errors?q=nothing-like-this").words
    assert "v2" in browser.get("/errors/bbb").words


def test_states_of_the_pages(app: App, redis: Redis) -> None:
    browser = Browser(app.console())
    assert "No job has failed in the last 14 days" in browser.get("/errors").words
    for unknown in ("/errors/beef", "/errors/~3Cb~3E", f"/errors/{'a' * 100}"):
        assert browser.get(unknown).status == 404
    now, long = time.time(), "Wild" * 60
    wild = {"message": XSS * 3, "place": long, "jobs": {XSS: 1, long: 2, "c": 1}, "queues": {XSS: 1}, "trace": [XSS]}
    write(app, *[group(f"g{number}", now, **wild, error=long) for number in range(60)])
    for page in ("/errors", "/errors?n=100", "/errors?p=3", "/errors/g7"):
        shown = browser.get(page)
        assert shown.status == 200
        assert len(shown.body) < 60_000, page
        assert "<script>alert" not in shown.text
        assert not re.search(r'\son\w+="|style="', shown.text)
    assert "Errors 60" in browser.get("/errors?p=2").words
    redis.hset("hm:errors:facts", "g7", "nonsense")
    assert "Errors 59" in browser.get("/errors").words
    assert browser.get("/errors/g7").status == 404


@pytest.mark.parametrize(("page", "trips"), [("/errors", 3), ("/errors/g7", 1)])  # a list: and its saved views
def test_round_trips(app: App, monkeypatch: pytest.MonkeyPatch, page: str, trips: int) -> None:
    write(app, *[group(f"g{number}", time.time()) for number in range(60)])
    calls = list[str]()
    execute = app.connections.run

    def counted(call: Any) -> Any:
        calls.append(call.name)
        return execute(call)

    monkeypatch.setattr(app.connections, "run", counted)
    assert Browser(app.console()).get(page).status == 200
    assert len(calls) == trips, calls


def test_the_overview_begins_with_a_new_error(app: App, redis: Redis) -> None:
    now = time.time()
    run(app.connections, mark_deploy(app.keys, "v2", now=now - 600))
    redis.set("stat:processed", 100)
    old = {"first": now - 90_000}
    write(
        app,
        group("aaa", now, count=412, first=now - 200, error="TimeoutError", jobs={"sync": 400, "refund": 12}),
        group("bbb", now, count=90, hours={0: 90}, error="Rising", **old),
        group("ccc", now, count=4, error="Few"),
        group("ddd", now, count=9, hours=dict.fromkeys(range(24), 9), error="Steady", **old),
    )
    page = Browser(app.console()).get("/")
    words = page.words
    assert re.search(r"✕ new error New: TimeoutError in sync, refund, 412 times in 3 min [2-5]\d s, ", words)
    assert "after the deploy v2. no its page shows where, and retries its jobs" in words
    assert "More than usual: Rising in shop.charge, 90 times in the last hour." in words
    assert words.index("TimeoutError") < words.index("More than usual")
    assert "New: Few" not in words
    assert "More than usual: Steady" not in words
    assert re.findall(r'class="text"><a href="([^"]*)"', page.text) == ["/errors/aaa", "/errors/bbb"]
    write(app, *[group(f"g{number}", now, count=50, error=f"Error{number}") for number in range(12)])
    assert "And 8 more like this." in Browser(app.console()).get("/").words


def after(seconds: float, **more: Any) -> dict[str, Any]:
    return group("aaa", time.time() + seconds, error="TimeoutError", **more)


def test_a_resolved_error_is_quiet_until_it_returns(app: App, redis: Redis) -> None:
    redis.set("stat:processed", 100)
    write(app, after(-60, count=9))
    browser = Browser(app.console())
    assert "New: TimeoutError" in browser.get("/").words
    done = browser.act("/errors/aaa", "/errors/aaa/do/resolve")
    assert (done.status, done.headers["location"].split("?")[0]) == (303, "/errors/aaa")
    assert "All is well." in browser.get("/").words
    assert "Every error is resolved or muted." in browser.get("/errors").words
    assert "TimeoutError resolved" in browser.get("/errors?show=resolved").words
    assert "Errors 0" in browser.get("/errors?show=new").words
    write(app, after(-30, count=2))  # which a worker had not written down when it was resolved
    assert "All is well." in browser.get("/").words
    write(app, after(+1, count=3))
    assert (
        "returned error Returned: TimeoutError in shop.charge, 5 times since it was resolved" in browser.get("/").words
    )
    assert "TimeoutError returned" in browser.get("/errors").words
    assert "5 failures since" in browser.get("/errors/aaa").words
    assert "resolve errors aaa done error aaa is resolved" in browser.get("/audit").words
    browser.act("/errors/aaa", "/errors/aaa/do/resolve")
    assert browser.act("/errors/aaa", "/errors/aaa/do/reopen").status == 303
    assert "New: TimeoutError" in browser.get("/").words
    assert not redis.exists("hm:errors:handled")


def test_a_muted_error_is_quiet_for_a_time_or_a_count(app: App, redis: Redis) -> None:
    redis.set("stat:processed", 100)
    write(app, after(-60, count=9))
    browser = Browser(app.console())
    assert browser.act("/errors/aaa", "/errors/aaa/1h/do/mute").status == 303
    assert "All is well." in browser.get("/").words
    assert "Muted until" in browser.get("/errors/aaa").words
    [one] = run(app.connections, errors(app.keys)).groups
    assert one.state(time.time() + 3500) == "muted"
    assert one.state(time.time() + 3700) != "muted", "the time is over"
    assert browser.act("/errors/aaa", "/errors/aaa/10x/do/mute").status == 303
    write(app, after(0, count=9))
    assert "TimeoutError muted" in browser.get("/errors?show=muted").words
    assert "Muted until 1 more" in browser.get("/errors/aaa").words
    write(app, after(0, count=1))
    assert "New: TimeoutError in shop.charge, 19 times" in browser.get("/").words


@pytest.mark.parametrize("long", ["soon", "0h", "15d", "1y", "-1h", "9999999x"])
def test_a_time_to_mute_for_is_a_time(app: App, redis: Redis, long: str) -> None:
    redis.set("stat:processed", 100)
    write(app, after(-60, count=9))
    refused = Browser(app.console()).act("/errors/aaa", f"/errors/aaa/{long}/do/mute")
    assert refused.status == 409
    assert "is no time to mute an error for: say 30m, 2h or 7d" in refused.words
    assert not redis.exists("hm:errors:handled")


def test_who_may_not_act_decides_nothing(app: App, redis: Redis) -> None:
    redis.set("stat:processed", 100)
    write(app, after(-60, count=9))
    looker = Browser(app.console(authorize=lambda request: "look"))
    assert "do/resolve" not in looker.get("/errors/aaa").text
    assert looker.post("/errors/aaa/do/resolve", {"token": "0" * 64}).status == 403
    actor = Browser(app.console())
    assert actor.post("/errors/aaa/do/resolve").status == 403, "without a token"
    assert actor.act("/errors/aaa", "/errors/aaa/do/resolve", sec_fetch_site="cross-site").status == 403
    assert actor.act("/errors/aaa", "/errors/bbb/do/resolve").status == 409, "nobody knows it"
    assert not redis.exists("hm:errors:handled")


def test_programs_resolve_too_and_what_is_forgotten_leaves_nothing(app: App, redis: Redis) -> None:
    write(app, after(-60, count=9), group("bbb", time.time() - 60))
    browser = Browser(app.console())
    for name, act in (("aaa", "resolve"), ("bbb", "resolve")):
        wish = {"page": "errors", "act": act, "names": [name]}
        done = browser.send("/api/v1/acts", json.dumps(wish).encode(), {"content-type": "application/json"})
        assert done.status == 200, done.text
        redis.hdel("hm:errors:facts", "aaa") if name == "aaa" else None
    [one] = json.loads(browser.get("/api/v1/errors").text)["items"]
    assert (one["id"], one["state"], one["handled"]["verb"]) == ("bbb", "resolved", "resolve")
    assert redis.hkeys("hm:errors:handled") == [b"bbb"]
