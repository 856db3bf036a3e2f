"""The examples of the pages on ordered queues on a real server with a real worker; a drain waits for ordered queues."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from henchman import App, testing
from henchman.ordered.definition import KNOWN
from support.store import Store

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "ordered.md").read_text(encoding="utf-8")
OPTIONS = (DOCS / "options.md").read_text(encoding="utf-8")


class Busy(Exception):
    """A shop that has no time."""


class NoSuchProduct(Exception):
    """A shop that has no such thing."""


class Shop:
    """What the page's handlers talk to."""

    Busy, NoSuchProduct = Busy, NoSuchProduct

    def __init__(self) -> None:
        self.updated: list[tuple[str, Any]] = []
        self.written: list[Any] = []

    def update(self, sku: str, change: Any) -> None:
        if change == "busy":
            raise Busy
        if change == "unknown":
            raise NoSuchProduct
        self.updated.append((sku, change))

    def execute(self, statement: str, values: Any) -> None:
        self.written.append(values)


@pytest.fixture
def page(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The names that the page's examples define, all run in one module."""
    monkeypatch.setenv("HENCHMAN_REDIS_URL", redis_url)
    module = ModuleType("prices")  # the page's first file: later blocks import from it
    monkeypatch.setitem(sys.modules, "prices", module)
    names = vars(module)
    names["shop"] = names["db"] = Shop()
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        exec(compile(ast.parse(block), "docs/ordered.md", "exec"), names)  # noqa: S102 - our own page
    return SimpleNamespace(**names)


def test_the_examples_run(
    page: SimpleNamespace, store: Store, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page.send_prices.push_many([("a", "dear"), ("b", "busy"), ("c", "unknown"), ("d", "cheap")])
    page.write_stock.push("a", 5)
    assert page.apply.push({"sku": "42", "version": 7}).created is False
    with testing.worker(page.app, url=redis_url) as worker:
        worker.drain()
    assert worker.errors == []
    assert sorted(capsys.readouterr().out.splitlines()) == ["42 now costs 7", "43 now costs 1"]
    assert sorted(page.shop.updated) == [("a", "dear"), ("d", "cheap")]
    [(amount, token, sku, fence)] = page.shop.written
    assert (amount, sku) == (5, "a")
    assert token == fence > 0
    left = {queue: store.members(store.keys.ordered(queue) + "due") for queue in page.app.registry.ordered()}
    assert left.pop("prices") == [b"b"], "it was put off"
    assert set(map(len, left.values())) == {0}
    page.app.close()


def test_the_page_tells_every_option() -> None:
    table = OPTIONS.partition("## Options of an ordered queue")[2]
    assert set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?)\|", table, re.MULTILINE)))) == {
        *KNOWN,
        "name",
    }


def test_a_drain_waits_for_ordered_queues(redis_url: str) -> None:
    app, seen = App(redis_url=redis_url), []

    @app.ordered(name="it", queue="q", retry_in=0.1)
    def it(claim: dict[str, list[int]]) -> None:
        seen.append(claim)
        if claim == {"a": [1]}:
            it.push("b", 2)

    with testing.worker(app, url=redis_url) as worker:
        it.push("a", 1)
        it.push("later", 3, delay=1000)
        worker.drain()
        assert seen == [{"a": [1]}, {"b": [2]}]
    app.close()
