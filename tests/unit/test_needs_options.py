"""What a job and a push may say about others that they wait for, what a payload says of it, and what is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from henchman import App, IterableJob
from henchman.client.needs import FOLLOW_FOR, Need
from henchman.errors import ArgumentError, DefinitionError
from support.keyed import KeyedServer

WEEK = 7 * 86400


class Shop:
    """An app whose server admits everything."""

    def __init__(self) -> None:
        self.server = KeyedServer()
        self.app = App(redis_url="redis://127.0.0.1:1")
        self.app._connections = self.server  # type: ignore[assignment]
        self.charge = self.job("charge", key="order", once=True)

    def job(self, name: str, **options: Any) -> Any:
        @self.app.job(name=name, **options)
        def job(order: str = "", cents: int = 0) -> None: ...

        return job

    @property
    def needs(self) -> Any:
        """What the server was told last that a job waits for."""
        return json.loads(self.server.rows[-1][5] or b"null")


@pytest.fixture
def shop() -> Shop:
    return Shop()


# --- the payload, and what is asked ----------------------------------------------------------------------------------


def test_a_job_waits_for_the_one_of_its_own_key(shop: Shop) -> None:
    pack = shop.job("pack", key="order", once=True, once_for=60, scope="packing")
    ship = shop.job("ship", key="order", after=[shop.charge, pack])
    ship.enqueue("1\n7")
    job = shop.server.jobs[-1]
    assert job["hm"] == {"needs": [["charge", "1\n7", WEEK, "charge"], ["packing", "1\n7", 60, "pack"]]}
    assert shop.needs == [["charge", "1\n7", WEEK], ["packing", "1\n7", 60]]
    assert shop.server.ask == {"scope": "ship", "phases": "", "conflict": "skip"}
    assert "enqueued_at" not in job, "it is written when the job goes into its queue"


def test_a_followed_job_without_a_key_has_its_id_for_one(shop: Shop) -> None:
    mail = shop.job("mail")
    handle = mail.using(followed=True).enqueue("x")
    assert shop.server.jobs[-1]["hm"] == {"key": ["", handle.jid, "f"]}
    assert shop.server.rows[-1][4] == handle.jid
    assert (shop.server.ask["scope"], shop.server.ask["phases"], shop.needs) == ("", "f", None)
    assert handle.need == Need("", handle.jid, FOLLOW_FOR, handle.jid)
    assert "enqueued_at" in shop.server.jobs[-1]
    assert mail.enqueue("y").need is None


@pytest.mark.parametrize(
    ("options", "phases"),
    [
        ({"followed": True}, "f"),
        ({"followed": True, "unique": "running"}, "fr"),
        ({"followed": True, "once": True}, "o"),
        ({"once": True, "unique": "running"}, "or"),
    ],
)
def test_the_handle_of_a_job_with_a_key_knows_what_to_wait_for(shop: Shop, options: Any, phases: str) -> None:
    pack = shop.job("pack", key="order", once_for=3600, **options)
    handle = pack.enqueue("17")
    assert shop.server.jobs[-1]["hm"] == {"key": ["pack", "17", phases], "once_for": 3600}
    assert handle.need == Need("pack", "17", 3600, handle.jid)
    shop.job("mail").using(after=[handle, handle, "abc", shop.charge.enqueue("18")]).enqueue("x")
    assert shop.needs == [["pack", "17", 3600], ["", "abc", WEEK], ["charge", "18", WEEK]]
    labels = [one[3] for one in shop.server.jobs[-1]["hm"]["needs"]]
    assert labels[:2] == [handle.jid, "abc"]


def test_a_push_adds_to_what_its_definition_waits_for(shop: Shop) -> None:
    ship = shop.job("ship", key="order", after=shop.charge, followed=True)
    ship.using(after="abc").enqueue("17")
    assert shop.needs == [["", "abc", WEEK], ["charge", "17", WEEK]]
    assert shop.server.jobs[-1]["hm"]["key"] == ["ship", "17", "f"]


def test_every_row_of_a_bulk_push_has_needs_of_its_own(shop: Shop) -> None:
    ship = shop.job("ship", key="order", after=shop.charge)
    shop.server.answers = [b"\n".join([b"C", b"B -", b"B -"])]
    pushed = ship.enqueue_many([("1",), ("2",), ("3",)])
    assert [json.loads(row[5]) for row in shop.server.rows] == [[["charge", one, WEEK]] for one in "123"]
    assert (pushed.count, pushed.created, pushed.blocked) == (3, 3, 2)


def test_one_that_has_to_wait_says_so(shop: Shop) -> None:
    ship = shop.job("ship", key="order", after=shop.charge)
    shop.server.answers = [b"B -", b"C"]
    assert [ship.enqueue("17").admission for _ in range(2)] == ["blocked", "created"]


@pytest.mark.parametrize(
    ("defined", "pushed", "said"),
    [
        ({}, {}, {}),
        ({"on_failed": "wait"}, {}, {}),
        ({"on_failed": "run"}, {}, {"on_failed": "run"}),
        ({"on_failed": "run", "on_dead": "wait"}, {}, {"on_failed": "run", "on_dead": "wait"}),
        ({"on_failed": "run", "on_dead": "run"}, {}, {"on_failed": "run"}),
        ({"on_dead": "cancel"}, {}, {"on_dead": "cancel"}),
        ({"on_failed": "run", "on_dead": "fail"}, {"on_failed": "cancel"}, {"on_failed": "cancel"}),
        ({"on_failed": "run"}, {"on_failed": "wait"}, {}),
        ({"on_failed": "fail", "wait_at_most": 60}, {}, {"on_failed": "fail", "wait_at_most": 60.0}),
        ({"on_failed": "fail"}, {"wait_at_most": 1.5}, {"on_failed": "fail", "wait_at_most": 1.5}),
    ],
)
def test_a_payload_says_what_is_not_usual(shop: Shop, defined: Any, pushed: Any, said: Any) -> None:
    ship = shop.job("ship", key="order", after=shop.charge, **defined)
    ship.using(**pushed).enqueue("17")
    ours = shop.server.jobs[-1]["hm"]
    assert {name: value for name, value in ours.items() if name != "needs"} == said
    assert shop.server.ask.get("wait_at_most") == said.get("wait_at_most")


def test_a_tracked_one_asks_for_itself(shop: Shop) -> None:
    ship = shop.job("ship", key="order", after=shop.charge, track=True)
    shop.server.answers = [b"B -"]
    assert ship.enqueue("17").admission == "blocked"
    asked = json.loads(shop.server.calls[-1].parts[0][-1])
    assert (asked["needs"], asked["phases"]) == ([["charge", "17", WEEK]], "")


def test_a_job_that_another_program_runs_waits_by_handles_and_ids(shop: Shop) -> None:
    shop.app.enqueue("Ruby::Ship", "17", after=["abc"])
    assert shop.needs == [["", "abc", WEEK]]
    with pytest.raises(DefinitionError, match=r"Ruby::Ship: followed= of a job that is not defined.*foreign=True"):
        shop.app.enqueue("Ruby::Ship", followed=True)


def test_an_iterable_job_can_be_waited_for(shop: Shop) -> None:
    @shop.app.iterable(name="walk", key="order", once=True)
    class Walk(IterableJob[[str]]):
        def build(self, order: str, *, cursor: Any) -> Any: ...

        def each_iteration(self, item: Any, order: str) -> None: ...

    shop.job("ship", key="order", after=Walk).enqueue("17")
    assert shop.needs == [["walk", "17", WEEK]]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"after": "charge"}, "after='charge': give a job, or a list of jobs"),
        ({"after": [3]}, "after=3: give a job"),
        ({"on_failed": "run"}, "on_failed= is about the jobs that this one waits for: say after= too"),
        ({"wait_at_most": 5}, "wait_at_most= is about the jobs"),
        ({"on_failed": "stop"}, "on_failed='stop': give 'wait', 'run', 'fail' or 'cancel'"),
        ({"on_dead": 1}, "on_dead=1: give"),
        ({"followed": 1}, "followed=1: give True or False"),
        ({"followed": True, "key": "order", "unique": "queued"}, "unique='running' alone, not with queued; use once"),
        ({"followed": True, "key": "order", "debounce": 5}, "not with debounce; use once=True"),
        ({"followed": True, "once_for": 5}, "once_for= needs key="),
        ({"key": "order", "once_for": 5, "unique": "queued"}, "once_for= belongs to once=True or followed=True"),
        ({"followed": True, "key": "order", "scope": "batch:1"}, "such names are those of the steps of workflows"),
    ],
)
def test_options_that_mean_nothing(shop: Shop, options: Any, said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        shop.job("ship", **options)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "ship: after=charge waits for the job of the same key, and this one has none: say key="),
        ({"key": "order", "debounce": 5}, "after= does not go with debounce"),
        ({"key": "order", "throttle": 5}, "after= does not go with throttle"),
        (
            {"key": "order", "unique": "until_success", "on_conflict": "wait"},
            "after= does not go with on_conflict='wait'",
        ),
        ({"key": "order", "unique": "queued", "on_conflict": "replace"}, "on_conflict='replace'"),
        ({"key": "order", "wait_at_most": 5}, "wait_at_most= needs on_failed= or on_dead="),
        ({"key": "order", "once": True, "scope": "charge"}, "with the same key it would wait for itself"),
        ({"key": "order", "secret": ["order"]}, "make it secret in both, and say scope='charge' here"),
    ],
)
def test_what_does_not_go_with_after(shop: Shop, options: Any, said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        shop.job("ship", after=shop.charge, **options)
    assert said in str(caught.value)


def test_a_job_whose_end_is_told_to_nobody_cannot_be_waited_for(shop: Shop) -> None:
    plain, keyed = shop.job("plain"), shop.job("keyed", key="order", unique="queued")
    for job, why in ((plain, "has no key"), (keyed, "is neither once= nor followed=")):
        with pytest.raises(DefinitionError, match=f"after={job.name} waits for the {job.name} of the same key.* {why}"):
            shop.job("ship", key="order", after=job)
        with pytest.raises(DefinitionError, match="is followed by nobody: push it with using"):
            plain.using(after=job.enqueue("17"))


def test_a_job_never_waits_for_itself(shop: Shop) -> None:
    pack = shop.job("pack", key="order", followed=True)
    first = pack.enqueue("17")
    with pytest.raises(ArgumentError, match="it would wait for itself"):
        pack.using(after=first).enqueue("17")
    pack.using(after=first).enqueue("18")
    with pytest.raises(DefinitionError, match="it would wait for itself"):
        pack.using(after=pack).enqueue("18")


def test_a_ring_of_jobs_is_named(shop: Shop) -> None:
    shop.job("b", key="order", once=True, scope="y")
    a = shop.job("a", key="order", once=True, scope="x", after=shop.job("b", key="order", once=True, scope="y"))
    with pytest.raises(DefinitionError, match=r"in a ring, and with one key none could ever start: \w → \w → \w"):
        shop.job("c", key="order", once=True, scope="y", after=a)


def test_jobs_of_one_scope_are_remembered_for_one_time(shop: Shop) -> None:
    with pytest.raises(DefinitionError, match="give both the same"):
        shop.job("other", key="order", followed=True, once_for=60, scope="charge")


@pytest.mark.parametrize(
    ("push", "said"),
    [
        ({"on_failed": "run"}, "say after= too"),
        ({"after": 17}, "after=17: give the handle of a job, its id, or a job"),
        ({"after": "a\nb"}, "the id of a job is a printable text"),
        ({"after": "abc", "wait_at_most": 5}, "wait_at_most= needs on_failed="),
        ({"after": [str(one) for one in range(101)]}, "names 101 jobs, and one job waits for at most 100"),
    ],
)
def test_a_push_that_means_nothing(shop: Shop, push: Any, said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        shop.job("mail").using(**push).enqueue("x")
    assert said in str(caught.value)


def test_what_others_rely_on_cannot_be_left_out(shop: Shop) -> None:
    with pytest.raises(DefinitionError, match="defined with followed=True"):
        shop.job("pack", followed=True).using(followed=False).enqueue()


@pytest.mark.parametrize("options", [{"key": "order", "after": True}, {"followed": True}])
def test_a_cron_waits_for_nobody(shop: Shop, options: Any) -> None:
    given = options | ({"after": shop.charge} if "after" in options else {})
    job = shop.job("tick", **given)
    with pytest.raises(DefinitionError, match="a cron"):
        shop.app.cron("* * * * *", args=["17"])(job)


def test_a_link_leaves_what_a_job_waits_for(shop: Shop) -> None:
    act: list[Callable[[dict[str, Any]], Any]] = [lambda job: job["hm"].pop("needs")]

    def link(job: dict[str, Any], call_next: Any) -> Any:
        act[0](job)
        return call_next()

    shop.app.client_middleware.add(link)
    with pytest.raises(ArgumentError, match=r"changed the jid, hm.key, hm.needs or hm.limits"):
        shop.job("mail").using(after="abc").enqueue("x")
    assert shop.server.calls == []
