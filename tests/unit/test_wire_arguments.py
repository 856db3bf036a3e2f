"""Arguments out and in: every rich type, and every trap that a kinder encoder would fall into."""

from __future__ import annotations

import collections
import dataclasses
import enum
import http
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict, Union

import msgspec
import pydantic
import pytest

from henchman.errors import ArgumentError, DefinitionError
from henchman.wire import payload
from henchman.wire.arguments import Signature

MOMENT = datetime(2026, 11, 21, 9, 30, 48, 964924, tzinfo=timezone(timedelta(hours=2)))
UserId = NewType("UserId", int)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Odd(enum.Enum):
    PAIR = (1, 2)


@dataclasses.dataclass
class Row:
    sku: str
    price: Decimal | float
    seen: list[datetime] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Order:
    rows: list[Row]
    parent: Order | None = None


class Point(msgspec.Struct):
    x: int
    at: datetime | None = None
    note: str = msgspec.field(default="", name="n")


class Cat(msgspec.Struct, tag="cat"):
    born: date


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Place(NamedTuple):
    name: str
    since: date


class Plain(TypedDict):
    name: str


class Rich(TypedDict, total=False):
    born: date
    name: str


class User(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    joined: datetime
    balance: Decimal = Decimal("0.10")
    ratio: float = 1.0


class Stranger:
    pass


@dataclasses.dataclass
class Demanding:
    needs: dataclasses.InitVar[int]


def job(annotation: Any, *, secret: bool = False) -> Signature:
    def f(x): ...

    f.__annotations__ = {"x": annotation}
    return Signature.of(f, name="shop.f", secret=("x",) if secret else ())


def there_and_back(annotation: Any, value: Any) -> Any:
    signature = job(annotation)
    text, keywords = signature.encode((value,), {})
    assert keywords is None
    args, kwargs = signature.decode(json.loads(text), None)
    assert kwargs == {}
    return args[0]


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (datetime, MOMENT, '"2026-11-21T09:30:48.964924+02:00"'),
        (date, date(2026, 11, 21), '"2026-11-21"'),
        (time, time(9, 30), '"09:30:00"'),
        (timedelta, timedelta(days=1, microseconds=1), '"P1DT0.000001S"'),
        (uuid.UUID, uuid.UUID(int=7), '"00000000-0000-0000-0000-000000000007"'),
        (Decimal, Decimal("1.10"), '"1.10"'),
        (Decimal, Decimal("12345678901234567890.123456789"), '"12345678901234567890.123456789"'),
        (bytes, b"\x00\xffab", '"AP9hYg=="'),
        (Color, Color.BLUE, '"blue"'),
        (Level, Level.LOW, "1"),
        (set[int], {3}, "[3]"),
        (frozenset[date], frozenset({date(2026, 1, 1)}), '["2026-01-01"]'),
        (set, {"a"}, '["a"]'),
        (tuple, (1, "a"), '[1,"a"]'),
        (tuple[date, ...], (date(2026, 1, 1),), '["2026-01-01"]'),
        (tuple[int, Color], (1, Color.RED), '[1,"red"]'),
        (list[Row], [Row("a", Decimal("1.5"), [MOMENT])], None),
        (Row, Row("a", Decimal(2)), '{"sku":"a","price":"2","seen":[]}'),
        (Order, Order([Row("a", 1.5)], Order([])), None),
        (dict[str, Decimal], {"a": Decimal("0.1")}, '{"a":"0.1"}'),
        (dict[int, date], {7: date(2026, 1, 1)}, '{"7":"2026-01-01"}'),
        (dict[Color, int], {Color.RED: 1}, '{"red":1}'),
        (Mapping[str, set[int]], {"a": {1}}, '{"a":[1]}'),
        (Point, Point(1, MOMENT, "hi"), '{"x":1,"at":"2026-11-21T09:30:48.964924+02:00","n":"hi"}'),
        (Cat | Dog, Cat(date(2026, 1, 1)), '{"type":"cat","born":"2026-01-01"}'),
        (Cat | Dog | None, Dog("Rex"), '{"type":"dog","name":"Rex"}'),
        (Place, Place("x", date(2026, 1, 1)), '["x","2026-01-01"]'),
        (Plain, {"name": "x"}, '{"name":"x"}'),
        (Rich, {"born": date(2026, 1, 1)}, '{"born":"2026-01-01"}'),
        (datetime | None, None, "null"),
        (Optional[uuid.UUID], uuid.UUID(int=1), None),  # noqa: UP045
        (Union[Decimal, int, None], 5, "5"),  # noqa: UP007
        (Decimal | int, Decimal(5), '"5"'),
        (list[datetime] | None, [MOMENT], None),
        (UserId, 5, "5"),
        (Annotated[date, "when"], date(2026, 1, 1), '"2026-01-01"'),
        (Literal["a", 1], "a", '"a"'),
        (Literal[Color.RED], Color.RED, '"red"'),
        (Any, {"a": [1, None, True, "é"]}, '{"a":[1,null,true,"é"]}'),
        (list[Any], [[]], "[[]]"),
    ],
)
def test_a_value_arrives_as_it_was_sent(annotation: Any, value: Any, text: str | None) -> None:
    arrived = there_and_back(annotation, value)

    assert arrived == value
    assert type(arrived) is type(value)
    if text is not None:
        assert job(annotation).encode((value,), {})[0].decode() == f"[{text}]"


