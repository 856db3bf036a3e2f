"""The demo: its file, its parts one by one, and the whole of it as a person runs it."""

from __future__ import annotations

import csv
import html
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from henchman.batch.batch import FINAL, LIVE
from henchman.demo import main as command
from henchman.demo.catalogue import Catalogue
from henchman.demo.main import View, summary_table, wrong_batch, wrong_failures, wrong_prices, wrong_rows
from henchman.demo.products import (
    COUNT,
    PRODUCERS,
    VERSIONS,
    PriceChange,
    PriceError,
    Product,
    Row,
    ask,
    clean,
    made,
    meant,
    misbehaviour,
    planned,
    produced,
    retail,
    rows,
)
from henchman.errors import Failure

ROW = Row(
    number=1, first=1, sku="KIT-1", ean="4006381333931", name="Lagom Teapot, 1 l", weight="450 g", price="12.50",
    currency="EUR", available_from="2025-03-01", available_until="",
)  # fmt: skip


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    made = Catalogue(tmp_path / "catalogue.sqlite3")
    yield made
    made.close()


def product(**changes: object) -> Product:
    return clean(replace(ROW, **changes))  # type: ignore[arg-type]


# ---- the file


def test_the_file_is_the_same_each_time_it_is_made() -> None:
    assert rows(300) == rows(300) == rows(1000)[:300]
    assert [row.number for row in rows(3)] == [1, 2, 3]


def test_every_row_is_imported_or_refused_as_its_flaw_says() -> None:
    told: Counter[str] = Counter()
    for row, flaw in made():
        found = meant(row)
        assert (found if isinstance(found, str) else "") == flaw, row
        told[flaw] += 1
    assert told.total() == COUNT == 10_000
    assert 8_800 <= told[""] <= 9_400
    assert len(told) == 11
    assert min(told.values()) > 30


