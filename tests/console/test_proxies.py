"""Behind a proxy that ends TLS and cuts off the path under which it serves the console; and who only says so."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

import pytest

from henchman import App
from support.browsing import DEAD, Shown
from support.chromium import serving

AT, HOST, OUTSIDE = "/ops/jobs", "jobs.example", "https://jobs.example"
PASSWORD = "correct-horse"


class Line:
    """Whoever asks the server of the console at ``site``. ``source``: from which address of this machine; the server
    trusts 127.0.0.1 as a proxy, and no other."""

    def __init__(self, site: str, source: str, **told: str) -> None:
        self.site, self.source, self.told = site, source, {"Host": HOST, **told}
        self.cookie = ""

    def ask(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> Shown:
        """GET, or POST of a form, as a browser outside sends it and a proxy passes it on."""
        line = http.client.HTTPConnection(urlsplit(self.site).netloc, timeout=60, source_address=(self.source, 0))
        sent = self.told | {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"Cookie": self.cookie} if self.cookie else {}
        if fields is not None:
            sent = {"Origin": OUTSIDE, "Content-Type": "application/x-www-form-urlencoded"} | sent
        line.request("GET" if fields is None else "POST", path, None if fields is None else urlencode(fields), sent)
        answer = line.getresponse()
        shown = Shown(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        line.close()
        self.cookie = shown.headers.get("set-cookie", self.cookie).partition(";")[0]
        return shown


@pytest.fixture
def site(shop: App) -> Iterator[str]:
    """A console with a password, whose server was told under which path it is."""
    with serving(App(redis_url=shop.config.redis_url, console_password=PASSWORD).console(), AT) as where:
        yield where


@pytest.fixture
def proxied(site: str) -> Line:
    """Through a proxy that says for whom it asks, and that they came by TLS."""
    return Line(site, "127.0.0.1", **{"X-Forwarded-Proto": "https", "X-Forwarded-For": "10.0.0.7"})


def test_links_redirects_and_cookies_are_those_of_outside(proxied: Line, shop: App) -> None:
    sent = proxied.ask("/dead")
    assert (sent.status, sent.headers["location"]) == (303, f"{AT}/login")
    entered = proxied.ask("/login", {"password": PASSWORD})
    assert (entered.status, entered.headers["location"]) == (303, f"{AT}/")
    assert {"Secure", "HttpOnly", f"Path={AT}/", "SameSite=lax"} <= set(entered.headers["set-cookie"].split("; "))
    for page in ("/", "/dead", f"/jobs/{DEAD}", "/queues", "/nope"):
        shown = proxied.ask(page)
        assert shown.links
        assert [one for one in shown.links if not one.startswith((f"{AT}/", "#"))] == [], page
    assert f'"{AT}/api/v1"' in proxied.ask("/api/v1/openapi.json").text


def test_an_act_is_taken_from_outside_and_from_nowhere_else(proxied: Line, shop: App) -> None:
    proxied.ask("/login", {"password": PASSWORD})
    found = re.search(r'name="token" value="([0-9a-f]+)"', proxied.ask("/dead").text)
    assert found is not None
    path, form = f"/dead/{DEAD}/do/retry", {"token": found[1]}
    for origin in ("https://evil.example", "https://jobs.example.evil.example", "https://jobs.example:8443", "null"):
        assert proxied.ask(path, form, Origin=origin).status == 403, origin
    for told in (
        {"X-Forwarded-Host": "evil.example"},
        {"X-Forwarded-Prefix": "/evil"},
        {"Forwarded": "host=evil.example"},
    ):
        assert proxied.ask(path, form, Origin="https://evil.example", **told).status == 403, told
    assert shop.dead.size() == 1
    done = proxied.ask(path, form, Referer=f"{OUTSIDE}{AT}/dead?q=Card")
    assert (done.status, shop.dead.size()) == (303, 0)
    assert done.headers["location"].startswith(f"{AT}/dead?q=Card&said=")


def test_a_proxy_that_does_not_tell_of_tls_is_no_hindrance(site: str, shop: App) -> None:
    silent = Line(site, "127.0.0.1")
    assert silent.ask("/login", {"password": PASSWORD}).status == 303, "the host is that of the origin"
    assert silent.ask("/dead").status == 200


def test_wrong_passwords_are_counted_for_whoever_sent_them(proxied: Line, site: str) -> None:
    for n in range(5):
        assert proxied.ask("/login", {"password": "guess"}, X_Forwarded_For=f"10.9.9.{n}, 10.0.0.7").status == 403
    assert proxied.ask("/login", {"password": PASSWORD}).status == 403, "what he says of himself before is not believed"
    other = Line(site, "127.0.0.1", **{"X-Forwarded-Proto": "https", "X-Forwarded-For": "10.0.0.8"})
    assert other.ask("/login", {"password": PASSWORD}).status == 303


def test_who_is_no_proxy_of_ours_is_not_believed(site: str) -> None:
    forger = Line(site, "127.0.0.2", **{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example"})
    for n in range(5):
        assert forger.ask("/login", {"password": "guess"}, X_Forwarded_For=f"10.0.0.{n}").status == 403
    assert forger.ask("/login", {"password": PASSWORD}, X_Forwarded_For="10.0.0.99").status == 403
    quiet = Line(site, "127.0.0.3", **{"X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "//evil.example"})
    entered = quiet.ask("/login", {"password": PASSWORD})
    assert (entered.status, entered.headers["location"]) == (303, f"{AT}/")
    assert "Secure" not in entered.headers["set-cookie"], "it was no TLS"
    assert "evil" not in quiet.ask("/").text


@pytest.mark.parametrize("told", ["X-Forwarded-For", "X-Real-IP", "X-Forwarded-Host", "Forwarded"])
def test_saying_that_one_is_this_machine_opens_nothing(shop: App, told: str) -> None:
    """Without a password: only this machine, by its own name; a header opens it to nobody and may well close it."""
    with serving(shop.console()) as site:
        own, near = urlsplit(site).netloc, {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "::1"}.get(told, "localhost")
        assert Line(site, "127.0.0.1").ask("/", **{told: near}).status == 403, "jobs.example is no name of this machine"
        far = {"Forwarded": "for=10.0.0.7"}.get(told, "10.0.0.7")
        assert Line(site, "127.0.0.1").ask("/", Host=own, **{told: far}).status == 403
        assert Line(site, "127.0.0.2").ask("/", Host=own, **{told: far}).status == 403, "nor from who is no proxy"
        assert Line(site, "127.0.0.2").ask("/", Host=own).status == 200


@pytest.mark.parametrize("host", ["{.evil.example:7080", '".evil.example', "`.evil.example", "a@localhost", "a b", ":"])
def test_a_name_that_cannot_be_one_is_not_that_of_this_machine(shop: App, host: str) -> None:
    """Libraries put the address of the server in its place, which is one of this machine."""
    with serving(shop.console()) as site:
        assert Line(site, "127.0.0.1").ask("/", Host=host).status in (400, 403)
