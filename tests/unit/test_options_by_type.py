"""Whatever is given in place of an option, a setting or a name: taken, or refused in a sentence that names it.

Each option of each definition, push, cron and batch, and each setting, gets one value of every kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import pytest

from henchman import App, IterableJob
from henchman.client.options import JobOptions, PushOptions
from henchman.config.settings import KEYS
from henchman.errors import HenchmanError
from henchman.kernel.text import as_shown
from henchman.ordered.definition import OrderedOptions

ODD: list[Any] = [
    *(["mail"], (), {}, {"a": 1}, {"mail"}, [1], [[]], [None], ("a", "b"), frozenset({"a"}), range(3)),
    *("", "mail", "\n", "a b", b"mail", "é" * 501, "default"),
    *(0, 1, -1, 10**400, 10**5000, True, False, 1.5, 1e300, math.nan, math.inf, Decimal("1.5"), 1j),
    *(object(), object, ValueError, ValueError("x"), print, len, lambda: None, type, NotImplemented, Ellipsis),
    *(
        timedelta(seconds=1),
        timedelta.max,
        timedelta.min,
        datetime(2030, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31),  # noqa: DTZ001 - no time zone, too
        date.max,
    ),
]
NUMBERS = count()


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


ODD.append(Hostile())


def a_function() -> Callable[..., None]:
    """A function with a name of its own, so that no definition meets another one."""

    def work(claim: dict[str, list[Any]]) -> None: ...

    work.__qualname__ = work.__name__ = f"work_{next(NUMBERS)}"
    return work


def a_class() -> type[Any]:
    body = {"build": lambda self, *, cursor: iter(()), "each_iteration": lambda self, item: None}
    return type(f"Work{next(NUMBERS)}", (IterableJob,), body)


APP, ORDERLY, BATCHES = App(redis_url="redis://localhost:1"), App(), App()


@APP.job(name="plain")
def plain(x: int = 0) -> None: ...


@APP.ordered(name="ordered", queue="ordered")
def ordered(claim: dict[str, list[Any]]) -> None: ...


JOB = ("name", *(one for one in JobOptions.__struct_fields__ if one != "iterable"))
ORDERED = ("name", "derive", "queue", "timeout", "log_level", "track", *OrderedOptions.__struct_fields__)
PUSH = PushOptions.__struct_fields__
CRON = ("expression", "every", "tz", "name", "missed", "overlap", "overlap_for", "args", "kwargs")
BATCH = (
    "description",
    "on_success",
    "on_complete",
    "on_death",
    "tags",
    "expires",
    "open_for",
    "atomic",
    "parent",
    "keep",
    "results",
)

PLACES: dict[str, tuple[tuple[str, ...], Callable[[str, Any], Any]]] = {
    "job": (JOB, lambda name, value: APP.job(**{name: value})(a_function())),
    "ordered": (
        ORDERED,
        lambda name, value: ORDERLY.ordered(**{"queue": f"q{next(NUMBERS)}", name: value})(a_function()),
    ),
    "iterable": (
        ("over", "max_iteration_runtime", *JOB),
        lambda name, value: APP.iterable(**{name: value})(a_class() if name != "over" else a_function()),
    ),
    "using": (PUSH, lambda name, value: plain.using(**{name: value})),
    "cron": (CRON, lambda name, value: APP.cron(**{"every": 60, "name": f"c{next(NUMBERS)}", name: value})(plain)),
    "batch": ((*BATCH, "keep"), lambda name, value: BATCHES.batch(**{name: value})),
    "app": (tuple(KEYS), lambda name, value: App(**{name: value})),
}


#: what is said of the arguments of a function that was given
ALSO = {"args": r"plain\(\) takes", "kwargs": r"plain\(\) got", "over": "parameters of|takes no cursor"}


def each() -> Iterator[Any]:
    for place, (names, _) in PLACES.items():
        yield from (pytest.param(place, name, id=f"{place}-{name}") for name in dict.fromkeys(names))


def refusal(call: Callable[[], Any]) -> str | None:
    """What a refusal says; None: it was taken. Any other exception fails the test, named by the caller."""
    try:
        call()
    except HenchmanError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("place", "name"), list(each()))
def test_each_option_is_checked_by_type(place: str, name: str) -> None:
    said, broken = [], []
    for value in ODD:
        try:
            refused = refusal(lambda value=value: PLACES[place][1](name, value))  # type: ignore[misc]
        except Exception as error:
            broken.append(f"{name}={as_shown(value, 60)}: {error!r:.200}")
        else:
            said += [] if refused is None else [refused]
    assert broken == []
    assert said, "there is something that it may not be"
    named = re.compile(f"{name}|{ALSO.get(name, name)}")
    assert [text for text in said if not named.search(text)] == [], "each says which option it is about"


CALLS: dict[str, Callable[[Any], Any]] = {
    "@job": APP.job,
    "@job()": APP.job(),
    "@ordered": APP.ordered,
    "@ordered()": APP.ordered(),
    "@iterable()": APP.iterable(),
    "@iterable(over=)": APP.iterable(over=a_function()),
    "@cron()": APP.cron(every=60),
    "on": APP.on,
    "carry": APP.carry,
    "get_batch": APP.get_batch,
    "crons.add name": lambda value: APP.crons.add(value, plain, every=60),
    "crons.add job": lambda value: APP.crons.add("c", value, every=60),
    "enqueue name": APP.enqueue,
    "enqueue_many": plain.enqueue_many,
    "enqueue_many row": lambda value: plain.enqueue_many([value]),
    "push id": lambda value: ordered.push(value, 1),
    "push score": lambda value: ordered.push("id", 1, score=value),
    "push at": lambda value: ordered.push("id", 1, at=value),
    "push delay": lambda value: ordered.push("id", 1, delay=value),
    "push_many": ordered.push_many,
    "push_many row": lambda value: ordered.push_many([value]),
    "push_many id": lambda value: ordered.push_many([{"id": value, "payload": 1}]),
    "push_many score": lambda value: ordered.push_many([{"id": "a", "payload": 1, "score": value}]),
    "push_many at": lambda value: ordered.push_many([{"id": "a", "payload": 1, "at": value}]),
    "push_many delay": lambda value: ordered.push_many([{"id": "a", "payload": 1, "delay": value}]),
}


@pytest.mark.parametrize("call", CALLS)
def test_what_is_decorated_named_and_pushed_is_checked_by_type(call: str) -> None:
    """What is right goes to the server, which is away: that is an error of ours too."""
    broken = []
    for value in ODD:
        try:
            refusal(lambda value=value: CALLS[call](value))  # type: ignore[misc]
        except Exception as error:
            broken.append(f"{as_shown(value, 60)}: {error!r:.200}")
    assert broken == []
