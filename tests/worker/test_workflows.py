"""Workflows by a real worker: order, results, policies, failures, cancel, retry, steps that add steps."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from redis import Redis

from henchman import (
    App,
    ArgumentError,
    BatchClosed,
    BatchError,
    DefinitionError,
    Failure,
    JobFailed,
    ResultError,
    chain,
    current_job,
    group,
)
from henchman.batch.auditor import APART, STILL, Auditor
from henchman.batch.batch import BatchStatus
from henchman.batch.workflow import Workflow
from henchman.store.call import command
from henchman.work.steps import Step
from support.worker import in_flight, until, working


class Shop:
    """Jobs of an order, and the order in which they ran: "charge 17" at the beginning, "/charge 17" at the end."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.ran: list[str] = []
        self.fails: set[str] = set()
        self.broken: set[str] = set()
        self.called: list[tuple[str, str]] = []
        self.callbacks: dict[str, Any] = {
            f"on_{which}": self._callback(f"on_{which}") for which in ("complete", "success", "death")
        }

        @app.job(name="shop.work", retry=0)
        def work(what: str) -> str:
            self.ran.append(what)
            if what in self.broken:
                raise OSError("broken")
            if what in self.fails:
                raise Failure("the answer is no")
            self.ran.append(f"/{what}")
            return what.upper()

        @app.job(name="shop.collect", retry=0)
        def collect() -> dict[str, Any]:
            self.ran.append("collect")
            return dict(current_job().results)

        self.work, self.collect = work, collect

    def _callback(self, which: str) -> Any:
        def callback(batch: str) -> None:
            self.called.append((which, batch))

        return self.app.job(name=f"shop.{which}", queue="calls")(callback)

    def happened(self, *before: str) -> None:
        """These came in this order."""
        places = [self.ran.index(one) for one in before]
        assert places == sorted(places), self.ran


@pytest.fixture
def shop(app: App) -> Shop:
    return Shop(app)


def complete(flow: Workflow, generation: int = 1) -> BatchStatus:
    """Wait until it is."""

    def look() -> BatchStatus | None:
        status = flow.status()
        return status if status.state == "complete" and status.generation == generation else None

    status = until(look, "the workflow is complete")
    until(lambda: not flow._runtime.connections.run(command("LLEN", "hm:decide")), "nothing is left to decide")
    return status


def counts(status: BatchStatus) -> dict[str, int]:
    return {name: count for name, count in status.counts.items() if count}


def nothing_waits(redis: Redis, flow: Workflow) -> None:
    """What a workflow leaves behind when it is complete: nothing that waits, and nothing broken."""
    until(lambda: not in_flight(redis), "nothing is in flight")
    assert redis.lrange("hm:broken", 0, -1) == []
    assert not redis.exists("hm:parked")
    assert list(redis.scan_iter("hm:await:*")) == list(redis.scan_iter("hm:needs:*")) == []
    for what in ("jobs", "parked"):
        assert not redis.exists(f"hm:batch:{flow.id}:{what}")
    assert redis.ttl(f"hm:batch:{flow.id}:names") > 0, "the names go with the workflow"


def test_a_diamond_runs_in_order_and_hands_on_what_it_returned(app: App, redis: Redis, shop: Shop) -> None:
    work = shop.work
    with app.workflow("Order 17", tags=["t"], **shop.callbacks) as flow:
        pay = flow.add(work.call("charge"), name="pay")
        label = flow.add(work.call("print"), name="label", after=pay)
        pick = flow.add(work.call("pick"), name="pick", after=[pay])
        flow.add(shop.collect.call(), after=[label, "pick"], results=True)
        assert redis.llen("queue:default") == 0
    assert isinstance(pay, Step)
    assert (pay.name, pay.job, pay.workflow, pick.name) == ("pay", "shop.work", flow.id, "pick")
    assert counts(flow.status()) == {"enqueued": 1, "blocked": 3}
    with working(app):
        status = complete(flow)
        until(lambda: len(shop.called) == 2, "callbacks ran")
    assert counts(status) == {"finished": 4}
    assert (status.description, status.tags, status.well) == ("Order 17", ["t"], True)
    shop.happened("charge", "/charge", "print", "/print", "collect")
    shop.happened("/charge", "pick", "/pick", "collect")
    rows = list(flow.results())
    assert [one.jid for one in rows] == [pay.jid, label.jid, pick.jid, rows[3].jid]
    assert rows[3].value == {"label": "PRINT", "pick": "PICK"}, "what it did not wait for it does not get"
    assert sorted(shop.called) == [("on_complete", flow.id), ("on_success", flow.id)]
    nothing_waits(redis, flow)


