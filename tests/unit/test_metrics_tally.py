"""Counting what ran, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from henchman import App, ServerAway
from henchman.store.metrics import Counted
from henchman.work.unit import InFlightList, Unit
from henchman.worker.metrics import MOST_WRAPPED, ExecutionMetrics

FLIGHT = InFlightList("a", "queue:a", "list", "me", 1)
AT = 1_795_251_930.0  # the server's time
NOBODY = "redis://127.0.0.1:1"  # nobody listens on port 1


def row(elapsed: float | None, ending: str = "done", **job: Any) -> tuple[Unit, str, bytes, float, bytes]:
    unit = Unit(b"{}", FLIGHT, 0.0)
    unit.job = {"class": "A", "args": [], **job}
    unit.elapsed = elapsed
    return unit, ending, b"", 0.0, b""


def counted(*rows: tuple[Unit, str, bytes, float, bytes]) -> Mapping[str, Counted]:
    tally = ExecutionMetrics(lambda: AT)
    tally.count(rows)
    return tally.take()


def histogram(**counters: int) -> list[int]:
    return [counters.get(f"n{index}", 0) for index in range(26)]


def test_runs_add_up() -> None:
    found = counted(row(0.1), row(0.01999), row(0.02), row(400.0))
    assert found == {"A": Counted(4, 0, 400_140, histogram(n0=1, n1=1, n5=1, n25=1))}


@pytest.mark.parametrize("ending", ["retry", "dead", "gone"])
def test_errors_count_without_their_time(ending: str) -> None:
    assert counted(row(5.0, ending)) == {"A": Counted(1, 1, 0, histogram())}


@pytest.mark.parametrize("ending", ["failed", "snoozed", "discarded", "cancelled"])
def test_other_endings_ran_well(ending: str) -> None:
    assert counted(row(0.05, ending)) == {"A": Counted(1, 0, 50, histogram(n3=1))}


def test_what_did_not_run_or_runs_again_does_not_count() -> None:
    assert counted(row(None), row(None, "retry"), row(None, "invalid"), row(None, "expired")) == {}
    assert counted(row(1.0, "released")) == {}


def test_short_runs_in_a_row_and_between_others() -> None:
    a, b = {"wrapped": "A"}, {"wrapped": "B"}
    found = counted(
        row(0.001, **a), row(0.002, **a), row(1.0, **a), row(0.001, **b), row(0.001, "retry", **a), row(0.003)
    )
    assert found == {"A": Counted(5, 1, 1006, histogram(n0=3, n10=1)), "B": Counted(1, 0, 1, histogram(n0=1))}


def test_what_is_wrapped_counts_under_its_own_name() -> None:
    found = counted(row(0.0, wrapped="Mail"), row(0.0, wrapped=""), row(0.0, wrapped=None), row(0.0, wrapped=["x"]))
    assert {name: one.processed for name, one in found.items()} == {"Mail": 1, "A": 3}
    assert {name: one.processed for name, one in counted(row(0.0, wrapped=7)).items()} == {"A": 1}


def test_pushers_cannot_make_names_without_end() -> None:
    found = counted(*(row(0.0, wrapped=f"name {n}") for n in range(MOST_WRAPPED + 50)))
    assert len(found) == MOST_WRAPPED + 1
    assert found["A"].processed == 50


def test_two_classes_under_one_name() -> None:
    found = counted(row(0.001, wrapped="a/b"), row(0.002, wrapped="a|b"))
    assert found == {"a:b": Counted(2, 0, 3, histogram(n0=2))}


def test_taken_is_gone_and_put_back_is_there() -> None:
    tally = ExecutionMetrics(lambda: AT)
    tally.count([row(0.1), row(0.1, "retry")])
    taken, left = tally.take(), tally.take_left()
    assert (tally.take(), tally.take_left()) == ({}, {})
    tally.count([row(0.2)])
    tally.put_back(taken, {}, left)
    assert tally.take() == {"A": Counted(3, 1, 300, histogram(n5=1, n6=1))}
    assert tally.take_left() == {"a": 3}  # what is tried again left its queue, too


def test_when_the_server_is_away_nothing_is_lost() -> None:
    app, tally = App(redis_url=NOBODY, connect_timeout=0.5), ExecutionMetrics(lambda: AT)
    tally.count([row(0.1)])
    with pytest.raises(ServerAway):
        tally.flush(app, AT)
    assert tally.take()["A"].processed == 1
    assert [dict(one.counts) for one in tally.take_days().values()] == [{("A", "done"): 1}]
    assert tally.take_left() == {"a": 1}
    tally.flush(app, AT)  # nothing was counted: nobody is asked
