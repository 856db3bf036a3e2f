"""Pages of keys and of blocked jobs, why a job does not run, and what can be done to them."""

from __future__ import annotations

import re

import pytest
from redis import Redis

from henchman import App
from henchman.console.render import tilde
from henchman.inspector.blocked import blocked_slice
from henchman.inspector.keys import key_look, keys_in, scope_states
from henchman.store.call import command, run
from henchman.work.locks import ONCE_FOR
from support.browsing import Browser
from support.worker import until, working

SCOPE, KEY = "books/<b>ü", "DE 47/11?#"


class Books:
    """A job holds a key, two wait for it; a dead job has one that waits for its success; another job is remembered."""

    def __init__(self, app: App) -> None:
        self.app = app

        @app.job(name="books.entry", key="account", scope=SCOPE, unique="until_success", on_conflict="wait")
        def entry(account: str, cents: int) -> None: ...

        @app.job(name="books.export", followed=True, retry=0)
        def export(day: str) -> None: ...

        @app.job(name="books.report")
        def report(day: str) -> None: ...

        self.holder = entry.enqueue(KEY, 1).jid
        self.line = [entry.enqueue(KEY, cents).jid for cents in (2, 3)]
        done = export.enqueue("2026-11-20")
        self.export = done.jid
        self.report = report.using(after=[done]).enqueue("2026-11-21").jid


@pytest.fixture
def books(app: App) -> Books:
    return Books(app)


@pytest.fixture
def browser(books: Books) -> Browser:
    return Browser(books.app.console())


def test_scopes_and_their_keys_stand_there(browser: Browser) -> None:
    shown = browser.get("/keys")
    assert f"/keys/{tilde(SCOPE)}" in shown.links
    assert "<b>ü" not in shown.text
    assert "No scope has “nothing”" in browser.get("/keys?q=nothing").words
    scope = browser.get(f"/keys/{tilde(SCOPE)}")
    assert scope.status == 200
    assert KEY in scope.words
    assert f"/keys/{tilde(SCOPE)}/{tilde(KEY)}" in scope.links
    assert "No key of this scope is held while it runs" in browser.get(f"/keys/{tilde(SCOPE)}?by=running").words
    sent = browser.get(f"/find?scope={tilde('x')}&key=a%20b")
    assert sent.headers["location"] == "/keys/x/a~20b"


def test_a_key_tells_who_has_it_and_who_waits(browser: Browser, books: Books) -> None:
    shown = browser.get(f"/keys/{tilde(SCOPE)}/{tilde(KEY)}")
    assert shown.status == 200
    assert f"/jobs/{books.holder}" in shown.links
    assert "Who waits 2" in shown.words
    places = [shown.text.index(f"/jobs/{jid}") for jid in books.line]
    assert places == sorted(places)
    free = browser.get(f"/keys/{tilde(SCOPE)}/nobody")
    assert "Nobody: it is free." in free.words
    assert "/do/" not in free.text


def test_a_key_is_taken_from_its_job_after_a_question(browser: Browser, books: Books) -> None:
    page = f"/keys/{tilde(SCOPE)}/{tilde(KEY)}"
    asked = browser.get(f"{page}/do/unlock-by-force")
    assert "another one with this key may run beside it" in asked.words
    stays = browser.act(f"{page}/do/unlock", f"{page}/do/unlock")
    assert stays.status == 409
    assert "its end gives the key back" in stays.words
    answer = browser.act(f"{page}/do/unlock-by-force", f"{page}/do/unlock-by-force")
    assert answer.status == 303
    assert answer.headers["location"].startswith(page + "?said=")
    held = browser.get(page)
    assert f"/jobs/{books.line[0]}" in held.links
    assert "Who waits 1" in held.words
    assert books.app.keys.find(SCOPE, KEY).jid == books.line[0]  # type: ignore[union-attr]


def test_what_is_blocked_says_by_what(browser: Browser, books: Books) -> None:
    shown = browser.get("/blocked")
    assert shown.status == 200
    assert "Blocked 3" in shown.words
    assert "What holds many" in shown.words
    assert f"/keys/{tilde(SCOPE)}/{tilde(KEY)}" in shown.links
    assert f"/jobs/{books.export}" in shown.links
    assert "No job is stuck" in browser.get("/blocked?show=stuck").words
    for query in ("after=x", "after=99999999999999999999", "show=%3Cb%3E"):
        assert browser.get(f"/blocked?{query}").status == 200


