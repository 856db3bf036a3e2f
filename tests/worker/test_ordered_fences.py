"""What a process does not start although it has it in hand: claims given up before they were heard of, lost names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.ordered.source import sources_of
from henchman.store import leases, ordered
from henchman.work.outcome import Outcome
from henchman.work.source import Reading
from henchman.work.unit import Unit
from support.worker import Heard, settled, until, working

TELLER: Any = None  # nobody is told anything here


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, concurrency=2)
    yield made
    made.close()


def test_a_claim_whose_answer_comes_after_it_was_freed_does_not_run(app: App, redis: Redis) -> None:
    job = app.ordered(queue="q", name="x")(lambda claim: None)
    job.push("x", 1)
    source = sources_of(app)["q"]
    flight = source.in_flight_list("h:1:abcdefabcdef", 1)
    app.connections.run(leases.join(app.keys, flight.identity, [flight.key], 60_000))
    (unit,) = source.fetch(flight, 1, 0).units  # its answer is still on the way, as far as the sweep knows
    held: set[Unit] = set()
    assert source.free(flight, held) == 1
    held.add(unit)
    read = source.read(unit, TELLER)
    assert isinstance(read, Outcome)
    assert read.ending == "released"
    assert unit.job["queue"] == "q"
    (again,) = source.fetch(flight, 1, 0).units
    assert again.claim.token > unit.claim.token
    assert source.settle(flight.identity, [(unit, "released", b"", 0.0, b"")]) == [0], "it is another claim's now"
    assert isinstance(source.read(again, TELLER), Reading)


def test_what_is_held_here_is_not_freed_and_runs(app: App, redis: Redis) -> None:
    job = app.ordered(queue="q", name="x")(lambda claim: None)
    job.push("x", 1)
    source = sources_of(app)["q"]
    flight = source.in_flight_list("h:1:abcdefabcdef", 1)
    app.connections.run(leases.join(app.keys, flight.identity, [flight.key], 60_000))
    (unit,) = source.fetch(flight, 1, 0).units
    assert source.free(flight, {unit}) == 0
    assert isinstance(source.read(unit, TELLER), Reading)
    assert source.settle(flight.identity, [(unit, "done", b"", 0.0, b"")]) == [1]
    assert not redis.exists(flight.key, "hm:ordered:q/busy", "hm:ordered:q/due")


def test_a_burial_between_two_calls_of_one_settling_leaves_what_the_first_has_settled(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered, "MOST_IDS", 2)
    job = app.ordered(queue="q", name="x", claim_size=1)(lambda claim: None)
    job.push_many([{"id": str(number), "payload": number} for number in range(2)])
    job.push_many([{"id": str(number), "payload": number} for number in range(2, 4)])
    source = sources_of(app)["q"]
    flight = source.in_flight_list("h:1:abcdefabcdef", 1)
    app.connections.run(leases.join(app.keys, flight.identity, [flight.key], 60_000))
    units = source.fetch(flight, 4, 0).units
    settle = source._settle

    def then_buried(*given: Any) -> Any:
        answers = settle(*given)
        redis.delete(f"hm:lease:{flight.identity}")
        redis.set(f"hm:tomb:{flight.identity}", 1)
        return answers

    monkeypatch.setattr(source, "_settle", then_buried)
    assert source.settle(flight.identity, [(unit, "done", b"", 0.0, b"") for unit in units]) == [1, 1, 0, 0]
    assert redis.hlen("hm:ordered:q/busy") == 2, "the others are for who frees them"


def test_what_was_fetched_under_a_lost_name_does_not_start_on_the_new_ones_lease(app: App, redis: Redis) -> None:
    ran: list[str] = []

    @app.job(name="j")
    def run(name: str) -> None:
        ran.append(name)

    late = Heard(app, "late")
    payload = b'{"class":"j","args":["zombie"],"jid":"j1","queue":"default","retry":true}'
    with working(app) as launcher:
        old = launcher.session.current["default"]._replace(
            identity="h:1:abcdefabcdef", key="hm:flight:h:1:gone:1:default"
        )
        launcher.fetcher.accept([Unit(payload, old, 0.0)], "default")
        until(lambda: late["late"], "it is told as late")
        assert late["late"][0]["ending"] == "released"
        app.enqueue("j", "ours")
        settled(redis, 1)
    assert ran == ["ours"]


def test_a_zombie_that_ignores_its_timeout_charges_nobody(app: App, redis: Redis) -> None:
    job = app.ordered(queue="q", name="x")(lambda claim: None)
    job.push("x", 1)
    source = sources_of(app)["q"]
    flight = source.in_flight_list("h:1:abcdefabcdef", 1)
    app.connections.run(leases.join(app.keys, flight.identity, [flight.key], 60_000))
    (unit,) = source.fetch(flight, 1, 0).units
    source.abandon(unit)
    assert redis.hgetall("hm:ordered:q/crash") == {b"x": b"1"}
    assert source.free(flight, set()) == 1
    source.abandon(unit)
    assert redis.hgetall("hm:ordered:q/crash") == {b"x": b"1"}, "it is not held under that token any more"
