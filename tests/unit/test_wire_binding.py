"""Arguments find their parameters as in Python, and those that do not fit are refused in Python's words."""

from __future__ import annotations

import functools
from datetime import date
from typing import Any

import pytest

from henchman.errors import ArgumentError
from henchman.wire.arguments import Signature


def send(user_id: int, subject: str = "hi", copies: int = 1, *, lang: str = "en") -> None: ...
def strict(a: int, b: int, c: int = 3, *, must: int) -> None: ...
def only(a: int, b: int = 2, /, **rest: Any) -> None: ...
def many(a: int, *rest: date, on: date | None = None, **more: date) -> None: ...
def none() -> None: ...
def gap(a: int, when: date = date(2026, 1, 1), c: int = 0) -> None: ...


JOBS = {f.__name__: f for f in (send, strict, only, many, none, gap)}


def texts(name: str, *args: Any, **kwargs: Any) -> tuple[str, str | None]:
    text, keywords = Signature.of(JOBS[name], name=f"mail.{name}").encode(args, kwargs)
    return text.decode(), None if keywords is None else keywords.decode()


def test_keywords_find_their_position() -> None:
    assert texts("send", 1) == ("[1]", None)
    assert texts("send", user_id=1) == ("[1]", None)
    assert texts("send", subject="x", user_id=1) == ('[1,"x"]', None)
    assert texts("send", 1, copies=2) == ('[1,"hi",2]', None)
    assert texts("send", 1, lang="de") == ("[1]", '{"lang":"de"}')
    assert texts("send", copies=2, user_id=1, lang="é") == ('[1,"hi",2]', '{"lang":"é"}')
    assert texts("strict", 1, b=2, must=4) == ("[1,2]", '{"must":4}')
    assert texts("only", 1, a=2, b=3) == ("[1]", '{"a":2,"b":3}')
    assert texts("many", 1, date(2026, 1, 1), z=date(2026, 1, 2)) == ('[1,"2026-01-01"]', '{"z":"2026-01-02"}')
    assert texts("none") == ("[]", None)
    assert texts("gap", 1, c=5) == ('[1,"2026-01-01",5]', None)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("send", (), {}),
        ("send", (1, "a", 2, 3), {}),
        ("send", (1,), {"user_id": 2}),
        ("send", (1,), {"nope": 2}),
        ("send", (), {"subject": "x"}),
        ("send", (), {"lang": "x"}),
        ("strict", (), {}),
        ("strict", (1, 2), {}),
        ("strict", (1,), {"must": 1}),
        ("strict", (1, 2, 3, 4), {}),
        ("only", (), {"a": 1}),
        ("none", (1,), {}),
        ("none", (), {"a": 1}),
        ("many", (), {}),
    ],
)
def test_wrong_arguments_are_refused_in_pythons_words(name: str, args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError) as pythons:
        JOBS[name](*args, **kwargs)
    with pytest.raises(ArgumentError) as ours:
        texts(name, *args, **kwargs)

    assert str(ours.value).partition(" (")[0] == str(pythons.value).partition(" (")[0]


def test_a_positional_only_parameter_is_not_given_by_name() -> None:
    def f(a: int, /) -> None: ...

    signature = Signature.of(f, name="f")
    with pytest.raises(ArgumentError, match=r"got a positional-only argument passed as keyword: 'a'"):
        signature.encode((), {"a": 1})
    with pytest.raises(ArgumentError, match="unexpected keyword argument ''"):
        signature.encode((), {"": 1})


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "said"),
    [
        ("send", [], None, "mail.send: missing argument 'user_id'"),
        ("send", [1, 2, 3, 4], None, "mail.send: 4 arguments given, takes 1 to 3"),
        ("none", [1], None, "mail.none: 1 argument given, takes 0"),
        ("strict", [], {}, "mail.strict: missing arguments 'a', 'b', 'must'"),
        ("send", [1], {"user_id": 2}, "mail.send: argument 'user_id' is given twice"),
        ("send", [1], {"nope": 2}, "mail.send: unexpected argument 'nope'"),
        ("many", [1, "2026-01-01", "x"], None, "rest[1] is no date"),
        ("many", [1], {"z": "x"}, "z is no date"),
        ("many", [1], {"on": 5}, "on is an int where date | None is due"),
    ],
)
def test_arguments_of_a_payload_that_do_not_fit_are_named(name: str, args: Any, kwargs: Any, said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Signature.of(JOBS[name], name=f"mail.{name}").decode(args, kwargs)

    assert str(caught.value).startswith(said)


def test_a_payload_may_give_a_positional_argument_by_name() -> None:
    args, kwargs = Signature.of(send, name="send").decode([], {"user_id": 1, "lang": "de"})
    assert (list(args), kwargs) == ([], {"user_id": 1, "lang": "de"})


def test_methods_partials_and_callable_objects_have_signatures() -> None:
    class Mailer:
        def send(self, when: date) -> None: ...
        def __call__(self, when: date) -> None: ...

    for function in (Mailer().send, Mailer(), functools.partial(gap, 1)):
        signature = Signature.of(function, name="x")
        assert signature.encode((date(2026, 1, 1),), {})[0] == b'["2026-01-01"]'