# ---- validation


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"price": "12,5"}, "cost", 1250),
        ({"price": " 0.01 "}, "cost", 1),
        ({"name": "  Śledź \u00a0 &amp; mléko 🎁\t"}, "name", "Śledź & mléko 🎁"),
        ({"name": "味噌 5 < 6 > 4"}, "name", "味噌 5 < 6 > 4"),
        ({"currency": " chf "}, "currency", "CHF"),
        ({"ean": "4 006381 333931"}, "ean", "4006381333931"),
        ({"ean": "400-6381333931"}, "ean", "4006381333931"),
        ({"weight": "1.25 kg"}, "weight", 1250),
        ({"weight": "0,5 KG"}, "weight", 500),
        ({"weight": "16 oz"}, "weight", 454),
        ({"weight": "12g"}, "weight", 12),
        ({"available_from": "01.03.2025"}, "available_from", "2025-03-01"),
        ({"available_until": "2025-03-01"}, "available_until", "2025-03-01"),
        ({"sku": "KIT-1 "}, "sku", "KIT-1"),
    ],
)
def test_the_untidy_is_mended(changes: dict[str, str], field: str, value: object) -> None:
    assert getattr(product(**changes), field) == value


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"number": 9}, "SKU repeats an earlier row"),
        ({"name": " \u00a0"}, "name is missing"),
        ({"name": "<b>Teapot</b>"}, "name contains HTML"),
        ({"name": "&lt;script&gt;x"}, "name contains HTML"),
        ({"price": "-1"}, "price is negative"),
        ({"price": "0"}, "price is absurd"),
        ({"price": "250000.01"}, "price is absurd"),
        ({"price": "NaN"}, "price is not a number"),
        ({"price": "Infinity"}, "price is not a number"),
        ({"price": ""}, "price is not a number"),
        ({"currency": "ERU"}, "currency is unknown"),
        ({"ean": "4006381333932"}, "EAN is malformed"),
        ({"ean": "400638133393"}, "EAN is malformed"),
        ({"ean": "４００６３８１３３３９３１"}, "EAN is malformed"),
        ({"available_until": "2025-02-28"}, "dates are in the wrong order"),
        ({"available_from": "31.02.2025"}, "date is not a date"),
        ({"weight": "450 ml"}, "weight is in no unit of weight"),
        ({"weight": "heavy"}, "weight is in no unit of weight"),
    ],
)
def test_the_wrong_is_refused_with_its_reason(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(Failure) as caught:
        product(**changes)
    assert str(caught.value) == reason


# ---- the price service


def sku_that(acts: tuple[str, ...]) -> str:
    return next(sku for number in range(100_000) if misbehaviour(sku := f"T-{number}") == acts)


def test_a_good_price_is_the_retail_price() -> None:
    good = product(sku=sku_that(()))
    assert [ask(good, attempt) for attempt in (1, 2)] == [retail(good)] * 2


@pytest.mark.parametrize("acts", [("503",), ("drop",), ("503", "503"), ("drop", "503")])
def test_a_failing_price_heals_when_asked_again(acts: tuple[str, ...]) -> None:
    flaky = product(sku=sku_that(acts))
    for attempt, act in enumerate(acts, start=1):
        with pytest.raises(PriceError, match="503" if act == "503" else "broke off"):
            ask(flaky, attempt)
    assert ask(flaky, len(acts) + 1) == retail(flaky)


def test_a_stalled_price_gives_no_answer_until_something_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    naps = 0

    def nap(seconds: float) -> None:
        nonlocal naps
        naps += 1
        if naps > 1000:
            raise TimeoutError

    monkeypatch.setattr(time, "sleep", nap)
    stalled = product(sku=sku_that(("stall",)))
    with pytest.raises(TimeoutError):
        ask(stalled, 1)
    naps = 0
    assert ask(stalled, 2) == retail(stalled)


def test_nearly_all_misbehave_seldom_and_heal_within_the_retries() -> None:
    acts = [misbehaviour(row.sku.strip()) for row in rows()]
    assert 0.03 < sum(1 for act in acts if act) / len(acts) < 0.1
    assert max(map(len, acts)) == 2
    assert {one for act in acts for one in act} == {"503", "drop", "stall"}


# ---- the catalogue


def test_a_job_that_runs_twice_changes_nothing_but_the_count(catalogue: Catalogue) -> None:
    one = product()
    catalogue.put(one, 1500)
    catalogue.put(one, 1500)
    assert catalogue.products() == {one.sku: (one, 1500)}
    assert catalogue.read("SELECT writes FROM products") == [(2,)]


def test_a_write_that_breaks_off_leaves_nothing(catalogue: Catalogue) -> None:
    changes: Any = [OLD, SimpleNamespace(version=object(), price=1)]
    with pytest.raises(Exception, match="type"):
        catalogue.change_prices({"S": changes}, 1, 1.0)
    assert catalogue.changes() == []
    catalogue.put(product(), 1)
    assert len(catalogue.products()) == 1


def test_many_writers_on_several_connections_wait_for_each_other(catalogue: Catalogue, tmp_path: Path) -> None:
    others = [Catalogue(tmp_path / "catalogue.sqlite3") for _ in range(2)]

    def write(which: int) -> None:
        for number in range(which, 80, 8):
            others[which % 2].put(product(sku=f"S-{number}"), number)

    threads = [threading.Thread(target=write, args=(which,)) for which in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert {price for _, price in catalogue.products().values()} == set(range(80))
    for other in others:
        other.close()


# ---- the check


def event(number: int, status: str, message: str | None = None) -> Any:
    return SimpleNamespace(args=[{"number": number}], status=status, message=message)


def imported(row: Row) -> dict[str, tuple[Product, int]]:
    done = clean(row)
    return {done.sku: (done, retail(done))}


BAD = replace(ROW, number=2, first=2, sku="B", price="-1")


def test_a_right_result_has_no_differences() -> None:
    events = [event(2, "failed", "price is negative"), event(1, "finished")]
    assert list(wrong_rows([ROW, BAD], events, imported(ROW))) == []


def test_the_check_names_what_is_missing_wrong_or_too_much() -> None:
    missing, refused, vanished, dead, other, twice = (
        replace(ROW, number=number, first=number, sku=f"S{number}") for number in range(2, 8)
    )
    bad = replace(ROW, number=8, first=8, sku="S8", price="-1")
    products = {"KIT-1": (product(), 1), "stray": (product(sku="stray"), 1)} | imported(other) | imported(twice)
    events = [
        event(1, "finished"),  # at a wrong price
        event(3, "failed", "EAN is malformed"),
        event(4, "finished"),
        event(5, "error", "answered 503"),
        event(6, "finished"),
        *[event(7, "finished")] * 2,
        event(8, "failed", "name is missing"),
        event(99, "failed", "name is missing"),
    ]
    lines = list(wrong_rows([ROW, missing, refused, vanished, dead, other, twice, bad], events, products))
    starts = [
        "row 1 (KIT-1): the catalogue has",
        "row 2 (S2): missing",
        "row 3 (S3): [('failed', 'EAN",
        "row 4 (S4): the catalogue has None",
        "row 5 (S5): [('error'",
        "row 7 (S7): [('finished', ''), ('finished', '')]",
        "row 8 (S8): [('failed', 'name is missing')]; it should be ('failed', 'price is negative')",
        "row 99: in history",
        "S7: in the catalogue",
        "stray: in the catalogue",
    ]
    assert [line.startswith(start) for line, start in zip(sorted(lines), sorted(starts), strict=True)] == [True] * 10


def failures_csv(folder: Path, *rows: tuple[int, str]) -> Path:
    path = folder / "failures.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["message", "arguments"])
        writer.writerows((reason, json.dumps([{"number": number}])) for number, reason in rows)
    return path


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(2, "price is negative")], []),
        ([], ["row 2: failures.csv lacks it: price is negative"]),
        ([(2, "name is missing")], ["row 2: failures.csv lacks it", "row 2: failures.csv has it too often"]),
        ([(2, "price is negative")] * 2, ["row 2: failures.csv has it too often"]),
        ([(2, "price is negative"), (1, "x")], ["row 1: failures.csv has it too often: x"]),
    ],
)
def test_the_failures_are_held_against_the_file(tmp_path: Path, rows: list[tuple[int, str]], told: list[str]) -> None:
    lines = list(wrong_failures(failures_csv(tmp_path, *rows), [ROW, BAD]))
    assert [line.startswith(start) for line, start in zip(lines, told, strict=True)] == [True] * len(told)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"counts": {"finished": 4}}, ["the batch counts {'finished': 4}, its history {'finished': 3, 'failed': 1}"]),
        ({"called": {}}, ["callbacks were enqueued as {}"]),
        ({"called": {"complete": [1, 2]}}, ["callbacks were enqueued as {'complete': [1, 2]}"]),
        ({"state": "closed"}, ["the batch is closed; it should be complete"]),
        ({"id": "other"}, ["on_complete was run for ['b'], not for other"]),
    ],
)
def test_server_history_and_callback_are_held_against_each_other(changes: dict[str, Any], told: list[str]) -> None:
    right = {"id": "b", "state": "complete", "counts": {"finished": 3, "failed": 1}, "called": {"complete": [1]}}
    status = SimpleNamespace(**right | changes)
    status.counts = dict.fromkeys((*LIVE, *FINAL), 0) | status.counts
    events = [*[event(1, "finished")] * 3, event(2, "failed")]
    lines = list(wrong_batch(status, events, ["b"]))  # type: ignore[arg-type]
    assert [line.startswith(start) for line, start in zip(lines, told, strict=True)] == [True] * len(told)


