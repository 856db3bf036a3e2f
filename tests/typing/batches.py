"""Batches, results and what may be written around them. Read by mypy only."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from henchman import App
from henchman.batch.auditor import Audited
from henchman.batch.batch import Batch, BatchStatus, Reason
from henchman.client.push import Pushed

app = App()


@app.job(result_ttl=60, track=True)
def bill(order: int) -> str:
    return str(order)


@app.job
async def fetch(url: str) -> list[bytes]:
    return []


@app.job
def notify(batch: str) -> None: ...


with app.batch("Import", on_complete=notify, on_success="by.name", tags=["a"], expires=timedelta(hours=1)) as batch:
    assert_type(batch, Batch)
    assert_type(batch.id, str)
    assert_type(batch.add(bill, [(1,), bill.call(2), {"order": 3}]), Pushed)
    batch.add(bill, [1])  # expect-error: list-item
    batch.add(bill, [fetch.call("x")])  # expect-error: misc
    batch.add(5, [(1,)])  # expect-error: arg-type
    assert_type(batch.status(), BatchStatus)
    assert_type(batch.status().reasons, list[Reason])
    bill.using(batch=batch).enqueue(1)
    bill.using(batch=batch).enqueue("1")  # expect-error: arg-type

assert_type([one.value for one in batch.results(bill)], list[str])
assert_type([one.value for one in batch.results(fetch)], list[list[bytes]])
assert_type([one.value for one in batch.results(fetch.using(queue="x"))], list[list[bytes]])
assert_type([one.status for one in app.batch(results=True).results()], list[str])
batch.results(5)  # expect-error: call-overload
app.batch(results="yes")  # expect-error: arg-type

assert_type(bill.enqueue(1).result(), str)
assert_type(fetch.enqueue("x").result(timeout=5), list[bytes])
assert_type(app.result("jid", function=bill.function), object)  # expect-error: assert-type
assert_type(app.get_batch("id"), Batch)
assert_type(app.batch_status("id"), BatchStatus)
assert_type(app.audit(), Audited)
assert_type(app.batch("parent", parent=batch).open(), Batch)
app.batch(on_complete=notify.using(queue="calls"))
app.batch(on_complete=5)  # expect-error: arg-type
app.batch(description=None)  # expect-error: arg-type
app.batch("x", open_for="long")  # expect-error: arg-type
batch.retry(5)  # expect-error: arg-type


async def awaited() -> None:
    async with app.batch("x") as mine:
        assert_type(mine, Batch)
        assert_type(await mine.aadd(fetch, [("x",)]), Pushed)
        assert_type(await mine.aretry(), int)
        assert_type([one.value async for one in mine.aresults(bill)], list[str])
    assert_type(await app.abatch_status("id"), BatchStatus)
    assert_type(await bill.enqueue(1).aresult(), str)
    assert_type(await fetch.enqueue("x").aresult(), list[bytes])
