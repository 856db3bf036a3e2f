"""What a definition or a push may say, and how it is told that it may not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from henchman.client.keywords import JobKeywords, NamedKeywords, OrderedKeywords, PushKeywords
from henchman.client.options import (
    KEYED,
    JobOptions,
    PushOptions,
    definition_options,
    named_options,
    push_options,
)
from henchman.config import KEYS
from henchman.config.keywords import SettingKeywords
from henchman.errors import DefinitionError
from henchman.ordered.definition import KNOWN


def define(**options: Any) -> JobOptions:
    return definition_options("pkg.job", options)


AS_DEFINED = PushOptions()


def using(base: PushOptions = AS_DEFINED, **options: Any) -> PushOptions:
    return push_options("pkg.job", options, base)


def test_what_type_checkers_know_is_what_there_is() -> None:
    jobs = {*JobOptions.__struct_fields__} - {"iterable"}
    assert set(JobKeywords.__annotations__) == jobs
    assert set(PushKeywords.__annotations__) == {*PushOptions.__struct_fields__}
    assert set(NamedKeywords.__annotations__) == {*PushOptions.__struct_fields__} | (
        {"retry_queue", "dead", "backtrace", "log_level", *KEYED} & jobs | {"foreign"}
    )
    assert set(OrderedKeywords.__annotations__) == set(KNOWN) - {"derive"}
    assert set(SettingKeywords.__annotations__) == set(KEYS)


def test_nothing_said() -> None:
    assert define() == JobOptions()
    assert using() == PushOptions()


def test_everything_said() -> None:
    made = define(
        queue="mail:x", retry=5, retry_in=3, retry_for=timedelta(hours=1), retry_on=OSError, no_retry_on=[ValueError],
        retries_exhausted=print, retry_queue="slow", dead=False, backtrace=10, timeout=1.5, expires=60, tags=["a", "b"],
        log_level="debug", secret=["card"],
    )  # fmt: skip
    assert made == JobOptions(
        queue="mail:x", retry=5, retry_in=3.0, retry_for=3600.0, retry_on=(OSError,), no_retry_on=(ValueError,),
        retries_exhausted=print, retry_queue="slow", dead=False, backtrace=10, timeout=1.5, expires=60.0,
        tags=("a", "b"), log_level="debug", secret=("card",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"retri": 3}, "there is no option retri=; did you mean 'retry'?"),
        ({"retries": 3}, "there is no option retries=; did you mean 'retry'?"),
        ({"max_retries": 3}, "there is no option max_retries=; it is called retry="),
        ({"colour": 3}, "there is no option colour="),
        ({"delay": 3}, "there is no option delay="),
        ({"queue": ""}, "queue='': a queue is named by a text"),
        ({"queue": "a b"}, "queue='a b': a queue's name holds only"),
        ({"queue": "ä"}, "holds only letters, digits"),
        ({"queue": 7}, "queue=7: a queue is named by a text"),
        ({"queue": "q" * 201}, "1 to 200 characters"),
        ({"retry": -1}, "retry=-1: give True, False or a number of retries"),
        ({"retry": 1.5}, "retry=1.5"),
        ({"retry": "5"}, "retry='5'"),
        ({"expires": 0}, "expires=0: give more than zero"),
        ({"timeout": -1}, "timeout=-1"),
        ({"deadline": -1}, "deadline=-1: give zero up to"),
        ({"deadline": "tomorrow"}, "give seconds or a timedelta"),
        ({"deadline": datetime(2030, 1, 1, tzinfo=UTC)}, "a moment is that of a push"),
        ({"timeout": True}, "timeout=True: give seconds or a timedelta"),
        ({"timeout": "1"}, "give seconds or a timedelta"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"expires": float("inf")}, "expires=inf"),
        ({"retry_in": -1}, "retry_in=-1: give zero up to"),
        ({"retry_for": 1_000_000_001}, "retry_for=1000000001: give up to 1,000,000,000 seconds"),
        ({"retry_for": timedelta(days=20_000)}, "give up to 1,000,000,000 seconds (31 years), or leave it out"),
        ({"retry_on": "ValueError"}, "give one exception class or several"),
        ({"retry_on": [int]}, "give one exception class or several"),
        ({"retries_exhausted": 1}, "give a function"),
        ({"dead": 1}, "dead=1: give True or False"),
        ({"backtrace": -1}, "backtrace=-1"),
        ({"tags": "vip"}, "give a list of texts, as in tags=['vip']"),
        ({"tags": 5}, "tags=5: give a list of texts"),
        ({"tags": [5]}, "tags=[5]: give a list of texts"),
        ({"log_level": "loud"}, "log_level='loud'"),
        ({"log_level": ["info"]}, "log_level=['info']"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        define(**given)
    assert said in str(caught.value)


@pytest.mark.parametrize(("given", "seconds"), [(0, 0.0), (1.5, 1.5), (timedelta(minutes=2), 120.0)])
def test_delay(given: Any, seconds: float) -> None:
    assert using(delay=given).delay == seconds


@pytest.mark.parametrize("moment", [datetime(2030, 1, 1, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC)])
def test_at(moment: datetime) -> None:
    assert using(at=moment).at == moment.timestamp()
    assert using(at=moment.astimezone(timezone(timedelta(hours=9)))).at == moment.timestamp()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"at": datetime(2030, 1, 1)}, "has no time zone; add one"),  # noqa: DTZ001 - that is the point
        ({"at": 17.0}, "give a datetime with a time zone (or delay= for seconds)"),
        ({"delay": -1}, "delay=-1"),
        ({"delay": 5, "at": datetime(2030, 1, 1, tzinfo=UTC)}, "give delay= or at=, not both"),
        ({"retry_in": 5}, "there is no option retry_in="),
        ({"retry_for": 1e9 + 1}, "retry_for=1000000001.0: give up to 1,000,000,000 seconds"),
        ({"queu": "x"}, "did you mean 'queue'?"),
    ],
)
def test_what_is_wrong_with_a_push(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        using(**given)
    assert said in str(caught.value)


def test_options_add_up_and_the_last_word_counts() -> None:
    base = using(delay=5, queue="a", tags=["x"])
    made = using(base, queue="b", retry=0)
    assert made == PushOptions(queue="b", retry=0, tags=("x",), delay=5.0)
    with pytest.raises(DefinitionError, match="not both"):
        using(base, at=datetime(2030, 1, 1, tzinfo=UTC))
    assert using(base, delay=None, at=datetime(2030, 1, 1, tzinfo=UTC)).delay is None


def test_a_push_by_name_takes_what_travels() -> None:
    given = {"queue": "ruby", "timeout": 5, "delay": 1, "dead": False, "backtrace": True}
    defined, pushed = named_options("HardJob", given, None)
    assert pushed == PushOptions(queue="ruby", timeout=5.0, delay=1.0)
    assert defined == JobOptions(dead=False, backtrace=True)


@pytest.mark.parametrize("option", ["retry_in", "retry_on", "no_retry_on", "retries_exhausted", "secret"])
def test_what_cannot_travel_is_refused(option: str) -> None:
    with pytest.raises(DefinitionError, match=f"{option}= cannot travel"):
        named_options("HardJob", {option: 5}, None)


def test_a_job_that_is_defined_here_keeps_its_definition() -> None:
    mine = define(queue="mine", retry=3)
    assert named_options("pkg.job", {"delay": 2}, mine) == (mine, PushOptions(delay=2.0))
    with pytest.raises(DefinitionError, match="no option dead="):
        named_options("pkg.job", {"dead": False}, mine)
