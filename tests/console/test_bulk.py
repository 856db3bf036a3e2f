"""Acts on all that a search finds: what they count, what they do, and what they leave alone."""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from redis import Redis

from henchman import App
from henchman.inspector import operations
from henchman.store import fair
from henchman.store.call import command
from henchman.wire.payload import encode
from support.browsing import Browser
from support.worker import jobs_in, settled, until, working


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """No operator of this test carries out what the next one begins."""
    yield
    until(lambda: "henchman-operations" not in {one.name for one in threading.enumerate()}, "its operators have ended")


def put(app: App, which: str, word: str, many: int, *, at: float | None = None) -> None:
    """Failed jobs of the class ``word`` in a set."""
    now = time.time() if at is None else at
    for number in range(many):
        job: dict[str, Any] = {"class": word, "queue": "q", "args": [number], "jid": f"{word}{number:020}", "retry": 5}
        job |= {"created_at": now, "failed_at": now, "error_class": "E", "error_message": "m", "retry_count": 0}
        app.connections.run(command("ZADD", which, now, encode(job)))


@pytest.mark.parametrize(("page", "key"), [("retries", "retry"), ("scheduled", "schedule"), ("dead", "dead")])
def test_all_that_a_search_finds_goes_into_its_queue(app: App, redis: Redis, page: str, key: str) -> None:
    early = time.time() - 60
    put(app, key, "sync", 130, at=early)
    put(app, key, "mail", 3, at=early)
    browser = Browser(app.console())
    shown = browser.get(f"/{page}?q=sync")
    [act] = [link for link in shown.links if link.endswith("/do/retry-found")]
    words = browser.get(act).words
    assert "130" in words
    assert "'sync'" in words
    assert "Among them: sync(" in words
    put(app, key, "sync_later", 2, at=time.time() + 10)
    done = browser.act(act, act)
    assert (done.status, done.headers["location"].partition("?")[0]) == (303, "/operations/1")
    until(lambda: "130 jobs put into their queues" in browser.get("/operations/1").words, "the operation has ended")
    assert redis.llen("queue:q") == 130
    assert {job["class"] for job in jobs_in(redis, key)} == {"mail", "sync_later"}
    assert browser.get(act).status == 409


def test_they_are_killed_or_deleted(app: App, redis: Redis) -> None:
    put(app, "retry", "a/b ü", 3, at=time.time() - 60)
    browser, moment = Browser(app.console()), int(time.time())
    browser.act(act := f"/retries/a~2Fb/{moment}/do/kill-found", act)
    until(lambda: redis.zcard("dead") == 3, "they are dead")
    assert redis.zcard("retry") == 0
    browser.act(act := f"/dead/a~2Fb/{moment + 1}/do/delete-found", act)
    until(lambda: not redis.exists("dead"), "they are deleted")
    assert redis.llen("queue:q") == 0


def test_an_operation_has_a_page_and_is_undone_there(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 7, at=time.time() - 60)
    browser, moment = Browser(app.console()), int(time.time())
    assert "Nobody has run a bulk operation." in browser.get("/operations").words
    browser.act(act := f"/dead/sync/{moment}/do/delete-found", act)
    until(lambda: "It can be undone until" in browser.get("/operations/1").words, "it has ended")
    assert "delete 7: dead with 'sync' 7 jobs deleted done" in browser.get("/operations").words
    assert "/operations/1" in browser.get("/audit").links
    assert browser.act("/operations/1", "/operations/1/do/undo").status == 303
    until(lambda: "7 put back" in browser.get("/operations/1").words, "it is undone")
    assert redis.zcard("dead") == 7
    assert browser.post("/operations/1/do/undo", {"token": browser.token("/dead")}).status == 409
    assert browser.get("/operations/2").status == browser.get("/operations/x").status == 404


def test_a_rate_and_a_time_are_chosen_in_the_question(app: App, redis: Redis) -> None:
    put(app, "schedule", "sync", 3, at=time.time() - 60)
    browser, act = Browser(app.console()), f"/scheduled/sync/{int(time.time())}/do/reschedule-found"
    assert 'name="rate"' in browser.get(act).text
    browser.post(act, {"token": browser.token(act), "rate": "10", "delay": "3600"})
    until(lambda: redis.zcount("schedule", time.time() + 3000, time.time() + 4000) == 3, "they are due in an hour")
    assert "at most 10" in browser.get("/operations/1").words


