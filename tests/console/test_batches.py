"""Pages of batches: what they say with history and without it, their acts and their files."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from henchman import App, Failure, current_job
from henchman.console.graph import waterfall
from henchman.history.records import Event
from henchman.store.call import command
from support.browsing import Browser
from support.worker import until, working

LONG = "every product <b>of</b> the spring \u202e " + "and of the summer " * 12


class Shop:
    """An app with a batch of which four jobs finished, one failed and one gave up, and one that waits."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.prices: list[float] = []
        self.broken = True

        @app.job(name="shop.create", retry=0)
        def create(sku: str, price: float) -> dict[str, Any]:
            if price == 0:
                raise Failure("price 0 is not above zero")
            if price == 13 and self.broken:
                raise RuntimeError("<i>no catalogue</i>")
            self.prices.append(price)
            return {"sku": sku, "price": price}

        self.create = create
        with app.batch("Import <products>", tags=["spring"], results=True) as done:
            create.enqueue_many([(f"sku-{n}", price) for n, price in enumerate((1.0, 2.0, 3.0, 4.0, 0.0, 13.0))])
        self.done = done.id
        with working(app):
            until(lambda: app.batch_status(self.done).state == "complete", "the batch is complete")
        self.waiting = app.batch(LONG).open()
        create.using(batch=self.waiting, queue="elsewhere").enqueue("sku-9", 9.0)


@pytest.fixture
def plain(app: App) -> Shop:
    """Without history."""
    return Shop(app)


@pytest.fixture
def recorded(redis_url: str, tmp_path: Path) -> Iterator[Shop]:
    """With history."""
    app = App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path}/history.db")
    app.open_history().upgrade()
    yield Shop(app)
    app.close()


def test_all_batches_stand_there_the_newest_first(plain: Shop) -> None:
    browser = Browser(plain.app.console())
    shown = browser.get("/batches")
    assert shown.status == 200
    assert "Batches 2" in shown.words
    assert shown.words.index("every product") < shown.words.index("Import <products>")
    assert "complete, with failures" in shown.words
    assert "2 failed" in shown.words
    assert "<b>of</b>" not in shown.text
    assert "\u202e" not in shown.text
    assert f"/batches/{plain.done}" in shown.links


@pytest.mark.parametrize(
    ("query", "fitting"),
    [
        ("q=IMPORT", ["done"]),
        ("q=spring", ["waiting", "done"]),
        ("show=open", ["waiting"]),
        ("show=bad", ["done"]),
        ("show=steps", []),
        ("q=import&show=open", []),
        ("show=%3Cx%3E", ["waiting", "done"]),
        ("p=2", []),
    ],
)
def test_batches_are_looked_for(plain: Shop, query: str, fitting: list[str]) -> None:
    ids = {plain.done: "done", plain.waiting.id: "waiting"}
    shown = Browser(plain.app.console()).get(f"/batches?{query}")
    found = dict.fromkeys(re.findall(r"/batches/([0-9a-f]{32})", shown.text))
    assert [ids[one] for one in found] == fitting
    assert shown.status == 200
    plain.waiting.close()


def test_the_pages_of_many_batches_keep_what_was_looked_for(app: App) -> None:
    for n in range(27):
        with app.batch(f"spring {n}"):
            pass
    browser = Browser(app.console())
    first = browser.get("/batches?q=spring")
    assert "1–25 of 27 batches" in first.words
    assert "/batches?q=spring&p=2" in first.links
    assert "26–27 of 27 batches" in browser.get("/batches?q=spring&p=2").words


def test_a_batch_without_history_shows_counts_reasons_and_what_the_server_has(plain: Shop) -> None:
    browser = Browser(plain.app.console())
    words = browser.get(f"/batches/{plain.done}").words
    assert "100 % 6 of 6 jobs have ended" in words
    assert "finished 4" in words
    assert "price 0 is not above zero" in words
    assert "RuntimeError <i>no catalogue</i>" in words
    assert "history is off: set database_url" in words
    open_one = browser.get(f"/batches/{plain.waiting.id}")
    assert "0.0 % 0 of 1 jobs have ended" in open_one.words
    assert "Not ended some of 1" in open_one.words
    assert "enqueued" in open_one.words


def test_a_batch_with_history_lists_every_job_by_status_and_page(recorded: Shop) -> None:
    browser = Browser(recorded.app.console())
    page = f"/batches/{recorded.done}"
    with working(recorded.app):
        until(lambda: len(re.findall(r'id="e-', browser.get(page).text)) == 6, "all are recorded")
        until(lambda: "shop.create" in browser.get(f"{page}?status=error").words, "the last end is recorded")
    shown = browser.get(f"{page}?n=4")
    assert len(re.findall(r'id="e-', shown.text)) == 4
    older = next(link for link in shown.links if "after=" in link)
    assert len(re.findall(r'id="e-', browser.get(older.partition("#")[0].replace("after", "n=4&after")).text)) == 2
    failed = browser.get(f"{page}?status=failed").words
    assert "Failure price 0 is not above zero" in failed
    assert "sku-1" not in failed
    assert browser.get(f"{page}?after=x&status=nope").status == 200


