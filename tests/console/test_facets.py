"""By error, by class, by queue: what a set is made of, and what each count leads to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.inspector.filters import COUNTED, entry_filter, facets
from henchman.store.call import command, commands, run
from henchman.wire.payload import encode
from support.browsing import Browser
from support.worker import jobs_in, until

WILD = 'Bad "quote" ü <b>'


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    yield
    until(lambda: "henchman-operations" not in {one.name for one in threading.enumerate()}, "its operators have ended")


def put(app: App, which: str, name: str, many: int, **more: Any) -> None:
    now = time.time() - 60
    for number in range(many):
        job: dict[str, Any] = {
            "class": name,
            "queue": "q",
            "args": [number],
            "jid": f"{name[:4]}{len(more)}{number:018}",
        }
        job |= {"retry": 5, "created_at": now, "failed_at": now, "error_class": "E", "error_message": "m"}
        app.connections.run(command("ZADD", which, now, encode(job | {"retry_count": 0} | more)))


@pytest.mark.parametrize(("page", "key"), [("retries", "retry"), ("scheduled", "schedule"), ("dead", "dead")])
def test_each_count_leads_to_just_these_jobs(app: App, page: str, key: str) -> None:
    put(app, key, "sync", 3, error_class="Timeout")
    put(app, key, "sync", 2, error_class="Gone", queue="pay", args=["Timeout sync"])
    put(app, key, "sync_later", 4, error_class=WILD)
    browser = Browser(app.console())
    shown = browser.get(f"/{page}")
    assert "What they are all 9" in shown.words
    assert "By class sync 5 sync_later 4" in shown.words
    assert "By queue q 7 pay 2" in shown.words
    assert f"By error {WILD} 4 Timeout 3 Gone 2" in shown.words
    filters = [one for one in shown.links if one.startswith(f"/{page}?q=") and "%3A" in one]
    assert len(filters) == 7
    many = {one: browser.get(one).text.count("<tr id=") for one in filters}
    assert sorted(many.values()) == [2, 2, 3, 4, 4, 5, 7]


def test_two_filters_hold_together_stay_in_links_and_are_taken_away(app: App) -> None:
    put(app, "dead", "sync", 40, error_class="Timeout")
    put(app, "dead", "mail", 1, error_class="Timeout")
    browser = Browser(app.console())
    shown = browser.get("/dead?q=error%3ATimeout+class%3Async")
    assert "Timeout 41 ✕" in shown.words
    assert "sync 40 ✕" in shown.words
    assert "/dead?q=class%3Async" in shown.links, "without the error"
    [older] = [one for one in shown.links if "p=2" in one]
    assert "error%3ATimeout" in older
    assert browser.get(older).text.count("<tr id=") == 10


def test_an_act_on_what_a_filter_finds_leaves_all_others(app: App, redis: Redis) -> None:
    put(app, "dead", "sync", 3, error_class="Timeout")
    put(app, "dead", "sync", 2, error_class="Gone", args=["error:Timeout class:sync Timeout"])
    browser = Browser(app.console())
    shown = browser.get("/dead?q=class%3Async+error%3ATimeout")
    [act] = [link for link in shown.links if link.endswith("/do/delete-found")]
    assert "3 dead jobs of class sync, with error Timeout" in browser.get(act).words
    browser.act(act, act)
    until(lambda: "3 jobs deleted" in browser.get("/operations/1").words, "the operation has ended")
    assert {job["error_class"] for job in jobs_in(redis, "dead")} == {"Gone"}
    assert "Timeout" not in browser.get("/dead").words.partition("By class")[0], "counted anew after an act"


def test_what_others_write_is_counted_as_well(app: App) -> None:
    app.connections.run(command("ZADD", "dead", 1.0, b'{"class": "Ruby::Job", "error_class": "E", "args": []}'))
    app.connections.run(command("ZADD", "dead", 2.0, b'{"class":"X::Wrapper","wrapped":"Ruby::Job","args":[]}'))
    app.connections.run(command("ZADD", "dead", 3.0, b'no json "class":"open'))
    app.connections.run(command("ZADD", "dead", 4.0, b'{"class":"\xff\xfe","queue":""}'))
    browser = Browser(app.console())
    assert "By class Ruby::Job 2" in browser.get("/dead").words
    assert browser.get("/dead?q=class%3ARuby%3A%3AJob").text.count("<tr id=") == 2


def test_it_says_how_many_it_counted(app: App) -> None:
    many = COUNTED + 1500
    for start in range(0, many, 500):
        rows = [
            ("ZADD", "dead", n, encode({"class": "sync", "jid": f"{n:024}", "args": []}))
            for n in range(start, start + 500)
        ]
        app.connections.run(commands(*rows))
    words = Browser(app.console()).get("/dead").words
    assert f"What they are of the newest {COUNTED:,}" in words
    assert f"By class sync {COUNTED:,}" in words
    found = run(app.connections, facets("dead", newest_first=True))
    assert (found.looked, found.total) == (COUNTED, many)


def test_programs_filter_with_the_same_words(app: App) -> None:
    put(app, "retry", "sync", 2, error_class="Timeout")
    put(app, "retry", "mail", 1, error_class="Timeout")
    app.connections.run(command("ZADD", "retry", 1.0, b"no json class:mail"))
    found = Browser(app.console()).get("/api/v1/retries?q=class:mail").text
    assert '"class":"mail"' in found
    assert '"class":"sync"' not in found
    assert [one.name for one in app.retries.matching("class:mail error:Timeout")] == ["mail"]


@pytest.mark.parametrize(
    ("text", "fields", "rest"),
    [
        ("connection  refused", (), "connection  refused"),
        ('"queue":"pay"', (), '"queue":"pay"'),
        ("error: refused", (), "error: refused"),
        ("class:a.b refused  now", (("class", "a.b"),), "refused now"),
        ('error:"a \\"b\\" c" queue:q', (("error", 'a "b" c'), ("queue", "q")), ""),
        ("order:A-17 Foo::Bar https://x", (), "order:A-17 Foo::Bar https://x"),
        ('"class:a b"', (), "class:a b"),
    ],
)
def test_what_is_no_such_word_is_text(text: str, fields: Any, rest: str) -> None:
    found = entry_filter(text)
    assert (tuple((one.name, one.only) for one in found.terms), found.text) == (fields, rest)
    assert entry_filter(found.having("class", found.value("class"))).text == rest