def test_a_pydantic_model_travels_as_it_writes_itself() -> None:
    user = User(fullName="Ann", joined=MOMENT, balance=Decimal("9.99"))

    assert there_and_back(User, user) == user
    assert there_and_back(list[User] | None, [user]) == [user]
    with pytest.raises(ArgumentError, match=r"^x\.ratio is NaN"):
        job(User).encode((User(fullName="Ann", joined=MOMENT, ratio=float("nan")),), {})
    with pytest.raises(ArgumentError, match=r"^x\.joined: naive datetime"):
        job(User).encode((User(fullName="Ann", joined=datetime(2026, 1, 1)),), {})  # noqa: DTZ001
    with pytest.raises(ArgumentError, match=r"^x cannot be rebuilt as User .*joined"):
        job(User).decode([{"fullName": "Ann"}], None)


@pytest.mark.parametrize(
    "number",
    [2**63, 2**64, -(2**63) - 1, 10**30, 10**4299, -(10**4299), 0, -1],
    ids=lambda number: f"{number.bit_length()} bits",
)
def test_integers_are_exact_both_ways(number: int) -> None:
    text, _ = job(int).encode((number,), {})

    assert text == b"[" + str(number).encode() + b"]"
    stored = b'{"class":"x","args":' + text + b"}"
    assert payload.decode(stored)["args"] == [number]


