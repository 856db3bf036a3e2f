"""Saved views: a filter under a name, on the server, for everybody; and marks of deploys, set from a page."""

from __future__ import annotations

import datetime as dt
import json
import time

import pytest
from redis import Redis

from henchman import App
from henchman.inspector.audit import audited
from henchman.inspector.metrics import deploy_marks
from henchman.oncall import views
from henchman.oncall.views import save_view, saved_views
from henchman.store import metrics
from henchman.store.call import command, run
from support.browsing import XSS, Browser, Shown

LOOK = {"console_password": "may-act-1", "console_look_password": "may-look-1"}


def save(browser: Browser, page: str, query: str, name: str) -> Shown:
    fields = {"token": browser.token("/metrics"), "query": query, "name": name}
    return browser.post(f"/views/{page}/do/save", fields, referer=f"http://localhost:7080/{page}?{query}")


def test_a_view_is_saved_shown_to_others_and_deleted(shop: App, redis: Redis) -> None:
    browser = Browser(shop.console())
    assert "Save view" not in browser.get("/dead").words, "nothing narrows the list"
    query = "q=error%3ACardDeclined+class%3Ashop.charge"
    done = save(browser, "dead", query, "  Cards   that\tdecline ")
    assert done.status == 303
    assert done.headers["location"].startswith(f"/dead?{query}&said=saved+as+Cards+that+decline")
    other = Browser(App(redis_url=shop.config.redis_url).console())
    assert "Views Cards that decline" in other.get("/dead").words
    assert f"/dead?{query}" in other.get("/dead").links
    assert "Cards that decline" not in other.get("/retries").words
    shown = other.get(f"/dead?{query}")
    [delete] = [one for one in shown.links if one.endswith("/do/delete") and one.startswith("/views/")]
    assert other.act(f"/dead?{query}", delete).headers["location"].startswith("/dead?")
    assert redis.hgetall("hm:views") == {}
    told = [
        (one.act, one.page, one.names, one.outcome)
        for one in run(shop.connections, audited(shop.keys, "", 0, 9)).entries
    ]
    assert told == [
        ("delete", "views", ["dead", "Cards that decline"], "done"),
        ("save", "views", ["dead", "  Cards   that\tdecline ".strip()], "done"),
    ]


def test_of_one_name_the_last_counts_and_fifty_are_kept(app: App, redis: Redis) -> None:
    browser = Browser(app.console())
    save(browser, "errors", "show=new&job=a", XSS)
    save(browser, "errors", "show=rising&by=x", XSS)
    [one] = run(app.connections, saved_views(app.keys))
    assert (one.page, one.name, one.query, one.by) == ("errors", XSS, {"show": "rising"}, "127.0.0.1")
    save(browser, "batches", "show=bad", XSS)
    shown = browser.get("/batches")
    assert "<script>alert" not in shown.text
    assert "/batches?show=bad" in shown.links
    for number in range(views.MOST - 2):
        run(app.connections, save_view(app.keys, "dead", f"n{number}", {"q": "x"}))
    refused = save(browser, "dead", "q=y", "one more")
    assert (refused.status, redis.hlen("hm:views")) == (409, views.MOST)
    assert "delete one first" in refused.words
    assert save(browser, "dead", "q=y", "n7").status == 303, "in place of another"
    assert len(browser.get("/dead").body) < 60_000


@pytest.mark.parametrize(
    ("page", "query", "name", "why"),
    [
        ("dead", "", "x", "nothing narrows the list"),
        ("dead", "by=usual&p=3", "x", "nothing narrows the list"),
        ("system", "q=x", "x", "'system' has no views"),
        ("dead", "q=x", " ", "is no name of a view"),
        ("dead", "q=x", "n" * 41, "is no name of a view"),
        ("dead", "&".join(f"q{n}=1" for n in range(40)), "x", "too many fields"),
    ],
)
def test_what_makes_no_sense_is_refused(shop: App, redis: Redis, page: str, query: str, name: str, why: str) -> None:
    browser = Browser(shop.console())
    fields = {"token": browser.token("/dead"), "query": query, "name": name}
    refused = browser.post(f"/views/{page}/do/save", fields)
    assert refused.status == 409
    assert why in refused.words
    assert redis.exists("hm:views") == 0


def test_what_others_wrote_there_breaks_no_page(app: App) -> None:
    app.connections.run(command("HSET", app.keys.views, "dead/x", b"\xff{", "dead/y", b"[]"))
    assert Browser(app.console()).get("/dead").status == 200


