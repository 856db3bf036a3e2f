"""The page of a worker process: what it runs and holds, its memory, its stacks; and processes that are gone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from henchman import App
from henchman.console.graph import SlotRun, slots
from henchman.console.processes import memory_line
from henchman.console.render import tilde
from henchman.inspector.processes import look_at_process
from henchman.store.call import command, run
from support.browsing import XSS, Browser
from support.worker import until, working


class Shop(NamedTuple):
    """An app one of whose jobs runs, the identity of its worker, and what lets the job end."""

    app: App
    identity: str
    jid: str
    ends: threading.Event


@pytest.fixture
def busy(redis_url: str) -> Iterator[Shop]:
    app, ends = App(redis_url=redis_url, queues=["mail"], concurrency=2, heartbeat=0.2), threading.Event()

    @app.job(name="shop.watch", queue="mail", secret=("card",))
    def watch(text: str, card: str) -> None:
        ends.wait(60)

    with working(app) as launcher:
        jid = watch.enqueue(XSS, "4111-1111").jid
        until(lambda: run(app.connections, look(app, launcher.session.identity)).work, "its record tells that it runs")
        yield Shop(app, launcher.session.identity, jid, ends)
        ends.set()


def look(app: App, identity: str) -> Any:
    return look_at_process(app.keys, identity)


def test_the_page_tells_what_runs_where_and_what_is_in_flight(busy: Shop) -> None:
    browser = Browser(busy.app.console())
    page = f"/processes/{tilde(busy.identity)}"
    assert page in browser.get("/busy").links, "the list of processes leads there"
    shown = browser.get(page)
    assert shown.status == 200
    assert "1 of 2" in shown.words
    assert "Henchman 0" in shown.words
    assert "Python 3." in shown.words
    assert "s left" in shown.words, "its lease"
    assert "mail 1" in shown.words.partition("fetched and not settled")[2], "its list in flight"
    assert "<script>" not in shown.text.partition("<main")[2]
    assert "4111-1111" not in shown.text
    assert any(link.startswith(f"/jobs/{busy.jid}") for link in shown.links)


def test_its_stacks_stand_on_the_page_when_it_was_asked(busy: Shop) -> None:
    browser = Browser(busy.app.console())
    page = f"/processes/{tilde(busy.identity)}"
    assert "Nobody asked in the last 15 minutes." in browser.get(page).words
    sent = browser.act(page, f"{page}/do/dump")
    assert sent.status == 303
    assert sent.headers["location"].startswith(page)
    until(lambda: "ends.wait(60)" in browser.get(page).text or "in watch" in browser.get(page).text, "the stacks came")
    assert f"runs shop.watch {busy.jid} from mail" in browser.get(page).words
    assert 0 < busy.app.connections.run(command("TTL", busy.app.keys.stacks(busy.identity))) <= 900
    [entry] = json.loads(browser.get("/api/v1/audit").text)["items"]
    assert (entry["act"], entry["page"]) == ("dump", "processes")


def test_a_process_is_told_to_take_no_more(busy: Shop) -> None:
    browser = Browser(busy.app.console())
    page = f"/processes/{tilde(busy.identity)}"
    assert browser.act(page, f"{page}/do/quiet").status == 303
    until(lambda: "quiet" in browser.get(page).words.partition("Stacks")[0].lower(), "its record says so")


def test_whoever_only_looks_finds_no_buttons(busy: Shop) -> None:
    browser = Browser(busy.app.console(read_only=True))
    page = f"/processes/{tilde(busy.identity)}"
    assert f"{page}/do/stop" not in browser.get(page).links
    assert '<form method="post"' not in browser.get(page).text


@pytest.mark.parametrize("name", ["nobody:1:00", "../../etc", XSS, "queues", "retry", "hm:batches", "x" * 900])
def test_what_is_no_process_is_not_found(browser: Browser, name: str) -> None:
    shown = browser.get(f"/processes/{tilde(name)}")
    assert shown.status == 404
    assert XSS not in shown.text


def test_a_process_that_is_lost_shows_what_it_still_holds(app: App) -> None:
    run, keys, gone = app.connections.run, app.keys, "host-3:412:00ff"
    run(command("SADD", keys.lists_of(gone), keys.in_flight(gone, 2, "pay:now"), keys.in_flight(gone, 3, "pay:now")))
    run(command("LPUSH", keys.in_flight(gone, 2, "pay:now"), "{}", "{}"))
    run(command("LPUSH", keys.in_flight(gone, 3, "pay:now"), "{}"))
    browser = Browser(app.console())
    words = browser.get(f"/processes/{tilde(gone)}").words
    assert "lost" in words
    assert "run out" in words
    assert "pay:now 3" in words
    run(command("SET", keys.tomb(gone), "1"))
    assert "It was declared dead" in browser.get(f"/processes/{tilde(gone)}").words


def test_a_line_of_memory_keeps_small_changes_small() -> None:
    assert memory_line([40_000]) is None
    line = memory_line([40_000, 44_000, 42_000])
    assert line is not None
    assert (line.least, line.most, line.last, line.minutes) == (40_000, 44_000, 42_000, 2)
    assert len(line.points.split()) == 3
    flat = memory_line([0, 0])
    assert flat is not None
    assert "nan" not in flat.points


def run_of(name: str, started: float, ended: float | None) -> SlotRun:
    return SlotRun(name, "shop.watch", "working" if ended is None else "finished", started, ended)


def test_runs_that_were_at_once_stand_below_each_other() -> None:
    assert slots([], 0.0, 100.0) is None
    drawn = slots([run_of("c", 50, None), run_of("a", 0, 40), run_of("b", 20, 60), run_of("d", 70, 90)], 0.0, 100.0)
    assert drawn is not None
    assert [(bar.run.jid, bar.x, bar.y, bar.width) for bar in drawn.bars] == [
        ("a", 0.0, 0, 376.0),
        ("b", 188.0, 16, 376.0),
        ("c", 470.0, 0, 470.0),
        ("d", 658.0, 16, 188.0),
    ]
    assert (drawn.height, drawn.left, drawn.bars[2].took) == (32, 0, "runs for 50 s")
    early = slots([run_of("e", -50, 50), run_of("f", 60, 10)], 0.0, 100.0)
    assert early is not None
    assert [(bar.x, bar.width, bar.took) for bar in early.bars] == [
        (0.0, 470.0, "took 1 min 40 s"),
        (564.0, 2.0, "took 0 ms"),
    ]
    many = slots([run_of(str(n), 0, None) for n in range(40)], 0.0, 100.0)
    assert many is not None
    assert (len(many.bars), many.left) == (25, 15)


def test_what_it_ran_lately_is_drawn(redis_url: str, tmp_path: Path) -> None:
    app, ends = (
        App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path}/history.db", heartbeat=0.2),
        threading.Event(),
    )
    app.open_history().upgrade()

    @app.job(name="shop.<watch>", track=True, retry=0)
    def watch(what: str) -> None:
        if what == "fail":
            raise ValueError
        if what == "wait":
            ends.wait(60)

    with working(app) as launcher:
        for what in ("end", "fail", "wait"):
            watch.enqueue(what)
        browser, page = Browser(app.console()), f"/processes/{tilde(launcher.session.identity)}"

        def drawn() -> list[str]:
            part = browser.get(page).text.partition('class="card lately"')[2].partition("</svg>")[0]
            return sorted(re.findall('<rect class="([a-z]+)"', part))

        until(lambda: drawn() == ["error", "finished", "working"], "all three are there")
        assert "shop.<watch>" not in browser.get(page).text
        ends.set()
        until(lambda: drawn() == ["error", "finished", "finished"], "the last has ended")
    assert "Lately" not in Browser(App(redis_url=redis_url).console()).get(page).words, "there is no history"
    app.close()
