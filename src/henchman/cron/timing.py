"""When a periodic job is due: cron expressions and fixed intervals, as pure functions of the time that is passed in.

Intervals count seconds since 1970 and know no time zone; nothing here is more exact than the server's clock.
``cronsim`` reads expressions, with Debian cron's rules where the clocks change. Where there is no cron, neither it nor
any time zone is loaded: every worker has this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from itertools import islice
from typing import Any, NamedTuple

from henchman.errors import DefinitionError
from henchman.kernel.figures import span
from henchman.kernel.text import as_shown

__all__ = [
    "Expression",
    "Interval",
    "Plan",
    "Timing",
    "in_words",
    "in_zone",
    "newest",
    "plan",
    "read_timing",
    "timing_of",
    "upcoming",
    "zone",
]

GRACE = 10.0  # seconds: a tick is late, not missed, as long as workers were there and it is no older than this
MOST = 1000  # missed ticks of one cron that are made up for, at most
SHORTEST = 0.1  # seconds
_LONGEST = 366 * 86400.0


class Parts(NamedTuple):
    """What reads expressions and knows time zones."""

    CronSim: Any
    CronSimError: type[Exception]
    ZoneInfo: Any


@cache
def load() -> Parts:
    """Both libraries, when the first cron needs them."""
    from zoneinfo import ZoneInfo

    from cronsim import CronSim, CronSimError

    return Parts(CronSim, CronSimError, ZoneInfo)


class Interval(NamedTuple):
    """Every ``seconds``, counted from 1970: restarts do not shift it."""

    seconds: float

    def text(self) -> str:
        """How it is stored."""
        return f"every {self.seconds!r}"

    def after(self, moment: float) -> Iterator[float]:
        """The planned times after ``moment``, ascending."""
        number = int(moment // self.seconds)  # one too few rather than one too many
        while True:
            planned = round(number * self.seconds, 6)
            if planned > moment:
                yield planned
            number += 1


class Expression(NamedTuple):
    """A cron expression in a time zone."""

    fields: str
    tz: str

    def text(self) -> str:
        """How it is stored."""
        return f"cron {self.tz} {self.fields}"

    def after(self, moment: float) -> Iterator[float]:
        """The planned times after ``moment``, ascending."""
        last = moment
        # An hour that comes twice counts once: skip the times that cronsim gives again.
        for planned in load().CronSim(self.fields, datetime.fromtimestamp(moment, zone(self.tz))):
            seconds = planned.timestamp()
            if seconds > last:
                last = seconds
                yield seconds


Timing = Interval | Expression


def zone(name: str) -> tzinfo:
    """The time zone ``name``; DefinitionError when there is none of this name."""
    if name == "UTC":
        return UTC
    try:
        found: tzinfo = load().ZoneInfo(name)
        return found
    except (OSError, ValueError, KeyError):  # not found, no name at all, a folder
        raise DefinitionError(
            f"tz={name!r}: there is no such time zone; give one such as 'Europe/Paris' (where the system has none, "
            "pip install tzdata)"
        ) from None


def timing_of(expression: str | None, every: float | timedelta | None, tz: str | None) -> Timing:
    """The timing that was asked for; DefinitionError says what is wrong with it."""
    if (expression is None) == (every is None):
        raise DefinitionError("give either a cron expression, such as '0 9 * * 1-5', or every= seconds")
    if expression is None:
        if tz is not None:
            raise DefinitionError(
                f"tz={as_shown(tz, 200)}: every= counts seconds and knows no time zone; give a cron expression"
            )
        return _interval(every)
    if not isinstance(expression, str):
        raise DefinitionError(f"{as_shown(expression, 200)} is no cron expression: give a text such as '0 9 * * 1-5'")
    if tz is not None and not isinstance(tz, str):
        raise DefinitionError(f"tz={as_shown(tz, 200)}: give the name of a time zone, such as 'Europe/Paris'")
    made = Expression(" ".join(expression.split()), "UTC" if tz is None else tz)
    zone(made.tz)
    try:
        never = next(made.after(0.0), None) is None
    except load().CronSimError as error:
        raise DefinitionError(
            f"{expression!r} is no cron expression ({error}): give minute, hour, day of month, month, day of week, "
            "with seconds before them when you like, such as '0 9 * * 1-5'"
        ) from None
    if never:
        raise DefinitionError(f"{expression!r} never comes")
    return made


def _interval(every: object) -> Interval:
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not SHORTEST <= seconds <= _LONGEST:
        raise DefinitionError(
            f"every={as_shown(every, 200)}: give {SHORTEST:g} to {_LONGEST:,.0f} seconds, or a timedelta"
        )
    return Interval(float(seconds))


def read_timing(text: str) -> Timing:
    """The timing in its stored form; DefinitionError when it cannot be read."""
    kind, _, rest = text.partition(" ")
    if kind == "cron":
        tz, _, fields = rest.partition(" ")
        return timing_of(fields, None, tz)
    try:
        return timing_of(None, float(rest) if kind == "every" else None, None)
    except ValueError:
        raise DefinitionError(f"{text!r} is no timing that this version knows") from None


def in_zone(at: float, tz: str | None) -> str:
    """A time as clocks show it in its zone: ``Mon 2026-03-30 02:30 CEST``; None: UTC."""
    when = datetime.fromtimestamp(at, zone(tz or "UTC"))
    return f"{when:%a %Y-%m-%d %H:%M}{f':{when:%S}' if at % 60 else ''} {when:%Z}"


@lru_cache(1024)
def in_words(expression: str | None, every: float | None) -> str:
    """When a cron runs, in plain English: ``At 09:00 on Monday through Friday``, ``Every 30 s``."""
    if every is not None:
        return f"Every {span(every)}"
    parts = load()
    try:
        return str(parts.CronSim(expression, datetime.fromtimestamp(0, UTC)).explain()) if expression else ""
    except parts.CronSimError:
        return ""


def upcoming(timing: Timing, after: float, count: int) -> list[float]:
    """The next ``count`` planned times after ``after`` (fewer when there are no more)."""
    return list(islice(timing.after(after), count))


def newest(timing: Timing, after: float, until: float, most: int) -> list[float]:
    """The newest planned times in (after, until], at most ``most``, ascending; the cost does not grow with the span."""
    window = 60.0
    while True:
        start = max(after, until - window)
        found: deque[float] = deque(maxlen=most)
        for planned in timing.after(start):
            if planned > until:
                break
            found.append(planned)
        if len(found) == most or start == after:
            return list(found)
        window *= 8


class Plan(NamedTuple):
    """The times to enqueue now, ascending; ``floor``: without any, the time to write down as dealt with;
    ``passed_over``: some missed ticks are not among them."""

    ticks: tuple[float, ...] = ()
    floor: float | None = None
    passed_over: bool = False


def plan(timing: Timing, missed: str, last: float, now: float, seen: float | None) -> Plan:
    """The plan for the times in (last, now].

    Each tick that is at most GRACE seconds old is late, and enqueued, if a worker had dealt with everything until GRACE
    ago (``seen``). Older ticks were missed; ``missed`` ("latest", "all" or "skip") says which of them to make up for.
    """
    edge = now - GRACE
    first = next(timing.after(last), None)
    if first is None or first > now:
        return Plan()
    if first > edge and next(timing.after(first), now + 1) > now:  # one, and on time: nearly always
        return Plan((first,))
    if missed == "all":
        due = newest(timing, last, now, MOST + 1)
        return Plan(tuple(due[-MOST:]), None, len(due) > MOST)
    if seen is not None and seen >= edge:
        late = newest(timing, max(last, edge), now, MOST)
        if late:
            return Plan(tuple(late), None, last < edge and bool(newest(timing, last, edge, 1)))
    due = newest(timing, last, now, 2)
    if missed == "skip" and due[-1] <= edge:
        return Plan((), due[-1], True)
    return Plan((due[-1],), None, len(due) > 1)
