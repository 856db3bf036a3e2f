"""What testing.fake asserts, and the words it finds when that is not so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from unittest.mock import ANY

import pytest

from henchman import App, ArgumentError, testing

START = datetime(2030, 1, 1, tzinfo=UTC)
app = App(redis_url="redis://nobody.invalid:1")


@app.job(name="mail.welcome", queue="mail")
def welcome(user_id: int, *, lang: str = "en", born: date | None = None) -> None: ...


@app.job(name="mail.send", secret=("password",))
def send(to: str, password: str) -> None: ...


@app.job(name="route")
def route(queue: str, count: int = 1) -> None: ...


@app.job(name="sums")
def sums(*numbers: int) -> None: ...


@pytest.fixture
def jobs() -> Iterator[testing.FakeJobs]:
    with testing.fake(app, clock=testing.Clock(START)) as collected:
        yield collected


def test_what_fits(jobs: testing.FakeJobs) -> None:
    welcome.enqueue(42, lang="de")
    welcome.using(delay=60, tags=["vip", "eu"], queue="slow").enqueue(43, born=date(2000, 1, 1))
    sums.enqueue(1, 2)
    app.enqueue("HardJob", "bob", [1, 2])
    jobs.assert_enqueued(welcome)
    jobs.assert_enqueued(welcome, count=2)
    jobs.assert_enqueued(welcome, 42, lang="de", queue="mail", count=1)
    jobs.assert_enqueued(welcome, user_id=42, lang="de", born=None)  # a default may be said
    jobs.assert_enqueued(welcome, ANY, lang=ANY, count=1)
    jobs.assert_enqueued(welcome, 43, born=date(2000, 1, 1), tags=["vip"], at=timedelta(minutes=1))
    jobs.assert_enqueued(welcome, 43, born=ANY, at=START + timedelta(seconds=65), within=10)
    jobs.assert_enqueued(welcome, count=0, queue="none")
    jobs.assert_enqueued(sums, 1, 2)
    jobs.assert_enqueued("HardJob", "bob", [1, 2])
    jobs.assert_enqueued("mail.welcome", 42, lang="de")
    jobs.assert_not_enqueued(welcome, 42)  # lang differs
    jobs.assert_not_enqueued(welcome, queue="default")
    jobs.assert_not_enqueued(welcome, 43, at=START)
    jobs.assert_not_enqueued(sums, 1, 2, 3)
    jobs.assert_not_enqueued("HardJob", "bob")
    jobs.assert_not_enqueued("OtherJob")


def test_a_parameter_that_is_called_like_an_option(jobs: testing.FakeJobs) -> None:
    route.using(queue="fast").enqueue("mail", count=3)
    with pytest.raises(ArgumentError, match=r"queue= is an option of the assertion .* job\.call"):
        jobs.assert_enqueued(route, queue="mail")
    jobs.assert_enqueued(route, route.call("mail", count=3))
    jobs.assert_not_enqueued(route, route.call(queue="mail"))


def test_what_could_never_be_a_push(jobs: testing.FakeJobs) -> None:
    with pytest.raises(ArgumentError, match=r"welcome\(\) takes 1 positional argument but 2 were given"):
        jobs.assert_enqueued(welcome, 1, 2)
    with pytest.raises(ArgumentError, match="unexpected keyword argument 'langue'"):
        jobs.assert_not_enqueued(welcome, 1, langue="de")
    with pytest.raises(ArgumentError, match="HardJob is not registered here, so its arguments have no names"):
        jobs.assert_enqueued("HardJob", name="bob")
    welcome.enqueue(1)
    with pytest.raises(ArgumentError, match="time zone"):
        jobs.assert_enqueued(welcome, 1, at=datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point


def test_the_words_of_a_miss(jobs: testing.FakeJobs) -> None:
    with pytest.raises(AssertionError) as nothing:
        jobs.assert_enqueued(welcome)
    assert str(nothing.value) == "expected a push of mail.welcome(…); found none\nnothing was enqueued"
    welcome.enqueue(42, lang="en")
    welcome.using(delay=60, tags=["vip"]).enqueue(7)
    sums.enqueue(1)
    with pytest.raises(AssertionError) as miss:
        jobs.assert_enqueued(welcome, 42, lang="de", queue="post", at=timedelta(hours=1))
    assert str(miss.value).splitlines() == [
        "expected a push of mail.welcome(42, lang='de') with queue='post', at=1:00:00 within=1.0 s; found none",
        "nearest:",
        "  mail.welcome(42, lang='en')  queue='mail'",
        "      lang: expected 'de', was 'en'",
        "      queue: expected 'post', was 'mail'",
        "      at: expected '2030-01-01T01:00:00+00:00', was 'at once'",
        "  mail.welcome(7)  queue='mail', tags=['vip'], schedule at 2030-01-01 00:01:00 UTC",
        "      user_id: expected 42, was 7",
        "      lang: expected 'de', was 'en'",
        "      queue: expected 'post', was 'mail'",
        "      at: expected '2030-01-01T01:00:00+00:00', was '2030-01-01T00:01:00+00:00'",
        "enqueued in all: 3",
        "  mail.welcome(42, lang='en')  queue='mail'",
        "  mail.welcome(7)  queue='mail', tags=['vip'], schedule at 2030-01-01 00:01:00 UTC",
        "  sums(1)  queue='default'",
    ]


def test_the_words_of_a_wrong_count(jobs: testing.FakeJobs) -> None:
    sums.enqueue_many([(1,)] * 25)
    with pytest.raises(AssertionError) as often:
        jobs.assert_enqueued(sums, 1, count=1)
    lines = str(often.value).splitlines()
    assert lines[:3] == ["expected 1 push of sums(1); found 25", "these fit:", "  sums(1)  queue='default'"]
    assert lines[22] == "  … and 5 more"
    assert lines[23] == "enqueued in all: 25"
    with pytest.raises(AssertionError, match=r"expected no push of sums\(…\); found 25:"):
        jobs.assert_not_enqueued(sums)


def test_the_words_keep_secrets_and_stay_short(jobs: testing.FakeJobs) -> None:
    send.enqueue("a@b", "hunter2")
    send.enqueue("x" * 5000, "hunter2")
    with pytest.raises(AssertionError) as miss:
        jobs.assert_enqueued(send, "a@b", "hunter3")
    text = str(miss.value)
    assert "hunter" not in text
    assert "password: expected ***, was ***" in text
    assert len(text) < 2000
    assert "hunter" not in repr(jobs.list())
