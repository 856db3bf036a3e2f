"""The grammar of a search: what each term finds, alone, turned round and with others; and what is wrong with one."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.errors import ArgumentError
from henchman.inspector.base import Entry
from henchman.inspector.filters import TERMS, EntryFilter, FoundAt, entry_filter
from henchman.store.call import command
from henchman.wire.payload import encode
from support.browsing import Browser
from support.worker import jobs_in, until

NOW = 1_764_000_000.0
JOB: dict[str, Any] = {
    "class": "shop.charge",
    "queue": "pay",
    "jid": "a" * 24,
    "args": [42, "ada@x.de", {"shop": 77, "lines": [{"sku": "A-1"}]}, 2**63, None, True, 1.5],
    "kwargs": {"email": "a b@c.d", "shop": "north"},
    "tags": ["black-friday", "eu"],
    "retry_count": 2,
    "error_class": "TimeoutError",
    "error_message": "connection refused",
    "error_group": "9f31c2aa",
    "error_cause": "timeout",
    "error_attempts": [[1, NOW - 90, 31.5, "web-3:401:x", "TimeoutError", "9f31c2aa", "connection refused", "timeout"]],
    "created_at": NOW - 400,
    "enqueued_at": NOW - 360,
    "hm": {"batch": "b-7"},
}
FOUND = (
    "class:shop.charge",
    "class:shop.*",
    "class:mail,shop.charge",
    "-class:mail",
    "-class:mail,shop.refund",
    "queue:pay class:shop.charge refused",
    "error:TimeoutError e:9f31",
    "error:9f31c2aa",
    "tag:eu tag:black-friday",
    "cause:timeout",
    "batch:b-7 task:b-7",
    f"jid:{'a' * 24}",
    "jid:aaaa*",
    "args.0:42",
    "args.1:ada@x.de",
    "args.1:ada*",
    "args.shop:77",
    "args.shop:north",
    "kwargs.shop:north",
    'kwargs.email:"a b@c.d"',
    "args.2.lines.0.sku:A-1",
    "args.lines.0.sku:A-1",
    f"args.3:{2**63}",
    "args.4:null args.5:true args.6:1.5",
    "-args.0:43 -kwargs.shop:south",
    "attempt:3 attempt:>2 attempt:>=3 attempt:<=3 attempts:<4 attempt:1,3",
    "took:>30s took:<1m",
    "waited:>5m waited:<2h -waited:>1h",
    "size:>100 size:<64k",
    "since:2h before:-4m after:-7m until:2026-01-01",
    "worker:web-3",
    "state:dead,retry",
    "-state:scheduled",
    '"connection refused"',
    "connection refused",
)
NOT_FOUND = (
    "class:shop",
    "class:shop.charge.*",
    "-class:shop.*",
    "queue:default",
    "tag:eu,us tag:us",
    "args.0:4",
    "args.9:42",
    "kwargs.shop:77",
    "args.shop.x:77",
    "args.1.0:a",
    "attempt:>3",
    "took:<30s",
    "-took:>30s",
    "size:>64k",
    "since:1m",
    "until:2h",
    "worker:web-4",
    "state:scheduled",
    "-state:dead,retry",
    "class:shop.charge nothing",
)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    yield
    until(lambda: "henchman-operations" not in {one.name for one in threading.enumerate()}, "its operators have ended")


def fits(text: str, job: dict[str, Any] = JOB, **where: Any) -> bool:
    wanted = entry_filter(text, NOW)
    entry = Entry(encode(job))
    found = wanted.fits(entry, FoundAt(**{"place": "dead"} | where))
    if found:
        assert wanted.needle.encode() in entry.payload, "the server would not have given it"
    return found


@pytest.mark.parametrize("text", FOUND)
def test_what_a_search_finds(text: str) -> None:
    assert fits(text)
    wanted = entry_filter(text, NOW)
    for place in range(len(wanted.terms)):
        assert fits(wanted.without(place)), "without one of its terms it finds it, too"


@pytest.mark.parametrize("text", NOT_FOUND)
def test_what_it_does_not_find(text: str) -> None:
    assert not fits(text)


def test_what_is_not_in_the_payload() -> None:
    plain = {"class": "a", "args": [], "jid": "x"}
    assert fits("queue:default", plain), "where Sidekiq sends it"
    assert fits("worker:host-1 took:>5s", plain, worker="host-1:2:3", taken=6.0)
    assert not fits("took:>5s", plain), "it never ran"
    assert fits("-took:>5s", plain)
    assert not fits("waited:>1s", plain), "nobody knows when it was pushed"
    assert fits("cause:error", {**plain, "error_class": "E"}), "what failed for no other reason"
    masked = Entry(encode(JOB), mask=lambda name, args, kwargs: (["***"] * len(args), dict.fromkeys(kwargs, "***")))
    assert not entry_filter("args.0:42", NOW).fits(masked), "a secret is not told by what finds it"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ada@x.de", False),
        ("42", False),
        (str(2**63), False),
        ("north", False),
        ("refused", True),
        ("shop.charge", True),
    ],
)
def test_a_secret_is_not_found_by_its_text(text: str, found: bool) -> None:
    job = {name: value for name, value in JOB.items() if name not in ("error_attempts", "created_at", "enqueued_at")}
    wanted, hidden = entry_filter(text, NOW), {**job, "hm": {"secret": [0, -1, "email", "shop"]}}
    assert wanted.fits(Entry(encode(job)))
    assert wanted.fits(Entry(encode(hidden))) is found
    masked = Entry(encode(job), mask=lambda name, args, kwargs: (["***"] * len(args), dict.fromkeys(kwargs, "***")))
    assert wanted.fits(masked) is found


def test_a_secret_is_found_on_no_page(app: App) -> None:
    @app.job(name="pay", secret=("card",))
    def pay(user: str, card: str) -> None: ...

    pay.enqueue("ada", "4111-1111")
    put(app, "dead", 1, **{"class": "pay", "args": ["ada", "4111-1111"]})
    browser = Browser(app.console())
    for page in ("/dead", "/queues/default"):
        assert "ada" in browser.get(f"{page}?q=ada").words
        assert "/jobs/" not in " ".join(browser.get(f"{page}?q=4111").links)
    assert browser.get("/dead/jobs.csv?q=4111").text.count("\n") == 1, "the head alone"
    told = json.loads(browser.get("/api/v1/search?q=4111").text)
    assert [one for one in told["items"] if one["items"]] == []
    assert len([one for one in json.loads(browser.get("/api/v1/search?q=ada").text)["items"] if one["items"]]) == 2
    assert list(app.dead.matching("4111")) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clas:a", "clas: is no term of a search; did you mean class:?"),
        ("queues:a", "did you mean queue:?"),
        ("args:42", "args needs a place: args.0:42 or args.shop:77"),
        ("class.x:42", "class needs no path: class:42"),
        ("attempt:many", "attempt:many: attempt needs a bound such as >3"),
        ("attempt:>1s", "attempt needs a bound"),
        ("took:30s", "took:30s: say more or less: took:>30s or took:<30s"),
        ("took:>5parsecs", "took needs a bound such as >30s"),
        ("size:>1tb", "size needs a bound such as >64k"),
        ("since:nonsense", "since:nonsense: it must be a time ago such as 90s"),
        ("state:ded", "there is no state ded; did you mean 'dead'?"),
        ("cause:timeot", "there is no cause timeot; did you mean 'timeout'?"),
        (" ".join(["class:a"] * 21), "the search has 21 terms; it may have 20"),
        ("x" * 2001, "the search has 2,001 characters; it may have 2,000"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(ArgumentError) as error:
        entry_filter(text)
    assert said in str(error.value)


def test_a_slip_can_be_searched_for_as_text() -> None:
    with pytest.raises(ArgumentError) as error:
        entry_filter("clas:a")
    assert str(error.value).endswith('As text it stands in quotes: "clas:a"')
    assert entry_filter('"clas:a"').text == "clas:a"
    wanted = entry_filter('class:a "clas:a"')
    assert wanted.text == "clas:a"
    again = entry_filter(wanted.having("class", "b"))
    assert (again.value("class"), again.text) == ("b", "clas:a")


def test_every_term_is_tried_here() -> None:
    tried = {one.name for text in FOUND for one in entry_filter(text, NOW).terms}
    assert tried == {entry_filter(_any(one), NOW).terms[0].name for one in TERMS}


def _any(term: str) -> str:
    known = {"state": "dead", "status": "dead", "cause": "timeout"}
    by_kind = {"text": "a", "path": "1", "number": "3", "seconds": ">3s", "bytes": ">3", "moment": "2h"}
    return f"{term}{'.0' if TERMS[term] == 'path' else ''}:{known.get(term, by_kind[TERMS[term]])}"


def test_wild_searches_end_soon() -> None:
    for text in ("a:" * 900, "class:" + "a," * 900, 'class:"' + "\\" * 1900, "-" * 1900, "args" + ".a" * 900 + ":1"):
        began = time.perf_counter()
        with contextlib.suppress(ArgumentError):
            entry_filter(text)
        assert time.perf_counter() - began < 1


def put(app: App, key: str, many: int, **more: Any) -> None:
    for number in range(many):
        job = {"class": "sync", "queue": "q", "args": [number], "jid": f"{key}{len(more)}{number:020}"} | more
        moment = time.time() - 60
        app.connections.run(command("ZADD", key, moment, encode(job | {"created_at": moment, "failed_at": moment})))


def test_a_page_an_act_and_a_file_take_the_same_jobs(app: App, redis: Redis) -> None:
    put(app, "dead", 5)
    put(app, "dead", 3, args=["A-1", {"shop": 77}], retry_count=4)
    browser, search = Browser(app.console()), "q=args.shop%3A77+attempt%3A%3E3"
    shown = browser.get(f"/dead?{search}")
    assert shown.text.count("<tr id=") == 3
    assert "args.shop:77 ✕" in shown.words
    assert "/dead?q=attempt%3A%3E3" in shown.links
    assert len(browser.get(f"/dead/jobs.csv?{search}").text.strip().splitlines()) == 4
    told = json.loads(browser.get(f"/api/v1/dead?{search}").text)
    assert len(told["items"]) == 3
    [act] = [link for link in shown.links if link.endswith("/do/delete-found")]
    assert "3 dead jobs with args.shop:77, with attempt:>3" in browser.get(act).words
    browser.act(act, act)
    until(lambda: "3 jobs deleted" in browser.get("/operations/1").words, "the operation has ended")
    assert sorted(job["args"] for job in jobs_in(redis, "dead")) == [[number] for number in range(5)]


def test_a_queue_and_what_is_cleared_of_it(app: App, redis: Redis) -> None:
    for number in range(6):
        job = {"class": "a" if number % 2 else "b", "queue": "q", "args": [number], "jid": f"{number:024}"}
        app.connections.run(command("LPUSH", app.keys.queue("q"), encode(job)))
    app.connections.run(command("SADD", app.keys.queues, "q"))
    browser = Browser(app.console())
    shown = browser.get("/queues/q?q=class%3Aa+-args.0%3A3")
    assert shown.text.count('id="j-') == 2
    [act] = [link for link in shown.links if link.endswith("/do/delete-found")]
    browser.act(act, act)
    until(lambda: "2 jobs deleted" in browser.get("/operations/1").words, "the operation has ended")
    assert sorted(json.loads(one)["args"][0] for one in redis.lrange("queue:q", 0, -1)) == [0, 2, 3, 4]  # type: ignore[union-attr]


@pytest.mark.parametrize("page", ["/dead", "/retries", "/scheduled", "/queues/q", "/search"])
def test_a_slip_is_told_below_the_field_and_nothing_is_done(app: App, redis: Redis, page: str) -> None:
    put(app, "dead", 2)
    app.connections.run(command("LPUSH", app.keys.queue("q"), encode({"class": "a", "args": [], "jid": "f" * 24})))
    browser = Browser(app.console())
    shown = browser.get(f"{page}?q=clas%3Async")
    assert shown.status == 200
    assert 'aria-describedby="problem"' in shown.text
    assert "did you mean class:?" in shown.words
    assert not [link for link in shown.links if link.endswith("-found")], "no act on what was not understood"
    assert "What the search finds" not in shown.words
    assert browser.get("/dead/jobs.csv?q=clas%3Async").status == 404
    told = browser.get("/api/v1/dead?q=clas%3Async")
    assert (told.status, "did you mean class:?" in told.text) == (400, True)
    assert browser.get("/api/v1/search?q=clas%3Async").status == 400
    assert len(jobs_in(redis, "dead")) == 2


def test_the_search_of_everything_looks_where_it_may_be(app: App) -> None:
    put(app, "dead", 2)
    put(app, "retry", 1)
    browser = Browser(app.console())
    found = json.loads(browser.get("/api/v1/search?q=class%3Async+state%3Aretry").text)["items"]
    assert [one["title"] for one in found if one["items"]] == ["Retries"]
    assert not {"Dead", "Scheduled", "Running", "Waiting in queues"} & {one["title"] for one in found}


def test_a_queue_of_many_finds_is_gone_through_without_a_gap(app: App) -> None:
    """The server tells a hundred finds a look; what it did not tell was passed over as looked at."""
    rows = [encode({"class": "a", "args": [number], "jid": f"{number:024}"}) for number in range(450)]
    app.connections.run(command("LPUSH", app.keys.queue("q"), *rows))
    app.connections.run(command("SADD", app.keys.queues, "q"))
    browser, found, address = Browser(app.console()), list[str](), "/search?q=-args.0%3A7+class%3Aa&show=all"
    while address:
        shown = browser.get(address)
        found += [link for link in shown.links if link.startswith("/jobs/")]
        address = next((link for link in shown.links if "look=" in link), "")
    assert len({link.partition("?")[0] for link in found}) == 449


def test_an_empty_filter_fits_all() -> None:
    assert EntryFilter((), "").fits(Entry(b"no json"))
    assert EntryFilter((), "").words == ""
