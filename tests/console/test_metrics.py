"""The pages of what ran: every class and one, with deploys."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from typing import Any

import pytest

from henchman import App
from henchman.inspector.metrics import mark_deploy
from henchman.store.call import run
from henchman.store.metrics import LIMITS, Counted, bucket_of, flush
from support.browsing import XSS, Browser


def write(app: App, counts: dict[str, tuple[list[float], int]], back: float = 0.0) -> None:
    """Figures of ``back`` minutes ago: by class ms of the runs that succeeded, and how many failed."""
    found = {}
    for name, (times_ms, failed) in counts.items():
        counters = [0] * (len(LIMITS) + 1)
        for ms in times_ms:
            counters[bucket_of(ms)] += 1
        found[name] = Counted(len(times_ms) + failed, failed, round(sum(times_ms)), counters)
    at = dt.datetime.fromtimestamp(time.time() - 60 * back, dt.UTC)
    app.connections.run(flush(app.keys, at, found, ("8", "7")))


@pytest.fixture
def browser(app: App) -> Browser:
    write(app, {"shop.sync": ([100.0] * 90, 10), "shop.mail": ([10.0], 0)}, 30)
    write(app, {"shop.sync": ([2000.0] * 10, 30)}, 2)
    run(app.connections, mark_deploy(app.keys, f"v2 {XSS}", now=time.time() - 600))
    return Browser(app.console())


def test_every_class_the_one_with_the_most_time_first(browser: Browser) -> None:
    words = browser.get("/metrics").words
    assert "Metrics 2 jobs in 1 hour" in words
    assert "100 40 28.6 % 290 ms < 150 ms < 2.5 s 29 s" in words
    assert words.index("shop.sync") < words.index("shop.mail")
    assert "1 deploy a bar a minute" in words
    assert "shop.sync" not in browser.get("/metrics?q=MAIL").words
    assert "No job of that name" in browser.get("/metrics?q=nothing").words
    for hours, text in (("8", "8 hours"), ("24", "1 day"), ("72", "3 days")):
        page = browser.get(f"/metrics?by={hours}")
        assert f"2 jobs in {text}" in page.words
        assert f'href="/metrics/shop.sync?by={hours}"' in page.text
        assert "Percentiles are kept by the minute" in page.words


def test_how_long_runs_took_over_time(browser: Browser) -> None:
    page = browser.get("/metrics/shop.sync")
    assert (
        "95 % of the runs took < 2.5 s in the last 3 min in which any ended well, < 150 ms in the first." in page.words
    )
    assert page.text.count('class="cell"') == 2
    assert "10 < 2.5 s < 2.5 s" in page.words
    assert "90 < 150 ms < 150 ms" in page.words
    assert "over time" not in browser.get("/metrics/shop.sync?by=24").words
    [told] = json.loads(browser.get("/api/v1/metrics/shop.sync").text)["items"]
    spread = [one for one in told["spread"] if one]
    assert [sum(one) for one in spread] == [90, 10]
    assert [sum(column) for column in zip(*spread, strict=True)] == told["histogram"]
    assert json.loads(browser.get("/api/v1/metrics").text)["items"][0]["spread"] == []


def test_one_class_before_and_after_a_deploy(browser: Browser) -> None:
    page = browser.get("/metrics/shop.sync")
    assert "before – 90 10 10.0 % 100 ms < 150 ms" in page.words
    assert "10 30 75.0 % ▲ more than before 2.0 s ▲ slower than before < 2.5 s" in page.words
    assert "< 150 ms 90" in page.words
    assert "/errors?job=shop.sync" in page.text
    assert "<script>alert" not in page.text
    assert "the last hour" in browser.get("/metrics/shop.sync?by=24").words
    assert "It did not run in the last 1 hour" in browser.get("/metrics/unknown").words


def test_beside_the_span_before(app: App) -> None:
    write(app, {"shop.sync": ([100.0] * 95, 5), "shop.gone": ([5.0], 0)}, 90)
    write(app, {"shop.sync": ([1000.0] * 60, 40), "shop.new": ([5.0], 0)}, 5)
    browser = Browser(app.console())
    page = browser.get("/metrics?vs=before")
    assert "40.0 % ▲ more than before was 5.0 %" in page.words
    assert "1.0 s ▲ slower than before was 100 ms" in page.words
    assert "shop.gone" not in page.words
    assert "Was : in the hour before" in page.words
    assert 'href="/metrics?by=8&amp;vs=before"' in page.text
    assert "was" not in browser.get("/metrics").words.split()
    page = browser.get("/metrics/shop.sync?vs=before")
    assert "now 60 40 40.0 % ▲ more than before 1.0 s ▲ slower than before < 1.1 s" in page.words
    assert "before 95 5 5.0 % 100 ms < 150 ms" in page.words
    assert "It did not run in the hour before" in browser.get("/metrics/shop.new?vs=before").words
    assert "Beside" not in browser.get("/metrics?by=72&vs=before").words, "nothing is kept of three days before"
    told = json.loads(browser.get("/api/v1/metrics?vs=before").text)
    assert {one["name"]: one["processed"] for one in told["before"]} == {"shop.sync": 100, "shop.gone": 1}
    assert json.loads(browser.get("/api/v1/metrics?hours=72&vs=before").text)["before"] is None
    assert json.loads(browser.get("/api/v1/metrics").text)["before"] is None


def test_classes_are_compared_line_by_line(app: App) -> None:
    """Of two to five the mean times are drawn; a minute without a run that ended well is a gap."""
    write(app, {"shop.a": ([1000.0] * 2, 0), "shop.b": ([500.0], 0), "mail": ([], 3)}, 10)
    write(app, {"shop.a": ([2000.0], 0)}, 9)
    write(app, {"shop.a": ([1000.0], 0), "other": ([1.0], 0)}, 3)
    browser = Browser(app.console())
    shown = browser.get("/metrics?q=SHOP.A,+shop.b,")
    assert "2 jobs in 1 hour" in shown.words
    assert "at most 2.0 s now shop.a 1.2 s shop.b 500 ms" in shown.words
    first, second = re.findall(r'<path class="line l[12]" d="([^"]+)"><title>', shown.text)
    assert re.fullmatch(r"M\d+ 38(\.0)?L\d+ 2(\.0)?M\d+ 38(\.0)?h6", first), first
    assert re.fullmatch(r"M\d+ 56(\.0)?h6", second), second
    for query in ("shop.a", "", "nothing,none", "mail,other"):
        drawn = 'class="line l2"' in browser.get(f"/metrics?q={query}").text
        assert drawn == (query == ""), "four classes, or less than two that ended well"
    write(app, {f"more.{n}": ([5.0], 0) for n in range(3)}, 5)
    assert 'class="line' not in browser.get("/metrics").text, "more than five"


def test_very_many_classes_with_long_names(app: App) -> None:
    for part in range(4):
        write(
            app, {f"job{part}{number}{'Wild' * 40}{XSS}": ([float(number)] * 3, 1) for number in range(100)}, 3 * part
        )
    browser = Browser(app.console())
    for path in ("/metrics", "/metrics?by=72", "/metrics?p=16"):
        page = browser.get(path)
        assert page.status == 200
        assert len(page.body) < 60_000
        assert "<script>alert" not in page.text
        assert not re.search(r'\son\w+="|style="', page.text)
        assert "400 jobs" in page.words
    assert "There are no more" in browser.get("/metrics?p=17").words
    assert (
        "Nothing ran" in Browser(App(redis_url=app.config.redis_url, namespace="other").console()).get("/metrics").words
    )


@pytest.mark.parametrize(
    "path",
    [
        *("/metrics", "/metrics?by=72", "/metrics?vs=before", "/metrics?by=24&vs=before"),
        *("/metrics/shop.sync", "/metrics/shop.sync?by=8", "/metrics/shop.sync?vs=before"),
    ],
)
def test_three_round_trips(app: App, browser: Browser, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    write(app, {f"job{number}": ([5.0], 1) for number in range(100)}, 1)
    calls, execute = list[str](), app.connections.run

    def counted(call: Any) -> Any:
        calls.append(call.name)
        return execute(call)

    monkeypatch.setattr(app.connections, "run", counted)
    assert browser.get(path).status == 200
    assert len(calls) <= 3, calls
