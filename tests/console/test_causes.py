"""Why runs did not end well stands on every page that tells of them, and narrows lists."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import pytest

from henchman import App
from henchman.console.render import CAUSE_WORDS, timed
from henchman.history.database import Database
from henchman.inspector.base import Entry
from henchman.store.call import command
from henchman.store.failures import group_errors
from henchman.store.metrics import Counted, flush
from henchman.wire.payload import encode
from henchman.work.outcome import CAUSES
from support.browsing import Browser
from support.worker import until, working

JID = "c" * 24


def put(app: App, which: str, jid: str, **more: Any) -> None:
    """A failed job in a set."""
    now = time.time()
    job = {"class": "shop.pay", "queue": "pay", "args": [1], "jid": jid, "created_at": now - 60, "failed_at": now - 50}
    job |= {"retry_count": 1, "error_class": "JobTimeout", "error_message": "too long", **more}
    app.connections.run(command("ZADD", which, now + (60 if which == "retry" else -5), encode(job)))


def test_each_cause_has_words() -> None:
    assert set(CAUSES) - {"error"} <= set(CAUSE_WORDS)


def test_a_job_says_why_it_failed_and_each_of_its_attempts_too(app: App) -> None:
    at, where = time.time() - 100, "worker-1:7:0123456789ab"
    rows = [
        [1, at, 0.5, where, "OSError", "e" * 12, "refused"],
        [2, at, 3.0, where, "ProcessCrashed", "f" * 12, "it ended with SIGKILL", "memory"],
        [3, at, 9.0, where, "JobTimeout", "f" * 12, "too long", "timeout"],
        [4, at, 9.0, where, "JobTimeout", "f" * 12, "too long", "<b>no cause</b>"],
    ]
    put(app, app.keys.dead, JID, error_cause="timeout", error_attempts=rows)
    browser = Browser(app.console())
    page = browser.get(f"/jobs/{JID}")
    assert "timeout It ran longer than it may." in page.words
    assert "Died timeout" in page.words
    assert "memory ProcessCrashed it ended with SIGKILL" in page.words
    assert "no cause" not in page.words
    told = [one["cause"] for one in json.loads(browser.get(f"/api/v1/jobs/{JID}").body)["failures"]]
    assert told == ["error", "memory", "timeout", "error"]
    assert Entry(encode({"error_attempts": [rows[0] + ["a", "b"]]})).failures == []


@pytest.mark.parametrize(("page", "which"), [("retries", "retry"), ("dead", "dead")])
def test_lists_show_the_cause_and_are_narrowed_to_it(app: App, page: str, which: str) -> None:
    put(app, which, JID, error_cause="timeout")
    put(app, which, "d" * 24, error_class="OSError", error_message="refused")
    browser = Browser(app.console())
    shown = browser.get(f"/{page}")
    [link] = [one for one in shown.links if "timeout" in one]
    narrowed = browser.get(link).text
    assert f'id="j-{JID}"' in narrowed
    assert f'id="j-{"d" * 24}"' not in narrowed


def test_a_worker_writes_the_cause_of_an_attempt(app: App) -> None:
    @app.job(name="shop.slow", retry=0, timeout=0.2)
    async def slow() -> None:
        import asyncio

        await asyncio.sleep(30)

    slow.enqueue()
    with working(app):
        until(app.dead.size, "it is dead")
    [entry] = app.dead.page(0, 10)
    assert [(one.error, one.cause) for one in entry.failures] == [("JobTimeout", "timeout")]


def test_errors_are_narrowed_by_cause_as_far_as_their_class_tells(app: App) -> None:
    now = time.time()
    for name, error in (("a" * 12, "JobTimeout"), ("b" * 12, "OSError")):
        group = {"id": name, "error": error, "message": "no", "place": "shop:pay", "jid": JID, "trace": []}
        group |= {"count": 2, "first": now, "last": now, "jobs": {"pay": 2}, "queues": {"pay": 2}}
        app.connections.run(group_errors(app.keys, [group | {"hours": {str(int(now // 3600)): 2}}], now))
    browser = Browser(app.console())
    shown = browser.get("/errors")
    assert {"JobTimeout timeout", "any cause error timeout"} <= {
        text for text in ("JobTimeout timeout", "any cause error timeout") if text in shown.words
    }
    only = browser.get("/errors?cause=timeout").words
    assert "JobTimeout" in only
    assert "OSError" not in only
    assert "timeout" in browser.get(f"/errors/{'a' * 12}").words
    assert "No error fits" in browser.get("/errors?cause=memory").words


def test_metrics_of_a_class_count_causes(app: App) -> None:
    at = dt.datetime.now(dt.UTC)
    counted = {"shop.pay": Counted(9, 5, 900, (), {"timeout": 3, "crash": 1})}
    app.connections.run(flush(app.keys, at, counted, ("8", "7")))
    shown = Browser(app.console()).get("/metrics/shop.pay")
    assert "Failed: timeout 3" in shown.words
    assert "Failed: crash 1" in shown.words
    assert any("cause=timeout" in one and "job=shop.pay" in one for one in shown.links)


def test_history_shows_it_and_is_searched_by_it(redis_url: str, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/history.sqlite"
    database = Database(address)
    database.upgrade()
    database.close()
    app = App(redis_url=redis_url, database_url=address)

    @app.job(name="shop.slow", retry=0, timeout=0.2, track=True)
    async def slow() -> None:
        import asyncio

        await asyncio.sleep(30)

    slow.enqueue()
    browser = Browser(app.console())
    with working(app):
        until(lambda: "JobTimeout" in browser.get("/history?q=status%3Aerror").words, "it is recorded")
    assert browser.get("/history?q=status%3Aerror").text.count("q=cause%3Atimeout+since%3A7d") == 2, (
        "a hint, and its own"
    )
    assert "shop.slow" in browser.get("/history?q=cause%3Atimeout").words
    assert "shop.slow" not in browser.get("/history?q=cause%3Acrash").words
    app.close()


def test_a_moment_is_told_once() -> None:
    assert timed("comes at 2026-11-25T15:43:53Z, in 28 min 47 s", 1795621433 - 60).count("in ") == 1
    assert timed("dead since 2026-11-25T15:43:53Z, and not tried", 1795621433 + 60).endswith("), and not tried")
