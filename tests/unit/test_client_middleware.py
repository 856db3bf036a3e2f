"""Client middleware: sees each job before it is pushed; may change it, send it elsewhere, or stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from henchman.app import App
from henchman.client.push import Handle, Pushed
from henchman.errors import ArgumentError
from henchman.store.call import Call

Facts = dict[str, Any]
Next = Callable[[], Any]


class Outbox:
    """Where pushes end in these tests: (queue key, payload as it was sent)."""

    def __init__(self) -> None:
        self.pushed: list[tuple[str, bytes]] = []

    def run(self, call: Call[Any]) -> None:
        for part in call.parts:
            if part[0] == "LPUSH":
                self.pushed += [(str(part[1]), one) for one in part[2:] if isinstance(one, bytes)]


class AsyncOutbox:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    async def run(self, call: Call[Any]) -> None:
        self._outbox.run(call)


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


@pytest.fixture
def app(outbox: Outbox) -> App:
    made = App(redis_url="redis://127.0.0.1:1")
    made._connections, made._aconnections = outbox, AsyncOutbox(outbox)
    made.job(name="j")(lambda number: None)
    return made


def push(app: App, number: int, way: str) -> Handle[Any]:
    job: Any = app.registry.get("j")
    if way == "enqueue":
        return job.enqueue(number)  # type: ignore[no-any-return]
    return asyncio.run(job.aenqueue(number))  # type: ignore[no-any-return]


WAYS = pytest.mark.parametrize("way", ["enqueue", "aenqueue"])
KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


def link(kind: str, before: Callable[[Facts], bool | None]) -> Callable[..., Any]:
    """A link that does ``before`` and then goes on, unless that returned False."""

    def plain(job: Facts, call_next: Next) -> Any:
        return None if before(job) is False else call_next()

    async def awaited(job: Facts, call_next: Callable[[], Awaitable[Any]]) -> Any:
        return None if before(job) is False else await call_next()

    return plain if kind == "sync" else awaited


@WAYS
@KINDS
def test_a_link_changes_the_job(app: App, outbox: Outbox, way: str, kind: str) -> None:
    def change(job: Facts) -> None:
        assert (job["class"], job["args"], job["queue"]) == ("j", [1], "default")
        job["queue"] = "vip"
        job["tenant"] = "acme"

    app.client_middleware.add(link(kind, change))

    handle = push(app, 1, way)

    [(key, payload)] = outbox.pushed
    assert key == "queue:vip"
    assert b'"queue":"vip"' in payload
    assert payload.endswith(b',"tenant":"acme"}')
    assert (handle.queue, handle.admission) == ("vip", "created")


@WAYS
@KINDS
def test_a_link_stops_the_push(app: App, outbox: Outbox, way: str, kind: str) -> None:
    app.client_middleware.add(link(kind, lambda job: False))
    assert push(app, 1, way).admission == "stopped"
    assert outbox.pushed == []


@WAYS
@KINDS
def test_an_error_reaches_the_caller_and_nothing_is_pushed(app: App, outbox: Outbox, way: str, kind: str) -> None:
    def fail(job: Facts) -> None:
        raise KeyError("no tenant")

    app.client_middleware.add(link(kind, fail))
    with pytest.raises(KeyError, match="no tenant"):
        push(app, 1, way)
    assert outbox.pushed == []


@WAYS
def test_the_first_link_is_outermost_whatever_its_kind(app: App, way: str) -> None:
    order: list[str] = []

    @app.client_middleware.add
    def one(job: Facts, call_next: Next) -> Any:
        order.append("one in")
        call_next()
        order.append("one out")

    @app.client_middleware.add
    async def two(job: Facts, call_next: Callable[[], Awaitable[Any]]) -> Any:
        order.append("two in")
        await call_next()
        order.append("two out")

    push(app, 1, way)
    assert order == ["one in", "two in", "two out", "one out"]


def test_an_async_link_beneath_a_running_loop(app: App, outbox: Outbox) -> None:
    app.client_middleware.add(link("async", lambda job: job.update(seen=True)))

    async def scene() -> None:
        push(app, 1, "enqueue")  # not awaited, in a loop that runs

    asyncio.run(scene())
    assert b'"seen":true' in outbox.pushed[0][1]


@WAYS
def test_a_link_that_goes_on_twice_pushes_once(app: App, outbox: Outbox, way: str) -> None:
    @app.client_middleware.add
    def again(job: Facts, call_next: Next) -> Any:
        call_next()
        return call_next()

    push(app, 1, way)
    assert len(outbox.pushed) == 1


def test_the_handle_has_the_jid_that_was_pushed(app: App) -> None:
    app.client_middleware.add(link("sync", lambda job: job.update(jid="f" * 24)))
    assert push(app, 1, "enqueue").jid == "f" * 24


@pytest.mark.parametrize(("field", "value"), [("queue", None), ("queue", ""), ("class", 7), ("jid", None)])
def test_a_job_that_nobody_could_run_is_refused(app: App, outbox: Outbox, field: str, value: Any) -> None:
    app.client_middleware.add(link("sync", lambda job: job.update({field: value})))
    with pytest.raises(ArgumentError, match=f"a client middleware set {field}"):
        push(app, 1, "enqueue")
    assert outbox.pushed == []


def test_what_json_cannot_hold_is_refused(app: App, outbox: Outbox) -> None:
    app.client_middleware.add(link("sync", lambda job: job.update(tenant=object())))
    with pytest.raises(ArgumentError, match="tenant"):
        push(app, 1, "enqueue")
    assert outbox.pushed == []


@WAYS
def test_rows_are_changed_stopped_and_sent_elsewhere(app: App, outbox: Outbox, way: str) -> None:
    def sort(job: Facts) -> bool:
        number = job["args"][0]
        job["queue"] = "odd" if number % 2 else "even"
        return bool(number != 3)

    app.client_middleware.add(link("sync", sort))
    job: Any = app.registry.get("j")
    rows = [(n,) for n in range(5)]

    told = job.enqueue_many(rows) if way == "enqueue" else asyncio.run(job.aenqueue_many(rows))

    assert told == Pushed(count=5, created=4, duplicates=0, stopped=1)
    assert [key for key, _ in outbox.pushed] == ["queue:even"] * 3 + ["queue:odd"]


def test_a_push_by_name_goes_through_too(app: App, outbox: Outbox) -> None:
    app.client_middleware.add(link("sync", lambda job: job.update(tenant="acme")))
    app.enqueue("Ruby", 1)
    assert b'"tenant":"acme"' in outbox.pushed[0][1]
