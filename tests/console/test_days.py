"""What ended on each day: pages, JSON and files; out of history, and as the server keeps it."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App, Failure
from henchman.console import files
from henchman.inspector import audit
from henchman.store import days
from henchman.store.call import commands, run
from henchman.wire import times
from support.browsing import XSS, Browser, Shown
from support.worker import jobs_in, until, working

FORMULA = '=HYPERLINK("http://evil","pay")'


def define(app: App) -> Any:
    @app.job(name="shop.pay", retry=0, track=True)
    def pay(what: str, times: int = 1) -> None:
        if what == "no":
            raise Failure("not enough")
        if what != "ok":
            raise OSError(what)

    return pay


@pytest.fixture
def recorded(redis_url: str, tmp_path: Path) -> Iterator[App]:
    """Three finished, one failed, two gave up: history has it, and the server."""
    app = App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path}/history.db", heartbeat=0.1)
    app.open_history().upgrade()
    pay = define(app)
    handles = [pay.enqueue(what) for what in ("ok", "ok", "ok", "no", FORMULA, XSS)]
    with working(app):
        reading, day = app.open_history().reading, times.day(app.clock.now())
        until(lambda: sum(reading.day(day).counts.get("shop.pay", {}).values()) == len(handles), "all is recorded")
        until(lambda: app.connections.run(days.ends_of(app.keys, day)).counts.total() == 6, "all is counted")
    yield app
    app.close()


def today(app: App) -> str:
    return times.day(app.clock.now())


def rows(shown: Shown) -> list[dict[str, str]]:
    assert (shown.status, shown.headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert shown.headers["content-disposition"].startswith("attachment; filename=")
    return list(csv.DictReader(io.StringIO(shown.body.decode("utf-8-sig"), newline="")))


@pytest.mark.parametrize("source", ["history", "server"])
def test_a_day_is_told_by_history_and_by_the_server(recorded: App, source: str) -> None:
    browser, day = Browser(recorded.console()), today(recorded)
    shown = browser.get(f"/days?source={source}")
    assert f"{day} 6 3 1 2 – –" in shown.words
    assert ("Out of history" in shown.words) == (source == "history")
    assert ("As the server keeps it" in shown.words) == (source == "server")
    [dead] = [link for link in shown.links if "status=error" in link]
    assert f"/days/{day}" in dead, "a count opens its list"
    listed = browser.get(dead)
    assert "shop.pay – – 2 – –" in listed.words
    assert listed.text.count('<tr id="j-') == 2
    assert "OSError" in listed.words
    assert XSS not in listed.text
    assert "what the filter asks for" in browser.get(f"/days/{day}?status=expired&source={source}").words
    assert "shop.pay 3 1 2 – –" in browser.get(f"/days/{day}?job=shop.pay&source={source}").words
    assert browser.get(f"/days/{day}?job=shop.other&source={source}").text.count('<tr id="j-') == 0


def test_history_is_asked_first_and_the_server_when_it_does_not_answer(recorded: App, monkeypatch: Any) -> None:
    browser, day = Browser(recorded.console()), today(recorded)
    assert "Out of history" in browser.get("/days").words
    assert "Out of history" in browser.get(f"/days/{day}").words
    database = recorded.open_history().database
    database.close()
    Path(database.file).unlink()
    recorded.open_history()._fits = False
    recorded.open_history().reading._fits = False
    for page in ("/days", f"/days/{day}"):
        shown = Browser(recorded.console()).get(page)
        assert "History was not read" in shown.words
        assert "As the server keeps it" in shown.words
        assert shown.status == 200


def test_the_pages_lead_there_and_say_where_there_is_nothing(browser: Browser) -> None:
    for page in ("/history", "/dead"):
        assert "/days" in browser.get(page).links
    assert "Nothing that is known has ended in the last 180 days" in browser.get("/days").words
    assert "Nothing that is known ended on this day" in browser.get("/days/2026-11-21").words
    assert "as history has it" not in browser.get("/days").words, "there is none to choose"
    assert browser.get("/days/yesterday").status == 404
    assert "is no day: write it as in 2026-11-21" in browser.get("/days/yesterday").words
    assert browser.get("/days?p=7").status == 200


def test_the_server_says_what_it_does_not_remember(shop: App, browser: Browser) -> None:
    ends = days.DayEnds()
    ends.counts.update({(f"c{number}", "done"): 1 + number for number in range(50)})
    shop.connections.run(commands(*days.add(shop.keys, {"2026-11-21": ends})))
    shown = browser.get("/days/2026-11-21")
    assert "1,275 ended" in shown.words
    assert "And 30 more, of which fewer ended." in shown.words
    assert "None of these is kept by name" in shown.words
    assert browser.get("/api/v1/days/2026-11-21").status == 200


def test_programs_read_the_same(recorded: App) -> None:
    browser, day = Browser(recorded.console()), today(recorded)

    def ask(path: str) -> Any:
        shown = browser.get(f"/api/v1/{path}")
        return json.loads(shown.text) if shown.status == 200 else shown.status

    expected = {"finished": 3, "failed": 1, "error": 2}
    for source in ("history", "server"):
        assert ask(f"days?source={source}") == {
            "source": source,
            "problem": None,
            "items": [{"day": day, "counts": expected}],
        }
        told = ask(f"days/{day}?source={source}&ended=error&limit=1")
        assert (told["day"], told["counts"], told["total"]) == (day, {"shop.pay": {"error": 2}}, 2)
        assert [one["class"] for one in told["items"]] == ["shop.pay"]
        rest = ask(f"days/{day}?source={source}&ended=error&limit=1&cursor={told['next']}")
        assert rest["next"] is None
        assert {one["message"] for one in told["items"] + rest["items"]} == {FORMULA, XSS}
        assert ask(f"days/{day}?job=other&source={source}")["items"] == []
    assert ask("days/yesterday") == 404
    assert ask("days?source=moon") == 400
    assert ask(f"days/{day}?ended=working") == 400


@pytest.mark.parametrize("source", ["history", "server"])
def test_the_file_of_a_day_has_what_its_filter_shows(recorded: App, source: str) -> None:
    browser, day = Browser(recorded.console()), today(recorded)
    [link] = [one for one in browser.get(f"/days/{day}?status=error&source={source}").links if "jobs.csv" in one]
    found = rows(browser.get(link))
    assert {one["message"] for one in found} == {f"'{FORMULA}", XSS}, "no spreadsheet takes it for a formula"
    assert {one["status"] for one in found} == {"error"}
    assert all(one["ended (UTC)"].startswith(day) for one in found)
    assert browser.get(f"/days/{day}/other.csv").status == 404
    assert browser.get("/days/yesterday/jobs.csv").status == 404


def test_who_takes_a_file_away_stands_in_the_audit(recorded: App) -> None:
    browser, day = Browser(recorded.console()), today(recorded)
    size = len(browser.get("/history/jobs.csv?q=status:error").body)
    assert browser.get(f"/days/{day}/jobs.csv?status=error").status == 200
    assert browser.get("/history/other.csv").status == 404
    assert "there is no status" in browser.get("/history/jobs.csv?q=status:nope").words
    day_line, history_line = run(recorded.connections, audit.audited(recorded.keys, "export", 0, 9)).entries
    assert (day_line.page, day_line.names, day_line.outcome) == ("days", [day, "jobs.csv", "status=error"], "done")
    assert (history_line.page, history_line.names) == ("history", ["jobs.csv", "q=status:error"])
    assert (history_line.outcome, history_line.said) == ("done", f"{size:,} bytes")
    assert f"/days/{day}" in browser.get("/audit?q=export").links
    assert "/history" in browser.get("/audit?q=export").links


def test_a_file_that_is_left_is_said_to_be(recorded: App) -> None:
    reading, _ = (
        files.taken(files.file_of("x.csv", iter([b"a" * 1500, b"b"])), recorded, who, ["dead", "jobs.csv"], {})
        for who in ("ana", "bo")
    )
    assert next(reading) == b"a" * 1500
    next(reading)
    reading.close()
    found = run(recorded.connections, audit.audited(recorded.keys, "export", 0, 9)).entries
    left, begun = sorted(found, key=lambda one: one.who)
    assert (left.who, left.outcome, left.said) == ("ana", "refused", "left after 1,500 bytes")
    assert (begun.who, begun.outcome) == ("bo", "begun"), "nothing is known of its end"


def test_a_file_of_a_day_is_read_bit_by_bit(recorded: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where many ended at the same moment."""
    from henchman.history import reading

    monkeypatch.setattr(reading, "_STEP", 2)
    history = recorded.open_history()
    with history.database.writing() as connection:
        connection.exec_driver_sql("update henchman_events set ended_at = (select max(ended_at) from henchman_events)")
    found = rows(Browser(recorded.console()).get(f"/days/{today(recorded)}/jobs.csv"))
    assert len({one["job id"] for one in found}) == len(found) == 6
    monkeypatch.setattr(files, "_MOST", 3)
    assert len(rows(Browser(recorded.console()).get(f"/days/{today(recorded)}/jobs.csv"))) == 3