def test_a_demo_without_sqlalchemy_says_how_to_get_it(tmp_path: Path) -> None:
    hidden = "find = u.find_spec; u.find_spec = lambda name, *at: None if name == 'alembic' else find(name, *at)"
    called = "sys.argv[1:] = ['demo']; from henchman.cli.main import main; main()"
    start = f"import sys, importlib.util as u; {hidden}; {called}"
    done = subprocess.run(
        [sys.executable, "-c", start], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 2, done.stderr
    assert "pip install 'henchman[sql]'" in done.stderr


# ---- price changes

OLD, NEW = PriceChange(1, 500), PriceChange(2, 700)


def test_three_producers_send_every_change_once_and_in_no_order() -> None:
    plan = planned(rows(1000))
    assert len(plan) > 80
    assert {len(changes) for changes in plan.values()} == {VERSIONS}
    sent = [produced(plan, number) for number in range(PRODUCERS)]
    assert all(len(some) > len(plan) for some in sent), "each has its share"
    everything = Counter((sku, one.version) for some in sent for sku, one, _ in some)
    assert everything == Counter((sku, one.version) for sku, changes in plan.items() for one in changes)
    for some in sent:
        versions = [version for _, _, version in some]
        assert versions != sorted(versions)
    assert [produced(plan, number) for number in range(PRODUCERS)] == sent, "the same at each run"


def test_only_what_is_newer_is_written_and_only_by_who_holds_it(catalogue: Catalogue) -> None:
    catalogue.change_prices({"S": [NEW]}, 5, 1.0)
    catalogue.change_prices({"S": [OLD]}, 6, 2.0)
    catalogue.change_prices({"S": [PriceChange(3, 900)]}, 4, 3.0)  # the token of a process that lost it
    assert catalogue.prices() == {"S": NEW}
    assert [one.written for one in catalogue.changes()] == [True, False, False]


def test_prices_in_order_are_right(catalogue: Catalogue) -> None:
    catalogue.change_prices({"S": [OLD, NEW], "T": [NEW]}, 5, time.monotonic())
    catalogue.change_prices({"T": [OLD]}, 6, time.monotonic())
    assert list(wrong_prices({"S": [OLD, NEW], "T": [OLD, NEW]}, catalogue)) == []


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ([], "never handled"),
        ([([OLD], 1, 0.0, 1.0)], "price changes [2] were never handled"),
        ([([OLD], 1, 0.0, 1.0)], "the price is PriceChange(version=1, price=500); it should be PriceChange(version=2"),
        ([([NEW, OLD], 1, 0.0, 1.0)], "did not get its changes by version"),
        ([([OLD], 1, 0.0, 2.0), ([NEW], 2, 1.0, 3.0)], "two had it at once, with the tokens 1 and 2"),
        ([([OLD], 2, 0.0, 1.0), ([NEW], 2, 1.0, 3.0)], "the token 2 came after 2"),
    ],
)
def test_the_check_names_prices_that_are_wrong(
    catalogue: Catalogue, turns: list[tuple[list[PriceChange], int, float, float]], told: str
) -> None:
    for changes, token, began, ended in turns:
        catalogue.change_prices({"S": changes}, token, began)
        catalogue.write("UPDATE changes SET ended = ? WHERE began = ?", (ended, began))
    assert any(told in line for line in wrong_prices({"S": [OLD, NEW]}, catalogue))


