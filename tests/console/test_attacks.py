"""What is thrown at every address of the console: a page, an act or an endpoint that is added is attacked by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import pytest
from redis import Redis

from henchman import App
from henchman.console.api.routes import ENDPOINTS, TEXTS
from henchman.console.guard import HEADERS
from henchman.console.pages import FILTERS
from henchman.oncall.deeds import Unwanted
from support.browsing import DEAD, XSS, Browser, Shown

#: addresses that are neither pages, acts nor endpoints that are read
OTHERS: Final = ("/login", "/logout", "/find", "/metrics.prom", "/healthz", "/static/x/{}", "/api/v1/openapi.json")
WISHES: Final = ("/api/v1/acts", "/api/v1/plans")
NAMES: Final = (
    *("..", ".", "~2E~2E~2F~2E~2E~2Fetc", "a%2Fb", "..\\", "a\x00b~00", "~ff~fe~C3", "~~zz~", "\ufffd", "x" * 1900),
    *("x" * 3000, XSS, "'; DROP TABLE jobs; --{{7*7}}%s%n${x}", "a:b", "?*[", "\r\nSet-Cookie: a=b", "__class__"),
    *("\u202e-1", "NaN", "٣", str(2**63), "9" * 400, "e\u0301🔒\ue000"),
)
VALUES: Final = (
    *("", "-1", "0", "NaN", "%D9%A3", str(2**63 - 1), str(2**63), "9" * 5000, "x" * 5000, "%00a%0D%0ASet-Cookie:a=b"),
    *(
        "%FF\xff",
        "%ED%A0%80%E2%80%AE",
        "%3Cscript%3Ealert(1)%3C/script%3E%22'",
        "..%2F*%",
        "since:99999999999d",
        "[]{}+",
    ),
)
#: what the endpoints of the JSON API take as a number, a cursor or a search, one at a time
ASKED: Final = (
    "-1",
    "NaN",
    "%D9%A3",
    str(2**63),
    "c9223372036854775807",
    "c4611686018427387904",
    "c9999999999",
    "%00\xff",
)
PARAMETERS: Final = sorted({*FILTERS, *TEXTS, "p", "said", "seal", "scope", "key", "jid", "within", "view", "_method"})
SENT: Final[tuple[dict[str, str], ...]] = (
    {
        "referer": "http://[",
        "cookie": "henchman_console=" + "x" * 9000,
        "authorization": "Bearer \xff",
        "x_http_method_override": "POST",
        "x_forwarded_for": "\xff",
    },
    {
        "referer": "x" * 9000,
        "cookie": f"henchman_console=\xff\xff; henchman_theme={XSS[:-1]}",
        "authorization": "Basic ::::",
        "origin": "http://[",
        "content_length": "-1",
        "range": "bytes=-9-",
    },
    {
        "referer": "http://localhost:7080/dead?" + "a=1&" * 500,
        "cookie": ";;;===",
        "accept": "\xff",
        "accept_language": "x" * 9000,
        "content_type": "multipart/form-data; boundary=",
        "x_forwarded_prefix": "//evil.example",
        "x_forwarded_proto": "javascript",
    },
)
HOSTS: Final = (
    *("[", "[::1", "[zz]", "a b", "x" * 9000, "localhost:999999", "localhost:x", "a@localhost", "\xe9", ":", "?#/"),
    *("localhost{.evil.example", "localhost\x00", "127.0.0.1.evil.example", "localhost.", "localhost,evil.example"),
)


class Target:
    """A console, and every address that it has with the names left open: ``reads`` change nothing, ``acts`` may."""

    def __init__(self, app: App) -> None:
        self.site: Any = app.console()
        self.browser = Browser(self.site)
        self.pages = ["/".join([f"/{page}", *["{}"] * names]) for page, names in self.site._views]
        self.acts = [f"/{page}/{'/'.join(['{}'] * names)}/do/{verb}" for (page, verb), names in self._acts()]
        self.reads = [*self.pages, *OTHERS, *(f"/api/v1/{one.path}" for one in ENDPOINTS), *WISHES]

    def _acts(self) -> Iterator[tuple[tuple[str, str], int]]:
        for act, names in product(self.site._deeds.known, (1, 2)):
            try:
                self.site._deeds.find(*act, ["x"] * names)
            except Unwanted:
                continue
            yield act, names

    def filled(self, name: str) -> list[str]:
        """Every address, with this name wherever one stands."""
        return [
            "/".join(name if one.startswith("{") else one for one in route.split("/"))
            for route in [*self.reads, *self.acts]
        ]


@pytest.fixture
def target(shop: App) -> Target:
    return Target(shop)


def whole(redis: Redis) -> dict[bytes, Any]:
    """All that the server holds."""
    return {key: redis.dump(key) for key in redis.scan_iter(count=1000)}


def wrong(shown: Shown) -> str:
    """Why an answer is none that we meant to give; empty: it is one."""
    kind, sent = shown.headers.get("content-type", ""), "".join(shown.headers.values())
    if not 200 <= shown.status < 500:
        return f"{shown.status}: {shown.words[-300:]}"
    if any(shown.headers.get(name.lower()) != value for name, value in HEADERS.items()):
        return f"no headers: {shown.headers}"
    if kind.startswith("text/html") and ("<script>" in shown.text or "alert(1)<" in shown.text):
        return "a script"
    if kind.endswith("json"):
        json.loads(shown.body)
    if "Traceback" in shown.text or "\r" in sent or "\n" in sent or "evil" in shown.headers.get("location", ""):
        return f"{shown.headers} {shown.text[:300]}"
    return ""


def thrown(browser: Browser, path: str, method: str = "GET", **headers: str) -> str:
    """What is wrong with the answer to one request."""
    try:
        found = wrong(browser.get(path, method, **headers))
    except Exception as error:
        found = repr(error)
    return found and f"{method} {path[:150]} {headers}: {found[:500]}"


def test_nothing_is_left_out(target: Target) -> None:
    assert len(target.pages) == len(target.site._views) > 25
    assert {one.rpartition("/")[2] for one in target.acts} == {verb for _, verb in target.site._deeds.known}


def test_every_name(target: Target, redis: Redis) -> None:
    before = whole(redis)
    every = {path for name in NAMES for path in target.filled(name)}
    found = [told for path in sorted(every) if (told := thrown(target.browser, path))]
    assert not found, "\n".join(found)
    assert whole(redis) == before


def test_every_query(target: Target, redis: Redis) -> None:
    before = whole(redis)
    paths = [
        f"{path}?{'&'.join(f'{one}={value}' for one in PARAMETERS)}&q=twice"
        for value, path in product(VALUES, target.filled(DEAD))
    ]
    for one in ENDPOINTS:
        path = one.path.replace("{name}", "mail").format(
            id="x", jid=DEAD, scope="x", key="x", identity="x", by="x", day="x"
        )
        paths += [f"/api/v1/{path}?{name}={value}" for name, value in product(one.parameters, ASKED)]
    found = [told for path in paths if (told := thrown(target.browser, path))]
    assert not found, "\n".join(found)
    assert whole(redis) == before


def test_every_header(target: Target, redis: Redis) -> None:
    before = whole(redis)
    every = product(target.filled(DEAD), ("GET", "POST", "PUT", "OPTIONS"), SENT)
    found = [told for path, method, sent in every if (told := thrown(target.browser, path, method, **sent))]
    assert not found, "\n".join(found)
    assert whole(redis) == before


def test_who_calls_us_by_what_is_no_name_is_not_this_machine(target: Target) -> None:
    for path, host in product(("/", "/api/v1/dead", f"/dead/{DEAD}/do/retry"), HOSTS):
        assert target.browser.get(path, host=host).status == 403, (path, host)
        assert target.browser.get(path, host="[::1]:7080").status == 200, "that is one"


@pytest.mark.parametrize(
    "told",
    [
        {"x_forwarded_for": "10.0.0.7"},
        {"x_forwarded_for": "127.0.0.1, 10.0.0.7"},
        {"x_forwarded_host": "shop.example"},
        {"x_real_ip": "10.0.0.7"},
        {"forwarded": "for=10.0.0.7"},
    ],
)
def test_who_comes_through_a_proxy_is_not_this_machine(target: Target, told: dict[str, str]) -> None:
    """A proxy on this machine that calls us by our own name opens us to nobody."""
    assert target.browser.get("/", **told).status == 403
    near = {"x_forwarded_for": "127.0.0.1, ::1, [::1]:99, 127.0.0.1:99", "x_forwarded_host": "LocalHost:7080"}
    assert target.browser.get("/", **near).status == 200


# ---- requests that change something


FORGED: Final[dict[str, dict[str, str]]] = {
    "no origin at all": {"origin": ""},
    "another origin": {"origin": "https://evil.example"},
    "another port": {"origin": "http://localhost:7081"},
    "no scheme of ours": {"origin": "ftp://localhost:7080"},
    "our name as a user": {"origin": "http://localhost:7080@evil.example"},
    "the browser says so": {"sec_fetch_site": "cross-site"},
    "a neighbour": {"sec_fetch_site": "same-site"},
    "no token": {"token": ""},
    "a token of another session": {"token": "other"},
}


@pytest.mark.parametrize("layer", FORGED)
def test_each_layer_alone_holds_every_act(target: Target, redis: Redis, layer: str) -> None:
    browser, before = target.browser, whole(redis)
    more = dict(FORGED[layer])
    token = {"": "", "other": Browser(target.site).token("/dead")}.get(more.pop("token", "-"), browser.token("/dead"))
    for path in [*(one.replace("{}", DEAD) for one in target.acts), "/logout"]:
        assert browser.post(path, {"token": token}, **more).status == 403, path
    said = {"origin": "http://localhost:7080", "content_type": "application/json", "x_henchman_token": token, **more}
    cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    for path, (page, act) in product(WISHES, target.site._deeds.known):
        body = json.dumps({"page": page, "act": act, "names": [DEAD]}).encode()
        assert browser.send(path, body, said | {"cookie": cookie}).status == 403, (path, page, act)
    assert whole(redis) == before


def test_who_may_only_look_does_nothing_whatever_the_method_is_called(shop: App, redis: Redis) -> None:
    target = Target(shop)
    looking = Browser(shop.console(authorize=lambda request: "look", secret="s" * 32), host="jobs.example")
    looking.get("/")
    acting = Browser(shop.console(authorize=lambda request: "act", secret="s" * 32), host="jobs.example")
    acting.cookies = looking.cookies
    form, before = {"token": acting.token("/dead"), "_method": "POST"}, whole(redis)
    for path in (one.replace("{}", DEAD) for one in target.acts):
        shown = looking.post(path, form, x_http_method_override="POST")
        assert (shown.status, "you may look here, and not act" in shown.words) == (403, True), path
        for method in ("PUT", "DELETE", "PATCH", "TRACE"):
            assert acting.get(path, method, x_http_method_override="POST").status == 405, path
        assert acting.get(f"{path}?_method=POST&token={form['token']}").status in (200, 409), path
    for page, act in target.site._deeds.known:
        body = json.dumps({"page": page, "act": act, "names": [DEAD]}).encode()
        assert looking.send("/api/v1/acts", body, {"content_type": "application/json"}).status == 403, (page, act)
    assert whole(redis) == before


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"&".join(b"f%d=1" % n for n in range(51)), 400, "at most 50 fields"),
        (b"x" * 131_073, 413, "at most 131,072 bytes"),
        (b"\xff\x00=%FF&&&==;%", 403, "load it again"),
        (b"token=%ED%A0%80", 403, "load it again"),
        (b"", 403, "load it again"),
    ],
)
def test_a_form_that_is_none(target: Target, redis: Redis, body: bytes, status: int, word: str) -> None:
    before = whole(redis)
    said = {"origin": "http://localhost:7080", "content_type": "application/x-www-form-urlencoded"}
    for path in [*(one.replace("{}", DEAD) for one in target.acts), "/login", "/logout"]:
        shown = target.browser.send(path, body, said)
        if path != "/login" or status in (400, 413):
            assert (shown.status, word in shown.words) == (status, True), (path, shown.words)
    assert whole(redis) == before


@pytest.mark.parametrize(
    "reason", [XSS, "\x00\x1b[31m\u202e", "%0d%0aSet-Cookie: a=1", "{{7*7}}", "\ud800", "x" * 9000, "=1+1"]
)
def test_a_hostile_reason_of_a_pause_is_text_everywhere(target: Target, reason: str) -> None:
    page = "/queues/mail/do/pause"
    text = reason.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    sent = target.browser.post(page, {"token": target.browser.token(page), "reason": text})
    assert sent.status == (409 if len(text) > 200 else 303)
    assert "set-cookie" not in sent.headers
    found = [told for path in ("/queues", "/queues/mail", "/", "/audit") if (told := thrown(target.browser, path))]
    assert not found, "\n".join(found)
    shown = target.browser.get("/queues/mail").text
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert "{{7*7}}" not in reason or "{{7*7}}" in shown


def test_an_act_whose_page_before_has_no_address_is_done(target: Target, shop: App) -> None:
    done = target.browser.act("/dead", f"/dead/{DEAD}/do/retry", referer="http://[")
    assert done.status == 303
    assert done.headers["location"].startswith("/dead?said=")
    assert shop.queues["pay"].size() == 1
