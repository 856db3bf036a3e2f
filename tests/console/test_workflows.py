"""Workflows: the edges that the server keeps, the order of steps, the picture, and the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest

from henchman import App, Failure, current_job
from henchman.batch.listing import WorkflowStep, workflow_steps
from henchman.console.graph import HEIGHT, WIDTH, draw
from henchman.store.call import command, run
from support.browsing import Browser
from support.worker import until, working


class Orders:
    """A workflow of an order whose parcel is refused, with a step that adds another one."""

    def __init__(self, app: App) -> None:
        self.app = app

        @app.job(name="orders.work", retry=0)
        def work(what: str) -> str:
            if what == "ship":
                raise RuntimeError("the <carrier> refuses")
            if what == "weigh":
                raise Failure("too heavy")
            return what.upper()

        @app.job(name="orders.more")
        def more() -> None:
            current_job().batch.add(work.call("late"), name="late", after=["fetch"])  # type: ignore[union-attr, call-overload]

        with app.workflow("Order <17>") as flow:
            fetch = flow.add(work.call("fetch"), name="fetch")
            pay = flow.add(work.call("pay"), name="pay", after=[fetch])
            weigh = flow.add(work.call("weigh"), name="weigh", after=[fetch])
            flow.add(work.call("insure"), name="insure", after=[weigh])
            ship = flow.add(work.call("ship"), name="ship", after=[pay])
            flow.add(work.call("tell"), name="tell the <customer>", after=[ship])
            flow.add(more.call(), name="more", after=[fetch])
        self.id = flow.id

    def run(self) -> None:
        """Until nothing goes on by itself."""
        with working(self.app):
            until(lambda: self.app.batch_status(self.id).done == 7, "all but one have ended")

    def steps(self) -> dict[str, WorkflowStep]:
        """By name."""
        found = run(self.app.connections, workflow_steps(self.app.keys, self.id, 50))
        return {one.name: one for one in found}


@pytest.fixture
def orders(app: App) -> Orders:
    return Orders(app)


def test_what_each_step_waits_for_and_how_it_is_stays_known_to_the_end(orders: Orders) -> None:
    before = orders.steps()
    assert before["fetch"].status == "enqueued"
    assert before["ship"].status == "blocked"
    assert before["ship"].after == ("pay",)
    orders.run()
    steps = orders.steps()
    assert {name: one.after for name, one in steps.items()} == {
        "fetch": (),
        "pay": ("fetch",),
        "weigh": ("fetch",),
        "insure": ("weigh",),
        "ship": ("pay",),
        "tell the <customer>": ("ship",),
        "more": ("fetch",),
        "late": ("fetch",),
    }
    assert {name: one.status for name, one in steps.items()} == {
        "fetch": "finished",
        "pay": "finished",
        "weigh": "failed",
        "insure": "cancelled",
        "ship": "error",
        "tell the <customer>": "blocked",
        "more": "finished",
        "late": "finished",
    }
    assert steps["pay"].result == b'"PAY"'
    assert steps["ship"].message == "the <carrier> refuses"
    places = {name: place for place, name in enumerate(steps)}
    assert all(places[before] < places[name] for name, one in steps.items() for before in one.after)


def test_what_is_kept_of_steps_goes_with_the_workflow(orders: Orders) -> None:
    orders.run()
    key = orders.app.keys.batch(orders.id) + ":after"
    ask = orders.app.connections.run
    assert ask(command("TTL", key, decode=int)) == -1
    orders.app.get_batch(orders.id).cancel()
    with working(orders.app):
        until(lambda: orders.app.batch_status(orders.id).state == "complete", "it is complete")
    assert ask(command("TTL", key, decode=int)) > 0


def test_a_batch_without_steps_keeps_nothing_of_steps(app: App) -> None:
    @app.job(name="plain")
    def plain() -> None: ...

    with app.batch("plain") as batch:
        plain.enqueue()
    assert run(app.connections, workflow_steps(app.keys, batch.id, 50)) == []
    assert app.connections.run(command("EXISTS", app.keys.batch(batch.id) + ":after", decode=int)) == 0


def test_the_page_draws_the_workflow_and_lists_its_steps(orders: Orders) -> None:
    orders.run()
    shown = Browser(orders.app.console()).get(f"/batches/{orders.id}")
    assert shown.status == 200
    assert "Workflow 8 steps" in shown.words
    assert shown.text.count('<path class="line') == 7
    assert len(re.findall(r'class="box', shown.text)) == 8
    assert "<customer>" not in shown.text
    assert "stuck: a job gave up" in shown.words
    assert "the <carrier> refuses" in shown.words
    assert '"PAY"' in shown.words
    steps = orders.steps()
    assert f"/jobs/{steps['ship'].jid}" in shown.links
    assert 'style="' not in shown.text
    assert len(shown.body) < 60_000


def test_the_list_of_batches_tells_workflows(orders: Orders) -> None:
    words = Browser(orders.app.console()).get("/batches?show=steps").words
    assert "Order <17> workflow, 7 steps" in words


# ---- the picture


def a_step(name: str, *after: str, job: str = "", status: str = "enqueued") -> WorkflowStep:
    return WorkflowStep(name, f"jid-{name}", job or name, after, status)


def checked(steps: Sequence[WorkflowStep]) -> dict[str, tuple[float, float]]:
    """The place of each box; no two overlap, everything is within, and every line goes from left to right."""
    drawing = draw(steps)
    assert drawing is not None
    boxes = drawing.boxes
    for n, one in enumerate(boxes):
        assert 0 <= one.x <= drawing.width - WIDTH
        assert 0 <= one.y <= drawing.height - HEIGHT
        for other in boxes[n + 1 :]:
            assert abs(one.x - other.x) >= WIDTH or abs(one.y - other.y) >= HEIGHT, (one, other)
    for line in drawing.lines:
        ends = [float(one) for one in re.findall(r"(?<=[M ])[0-9.]+(?= )", line.path)]
        assert ends, line
        starts = [float(one) for one in re.findall(r"[MH]([0-9.]+)", line.path)]
        assert all(a < b for a, b in pairwise(starts))
    return {one.name: (one.x, one.y) for one in boxes}


def test_a_step_stands_behind_all_that_it_waits_for() -> None:
    at = checked([a_step("a"), a_step("b", "a"), a_step("c", "b"), a_step("d", "a", "c"), a_step("e")])
    assert at["a"][0] == at["e"][0] < at["b"][0] < at["c"][0] < at["d"][0]


def test_a_line_that_passes_a_layer_passes_no_box() -> None:
    steps = [a_step("a"), a_step("b", "a"), a_step("c", "b"), a_step("d", "a", "c")]
    drawing = draw(steps)
    assert drawing is not None
    passing = max((line.path for line in drawing.lines), key=len)
    height = float(passing.partition("H")[0].split()[-1].replace(",", " "))
    at = {one.name: one for one in drawing.boxes}
    for name in ("b", "c"):
        assert not at[name].y <= height <= at[name].y + HEIGHT


def test_many_that_are_alike_are_one_box_that_says_the_worst() -> None:
    pages = [a_step(f"page-{n}", "list", job="page", status="finished") for n in range(40)]
    pages[7] = pages[7]._replace(status="error")
    steps = [a_step("list"), *pages, a_step("publish", *(one.name for one in pages))]
    drawing = draw(steps)
    assert drawing is not None
    assert [(one.name, one.steps) for one in drawing.boxes] == [("list", 1), ("page-0", 40), ("publish", 1)]
    assert drawing.boxes[1].status == "error"
    assert drawing.boxes[1].counts == {"finished": 39, "error": 1}
    assert len(drawing.lines) == 2


def test_too_many_different_steps_are_no_picture() -> None:
    assert draw([a_step(f"s{n}") for n in range(61)]) is None
    checked([a_step(f"s{n}", *([f"s{n - 1}"] if n else [])) for n in range(60)])


def test_rings_and_nothing_are_drawn_all_the_same() -> None:
    checked([a_step("a", "b"), a_step("b", "a")])
    one = draw([a_step("only")])
    assert one is not None
    assert one.lines == []