def test_a_chain_with_groups_in_it(app: App, redis: Redis, shop: Shop) -> None:
    work = shop.work
    inner = chain(work.call("b1"), work.call("b2"))
    flow = chain(work.call("a"), group(inner, work.call("c"), group(work.call("d"))), shop.collect.call()).enqueue(
        on_success=shop.callbacks["on_success"]
    )
    with working(app):
        complete(flow)
        until(lambda: shop.called, "the callback ran")
    for one in ("b2", "c", "d"):
        shop.happened("/a", one, "collect")
    shop.happened("/b1", "b2")
    assert [one.value for one in flow.results()][-1] == {"work-3": "B2", "work-4": "C", "work-5": "D"}
    assert flow.status().description == "chain(work, group(chain(work, work), work, group(work)), collect)"
    nothing_waits(redis, flow)


def test_awaited(app: App, shop: Shop) -> None:
    seen: list[Any] = []

    @app.job(name="reads")
    async def reads() -> list[Any]:
        results = current_job().results
        seen.append([results.of(shop.work), list(results), len(results)])
        return seen

    async def push() -> Workflow:
        async with app.workflow("awaited") as flow:
            flow.add(reads.call(), after=flow.add(shop.work.call("a")), results=True)
        other = await chain(shop.work.call("b"), reads.call()).aenqueue("by itself")
        assert other.status().description == "by itself"
        opened = await app.workflow("opened").aopen()
        await opened.aadd(shop.work.call("c"))
        await opened.aclose()
        await app.aconnections.close()
        return flow

    flow = asyncio.run(push())
    with working(app):
        complete(flow)
        until(lambda: len(seen) == 2 and "/c" in shop.ran, "both chains ran")
    assert sorted(seen) == [["A", ["work"], 1], ["B", ["work"], 1]]


@dataclass
class Price:
    sku: str
    amount: Decimal


def test_results_are_rebuilt_as_they_are_annotated(app: App) -> None:
    read: dict[str, Any] = {}

    @app.job(name="shop.price")
    def price(sku: str) -> Price:
        return Price(sku, Decimal("9.90"))

    @app.job(name="shop.nothing")
    async def nothing() -> None:
        return None

    @app.job(name="shop.reads")
    def reads(cheap: str) -> None:
        results = current_job().results
        read["all"] = results.all(price)
        read["of"] = results.of(nothing)
        read["name"] = results["cheap"]
        with pytest.raises(ArgumentError, match=r"2 steps run shop\.price: take results\.all\(price\)"):
            results.of(price)
        with pytest.raises(KeyError, match=r"no step 'cheep'; did you mean 'cheap'"):
            results["cheep"]
        with pytest.raises(ArgumentError, match=r"no step that runs shop\.reads.*it takes those of cheap"):
            results.of(reads)
        read["get"] = results.get("no such")

    @app.job(name="shop.takes_none")
    def takes_none() -> None:
        results = current_job().results
        with pytest.raises(KeyError, match=r"it takes none; say .*results=True"):
            results["cheap"]
        read["none"] = len(results)

    with app.workflow() as flow:
        cheap = flow.add(price.call("a"), name="cheap")
        steps = [cheap, flow.add(price.call("b")), flow.add(nothing.call())]
        flow.add(reads.using(queue="default").call("a"), after=steps, results=True)
        flow.add(takes_none.call(), after=cheap)
    with working(app):
        status = complete(flow)
    assert counts(status) == {"finished": 5}, status.reasons
    assert read == {
        "all": [Price("a", Decimal("9.90")), Price("b", Decimal("9.90"))],
        "of": None,
        "name": Price("a", Decimal("9.90")),
        "get": None,
        "none": 0,
    }


