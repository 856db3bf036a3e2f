"""Pushing to ordered queues on a real server: what stands there after each push, and what the pusher is told."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

import pytest

from henchman import App, ArgumentError, ServerAway, Unconfirmed
from henchman.ordered import push as pushing
from henchman.ordered.definition import OrderedJob
from henchman.ordered.push import OrderedPush, OrderedPushed
from henchman.store.call import Call
from henchman.store.ordered import pairs, unpacked
from support.fake_server import CLOSE, FakeServer
from support.store import Store

Waiting = list[tuple[float, bytes]]


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


def define(app: App, **options: Any) -> Any:
    made: OrderedJob[Any] = app.ordered(**{"name": "it", "queue": "q", **options})(lambda claim: None)
    return made


def waiting(store: Store, id: str, queue: str = "q") -> Waiting:
    """The payloads of an id, lowest score first."""
    base = store.keys.ordered(queue)
    single = store.ask("HGET", base + "one", id)
    if single is not None:
        return [unpacked(single)]
    return pairs(store.ask("ZRANGE", f"{base}p:{id}", 0, -1, "WITHSCORES"))


def due(store: Store, queue: str = "q") -> dict[str, float]:
    """id → when somebody may take it, earliest first."""
    flat = store.ask("ZRANGE", store.keys.ordered(queue) + "due", 0, -1, "WITHSCORES")
    return {flat[at].decode(): float(flat[at + 1]) for at in range(0, len(flat), 2)}


@pytest.fixture(params=["push", "apush"])
def push(request: pytest.FixtureRequest, app: App) -> Callable[..., Any]:
    """``push(job, …)``, sync or awaited."""

    def sync(job: Any, *args: Any, many: bool = False, **options: Any) -> Any:
        return (job.push_many if many else job.push)(*args, **options)

    def awaited(job: Any, *args: Any, many: bool = False, **options: Any) -> Any:
        async def go() -> Any:
            try:
                return await (job.apush_many if many else job.apush)(*args, **options)
            finally:
                await app.aclose()

        return asyncio.run(go())

    return sync if request.param == "push" else awaited


def test_a_push_stands_under_its_id(app: App, store: Store, push: Callable[..., Any]) -> None:
    job = define(app)
    before = store.now()
    assert push(job, "42", {"b": 1, "a": 2}, score=7) == OrderedPush("42", "q", created=True)
    assert push(job, 42, {"a": 2, "b": 1}, score=3) == OrderedPush("42", "q", created=False), "the same id and payload"
    assert waiting(store, "42") == [(3.0, b'{"a":2,"b":1}')]
    assert list(due(store)) == ["42"]
    assert before - 0.001 <= due(store)["42"] <= store.now()
    assert store.ask("SMEMBERS", store.keys.ordered_queues) == [b"q"]


def test_score_and_payload_may_be_left_out(app: App, store: Store, push: Callable[..., Any]) -> None:
    before = store.now()
    push(define(app), "a")
    [(score, payload)] = waiting(store, "a")
    assert payload == b'""'
    assert before - 0.001 <= score <= store.now()


@pytest.mark.parametrize("id", ["ü/☃", "a b\n", "\x00", "x" * 512, "-5", "0x1F", " "], ids=lambda id: ascii(id)[:12])
def test_an_id_is_any_text(app: App, store: Store, id: str) -> None:
    job = define(app)
    assert job.push(id, 1, score=1) == OrderedPush(id, "q", created=True)
    assert waiting(store, id) == [(1.0, b"1")]


@pytest.mark.parametrize(
    ("id", "words"),
    [
        ("", "1 to 512 characters"),
        ("x" * 513, "this one has 513"),
        (True, "text or a whole number"),
        (1.0, "text or a whole number"),
        (None, "text or a whole number"),
        (b"a", "text or a whole number"),
        ("\ud800", "lone surrogate"),
        (10**600, "more than 512 digits"),
    ],
)
def test_what_is_no_id_is_refused(app: App, store: Store, id: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        define(app).push(id, 1)
    assert store.all_keys() == set()


@pytest.mark.parametrize("score", [0, -5, 2**53, -(2**53), 1.5, -0.1, 1e300, 5e-324, 1789000000.123456])
def test_scores_arrive_exactly(app: App, store: Store, score: float) -> None:
    job = define(app)
    job.push("a", 1, score=score)
    assert waiting(store, "a") == [(float(score), b"1")]
    job.push("a", 2, score=score)
    assert waiting(store, "a") == [(float(score), b"1"), (float(score), b"2")]


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (2**53 + 1, r"exact up to 2\*\*53 only; count from a later start, or give float\(score\)"),
        (10**100, "score=a huge number: whole numbers are exact up to"),
        (math.nan, "finite"),
        (-math.inf, "finite"),
        (True, "an int or a float"),
        ("5", "an int or a float"),
        (datetime(2030, 1, 1, tzinfo=UTC), r"give its \.timestamp\(\)"),
    ],
)
def test_what_is_no_score_is_refused(app: App, score: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        define(app).push("a", 1, score=score)


def test_a_push_may_be_put_off(app: App, store: Store, push: Callable[..., Any]) -> None:
    job = define(app)
    moment = datetime.now(UTC) + timedelta(days=1)
    push(job, "at", 1, at=moment)
    push(job, "delay", 1, delay=60)
    push(job, "timedelta", 1, delay=timedelta(hours=2))
    push(job, "zero", 1, delay=0)
    now, when = store.now(), due(store)
    assert list(when) == ["zero", "delay", "timedelta", "at"]
    assert when["at"] == pytest.approx(moment.timestamp(), abs=0.001)
    assert [when["delay"] - now, when["timedelta"] - now] == pytest.approx([60, 7200], abs=30)
    push(job, "at", 2)
    assert due(store)["at"] == pytest.approx(moment.timestamp(), abs=0.001), "the time of what waits stays"


def test_a_time_before_all_times_is_due(app: App, store: Store) -> None:
    job = define(app)
    job.push("old", 1, at=datetime(1960, 1, 1, tzinfo=UTC))
    job.push_many([{"id": "first", "at": 0}])
    assert due(store) == {"first": 0, "old": 0}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"at": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is what is refused
        ({"at": 1789000000}, "give a datetime"),
        ({"at": "tomorrow"}, "give a datetime"),
        ({"delay": -1}, "seconds or a timedelta"),
        ({"delay": math.nan}, "seconds or a timedelta"),
        ({"delay": True}, "seconds or a timedelta"),
        ({"delay": 5, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "not both"),
    ],
)
def test_what_is_no_time_is_refused(app: App, options: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        define(app).push("a", 1, **options)


@pytest.mark.parametrize(
    ("collapse", "left"),
    [
        ("min", [(1.0, b'"x"'), (3.0, b'"y"')]),
        ("latest", [(3.0, b'"y"')]),
        ("none", [(1.0, b'"x"'), (2.0, b'"x"'), (3.0, b'"y"')]),
    ],
)
def test_payloads_of_an_id_merge(app: App, store: Store, collapse: str, left: Waiting) -> None:
    job = define(app, collapse=collapse)
    pushed = job.push_many([("a", "x", 2), ("a", "y", 3), ("a", "x", 1)])
    assert pushed == OrderedPushed(3, 1)
    assert waiting(store, "a") == left


def test_rows_come_in_several_forms(app: App, store: Store, push: Callable[..., Any]) -> None:
    rows = [
        ("a", 1),
        ("a", 2, 5),
        {"id": "b"},
        {"id": 3, "payload": {"x": 1}, "score": 1.5, "at": 4e9},
        {"id": "d", "payload": 4, "delay": 60, "score": None},
        {"id": "e", "payload": 5, "at": datetime.fromtimestamp(4e9 + 1, UTC)},
    ]
    assert push(define(app), iter(rows), many=True) == OrderedPushed(6, 5)
    assert waiting(store, "a")[0] == (5.0, b"2")
    assert waiting(store, "b")[0][1] == b'""'
    assert waiting(store, "3") == [(1.5, b'{"x":1}')]
    assert list(due(store)) == ["a", "b", "d", "3", "e"]
    assert (due(store)["3"], due(store)["e"]) == (4e9, 4e9 + 1)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (("a",), "a tuple of 1"),
        (("a", 1, 2, 3), "a tuple of 4"),
        (["a", 1], "give a dict with id and payload"),
        ({"payload": 1}, "it has no id, only 'payload'"),
        ({"id": "a", "paylod": 1}, "no field 'paylod' of a push.*did you mean 'payload'"),
        ({"id": "a", "at": 1789000000000}, "are these milliseconds"),
        ({"id": "a", "payload": math.nan}, "payload is NaN"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named_after_those_before_it(
    app: App, store: Store, push: Callable[..., Any], row: Any, words: str
) -> None:
    with pytest.raises(ArgumentError, match=f"row 2 of it.push_many: .*{words}") as caught:
        push(define(app), [("x", 1), ("y", 1), row, ("z", 1)], many=True)
    assert set(due(store)) == {"x", "y"}
    assert caught.value.pushed == 2


class Counting:
    """Passes calls on, and counts them."""

    def __init__(self, runner: Any) -> None:
        self.calls: list[Call[Any]] = []
        self._runner = runner

    def run(self, call: Call[Any]) -> Any:
        self.calls.append(call)
        return self._runner.run(call)

    def close(self) -> None:
        self._runner.close()


@pytest.fixture
def counted(app: App) -> Counting:
    counting = Counting(app.connections)
    app._connections = counting
    return counting


def test_many_rows_go_in_chunks_and_in_their_order(app: App, store: Store, counted: Counting) -> None:
    seen: list[int] = []

    def rows() -> Iterator[Any]:
        for number in range(1201):
            seen.append(len(counted.calls))
            yield {"id": number}

    assert define(app).push_many(rows()) == OrderedPushed(1201, 1201)
    assert len(counted.calls) == 3
    assert (seen[499], seen[500], seen[1000]) == (0, 1, 2), "rows are read when there is room for them"
    assert list(due(store)) == [str(number) for number in range(1201)]


def test_a_chunk_is_no_larger_than_4_mb(app: App, counted: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushing, "CHUNK_BYTES", 1000)
    assert define(app).push_many((number, "x" * 300) for number in range(10)) == OrderedPushed(10, 10)
    assert len(counted.calls) == 3


def test_rows_may_be_awaited(app: App, store: Store) -> None:
    async def rows() -> AsyncIterator[Any]:
        for number in range(600):
            await asyncio.sleep(0)
            yield number, "x"

    async def go() -> OrderedPushed:
        pushed: OrderedPushed = await define(app).apush_many(rows())
        await app.aclose()
        return pushed

    assert asyncio.run(go()) == OrderedPushed(600, 600)
    assert list(due(store)) == [str(number) for number in range(600)]


def test_no_rows_are_no_round_trip(app: App, counted: Counting) -> None:
    assert define(app).push_many([]) == OrderedPushed(0, 0)
    assert counted.calls == []


def test_crc32_deals_ids_to_partitions(app: App, store: Store, push: Callable[..., Any]) -> None:
    job = define(app, partitions=3)
    pushed = push(job, "first", 1)
    assert pushed.queue == f"q.{crc32(b'first') % 3}"
    assert waiting(store, "first", pushed.queue)
    rows = [(number % 50, number, number) for number in range(4000)]
    assert push(job, rows, many=True).count == 4000
    for id in map(str, range(50)):
        queue = f"q.{crc32(id.encode()) % 3}"
        assert [score for score, _ in waiting(store, id, queue)] == list(range(int(id), 4000, 50))
    assert sum(len(due(store, name)) for name in job.queues) == 51
    assert sorted(store.ask("SMEMBERS", store.keys.ordered_queues)) == [b"q.0", b"q.1", b"q.2"]


def test_a_middleware_sees_and_changes_each_push(app: App, store: Store, push: Callable[..., Any]) -> None:
    seen: list[dict[str, Any]] = []

    @app.client_middleware.add
    def link(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        seen.append(deepcopy(job))
        if job["args"] == ["stop"]:
            return None
        job["id"] = f"t1/{job['id']}"
        job["args"][0] = {"b": 1, "a": job["args"][0]}
        job["score"] = 9
        call_next()
        return call_next()  # a link may do that, and it counts once

    job = define(app)
    assert push(job, "a", "x", score=1) == OrderedPush("t1/a", "q", created=True)
    fields = {"class": "it", "queue": "q", "args": ["x"], "id": "a", "score": 1, "at": None, "delay": None}
    assert seen == [fields | {"ordered": True}]
    assert waiting(store, "t1/a") == [(9.0, b'{"a":"x","b":1}')]
    assert push(job, "a", "stop") == OrderedPush("a", "q", created=False, stopped=True)
    assert push(job, [("b", "stop"), ("c", "x")], many=True) == OrderedPushed(2, 1, stopped=1)
    assert set(due(store)) == {"t1/a", "t1/c"}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("queue", "elsewhere", "set class or queue"),
        ("class", "other", "set class or queue"),
        ("args", [], "set args of an ordered push"),
        ("args", [math.nan], "payload is NaN"),
        ("id", None, "text or a whole number"),
        ("score", "high", "an int or a float"),
    ],
)
def test_a_middleware_cannot_make_what_push_would_refuse(
    app: App, store: Store, field: str, value: Any, words: str
) -> None:
    @app.client_middleware.add
    def link(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        job[field] = value
        return call_next()

    with pytest.raises(ArgumentError, match=words):
        define(app).push("a", 1)
    assert store.all_keys() == set()


def test_an_id_that_a_middleware_changed_goes_to_its_own_partition(app: App, store: Store) -> None:
    @app.client_middleware.add
    def link(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        job["id"] = f"t1/{job['id']}"
        return call_next()

    job = define(app, partitions=7)
    for number in range(20):
        pushed = job.push(number)
        assert pushed.queue == f"q.{crc32(pushed.id.encode()) % 7}"
        assert pushed.id in due(store, pushed.queue)


def test_id_score_and_time_are_derived(app: App, store: Store, push: Callable[..., Any]) -> None:
    job = define(
        app, derive=lambda payload: {"id": payload["id"], "score": payload["version"], "at": payload.get("from")}
    )
    assert push(job, {"id": 1, "version": 5}).id == "1"
    assert push(job, {"id": 2, "version": 6}, id="two", score=1, delay=60).id == "two"
    rows = [{"id": 3, "version": 1, "from": 2e9}, {"id": 3, "version": 0}]
    assert push(job, rows, many=True) == OrderedPushed(2, 1)
    assert waiting(store, "1") == [(5.0, b'{"id":1,"version":5}')]
    assert waiting(store, "two")[0][0] == 1.0
    assert [score for score, _ in waiting(store, "3")] == [0.0, 1.0]
    assert due(store)["3"] == 2e9
    with pytest.raises(ArgumentError, match=r"row 1 of it\.push_many: it: derive raised KeyError"):
        push(job, [{"id": 4, "version": 1}, {"id": 5}], many=True)
    assert waiting(store, "4")


def test_a_derived_id_may_be_all_there_is(app: App, store: Store) -> None:
    job = define(app, derive=lambda payload: payload["id"])
    job.push({"id": "a"})
    assert list(due(store)) == ["a"]


@pytest.mark.parametrize("buffer", [0, 100])
def test_a_push_whose_answer_was_lost_is_not_sent_again(buffer: int) -> None:
    with FakeServer(
        lambda words: CLOSE if b"ordered" in b"".join(words) or words[0] == b"EVALSHA" else b"+OK\r\n"
    ) as far:
        app = App(redis_url=far.url, buffer=buffer, io_timeout=2)
        job = define(app)
        with pytest.raises(ServerAway) as told:
            job.push("a", 1)
        assert told.value.executed is None
        with pytest.raises(ServerAway):
            job.push_many([("a", 1)])
        sent = [words for words in far.received if words[0].startswith(b"EVALSHA")]
        assert len(sent) == 2, "each once"
        assert not app.client.buffer.waiting
        app.close()


@pytest.mark.parametrize("buffer", [0, 100])
def test_a_server_that_is_not_there_is_told_and_nothing_is_buffered(buffer: int) -> None:
    app = App(redis_url="redis://127.0.0.1:1", buffer=buffer, connect_timeout=2)
    began = time.monotonic()
    with pytest.raises(ServerAway) as told:
        define(app).push("a", 1)
    assert told.value.executed is False
    assert time.monotonic() - began < 10
    assert not app.client.buffer.waiting


def test_replicas_confirm_ordered_pushes_too(redis_url: str, store: Store) -> None:
    app = App(redis_url=redis_url, wait_replicas=1, wait_timeout=0.05)
    with pytest.raises(Unconfirmed) as told:
        define(app).push("a", 1)
    assert told.value.jids == ("a",)
    assert list(due(store)) == ["a"]
    app.close()
