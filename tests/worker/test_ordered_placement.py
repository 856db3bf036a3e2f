"""Which ordered queue is looked into first, and which process serves which: schedulers and splitters."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from henchman import App, ConfigError
from henchman.config import capsules
from henchman.ordered.source import Scheduler, by_node
from support.worker import Heard, until, working


def defined(app: App, ran: list[str], *queues: str) -> dict[str, Any]:
    """An ordered job on each of ``queues`` that notes where it ran."""

    def noting(queue: str) -> Any:
        def note(claim: dict[str, list[Any]]) -> None:
            ran.extend([queue] * len(claim))

        return note

    return {queue: app.ordered(queue=queue, name=queue)(noting(queue)) for queue in queues}


def test_lag_looks_first_where_the_head_has_waited_longest(redis_url: str, redis: Redis) -> None:
    app = App(redis_url=redis_url)
    for queue, due in (("young", 300), ("old", 100), ("middle", 200)):
        redis.zadd(f"hm:ordered:{queue}/due", {"x": due, "y": 900})
    order = Scheduler(app, "lag").order
    assert order(["young", "empty", "middle", "old"]) == ["old", "middle", "young", "empty"]
    assert order(["young"]) == ["young"]


def test_seq_goes_round_and_weighted_keeps_the_draw(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    names = ["c", "a", "b"]
    seq = Scheduler(app, "seq").order
    assert [seq(names) for _ in range(4)] == [["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"], ["b", "c", "a"]]
    assert Scheduler(app, "weighted").order(names) == names


@pytest.mark.parametrize(("kind", "first"), [("lag", "old"), ("weighted", "heavy")])
def test_a_worker_takes_the_scheduler_that_is_configured(
    redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch, kind: str, first: str
) -> None:
    monkeypatch.setattr(capsules, "random", SimpleNamespace(shuffle=lambda hat: None))  # the heavy one is drawn first
    app = App(redis_url=redis_url, concurrency=1, queues=["heavy:2", "old:1"], ordered_scheduler=kind)
    ran: list[str] = []
    jobs = defined(app, ran, "heavy", "old")
    jobs["heavy"].push("x", 1)
    jobs["old"].push("x", 1)
    redis.zadd("hm:ordered:old/due", {"x": 100})
    with working(app):
        until(lambda: len(ran) == 2, "both ran")
    assert ran[0] == first


def test_a_strict_capsule_keeps_its_order(redis_url: str, redis: Redis) -> None:
    app = App(redis_url=redis_url, concurrency=1, queues=["first", "old"])
    ran: list[str] = []
    jobs = defined(app, ran, "first", "old")
    for queue in jobs:
        jobs[queue].push("x", 1)
    redis.zadd("hm:ordered:old/due", {"x": 100})
    with working(app):
        until(lambda: len(ran) == 2, "both ran")
    assert ran == ["first", "old"]


def test_queues_are_dealt_to_nodes_and_every_one_is_served_once(redis_url: str, redis: Redis) -> None:
    ran: list[list[str]] = [[], []]
    apps = [App(redis_url=redis_url, ordered_nodes=2, ordered_node=node) for node in (0, 1)]

    def noting(node: int) -> Any:
        def note(claim: dict[str, list[Any]]) -> None:
            ran[node].extend(claim)

        return note

    jobs = [one.ordered(queue="q", name="q", partitions=4)(noting(node)) for node, one in enumerate(apps)]
    jobs[0].push_many([(str(number), 1) for number in range(100)])
    with working(apps[0]) as first:
        until(lambda: ran[0], "the first runs its part")
        assert sorted(first.sources) == ["q.0", "q.2"]
        until(lambda: not redis.zcard("hm:ordered:q.0/due") + redis.zcard("hm:ordered:q.2/due"), "all of it")
        assert redis.zcard("hm:ordered:q.1/due"), "and nothing else"
        with working(apps[1]):
            until(lambda: len(ran[0]) + len(ran[1]) == 100, "the second runs the rest")
    assert not set(ran[0]) & set(ran[1])
    assert sorted(ran[0] + ran[1]) == sorted(map(str, range(100)))


def test_a_splitter_of_ones_own(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    defined(app, [], "mine", "theirs")
    asked: list[Sequence[str]] = []

    def mine(queues: Sequence[str]) -> Sequence[str]:
        asked.append(queues)
        return [one for one in queues if one == "mine"]

    app.ordered_splitter = mine
    with working(app) as launcher:
        assert list(launcher.sources) == ["mine"]
        assert "theirs" not in launcher.session.current
        assert "default" in launcher.session.current, "plain queues are nobody's part"
    assert sorted(asked[0]) == ["mine", "theirs"]


def test_a_splitter_that_cannot_be_right_is_refused(redis_url: str) -> None:
    app = App(redis_url=redis_url, queues=["a"])
    defined(app, [], "a")
    app.ordered_splitter = lambda queues: ["nowhere"]
    with pytest.raises(ConfigError, match="nowhere"), working(app):
        pass
    app.ordered_splitter = lambda queues: []
    with pytest.raises(ConfigError, match="nothing to serve: a"), working(app):
        pass
    with pytest.raises(ConfigError, match=r"ordered_node = 2: .* 0 to 1"):
        by_node(2, 2)


def test_the_start_names_the_ordered_queues_that_are_served(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    heard = Heard(app, "startup")
    app.job(name="plain")(lambda: None)
    defined(app, [], "b", "a")
    with working(app):
        (facts,) = heard["startup"]
    assert (sorted(facts["queues"]), facts["ordered"]) == (["a", "b", "default"], ["a", "b"])
    plain = App(redis_url=redis_url)
    heard = Heard(plain, "startup")
    with working(plain):
        assert "ordered" not in heard["startup"][0]
