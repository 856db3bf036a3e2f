"""Whatever people and programs put into names, texts and payloads is shown as text, on every page and in the API."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import quote

import pytest
from redis import Redis

from henchman import App
from henchman.console.api.routes import ENDPOINTS
from henchman.console.render import named
from henchman.store.call import command
from support.browsing import Browser
from support.crowded import Crowd, Sizes, crowded
from support.server import running_server

EVIL: Final = "<img src=x onerror=zq()>'zq\u202e"
SEEN: Final = "<img src=x onerror=zq()>'zq\\u202e"  # as people read it
WORDS: Final = (
    "shop",
    "products",
    "account",
    "sku",
    "spring",
    "night",
    "Close",
    "collect",
    "ana",
    "no answer",
    "a note",
)
FEW: Final = Sizes(400, 200, 30, 30, 30, 2, 3, 20, 12, 60, 60, 10)
FILES: Final = ("", "text/plain", "text/csv", "application/x-ndjson", "application/json")
#: files, and what only the server says
SILENT: Final = {("jobs", 2), ("batches", 2), ("days", 2), ("days", 0)} | {
    (one, 1) for one in ("retries", "scheduled", "dead", "history")
}
EACH: Final = 4  # addresses of one page that are looked at


class Marks(HTMLParser):
    """What a page is made of that our templates do not write."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        places = [given[name] for name in ("href", "src", "action", "formaction") if name in given]
        told = self.get_starttag_text() or ""
        if tag in ("img", "iframe", "object", "embed", "base") or (tag == "script" and "src" not in given):
            self.found.append(told)
        if any(name.startswith("on") or name == "style" for name in given):
            self.found.append(told)
        if not all(one.startswith(("/", "#")) and not one.startswith("//") for one in places):
            self.found.append(told)


def infected(text: bytes) -> bytes:
    """The same with ``EVIL`` for every word that is data."""
    for word in WORDS:
        text = text.replace(word.encode(), EVIL.encode())
    return text


def infect(redis: Redis) -> None:
    """Put it into every key and every value that the server holds."""
    for key in list(redis.scan_iter(count=1000)):
        kind, fresh = redis.type(key), infected(key)
        match kind:
            case b"string":
                given: list[Any] = ["SET", fresh, infected(redis.get(key))]
            case b"hash":
                given = ["HSET", fresh, *(one for pair in redis.hgetall(key).items() for one in pair)]
            case b"list":
                given = ["RPUSH", fresh, *redis.lrange(key, 0, -1)]
            case b"set":
                given = ["SADD", fresh, *redis.smembers(key)]
            case b"zset":
                given = [
                    "ZADD",
                    fresh,
                    *(one for pair in redis.zrange(key, 0, -1, withscores=True) for one in pair[::-1]),
                ]
            case b"stream":
                entries = redis.xrange(key)
                redis.delete(key)
                for at, fields in entries:
                    redis.xadd(fresh, {name: infected(value) for name, value in fields.items()}, id=at)
                continue
        redis.delete(key)
        verb, place, *rest = given
        redis.execute_command(verb, place, *(infected(one) if isinstance(one, bytes) else one for one in rest))


@pytest.fixture(scope="module")
def ill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    """Very much of everything, with ``EVIL`` in all of it."""
    folder = tmp_path_factory.mktemp("ill")
    with running_server() as server, crowded(server.url, folder, FEW) as made:
        with Redis.from_url(server.url) as redis:
            infect(redis)
        with sqlite3.connect(folder / "history.sqlite") as sql:
            for column in ("class", "queue", "args", "message"):
                sql.execute(f"update henchman_events set {column} = {column} || ?", (f' "{EVIL}"',))  # noqa: S608
            sql.execute("update henchman_messages set text = text || ?", (EVIL,))
        yield made


def test_on_every_page_it_is_text(ill: Crowd) -> None:
    """From the overview on along all links, some of each page, and a search for it on each."""
    site: Any = ill.app.console()
    browser, ahead, seen = Browser(site), ["/", "/findings"], {("findings", 0): ["/findings"]}  # acts lead there
    wrong, shown = list[str](), set[tuple[str, int]]()
    while ahead:
        path = ahead.pop(0)
        page = browser.get(path)
        parts = [named(one) for one in path.partition("?")[0].split("/")[1:]]
        kind = (parts[0], len(parts) - 1)
        assert page.status in (200, 303, 404), (path, page.status, page.words[-200:])
        media = page.headers.get("content-type", "").partition(";")[0]
        assert page.headers["x-content-type-options"] == "nosniff", path
        if media != "text/html":
            assert media in FILES, (path, media)
            continue
        wrong += [f"{path}: {one}" for one in Marks(page.text).found]
        if EVIL in page.text.replace("<wbr>", ""):
            wrong.append(f"{path}: as it is")
        if SEEN in page.words:
            shown.add(kind)
        for link in [*page.links, f"{path.partition('?')[0]}?q={quote(EVIL)}&show={quote(EVIL)}"]:
            where = re.sub("#.*", "", link)
            if not where or re.search("^/static/|/do/|^/logout", where):
                continue
            parts = where.partition("?")[0].split("/")[1:]
            known = seen.setdefault((parts[0], len(parts) - 1), [])
            if where not in known and len(known) < EACH:
                known.append(where)
                ahead.append(where)
    for path, words in (("/jobs/{running}", "What it says"), ("/jobs/{retry}", "Failed attempts"), ("/", "1 muted")):
        page = browser.get(ill.path(path))
        assert words in page.words, path
        assert SEEN in page.words[page.words.index(words) :], path
        wrong += [f"{path}: {one}" for one in Marks(page.text).found]
        assert EVIL not in page.text.replace("<wbr>", ""), path
    assert "60 of 100" in browser.get("/busy").words
    assert not wrong, "\n".join(wrong)
    assert set(site._views) - set(seen) == set(), "pages that no link leads to are not looked at"
    assert set(site._views) - shown == SILENT, "pages on which it does not stand"


