"""Iterable jobs as a type checker sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from henchman import App, IterableJob
from henchman.iterators import over_csv

app = App()


@app.iterable(queue="imports", max_iteration_runtime=300)
class ImportFile(IterableJob[[str]]):
    def build(self, path: str, *, cursor: Any) -> Iterator[tuple[dict[str, str], Any]]:
        return over_csv(path, cursor=cursor)

    def each_iteration(self, item: dict[str, str], path: str) -> None: ...
    async def on_stop(self) -> None: ...


def rows(path: str, *, cursor: Any) -> Iterator[tuple[dict[str, str], Any]]:
    return over_csv(path, cursor=cursor)


@app.iterable(over=rows)
def import_row(row: dict[str, str], path: str) -> None: ...


jid: str = ImportFile.enqueue("products.csv").jid
ImportFile.enqueue(3)  # expect-error: arg-type
ImportFile.using(delay=60).enqueue("products.csv")
ImportFile.using(delay=60).enqueue()  # expect-error: call-arg
import_row.enqueue("products.csv")
app.batch("Imports").add(ImportFile, [("products.csv",)])
import_row.enqueue(3)  # expect-error: arg-type