def test_a_result_of_65_kb_is_no_result_and_says_so_to_who_reads(app: App, redis: Redis) -> None:
    said: list[str] = []

    @app.job(name="large")
    def large(size: int) -> str:
        return "x" * size

    @app.job(name="reads", retry=0)
    def reads() -> int:
        results = current_job().results
        assert len(results["fits"]) == 65_534
        with pytest.raises(ResultError) as caught:
            results["large"]
        said.append(str(caught.value))
        return 1

    with app.workflow() as flow:
        fits, too_large = flow.add(large.call(65_534), name="fits"), flow.add(large.call(65_535))
        flow.add(reads.call(), after=[fits, too_large], results=True)
    with working(app):
        status = complete(flow)
    assert counts(status) == {"finished": 3}
    assert said == [
        f"step large (job {too_large.jid}) has no result: it returned 65,537 bytes of JSON, and a batch keeps at most "
        "65,536 of a job"
    ]


POLICIES = [
    ("fails", None, None, "cancelled"),
    ("fails", "cancel", None, "cancelled"),
    ("fails", "run", None, "finished"),
    ("fails", "fail", None, "error"),
    ("fails", "wait", None, "blocked"),
    ("broken", None, None, "blocked"),
    ("broken", "wait", None, "blocked"),
    ("broken", "run", None, "finished"),
    ("broken", None, "run", "finished"),
    ("broken", "fail", None, "error"),
    ("broken", None, "cancel", "cancelled"),
]


@pytest.mark.parametrize(("how", "on_failed", "on_dead", "becomes"), POLICIES)
def test_what_becomes_of_a_step_when_one_before_it_does_not_succeed(
    app: App, redis: Redis, shop: Shop, how: str, on_failed: Any, on_dead: Any, becomes: str
) -> None:
    getattr(shop, how).add("a")
    with app.workflow(**shop.callbacks) as flow:
        first = flow.add(shop.work.call("a"))
        then = flow.add(shop.work.call("b"), after=first, on_failed=on_failed, on_dead=on_dead)
        flow.add(shop.work.call("c"), after=then, on_failed=on_failed, on_dead=on_dead)
        flow.add(shop.work.call("d"))
    ended = "failed" if how == "fails" else "error"
    with working(app):
        if becomes == "blocked":
            until(lambda: flow.status().counts[ended] == flow.status().counts["finished"] == 1, "both others ended")
            status = flow.status()
            assert (status.state, status.counts["blocked"]) == ("closed", 2)
            assert redis.hlen("hm:parked") == 2
            flow.cancel()
            becomes = "cancelled"
        status = complete(flow)
        until(lambda: ("on_complete", flow.id) in shop.called, "the callback ran")
    after = ["finished", "finished"] if becomes == "finished" else [becomes, becomes]
    if becomes == "error" and on_failed == "fail":
        after = ["error", "error"]  # it is dead by policy, and so is what waits for it
    assert [one.status for one in flow.results()] == [ended, *after, "finished"]
    assert shop.ran.count("b") == shop.ran.count("c") == int(becomes == "finished")
    assert ("on_success", flow.id) not in shop.called
    assert status.done == status.total == 4
    nothing_waits(redis, flow)


def test_a_step_that_runs_although_knows_how_the_others_ended(app: App, shop: Shop) -> None:
    seen: dict[str, Any] = {}

    @app.job(name="refund")
    def refund() -> None:
        job = current_job()
        seen["needs"] = dict(job.needs)  # type: ignore[attr-defined]
        with pytest.raises(JobFailed, match="the answer is no"):
            job.results["ship"]
        seen["pay"] = job.results["pay"]

    shop.fails.add("ship")
    with app.workflow() as flow:
        pay = flow.add(shop.work.call("charge"), name="pay")
        ship = flow.add(shop.work.call("ship"), name="ship", after=pay)
        flow.add(refund.call(), after=[pay, ship], on_failed="run", results=True)
    with working(app):
        status = complete(flow)
    assert counts(status) == {"finished": 2, "failed": 1}, status.reasons
    assert seen == {"needs": {"pay": "finished", "ship": "over"}, "pay": "CHARGE"}


