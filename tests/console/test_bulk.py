"""Acts on all that a search finds: what they count, what they do, and what they leave alone."""

from __future__ import annotations

import time
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.store.call import command
from henchman.wire.payload import encode
from support.browsing import Browser
from support.worker import jobs_in


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
    assert done.status == 303
    assert redis.llen("queue:q") == 130
    assert {job["class"] for job in jobs_in(redis, key)} == {"mail", "sync_later"}
    assert browser.get(act).status == 409


def test_they_are_killed_or_deleted(app: App, redis: Redis) -> None:
    put(app, "retry", "a/b ü", 3, at=time.time() - 60)
    browser, moment = Browser(app.console()), int(time.time())
    browser.act(act := f"/retries/a~2Fb/{moment}/do/kill-found", act)
    assert (redis.zcard("retry"), redis.zcard("dead")) == (0, 3)
    browser.act(act := f"/dead/a~2Fb/{moment + 1}/do/delete-found", act)
    assert redis.zcard("dead") == redis.llen("queue:q") == 0


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
