"""Several consoles behind one address: each with a server and passwords of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from henchman import App
from henchman.errors import ConfigError
from support.browsing import Browser
from support.server import running_server


@pytest.fixture
def eu(app: App) -> App:
    @app.job(name="eu.mail", queue="eu-mail")
    def mail() -> None: ...

    mail.enqueue()
    return app


@pytest.fixture
def us() -> Iterator[App]:
    with running_server() as server:
        app = App(redis_url=server.url, console_password="secret of us")

        @app.job(name="us.mail", queue="us-mail")
        def mail() -> None: ...

        mail.enqueue()
        yield app
        app.close()


@pytest.fixture
def site(eu: App, us: App) -> Any:
    return eu.console(label="Shop <eu>", tone="production", beside={"us": us.console()})


def test_each_shows_its_own_server_and_the_names_of_all(site: Any) -> None:
    browser = Browser(site)
    shown = browser.get("/@main/queues?q=mail")
    assert "eu-mail" in shown.words
    assert "us-mail" not in shown.words
    assert "Shop <eu>" in shown.words
    assert {"/@main/queues", "/@us/queues", "/@main/dead"} <= set(shown.links), (
        "the same page of the other, and its own"
    )
    assert {"/@us/", "/@main/"} <= set(browser.get("/@main/queues/eu-mail").links)
    assert all(one.startswith("/@") for one in shown.links if one.startswith("/"))


def test_who_is_let_in_by_one_is_a_stranger_to_the_other(site: Any) -> None:
    browser = Browser(site)
    assert browser.get("/@us/queues").headers["location"] == "/@us/login"
    entered = browser.post("/@us/login", {"password": "secret of us"})
    assert entered.headers["location"] == "/@us/"
    assert "; path=/@us/;" in entered.headers["set-cookie"].lower() + ";"
    assert "us-mail" in browser.get("/@us/queues").words
    assert browser.act("/@main/queues/eu-mail/do/pause", "/@main/queues/eu-mail/do/resume").status == 303
    stranger = Browser(site)
    assert stranger.act("/@main/queues/eu-mail/do/pause", "/@us/queues/us-mail/do/clear").status == 403
    assert stranger.get("/@us/api/v1/queues").status == 401
    assert stranger.get("/@main/api/v1/queues").status == 200


def test_other_addresses_lead_to_the_first(site: Any) -> None:
    browser = Browser(site)
    home = browser.get("/")
    assert home.headers["location"] == "/@main/"
    assert home.headers["content-security-policy"] == browser.get("/@main/").headers["content-security-policy"]
    assert browser.get("/e/abc?x=%2F&y=1").headers["location"] == "/@main/e/abc?x=%2F&y=1"
    assert browser.get("//evil.example/x").headers["location"].startswith("/@main/")
    for wrong in ("/@nobody/queues", "/@/", "/@main%2F../us/"):
        told = browser.get(wrong)
        assert told.status == 404, wrong
    assert browser.post("/queues/eu-mail/do/clear", {}).status == 404
    assert browser.get("/healthz").body == b'{"ok":true,"consoles":{"main":true,"us":true}}'


def test_one_server_that_is_away_is_told_and_the_other_stands(eu: App) -> None:
    with running_server() as server:
        gone = App(redis_url=server.url)
    browser = Browser(eu.console(beside={"gone": gone.console()}))
    health = browser.get("/healthz")
    assert (health.status, health.body) == (503, b'{"ok":false,"consoles":{"main":true,"gone":false}}')
    assert browser.get("/@gone/queues").status == 503
    assert browser.get("/@main/queues").status == 200
    gone.close()


@pytest.mark.parametrize("root", ["/jobs", "/a/b"])
def test_mounted_below_a_path(site: Any, root: str) -> None:
    shown = Browser(site, root=root).get("/@us/login")
    assert shown.status == 200
    assert all(one.startswith(f"{root}/@") for one in shown.links if one.startswith("/"))


@pytest.mark.parametrize("name", ["", "a/b", "ü", "a" * 41, ".", "-", "main"])
def test_a_name_that_cannot_stand_in_an_address(app: App, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a console"):
        app.console(beside={name: app.console()})


def test_one_alone_shows_no_others(app: App) -> None:
    assert "/@" not in Browser(app.console()).get("/queues").text
