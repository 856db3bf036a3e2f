"""A job again, with other arguments: what the form takes, what it refuses, and what is left in Redis."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.store.call import command
from henchman.wire.payload import encode
from support.browsing import DEAD, RETRY, Browser
from support.worker import jobs_in

FORM = f"/jobs/{DEAD}/do/again"


def send(browser: Browser, address: str = FORM, /, **fields: str) -> Any:
    return browser.post(address, {"token": browser.token("/dead"), "back": "one", **fields})


def test_a_dead_job_runs_again_with_other_arguments(browser: Browser, redis: Redis) -> None:
    page = browser.get(f"/jobs/{DEAD}")
    assert FORM in page.links
    form = browser.get(FORM)
    assert form.status == 200
    assert "&#34;A-1&#34;" in form.text
    done = send(browser, args='["B-2"]', kwargs="{}", old="keep")
    assert done.status == 303
    [new] = jobs_in(redis, "queue:pay")
    assert (new["class"], new["args"], new["retry"]) == ("shop.charge", ["B-2"], 0)
    assert not {"error_class", "error_message", "error_backtrace", "retry_count", "failed_at"} & set(new)
    assert new["jid"] != DEAD
    assert redis.zcard("dead") == 1, "the old one stays"
    assert f"/jobs/{new['jid']}" in browser.get(f"/jobs/{DEAD}").links
    assert f"/jobs/{DEAD}" in browser.get(f"/jobs/{new['jid']}").links
    assert new["jid"] in browser.get("/audit").words


def test_the_old_one_is_deleted_where_that_is_chosen(browser: Browser, redis: Redis) -> None:
    assert send(browser, args='["B-2"]', kwargs="{}", old="remove").status == 303
    [new] = jobs_in(redis, "queue:pay")
    assert redis.zcard("dead") == 0
    gone = browser.get(f"/jobs/{DEAD}")
    assert f"/jobs/{new['jid']}" in gone.links, "also of one that is gone it is known what ran in its place"


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ("[1,", "{}", "are no JSON"),
        ('{"a": 1}', "{}", "the arguments are a list"),
        ("[]", "[]", "the named arguments are an object"),
        ("[NaN]", "{}", "are no JSON"),
        ("[1e999]", "{}", "are no JSON"),
        ("[" * 2000 + "]" * 2000, "{}", ""),
        (json.dumps(["x" * 40_000]), "{}", "more than 32"),
        ("", "", "are no JSON"),
    ],
)
def test_what_makes_no_sense_is_said_beside_what_was_written(
    browser: Browser, redis: Redis, args: str, kwargs: str, words: str
) -> None:
    shown = send(browser, args=args, kwargs=kwargs, old="remove")
    assert shown.status == 422, shown.words
    assert words in shown.words
    assert args[:9] in shown.text.replace("&#34;", '"')
    assert redis.llen("queue:pay") == 0
    assert redis.zcard("dead") == 1


def test_a_known_job_is_checked_as_a_push_is(shop: App, redis: Redis) -> None:
    @shop.job(name="shop.rate", queue="rates", key="code", once=True, tags=["vip"])
    def rate(code: str, *, factor: int = 1) -> None: ...

    old = rate.enqueue("EUR")
    browser = Browser(shop.console())
    address = f"/jobs/{old.jid}/do/again"
    assert "unexpected argument" in send(browser, address, args='["USD"]', kwargs='{"way": 2}').words
    assert "missing argument" in send(browser, address, args="[]", kwargs="{}").words
    assert "can only stay" in send(browser, address, args='["USD"]', kwargs="{}", old="remove").words
    assert send(browser, address, args='["USD"]', kwargs='{"factor": 2}', old="keep").status == 303
    first, new = sorted(jobs_in(redis, "queue:rates"), key=lambda job: job["jid"] != old.jid)
    assert first["jid"] == old.jid
    assert (new["args"], new["kwargs"], new["tags"]) == (["USD"], {"factor": 2}, ["vip"])
    assert new["hm"] != first["hm"], "its key is made of the new arguments"


def test_secret_arguments_are_not_changed_blindly(shop: App, redis: Redis) -> None:
    browser = Browser(shop.console())
    [*_, job] = jobs_in(redis, "queue:mail")
    page = browser.get(f"/jobs/{job['jid']}")
    assert "secret or encrypted" in page.words
    address = f"/jobs/{job['jid']}/do/again"
    assert address not in page.links
    assert browser.get(address).status == 409
    assert "4111-1111" not in browser.get(address).text
    assert send(browser, address, args='[1, "***"]', kwargs="{}", old="keep").status == 409
    assert redis.llen("queue:mail") == 12


def test_a_tracked_job_that_this_console_does_not_know_is_left_alone(app: App) -> None:
    job = {"class": "far.away", "jid": DEAD, "queue": "q", "args": [1], "retry": 1, "hm": {"batch": "b"}}
    app.connections.run(command("ZADD", app.keys.dead, time.time(), encode(job)))
    shown = Browser(app.console()).get(FORM)
    assert shown.status == 409
    assert "does not know far.away" in shown.words


def test_who_may_look_sees_no_form_and_sends_none(shop: App, redis: Redis) -> None:
    looker = Browser(shop.console(authorize=lambda request: "look", secret="s" * 32))
    assert FORM not in looker.get(f"/jobs/{RETRY}").links
    assert looker.post(FORM, {"args": "[1]", "kwargs": "{}"}).status == 403
    stranger = Browser(shop.console())
    assert stranger.post(FORM, {"args": "[1]", "kwargs": "{}", "old": "keep"}).status == 403, "without a token"
    assert redis.llen("queue:pay") == 0
