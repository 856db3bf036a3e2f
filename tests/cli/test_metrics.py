"""``henchman metrics``: the table, one class, JSON, deploy marks, and names that mean harm."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from cli.conftest import INVISIBLE
from henchman.cli.main import henchman
from henchman.store.failures import group_errors
from henchman.store.metrics import Counted, bucket_of, flush
from support.garbage import HOSTILE
from support.store import Store


@pytest.fixture(autouse=True)
def _narrow(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As wide as a terminal of old."""
    monkeypatch.setenv("COLUMNS", "80")


def run(store: Store, *words: str) -> Result:
    return CliRunner().invoke(henchman, ["--redis", store.connections.url, "metrics", *words])


def write(store: Store, name: str, *times_ms: float, failed: int = 0, back: int = 0) -> None:
    counters = [0] * 26
    for ms in times_ms:
        counters[bucket_of(ms)] += 1
    counted = Counted(len(times_ms) + failed, failed, round(sum(times_ms)), counters)
    at = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=back)
    store.run(flush(store.keys, at, {name: counted}, ("8", "7")))


def line(result: Result, start: str) -> list[str]:
    (found,) = [one for one in result.stdout.splitlines() if one.startswith(start)]
    return found.split()


def test_a_table_by_class(store: Store) -> None:
    write(store, "shop.send", *[100.0] * 8, failed=2)
    write(store, "shop.send", 3000.0, 3000.0, back=10)
    write(store, "quick", *[0.4] * 5)
    shown = run(store)
    assert shown.exit_code == 0, shown.output
    title, _, first, second = shown.stdout.splitlines()
    assert title.split() == ["class", "runs", "failed", "mean", "p50", "p95", "total", "60", "minutes"]
    assert first.split()[:11] == ["shop.send", "12", "2", "680", "ms", "<150", "ms", "<3.8", "s", "6.8", "s"]
    assert second.split()[:3] == ["quick", "5", "0"]
    spark = first.split()[-1]
    assert len(spark) == 10
    assert spark[-1] == "█"
    assert spark.count("·") == 8
    assert all(cell_len(one) <= 80 for one in shown.stdout.splitlines())


def test_hours_have_no_percentiles(store: Store) -> None:
    write(store, "a", 100.0)
    write(store, "a", 300.0, back=70)
    assert line(run(store, "--hours", "3"), "a")[:9] == ["a", "2", "0", "200", "ms", "–", "–", "400", "ms"]
    assert line(run(store, "--minutes", "30"), "a")[1] == "1"


def test_one_class(store: Store) -> None:
    write(store, "daily:report", 10.0, 10.0, 40.0)
    write(store, "other", 1.0)
    shown = run(store, "daily/report")
    assert "other" not in shown.stdout
    assert line(shown, "   <20 ms") == ["<20", "ms", "2", "█" * 40]
    assert line(shown, "   <30 ms") == ["<30", "ms", "0"]
    assert line(shown, "   <45 ms") == ["<45", "ms", "1", "█" * 20]
    wrong = run(store, "othr")
    assert wrong.exit_code == 1
    assert wrong.stderr == "Error: 'othr' did not run in the last 60 minutes; did you mean 'other'?\n"


def test_json(store: Store) -> None:
    write(store, "a", 100.0, 400_000.0, failed=1, back=2)
    run(store, "mark", "v1", "second", "try")
    found = json.loads(run(store, "--json", "--minutes", "10").stdout)
    assert found["step"] == 60
    (only,) = found["classes"]
    points = only.pop("points")
    assert only.pop("histogram")[25] == 1
    assert only == {
        "name": "a",
        "processed": 3,
        "failed": 1,
        "causes": {},
        "ms": 400_100,
        "mean_ms": 200_050.0,
        "p50_below_ms": 150.0,
        "p95_below_ms": None,
    }
    assert [(one["processed"], one["failed"], one["ms"]) for one in points] == [(3, 1, 400_100)]
    assert points[0]["at"].endswith(":00.000Z")
    assert [one["label"] for one in found["deploys"]] == ["v1 second try"]
    empty = json.loads(run(Store(store.connections.url, "nobody"), "--json", "--namespace", "nobody").stdout)
    assert empty["classes"] == []


