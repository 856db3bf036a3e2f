"""The examples of the pages on ordered queues on a real server with a real worker; a drain waits for ordered queues."""

from __future__ import annotations

import ast
import re
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from henchman import App, testing
from henchman.ordered.definition import KNOWN
from support.store import Store

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "ordered.md").read_text(encoding="utf-8")
OPTIONS = (DOCS / "options.md").read_text(encoding="utf-8")


@pytest.fixture
def page(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The names that the page's examples define, all run in one module."""
    monkeypatch.setenv("HENCHMAN_REDIS_URL", redis_url)
    monkeypatch.chdir(tmp_path)
    module = ModuleType("prices")  # the page's first file: later blocks import from it
    monkeypatch.setitem(sys.modules, "prices", module)
    names = vars(module)
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
        exec(compile(ast.parse(block), "docs/ordered.md", "exec"), names)  # noqa: S102 - our own page
    return SimpleNamespace(**names)


def test_the_examples_run(
    page: SimpleNamespace, store: Store, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page.send_prices.push_many([("a", 5), ("b", 6), ("c", 7), ("e", 8)])  # d would wait for its retry
    page.write_stock.push("a", 5)
    assert page.apply.push({"sku": "42", "version": 7}).created is True
    assert page.apply.push({"sku": "42", "version": 8}).created is False
    with testing.worker(page.app, url=redis_url) as worker:
        worker.drain()
    assert worker.errors == []
    shown = sorted(capsys.readouterr().out.splitlines())
    merged = "apply {'42': [{'sku': '42', 'version': 7}, {'sku': '42', 'version': 8}]}"
    assert shown == ["42 now costs 7", "43 now costs 1", "a is sold for 5", merged, "e is sold for 8"]
    with closing(sqlite3.connect("stock.sqlite")) as db:
        [(sku, amount, token)] = db.execute("SELECT * FROM stock").fetchall()
        assert (sku, amount) == ("a", 5)
        assert token > 0
        db.execute(page.WRITE, ("a", 4, token - 1))
        assert db.execute("SELECT amount FROM stock").fetchall() == [(5,)], "an older token writes nothing"
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
