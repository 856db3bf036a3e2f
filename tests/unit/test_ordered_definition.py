"""Definitions of ordered queues: options, payload types, queue names, class style; nothing is sent anywhere."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from henchman import App, ArgumentError, DefinitionError
from henchman.client.options import JobOptions, PushOptions
from henchman.ordered.definition import DerivingJob, OrderedJob


@dataclass
class Price:
    amount: Decimal
    since: datetime


class Tag(msgspec.Struct, frozen=True):
    name: str


@pytest.fixture
def app() -> App:
    return App(redis_url="redis://127.0.0.1:1")


def handle(claim: dict[str, list[Any]]) -> None:
    """The handler of these tests."""


def define(app: App, **options: Any) -> OrderedJob[Any]:
    made: OrderedJob[Any] = app.ordered(**{"name": "it", **options})(handle)
    return made


def refused(app: App, **options: Any) -> str:
    with pytest.raises(DefinitionError) as told:
        define(app, **options)
    return str(told.value)


def test_a_definition_is_still_its_function(app: App) -> None:
    @app.ordered(name="sum")
    def total(claim: dict[str, list[int]]) -> int:
        """Adds up."""
        return sum(map(sum, claim.values()))

    assert total({"a": [1, 2], "b": [3]}) == 6
    assert (total.__name__, total.__doc__) == ("total", "Adds up.")
    assert not total.is_async
    assert not total.hears_cancel
    assert total.function({"a": [4]}) == 4


def test_the_bare_decorator_takes_queue_and_name_from_the_function(app: App) -> None:
    made = app.ordered(handle)
    assert made.queues == ("handle",)
    assert made.name == "unit.test_ordered_definition.handle" or made.name.endswith(".handle")
    assert app.registry.ordered() == {"handle": made}
    assert app.registry.find(made.name) is made


def test_an_async_def_is_awaited(app: App) -> None:
    @app.ordered(name="later")
    async def later(claim: dict[str, list[Any]]) -> None: ...

    assert later.is_async


def test_every_option_arrives(app: App) -> None:
    made = define(
        app,
        queue="products",
        claim_size=10,
        payload_cap=50,
        max_parallel=24,
        max_per_group=2,
        group_separator=":",
        max_retries=3,
        retry_in=timedelta(minutes=1),
        collapse="latest",
        retries_exhausted=print,
        timeout=30,
        log_level="warning",
    )
    options = made.ordered
    assert (options.claim_size, options.payload_cap, options.max_parallel, options.max_retries) == (10, 50, 24, 3)
    assert (options.max_per_group, options.group_separator) == (2, ":")
    assert (options.retry_in, options.collapse, options.retries_exhausted) == (60.0, "latest", print)
    assert (made.options.queue, made.options.timeout, made.options.log_level) == ("products", 30.0, "warning")
    assert made.options.retries_exhausted is None, "it is not a plain job's"
    assert made.options.retry_in is None


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("batch_size", "claim_size"),
        ("shards_count", "max_parallel"),
        ("max_retry_count", "max_retries"),
        ("queue_name", "queue"),
    ],
)
def test_lowkiqs_names_are_refused_with_ours(app: App, theirs: str, ours: str) -> None:
    assert f"it: {theirs}= is not for ordered queues: it is {ours}=" in refused(app, **{theirs: 1})


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("claim_size", [0, -1, True, 1.5, "10", 501, math.nan]),
        ("payload_cap", [0, True, 100_001]),
        ("max_parallel", [0, True, 2.0]),
        ("max_per_group", [0, False]),
        ("max_retries", [-1, True, 10_001, math.inf]),
        ("partitions", [0, True, 1001]),
        ("retry_in", [-1, math.nan, True, "soon"]),
        ("timeout", [-1, math.nan, True, "soon"]),
        ("collapse", ["max", 1, ["min"]]),
        ("retries_exhausted", ["print", 3]),
        ("derive", ["id", 3]),
        ("queue", ["", "a b", 3, "ü"]),
        ("log_level", ["loud"]),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_written(app: App, option: str, values: list[Any]) -> None:
    for value in values:
        assert f"{option}=" in refused(app, **{option: value}), value
    assert len(app.registry) == 0


def test_a_separator_needs_groups_and_groups_need_one_queue(app: App) -> None:
    assert "says nothing without max_per_group=" in refused(app, group_separator=":")
    assert "group_separator=''" in refused(app, group_separator="", max_per_group=1)
    assert "exclude each other" in refused(app, partitions=4, max_per_group=1)


def test_an_unknown_option_has_a_neighbour(app: App) -> None:
    assert refused(app, clam_size=3) == "it: there is no option clam_size=; did you mean 'claim_size'?"


def test_every_option_of_plain_jobs_is_taken_or_refused_with_a_reason(app: App) -> None:
    taken = {"queue", "retry_in", "retries_exhausted", "timeout", "log_level", "track"}
    others = {*JobOptions.__struct_fields__, *PushOptions.__struct_fields__} - taken
    assert {"retry", "expires", "tags", "secret", "ack", "delay", "at"} <= others
    for option in others:
        assert re.match(rf"it: {option}= is not for ordered queues: .{{10}}", refused(app, **{option: 1})), option
    assert "max_retries=" in refused(app, retry=3)
    assert "not for ordered queues" in refused(app, key="id")


def test_a_handler_takes_the_claim_and_nothing_else(app: App) -> None:
    for function in (lambda: None, lambda a, b: None, lambda a, b=1: None, lambda *, a: None, lambda **a: None):
        with pytest.raises(DefinitionError, match="takes one parameter, the claim"):
            app.ordered(name="it", queue="it")(function)
    with pytest.raises(DefinitionError, match="'<lambda>' cannot be the name of a queue; give one as queue="):
        app.ordered(name="it")(lambda claim: None)
    app.ordered(name="many", queue="many")(lambda *claims: None)

    def generator(claim: Any) -> Any:
        yield claim

    with pytest.raises(DefinitionError, match="a handler returns, it does not yield"):
        app.ordered(name="other")(generator)
    with pytest.raises(DefinitionError, match="for functions"):
        app.ordered(name="other")(print)
    with pytest.raises(DefinitionError, match="is a job already"):
        app.ordered(name="other")(define(app))
    with pytest.raises(DefinitionError, match="is a job already"):
        app.ordered(name="other")(app.job(name="plain")(lambda: None))


@pytest.mark.parametrize(
    ("annotation", "why"),
    [
        (list[str], "a claim is a dict"),
        (int, "a claim is a dict"),
        (dict[int, list[str]], "ids are text"),
        (dict[str, str], "a list of payloads"),
        (dict[str, list[complex]], "cannot travel as JSON"),
    ],
)
def test_an_annotation_that_no_claim_fits_is_refused(app: App, annotation: Any, why: str) -> None:
    def handler(claim: Any) -> None: ...

    handler.__annotations__["claim"] = annotation
    with pytest.raises(DefinitionError, match=why):
        app.ordered(name="it")(handler)


@pytest.mark.parametrize(
    "annotation", [Any, dict, dict[str, Any], dict[str, list], dict[str, list[Any]], "dict[str, list[dict[str, int]]]"]
)
def test_loose_annotations_leave_payloads_plain(app: App, annotation: Any) -> None:
    def handler(claim: Any) -> None: ...

    handler.__annotations__["claim"] = annotation
    made = app.ordered(name="it", queue="it")(handler)
    assert made.decode("a", [b'{"x":1}']) == [{"x": 1}]


def test_payloads_are_rebuilt_as_annotated(app: App) -> None:
    @app.ordered(name="prices")
    def prices(claim: dict[str, list[Price]]) -> None: ...

    price = Price(Decimal("1.50"), datetime(2030, 1, 2, tzinfo=UTC))
    assert prices.decode("42", [prices.payloads.encode(price)]) == [price]
    with pytest.raises(ArgumentError, match=r"claim\['42'\]\[1\] has the field 'cost', which Price does not know"):
        prices.decode("42", [prices.payloads.encode(price), b'{"cost":1}'])
    with pytest.raises(ArgumentError, match=r"claim\['4\\x072'\]\[0\] is not JSON"):
        prices.decode("4\x072", [b"\x04\b"])
    with pytest.raises(ArgumentError, match="payload is a dict where Price is due"):
        prices.payloads.encode({"amount": 1})


def test_equal_payloads_have_equal_bytes(app: App) -> None:
    made = define(app)
    assert made.payloads.encode({"b": [1, {"d": 1, "c": 2}], "a": 2}) == b'{"a":2,"b":[1,{"c":2,"d":1}]}'

    @app.ordered(name="tags")
    def tags(claim: dict[str, list[set[Tag]]]) -> None: ...

    assert tags.payloads.encode({Tag("c"), Tag("a"), Tag("b")}) == b'[{"name":"a"},{"name":"b"},{"name":"c"}]'


def test_what_json_cannot_hold_is_named(app: App) -> None:
    encode = define(app).payloads.encode
    for value, words in [
        ({"rows": [1, math.nan]}, r"payload.rows\[1\] is NaN"),
        ({1: 2}, "a key is an int"),
        (datetime(2030, 1, 1, tzinfo=UTC), "not JSON: rich types travel only where they are annotated"),
        ("\ud800", "lone surrogate"),
    ]:
        with pytest.raises(ArgumentError, match=words):
            encode(value)
    nested: Any = []
    for _ in range(200):
        nested = [nested]
    with pytest.raises(ArgumentError, match="nested deeper than"):
        encode(nested)


def test_partitions_are_queues_of_their_own(app: App) -> None:
    made = define(app, queue="products", partitions=3)
    assert made.queues == ("products.0", "products.1", "products.2")
    assert app.registry.queues() == ["default", "products.0", "products.1", "products.2"]
    with pytest.raises(DefinitionError, match="use its push"):
        app.enqueue("it", 1)


def test_one_queue_is_of_one_kind(app: App) -> None:
    app.job(queue="mail", retry_queue="again", name="plain")(lambda: None)
    for queue in ("mail", "again"):
        assert f"it: queue {queue!r} is taken by plain" in refused(app, queue=queue)
    define(app, queue="products")
    with pytest.raises(DefinitionError, match="'products' is taken by it"):
        app.ordered(queue="products", name="other")(handle)
    for options in ({"queue": "products"}, {"retry_queue": "products"}):
        with pytest.raises(DefinitionError, match="'products' is taken by it; that is an ordered queue"):
            app.job(name="late", **options)(lambda: None)
    assert [one.name for one in app.registry] == ["plain", "it"], "what was refused is not registered"


def test_default_counts_once_something_names_it(app: App) -> None:
    assert define(app, queue="default").queues == ("default",)
    with pytest.raises(DefinitionError, match="'default' is taken by it"):
        app.job(name="plain")(lambda: None)


def test_a_module_that_is_loaded_again_defines_again(app: App) -> None:
    define(app, queue="products")
    made = define(app, queue="prices")
    assert app.registry.ordered() == {"prices": made}
    app.job(queue="products", name="plain")(lambda: None)


def test_plain_jobs_are_not_pushed_to_an_ordered_queue(app: App) -> None:
    define(app, queue="products")
    plain = app.job(name="plain")(lambda: None)
    for attempt in (
        lambda: plain.using(queue="products"),
        lambda: plain.using(delay=5).using(queue="products"),
        lambda: app.enqueue("plain", queue="products"),
        lambda: app.enqueue("Elsewhere", queue="products"),
    ):
        with pytest.raises(DefinitionError, match="'products' is the ordered queue of it"):
            attempt()
    with pytest.raises(DefinitionError, match="'products' is the ordered queue of it"):
        app.crons.add("nightly", plain, "* * * * *", queue="products")

    @app.client_middleware.add
    def astray(job: dict[str, Any], call_next: Any) -> Any:
        job["queue"] = "products"
        return call_next()

    with pytest.raises(DefinitionError, match="'products' is the ordered queue of it"):
        plain.enqueue()


def test_derive_makes_a_definition_that_takes_payloads(app: App) -> None:
    made = app.ordered(name="it", derive=lambda payload: payload["id"])(handle)
    assert isinstance(made, DerivingJob)
    for derive, words in [
        (lambda payload: payload["nothing"], "derive raised KeyError"),
        (lambda payload: {"score": 1}, "derive gave no id"),
        (lambda payload: {"id": 1, "scores": 1}, "no field 'scores'.*did you mean 'score'"),
        (lambda payload: None, "id=None"),
    ]:
        wrong = app.ordered(name="it", derive=derive)(handle)
        with pytest.raises(ArgumentError, match=words):
            wrong.push({"id": 1})


def test_hooks_may_be_methods(app: App) -> None:
    class Shop:
        def retry_in(self, count: int, error: BaseException) -> float:
            return count + 0.5

        def retries_exhausted(self, items: list[Any]) -> Any:
            return self, items

        def key(self, payload: Any) -> Any:
            return payload["id"]

        async def sync(self, claim: dict[str, list[Tag]]) -> None: ...

    shop = Shop()
    hooks = {"retry_in": shop.retry_in, "retries_exhausted": shop.retries_exhausted, "derive": shop.key}

    @app.ordered(name="it", queue="products", **hooks)
    async def sync(claim: dict[str, list[Tag]]) -> None:
        await shop.sync(claim)

    assert sync.is_async
    assert isinstance(sync, DerivingJob)
    assert sync.ordered.retry_in(3, ValueError()) == 3.5
    assert sync.ordered.retries_exhausted(["x"]) == (shop, ["x"])
    assert sync.decode("a", [b'{"name":"x"}']) == [Tag("x")]


def test_a_class_is_no_handler(app: App) -> None:
    class Sync:
        def perform(self, claim: Any) -> None: ...

    with pytest.raises(DefinitionError, match=r"@app.ordered is for functions \(def or async def\), not for <class"):
        app.ordered(name="it", queue="it")(Sync)
