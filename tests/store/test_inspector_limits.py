"""``app.limits`` and ``henchman limits``: how large limits are, who has a place, who waits, and another size."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from henchman import App, Concurrent, Leaky
from henchman.cli.main import henchman
from henchman.errors import ArgumentError, DefinitionError
from henchman.inspector.doctor import examine
from henchman.store import limits
from henchman.store.connection import Connections
from support.bank import Bank
from support.store import Store
from support.worker import Heard, until, working


@pytest.fixture
def bank(redis_url: str) -> Iterator[Bank]:
    app = App(redis_url=redis_url, queues=("a",), concurrency=6)
    made = Bank(app)
    yield made
    made.go.set()
    app.close()


def run(store: Store, *words: str) -> Result:
    return CliRunner().invoke(henchman, [*words, "--redis", store.connections.url])


def full(bank: Bank) -> None:
    """Two run of each of two tenants, three more wait of x, one of y."""
    bank.pay.enqueue_many([*(("x", number) for number in range(5)), *(("y", number) for number in range(3))])
    until(lambda: len(bank.began) == 4, "four run")
    until(lambda: bank.app.blocked.size() == 4, "and four wait")


def test_what_is_taken_and_who_waits(store: Store, bank: Bank) -> None:
    assert run(store, "limits").output.startswith("No limit was ever used")
    with working(bank.app):
        full(bank)
        limit, shop = bank.app.limits.all()
        assert (limit.name, limit.kind, limit.n, limit.used, limit.waiting, limit.parts) == (
            "bank",
            "concurrent",
            2,
            4,
            4,
            2,
        )
        assert not limit.room
        assert (shop.name, shop.kind, shop.size) == ("shop", "leaky", "1 in 600 s")
        look = bank.app.limits.look("bank")
        assert look is not None
        assert [(one.by, one.used, one.waiting) for one in look.parts] == [("x", 2, 3), ("y", 2, 1)]
        waiting = [entry.job["args"][0] for _, entry in look.line if entry]
        assert (look.by, len(look.holders), waiting) == ("x", 2, ["x", "x", "x"])
        assert bank.app.limits.look("nothing") is None
        shown = run(store, "limits", "show", "bank", "--by", "y").output
        assert "bank: concurrent, 2" in shown
        assert "In line of y, the next first (1 job shown):" in shown
        told = json.loads(run(store, "limits", "--json").stdout)["limits"]
        assert [(one["name"], one["used"], one["waiting"]) for one in told] == [("bank", 4, 4), ("shop", 0, 0)]
        told = json.loads(run(store, "limits", "show", "bank", "--json").stdout)
        assert (told["by"], len(told["holders"]), len(told["line"])) == ("x", 2, 3)
        assert run(store, "limits", "show", "nothing").exit_code == 1
        bank.go.set()
        until(lambda: len(bank.began) == 8, "all ran")


def test_a_larger_one_lets_those_go_that_wait_and_a_smaller_one_starts_nobody(store: Store, bank: Bank) -> None:
    heard = Heard(bank.app, "limit_changed")
    with working(bank.app):
        full(bank)
        said = run(store, "limits", "set", "bank", "3").output
        assert said.strip() == "bank is 3 from now on; it was 2; 2 jobs that waited go on"
        until(lambda: len(bank.began) == 6, "one more of each tenant runs")
        bank.app.limits.set("bank", 1)
        assert [(one["before"], one["after"]) for one in heard["limit_changed"]] == [("3", "1")]
        bank.go.set()
        until(lambda: len(bank.began) == 8, "all ran")
    until(
        lambda: not [one for one in store.all_keys() if one.startswith(("hm:slots", "hm:limited", "hm:await"))],
        "all is free",
    )


def test_no_places_at_all_hold_all_up_until_there_are_some(store: Store, bank: Bank) -> None:
    with working(bank.app):
        bank.app.limits.set("bank", 0)
        bank.pay.enqueue("x", 1)
        until(lambda: bank.app.blocked.size() == 1, "it waits")
        [waits] = bank.app.blocked
        assert (
            "the limit bank for 'x': it is set to no places at all, and it is number 1 of 1 in line" in waits.sentence()
        )
        assert "henchman limits set bank 1" in waits.why_it_stays
        assert asyncio.run(bank.app.limits.aset("bank", 1)).let_go == 1
        until(lambda: bank.began == ["x1"], "it runs")
        bank.go.set()


def test_hundreds_are_counted_in_a_few_round_trips(store: Store, bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"bank{number:03}" for number in range(120)]
    store.run(limits.declare(store.keys, [("c", name, 1, 0.0) for name in names]))
    store.ask("HSET", store.keys.places("bank119", "x"), "j1", "1 2")
    store.ask("SADD", store.keys.taken("bank119"), "x")
    trips, run = list[object](), Connections.run

    def counting(self: Connections, call: Any, *rest: Any, **more: Any) -> Any:
        trips.append(call)
        return run(self, call, *rest, **more)

    monkeypatch.setattr(Connections, "run", counting)
    found = bank.app.limits.all()
    assert [one.name for one in found] == names
    assert [one.used for one in found] == [0] * 119 + [1]
    assert len(trips) <= 9, "three for each fifty"


def test_what_was_set_by_hand_stays_and_else_the_code_says_it(store: Store, bank: Bank, redis_url: str) -> None:
    def started(n: int) -> int:
        app = App(redis_url=redis_url, queues=("a",))

        @app.job(name="pay", queue="a", limits=[Concurrent("bank", n)])
        def pay() -> None: ...

        with working(app):
            return app.limits.all()[0].n

    assert [started(2), started(3)] == [2, 3]
    bank.app.limits.set("bank", 5)
    assert [started(3), started(4)] == [5, 5]
    bank.app.limits.set("bank", 4)  # as the code says
    assert started(6) == 6


def test_what_cannot_be_is_refused(bank: Bank) -> None:
    with working(bank.app):
        for words, said in (
            (("shop", 0), "n=0: give a number from 1 to 1,000,000"),
            (("bank", -1), "n=-1: give a number from 0 to 1,000,000"),
            (("bak", 1), "there is no limit 'bak'; did you mean 'bank'?"),
        ):
            with pytest.raises(ArgumentError) as caught:
                bank.app.limits.set(*words)
            assert str(caught.value).startswith(said), caught.value
        with pytest.raises(ArgumentError, match="bank is a number of places, which no time is about"):
            bank.app.limits.set("bank", 1, per=5)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ([Concurrent("bank", 3)], "the limit 'bank' is Concurrent(3) here and Concurrent(2) of pay"),
        ([Leaky("bank", 2, per=60)], "the limit 'bank' is Leaky(2, per=60) here and Concurrent(2) of pay"),
        ([Concurrent("a", 1), Leaky("a", 1, per=1)], "'a' is there twice"),
        ("bank", "give a list of limits, each a Concurrent, Leaky, Window, Bucket or Points"),
        ([Concurrent(f"a{number}", 1) for number in range(9)], "9 limits on one job; give at most 8"),
        ([Concurrent("free", 1, by="nobody")], "by=['nobody'] names no parameter of its own value; there are ['x']"),
    ],
)
def test_limits_that_mean_nothing(bank: Bank, limits: object, said: str) -> None:
    def other(x: int) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        bank.app.job(name="other", limits=limits)(other).enqueue(1)
    assert said in str(caught.value)


def test_jobs_that_wait_beside_free_places_are_found_and_the_command_lets_them_go(store: Store, bank: Bank) -> None:
    def check() -> tuple[str, str, str]:
        [one] = [one for one in examine(store.connections, store.keys) if one.name == "limits"]
        return one.verdict, one.text, one.advice

    assert check() == ("ok", "none", "")
    with working(bank.app):
        full(bank)
        assert check() == ("ok", "2 limits, for which 4 jobs wait", "")
        store.ask("DEL", store.keys.places("bank", "x"))
        told = "henchman limits set bank 2 lets them go on"
        assert check() == ("warn", "4 jobs waiting for bank beside free places", told)
        assert run(store, *told.partition(" lets")[0].split()[1:]).exit_code == 0
        until(lambda: len(bank.began) == 6, "two more of x run")
        assert check() == ("ok", "2 limits, for which 2 jobs wait", "")
        bank.go.set()
        until(lambda: len(bank.began) == 8, "all ran")
