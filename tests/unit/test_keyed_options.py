"""What a definition may say about keys, the text of a key, and what a payload says of it."""

from __future__ import annotations

import enum
import json
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from henchman import App
from henchman.client.options import PushOptions, definition_options, named_options
from henchman.errors import ArgumentError, DefinitionError, DuplicateJob, ServerAway
from henchman.store.call import Call
from support.keyed import KeyedServer


@pytest.fixture
def server() -> KeyedServer:
    return KeyedServer()


@pytest.fixture
def app(server: KeyedServer) -> App:
    made = App(redis_url="redis://127.0.0.1:1")
    made._connections = server  # type: ignore[assignment]
    return made


def charge(order_id: str, cents: int = 100, *, region: str = "eu") -> None:
    """The job of these tests."""


# --- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"once": True},
        {"once": True, "once_for": timedelta(days=180), "unique": "running"},
        {"unique": "until_success"},
        {"unique": ("until_success", "running"), "on_conflict": "wait"},
        {"unique": "queued", "on_conflict": "replace"},
        {"unique": "running", "on_conflict": "skip"},
        {"unique": ("queued", "running"), "on_conflict": "raise"},
        {"debounce": 5},
        {"debounce": 5, "debounce_most": 60, "unique": "running", "on_conflict": "wait"},
        {"throttle": 5},
        {"throttle": 5, "once": True},
        {"throttle": 5, "unique": ("queued", "running"), "on_conflict": "replace"},
        {"throttle": 5, "on_conflict": "raise"},
    ],
)
def test_what_goes_together(given: dict[str, Any]) -> None:
    made = definition_options("pkg.job", {"key": "order_id", **given})
    assert made.key == ("order_id",)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"once": True, "key": None}, "once= needs key=, which says what is the same work"),
        ({"throttle": 5, "key": None}, "throttle= needs key="),
        ({"scope": "x", "key": None}, "scope= needs key="),
        ({}, "key= says what is the same work; add what becomes of it: once=, unique=, debounce="),
        ({"scope": "x"}, "add what becomes of it"),
        ({"unique": "queued", "once_for": 60}, "once_for= belongs to once=True"),
        ({"unique": "queued", "debounce_most": 60}, "debounce_most= belongs to debounce="),
        ({"once": True, "unique": "queued"}, "once and queued exclude each other"),
        ({"once": True, "unique": "until_success"}, "once and until_success exclude each other"),
        ({"unique": ("queued", "until_success")}, "queued and until_success exclude each other"),
        ({"debounce": 5, "once": True}, "debounce= goes with unique='running' alone, not with once"),
        ({"debounce": 5, "unique": "queued"}, "debounce= goes with unique='running' alone, not with queued"),
        ({"debounce": 5, "throttle": 5}, "debounce= goes with unique='running' alone, not with throttle"),
        ({"debounce": 5, "debounce_most": 4}, "debounce_most=4 is shorter than debounce=5"),
        (
            {"once": True, "on_conflict": "replace"},
            "on_conflict='replace' does not go with once: give 'skip' or 'raise'",
        ),
        ({"once": True, "on_conflict": "wait"}, "on_conflict='wait' does not go with once"),
        ({"unique": "queued", "on_conflict": "wait"}, "give 'skip' or 'raise' or 'replace'"),
        ({"unique": "until_success", "on_conflict": "replace"}, "give 'skip' or 'raise' or 'wait'"),
        ({"unique": "running", "on_conflict": "raise"}, "on_conflict='raise' does not go with running: give 'wait' or"),
        ({"throttle": 5, "on_conflict": "wait"}, "does not go with throttle"),
        ({"debounce": 5, "on_conflict": "skip"}, "debounce= always takes the newest arguments"),
        ({"unique": "forever"}, "unique='forever': give 'queued', 'running' or 'until_success'"),
        ({"unique": ()}, "unique=(): give"),
        ({"unique": [5]}, "unique=[5]: give"),
        ({"once": "yes"}, "once='yes': give True or False"),
        ({"once": True, "once_for": 0.5}, "once_for=0.5: give 1 second up to 180 days"),
        ({"once": True, "once_for": timedelta(days=181)}, "up to 180 days"),
        ({"once": True, "key": 5}, "key=5: give the name of a parameter, a tuple of names, or a function"),
        ({"once": True, "key": ()}, "key=(): give the name"),
        ({"once": True, "key": ""}, "key='': give the name"),
        ({"once": True, "scope": "a\nb"}, "a scope is named by a printable text"),
        ({"once": True, "on_conflict": "ignore"}, "on_conflict='ignore': give 'skip', 'raise', 'replace' or 'wait'"),
        ({"debounce": 0}, "debounce=0: give more than zero"),
        ({"throttle": -1}, "throttle=-1"),
        ({"unique_for": 5, "once": True}, "it is called once_for="),
    ],
)
def test_what_does_not_go_together_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        definition_options("pkg.job", {"key": "order_id", **given})
    assert said in str(caught.value)