@pytest.mark.parametrize(
    ("a_minute", "said"), [(0, ""), (100, ""), (25, "That is 2 min of their work (workers ran 25 jobs")]
)
def test_what_releases_more_than_a_minute_of_work_says_so(app: App, redis: Redis, a_minute: int, said: str) -> None:
    put(app, "dead", "sync", 50, at=time.time() - 60)
    now = time.time()
    for back in range(5, -1, -1):
        level = {"at": now - 60 * back, "processed": (5 - back) * a_minute, "sizes": {}}
        redis.lpush("hm:levels", encode(level))
    browser = Browser(app.console())
    shown = browser.get(f"/dead/sync/{int(now)}/do/retry-found").words
    assert "50 dead jobs" in shown
    assert ("of their work" in shown) is bool(said)
    assert said in shown
    assert "of their work" not in browser.get(f"/dead/sync/{int(now)}/do/delete-found").words


def test_what_waits_moves_to_another_queue(app: App, redis: Redis) -> None:
    for number in range(60):
        job = {"class": "odd" if number % 2 else "even", "queue": "q", "args": [number], "jid": f"{number:024}"}
        redis.lpush("queue:q", encode(job))
    redis.sadd("queues", "q")
    browser = Browser(app.console())
    found = "/queues/q/odd/do/move-found"
    assert found in browser.get("/queues/q?q=odd").links
    assert "30 jobs" in browser.get(found).words
    assert "Into the queue" in browser.get(found).words
    for wrong in ("", "q", "a b"):
        answer = browser.post(found, {"token": browser.token(found), "reason": wrong, "moment": "1999999999"})
        assert answer.status == 409, answer.words
    assert redis.llen("queue:q") == 60
    answer = browser.post(found, {"token": browser.token(found), "reason": "slow", "moment": "1999999999"})
    assert answer.status == 303
    until(lambda: redis.llen("queue:slow") == 30, "they moved")
    assert {job["class"] for job in jobs_in(redis, "queue:slow")} == {"odd"}
    until(lambda: "30 jobs moved to slow" in browser.get("/operations/1").words, "it says so")
    every = "/queues/q/do/move"
    assert every in browser.get("/queues/q").links
    assert browser.post(every, {"token": browser.token(every), "reason": "slow"}).status == 303
    until(lambda: redis.llen("queue:slow") == 60, "the rest, too")
    assert not redis.sismember("queues", "q")


def test_a_queue_is_searched_and_cleared(app: App, redis: Redis) -> None:
    for number in range(60):
        job = {"class": "odd" if number % 2 else "even", "queue": "q", "args": [number], "jid": f"{number:024}"}
        redis.lpush("queue:q", encode(job | {"enqueued_at": time.time() - 60}))
    redis.sadd("queues", "q")
    browser = Browser(app.console())
    shown = browser.get("/queues/q?q=odd")
    assert "30 found" in shown.words
    assert "even(" not in shown.words
    [act] = [link for link in shown.links if link.endswith("/do/delete-found")]
    browser.act(act, act)
    until(lambda: redis.llen("queue:q") == 30, "the odd ones are deleted")
    browser.act("/queues/q/do/clear", "/queues/q/do/clear")
    until(lambda: not redis.exists("queue:q"), "all are deleted")
    until(lambda: "It can be undone" in browser.get("/operations/2").words, "it has ended")
    browser.act("/operations/2", "/operations/2/do/undo")
    until(lambda: redis.llen("queue:q") == 30, "they are back")


def test_what_stands_in_the_lines_of_a_fair_queue_is_cleared_too_and_comes_back(app: App, redis: Redis) -> None:
    ran: list[tuple[str, int]] = []

    @app.job(name="note", queue="f", fair_by="tenant")
    def note(tenant: str, number: int) -> None:
        ran.append((tenant, number))

    def waiting() -> int:
        return app.queues["f"].size()

    note.enqueue_many([(tenant, number) for number in range(10) for tenant in "AB"])
    app.connections.run(fair.take_in(app.keys, "f"))
    late = [{"class": "note", "queue": "f", "args": ["C", n], "jid": f"{n:024}"} for n in range(4)]
    redis.lpush("queue:f", *map(encode, late))
    assert (waiting(), redis.llen("queue:f@A"), redis.llen("queue:f")) == (24, 9, 5)
    browser, turns = Browser(app.console()), [jobs_in(redis, "queue:f")[0]["args"]]
    kept = browser.post(
        "/queues/f/args.0~3AA/do/delete-found",
        {"token": browser.token("/queues/f/args.0~3AA/do/delete-found"), "moment": "1999999999"},
    )
    assert kept.status == 303
    until(lambda: waiting() == 14, "those of A are deleted, the one whose turn it was among them")
    until(lambda: "10 jobs deleted" in browser.get("/operations/1").words, "all are counted, and none has gone")
    assert "gone" not in browser.get("/operations/1").words
    assert redis.llen("queue:f") > 0, "whoever waits is woken"
    turns.append(jobs_in(redis, "queue:f")[0]["args"])

    clear = {"token": browser.token("/queues/f/do/clear"), "moment": "1999999999", "must": "f", "typed": "f"}
    assert browser.post("/queues/f/do/clear", clear).status == 303
    until(lambda: waiting() == 0 and "14 jobs deleted" in browser.get("/operations/2").words, "the others, too")
    assert set(redis.keys("queue:*")) == set()  # type: ignore[arg-type]
    for number in ("1", "2"):
        browser.act(f"/operations/{number}", f"/operations/{number}/do/undo")
        until(lambda number=number: "undone" in browser.get(f"/operations/{number}").words, "it is taken back")
    assert waiting() == 24
    app.connections.run(fair.take_in(app.keys, "f"))
    home = [job["args"] for job in jobs_in(redis, "queue:f")]
    for tenant in "ABC":
        line = [one for one in home if one[0] == tenant] + [job["args"] for job in jobs_in(redis, f"queue:f@{tenant}")]
        stood = [one for one in line if one not in turns]
        assert stood == sorted(stood), "they are in their order, but for those whose turn it was: these come last"
    with working(app):
        settled(redis, 24)
    assert sorted(ran) == sorted(
        [*((tenant, number) for tenant in "AB" for number in range(10)), *(("C", n) for n in range(4))]
    )


