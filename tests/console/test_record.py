"""Pages that look back: history, and the audit of acts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from henchman import App
from henchman.inspector import audit
from henchman.store.call import command, run
from support.browsing import DEAD, RETRY, Browser
from support.worker import until, working


@pytest.fixture
def recorded(redis_url: str, tmp_path: Path) -> Iterator[App]:
    """Five jobs finished and one gave up, and history has all of that."""
    app = App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path}/history.db")
    app.open_history().upgrade()

    @app.job(name="shop.pay", retry=0, track=True)
    def pay(order: int) -> None:
        if order == 3:
            raise OSError("card <b>refused</b> \u202e")

    with app.batch("orders") as batch:
        pay.enqueue_many([(order,) for order in range(6)])
    with working(app):
        until(lambda: app.batch_status(batch.id).done == 6, "all have ended")
        reading = app.open_history().reading
        until(lambda: sum(bool(one.ended_at) for one in reading.events(batch.id).events) == 6, "all is recorded")
    yield app
    app.close()


def calls(shown: str) -> list[str]:
    return re.findall(r"shop\.pay\((\d)\)", shown)


def test_history_lists_jobs_the_latest_first_page_by_page(recorded: App) -> None:
    browser = Browser(recorded.console())
    shown = browser.get("/history?n=4")
    assert shown.status == 200
    assert calls(shown.words) == ["5", "4", "3", "2"]
    older = next(link for link in shown.links if "after=" in link)
    assert calls(browser.get(f"{older}&n=4").words) == ["1", "0"]
    assert "<b>refused" not in shown.text
    assert "\u202e" not in shown.text


def heads(browser: Browser, address: str) -> list[str]:
    return re.findall(r'<th scope="col"[^>]*>([^<]+)<', browser.get(address).text)


def test_the_columns_of_the_list_are_chosen(recorded: App) -> None:
    """A click shows a column or takes it away; all else of the address stays, on the next page, too."""
    browser = Browser(recorded.console())
    usual = ["Enqueued", "Job", "State", "Queue", "Runs", "Waited", "Ran for", "Batch"]
    assert heads(browser, "/history") == usual == heads(browser, "/history?columns=nothing,x")
    shown = browser.get("/history?q=class:shop.pay&n=4")
    [more] = re.findall(r'<a href="([^"]+)">Process</a>', shown.text)
    page = html.unescape(more)
    assert heads(browser, page) == [*usual, "Process"]
    assert any(link.startswith("/processes/") for link in browser.get(page).links)
    [older] = [link for link in browser.get(page).links if "after=" in link and "columns=enqueued" in link]
    assert heads(browser, f"{older}&n=4") == [*usual, "Process"]
    [back] = re.findall(r'<a href="([^"]+)" aria-current="true">Process</a>', browser.get(page).text)
    assert html.unescape(back) == "/history?q=class%3Ashop.pay&n=4"
    few = browser.get("/history?columns=result,tags,ended")
    assert heads(browser, "/history?columns=result,tags,ended") == ["Job", "Ended", "Tags", "Result"]
    assert 'name="columns" value="result,tags,ended"' in few.text
    assert few.status == 200


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("status:error", ["3"]),
        ("class:shop.pay status:finished", ["5", "4", "2", "1", "0"]),
        ("refused", ["3"]),
        ("class:other", []),
        ("since:1h", ["5", "4", "3", "2", "1", "0"]),
        ("until:2001-01-01", []),
    ],
)
def test_history_is_searched_by_words_and_fields(recorded: App, query: str, found: list[str]) -> None:
    shown = Browser(recorded.console()).get(f"/history?q={query.replace(' ', '+')}")
    assert calls(shown.words) == found
    if query == "refused":
        assert "of the last 24 hours" in shown.words


@pytest.mark.parametrize("query", ["status:nope", "clas:x", "since:", "since:yesterday", "%3Cb%3E:x"])
def test_a_search_without_sense_says_what_is_wrong(recorded: App, query: str) -> None:
    shown = Browser(recorded.console()).get(f"/history?q={query}")
    assert shown.status == 200
    assert 'id="problem"' in shown.text or "Nothing" in shown.words
    for after in ("x", "-1", "99999999999999999999"):
        assert Browser(recorded.console()).get(f"/history?after={after}").status == 200


def test_without_history_the_page_says_how_to_turn_it_on(browser: Browser) -> None:
    shown = browser.get("/history")
    assert shown.status == 200
    assert "history is off: set database_url" in shown.words


def test_every_act_is_kept_with_what_became_of_it(browser: Browser, shop: App) -> None:
    assert "Nobody has done anything in a console yet." in browser.get("/audit").words
    browser.act("/dead", f"/dead/{DEAD}/do/retry")
    late = browser.act("/retries", f"/dead/{DEAD}/do/retry")
    assert late.status == 409
    browser.act("/retries", f"/retries/{RETRY}/do/kill")
    shown = browser.get("/audit")
    assert "Audit 3" in shown.words
    assert re.findall(r"(kill|retry) (retries|dead)", shown.words)[:3] == [
        ("kill", "retries"),
        ("retry", "dead"),
        ("retry", "dead"),
    ]
    assert f"{DEAD} is enqueued" in shown.words
    assert "refused" in shown.words
    assert "127.0.0.1" in shown.words
    assert f"/jobs/{RETRY}" in shown.links
    assert "Audit 1" in browser.get("/audit?q=KILL").words
    assert "No act has" in browser.get("/audit?q=nothing-like-it").words
    assert shop.connections.run(command("LLEN", shop.keys.audit)) == 3


def test_a_request_that_may_not_act_leaves_nothing(shop: App) -> None:
    browser = Browser(shop.console(read_only=True))
    browser.post(f"/dead/{DEAD}/do/retry", {"token": "0" * 64})
    assert shop.connections.run(command("LLEN", shop.keys.audit)) == 0


def test_an_act_that_was_cut_off_stays_as_begun(shop: App, browser: Browser) -> None:
    begun = run(shop.connections, audit.begin(shop.keys, "10.0.0.9", "clear", "queues", ["<b>mail</b>"]))
    shown = browser.get("/audit")
    assert "begun nothing is known of its end" in shown.words
    assert "<b>mail" not in shown.text
    run(shop.connections, audit.end(shop.keys, begun, "12 jobs deleted", done=True))
    assert "done 12 jobs deleted" in browser.get("/audit").words
    assert "Audit 1" in browser.get("/audit").words


def test_the_audit_is_bounded_and_reads_what_others_wrote(
    shop: App, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST", 5)
    for n in range(8):
        begun = run(shop.connections, audit.begin(shop.keys, "me", "pause", "queues", [f"q{n}" + "x" * 9000]))
        run(shop.connections, audit.end(shop.keys, begun, "y" * 9000, done=True))
    rows = shop.connections.run(command("LRANGE", shop.keys.audit, 0, -1))
    assert len(rows) == 5
    assert all(len(row) < 2000 for row in rows)
    shop.connections.run(command("LPUSH", shop.keys.audit, b"\xff no json"))
    assert browser.get("/audit").status == 200
    page = run(shop.connections, audit.audited(shop.keys, "", 1, 2))
    assert [one.names[0][:2] for one in page.entries] == ["q7", "q6"]
    assert page.total == 6