def test_in_every_answer_of_the_api_it_is_json(ill: Crowd) -> None:
    browser = Browser(ill.app.console())
    told = 0
    for path in [one.path for one in ENDPOINTS if "{" not in one.path]:
        for asked in ("", f"?q={quote(EVIL)}", f"?x={quote(EVIL)}"):
            answer = browser.get(f"/api/v1/{path}{asked}")
            assert answer.status in (200, 400), (path, answer.text[:300])
            assert answer.headers["content-type"] in ("application/json", "application/problem+json"), path
            assert answer.headers["x-content-type-options"] == "nosniff", path
            told += EVIL in json.dumps(json.loads(answer.body), ensure_ascii=False)
    assert told > 12


# ---- payloads


WILD: Final = {
    "control": "".join(map(chr, range(32))) + "\x7f\x85",
    "right to left": "\u202eabc\u2066שלום\u2069 مرحبا",
    "large": [2**63, -(2**63), 2**64 + 1, 10**300, 1e308],
    "deep": json.loads("[" * 60 + "]" * 60),
}


@pytest.fixture
def wild(app: App) -> App:
    """A job with 3 MB of arguments and one with wild ones, each in every place where jobs are listed."""
    now, run = time.time(), app.connections.run
    for kind, args in (("b", ["x<é>" * 750_000]), ("c", [WILD])):
        fields = {"class": "wild.job", "queue": "wild", "created_at": now - 60, "args": args, "retry": 3}
        error = {"error_class": "Wild", "error_message": WILD["control"] + WILD["right to left"], "failed_at": now - 9}
        for key in (app.keys.dead, app.keys.retry, app.keys.schedule):
            jid = {app.keys.dead: "1", app.keys.retry: "2", app.keys.schedule: "3"}[key]
            payload = json.dumps({**fields, **error, "jid": (kind + jid) * 12}).encode()
            run(command("ZADD", key, now - 10 if key == app.keys.dead else now + 600, payload))
        run(command("LPUSH", app.keys.queue("wild"), json.dumps({**fields, "jid": (kind + "4") * 12}).encode()))
    run(command("SADD", app.keys.queues, "wild"))
    return app


@pytest.mark.parametrize("place", ["/dead", "/retries", "/scheduled", "/queues/wild"])
def test_large_and_wild_payloads_in_lists(wild: App, place: str) -> None:
    browser = Browser(wild.console())
    for path in (place, f"{place}?q=wild"):
        page = browser.get(path)
        assert page.status == 200
        assert len(page.body) < 60_000
        assert "wild.job" in page.words
        assert re.search("[\x00-\x08\x0b-\x1f\x7f\x85\u202e\u2066]", page.text) is None
        assert "9223372036854775808" in page.words or "q=" in path or "…" in page.words
    items = json.loads(browser.get(f"/api/v1{place}{'/jobs' if 'queues' in place else ''}").body)["items"]
    small = next(one for one in items if one["jid"].startswith("c"))
    assert json.loads(small["args"]) == [WILD]


@pytest.mark.parametrize("jid", ["b1", "b2", "b3", "b4", "c1", "c2", "c3", "c4"])
def test_large_and_wild_payloads_of_one_job(wild: App, jid: str) -> None:
    browser = Browser(wild.console())
    page = browser.get(f"/jobs/{jid * 12}")
    assert page.status == 200
    assert len(page.body) < 60_000
    assert re.search("[\x00-\x08\x0b-\x1f\x7f\x85\u202e\u2066]", page.text) is None
    if jid.startswith("c"):
        for number in map(str, WILD["large"][:3]):
            assert number in page.words
        for text in ("\\u0000", "\\u202e", "שלום"):
            assert text in page.words, text
    else:
        assert "more characters" in page.words
    answer = browser.get(f"/api/v1/jobs/{jid * 12}")
    assert answer.status == 200
    told = json.loads(answer.body)
    assert told["jid"] == jid * 12
    if jid.startswith("c"):
        assert json.loads(told["args"])[0]["large"] == WILD["large"]