class Name(str):
    def __str__(self) -> str:
        return "not me"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (http.HTTPStatus.OK, "200"),
        (Level.LOW, "1"),
        (Name("x"), '"x"'),
        ({Name("k"): Name("v")}, '{"k":"v"}'),
        (collections.OrderedDict(a=1), '{"a":1}'),
        (collections.defaultdict(list, a=[1]), '{"a":[1]}'),
        (True, "true"),
        ([True, False, None], "[true,false,null]"),
    ],
)
def test_subclasses_of_plain_types_travel_as_their_base(value: Any, text: str) -> None:
    assert job(Any).encode((value,), {})[0].decode() == f"[{text}]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e15, "1e+15"),
        (-5550494951631480.0, "-5.55049495163148e+15"),
        (1626983080611305.8, "1626983080611305.7"),
        (1e16, "1e+16"),
        (-1e16, "-1e+16"),
        (1.5e300, "1.5e+300"),
        (1e-5, "0.00001"),
        (5e-324, "5e-324"),
        (0.0001, "0.0001"),
        (3.0, "3.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        ('\x00\x1f\x7f\u2028/\b\f\n\r\t"\\é😀', '"\\u0000\\u001f\x7f\u2028/\\b\\f\\n\\r\\t\\"\\\\é😀"'),
        ([1e20, {"a": 1e-9}], '[1e+20,{"a":0.000000001}]'),
    ],
)
def test_the_text_is_rubys(value: Any, text: str) -> None:
    assert job(Any).encode((value,), {})[0].decode() == f"[{text}]"


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (Any, float("nan"), "x is NaN"),
        (float, float("inf"), "x is Infinity"),
        (float, float("-inf"), "x is -Infinity"),
        (Any, {"rows": [0, 1, 2, {"price": float("nan")}]}, "x.rows[3].price is NaN"),
        (list[Row], [Row("a", 1.0), Row("b", float("nan"))], "x[1].price is NaN"),
        (Any, {1: 2}, "x: a key is an int, not a string (key 1)"),
        (dict, {"a b": {None: 1}}, "x['a b']: a key is None, not a string (key None)"),
        (Any, MOMENT, "x is a datetime, which is not JSON: rich types travel only where they are annotated"),
        (int, MOMENT, "x is a datetime, which is not JSON: rich types travel only where they are annotated"),
        (Any, [Decimal(1)], "x[0] is a Decimal, which is not JSON: rich types travel only where they are annotated"),
        (Any, b"x", "x is a bytes, which is not JSON: rich types travel only where they are annotated"),
        (Any, (1, 2), "x is a tuple: annotate it as one, or give a list"),
        (Any, {"a": {1}}, "x.a is a set: annotate it as one, or give a list"),
        (Any, Color.RED, "x is an enum member (Color): annotate it as one, or give its value"),
        (Any, deep, "x is a function"),
        (Any, [lambda: 1], "x[0] is a function"),
        (Any, Color, "x is a class"),
        (Any, msgspec.Raw(b"1"), "x is a Raw, which is not JSON: rich types travel only where they are annotated"),
        (datetime, datetime(2026, 1, 1), "x: naive datetime: give it a time zone (2026-01-01T00:00:00)"),  # noqa: DTZ001
        (datetime, "2026-01-01", "x is a str where datetime is due"),
        (datetime | None, 5, "x is an int where datetime | None is due"),
        (date, MOMENT, "x is a datetime where date is due"),
        (Decimal, Decimal("NaN"), "x is NaN"),
        (Decimal, 1.5, "x is a float where Decimal is due"),
        (Color, "red", "x is a str where Color is due"),
        (set[int], [1], "x is a list where set[int] is due"),
        (tuple[int, int], (1,), "x has 1 items, tuple[int, int] has 2"),
        (Row, {"sku": "a"}, "x is a dict where Row is due"),
        (Any, "a\ud800", "x has a lone surrogate at character 1: it is not text"),
        (Any, [{"k": "\ud800"}], "x[0].k has a lone surrogate at character 0: it is not text"),
        (Any, [1e20, "\ud800"], "x[1] has a lone surrogate at character 0: it is not text"),
        (Any, {"a": [10**4300]}, "x.a[0] is an integer of more than 4,300 digits"),
        (Rich, {"born": "x"}, "x.born is a str where date is due"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_place(annotation: Any, value: Any, said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        job(annotation).encode((value,), {})

    assert str(caught.value) == said


def test_nesting_ends_at_ninety_levels() -> None:
    assert job(Any).encode((deep(90),), {})[0] == b"[" * 91 + b"]" * 91
    with pytest.raises(ArgumentError, match=r"^x\[0\].*…$|nested deeper than 90 levels"):
        job(Any).encode((deep(91),), {})
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ArgumentError, match="nested deeper than 90 levels"):
        job(Any).encode((circle,), {})
    order = Order([])
    order.parent = order
    with pytest.raises(ArgumentError, match="nested deeper than 90 levels"):
        job(Order).encode((order,), {})


def test_more_than_a_hundred_megabytes_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"shop\.f: the arguments take 104,857,604 bytes, more than 104,857,600"):
        job(str).encode(("x" * (100 * 1024 * 1024),), {})


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        (datetime, "2026-01-01T00:00:00", "x is no datetime ('2026-01-01T00:00:00': it has no time zone)"),
        (datetime, 5, "x is an int where datetime (as text) is due"),
        (list[date], ["2026-01-01", "soon"], "x[1] is no date ('soon': Invalid isoformat string: 'soon')"),
        (uuid.UUID, "x", "x is no UUID ('x': badly formed hexadecimal UUID string)"),
        (Decimal, "NaN", "x is no Decimal ('NaN': not a finite number)"),
        (Color, "green", "x is no Color ('green' is not a valid Color)"),
        (Color, [], "x is no Color ([] is not a valid Color)"),
        (Row, {"sku": "a"}, "x lacks the field 'price' of Row"),
        (Row, {"sku": "a", "price": 1, "y": 1}, "x has the field 'y', which Row does not know"),
        (Order, {"rows": [{"sku": "a", "price": "x"}]}, "x.rows[0].price is no Decimal"),
        (Row, [], "x is a list where Row (as an object) is due"),
        (Cat | Dog, {"type": "cow"}, "x is none of "),
        (set[Any], [[]], "x is no set"),
        (tuple[int, int], [1], "x has 1 items"),
        (dict[int, date], {"x": "2026-01-01"}, "x.x: the key is not an int"),
        (bytes, "é", "x is no bytes"),
        (datetime | None, 5, "x is an int where datetime | None is due"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_with_its_place(annotation: Any, value: Any, said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        job(annotation).decode([value], None)

    assert str(caught.value).startswith(said)


def test_plain_parameters_are_handed_on_untouched() -> None:
    def f(a: int, b: str | None, c: list[dict[str, Any]], d, e: Sequence[int] = (), *rest: float) -> None: ...  # type: ignore[no-untyped-def]
    def g(a: int, b: str | None, c: list[dict[str, Any]], d: Plain, *rest: float) -> None: ...

    args = ["not an int", 1, None, 2, 3.0]
    assert not Signature.of(f, name="f").plain
    assert Signature.of(g, name="g").plain
    assert Signature.of(g, name="g").decode(args, None)[0] is args


def test_a_sequence_may_be_given_as_a_tuple() -> None:
    assert there_and_back(Sequence[int], (1, 2)) == [1, 2]
    assert there_and_back(Sequence[date], [date(2026, 1, 1)]) == [date(2026, 1, 1)]


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Stranger, "f: parameter 'x': Stranger cannot travel as JSON"),
        (list[Stranger], "f: parameter 'x': Stranger cannot travel as JSON"),
        (Callable[[], int], "cannot travel as JSON"),
        (type[int], "cannot travel as JSON"),
        (datetime | str, "datetime and str look alike in JSON"),
        (Row | Order, "Row and Order look alike in JSON"),
        (Odd, "the values of Odd are not all text, numbers or booleans"),
        ("Missing", "the annotation 'Missing' means nothing"),
        (Demanding, "its constructor needs 'needs'"),
        (dict[tuple[int, int], str], "keys of an object are text"),
    ],
)
def test_an_annotation_that_cannot_travel_is_refused_at_definition(annotation: Any, said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        job(annotation)

    assert said in str(caught.value)
    assert "parameter 'x'" in str(caught.value)


def test_annotations_as_text_are_resolved_also_from_around_the_function() -> None:
    @dataclasses.dataclass
    class Local:
        born: date

    def f(x: Local, when: datetime = None) -> Missing:  # type: ignore[name-defined,assignment]  # noqa: F821, RUF013
        return Local

    signature = Signature.of(f, name="f")
    assert signature.encode((Local(date(2026, 1, 1)),), {})[0] == b'[{"born":"2026-01-01"}]'
    assert signature.encode((Local(date(2026, 1, 1)), None), {})[0] == b'[{"born":"2026-01-01"},null]'


def test_a_secret_is_masked_and_its_value_is_in_no_message() -> None:
    def pay(order: int, card: Any, *more: str, pin: int = 0, **rest: Any) -> None: ...

    some = Signature.of(pay, name="pay", secret=("card", "pin"))
    assert some.mask([1, "4111", "x"], {"pin": 7, "z": 1}) == ([1, "***", "x"], {"pin": "***", "z": 1})
    assert some.mask([1], None) == ([1], None)
    every = Signature.of(pay, name="pay", secret=("more", "rest"))
    assert every.mask([1, "c", "x", "y"], {"pin": 7, "z": 1}) == ([1, "c", "***", "***"], {"pin": 7, "z": "***"})
    with pytest.raises(ArgumentError) as caught:
        some.encode((1, {"4111": {4111: 1}}), {})
    assert str(caught.value) == "card: a key is an int, not a string (its value is secret)"
    with pytest.raises(ArgumentError) as caught:
        job(User, secret=True).decode([{"fullName": "4111"}], None)
    assert "4111" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    with pytest.raises(DefinitionError, match=r"secret=\['crad'\] names no parameter"):
        Signature.of(pay, name="pay", secret=("crad",))


def test_the_moment_is_the_same_in_another_zone() -> None:
    assert there_and_back(datetime, MOMENT).astimezone(UTC) == MOMENT
