"""The demo: its file, its parts one by one, and the whole of it as a person runs it."""

from __future__ import annotations

import csv
import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from henchman.batch.status import FINAL, LIVE
from henchman.demo import main as command
from henchman.demo import prices as demo_prices
from henchman.demo import view as demo_view
from henchman.demo.catalogue import Catalogue, Counts, Run
from henchman.demo.check import differences
from henchman.demo.offers import (
    PRODUCERS,
    VERSIONS,
    Offers,
    PriceChange,
    Prices,
    planned,
    produced,
    wrong,
)
from henchman.demo.prices import PriceError, PriceService, ask, hang_up, misbehaviour, retail
from henchman.demo.products import Product, Row, clean, read
from henchman.demo.record import DESCRIPTION, FILE, Record, sheet_differences
from henchman.demo.view import LineView, Summary, summary_table
from henchman.errors import Failure
from henchman.store.connection import Connections

EXAMPLE = Path(__file__).parents[2] / "examples" / "products"
ROW = Row(
    number=1, first=1, sku="KIT-1-BLK", ean="4006381333931", name="Lagom Teapot, 1 l", brand="Lagom",
    category="Kitchen", size="1 l", weight="450 g", price="12.50", currency="EUR", stock="7",
    available_from="2025-03-01", available_until="",
)  # fmt: skip


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script that makes the file, as a module."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("generate")
    for name in ("generate", "words"):
        sys.modules.pop(name, None)


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    made = Catalogue.create(tmp_path / "catalogue.sqlite3")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for a price waits longer than the service, a thread of this process, may be kept waiting."""
    monkeypatch.setattr(demo_prices, "SOCKET_TIMEOUT", 60.0)


@pytest.fixture
def prices() -> Iterator[PriceService]:
    with PriceService() as service:
        yield service
    hang_up()


def product(**changes: object) -> Product:
    return clean(replace(ROW, **changes))  # type: ignore[arg-type]


# ---- the file


def test_the_committed_file_is_what_the_script_makes(generate: ModuleType) -> None:
    assert generate.PATH.read_text(encoding="utf-8") == generate.text()


def test_every_row_is_imported_or_refused_as_its_flaw_says(generate: ModuleType) -> None:
    said: dict[str | None, int] = {}
    for row, (_, flaw) in zip(read(), generate.rows(), strict=True):
        try:
            reason: str | None = None
            clean(row)
        except Failure as failure:
            reason = str(failure)
        assert reason == flaw, row
        said[flaw] = said.get(flaw, 0) + 1
    assert sum(said.values()) == 10_000
    assert 8_800 <= said[None] <= 9_400
    assert len(said) == 11
    assert min(said.values()) > 30


def test_reading_stops_where_it_is_told() -> None:
    assert [row.number for row in read(most=3)] == [1, 2, 3]


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
        ({"sku": "KIT-1-BLK "}, "sku", "KIT-1-BLK"),
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


def test_a_good_price_is_the_retail_price(prices: PriceService) -> None:
    good = product(sku=sku_that(()))
    assert [ask(prices.url, good) for _ in range(3)] == [retail(good.sku, 1250, "EUR")] * 3
    assert not prices.troubles


@pytest.mark.parametrize("acts", [("503",), ("drop",), ("503", "503"), ("drop", "503")])
def test_a_failing_price_heals_when_asked_again(prices: PriceService, acts: tuple[str, ...]) -> None:
    flaky = product(sku=sku_that(acts))
    for act in acts:
        with pytest.raises(PriceError, match="503" if act == "503" else "broke off"):
            ask(prices.url, flaky)
    assert ask(prices.url, flaky) == retail(flaky.sku, flaky.cost, flaky.currency)
    assert sum(prices.troubles.values()) == len(acts)


def test_a_stalled_price_trickles_until_the_service_stops() -> None:
    stalled = product(sku=sku_that(("stall",)))
    ended: list[str] = []

    def asking(url: str) -> None:
        try:
            ask(url, stalled)
        except PriceError as error:
            ended.append(str(error))
        hang_up()

    with PriceService() as service:
        thread = threading.Thread(target=asking, args=(service.url,))
        thread.start()
        until(lambda: service.troubles["stall"] == 1)
        assert thread.is_alive()
        assert ended == []
    thread.join(60)
    assert ended == ["price service answered nonsense"]


def test_nearly_all_misbehave_seldom_and_heal_within_the_retries() -> None:
    acts = [misbehaviour(row.sku.strip()) for row in read()]
    assert 0.03 < sum(1 for act in acts if act) / len(acts) < 0.1
    assert max(map(len, acts)) == 2
    assert {one for act in acts for one in act} == {"503", "drop", "stall"}


# ---- the catalogue


def test_a_job_that_runs_twice_changes_nothing_but_the_count(catalogue: Catalogue) -> None:
    one = product()
    catalogue.put(one, 1500, Run(1, 1, 5.0))
    catalogue.put(one, 1500, Run(1, 2, 6.0))
    assert catalogue.products() == {one.sku: (one, 1500)}
    (result,) = catalogue.results()
    assert (result.outcome, result.attempts, result.runs) == ("imported", 2, 2)


def test_counts_follow_a_row_from_error_to_import(catalogue: Catalogue) -> None:
    catalogue.stumble("answered 503", Run(1, 1, 100.0))
    assert catalogue.counts() == Counts(imported=0, refused=0, dead=0, retrying=1)
    assert catalogue.healed() == []
    catalogue.put(product(), 1500, Run(1, 2, 5.0))
    catalogue.refuse("X", "name is missing", Run(2, 1, 1.0))
    catalogue.bury("Y", "answered 503", Run(3, 9, 1.0))
    assert catalogue.counts() == Counts(imported=1, refused=1, dead=1, retrying=0)
    assert catalogue.counts().settled == 3
    assert catalogue.healed() == [("answered 503", 1)]
    assert catalogue.reasons() == [("name is missing", 1)]
    slowest = catalogue.slowest()
    assert slowest is not None
    assert (slowest.row, slowest.attempts, slowest.ms) == (1, 2, 105.0)


def test_a_write_that_breaks_off_leaves_nothing(catalogue: Catalogue) -> None:
    broken = replace(product(), name=object())  # type: ignore[arg-type]
    with pytest.raises(Exception, match="type"):
        catalogue.put(broken, 1, Run(1, 1, 1.0))
    assert catalogue.counts().settled == 0
    catalogue.put(product(), 1, Run(1, 1, 1.0))
    assert catalogue.counts().imported == 1


def test_many_writers_on_several_connections_wait_for_each_other(catalogue: Catalogue, tmp_path: Path) -> None:
    others = [Catalogue(tmp_path / "catalogue.sqlite3") for _ in range(2)]

    def write(which: int) -> None:
        for number in range(which, 400, 8):
            others[which % 2].put(product(sku=f"S-{number}"), number, Run(number, 1, 1.0))

    threads = [threading.Thread(target=write, args=(which,)) for which in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert catalogue.counts().imported == 400
    assert {price for _, price in catalogue.products().values()} == set(range(400))
    for other in others:
        other.close()


# ---- the check


def imported(catalogue: Catalogue, row: Row) -> None:
    done = clean(row)
    catalogue.put(done, retail(done.sku, done.cost, done.currency), Run(row.number, 1, 1.0))


def test_a_right_result_has_no_differences(catalogue: Catalogue) -> None:
    bad = replace(ROW, number=2, first=2, sku="B", price="-1")
    imported(catalogue, ROW)
    catalogue.refuse("B", "price is negative", Run(2, 1, 1.0))
    assert list(differences([ROW, bad], catalogue)) == []


def test_the_check_names_what_is_missing_wrong_or_too_much(catalogue: Catalogue) -> None:
    missing, refused, vanished, dead, other = (
        replace(ROW, number=number, first=number, sku=f"S{number}") for number in range(2, 7)
    )
    bad = replace(ROW, number=7, first=7, sku="S7", price="-1")
    catalogue.put(product(), 1, Run(1, 1, 1.0))  # a wrong price
    catalogue.refuse("S3", "EAN is malformed", Run(3, 1, 1.0))
    catalogue.put(product(sku="stray"), 1, Run(4, 1, 1.0))  # in place of S4
    catalogue.bury("S5", "answered 503", Run(5, 9, 1.0))
    imported(catalogue, other)
    catalogue.refuse("S7", "name is missing", Run(7, 1, 1.0))
    catalogue.refuse("S99", "name is missing", Run(99, 1, 1.0))
    lines = list(differences([ROW, missing, refused, vanished, dead, other, bad], catalogue))
    starts = [
        "row 1 (",
        "row 2 (S2): missing",
        "row 3 (S3): refused",
        "row 4 (S4): called imported",
        "row 5 (S5): dead",
    ]
    starts += ["row 7 (S7): refused name is missing; it should", "row 99: in the ledger", "stray: in the catalogue"]
    assert [line.startswith(start) for line, start in zip(lines, starts, strict=True)] == [True] * 8


# ---- the batch, its history and the sheet


def sheet(folder: Path, *rows: tuple[int, str]) -> Path:
    path = folder / "failures.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["message", "arguments"])
        writer.writerows((reason, json.dumps([{"number": number}]) if number else "") for number, reason in rows)
    return path


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(2, "price is negative")], []),
        ([], ["row 2: failures.csv lacks it 1 times"]),
        ([(2, "name is missing")], ["row 2: failures.csv lacks", "row 2: failures.csv has it 1 times too often"]),
        ([(2, "price is negative")] * 2, ["row 2: failures.csv has it 1 times too often"]),
        ([(2, "price is negative"), (1, "x")], ["row 1: failures.csv has it 1 times too often: x"]),
        ([(2, "price is negative"), (0, "x")], ["row 0: failures.csv has it"]),
    ],
)
def test_the_sheet_is_held_against_the_file(tmp_path: Path, rows: list[tuple[int, str]], told: list[str]) -> None:
    bad = replace(ROW, number=2, first=2, sku="B", price="-1")
    lines = list(sheet_differences(sheet(tmp_path, *rows), [ROW, bad]))
    assert [line.startswith(start) for line, start in zip(lines, told, strict=True)] == [True] * len(told)


@pytest.mark.parametrize(
    ("server", "recorded", "called", "told"),
    [
        ({"finished": 3, "failed": 1}, {"finished": 3, "failed": 1}, {"complete": [1]}, []),
        ({"finished": 4}, {"finished": 4}, {"complete": [1]}, ["the batch counts {'finished': 4}, the ledger"]),
        ({"finished": 3, "failed": 1}, {"finished": 3}, {"complete": [1]}, ["the batch counts"]),
        ({"finished": 3, "failed": 1}, {"finished": 3, "failed": 1}, {}, ["callbacks were enqueued as {}"]),
    ],
)
def test_server_history_and_ledger_are_held_against_each_other(
    tmp_path: Path,
    redis_url: str,
    server: dict[str, int],
    recorded: dict[str, int],
    called: dict[str, list[int]],
    told: list[str],
) -> None:
    record = Record(Connections(redis_url), tmp_path)
    record.close()
    reading: Any = SimpleNamespace(batch=lambda _: SimpleNamespace(counts=recorded))
    record._desk = SimpleNamespace(reading=reading)
    status: Any = SimpleNamespace(counts=dict.fromkeys((*LIVE, *FINAL), 0) | server, called=called)
    lines = list(record.differences(status, Counts(imported=3, refused=1, dead=0, retrying=0)))
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
    plan = planned(read(most=1000))
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
    offers = Offers(catalogue)
    offers.change({"S": [NEW]}, 5, 1.0)
    offers.change({"S": [OLD]}, 6, 2.0)
    offers.change({"S": [PriceChange(3, 900)]}, 4, 3.0)  # the token of somebody who lost it
    assert offers.now() == {"S": NEW}
    assert [one.written for one in offers.changes()] == [True, False, False]
    assert offers.figures() == Prices(products=1, changes=3, turns=3, late=2)


def test_prices_in_order_are_right(catalogue: Catalogue) -> None:
    offers = Offers(catalogue)
    offers.change({"S": [OLD, NEW], "T": [NEW]}, 5, time.monotonic())
    offers.change({"T": [OLD]}, 6, time.monotonic())
    assert list(wrong({"S": [OLD, NEW], "T": [OLD, NEW]}, offers)) == []


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
    offers = Offers(catalogue)
    for changes, token, began, ended in turns:
        offers.change({"S": changes}, token, began)
        with catalogue.writing() as db:
            db.execute("UPDATE turns SET ended = ? WHERE began = ?", (ended, began))
    assert any(told in line for line in wrong({"S": [OLD, NEW]}, offers))


def test_the_check_names_prices_that_went_back_or_that_nobody_asked_for(catalogue: Catalogue) -> None:
    with catalogue.writing() as db:
        db.execute("INSERT INTO changes VALUES ('S', 2, 1, 1), ('S', 1, 2, 1), ('T', 1, 3, 1)")
    lines = list(wrong({"S": [OLD, NEW]}, Offers(catalogue)))
    assert "S: the price went back: versions [2, 1] were written in this order" in lines
    assert any(line.startswith("T: a price was changed") for line in lines)


# ---- what is shown


def summary(**changes: object) -> Summary:
    told = Summary(
        rows=10, processes=2, concurrency=10, imported=9, refused=1, dead=0, reasons=[("name [b]is missing", 1)],
        healed=[("answered 503", 2)], seconds=2.0, slowest=None, ran_again=0, differences=[],
        prices=Prices(products=5, changes=20, turns=15, late=4),
    )  # fmt: skip
    return replace(told, **changes)  # type: ignore[arg-type]


def test_a_summary_adds_up_as_table_and_json() -> None:
    console = Console(record=True, width=100, file=open(os.devnull, "w"))  # noqa: SIM115 - closed with the console
    console.print(summary_table(summary()))
    console.file.close()
    shown = console.export_text()
    assert "name [b]is missing" in shown
    assert "5" in next(line for line in shown.splitlines() if "jobs a second" in line)
    assert "16" in next(line for line in shown.splitlines() if "written" in line)
    assert "4" in next(line for line in shown.splitlines() if "came too late" in line)
    told = summary().to_json()
    assert told["prices"] == {"products": 5, "changes": 20, "turns": 15, "late": 4}
    assert (told["ok"], told["jobs_per_second"], told["healed"]["total"]) == (True, 5.0, 2)


def test_differences_are_listed_and_end_in_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = summary(differences=[f"row {number} (S): missing" for number in range(30)])
    with pytest.raises(SystemExit) as caught:
        command._report(wrong, Console(stderr=True, width=100), as_json=False, quiet=True)
    assert caught.value.code == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "30 things are not as they should be" in said.err
    assert "row 19 (S): missing" in said.err
    assert "and 10 more" in said.err


def test_without_a_terminal_figures_come_as_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_view, "LINE_EVERY", 600.0)
    view = LineView(Console(width=80), total=100)
    view.show(Counts(1, 0, 0, 0))
    assert capsys.readouterr().out == ""
    view._next = 0.0
    view.show(Counts(40, 10, 0, 3))
    assert capsys.readouterr().out.startswith("50/100   40 imported   10 refused   3 retrying")
    view._next = 0.0
    view.show(Counts(40, 10, 0, 3, 1200))
    assert "1,200 price changes" in capsys.readouterr().out


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
    many = len(planned(read(most=400)))
    prices = told["prices"]
    assert (prices["products"], many) == (many, 36)
    assert prices["changes"] >= VERSIONS * many, "each was handled, a few perhaps twice"
    assert many <= prices["turns"] <= prices["changes"]
    assert told["healed"]["total"] >= sum(len(misbehaviour(row.sku.strip())) for row in expected(400))
    (folder,) = tmp_path.iterdir()
    assert told["failures"] == str(folder / "failures.csv")
    assert list(folder.iterdir()) == [folder / "failures.csv"]
    with (folder / "failures.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    refused = {row.number for row in read(most=400)} - {row.number for row in expected(400)}
    assert {json.loads(line["arguments"])[0]["number"] for line in lines} == refused
    assert Counter(line["message"] for line in lines) == told["reasons"]
    assert {(line["status"], line["queue"]) for line in lines} == {("failed", "products")}


def expected(most: int) -> list[Row]:
    """The rows that reach the price service."""
    good = []
    for row in read(most=most):
        try:
            clean(row)
        except Failure:
            continue
        good.append(row)
    return good


def test_a_quiet_demo_says_nothing_and_can_keep_its_folder(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--rows", "20", "--processes", "1", "--concurrency", "2", "--quiet", "--keep")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    (folder,) = tmp_path.iterdir()
    assert done.stderr.split() == ["Kept:", str(folder)]
    kept = Catalogue(folder / "catalogue.sqlite3")
    assert kept.counts().settled == 20
    assert (folder / "failures.csv").is_file()
    with sqlite3.connect(folder / FILE) as db:
        (batch,) = db.execute("SELECT id FROM henchman_batches WHERE description = ?", (DESCRIPTION,)).fetchone()
    assert kept.called() == [batch]
    assert Offers(kept).now() == {sku: changes[-1] for sku, changes in planned(read(most=20)).items()}
    kept.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--serve"], "comes with the console"), (["--rows", "10001"], "10,000 rows"), (["--rows", "0"], "0")],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run_demo(tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_and_clears_away(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "henchman", "demo"],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
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