def field(page: str, name: str) -> str:
    """What a hidden field of a page holds; empty: it is not there."""
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    return html.unescape(found[1]) if found else ""


@pytest.mark.parametrize(("many", "must"), [(1000, ""), (1001, "1001")])
def test_a_large_act_begins_when_its_number_is_written(app: App, redis: Redis, many: int, must: str) -> None:
    put(app, "dead", "sync", many, at=time.time() - 60)
    browser, act = Browser(app.console()), f"/dead/sync/{int(time.time())}/do/delete-found"
    asked = browser.get(act)
    assert field(asked.text, "must") == must
    assert ("Type 1,001 to go on" in asked.words) is bool(must)
    form = {name: field(asked.text, name) for name in ("token", "moment", "must", "at")}
    for typed in ("", "1000", "1,0011", "yes", "١٠٠١") if must else ():
        again = browser.post(act, {**form, "typed": typed})
        assert again.status == 422
        assert f"That was {typed or 'nothing'}: nothing is done." in again.words
        assert 'aria-describedby="problem"' in again.text
        assert field(again.text, "must") == must, "it is asked once more"
    assert browser.get("/operations/1").status == 404
    assert redis.zcard("dead") == many
    assert browser.post(act, {**form, "typed": " 1,001 "}).status == 303
    until(lambda: not redis.exists("dead"), "they are deleted")


@pytest.mark.parametrize("name", ["mail", "007", "12345", "odd/ü <b>", "1,5"])
def test_a_queue_is_cleared_by_whoever_writes_its_name(app: App, redis: Redis, name: str) -> None:
    redis.lpush(f"queue:{name}", encode({"class": "a", "queue": name, "args": [], "jid": "f" * 24}))
    redis.sadd("queues", name)
    browser, act = Browser(app.console()), f"/queues/{quote(name, safe='').replace('%', '~')}/do/clear"
    asked = browser.get(act)
    form = {one: field(asked.text, one) for one in ("token", "moment", "must")}
    assert form["must"] == name
    assert f"Type {'12,345' if name == '12345' else name} to go on" in asked.words
    assert browser.post(act, {**form, "typed": "other"}).status == 422
    assert redis.exists(f"queue:{name}")
    assert browser.post(act, {**form, "typed": name}).status == 303
    until(lambda: not redis.exists(f"queue:{name}"), "it is empty")


def test_a_console_for_readers_carries_nothing_out_and_shows_who_has_gone(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 3, at=time.time() - 60)
    number = operations.begin(app, "ana", operations.Wish("delete", "dead", "", time.time()))
    reader = Browser(app.console(read_only=True))
    assert reader.get(f"/operations/{number}").status == 200
    redis.hset(f"hm:operation:{number}", "made", repr(time.time() - 60))
    assert "Nobody works on it" in reader.get(f"/operations/{number}").words
    assert redis.zcard("dead") == 3
    Browser(app.console()).get("/operations")  # whoever looks at a console that may act goes on with it
    until(lambda: not redis.exists("dead"), "another has carried it out")


def test_who_may_only_look_and_who_says_no_moment_does_nothing(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 3, at=time.time() - 60)
    looker = Browser(app.console(authorize=lambda request: "look"))
    assert "-found" not in looker.get("/dead?q=sync").text
    assert looker.post(f"/dead/sync/{int(time.time())}/do/delete-found").status == 403
    browser = Browser(app.console())
    for moment in ("soon", "0", "9" * 30):
        assert browser.get(f"/dead/sync/{moment}/do/delete-found").status == 409
    assert browser.get("/dead").text.count("-found") == 0, "without a search there is no such act"
    assert redis.zcard("dead") == 3