def test_a_key_names_parameters(app: App) -> None:
    for wrong in ("order", ("order_id", "nobody"), "self"):
        with pytest.raises(DefinitionError, match="names no parameter of its own value"):
            app.job(name="charge", key=wrong, once=True)(charge)

    def spread(*order_id: str, **rest: str) -> None: ...

    for wrong in ("order_id", "rest"):
        with pytest.raises(DefinitionError, match="names no parameter of its own value"):
            app.job(name="spread", key=wrong, once=True)(spread)


def test_jobs_of_one_scope_remember_for_one_time(app: App) -> None:
    app.job(name="charge", key="order_id", once=True, scope="orders", once_for=60)(charge)
    with pytest.raises(DefinitionError, match=r"refund: once_for is 604800 s, and charge of the same scope 'orders'"):
        app.job(name="refund", key="order_id", once=True, scope="orders")(charge)
    app.job(name="refund", key="order_id", once=True, scope="orders", once_for=60)(charge)
    app.job(name="ship", key="order_id", unique="queued", scope="orders")(charge)


def test_a_push_may_say_again_of_a_job_with_a_key_alone(app: App, server: KeyedServer) -> None:
    job = app.job(name="charge", key="order_id", once=True)(charge)
    job.using(again=True).enqueue("17")
    assert server.ask["again"] is True
    job.enqueue("17")
    assert "again" not in server.ask
    with pytest.raises(DefinitionError, match="again= pushes a job although its key is taken, and this one"):
        app.job(name="plain")(charge).using(again=True).enqueue("17")


def test_what_a_push_may_not_say(app: App) -> None:
    job = app.job(name="index", key="order_id", debounce=5)(charge)
    for given in ({"delay": 5}, {"at": datetime(2030, 1, 1, tzinfo=UTC)}):
        with pytest.raises(DefinitionError, match="debounce= says itself when the job is due"):
            job.using(**given).enqueue("17")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="there is no option key="):
        job.using(key="cents")  # type: ignore[call-arg]


def test_a_callback_has_no_key(app: App) -> None:
    job = app.job(name="done", key="order_id", once=True)(lambda order_id: None)
    with pytest.raises(DefinitionError, match="done has a key, which could refuse a callback"):
        app.batch("b", on_complete=job).__enter__()


# --- the text of a key -----------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "annotation", "text"),
    [
        ("17", str, "17"),
        (17, int, "17"),
        (-17, int, "-17"),
        (10**40, int, "1" + 40 * "0"),
        (True, bool, "true"),
        (1.5, float, "1.5"),
        (1.0, float, "1.0"),
        (uuid.UUID(int=5), uuid.UUID, "00000000-0000-0000-0000-000000000005"),
        (Colour.RED, Colour, "red"),
        (Decimal("1.50"), Decimal, "1.50"),
        (date(2030, 1, 2), date, "2030-01-02"),
        (["a", 1], list, '["a",1]'),
        ({"b": 1, "a": 2}, dict, '{"a":2,"b":1}'),
        ("a\nb", str, "a\nb"),
        ("nul\0}{ü☃", str, "nul\0}{ü☃"),
        ("x" * 200, str, "x" * 200),
    ],
)
def test_the_text_of_one_parameter(app: App, server: KeyedServer, value: Any, annotation: Any, text: str) -> None:
    def job(it: Any) -> None: ...

    job.__annotations__["it"] = annotation
    app.job(name="job", key="it", once=True)(job).enqueue(value)
    assert server.keys == [text]
    assert server.jobs[0]["hm"]["key"] == ["job", text, "o"]


@pytest.mark.parametrize("value", [None, ""])
def test_a_key_that_is_nothing_is_refused(app: App, server: KeyedServer, value: Any) -> None:
    job = app.job(name="charge", key=("order_id", "cents"), once=True)(charge)
    with pytest.raises(ArgumentError, match=r"charge: the key \(order_id\) is .*: all jobs without a key would be one"):
        job.enqueue(value)
    assert not server.calls