def test_the_file_of_history_has_what_the_search_finds(recorded: App, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(recorded.console())
    monkeypatch.setattr(files, "_STEP", 2)
    assert len(rows(browser.get("/history/jobs.csv"))) == 6
    [link] = [one for one in browser.get("/history?q=status:error").links if "jobs.csv" in one]
    found = rows(browser.get(link))
    assert [json.loads(one["arguments"]) for one in found] == [[XSS], [FORMULA]]
    assert rows(browser.get("/history/jobs.csv?q=nothing-like-it")) == []
    monkeypatch.setattr(files, "_MOST", 4)
    assert len(rows(browser.get("/history/jobs.csv"))) == 4
    assert "there is no status" in browser.get("/history/jobs.csv?q=status:nope").words
    assert browser.get("/history/jobs.csv?q=status:nope").status == 404
    assert browser.get("/history/other.csv").status == 404


def documents(shown: Shown) -> list[dict[str, Any]]:
    assert (shown.status, shown.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in shown.body.splitlines()]


def test_programs_take_lines_of_json(recorded: App, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    redis.zadd("dead", {json.dumps({"class": "x", "jid": "d1", "args": [2**63, "\u202e"]}): 5.0, "no json": 4.0})
    browser = Browser(recorded.console())
    monkeypatch.setattr(files, "_STEP", 2)
    [link] = [
        one for one in browser.get("/history?q=status:error").links if one.endswith("jobs.ndjson?q=status%3Aerror")
    ]
    found = documents(browser.get(link))
    assert [(one["class"], one["status"], one["args"]) for one in found] == [
        ("shop.pay", "error", [XSS]),
        ("shop.pay", "error", [FORMULA]),
    ]
    assert len(documents(browser.get("/history/jobs.ndjson"))) == 6
    assert documents(browser.get("/history/jobs.ndjson?q=nothing-like-it")) == []
    day = documents(browser.get(f"/days/{today(recorded)}/jobs.ndjson?status=error"))
    assert sorted(one["args"] for one in day) == sorted([[XSS], [FORMULA]])
    dead = documents(browser.get("/dead/jobs.ndjson"))
    assert len(dead) == 4
    assert [one["args"] for one in dead if one["jid"] == "d1"] == [[2**63, "\u202e"]]
    assert [one["payload"] for one in dead if one["problem"]] == ["no json"]
    assert "jobs.csv, jobs.ndjson" in browser.get("/dead/jobs.xml").words
    [last, *_] = run(recorded.connections, audit.audited(recorded.keys, "export", 0, 9)).entries
    assert (last.page, last.names) == ("dead", ["jobs.ndjson"])


def test_without_history_there_is_no_file_of_it(browser: Browser) -> None:
    assert browser.get("/history/jobs.csv").status == 404


@pytest.mark.parametrize(("page", "key"), [("retries", "retry"), ("scheduled", "schedule"), ("dead", "dead")])
def test_the_file_of_a_set_has_what_its_filter_finds(
    app: App, redis: Redis, page: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_STEP", 7)
    now = time.time()
    for number in range(20):
        job = {"class": "shop.pay" if number % 2 else "shop.mail", "queue": "q", "jid": f"j{number:02}", "retry": 5}
        job |= {"args": [f"{number}"], "error_class": "E", "error_message": f"=1+{number}", "retry_count": 2}
        redis.zadd(key, {json.dumps(job): now + 60 + number})
    redis.zadd(key, {"no json": now})
    browser = Browser(app.console())
    [link] = [one for one in browser.get(f"/{page}?q=class:shop.pay").links if "jobs.csv" in one]
    found = rows(browser.get(link))
    order = sorted(found, key=lambda one: one["job id"], reverse=page == "dead")
    assert found == order
    assert [one["job id"] for one in order[:: -1 if page == "dead" else 1]] == [f"j{n:02}" for n in range(1, 20, 2)]
    assert {one["class"] for one in found} == {"shop.pay"}
    assert (found[0]["error message"][:3], found[0]["runs"]) == ("'=1", "3")
    assert len(rows(browser.get(f"/{page}/jobs.csv"))) == 21, "also what cannot be read"
    monkeypatch.setattr(files, "_MOST", 9)
    assert len(rows(browser.get(f"/{page}/jobs.csv"))) == 9
    assert browser.get(f"/{page}/x.csv").status == 404


def test_a_file_shows_no_secret(shop: App, browser: Browser, redis: Redis) -> None:
    job = {"class": "shop.mail", "queue": "mail", "jid": "s1", "args": [1, "4111-1111"]}
    redis.zadd("dead", {json.dumps(job): time.time()})
    shown = browser.get("/dead/jobs.csv?q=shop.mail")
    assert '[1, ""***""]' in shown.text
    assert "4111" not in shown.text


def test_a_job_of_history_runs_again_as_a_new_one(recorded: App, redis: Redis) -> None:
    """From its page, with the arguments that are recorded."""
    browser = Browser(recorded.console())
    [event] = recorded.open_history().reading.day(today(recorded), status="failed").events
    form = f"/jobs/{event.jid}/do/again"
    assert form in browser.get(f"/jobs/{event.jid}").links
    assert "&#34;no&#34;" in browser.get(form).text
    fields = {"token": browser.token("/dead"), "back": "one", "args": '["ok", 2]', "kwargs": "{}", "old": "keep"}
    assert "can only stay" in browser.post(form, fields | {"old": "remove"}).words
    assert browser.post(form, fields).status == 303
    [new] = jobs_in(redis, "queue:default")
    assert (new["class"], new["args"]) == ("shop.pay", ["ok", 2])
    assert new["jid"] != event.jid
    assert f"/jobs/{new['jid']}" in browser.get(f"/jobs/{event.jid}").links


def test_why_a_job_of_history_cannot_run_again(recorded: App, redis_url: str, redis: Redis) -> None:
    @recorded.job(name="shop.card", track=True, secret=("card",))
    def card(order: int, card: str) -> None: ...

    handle = card.enqueue(1, "4111")
    with working(recorded):
        until(lambda: recorded.open_history().reading.job(handle.jid) is not None, "it is recorded")
        until(lambda: handle.status().state == "finished", "it has ended")
    page = f"/jobs/{handle.jid}"
    assert "some of its arguments are secret" in Browser(recorded.console()).get(page).words
    [event] = recorded.open_history().reading.day(today(recorded), status="failed").events
    stranger = App(redis_url=redis_url, database_url=recorded.config.database_url)
    shown = Browser(stranger.console()).get(f"/jobs/{event.jid}")
    assert f"/jobs/{event.jid}/do/again" not in shown.links
    assert "this console does not know shop.pay" in shown.words
    stranger.close()
    assert redis.llen("queue:default") == 0