def test_the_check_names_prices_that_went_back_or_that_nobody_asked_for(catalogue: Catalogue) -> None:
    for change in (("S", 2, 1), ("S", 1, 2), ("T", 1, 3)):
        catalogue.write("INSERT INTO changes VALUES (?, ?, ?, 0, 0, 1)", change)
    lines = list(wrong_prices({"S": [OLD, NEW]}, catalogue))
    assert "S: the price went back: versions [2, 1] were written in this order" in lines
    assert any(line.startswith("T: a price was changed") for line in lines)


# ---- what is shown


def summary(**changes: object) -> dict[str, Any]:
    told = {
        "rows": 10, "processes": 2, "concurrency": 10, "imported": 9, "refused": 1, "dead": 0,
        "reasons": {"name [b]is missing": 1}, "healed": {"total": 2, "by_error": {"answered 503": 2}}, "seconds": 2.0,
        "jobs_per_second": 5.0, "differences": [], "prices": {"products": 5, "changes": 20, "turns": 15, "late": 4},
    }  # fmt: skip
    return told | changes


def test_a_summary_is_a_table() -> None:
    console = Console(record=True, width=100, file=open(os.devnull, "w"))  # noqa: SIM115 - closed with the console
    console.print(summary_table(summary(reasons={f"{name} [b]is missing": 1 for name in range(9)})))
    console.file.close()
    shown = console.export_text()
    assert "0 [b]is missing" in shown
    assert "3 other reasons" in shown
    assert "5" in next(line for line in shown.splitlines() if "jobs a second" in line)
    assert "16" in next(line for line in shown.splitlines() if "written" in line)
    assert "4" in next(line for line in shown.splitlines() if "came too late" in line)