def test_several_parameters_make_a_list_and_defaults_count(app: App, server: KeyedServer) -> None:
    job = app.job(name="charge", key=("order_id", "region", "cents"), once=True)(charge)
    job.enqueue("17")
    job.enqueue(order_id="17", cents=100, region="eu")
    job.enqueue("17", 5, region="a,b")
    assert server.keys == ['["17","eu","100"]', '["17","eu","100"]', '["17","a,b","5"]']


def test_a_long_key_is_its_beginning_and_a_digest(app: App, server: KeyedServer) -> None:
    job = app.job(name="charge", key="order_id", once=True)(charge)
    one, other = "ä" * 5000, "ä" * 4999 + "b"
    for value in (one, one, other):
        job.enqueue(value)
    first, again, second = server.keys
    assert first == again != second
    assert first.startswith("ä" * 80 + "#")
    assert len(first.encode()) == 160 + 1 + 32


def test_a_key_of_a_secret_parameter_is_a_digest(app: App, server: KeyedServer) -> None:
    by_name = app.job(name="pay", key="order_id", once=True, secret=["order_id"])(charge)
    by_function = app.job(name="pays", key=lambda order_id, **_: order_id, once=True, secret=["order_id"])(charge)
    beside = app.job(name="other", key="cents", once=True, secret=["order_id"])(charge)
    for job in (by_name, by_name, by_function, beside):
        job.enqueue("4111 1111")
    assert server.keys[0] == server.keys[1] != server.keys[2]
    for key in server.keys[:3]:
        assert key[0] == "#"
        assert len(key) == 33
    assert server.keys[3] == "100"
    assert all("4111 1111" not in json.dumps(job["hm"]) for job in server.jobs)


def test_a_function_gets_the_arguments_of_the_job(app: App, server: KeyedServer) -> None:
    seen: list[Any] = []

    def key(day: date, n: int, *, note: str) -> int:
        seen.append((day, n, note))
        return day.year

    @app.job(name="rich", key=key, once=True)
    def rich(day: date, n: int = 3, *, note: str = "x") -> None: ...

    rich.enqueue(date(2030, 1, 2))
    rich.enqueue(day=date(2031, 1, 2), note="y")
    assert server.keys == ["2030", "2031"]
    assert seen == [(date(2030, 1, 2), 3, "x"), (date(2031, 1, 2), 3, "y")]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda *_, **__: None, "its key function returned None; it returns a text or an integer"),
        (lambda *_, **__: 1.5, "its key function returned 1.5"),
        (lambda *_, **__: True, "its key function returned True"),
        (lambda *_, **__: "", "is '': all jobs without a key"),
        (lambda *_, **__: "\ud800", "half a surrogate pair"),
        (lambda *_, **__: 1 // 0, "its key function raised ZeroDivisionError"),
        (lambda: "x", "its key function raised TypeError"),
    ],
)
def test_a_function_that_gives_no_key(app: App, server: KeyedServer, function: Any, said: str) -> None:
    job = app.job(name="charge", key=function, once=True)(charge)
    with pytest.raises(ArgumentError) as caught:
        job.enqueue("17")
    assert said in str(caught.value)
    assert not server.calls


# --- what travels ----------------------------------------------------------------------------------------------------


def test_the_payload_says_scope_key_and_phases(app: App, server: KeyedServer) -> None:
    for options, ours in [
        ({"once": True}, {"once_for": 604800, "key": ["j", "17", "o"]}),
        ({"once": True, "once_for": 60, "unique": "running", "scope": "s"}, {"once_for": 60, "key": ["s", "17", "or"]}),
        ({"unique": ("running", "queued")}, {"key": ["j", "17", "wr"]}),
        ({"unique": ("until_success", "running")}, {"key": ["j", "17", "ur"]}),
        ({"unique": "running"}, {"key": ["j", "17", "r"]}),
        ({"unique": "running", "on_conflict": "skip"}, {"conflict": "skip", "key": ["j", "17", "r"]}),
        ({"unique": ("queued", "running"), "on_conflict": "skip"}, {"key": ["j", "17", "wr"]}),
        ({"debounce": 5}, {"delay": 5.0, "debounce": ["j", "17"]}),
        ({"throttle": 5}, None),
        ({"throttle": 5, "timeout": 3, "result_ttl": 9}, {"result_ttl": 9.0}),
    ]:
        server.calls.clear()
        app.job(name="j", key="order_id", **options)(charge).enqueue("17")  # type: ignore[call-overload]
        assert server.jobs[0].get("hm") == ours, options


