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


class Shop:
    """What the page's jobs talk to."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.exported: list[int] = []
        self.mails: list[str] = []
        self.packed: list[str] = []

    def create(self, sku: str, price: float) -> None:
        if sku == "broken":
            raise ConnectionError("the shop does not answer")
        self.created.append(sku)

    def orders_of(self, customer: str) -> list[int]:
        return [len(customer), 2, 3]

    def export(self, order: int) -> None:
        self.exported.append(order)

    def update(self, sku: str) -> int:
        return len(sku)

    def price(self, sku: str) -> float:
        return 9.5

    def pack(self, batch: str) -> None:
        self.packed.append(batch)

    def send(self, text: str) -> None:
        self.mails.append(text)


@pytest.fixture
def page(redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The names that the page's examples define, all run in one module."""
    monkeypatch.setenv("HENCHMAN_REDIS_URL", redis_url)
    monkeypatch.setenv("HENCHMAN_DATABASE_URL", f"sqlite:///{tmp_path / 'history.sqlite'}")
    monkeypatch.setitem(sys.modules, "page_of_docs", ModuleType("page_of_docs"))
    shop = Shop()
    names: dict[str, Any] = {"__name__": "page_of_docs", "shop": shop, "mail": shop}
    patient = PAGE.replace("result(timeout=5)", "result(timeout=60)")  # a page need not think of a loaded machine
    for block in re.findall(r"^```python\n(.*?)^```", patient, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/batches.md", "exec", dont_inherit=True), names)  # noqa: S102 - our own page
    return SimpleNamespace(**names)


def history_of(app: App, batch: str) -> list[Any]:
    """The events of a batch; none as long as the worker has not made the tables."""
    try:
        return list(app.batch_events(batch, status="failed"))
    except HistoryAway:
        return []


def test_the_three_cases(page: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    app, shop = page.app, page.shop
    rows = [{"sku": f"s{n}", "price": n - 2} for n in range(20)]
    with working(app):
        imported = page.import_products(rows)
        exported = page.export(["ann", "bob"])
        updated = page.update_all(["a", "bb", "ccc"])
        until(lambda: shop.mails, "the import was told of")
        assert shop.mails == ["Import products.csv: 17 created, 3 not"]
        until(lambda: app.batch_status(exported).state == "complete", "everything was exported")
        assert sorted(shop.exported) == [2, 2, 3, 3, 3, 3]
        page.tell(imported)
        assert "failed: price -2.0 is not above zero" in capsys.readouterr().out
        until(lambda: history_of(app, imported), "history has begun")
        until(lambda: len(page.failed_rows(imported)) == 3, "history has them")
        assert page.failed_rows(imported)[0] == (["s0", -2.0], "price -2.0 is not above zero")
        shown = [("a", "finished", 1), ("bb", "finished", 2), ("ccc", "finished", 3)]
        until(lambda: page.page(updated) == shown, "the seller sees it")
        assert page.ask("sku") == 9.5
        until(lambda: shop.packed, "the export was packed")
    assert app.batch_status(exported).called == {"success": [1]}
    assert shop.packed == [exported]