def test_a_dead_step_that_is_retried_lets_the_others_go_on(app: App, redis: Redis, shop: Shop) -> None:
    shop.broken.add("a")
    with app.workflow(**shop.callbacks) as flow:
        first = flow.add(shop.work.call("a"))
        flow.add(shop.collect.call(), after=[first, flow.add(shop.work.call("b"))], results=True)
    with working(app):
        until(lambda: flow.status().counts["error"] == 1 and "/b" in shop.ran, "it is dead, and b has ended")
        until(lambda: ("on_death", flow.id) in shop.called, "it is told of")
        assert counts(flow.status()) == {"error": 1, "finished": 1, "blocked": 1}
        shop.broken.clear()
        assert flow.retry() == 1
        status = complete(flow)
        until(lambda: len(shop.called) == 3, "callbacks ran")
    assert counts(status) == {"finished": 3}
    assert list(flow.results())[-1].value == {"work": "A", "work-2": "B"}
    assert sorted(which for which, _ in shop.called) == ["on_complete", "on_death", "on_success"]
    nothing_waits(redis, flow)


def test_a_step_that_fails_and_is_tried_again_by_itself_decides_nothing(app: App, redis: Redis, shop: Shop) -> None:
    tried: list[int] = []

    @app.job(name="flaky", retry=2, retry_in=0)
    def flaky() -> int:
        tried.append(len(tried))
        if len(tried) < 3:
            raise OSError("not yet")
        return 7

    flow = chain(flaky.call(), shop.collect.call()).enqueue()
    with working(app):
        status = complete(flow)
    assert counts(status) == {"finished": 2}
    assert list(flow.results())[-1].value == {"flaky": 7}
    nothing_waits(redis, flow)


def test_cancel_in_the_middle_ends_what_runs_and_what_waits(app: App, redis: Redis, shop: Shop) -> None:
    begun = threading.Event()

    @app.job(name="slow")
    async def slow() -> None:
        begun.set()
        await asyncio.sleep(60)

    with app.workflow(**shop.callbacks) as flow:
        last = flow.add(slow.call(), after=flow.add(shop.work.call("a")))
        for _ in range(5):
            last = flow.add(shop.work.call("never"), after=last, on_failed="run")
    with working(app):
        assert begun.wait(30)
        flow.cancel()
        status = complete(flow)
        until(lambda: ("on_complete", flow.id) in shop.called, "the callback ran")
    assert counts(status) == {"finished": 1, "cancelled": 6}
    assert status.why == "cancelled"
    assert shop.ran == ["a", "/a"]
    nothing_waits(redis, flow)


def test_a_step_that_is_lost_is_over_for_those_that_wait_for_it(app: App, redis: Redis, shop: Shop) -> None:
    now = [0.0]
    auditor = Auditor(app, monotonic=lambda: now[0])
    with app.workflow() as flow:
        first = flow.add(shop.work.call("a"))
        flow.add(shop.work.call("b"), after=first, on_failed="run")
        flow.add(shop.work.call("c"), after=first)
    assert redis.delete("queue:default")
    for later in (0.0, STILL + 1, APART + 1):
        now[0] += later
        done = auditor.audit()
    assert done.settled == 1
    with working(app):
        status = complete(flow)
    assert counts(status) == {"error": 1, "finished": 1, "cancelled": 1}
    assert shop.ran == ["b", "/b"]
    nothing_waits(redis, flow)


def test_a_step_whose_key_is_taken_is_no_member_and_those_behind_it_are_decided(
    app: App, redis: Redis, shop: Shop
) -> None:
    @app.job(name="pay", key="order", once=True)
    def pay(order: str) -> str:
        if order == "bad":
            raise Failure("no")
        return order

    for order in ("17", "bad"):
        pay.enqueue(order)
    with working(app):
        until(lambda: int(redis.get("stat:processed") or 0) == 2, "both have run")  # type: ignore[arg-type]
        pay.using(delay=3600).enqueue("late")
        flows = []
        for order in ("17", "bad", "late", "18"):
            with app.workflow(order) as flow:
                flow.add(shop.work.call(f"ship {order}"), after=flow.add(pay.call(order)))
            flows.append(flow)
        ended = [counts(complete(flow)) for flow in flows]
    assert ended == [{"finished": 1}, {"cancelled": 1}, {"cancelled": 1}, {"finished": 2}]
    assert [one for one in shop.ran if one[0] != "/"] == ["ship 17", "ship 18"]
    for flow in flows:
        nothing_waits(redis, flow)