def test_what_the_server_is_asked(app: App, server: KeyedServer) -> None:
    for options, asked in [
        ({"once": True}, {"phases": "o", "conflict": "skip", "once_for": 604800}),
        ({"once": True, "on_conflict": "raise"}, {"phases": "o", "conflict": "raise", "once_for": 604800}),
        ({"unique": "queued", "on_conflict": "replace"}, {"phases": "w", "conflict": "replace"}),
        (
            {"unique": "running", "throttle": 1, "on_conflict": "wait"},
            {"phases": "r", "conflict": "skip", "throttle": 1000},
        ),
        ({"throttle": 0.0001}, {"phases": "", "conflict": "skip", "throttle": 1}),
        ({"debounce": 2}, {"phases": "", "conflict": "skip", "debounce": 2.0, "most": 20.0}),
        ({"debounce": 2, "debounce_most": 3}, {"phases": "", "conflict": "skip", "debounce": 2.0, "most": 3.0}),
    ]:
        app.job(name="j", key="order_id", **options)(charge).enqueue("17")  # type: ignore[call-overload]
        assert server.ask == {"scope": "j", **asked}, options


def test_a_key_that_is_taken_at_the_start_alone_asks_nothing(app: App, server: KeyedServer) -> None:
    """Its push is a plain one; it is not sent again either."""
    job = app.job(name="j", key="order_id", unique="running")(charge)
    handles = [job.enqueue("17"), job.enqueue("17")]
    pushed = job.enqueue_many([("17",), ("17",)])
    assert [one.admission for one in handles] == ["created", "created"]
    assert (pushed.created, pushed.duplicates) == (2, 0)
    assert not server.rows
    assert [part[0] for call in server.calls for part in call.parts] == ["SADD", "LPUSH"] * 3
    assert not any(call.again for call in server.calls)
    assert [one["hm"]["key"] for one in server.jobs] == [["j", "17", "r"]] * 4


def test_a_push_that_may_have_to_wait_has_no_time_of_its_queue(app: App, server: KeyedServer) -> None:
    for options in ({"debounce": 5}, {"unique": "until_success", "on_conflict": "wait"}):
        app.job(name="j", key="order_id", **options)(charge).enqueue("17")  # type: ignore[call-overload]
    app.job(name="j", key="order_id", once=True)(charge).enqueue("17")
    assert ["enqueued_at" in job for job in server.jobs] == [False, False, True]


def test_the_mark_tells_arguments_apart(app: App, server: KeyedServer) -> None:
    job = app.job(name="charge", key="order_id", once=True)(charge)
    for args, kwargs in [(("17", 5), {}), (("17", 5), {}), (("17", 6), {}), (("17", 5), {"region": "us"})]:
        job.enqueue(*args, **kwargs)  # type: ignore[arg-type]
    marks = [row[3] for row in server.rows]
    assert marks[0] == marks[1]
    assert len(set(marks)) == 3
    assert all(len(one) == 8 for one in marks)


def test_a_duplicates_handle_is_the_first_ones(app: App, server: KeyedServer) -> None:
    job = app.job(name="charge", key="order_id", once=True, result_ttl=60)(charge)
    server.answers = [b"D abc 1", b"R abc 0 s", b"P abc", b"B abc", b"C"]
    notices: list[str] = []
    app.notice = lambda text, *facts: notices.append(text % facts)  # type: ignore[method-assign]
    handles = [job.enqueue("17") for _ in range(5)]
    assert [one.admission for one in handles] == ["duplicate", "duplicate", "duplicate", "blocked", "created"]
    assert [one.duplicate_of for one in handles] == ["abc", "abc", "abc", None, None]
    assert [one.jid for one in handles[:3]] == ["abc"] * 3
    assert [one.differs for one in handles] == [True, False, False, False, False]
    assert all(one._keeps for one in handles), "its result can be waited for"
    [line] = notices
    assert "charge" in line
    assert "abc" in line
    server.answers = [b"D abc 1"] * 3
    job.enqueue_many([("17",)])
    assert len(notices) == 1, "once a minute and class"


def test_a_duplicate_that_raises(app: App, server: KeyedServer) -> None:
    job = app.job(name="charge", key="order_id", once=True, on_conflict="raise")(charge)
    server.answers = [b"D abc 1"]
    with pytest.raises(
        DuplicateJob, match="charge: job abc has this key, with other arguments; it has not ended"
    ) as one:
        job.enqueue("17")
    assert (one.value.jid, one.value.status, one.value.differs, one.value.pushed) == ("abc", "", True, None)
    server.answers = [b"R abc 0 f"]
    with pytest.raises(DuplicateJob, match="job abc has this key; it failed") as one:
        job.enqueue("17")
    assert (one.value.status, one.value.differs) == ("failed", False)
    server.answers = [b"\n".join([b"C"] * 250), b"C\nC\nR abc 0 s"]
    with pytest.raises(DuplicateJob) as one:
        job.enqueue_many((str(n),) for n in range(1000))
    assert one.value.pushed == 252


