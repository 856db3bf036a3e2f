"""Procedures side by side: one write a stage, each with its own answers and errors, also where scripts are unknown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from henchman import App
from henchman.errors import ServerError
from henchman.store import queues
from henchman.store.call import Procedure, Together, arun, ask, command, run, script, side_by_side
from henchman.store.call import load as load_script
from support.store import Store


def _one(key: str) -> Procedure[Any]:
    return ask(command("GET", key))


def _two(key: str) -> Procedure[Any]:
    name = yield command("GET", key)
    return (yield command("GET", name))


def _forgiving(key: str) -> Procedure[Any]:
    try:
        return (yield command("GET", key))
    except ServerError:
        return "refused"


@pytest.fixture
def filled(store: Store) -> Store:
    store.ask("MSET", "a", "1", "b", "a", "c", "3")
    store.ask("LPUSH", "list", "x")
    return store


def test_they_take_as_many_round_trips_as_the_longest(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    plain = type(filled.connections).run

    def counting(self: Any, call: Any) -> Any:
        sent.append(repr(call))
        return plain(self, call)

    monkeypatch.setattr(type(filled.connections), "run", counting)
    found = run(filled.connections, side_by_side(_one("a"), _two("b"), side_by_side(_one("c"), _two("b"))))
    assert found == [b"1", b"1", [b"3", b"1"]]
    assert sent == ["Call(GET and 2 more)", "Call(GET and 1 more)"]
    assert run(filled.connections, side_by_side()) == []


def test_each_meets_its_own_errors(filled: Store) -> None:
    assert run(filled.connections, side_by_side(_one("a"), _forgiving("list"), _two("b"))) == [b"1", "refused", b"1"]
    with pytest.raises(ServerError, match="WRONGTYPE"):
        run(filled.connections, side_by_side(_one("a"), _one("list")))
    assert run(filled.connections, _one("a")) == b"1", "the connection is in step"


def test_awaited(filled: Store, redis_url: str) -> None:
    async def asked() -> list[Any]:
        app = App(redis_url=redis_url)
        found = await arun(app.aconnections, side_by_side(_one("a"), _forgiving("list"), _two("b")))
        await app.aclose()
        return found

    assert asyncio.run(asked()) == [b"1", "refused", b"1"]


def test_scripts_that_the_server_forgot_are_brought_along(filled: Store) -> None:
    keys = filled.keys
    filled.ask("LPUSH", keys.queue("mail"), "one", "two")
    filled.ask("ZADD", keys.dead, 5, "gone")
    filled.ask("SCRIPT", "FLUSH")

    def sizes() -> Procedure[Any]:
        return side_by_side(
            queues.look(keys, ["mail"]),
            ask(queues.set_stretch(keys.dead, 0, 10)),
            queues.look(keys, ["mail"]),
            _one("a"),
            side_by_side(_one("a"), ask(queues.set_stretch(keys.dead, 0, 10))),
        )

    looks, dead, again, text, _ = run(filled.connections, sizes())
    assert looks == again == [queues.Look(2, b"one")]
    assert [one.payload for one in dead.members] == [b"gone"]
    assert text == b"1"
    assert run(filled.connections, sizes())[0] == looks


def test_only_the_first_of_the_same_script_has_its_text() -> None:
    which = load_script("sizes")
    calls = [script(which, ["k"], ["list"], again=True) for _ in range(2)]
    made = Together([*calls, command("GET", "a")])
    assert [part[0] for part in made.with_texts(made.parts)] == ["EVAL", "EVALSHA", "GET"]