def test_errors_that_healed_are_counted_by_what_the_service_did() -> None:
    def event(sku: str, attempts: int, status: str = "finished") -> Any:
        return SimpleNamespace(args=[{"sku": sku}], attempts=attempts, status=status)

    flaky, stalled, good = sku_that(("drop", "503")), sku_that(("stall",)), sku_that(())
    events = [event(flaky, 3), event(stalled, 2), event(good, 1), event(good, 2), event(flaky, 1, "failed")]
    assert command._healed(events) == {
        "price service answered 503": 1,
        "price service broke off": 1,
        "stopped by its time-out": 1,
        "another error": 1,
    }


def test_differences_are_listed_and_end_in_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = summary(differences=[f"row {number} (S): missing" for number in range(30)])
    with pytest.raises(SystemExit) as caught:
        command.report(wrong, Console(stderr=True, width=100), as_json=False, quiet=True)
    assert caught.value.code == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "30 things are not as they should be" in said.err
    assert "row 19 (S): missing" in said.err
    assert "and 10 more" in said.err


def test_without_a_terminal_figures_come_as_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LINE_EVERY", 600.0)
    counts = dict.fromkeys((*LIVE, *FINAL), 0)
    view = View(Console(width=80), total=100, quiet=False)
    view.show(counts | {"finished": 1}, 0)
    assert capsys.readouterr().out == ""
    view._next_line = 0.0
    view.show(counts | {"finished": 40, "failed": 10, "retrying": 3}, 1200)
    shown = capsys.readouterr().out
    assert shown.startswith("50/100   40 imported   10 refused   3 retrying   0 dead   1,200 price changes")
    quiet = View(Console(width=80), total=100, quiet=True)
    quiet.say("x")
    quiet._next_line = 0.0
    quiet.show(counts, 0)
    assert capsys.readouterr().out == ""


# ---- the whole


def until(fact: Callable[[], bool], limit: float = 60.0) -> None:
    """Wait for a fact that another thread or process brings about."""
    pause = threading.Event()
    for _ in range(int(limit / 0.02)):
        if fact():
            return
        pause.wait(0.02)
    raise AssertionError("it did not come true in time")


