"""The examples of docs/batches.md on a real server, with a real worker and the history they speak of."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from henchman import App
from henchman.errors import HistoryAway
from support.worker import until, working

PAGE = (Path(__file__).parents[2] / "docs" / "batches.md").read_text(encoding="utf-8")


@pytest.fixture
def page(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The names that the page's examples define, all run in one module."""
    monkeypatch.setenv("HENCHMAN_REDIS_URL", redis_url)
    monkeypatch.setenv("HENCHMAN_DATABASE_URL", f"sqlite:///{tmp_path / 'history.sqlite'}")
    module = ModuleType("imports")  # the page's first file: later blocks import from it
    monkeypatch.setitem(sys.modules, "imports", module)
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/batches.md", "exec", dont_inherit=True), vars(module))  # noqa: S102 - our own page
    return SimpleNamespace(**vars(module))


def history_of(app: App, batch: str) -> list[Any]:
    """The events of a batch; none as long as the worker has not made the tables."""
    try:
        return list(app.batch_events(batch, status="failed"))
    except HistoryAway:
        return []


def test_the_three_cases(page: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    app = page.app
    rows = [{"sku": f"s{n}", "price": n - 2} for n in range(20)]
    said: list[str] = []

    def heard(line: str) -> bool:
        said.extend(capsys.readouterr().out.splitlines())
        return line in said

    with working(app):
        imported = page.import_products(rows)
        exported = page.export(["ann", "bob"])
        updated = page.update_all(["a", "bb"])
        until(lambda: heard("17 created, 3 refused"), "it is complete")
        until(lambda: heard("packed 7 jobs"), "the export was packed")
        assert sorted(one for one in said if "exported" in one) == [f"exported order {n}" for n in range(17, 22)]
        page.tell(imported)
        assert "failed: price -2.0 is not above zero" in capsys.readouterr().out
        until(lambda: history_of(app, imported), "history has begun")
        until(lambda: len(page.failed_rows(imported)) == 3, "history has them")
        assert page.failed_rows(imported)[0] == (["s0", -2.0], "price -2.0 is not above zero")
        shown = [("a", "finished", 3), ("bb", "finished", 0)]
        until(lambda: page.page(updated) == shown, "the seller sees it")
    assert app.batch_status(exported).called == {"success": [1]}
    assert said.count("packed 7 jobs") == 1