# ---- deploys


def _mark(browser: Browser, label: str, ago: str = "0") -> Shown:
    return browser.post("/metrics/do/mark", {"token": browser.token("/metrics"), "label": label, "ago": ago})


def test_a_deploy_is_marked_from_the_page_and_stands_between_its_runs(app: App) -> None:
    at = dt.datetime.now(dt.UTC)
    for minutes, failed in ((40, 0), (5, 30)):
        counted = {"shop.charge": metrics.Counted(100, failed, 1000)}
        app.connections.run(metrics.flush(app.keys, at - dt.timedelta(minutes=minutes), counted, ("8",)))
    browser = Browser(app.console())
    assert _mark(browser, f" v2 {XSS}", "30").status == 303
    shown = browser.get("/metrics")
    assert "<script>alert" not in shown.text
    before, _, after = shown.words.partition("Before and after deploys")[2].partition("v2")
    assert "100 0 0.0 %" in before
    assert "70 30 30.0 % ▲ more than before" in after
    assert "1 deploy" in shown.words
    assert "30.0 %" in browser.get("/metrics/shop.charge").words.partition("v2")[2]
    [mark] = run(app.connections, deploy_marks(app.keys, time.time() - 7200, time.time()))
    remove = f"/metrics/{int(mark.at)}/do/unmark"
    assert remove in shown.links
    assert browser.act(remove, remove).status == 303
    assert run(app.connections, deploy_marks(app.keys, time.time() - 7200, time.time())) == []
    assert browser.act("/metrics", remove).status == 409
    told = [
        (one.act, one.names[0][:3], one.outcome) for one in run(app.connections, audited(app.keys, "", 0, 9)).entries
    ]
    assert told == [("unmark", remove[9:12], "refused"), ("unmark", remove[9:12], "done"), ("mark", "v2 ", "done")]


def test_a_mark_needs_a_label_and_a_minute_of_its_own(app: App, redis: Redis) -> None:
    browser = Browser(app.console())
    assert "is no label of a deploy" in _mark(browser, " ").words
    assert "ago=7" in _mark(browser, "v1", "7").words
    assert _mark(browser, "v1", "60").status == 303
    assert "another mark" in _mark(browser, "v1", "60").words
    assert len(run(app.connections, deploy_marks(app.keys, time.time() - 9000, time.time()))) == 1


def test_programs_mark_and_save_too(app: App) -> None:
    browser = Browser(app.console())
    for wish in (
        {"page": "metrics", "act": "mark", "names": ["v3"], "form": {"ago": "5"}},
        {"page": "views", "act": "save", "names": ["dead", "cards"], "form": {"query": "q=card"}},
    ):
        done = browser.send("/api/v1/acts", json.dumps(wish).encode(), {"content-type": "application/json"})
        assert done.status == 200, done.text
    assert [one["label"] for one in json.loads(browser.get("/api/v1/metrics").text)["deploys"]] == ["v3"]
    [view] = json.loads(browser.get("/api/v1/views").text)["items"]
    assert (view["page"], view["name"], view["query"]) == ("dead", "cards", {"q": "card"})


def test_who_may_look_sees_them_and_changes_nothing(redis_url: str, redis: Redis) -> None:
    app = App(redis_url=redis_url, **LOOK)
    run(app.connections, save_view(app.keys, "dead", "cards", {"q": "card"}))
    browser = Browser(app.console())
    browser.post("/login", {"password": "may-look-1"})
    shown = browser.get("/dead?q=card")
    assert "cards" in shown.words
    assert not any("/do/" in one for one in [*shown.links, *browser.get("/metrics").links])
    for address, fields in (("/metrics/do/mark", {"label": "v1"}), ("/views/dead/cards/do/delete", {})):
        assert browser.post(address, {"token": browser.token("/dead"), **fields}).status == 403
    assert "cards" in browser.get("/dead").words
    assert redis.keys("*marks*") == []
    app.close()


def test_a_form_of_another_site_marks_nothing(app: App, redis: Redis) -> None:
    browser = Browser(app.console())
    token = browser.token("/metrics")
    assert browser.post("/metrics/do/mark", {"token": token, "label": "v1"}, origin="http://evil.example").status == 403
    assert browser.post("/metrics/do/mark", {"label": "v1"}).status == 403
    assert browser.get("/metrics/do/mark").status == 409, "reading changes nothing"
    assert redis.keys("*marks*") == []