def test_bulk_pushes_go_250_a_call_and_count(app: App, server: KeyedServer) -> None:
    job = app.job(name="charge", key="order_id", once=True)(charge)
    server.answers = [b"\n".join([b"C"] * 249 + [b"D abc 0"]), b"\n".join([b"R abc 0 s"] * 250)]
    pushed = job.enqueue_many((str(n),) for n in range(600))
    assert [len(one.parts[0][8:]) // 6 for one in server.calls] == [250, 250, 100]
    assert (pushed.count, pushed.created, pushed.duplicates, pushed.stopped) == (600, 349, 251, 0)
    turns = [one.parts[0][4:6] for one in server.calls]
    assert [turn for _, turn in turns] == [1, 2, 3]
    assert len({lane for lane, _ in turns}) == 1


def test_a_row_without_a_key_is_named_and_those_before_it_are_pushed(app: App, server: KeyedServer) -> None:
    job = app.job(name="charge", key="order_id", once=True)(charge)
    with pytest.raises(ArgumentError, match=r"row 302: charge: the key \(order_id\) is None") as caught:
        job.enqueue_many((None if n == 302 else str(n),) for n in range(600))
    assert caught.value.pushed == 302
    assert len(server.rows) == 302


# --- middleware and names --------------------------------------------------------------------------------------------


def test_middleware_neither_computes_the_key_again_nor_changes_it(app: App, server: KeyedServer) -> None:
    job = app.job(name="charge", key="order_id", once=True)(charge)
    acts: list[Any] = []

    def link(payload: dict[str, Any], call_next: Any) -> Any:
        acts[0](payload)
        return call_next()

    app.client_middleware.add(link)
    acts[:] = [lambda payload: payload.update(args=["18", 5], queue="other")]
    assert job.enqueue("17").queue == "other"
    assert server.keys == ["17"]
    assert server.jobs[0]["args"] == ["18", 5]
    for act in (
        lambda payload: payload.update(jid="mine"),
        lambda payload: payload.pop("hm"),
        lambda payload: payload["hm"].update(key=["charge", "18", "o"]),
    ):
        acts[:] = [act]
        with pytest.raises(ArgumentError, match=r"a client middleware changed the jid, hm\.key, hm\.needs"):
            job.enqueue("17")
    assert len(server.calls) == 1


def test_middleware_that_stops_a_keyed_push(app: App, server: KeyedServer) -> None:
    job = app.job(name="charge", key="order_id", once=True)(charge)
    app.client_middleware.add(lambda payload, call_next: call_next() if payload["args"][0] != "18" else None)
    assert job.enqueue("18").admission == "stopped"
    pushed = job.enqueue_many([("17",), ("18",), ("19",)])
    assert (pushed.created, pushed.stopped) == (2, 1)
    assert server.keys == ["17", "19"]


def test_a_job_that_is_defined_here_has_its_key_by_name_too(app: App, server: KeyedServer) -> None:
    app.job(name="charge", key="order_id", once=True)(charge)
    app.enqueue("charge", 17)
    assert server.keys == ["17"]


def test_a_key_by_name_is_for_what_is_foreign(app: App, server: KeyedServer) -> None:
    with pytest.raises(DefinitionError, match=r"HardJob: key= of a job that is not defined in this app: where another"):
        app.enqueue("HardJob", 5, key="17", once=True)
    with pytest.raises(DefinitionError, match=r"key=\['a'\]: give the key itself, a text or an integer"):
        app.enqueue("HardJob", 5, key=["a"], once=True, foreign=True)  # type: ignore[arg-type]
    app.enqueue("HardJob", 5, key=17, unique="queued", foreign=True)
    assert server.keys == ["17"]
    assert server.jobs[0]["hm"]["key"] == ["HardJob", "17", "w"]
    assert named_options("HardJob", {"foreign": False}, None)[1] == PushOptions()


def test_keyed_pushes_are_never_buffered() -> None:
    class Away:
        def run(self, call: Call[Any]) -> Any:
            raise ServerAway("away", executed=False)

    app = App(redis_url="redis://127.0.0.1:1", buffer=10)
    app._connections = Away()  # type: ignore[assignment]
    with pytest.raises(ServerAway):
        app.job(name="charge", key="order_id", once=True)(charge).enqueue("17")
    assert not app.client.buffer.waiting