def run_demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "henchman", "demo", *arguments],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def test_the_demo_imports_checks_and_clears_away(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--rows", "400", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ok"]
    assert told["imported"] + told["refused"] == told["rows"] == 400
    assert sum(told["reasons"].values()) == told["refused"]
    assert told["dead"] == 0
    many = len(planned(rows(400)))
    prices = told["prices"]
    assert prices["products"] == many > 30
    assert prices["changes"] >= VERSIONS * many, "each was handled, a few perhaps twice"
    assert many <= prices["turns"] <= prices["changes"]
    assert told["healed"]["total"] >= sum(len(misbehaviour(row.sku.strip())) for row in expected(400))
    (folder,) = tmp_path.iterdir()
    assert told["failures"] == str(folder / "failures.csv")
    assert list(folder.iterdir()) == [folder / "failures.csv"]
    with (folder / "failures.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    refused = set(range(1, 401)) - {row.number for row in expected(400)}
    assert {json.loads(line["arguments"])[0]["number"] for line in lines} == refused
    assert Counter(line["message"] for line in lines) == told["reasons"]
    assert {(line["status"], line["queue"]) for line in lines} == {("failed", "products")}


def expected(most: int) -> list[Row]:
    """The rows that reach the price service."""
    return [row for row in rows(most) if isinstance(meant(row), Product)]


def test_a_quiet_demo_says_nothing_and_can_keep_its_folder(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--rows", "20", "--processes", "1", "--concurrency", "2", "--quiet", "--keep")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    (folder,) = tmp_path.iterdir()
    assert done.stderr.split() == ["Kept:", str(folder)]
    kept = Catalogue(folder / "catalogue.sqlite3")
    assert kept.products().keys() == {row.sku.strip() for row in expected(20)}
    assert (folder / "failures.csv").is_file()
    with sqlite3.connect(folder / "history.sqlite") as db:
        (batch,) = db.execute(
            "SELECT id FROM henchman_batches WHERE description = ?", ("Import products.csv",)
        ).fetchone()
    assert kept.called() == [batch]
    assert kept.prices() == {sku: changes[-1] for sku, changes in planned(rows(20)).items()}
    kept.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--server"], "No such option"), (["--rows", "10001"], "10,000 rows"), (["--rows", "0"], "0")],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run_demo(tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def begun(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A demo that is not waited for; what it tells can be read."""
    return subprocess.Popen(
        [sys.executable, "-m", "henchman", "demo", *arguments],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_and_clears_away(tmp_path: Path, number: signal.Signals) -> None:
    process = begun(tmp_path)
    try:
        until(lambda: any(tmp_path.glob("*/workers.log")))
        process.send_signal(number)
        _, told = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + number
    assert "Stopped" in told
    assert list(tmp_path.iterdir()) == []
    until(lambda: not [line for line in commands_running() if str(tmp_path) in line])


#: page → what a reader finds there
SERVED = {
    "/": ["Queue newsletter is paused", "gave up", "PriceError"],
    "/errors": ["PriceError", "CardDeclined", "price service answered 503"],
    "/batches": ["Import products.csv", "Close of", "workflow, 12 steps"],
    "/ordered/stock-levels": ["porto", "does not answer", "retrying"],
    "/ordered/stock-levels?by=busy": ["hamburg", "in flight"],
    "/ordered/stock-levels?by=morgue": ["gdańsk", "fewer than no pieces"],
    "/crons": ["stock-pulse", "nightly-report", "paused"],
    "/scheduled": ["remind(4000)"],
    "/retries": ["send_mail", "the mailbox is full"],
    "/dead": ["CardDeclined", "the bank declined"],
    "/keys": ["henchman.demo.shop.charge"],
    "/blocked": ["henchman.demo.shop.ship", "stuck", "rebuild_index"],
    "/busy": ["print_invoices", "rebuild_index"],
}


def test_a_served_demo_has_something_on_each_page_until_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    process = begun(tmp_path, "--rows", "200", "--serve", "--quiet")
    try:
        said = []
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if "Ctrl-C" in line:
                break
        told = "".join(said)
        found = re.search(r"The console: (http://127\.0\.0\.1:\d+)/", told)
        assert found, told
        for path, words in SERVED.items():
            page = shown(found[1] + path)
            assert [one for one in words if one not in page] == [], path
        sights = re.findall(r"^  (http\S+)", told, re.MULTILINE)
        assert len(sights) > 5
        assert all(shown(one) for one in sights)
        batch = shown(next(one for one in sights if "/batches/" in one))
        assert "complete, with failures" in batch
        assert "currency is unknown" in batch, "a refused row's reason"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=200)
    finally:
        process.terminate()  # it clears away, also after a failure of this test
        process.wait(200)
    assert process.returncode == 0, told
    assert "Stopped" in told
    assert [one.name for one in tmp_path.iterdir() if not one.name.startswith("henchman-failures-")] == []
    until(lambda: not [line for line in commands_running() if str(tmp_path) in line])


def shown(address: str) -> str:
    """The text of a page."""
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - the demo's own
        return html.unescape(answer.read().decode())


def commands_running() -> list[str]:
    """Every command line and working folder of this machine's processes that we may see."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            lines.append(f"{words} {os.readlink(folder / 'cwd')}")
        except OSError:
            continue
    return lines
