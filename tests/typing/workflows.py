"""Workflows, steps and results, and what may be written around them. Read by mypy only."""

from __future__ import annotations

from typing import Any, assert_type

from henchman import App, chain, current_job, group
from henchman.batch.workflow import JobChain, JobGroup, Workflow
from henchman.client.push import Pushed
from henchman.work.steps import Step, StepResults

app = App()


@app.job
def charge(order: str, cents: int) -> int:
    return cents


@app.job(name="fetch")
async def fetch(url: str) -> list[bytes]:
    return []


@app.job
def notify(batch: str) -> None: ...


with app.workflow("Order 17", on_complete=notify, on_success="by.name", tags=["a"], expires=3600) as flow:
    assert_type(flow, Workflow)
    pay = flow.add(charge.call("17", 990), name="pay")
    assert_type(pay, Step[int])
    page = flow.add(
        fetch.using(queue="web").call("x"), after=[pay, "pay"], results=True, on_failed="run", on_dead="wait"
    )
    assert_type(page, Step[list[bytes]])
    assert_type(flow.add(fetch.call("x"), after=pay), Step[list[bytes]])
    assert_type(flow.add(chain(charge.call("17", 1), group(fetch.call("x"))), after=page), list[Step[Any]])
    assert_type(flow.add(charge, [("17", 990)]), Pushed)
    flow.add(charge.call("17"))  # expect-error: call-arg
    flow.add(charge)  # expect-error: call-overload
    flow.add(charge.call("17", 1), on_failed="stop")  # expect-error: call-overload
    flow.add(charge.call("17", 1), after=5)  # expect-error: call-overload

assert_type(flow.id, str)
assert_type(app.workflow().open(), Workflow)
assert_type(chain(charge.call("17", 1)), JobChain)
assert_type(group(fetch.call("x"), chain(charge.call("17", 1))), JobGroup)
assert_type(chain(charge.call("17", 1)).enqueue("Order 17", on_death=notify), Workflow)
chain(charge)  # expect-error: arg-type
chain(charge.call("17", 1)).enqueue(on_complete=5)  # expect-error: arg-type
app.workflow("Order 17", atomic=True)  # expect-error: call-arg

results = current_job().results
assert_type(results, StepResults)
assert_type(results.of(charge), int)
assert_type(results.of(fetch), list[bytes])
assert_type(results.of(fetch.using(queue="x")), list[bytes])
assert_type(results.of(pay), int)
assert_type(results.all(fetch), list[list[bytes]])
assert_type(results.all(charge), list[int])
results.of(5)  # expect-error: call-overload


async def awaited() -> None:
    async with app.workflow() as flow:
        assert_type(await flow.aadd(fetch.call("x")), Step[list[bytes]])
    assert_type(await chain(fetch.call("x")).aenqueue(), Workflow)
