"""Who may look and act, and that no other site can act through a browser."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.console.guard import HEADERS
from henchman.errors import ConfigError
from support.browsing import DEAD, Browser

RETRY_IT = f"/dead/{DEAD}/do/retry"
PASSWORD = "correct-horse"
LOOK = "only-a-look"


def closed(shop: App, **more: str) -> Any:
    """The console of an app that has a password."""
    return App(redis_url=shop.config.redis_url, console_password=PASSWORD, **more).console()


def test_every_answer_has_the_headers(browser: Browser) -> None:
    for path in ("/", "/nope", "/healthz", "/static/x/console.css", f"/jobs/{DEAD}"):
        shown = browser.get(path)
        for name, value in HEADERS.items():
            assert shown.headers[name.lower()] == value, path
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert browser.get("/").headers["cache-control"] == "private, no-store"


@pytest.mark.parametrize(
    ("client", "host", "status"),
    [
        ("127.0.0.1", "localhost:7080", 200),
        ("127.0.0.1", "127.0.0.1:7080", 200),
        ("::1", "[::1]:7080", 200),
        ("127.0.0.1", "evil.example", 403),  # a name of somebody else that leads here
        ("10.0.0.7", "localhost:7080", 403),
    ],
)
def test_without_a_password_only_this_machine_is_answered(shop: App, client: str, host: str, status: int) -> None:
    browser = Browser(shop.console(), client=client, host=host)
    assert browser.get("/").status == status
    assert browser.get("/healthz").status == 200


def test_an_act_is_done_and_said_and_written_down(
    browser: Browser, shop: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="henchman.console")
    answer = browser.act("/dead", RETRY_IT)
    assert answer.status == 303
    assert shop.dead.size() == 0
    assert shop.queues["pay"].size() == 1
    assert f"{DEAD} is enqueued" in browser.get(answer.headers["location"]).words
    assert f"127.0.0.1 asked for retry of dead {DEAD}: {DEAD} is enqueued" in caplog.text
    again = browser.act("/retries", RETRY_IT)
    assert again.status == 409
    assert "is not among the dead any more" in again.words


def test_what_an_act_says_cannot_be_put_into_an_address(browser: Browser) -> None:
    assert "pay me" not in browser.get("/dead?said=pay+me&seal=00").words


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none"},
    ],
)
def test_other_sites_cannot_act(browser: Browser, shop: App, headers: dict[str, str]) -> None:
    answer = browser.act("/dead", RETRY_IT, **headers)
    assert answer.status == 403
    assert "not taken for one of our own pages" in answer.words
    assert shop.dead.size() == 1


def test_a_form_needs_the_token_of_its_session(browser: Browser, shop: App) -> None:
    other = Browser(shop.console())
    for token in ("", "0" * 64, other.token("/dead")):
        assert browser.post(RETRY_IT, {"token": token}).status == 403
    assert shop.dead.size() == 1
    assert browser.post(RETRY_IT, {"token": "x" * 140_000}).status == 413


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_a_form_acts(browser: Browser, shop: App, method: str) -> None:
    browser.get(RETRY_IT, method)
    assert shop.dead.size() == 1
    assert shop.queues["pay"].size() == 0


def test_passwords_say_who_acts_and_who_looks(shop: App) -> None:
    site = closed(shop, console_look_password=LOOK)
    browser = Browser(site, client="10.0.0.7", host="jobs.example")
    sent = browser.get("/dead")
    assert sent.status == 303
    assert sent.headers["location"] == "/login"
    assert browser.post("/login", {"password": "wrong-horse"}).status == 403
    assert browser.post("/login", {"password": LOOK}).status == 303
    assert browser.get("/dead").status == 200
    assert "/do/" not in browser.get("/dead").text
    assert browser.post(RETRY_IT, {"token": browser.token("/")}).status == 403
    assert browser.post("/login", {"password": PASSWORD}).status == 303
    assert browser.act("/dead", RETRY_IT).status == 303
    assert shop.dead.size() == 0
    assert browser.act("/", "/logout").status == 303
    assert browser.get("/").status == 303


def test_who_has_not_come_in_hears_nothing_of_the_server(shop: App) -> None:
    told = shop.config.redis_url
    assert told
    assert told in Browser(shop.console()).get("/dead").words
    stranger = Browser(App(redis_url=told, console_password=PASSWORD).console())
    assert told not in stranger.get("/login").text
    assert told not in Browser(shop.console(), client="203.0.113.7").get("/dead").text


def test_wrong_passwords_are_few_a_minute(shop: App) -> None:
    browser = Browser(closed(shop), client="10.0.0.7", host="jobs.example")
    for _ in range(5):
        assert browser.post("/login", {"password": "guess-guess"}).status == 403
    assert browser.post("/login", {"password": PASSWORD}).status == 403
    elsewhere = Browser(closed(shop), client="10.0.0.8", host="jobs.example")
    assert elsewhere.post("/login", {"password": PASSWORD}).status == 303


def test_many_addresses_do_not_fill_the_memory() -> None:
    from henchman.console.guard import LastMinute

    tries = LastMinute(5)
    for number in range(20_100):
        tries.note(f"2001:db8::{number:x}")
    assert len(tries._times) <= 10_001


def test_who_acts_too_often_waits_and_nothing_is_done(shop: App, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    from henchman.console import guard

    monkeypatch.setattr(guard, "ACTS", 3)
    for jid in "abcdef":
        redis.zadd("dead", {json.dumps({"class": "x", "queue": "q", "args": [], "jid": jid}): time.time()})
    console = closed(shop)
    browser, other = Browser(console, host="jobs.example"), Browser(console, host="jobs.example")
    for one in (browser, other):
        one.post("/login", {"password": PASSWORD})
    program = {"authorization": f"Bearer {PASSWORD}", "content-type": "application/json"}
    for jid in "abc":
        assert browser.act("/dead", f"/dead/{jid}/do/delete").status == 303
    refused = browser.act("/dead", "/dead/d/do/delete")
    assert (refused.status, refused.headers["retry-after"]) == (429, "60")
    assert "3 acts within a minute: go on in 60 s" in refused.words
    assert browser.get("/dead").status == 200, "looking is no act"
    assert redis.zcard("dead") == 4
    assert other.act("/dead", "/dead/d/do/delete").status == 303, "each session has its own minute"
    wish = {"page": "dead", "act": "delete"}
    for jid, status in (("e", 200), ("nope", 409), ("nope", 409), ("f", 429)):
        answer = browser.send("/api/v1/acts", json.dumps(wish | {"names": [jid]}).encode(), program)
        assert answer.status == status, answer.text
    assert json.loads(answer.text)["status"] == 429
    assert redis.zcard("dead") == 2


@pytest.mark.parametrize("session", ["", "act.9999999999.aa.00", "act.1.a.b", "act", "..", "ü", "act.x.y." + "0" * 64])
def test_a_session_that_was_made_up_opens_nothing(shop: App, session: str) -> None:
    browser = Browser(closed(shop), host="jobs.example")
    browser.cookies["henchman_console"] = session.encode("ascii", "ignore").decode()
    assert browser.get("/").status == 303


def test_a_session_ends(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(closed(shop), host="jobs.example")
    browser.post("/login", {"password": PASSWORD})
    assert browser.get("/").status == 200
    from henchman.console import guard

    monkeypatch.setattr(guard, "SESSION", -1)
    browser.post("/login", {"password": PASSWORD})
    assert browser.get("/").status == 303


@pytest.mark.parametrize(
    ("role", "status", "acts"), [("act", 200, 303), ("look", 200, 403), (None, 403, 403), ("root", 403, 403)]
)
@pytest.mark.parametrize("as_async", [False, True])
def test_a_hook_decides(shop: App, role: Any, status: int, acts: int, *, as_async: bool) -> None:
    def hook(request: Any) -> Any:
        return role

    async def ahook(request: Any) -> Any:
        return role

    browser = Browser(shop.console(authorize=ahook if as_async else hook, secret="s" * 32), host="jobs.example")
    assert browser.get("/dead").status == status
    token = browser.token("/dead") if status == 200 and acts == 303 else "0"
    assert browser.post(RETRY_IT, {"token": token}).status == acts


def test_read_only_is_for_everybody(shop: App) -> None:
    browser = Browser(shop.console(read_only=True))
    assert browser.get("/dead").status == 200
    assert "/do/" not in browser.get("/dead").text


def test_a_password_is_never_shown_and_never_short() -> None:
    app = App(console_password=PASSWORD)
    assert PASSWORD not in "".join(one.value_text for one in app.config.describe())
    with pytest.raises(ConfigError, match=r"console_password.* 8 to 500 characters") as caught:
        App(console_password="short")
    assert "short" not in str(caught.value)