def test_a_thousand_steps(app: App, redis: Redis, shop: Shop) -> None:
    with app.workflow() as flow:
        first = flow.add(shop.work.call("first"))
        layers = [[flow.add(shop.work.call(f"a{n}"), after=first) for n in range(498)]]
        layers.append([flow.add(shop.work.call(f"b{n}"), after=one) for n, one in enumerate(layers[0])])
        flow.add(shop.collect.using(queue="calls").call(), after=layers[1], results=True)
        flow.add(shop.work.using(queue="calls").call("last"), after=[*layers[0], *layers[1]])
        flow.add(shop.work.call("lone"))
    assert flow.status().total == 1000
    with working(app):
        status = complete(flow)
    assert counts(status) == {"finished": 1000}
    for n in range(498):
        shop.happened("/first", f"/a{n}", f"b{n}")
    assert shop.ran.index("last") > max(shop.ran.index(f"/b{n}") for n in range(498))
    assert list(flow.results())[-3].value == {f"work-{n + 500}": f"B{n}" for n in range(498)}
    nothing_waits(redis, flow)


# --- steps that add steps ---------------------------------------------------------------------------------------------


def test_a_running_step_adds_steps_that_wait_for_each_other(app: App, redis: Redis, shop: Shop) -> None:
    @app.job(name="shop.split")
    def split(parts: int) -> None:
        flow = current_job().batch
        added = [flow.add(shop.work.call(f"part {n}")) for n in range(parts)]
        assert [one.name for one in added] == ["split/work", "split/work-2", "split/work-3"]
        merged = flow.add(shop.collect.call(), after=added, results=True)
        flow.add(shop.collect.call(), name="both", after=[merged, "first"], results=True)
        with pytest.raises(DefinitionError, match="no such step"):
            flow.add(shop.work.call("no"), after="frist")
        with pytest.raises(DefinitionError, match="no such step"):
            flow.add(shop.work.call("no"), name="ring", after="ring")
        with pytest.raises(BatchError, match="has a step 'first' that runs another job"):
            flow.add(shop.work.call("no"), name="first")
        with pytest.raises(DefinitionError, match="has a step of that name"):
            flow.add(shop.work.call("no"), name="both")

    with app.workflow() as flow:
        first = flow.add(shop.work.call("first"), name="first")
        flow.add(split.call(3), after=first)
    with working(app):
        status = complete(flow)
    assert counts(status) == {"finished": 7}, status.reasons
    shop.happened("/part 0", "collect")
    parts = {"split/work": "PART 0", "split/work-2": "PART 1", "split/work-3": "PART 2"}
    assert list(flow.results())[-1].value == {"split/collect": parts, "first": "FIRST"}
    nothing_waits(redis, flow)


def test_a_step_that_runs_twice_adds_its_steps_once(app: App, redis: Redis, shop: Shop) -> None:
    runs: list[int] = []

    @app.job(name="shop.split", retry=3, retry_in=0)
    async def split() -> None:
        try:
            await added()
        finally:
            await app.aconnections.close()

    async def added() -> None:
        runs.append(len(runs))
        flow = current_job().batch
        first = await flow.aadd(shop.work.call("a"))
        if len(runs) == 1:
            raise OSError("in between")
        until(lambda: "/a" in shop.ran, "it has run and left the batch")
        if len(runs) == 2:
            await flow.aadd(shop.work.call("one"), name="late")
            flow._forget(1)  # as in the next run
            with pytest.raises(BatchError, match="'late' that runs another job, or has other arguments"):
                await flow.aadd(shop.work.call("another"), name="late")
        elif len(runs) == 3:
            await flow.aadd(chain(shop.work.call("b"), group(shop.work.call("c"), shop.work.call("d"))), after=first)
            return
        raise OSError("again")

    with app.workflow() as flow:
        flow.add(split.call())
    with working(app):
        status = complete(flow)
    assert counts(status) == {"finished": 6}, status.reasons
    assert sorted(one for one in shop.ran if one[0] != "/") == ["a", "b", "c", "d", "one"]
    shop.happened("/a", "b", "/b", "c")
    nothing_waits(redis, flow)