def test_a_blocked_job_is_let_go_or_cancelled(browser: Browser, books: Books) -> None:
    answer = browser.act(f"/blocked/{books.report}/do/release", f"/blocked/{books.report}/do/release")
    assert answer.status == 303
    assert "goes into its queue" in browser.get(answer.headers["location"]).words
    assert books.app.job_status(books.report).state == "enqueued"
    assert browser.act(f"/blocked/{books.line[1]}/do/cancel", f"/blocked/{books.line[1]}/do/cancel").status == 303
    assert books.app.blocked.size() == 1
    stays = browser.act(f"/blocked/{books.line[0]}/do/release", f"/blocked/{books.line[0]}/do/release")
    assert stays.status == 409
    assert "its end lets it go" in stays.words
    gone = browser.act(f"/blocked/{books.report}/do/cancel", f"/blocked/{books.report}/do/cancel")
    assert gone.status == 409
    assert "is not blocked any more" in gone.words


def test_a_job_says_why_it_does_not_run(browser: Browser, books: Books) -> None:
    words = browser.get(f"/jobs/{books.holder}").words
    assert "Why is it not running? No worker serves queue default, where it waits, number 1 →" in words
    assert "Queue default is not paused" in words
    assert "No worker serves queue default → henchman work -q default" in words
    books.app.queues["default"].pause("the provider is away", by="ana")
    words = browser.get(f"/jobs/{books.holder}").words
    assert re.search(r"Queue default is paused \(by ana, \d+ m?s ago: the provider is away\) → henchman", words), words
    books.app.queues["default"].unpause()
    books.app.connections.run(command("SADD", books.app.keys.paused, "default"))  # as a Ruby program does
    assert "Queue default is paused → henchman queues unpause default" in browser.get(f"/jobs/{books.holder}").words
    blocked = browser.get(f"/jobs/{books.line[0]}")
    assert f"It waits for job {books.holder}, which has the key" in blocked.words
    assert f"/keys/{tilde(SCOPE)}/{tilde(KEY)}" in blocked.links
    assert f"/blocked/{books.line[0]}/do/release" not in blocked.links
    waits = browser.get(f"/jobs/{books.report}")
    assert f"/blocked/{books.report}/do/release" in waits.links
    assert f"/jobs/{books.export}" in waits.links


def test_a_stuck_job_comes_first(app: App) -> None:
    @app.job(name="books.export", followed=True, retry=0)
    def export() -> None:
        raise OSError("disk full")

    @app.job(name="books.report")
    def report() -> None: ...

    @app.job(name="books.entry", key="account", unique="until_success", on_conflict="wait")
    def entry(account: str) -> None: ...

    browser = Browser(app.console())
    done = export.enqueue()
    waits = report.using(after=[done]).enqueue().jid
    with working(app):
        until(lambda: app.blocked.find(waits).is_stuck, "what it waits for is dead")  # type: ignore[union-attr]
    entry.enqueue("17")
    other = entry.enqueue("17").jid
    shown = browser.get("/blocked")
    assert shown.text.index(waits) < shown.text.index(other)
    assert "stuck" in shown.words
    stuck = browser.get("/blocked?show=stuck")
    assert waits in stuck.text
    assert other not in stuck.text
    assert f"retry it (henchman dead retry {done.jid})" in browser.get(f"/jobs/{waits}").words


def test_the_queries_behind_the_pages(books: Books) -> None:
    ask, keys = books.app.connections, books.app.keys
    assert [one.scope for one in run(ask, scope_states(keys, "BOOKS"))] == [SCOPE]
    assert run(ask, scope_states(keys, "", 0)) == []
    page = run(ask, keys_in(keys, SCOPE, "", 0))
    assert (page.phase, page.cursor, page.counts["until_success"]) == ("until_success", 0, 1)
    assert [(one.key, one.jid, one.waiting) for one in page.keys] == [(KEY, books.holder, 2)]
    look = run(ask, key_look(keys, SCOPE, KEY, ONCE_FOR))
    assert [one.jid for one in look.line] == books.line
    assert all(one.for_key and one.entry is not None for one in look.line)
    assert look.waiting == 2
    some = run(ask, blocked_slice(keys, 0))
    assert {one.jid for one in some.jobs} == {*books.line, books.report}
    assert (some.cursor, some.looked) == (0, 3)
    assert re.fullmatch(r"[0-9a-f]{24}", books.report)


def test_who_waits_for_a_key_while_no_worker_lives_is_a_finding(browser: Browser, books: Books, redis: Redis) -> None:
    redis.delete("queue:default")  # the job that has the key is gone
    found = browser.get("/").words
    assert "2 jobs wait for a key, and no worker is alive to look after it." in found
    assert f"by job {books.holder}, which has the key" in found
    assert "is the job that has the key gone? henchman doctor --forget" in found
    with working(books.app):
        until(
            lambda: "All is well." in browser.get("/").words or "look after it" not in browser.get("/").words, "alive"
        )
