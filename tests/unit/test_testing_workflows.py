"""Workflows in ``fake`` and ``inline``: steps wait for each other, take results and end as on a server."""

from __future__ import annotations

from typing import Any

import pytest

from henchman import App, BatchError, DefinitionError, Failure, chain, current_job, group, testing


class Shop:
    """An app, and what its jobs did."""

    def __init__(self) -> None:
        self.app = App(redis_url="redis://nobody.invalid:1")
        self.ran: list[str] = []
        self.fails: set[str] = set()
        self.broken: set[str] = set()

        @self.app.job(name="shop.work", retry=0)
        def work(what: str) -> str:
            self.ran.append(what)
            if what in self.broken:
                raise OSError("broken")
            if what in self.fails:
                raise Failure("the answer is no")
            return what.upper()

        @self.app.job(name="shop.collect", retry=0)
        def collect() -> dict[str, Any]:
            self.ran.append(f"collect {dict(current_job().results)} {dict(current_job().needs)}")
            return dict(current_job().results)

        @self.app.job(name="shop.split", retry=0)
        def split() -> None:
            flow = current_job().batch
            flow.add(collect.call(), after=[flow.add(work.call(one)) for one in "xy"], results=True)
            with pytest.raises(BatchError, match="has a step 'first' that runs another job"):
                flow.add(work.call("z"), name="first")
            with pytest.raises(DefinitionError, match="no such step"):
                flow.add(work.call("z"), after="nobody")

        self.done = self.app.job(name="shop.done")(lambda batch: self.ran.append("done"))
        self.work, self.collect, self.split = work, collect, split


@pytest.fixture
def shop() -> Shop:
    return Shop()


def diamond(shop: Shop, **said: Any) -> Any:
    with shop.app.workflow("diamond", on_success=shop.done) as flow:
        last = flow.add(shop.collect.call(), after=["a", "b"], results=True, **said)
        first = flow.add(shop.work.call("first"), name="first")
        flow.add(shop.work.call("a"), name="a", after=first)
        flow.add(shop.work.call("b"), name="b", after=first)
    assert last.name == "collect"
    return flow


COLLECTED = "collect {'a': 'A', 'b': 'B'} {'a': 'finished', 'b': 'finished'}"


def test_a_fake_runs_steps_in_their_order(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        flow = diamond(shop)
        assert flow.status().counts["blocked"] == 3
        jobs.drain_all()
        assert shop.ran == ["first", "a", "b", COLLECTED, "done"]
        assert [one.value for one in flow.results()] == [{"a": "A", "b": "B"}, "FIRST", "A", "B"]
        assert flow.status().well


def test_inline_runs_steps_when_the_block_ends(shop: Shop) -> None:
    with testing.inline(shop.app):
        flow = diamond(shop)
        assert sorted(shop.ran) == sorted(["first", "a", "b", COLLECTED, "done"])
        assert flow.status().state == "complete"


@pytest.mark.parametrize("how", ["fails", "broken"])
def test_a_fake_decides_as_a_server(shop: Shop, how: str) -> None:
    getattr(shop, how).add("a")
    with testing.fake(shop.app) as jobs:
        flow = diamond(shop)
        jobs.drain_all()
        assert shop.ran == ["first", "a", "b"]
        assert flow.status().state == ("complete" if how == "fails" else "closed")
        assert flow.status().counts["cancelled" if how == "fails" else "blocked"] == 1


def test_a_step_that_runs_although(shop: Shop) -> None:
    shop.broken.add("a")
    with testing.fake(shop.app) as jobs:
        with shop.app.workflow() as flow:
            first = flow.add(shop.work.call("a"), name="a")
            flow.add(shop.work.call("b"), after=first, on_dead="run")
        jobs.drain_all()
        assert shop.ran == ["a", "b"]
        assert flow.status().state == "complete"


def test_a_step_adds_steps_in_a_fake(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        with shop.app.workflow() as flow:
            flow.add(chain(group(shop.split.call())), after=flow.add(shop.work.call("f"), name="first"))
        jobs.drain_all(strict=True)
        assert flow.status().counts["finished"] == 5
    ended = dict.fromkeys(("split/work", "split/work-2"), "finished")
    assert shop.ran == ["f", "x", "y", f"collect {{'split/work': 'X', 'split/work-2': 'Y'}} {ended}"]


def test_a_ring_runs_nothing_in_a_fake(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        flow = shop.app.workflow().open()
        flow.add(shop.work.call("a"), name="a", after="b")
        flow.add(shop.work.call("b"), name="b", after="a")
        with pytest.raises(DefinitionError, match="wait for each other in a ring"):
            flow.close()
        jobs.drain_all()
    assert shop.ran == []