def test_its_files_can_be_kept(recorded: Shop) -> None:
    browser = Browser(recorded.app.console())
    page = f"/batches/{recorded.done}"
    with working(recorded.app):
        until(lambda: browser.get(f"{page}/events.csv").text.count("shop.create") == 6, "all are recorded")
    events = browser.get(f"{page}/events.csv?status=failed")
    assert events.headers["content-type"] == "text/csv; charset=utf-8"
    assert f'filename="{recorded.done}-events.csv"' in events.headers["content-disposition"]
    assert events.text.count("\n") == 2
    assert "price 0 is not above zero" in events.text
    lines = [msgspec.json.decode(line) for line in browser.get(f"{page}/events.ndjson?status=failed").body.splitlines()]
    assert lines
    assert {(one["batch"], one["status"]) for one in lines} == {(recorded.done, "failed")}
    results = browser.get(f"{page}/results.csv")
    assert results.text.count("\n") == 7
    assert "sku-3" in results.text
    assert browser.get(f"{page}/passwd").status == 404
    assert browser.get(f"/batches/{recorded.waiting.id}/results.csv").status == 404


def test_files_that_cannot_be_say_why(plain: Shop) -> None:
    shown = Browser(plain.app.console()).get(f"/batches/{plain.done}/events.csv")
    assert shown.status == 404
    assert "history is off" in shown.words


def test_what_gave_up_is_pushed_once_more(plain: Shop) -> None:
    browser = Browser(plain.app.console())
    page = f"/batches/{plain.done}"
    plain.broken = False
    assert f'href="{page}/do/retry"' in browser.get(page).text, "it is asked first"
    assert "1 job of it gave up." in browser.get(f"{page}/do/retry").words
    answer = browser.act(f"{page}/do/retry", f"{page}/do/retry")
    assert answer.status == 303
    done = answer.headers["location"].partition("?")[0]
    assert "has begun" in browser.get(answer.headers["location"]).words
    until(lambda: "1 job put into their queues" in browser.get(done).words, "the operation has ended")
    with working(plain.app):
        until(lambda: plain.app.batch_status(plain.done).counts["finished"] == 5, "it finished")
    assert 13 in plain.prices
    assert "do/retry" not in browser.get(page).text
    again = browser.get(f"{page}/do/retry")
    assert (again.status, "nothing is to be pushed again" in again.words) == (409, True)


def test_a_batch_is_closed_and_cancelled_after_a_question(plain: Shop) -> None:
    browser = Browser(plain.app.console())
    page = f"/batches/{plain.waiting.id}"
    asked = browser.get(f"{page}/do/cancel")
    assert "No job of it starts any more" in asked.words
    answer = browser.act(f"{page}/do/cancel", f"{page}/do/cancel")
    assert answer.status == 303
    done = answer.headers["location"].partition("?")[0]
    until(lambda: "done" in browser.get(done).words, "the operation has ended")
    assert plain.app.batch_status(plain.waiting.id).why == "cancelled"
    late = browser.post("/batches/0123/do/retry", {"token": browser.token(f"/batches/{plain.done}/do/retry")})
    assert late.status == 409
    assert "there is no batch" in late.words


def test_a_batch_that_the_server_forgot_is_shown_as_recorded(recorded: Shop) -> None:
    browser = Browser(recorded.app.console())
    page, app = f"/batches/{recorded.done}", recorded.app
    with working(app):
        until(lambda: (found := app.open_history().reading.batch(recorded.done)) and found.completed, "it is recorded")
    keys = [app.keys.batch(recorded.done) + one for one in ("", ":dead", ":reasons", ":rows", ":results")]
    app.connections.run(command("DEL", *keys))
    shown = browser.get(page)
    assert shown.status == 200
    assert "The server has forgotten it" in shown.words
    assert "Import <products>" in shown.words
    assert "/do/" not in shown.text.replace("/logout", "")
    assert browser.get("/batches/" + "0" * 32).status == 404


def test_a_batch_that_there_is_not_is_said(plain: Shop) -> None:
    browser = Browser(plain.app.console())
    for name in ("0" * 32, "~0A", "x" * 200):
        shown = browser.get(f"/batches/{name}")
        assert shown.status == 404, name
    assert "there is no batch" in browser.get("/batches/" + "0" * 32).words


def test_whoever_looks_sees_no_act(plain: Shop) -> None:
    browser = Browser(plain.app.console(read_only=True))
    assert "/do/" not in browser.get(f"/batches/{plain.done}").text


