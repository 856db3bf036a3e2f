"""Every page: what it says, where its links go, and that nothing in a payload becomes markup."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from henchman import App
from henchman.console.jobs import life
from henchman.console.render import named, tilde
from henchman.inspector.jobs import JobStatus
from henchman.kernel.clock import ServerClock
from henchman.store.call import command
from support.browsing import DEAD, RETRY, Browser
from support.worker import until, working

PAGES = (
    "/",
    "/errors",
    "/metrics",
    "/busy",
    "/queues",
    "/retries",
    "/scheduled",
    "/dead",
    "/ordered",
    "/crons",
    "/system",
)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_and_small(browser: Browser, page: str) -> None:
    shown = browser.get(page)
    assert shown.status == 200
    assert shown.text.count("<h1") == 1
    assert "</html>" in shown.text
    assert len(shown.body) < 60_000
    assert "<script>alert" not in shown.text
    assert "\u202e" not in shown.text
    assert not re.search(r'\son\w+="|javascript:|style="', shown.text)


@pytest.mark.parametrize("root", ["", "/ops/jobs"])
def test_every_link_stays_below_the_place_where_it_is_mounted(shop: App, root: str) -> None:
    browser, seen, ahead = Browser(shop.console(), root=root), set[str](), [f"{root}/"]
    while ahead:
        path = ahead.pop()
        seen.add(path)
        shown = browser.get(path.removeprefix(root))
        assert shown.status in (200, 303), (path, shown.status, shown.words)
        for link in shown.links:
            assert link.startswith(f"{root}/") or link == "#main", (path, link)
            where = link.partition("#")[0]
            skipped = "/do/" in link or link.endswith("/logout") or not where
            if not skipped and where not in seen and where not in ahead:
                ahead.append(where)
    assert {f"{root}{page}" for page in PAGES} < seen
    assert f"{root}/queues/odd~2F~C3~BC~3F~23~3Cb~3E" in seen
    assert any(one.startswith(f"{root}/jobs/{DEAD}?at=") for one in seen), "a list says where it has shown a job"


def test_the_overview_begins_with_what_is_wrong(browser: Browser) -> None:
    words = browser.get("/").words
    assert "No worker is alive, and 13 jobs wait." in words
    assert "start one: henchman work pkg.mod:app" in words
    assert "Dead 1 gave up" in words


def test_an_overview_of_nothing_says_how_to_begin(app: App) -> None:
    words = Browser(app.console()).get("/").words
    assert "Nothing has happened here yet" in words
    assert "henchman work pkg.mod:app" in words


def test_a_worker_at_work_is_seen_and_all_is_well(app: App) -> None:
    @app.job(name="shop.mail", queue="mail")
    def mail() -> None: ...

    browser = Browser(app.console())
    with working(app):
        mail.enqueue()
        until(lambda: "1 done" in browser.get("/").words or "Done today 1" in browser.get("/").words, "it is done")
        until(lambda: "All is well." in browser.get("/").words, "all is well")
        assert "No worker is alive" not in browser.get("/busy").words


def test_a_queue_shows_what_waits_the_next_first(browser: Browser) -> None:
    words = browser.get("/queues/mail?n=5").words
    calls = re.findall(r"shop\.mail\((\d+), \S+\)", words)
    assert calls == ["0", "1", "2", "3", "4"]
    assert "1–5 of 12 jobs" in words
    assert "4111-1111" not in words
    assert re.findall(r"shop\.mail\((\d+)", browser.get("/queues/mail?n=5&p=3").words) == ["10", "11"]


def test_what_cannot_be_read_is_shown_and_stops_nothing(browser: Browser, shop: App) -> None:
    shop.connections.run(command("LPUSH", shop.keys.queue("mail"), b"\xff{ no json"))
    shop.connections.run(command("SET", shop.keys.queue("broken"), "text"))
    shop.connections.run(command("SADD", shop.keys.queues, "broken"))
    assert "unreadable" in browser.get("/queues/mail").words
    assert "no queue" in browser.get("/queues").words
    assert browser.get("/queues/broken").status == 200


def test_a_queue_to_which_nothing_was_pushed_is_empty(browser: Browser) -> None:
    shown = browser.get("/queues/pay")
    assert shown.status == 200
    assert "Empty: nothing waits. No queue of this name is known" in shown.words
    assert "did you mean 'mail'?" in browser.get("/queues/mails").words


def test_a_set_is_searched(browser: Browser) -> None:
    assert "CardDeclined" in browser.get("/dead?q=A-1").words
    found = browser.get("/dead?q=nothing-like-this")
    assert "Nothing here fits “nothing-like-this”." in found.words


def test_a_job_is_found_wherever_it_is(browser: Browser) -> None:
    dead = browser.get(f"/jobs/{DEAD}")
    assert dead.status == 200
    assert "Dead since" in dead.words
    assert "CardDeclined" in dead.words
    retry = browser.get(f"/jobs/{RETRY}")
    assert "9223372036854775808" in retry.words
    assert "\\u202e" in retry.words
    sent = browser.get(f"/search?q={DEAD}")
    assert sent.status == 303
    assert sent.headers["location"] == f"/jobs/{DEAD}"
    assert browser.get("/jobs/unknown").status == 404


@pytest.mark.parametrize("path", ["/nope", "/a/b/c/d/e/f", "/static/x/../../etc/passwd"])
def test_what_is_not_there_is_said(browser: Browser, path: str) -> None:
    shown = browser.get(path)
    assert shown.status == 404
    assert "Traceback" not in shown.text


@pytest.mark.parametrize(
    "query", ["p=0", "p=-1", "p=99999999999999999999", "p=x", "n=1000000", "q=%00%ff", "q=" + "x" * 900]
)
def test_a_query_without_sense_is_a_page_all_the_same(browser: Browser, query: str) -> None:
    for page in ("/queues", "/queues/mail", "/retries", "/dead", "/busy"):
        assert browser.get(f"{page}?{query}").status == 200, page


@pytest.mark.parametrize("name", ["mail", "a/b", "ü", "~", "a~2Fb", "<b>", "\n", "日本", "a b+c%20"])
def test_a_name_survives_its_address(name: str) -> None:
    assert named(tilde(name)) == name
    assert re.fullmatch(r"[A-Za-z0-9._~-]*", tilde(name))


def test_arguments_of_three_megabytes_are_cut(browser: Browser, shop: App) -> None:
    from henchman.wire.payload import encode

    large: dict[str, Any] = {"class": "large", "args": ["y" * 3_000_000], "jid": "a" * 24, "queue": "mail"}
    shop.connections.run(command("ZADD", shop.keys.dead, ServerClock().now(), encode(large)))
    assert len(browser.get("/dead").body) < 60_000
    job = browser.get(f"/jobs/{'a' * 24}")
    assert len(job.body) < 60_000
    assert "more characters" in job.words
    assert f"/jobs/{'a' * 24}/call.txt" in job.links
    whole = browser.get(f"/jobs/{'a' * 24}/call.txt")
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert whole.body == b"large('" + b"y" * 3_000_000 + b"')"
    assert json.loads(browser.get(f"/jobs/{'a' * 24}/arguments.json").body) == {"args": large["args"], "kwargs": {}}


def test_a_call_as_a_file_is_text_without_secrets(browser: Browser, shop: App) -> None:
    for name in ("call.txt", "arguments.json"):
        shown = browser.get(f"/jobs/{RETRY}/{name}")
        assert shown.headers["content-disposition"].startswith("inline;")
        assert "9223372036854775808" in shown.text
        assert "\u202e" not in shown.text
    waiting = next(iter(shop.queues["mail"]))
    assert "4111-1111" not in browser.get(f"/jobs/{waiting.jid}/call.txt").text
    assert browser.get(f"/jobs/{RETRY}/payload.bin").status == 404
    assert browser.get("/jobs/unknown/call.txt").status == 404


def test_a_call_as_a_file_is_python(browser: Browser, shop: App) -> None:
    from henchman.wire.payload import encode

    job: dict[str, Any] = {"class": "shop.flag", "args": [True, None, {"of": [1.5]}], "jid": "b" * 24, "queue": "mail"}
    shop.connections.run(command("ZADD", shop.keys.dead, ServerClock().now(), encode(job)))
    assert browser.get(f"/jobs/{'b' * 24}/call.txt").text == "shop.flag(True, None, {'of': [1.5]})"


def test_the_life_of_a_job_is_told_in_its_order(browser: Browser) -> None:
    words = browser.get(f"/jobs/{RETRY}").words
    assert words.index("Created") < words.index("Failed") < words.index("Next run")
    steps = life(JobStatus("j", "dead", "", created_at=10.0, enqueued_at=10.5, failed_at=50.5, at=50.5))
    assert [(one.what, one.after) for one in steps] == [
        ("created", None),
        ("enqueued", 0.5),
        ("failed", 40.0),
        ("died", 0.0),
    ]
    assert life(JobStatus("j", "unknown", "")) == []


def test_the_title_says_the_page_and_on_the_overview_how_much_is_wrong(shop: App) -> None:
    browser = Browser(shop.console(label="shop"))
    assert "<title>Dead · shop · Henchman</title>" in browser.get("/dead").text
    found = re.search(r"<title>(\d+)! · Overview · shop · Henchman</title>", browser.get("/").text)
    assert found
    assert int(found[1]) == browser.get("/").text.count('class="finding ')


@pytest.mark.parametrize(
    ("short", "page"), [("/e/abc", "/errors/abc"), ("/j/11ff", "/jobs/11ff"), ("/t/b1", "/batches/b1")]
)
def test_short_addresses_lead_to_their_pages(browser: Browser, short: str, page: str) -> None:
    shown = browser.get(short)
    assert (shown.status, shown.headers["location"]) == (303, page)


def test_a_fair_queue_shows_its_tenants_and_a_line_leads_back_to_it(app: App) -> None:
    @app.job(name="shop.import", queue="imports", fair_by="tenant")
    def import_(tenant: str, number: int) -> None: ...

    for tenant, many in (("acme", 900), ("globex", 3)):
        import_.enqueue_many([(tenant, number) for number in range(many)])
    shown = Browser(app.console()).get("/queues/imports")
    waits = app.queues["imports"].tenants()
    assert waits.arriving, "the first comes into no line"
    assert f"{waits.arriving} job{'s' if waits.arriving > 1 else ''} that stand" in shown.words
    assert "In no line yet" in shown.words
    [globex] = (one for one in waits.lines if one.tenant == "globex")
    assert f"globex normal {globex.size} < 1 % 1" in shown.words
    line = Browser(app.console()).get("/queues/imports~40acme")
    assert "/queues/imports" in line.links
