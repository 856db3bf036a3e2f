"""Figures of several runs: median, spread, bar; as a page and as a document."""

from __future__ import annotations

import pytest

from henchman.bench.report import Report, number, percentile


class Facts:
    def info(self, section: str) -> dict[str, str]:
        return {"valkey_version": "9.1.0", "redis_version": "7.2.4"}


@pytest.fixture
def report() -> Report:
    made = Report("a bench", Facts(), "a server of its own", live=False)  # type: ignore[arg-type]
    made.section = "Drain"
    for rate in (300.0, 100.0, 200.0):
        made.add("rate", "a worker", rate, "jobs/s", least=250)
        made.add("cost", "a job", 4.0, "µs", most=5)
    made.section = "Once"
    made.add("late", "jobs late", 0.5)
    return made


def test_a_figure_is_the_median_of_its_runs_with_their_spread(report: Report) -> None:
    told = report.document()["figures"]["rate"]
    assert (told["median"], told["low"], told["high"], told["values"]) == (200, 100, 300, [300, 100, 200])
    assert (told["bar"], told["met"], told["section"], told["unit"]) == ("≥ 250", False, "Drain", "jobs/s")
    assert report.missed() == ["rate"]


def test_the_page_has_a_table_for_each_section(report: Report) -> None:
    page = report.markdown(bars=True)
    assert "- server: Valkey 9.1.0, a server of its own" in page
    assert "## Drain\n\n|  | median | lowest to highest | unit | bar |  |\n" in page
    assert "| a worker | 200.0 | 100.0 to 300.0 | jobs/s | ≥ 250 | missed |" in page
    assert "| a job | 4.000 | 4.000 to 4.000 | µs | ≤ 5 | ok |" in page
    assert page.endswith("| jobs late | 0.500 | one run |  |  |  |\n")


def test_bars_are_for_those_who_ask(report: Report) -> None:
    assert "missed" not in report.markdown()


def test_finish_fails_only_where_a_bar_counts(report: Report) -> None:
    assert (report.finish(as_json=False, check=False), report.finish(as_json=False, check=True)) == (0, 1)


def test_percentile_and_number() -> None:
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile(range(1, 100), 0.99) == 99, "of fewer the largest"
    assert percentile(range(1, 1001), 0.999) == 999
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2
    assert percentile([3.0], 0.5) == 3
    assert [number(one) for one in (1234567.8, 123.45, 12.345, 1.2345, -0.5)] == [
        "1,234,568",
        "123.5",
        "12.35",
        "1.234",
        "-0.500",
    ]