def test_the_waterfall_shows_how_long_each_job_waited_and_ran(recorded: Shop) -> None:
    browser = Browser(recorded.app.console())
    page = f"/batches/{recorded.done}"
    with working(recorded.app):  # its recorder
        until(lambda: f"{page}?view=waterfall#jobs" in browser.get(page).links, "its jobs are recorded")
        until(lambda: browser.get(f"{page}?view=waterfall").text.count('class="waited"') == 6, "all six have a bar")
        ran = r"shop\.create \S+: finished; waited [^;]+ ran "
        until(lambda: re.search(ran, browser.get(f"{page}?view=waterfall").text), "its ends are recorded, too")
        shown = browser.get(f"{page}?view=waterfall")
        assert len([link for link in shown.links if link.startswith("/jobs/")]) == 6
        failed = browser.get(f"{page}?view=waterfall&status=failed")
        assert failed.text.partition('class="waterfall"')[2].count('<rect class="failed"') == 1
        assert "No failed" not in failed.words
        assert '<svg viewBox="0 0 960' not in browser.get(f"{page}?view=<script>").text


def test_what_running_jobs_say_stands_on_the_page_the_newest_first(redis_url: str, tmp_path: Path) -> None:
    app = App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path}/history.db", heartbeat=0.2)
    app.open_history().upgrade()
    ends = threading.Event()

    @app.job(name="shop.chatty")
    def chatty() -> None:
        for n in range(3):
            current_job().log(f"page {n} <b>bold</b> \u202e")
        current_job().progress(3, 10)
        ends.wait(60)

    with app.batch("talks") as batch:
        job = chatty.enqueue()
    browser = Browser(app.console())
    with working(app):
        until(lambda: "3 of 10" in browser.get(f"/batches/{batch.id}").words, "progress and messages were recorded")
        until(lambda: "page 2" in browser.get(f"/batches/{batch.id}").words, "its messages, too")
        shown = browser.get(f"/batches/{batch.id}")
        assert shown.words.index("page 2") < shown.words.index("page 1") < shown.words.index("page 0")
        assert "<b>bold</b>" not in shown.text
        assert "\u202e" not in shown.text
        own = browser.get(f"/jobs/{job.jid}")
        assert own.words.index("3 of 10") < own.words.index("page 2") < own.words.index("page 1")
        assert "<b>bold</b>" not in own.text
        assert f"/batches/{batch.id}" in own.links
        busy = until(lambda: (seen := browser.get("/busy")).words.count("3 of 10") and seen, "Busy tells how far it is")
        assert any(f"jobs/{job.jid}/do/cancel" in link for link in busy.links)
        ends.set()
        until(lambda: "What its jobs say" not in browser.get(f"/batches/{batch.id}").words, "it has ended")
        until(lambda: "What it said" in browser.get(f"/jobs/{job.jid}").words, "history has its end, too")


def event(
    jid: str, status: str, enqueued: float | None, started: float | None, ended: float | None, runs: int = 1
) -> Any:
    facts = {"jid": jid, "class": "shop.create", "queue": "q", "status": status, "attempts": runs}
    facts |= {"enqueued_at": enqueued, "started_at": started, "ended_at": ended, "seq": 1, "changed": 1, "tags": []}
    blank = ("batch", "args", "kwargs", "result", "error_class", "message", "progress_done", "progress_total")
    return msgspec.convert(facts | dict.fromkeys((*blank, "process", "host")) | {"traceback": []}, Event)


def test_the_bars_of_a_waterfall() -> None:
    assert waterfall([], 100.0) is None
    assert waterfall([event("a", "enqueued", None, None, None)], 100.0) is None
    made = waterfall([event("a", "finished", 0.0, 50.0, 100.0), event("b", "working", 0.0, 75.0, None, runs=2)], 100.0)
    assert made is not None
    first, second = made.lanes
    assert (first.waited, first.ran, first.text) == ((240.0, 350.0), (590.0, 350.0), "waited 50 s, ran 50 s")
    assert (second.ran, second.text) == ((765.0, 175.0), "waited 1 min 15 s, runs for 25 s, 2 runs")
    assert [text for _, text in made.ticks] == ["0", "25 s", "50 s", "1 min 15 s", "1 min 40 s"]
    many = waterfall([event(str(n), "finished", 5.0, 5.0, 5.0) for n in range(900)], 5.0)
    assert many is not None
    assert len(many.lanes) == 50
    back = waterfall([event("a", "finished", 10.0, 5.0, 1.0)], 0.0)  # clocks that do not agree
    assert back is not None
    assert all(wide > 0 for _, wide in filter(None, (back.lanes[0].waited, back.lanes[0].ran)))