# --- what is refused, and what is left then ---------------------------------------------------------------------------


def no_trace(app: App, redis: Redis, flow: Workflow) -> None:
    """Nothing of it runs, then or ever."""
    status = flow.status()
    assert (status.state, status.why) == ("complete", "aborted")
    assert set(counts(status)) <= {"cancelled"}
    for key in ("queue:default", "schedule", "hm:parked"):
        assert not redis.exists(key)


def test_an_exception_in_the_block_leaves_nothing_that_runs(app: App, redis: Redis, shop: Shop) -> None:
    flow = app.workflow()

    def block() -> None:
        with flow:
            flow.add(shop.work.call("a"))
            shop.work.enqueue("in the block")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    no_trace(app, redis, flow)
    with pytest.raises(BatchClosed):
        shop.work.using(batch=flow).enqueue("late")


def test_a_ring_is_refused_and_named(app: App, redis: Redis, shop: Shop) -> None:
    flow = app.workflow()

    def block() -> None:
        with flow:
            flow.add(shop.work.call("a"), name="a")
            flow.add(shop.work.call("b"), name="b", after=["a", "c"])
            flow.add(shop.work.call("c"), name="c", after="b")

    with pytest.raises(DefinitionError, match=r"in a ring, and none could ever start: (b → c → b|c → b → c)"):
        block()
    no_trace(app, redis, flow)
    opened = app.workflow().open()
    opened.add(shop.work.call("a"), after="aa")
    with pytest.raises(DefinitionError, match="step work: after='aa': this workflow has no such step"):
        opened.close()
    no_trace(app, redis, opened)

    async def awaited() -> Workflow:
        flow = app.workflow()
        with pytest.raises(DefinitionError, match="a → a"):
            async with flow:
                flow.add(shop.work.call("a"), name="a", after="a")
        await app.aconnections.close()
        return flow

    no_trace(app, redis, asyncio.run(awaited()))


def test_what_cannot_be_a_step(app: App, redis: Redis, shop: Shop) -> None:
    work = shop.work
    other = app.workflow()
    with pytest.raises(BatchError, match="is not open yet"):
        other.add(work.call("a"))
    with app.workflow() as flow, other:
        stranger = other.add(work.call("x"))
        first = flow.add(work.call("a"), name="a")
        for wrong, said in (
            (lambda: flow.add(work), "give a job with its arguments, as in"),
            (lambda: flow.add(work.call(object())), "what is an object"),
            (lambda: flow.add(work.call("b"), name="a"), "has a step of that name"),
            (lambda: flow.add(work.call("b"), name=""), "a step is named by a printable text"),
            (lambda: flow.add(work.call("b"), name="x" * 201), "up to 200 characters"),
            (lambda: flow.add(work.call("b"), after=stranger), "is a step of another workflow"),
            (lambda: flow.add(work.call("b"), after=5), "give a step, or several"),
            (lambda: flow.add(work.call("b"), after=[5]), "give a step, as flow.add"),
            (lambda: flow.add(work.call("b"), results=True), "say after="),
            (lambda: flow.add(work.call("b"), on_dead="run"), "say after="),
            (lambda: flow.add(work.call("b"), after=first, on_failed="stop"), "give 'wait', 'run', 'fail' or 'cancel'"),
            (lambda: flow.add(work.call("b"), after=first, results="yes"), "give True or False"),
            (lambda: flow.add(work.using(batch=None).call("b")), "a step is part of its workflow"),
            (chain, r"chain\(\) is empty"),
            (lambda: group(work), r"group\(.*\): give job.call"),
            (lambda: chain(work.call("b"), "c"), r"chain\('c'\): give job.call"),
            (lambda: app.workflow(on_complet=work), "no option on_complet=; did you mean 'on_complete'"),
            (lambda: app.workflow(atomic=True), "no option atomic="),
        ):
            with pytest.raises((ArgumentError, DefinitionError), match=said):
                wrong()  # type: ignore[no-untyped-call]
        assert flow.add(work.call("b")).name == "work", "what was refused took no name"
    assert [one.job for one in flow.results()] == ["shop.work"] * 2
    with pytest.raises(BatchClosed, match="takes no more steps"):
        flow.add(work.call("late"))