def test_marks_are_shown(store: Store) -> None:
    write(store, "a", 1.0)
    marked = run(store, "mark", "v2")
    assert marked.exit_code == 0
    assert re.fullmatch(r"marked v2 at \d{4}-\d\d-\d\dT\d\d:\d\d:00.000Z\n", marked.stdout)
    assert "is not marked" in run(store, "mark", "v2").stdout
    assert json.loads(run(store, "mark", "v2", "--json").stdout)["marked"] is False
    shown = run(store).stdout.splitlines()
    assert shown[-2].split() == ["deploys", "▲"]
    assert shown[-1].startswith("deploy ")
    assert shown[-1].endswith(": v2")


def test_a_mark_without_a_label(store: Store) -> None:
    assert re.match(r"marked \d{4}-\d\d-\d\d \d\d:\d\d at", run(store, "mark").stdout)
    assert run(store, "mark", " ").exit_code == 1


def test_nothing_ran(store: Store) -> None:
    shown = run(store, "--hours", "2")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("Nothing ran in the last 2 hours")


@pytest.mark.parametrize(
    "words", ["--minutes 5 --hours 1", "--minutes 481", "--hours 0", "one two", "mark v1 --minutes 3"]
)
def test_wrong_usage(store: Store, words: str) -> None:
    assert run(store, *words.split()).exit_code == 2
    assert store.all_keys() == set()


def test_hostile_names(store: Store) -> None:
    write(store, HOSTILE, 1.0)
    write(store, "x" * 500, 1.0)
    run(store, "mark", HOSTILE)
    for words in ([], ["--json"], ["--hours", "1"]):
        shown = run(store, *words)
        assert shown.exit_code == 0, shown.output
        assert not INVISIBLE.search(shown.stdout)
        assert "--json" in words or all(cell_len(one) <= 80 for one in shown.stdout.splitlines())


def test_a_terminal_without_signs(store: Store) -> None:
    write(store, "a", 30.0)
    shown = CliRunner(charset="ascii").invoke(henchman, ["--redis", store.connections.url, "metrics", "a"])
    assert shown.exit_code == 0, shown.output
    assert "." * 8 in shown.output
    assert "#" * 40 in shown.output


def failures(store: Store, name: str, at: float, **more: Any) -> None:
    hours = {str(int(at // 3600)): 3}
    found = {
        "id": name,
        "error": "TimeoutError",
        "message": "shop 77\x1b[2J",
        "place": "pay:post",
        "trace": ["pay.py:7:in post"],
    }
    found |= {
        "count": 3,
        "first": at,
        "last": at,
        "jid": "j",
        "jobs": {"sync": 3},
        "queues": {"pay": 3},
        "hours": hours,
    }
    store.run(group_errors(store.keys, [found | more], time.time()))


def test_errors_by_group(store: Store) -> None:
    def errors(*words: str) -> Result:
        return CliRunner().invoke(henchman, ["--redis", store.connections.url, "errors", *words])

    assert "No job has failed" in errors().stdout
    failures(store, "abc1", time.time())
    failures(store, "abc2", time.time(), error="KeyError", jobs={"bill": 3}, first=time.time() - 90_000)
    table = errors().stdout.splitlines()
    assert table[0].split() == ["state", "group", "error", "job", "times", "24", "hours", "last"]
    assert table[2].split()[:5] == ["new", "abc1", "TimeoutError", "sync", "3"]
    assert table[3].strip() == "shop 77\\x1b[2J"
    assert table[4].split()[:5] == ["steady", "abc2", "KeyError", "bill", "3"]
    assert [one["id"] for one in json.loads(errors("--job", "bill", "--json").stdout)["errors"]] == ["abc2"]
    one = errors("abc1").stdout
    assert "pay.py:7:in post" in one
    assert "sync 3" in one
    assert json.loads(errors("abc1", "--json").stdout)["trace"] == ["pay.py:7:in post"]
    unknown = errors("abc3")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert "no error is known as 'abc3'" in unknown.stderr
