"""When a periodic job is due, as pure functions of the time that is passed in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from henchman.cron.timing import GRACE, MOST, Interval, Plan, newest, plan, read_timing, timing_of, upcoming
from henchman.errors import DefinitionError

PARIS, NEW_YORK = "Europe/Paris", "America/New_York"


def at(text: str, tz: str = "UTC") -> float:
    """A time of day in ``tz``; where it comes twice the first, with a z behind it the second."""
    moment = datetime.fromisoformat(text.removesuffix("z")).replace(tzinfo=ZoneInfo(tz), fold=int(text.endswith("z")))
    return moment.timestamp()


def shown(moments: list[float], tz: str) -> list[str]:
    return [datetime.fromtimestamp(one, ZoneInfo(tz)).isoformat()[5:] for one in moments]


@pytest.mark.parametrize(
    ("expression", "tz", "start", "expected"),
    [
        ("0 9 * * 1-5", PARIS, "2026-01-02T09:00", ["01-05T09:00:00+01:00", "01-06T09:00:00+01:00"]),
        # Spring: 02:30 does not come, the job runs when the clocks have moved; what runs each hour goes on by the hour.
        ("30 2 * * *", PARIS, "2026-03-28T03:00", ["03-29T03:00:00+02:00", "03-30T02:30:00+02:00"]),
        ("30 2 * * *", NEW_YORK, "2026-03-07T03:00", ["03-08T03:00:00-04:00", "03-09T02:30:00-04:00"]),
        ("30 * * * *", PARIS, "2026-03-29T01:00", ["03-29T01:30:00+01:00", "03-29T03:30:00+02:00"]),
        # Autumn: 02:30 comes twice, the job runs the first time; what runs each hour runs in both.
        ("30 2 * * *", PARIS, "2026-10-24T03:00", ["10-25T02:30:00+02:00", "10-26T02:30:00+01:00"]),
        ("30 1 * * *", NEW_YORK, "2026-10-31T03:00", ["11-01T01:30:00-04:00", "11-02T01:30:00-05:00"]),
        ("30 * * * *", PARIS, "2026-10-25T02:00", ["10-25T02:30:00+02:00", "10-25T02:30:00+01:00"]),
        ("30 2 * * *", PARIS, "2026-10-25T02:10z", ["10-26T02:30:00+01:00", "10-27T02:30:00+01:00"]),
        # Six fields: seconds first, and the wall clock taken as it is: 02:30 is left out in spring, double in autumn.
        ("*/20 * * * * *", "UTC", "2026-01-01T00:00:10", ["01-01T00:00:20+00:00", "01-01T00:00:40+00:00"]),
        ("15 0 9 * * *", PARIS, "2026-01-01T09:00:15", ["01-02T09:00:15+01:00", "01-03T09:00:15+01:00"]),
        ("0 30 2 * * *", PARIS, "2026-03-28T03:00", ["03-30T02:30:00+02:00", "03-31T02:30:00+02:00"]),
        ("0 30 2 * * *", PARIS, "2026-10-24T03:00", ["10-25T02:30:00+02:00", "10-25T02:30:00+01:00"]),
        ("0 0 L * *", "UTC", "2026-02-01", ["02-28T00:00:00+00:00", "03-31T00:00:00+00:00"]),
        ("0 0 29 2 *", "UTC", "2026-02-01", ["02-29T00:00:00+00:00", "02-29T00:00:00+00:00"]),
        ("0 0 * jan mon#1", "UTC", "2026-01-01", ["01-05T00:00:00+00:00", "01-04T00:00:00+00:00"]),
    ],
)
def test_next_times(expression: str, tz: str, start: str, expected: list[str]) -> None:
    assert shown(upcoming(timing_of(expression, None, tz), at(start, tz), 2), tz) == expected


@pytest.mark.parametrize("expression", ["30 2 * * *", "10,50 2 * * *", "30 * * * *", "*/15 2 * * *", "0 30 2 * * *"])
@pytest.mark.parametrize("day", ["2026-03-28", "2026-10-24"])
def test_from_wherever_one_looks_the_times_are_the_same(expression: str, day: str) -> None:
    timing = timing_of(expression, None, PARIS)
    start, end = at(day, PARIS), at(day, PARIS) + 3 * 86400
    every = [one for one in upcoming(timing, start, 500) if one <= end]
    assert all(one < two for one, two in pairwise(every))
    for moment in range(int(start), int(end), 599):
        later = [one for one in every if one > moment]
        assert upcoming(timing, moment, 2) == later[:2] or len(later) < 2
        assert newest(timing, start, moment, 3) == [one for one in every if one <= moment][-3:]


def test_an_interval_is_counted_from_1970_whoever_asks() -> None:
    timing = timing_of(None, timedelta(seconds=30), None)
    assert upcoming(timing, 1_000_000_000.0, 2) == [1_000_000_020.0, 1_000_000_050.0]
    assert upcoming(timing, 1_000_000_020.0, 1) == [1_000_000_050.0]
    assert upcoming(timing_of(None, 0.1, None), 1_700_000_000.25, 3) == [
        1_700_000_000.3,
        1_700_000_000.4,
        1_700_000_000.5,
    ]
    days = upcoming(timing_of(None, timedelta(days=1), None), at("2026-01-01T12:00"), 1)
    assert days == [at("2026-01-02T00:00")]


def test_the_newest_of_many_years_are_found_at_once() -> None:
    assert newest(timing_of("* * * * * *", None, None), 0.0, 1.7e9, 3) == [1.7e9 - 2, 1.7e9 - 1, 1.7e9]
    assert newest(Interval(0.5), 0.0, 1.7e9, 2) == [1.7e9 - 0.5, 1.7e9]
    assert newest(timing_of("0 0 1 1 *", None, None), 0.0, at("2026-05-05"), 2) == [at("2025-01-01"), at("2026-01-01")]
    assert newest(timing_of("0 0 1 1 *", None, None), at("2026-01-01"), at("2026-05-05"), 2) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("0 9 * *", None, None), "'0 9 * *' is no cron expression (Wrong number of fields)"),
        (("61 * * * *", None, None), "'61 * * * *' is no cron expression (Bad minute)"),
        (("99 0 9 * * *", None, None), "(Bad second)"),
        (("0 0 31 2 *", None, None), "(Bad day-of-month)"),
        (("", None, None), "(Wrong number of fields)"),
        ((30, None, None), "30 is no cron expression: give a text such as '0 9 * * 1-5'"),
        ((None, None, None), "give either a cron expression"),
        (("* * * * *", 5, None), "give either a cron expression"),
        (("* * * * *", None, "Europe/Pariss"), "tz='Europe/Pariss': there is no such time zone"),
        (("* * * * *", None, "../../etc/passwd"), "there is no such time zone"),
        (("* * * * *", None, "Europe"), "there is no such time zone"),
        (("* * * * *", None, ""), "tz='': there is no such time zone"),
        (("* * * * *", None, UTC), "give the name of a time zone"),
        ((None, 5, "UTC"), "every= counts seconds and knows no time zone"),
        ((None, 0, None), "every=0: give 0.1 to 31,622,400 seconds, or a timedelta"),
        ((None, float("nan"), None), "every=nan"),
        ((None, True, None), "every=True"),
        ((None, "30", None), "every='30'"),
        ((None, timedelta(days=-1), None), "every="),
    ],
)
def test_what_is_wrong_is_named(given: tuple[Any, Any, Any], said: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        timing_of(*given)
    assert said in str(caught.value)


@pytest.mark.parametrize("timing", [timing_of("0  9 * * 1-5", None, PARIS), timing_of(None, 0.1, None)])
def test_stored_and_read_again(timing: Any) -> None:
    assert read_timing(timing.text()) == timing


@pytest.mark.parametrize("text", ["", "hourly", "every", "every x", "cron", "cron UTC", "cron Mars/Base * * * * *"])
def test_what_is_stored_wrongly_is_named(text: str) -> None:
    with pytest.raises(DefinitionError):
        read_timing(text)


class TestPlan:
    """Now is noon; the cron comes each second, unless it says otherwise."""

    NOW = at("2026-01-01T12:00")
    SECOND = timing_of(None, 1, None)
    HOUR = timing_of("0 * * * *", None, None)

    def test_nothing_is_due(self) -> None:
        assert plan(self.HOUR, "latest", self.NOW, self.NOW + 5, self.NOW) == Plan()

    @pytest.mark.parametrize("missed", ["latest", "all", "skip"])
    def test_on_time(self, missed: str) -> None:
        assert plan(self.HOUR, missed, self.NOW - 3600, self.NOW, self.NOW - 1) == Plan((self.NOW,))

    @pytest.mark.parametrize("missed", ["latest", "all", "skip"])
    def test_late_while_workers_were_there_is_not_missed(self, missed: str) -> None:
        """The leader died: another one has taken over after 4 s."""
        due = tuple(self.NOW - 3 + n for n in range(4))
        assert plan(self.SECOND, missed, self.NOW - 4, self.NOW, self.NOW - 4) == Plan(due)

    def test_latest_of_an_hour(self) -> None:
        assert plan(self.SECOND, "latest", self.NOW - 3600, self.NOW, self.NOW - 3600) == Plan((self.NOW,), None, True)
        assert plan(self.HOUR, "latest", self.NOW - 3600, self.NOW + 900, None) == Plan((self.NOW,))
        assert plan(self.HOUR, "latest", self.NOW - 7200, self.NOW + 900, None) == Plan((self.NOW,), None, True)

    def test_all_of_an_hour_and_at_most_1000(self) -> None:
        assert plan(self.HOUR, "all", self.NOW - 7200, self.NOW + 900, None) == Plan((self.NOW - 3600, self.NOW))
        many = plan(self.SECOND, "all", self.NOW - 3600, self.NOW, None)
        assert (len(many.ticks), many.ticks[-1], many.passed_over) == (MOST, self.NOW, True)

    def test_skip_makes_up_for_nothing_older_than_the_grace(self) -> None:
        assert plan(self.HOUR, "skip", self.NOW - 7200, self.NOW + 900, None) == Plan((), self.NOW, True)
        assert plan(self.HOUR, "skip", self.NOW - 7200, self.NOW + GRACE - 1, None) == Plan((self.NOW,), None, True)

    def test_a_leader_that_slept_for_an_hour_goes_by_the_policy(self) -> None:
        slept = self.NOW - 3600
        assert len(plan(self.SECOND, "latest", slept, self.NOW, slept).ticks) == 1
        assert plan(self.HOUR, "skip", slept - 3600, self.NOW + 900, slept).ticks == ()

    def test_what_comes_late_covers_what_was_missed_before(self) -> None:
        """A cron that was retired for an hour while others went on."""
        found = plan(self.SECOND, "latest", self.NOW - 3600, self.NOW, self.NOW - 1)
        assert (len(found.ticks), found.ticks[-1], found.passed_over) == (GRACE, self.NOW, True)