def test_a_link_that_stops_a_step_stops_the_workflow(app: App, redis: Redis, shop: Shop) -> None:
    def stops(job: dict[str, Any], following: Any) -> None:
        if job.get("args") != ["b"]:
            following()

    app.client_middleware.add(stops)
    flow = app.workflow().open()
    flow.add(shop.work.call("a"))
    flow.add(shop.work.call("b"))
    with pytest.raises(BatchError, match="a client middleware stopped step work-2"):
        flow.close()
    no_trace(app, redis, flow)


def test_options_of_a_push_are_those_of_the_step(app: App, redis: Redis, shop: Shop) -> None:
    with app.workflow(expires=3600) as flow:
        first = flow.add(shop.work.using(delay=3600, tags=["later"]).call("a"))
        flow.add(shop.work.using(queue="mail", retry=7).call("b"))
        flow.add(shop.work.call("c"), after=first)
    [later] = redis.zrange("schedule", 0, -1)
    [mail] = redis.lrange("queue:mail", 0, -1)
    assert b'"tags":["later"]' in later
    assert b'"retry":7' in mail
    assert b'"batch_expires":' in mail
    assert b'"enqueued_at":' in mail
    assert counts(flow.status()) == {"scheduled": 1, "enqueued": 1, "blocked": 1}


def test_a_step_that_is_let_go_because_the_one_before_is_a_duplicate_is_counted_so(
    app: App, redis: Redis, shop: Shop
) -> None:
    @app.job(name="pay", key="order", once=True)
    def pay(order: str) -> str:
        return order

    pay.enqueue("17")
    with working(app):
        until(lambda: int(redis.get("stat:processed") or 0) == 1, "it has run")  # type: ignore[arg-type]
    with app.workflow() as flow:
        flow.add(shop.work.call("ship"), after="pay")
        flow.add(pay.call("17"))
    assert redis.llen("queue:default") == 1
    assert counts(flow.status()) == {"enqueued": 1}
    with working(app):
        assert counts(complete(flow)) == {"finished": 1}
    nothing_waits(redis, flow)


def test_a_step_that_was_made_to_fail_waits_again_when_all_are_retried(app: App, redis: Redis, shop: Shop) -> None:
    """Whatever ran before is not waited for; what is retried with it is."""
    needs: list[dict[str, str]] = []

    @app.job(name="tell", retry=0)
    def tell() -> None:
        shop.ran.append("tell")
        needs.append(dict(current_job().needs))

    shop.broken.add("a")
    shop.fails.add("no")
    with app.workflow() as flow:
        first, fine = flow.add(shop.work.call("a"), name="a"), flow.add(shop.work.call("b"), name="b")
        refused = flow.add(shop.work.call("no"), name="no")
        second = flow.add(tell.call(), name="second", after=[first, fine, refused], on_failed="fail", on_dead="fail")
        flow.add(tell.call(), after=[second], on_dead="fail")
    with working(app):
        until(lambda: flow.status().counts["error"] == 3, "both behind it were made to fail")
    shop.broken.clear()
    shop.ran.clear()
    assert flow.retry() == 3
    assert counts(flow.status()) == {"enqueued": 1, "blocked": 2, "finished": 1, "failed": 1}
    with working(app):
        assert counts(complete(flow, generation=2)) == {"finished": 4, "failed": 1}
    assert shop.ran == ["a", "/a", "tell", "tell"]
    assert needs == [{"a": "finished", "b": "finished", "no": "over"}, {"second": "finished"}]
    nothing_waits(redis, flow)
