"""The push with nobody at the other end: payloads, rows, slices. A recording runner stands for the server."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from henchman.app import App
from henchman.client import rows as _rows
from henchman.client.push import Pushed
from henchman.errors import ArgumentError, DefinitionError, ServerAway
from henchman.store.call import Call


class Recorder:
    """Takes calls as both runners do; ``fail`` is raised instead."""

    def __init__(self) -> None:
        self.calls: list[Call[Any]] = []
        self.fail: Exception | None = None

    def run(self, call: Call[Any]) -> Any:
        if self.fail is not None:
            raise self.fail
        self.calls.append(call)

    @property
    def pushed(self) -> list[tuple[str, bytes]]:
        """(queue key, payload) of every job that went to a queue."""
        return [
            (str(part[1]), bytes(one))  # type: ignore[arg-type]  # payloads are bytes
            for call in self.calls
            for part in call.parts
            if part[0] == "LPUSH"
            for one in part[2:]
        ]

    @property
    def scheduled(self) -> list[tuple[Any, Any, bytes]]:
        """(at, delay, payload) of every job that went to the schedule."""
        args = [part[4:] for call in self.calls for part in call.parts if part[0] == "EVALSHA"]
        return [(one[i], one[i + 1], one[i + 2]) for one in args for i in range(0, len(one), 3)]  # type: ignore[misc]

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return [json.loads(payload) for _, payload in self.pushed]


class AsyncRecorder:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def run(self, call: Call[Any]) -> Any:
        await asyncio.sleep(0)
        return self._recorder.run(call)


@pytest.fixture
def sent() -> Recorder:
    return Recorder()


@pytest.fixture
def app(sent: Recorder) -> App:
    return offline(sent)


def offline(sent: Recorder, **settings: Any) -> App:
    made = App(redis_url="redis://127.0.0.1:1", **settings)
    made._connections, made._aconnections = sent, AsyncRecorder(sent)
    return made


def send(user_id: int, *, lang: str = "en") -> None:
    """The job of these tests."""


@dataclass
class Row:
    day: datetime


def test_golden_payload(app: App, sent: Recorder) -> None:
    job = app.job(queue="mail", retry=5, name="pkg.send")(send)

    handle = job.enqueue(42, lang="de")

    [(key, payload)] = sent.pushed
    golden = (
        rb'\{"retry":5,"queue":"mail","class":"pkg\.send","args":\[42\],"kwargs":\{"lang":"de"\},'
        rb'"jid":"[0-9a-f]{24}","created_at":\d{10}\.\d+,"enqueued_at":\d{10}\.\d+\}'
    )
    assert re.fullmatch(golden, payload)
    assert key == "queue:mail"
    assert (handle.jid, handle.queue, handle.admission) == (json.loads(payload)["jid"], "mail", "created")
    assert sent.calls[0].parts[0] == ("SADD", "queues", "mail")
    assert sent.calls[0].again is False


def test_golden_payload_of_every_option(app: App, sent: Recorder) -> None:
    job = app.job(name="j", retry_queue="slow", dead=False, backtrace=5, tags=["a"], log_level="debug", retry_for=90.5)(
        send
    )
    job.using(timeout=2, expires=timedelta(minutes=1), retry=False, tags=["b", "c"], queue="q").enqueue(1)
    head = (
        b'{"retry":false,"queue":"q","class":"j","retry_for":91,"retry_queue":"slow","dead":false,"backtrace":5,'
        b'"tags":["b","c"],"log_level":"debug","hm":{"timeout":2.0,"expires":60.0},"args":[1],"jid":"'
    )
    assert sent.pushed[0][1].startswith(head)


def test_a_plain_job_is_as_short_as_sidekiqs(app: App, sent: Recorder) -> None:
    app.job(name="j")(send).enqueue(user_id=7)
    [job] = sent.jobs
    assert list(job) == ["retry", "queue", "class", "args", "jid", "created_at", "enqueued_at"]
    assert (job["retry"], job["queue"], job["args"]) == (True, "default", [7])


def test_times_are_now(app: App, sent: Recorder) -> None:
    before = time.time()
    app.job(name="j")(send).enqueue(1)
    [job] = sent.jobs
    assert before - 0.001 <= job["created_at"] == job["enqueued_at"] <= time.time() + 0.001


def test_times_in_whole_milliseconds(sent: Recorder) -> None:
    before = time.time()
    job = offline(sent, sidekiq="8", timestamps="ms").job(name="j")(send)
    job.enqueue(1)
    job.using(delay=5).enqueue(2)
    later = json.loads(sent.scheduled[0][2])
    for one in (sent.jobs[0]["created_at"], sent.jobs[0]["enqueued_at"], later["created_at"]):
        assert isinstance(one, int)
        assert before * 1000 - 1 <= one <= time.time() * 1000 + 1


def test_every_jid_is_another(app: App) -> None:
    job = app.job(name="j")(send)
    assert len({job.enqueue(1).jid for _ in range(100)}) == 100


def test_delay_leaves_the_time_to_the_server(app: App, sent: Recorder) -> None:
    app.job(name="j")(send).using(delay=timedelta(seconds=90)).enqueue(1)
    [(at, delay, payload)] = sent.scheduled
    assert (at, delay) == ("", "90.0")
    assert "enqueued_at" not in json.loads(payload)
    assert json.loads(payload)["queue"] == "default"


def test_at_is_the_producers(app: App, sent: Recorder) -> None:
    moment = datetime(2124, 5, 6, 7, 8, 9, 500_000, tzinfo=UTC)
    app.job(name="j")(send).using(at=moment).enqueue(1)
    [(at, _, payload)] = sent.scheduled
    assert float(at) == moment.timestamp()
    assert "enqueued_at" not in json.loads(payload)


@pytest.mark.parametrize("when", [{"delay": 0}, {"at": datetime(2020, 1, 1, tzinfo=UTC)}])
def test_what_is_due_goes_to_its_queue(app: App, sent: Recorder, when: dict[str, Any]) -> None:
    app.job(name="j")(send).using(**when).enqueue(1)
    assert sent.scheduled == []
    assert "enqueued_at" in sent.jobs[0]


def test_using_changes_the_job_itself_not_at_all(app: App, sent: Recorder) -> None:
    job = app.job(name="j", queue="a")(send)
    other = job.using(queue="b")
    third = other.using(retry=3)
    for one in (third, other, job):
        one.enqueue(1)
    assert [(j["queue"], j["retry"]) for j in sent.jobs] == [("b", 3), ("b", True), ("a", True)]


def test_the_namespace(sent: Recorder) -> None:
    offline(sent, namespace="ns").job(name="j")(send).enqueue(1)
    assert [part[1] for part in sent.calls[0].parts] == ["ns:queues", "ns:queue:default"]


def test_awaited(app: App, sent: Recorder) -> None:
    job = app.job(name="j")(send)

    async def scene() -> None:
        handle = await job.aenqueue(1, lang="fr")
        assert handle.admission == "created"
        await job.using(queue="b").aenqueue(2)
        assert await job.aenqueue_many([(3,), (4,)]) == Pushed(2, 2, 0, 0)
        await app.aenqueue("Ruby", 5, queue="r")

    asyncio.run(scene())
    assert [(j["class"], j["queue"], j["args"]) for j in sent.jobs] == [
        ("j", "default", [1]),
        ("j", "b", [2]),
        ("j", "default", [3]),
        ("j", "default", [4]),
        ("Ruby", "r", [5]),
    ]


def test_wrong_arguments_are_refused_here(app: App, sent: Recorder) -> None:
    job = app.job(name="j")(send)
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((), {}), ((1, 2), {}), ((1,), {"land": "de"})]
    for args, kwargs in wrong:
        with pytest.raises(ArgumentError, match=r"send\(\)"):
            job.enqueue(*args, **kwargs)
    with pytest.raises(ArgumentError, match="user_id is NaN"):
        job.enqueue(float("nan"))
    assert sent.calls == []


def test_a_call_is_an_ordinary_call(app: App, sent: Recorder) -> None:
    seen = []

    @app.job(name="j")
    def work(x: int) -> int:
        """What it does."""
        seen.append(x)
        return x + 1

    assert work(1) == 2
    assert (work.__name__, work.__doc__, work.name) == ("work", "What it does.", "j")
    assert (seen, sent.calls) == ([1], [])


def test_rows_of_every_kind(app: App, sent: Recorder) -> None:
    job = app.job(name="j")(send)
    told = job.enqueue_many([(1,), {"user_id": 2, "lang": "fr"}, job.call(3, lang="de"), job.call(user_id=4)])
    assert told == Pushed(4, 4, 0, 0)
    assert [(j["args"], j.get("kwargs")) for j in sent.jobs] == [
        ([1], None),
        ([2], {"lang": "fr"}),
        ([3], {"lang": "de"}),
        ([4], None),
    ]
    assert len(sent.calls) == 1


def test_no_rows(app: App, sent: Recorder) -> None:
    assert app.job(name="j")(send).enqueue_many([]) == Pushed(0, 0, 0, 0)
    assert sent.calls == []


def test_rows_are_read_lazily(app: App, sent: Recorder) -> None:
    read = 0

    def rows() -> Iterator[tuple[int]]:
        nonlocal read
        for number in range(2500):
            if number in (1000, 2000):
                assert len(sent.calls) == number // 1000  # the slice before went out first
            read += 1
            yield (number,)

    assert app.job(name="j")(send).enqueue_many(rows()) == Pushed(2500, 2500, 0, 0)

    assert read == 2500
    assert [len(call.parts[1]) - 2 for call in sent.calls] == [1000, 1000, 500]
    assert [j["args"][0] for j in sent.jobs] == list(range(2500))
    assert len({j["jid"] for j in sent.jobs}) == 2500


@pytest.mark.parametrize("options", [{"track": True}, {"key": "user_id", "once": True}])
def test_jobs_with_a_record_or_a_key_come_in_small_slices(app: App, sent: Recorder, options: dict[str, Any]) -> None:
    """The server works on each of them: a thousand at once would have others wait for 12 ms."""

    def rows() -> Iterator[tuple[int]]:
        yield from ((number,) for number in range(600))
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone") as caught:
        app.job(name="j", **options)(send).enqueue_many(rows())
    assert [sum(b'"jid"' in bytes(part) for part in call.parts[0] if type(part) is bytes) for call in sent.calls] == [
        250,
        250,
    ]
    assert caught.value.__notes__ == ["500 rows were pushed before"]


@pytest.mark.parametrize("row", [("x" * 1_500_000,), {"text": "", "more": "x" * 1_500_000}])
def test_large_rows_make_small_slices(app: App, sent: Recorder, row: Any) -> None:
    @app.job(name="j")
    def load(text: str, *, more: str = "") -> None: ...

    load.enqueue_many([row] * 4)
    assert [len(call.parts[1]) - 2 for call in sent.calls] == [3, 1]
    assert _rows.SLICE_BYTES == 4_000_000


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (7, "row 1001: j.enqueue_many got int 7; give a tuple of arguments, a dict"),
        ("text", "row 1001: j.enqueue_many got str"),
        ([1], "row 1001: j.enqueue_many got list"),
        ((), "row 1001: send() missing"),
        ({"user": 1}, "row 1001: send()"),
        ({1: 2}, "row 1001: send()"),
        ((float("inf"),), "row 1001: user_id is Infinity"),
    ],
)
def test_a_bad_row_is_named_and_those_before_it_are_pushed(app: App, sent: Recorder, bad: Any, said: str) -> None:
    rows = [*((n,) for n in range(1001)), bad, (5,)]
    with pytest.raises(ArgumentError) as caught:
        app.job(name="j")(send).enqueue_many(rows)
    assert said in str(caught.value)
    assert len(sent.pushed) == 1001
    assert caught.value.pushed == 1001
    assert caught.value.__notes__ == ["1,001 rows were pushed before"]


def test_an_error_of_the_rows_says_how_many_were_pushed(app: App, sent: Recorder) -> None:
    def rows() -> Iterator[tuple[int]]:
        yield from ((n,) for n in range(1500))
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone") as caught:
        app.job(name="j")(send).enqueue_many(rows())
    assert caught.value.__notes__ == ["1,000 rows were pushed before"]
    assert len(sent.pushed) == 1000


def test_rows_may_be_awaited(app: App, sent: Recorder) -> None:
    job = app.job(name="j")(send)

    async def rows(*last: Any) -> AsyncIterator[Any]:
        for number in range(1200):
            await asyncio.sleep(0)
            assert len(sent.pushed) == number // 1000 * 1000
            yield (number,)
        for row in last:
            yield row

    assert asyncio.run(job.aenqueue_many(rows())) == Pushed(1200, 1200, 0, 0)
    assert [j["args"][0] for j in sent.jobs] == list(range(1200))
    sent.calls.clear()
    with pytest.raises(ArgumentError, match=r"row 1200: j.enqueue_many got int") as caught:
        asyncio.run(job.aenqueue_many(rows(7)))
    assert (caught.value.pushed, len(sent.pushed)) == (1200, 1200)
    with pytest.raises(ArgumentError, match="await aenqueue_many"):
        job.enqueue_many(rows())  # type: ignore[arg-type]


def test_rows_may_be_scheduled(app: App, sent: Recorder) -> None:
    told = app.job(name="j")(send).using(delay=60).enqueue_many((n,) for n in range(3))
    assert told.created == 3
    assert [(at, delay) for at, delay, _ in sent.scheduled] == [("", "60.0")] * 3


def test_by_name(app: App, sent: Recorder) -> None:
    handle = app.enqueue("HardJob", "bob", 5, {"deep": [None]}, queue="ruby", retry=3, timeout=9)
    [job] = sent.jobs
    assert (job["class"], job["args"], job["queue"], job["retry"]) == (
        "HardJob",
        ["bob", 5, {"deep": [None]}],
        "ruby",
        3,
    )
    assert job["hm"] == {"timeout": 9.0}
    assert handle.queue == "ruby"


def test_by_name_of_a_job_that_is_defined_here(app: App, sent: Recorder) -> None:
    app.job(name="j", queue="mine", retry=7)(send)
    app.enqueue("j", 1)
    app.enqueue("j", 1, queue="other", delay=5)
    assert (sent.jobs[0]["queue"], sent.jobs[0]["retry"]) == ("mine", 7)
    assert json.loads(sent.scheduled[0][2])["queue"] == "other"


@pytest.mark.parametrize("name", ["", 7, None])
def test_by_no_name(app: App, name: Any) -> None:
    with pytest.raises(DefinitionError, match="a job is named by a text"):
        app.enqueue(name)


def test_by_name_only_plain_arguments(app: App) -> None:
    with pytest.raises(ArgumentError):
        app.enqueue("HardJob", datetime.now(UTC))


@pytest.mark.parametrize("executed", [False, None])
def test_a_server_that_is_away_is_told_to_the_caller(app: App, sent: Recorder, executed: bool | None) -> None:
    sent.fail = ServerAway("away", executed=executed)
    job = app.job(name="j")(send)
    with pytest.raises(ServerAway) as caught:
        job.enqueue(1)
    assert caught.value.executed is executed
    with pytest.raises(ServerAway):
        asyncio.run(job.aenqueue(1))


def test_rich_arguments_travel_as_annotated(app: App, sent: Recorder) -> None:
    @app.job(name="j")
    def work(row: Row) -> None: ...

    work.enqueue(Row(datetime(2030, 1, 2, tzinfo=UTC)))
    assert sent.jobs[0]["args"] == [{"day": "2030-01-02T00:00:00+00:00"}]
