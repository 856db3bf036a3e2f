"""What ran, how often and for how long, as calls: Sidekiq's execution metrics and deploy marks (wire format, 14, 15).

Its limits first: a bucket says when counts were written down, not when the jobs ran; a histogram's counter stops at
65,535 a minute.
"""

from __future__ import annotations

import datetime as dt
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

from henchman.store import days
from henchman.store.call import Arg, Call, command, commands
from henchman.store.keys import Keys
from henchman.store.queues import add_ran, raw

T = TypeVar("T")
Form = Literal["8", "7"]

#: upper limits in ms of the first 25 counters of a histogram; the last one takes what was slower
LIMITS = (
    *(20, 30, 45, 65, 100, 150, 225, 335, 500, 750, 1100, 1700, 2500, 3800, 5750, 8500, 13000, 20000, 30000, 45000),
    *(65000, 100000, 150000, 225000, 335000),
)
MINUTES_KEPT = 480
HOURS_KEPT = 72

_MINUTE_LIFE = 8 * 3600
_TEN_MINUTES_LIFE = 3 * 86400
_MARK_LIFE = 90 * 86400
_TOTAL_LIFE = 90 * 86400
_MARK_LOCK = 60
_STAMP = "%Y-%m-%dT%H:%M:00Z"
_NAME_MOST = 200
_COUNTERS = len(LIMITS) + 1
#: causes that are counted for ever, beside errors, by their place behind the figures of a class: new ones go last
CAUSES_COUNTED = ("timeout", "deadline", "crash", "hang", "memory", "stop", "cancelled", "poison", "limit")
_FIGURES = 3 + _COUNTERS
_ALL = _FIGURES + len(CAUSES_COUNTED)


class Counted(NamedTuple):
    """Executions of one class: all of them, those that raised, ms of the others, and how many fell into each counter
    of the histogram (26 of them, or none at all). ``causes``: of those that raised, how many for another cause than an
    error."""

    processed: int
    failed: int
    ms: int
    histogram: Sequence[int] = ()
    causes: Mapping[str, int] = {}


def forms(sidekiq: str) -> tuple[Form, ...]:
    """Which layouts the setting ``sidekiq`` asks for."""
    return {"mixed": ("8", "7"), "8": ("8",)}.get(sidekiq, ("7",))  # type: ignore[return-value]


def metric_name(name: str) -> str:
    """``name`` as it stands in metrics: ``|`` would break every reader and ``/`` the pages, so both become ``:``."""
    clean = name if name.isascii() else name.encode("utf-8", "replace").decode()
    return clean.replace("|", ":").replace("/", ":")[:_NAME_MOST]


def bucket_of(ms: float) -> int:
    """The counter of a histogram, 0 to 25, that an execution of ``ms`` belongs to."""
    return bisect_right(LIMITS, ms)


def flush(
    keys: Keys,
    at: dt.datetime,
    counts: Mapping[str, Counted],
    which: Sequence[Form],
    ended: Mapping[str, days.DayEnds] | None = None,
    left: Mapping[str, int] | None = None,
) -> Call[Any]:
    """Add ``counts`` by class to the buckets of the moment ``at`` (UTC), what has ``ended`` to its days, and how many
    jobs have ``left`` each queue, all of them or none; one of the three at least has something."""
    added = [*_running(keys, at, counts, which)] if counts else []
    return commands(
        ("MULTI",), *added, *days.add(keys, ended or {}), *add_ran(keys, left or {}), ("EXEC",), again=False
    )


def _running(
    keys: Keys, at: dt.datetime, counts: Mapping[str, Counted], which: Sequence[Form]
) -> Iterator[tuple[Arg, ...]]:
    """Add what ran to its buckets, and to the sums of its classes."""
    buckets = [(keys.ten_minutes(at), _TEN_MINUTES_LIFE), (keys.minute(at), _MINUTE_LIFE)] if "8" in which else []
    if "7" in which:
        buckets.append((keys.minute7(at), _MINUTE_LIFE))
    for key, life in buckets:
        for name, one in counts.items():
            figures = (("p", one.processed), ("f", one.failed), ("ms", one.ms), *one.causes.items())
            yield from (("HINCRBY", key, f"{name}|{what}", number) for what, number in figures if number)
        yield ("EXPIRE", key, life)
    for name, one in counts.items():
        added = [
            part for i, number in enumerate(one.histogram) if number for part in ("INCRBY", "u16", f"#{i}", number)
        ]
        for key in _histogram_keys(keys, name, at, which) if added else ():
            yield ("BITFIELD", key, "OVERFLOW", "SAT", *added)
            yield ("EXPIRE", key, _MINUTE_LIFE)
    yield from _summing(keys, at.timestamp(), counts)


def _summing(keys: Keys, now: float, counts: Mapping[str, Counted]) -> Iterator[tuple[Arg, ...]]:
    """Add ``counts`` to what ran of each class so far."""
    for name, one in counts.items():
        key, figures = keys.total(name), _figures(one)
        added = [part for i, number in enumerate(figures) if number for part in ("INCRBY", "i64", f"#{i}", number)]
        yield ("BITFIELD", key, *added)
        yield ("EXPIRE", key, _TOTAL_LIFE)
    yield ("ZADD", keys.totals, *(part for name in counts for part in (now, name)))
    yield ("ZREMRANGEBYSCORE", keys.totals, "-inf", now - _TOTAL_LIFE)


def _figures(one: Counted) -> list[int]:
    """What is added to what ran of a class so far, each in its place."""
    figures = [one.processed, one.failed, one.ms, *one.histogram]
    if one.causes:
        figures += [0] * (_FIGURES - len(figures))
        figures += (one.causes.get(cause, 0) for cause in CAUSES_COUNTED)
    return figures


def total_names(keys: Keys) -> Call[list[str]]:
    """The classes of which something ran in the last 90 days, as they stand in metrics."""
    return command(
        "ZRANGE", keys.totals, 0, -1, decode=lambda found: [one.decode("utf-8", "surrogateescape") for one in found]
    )


def totals(keys: Keys, names: Sequence[str]) -> Call[list[Counted]]:
    """What ran of each class (at least one) so far, with its histogram."""
    return command("MGET", *(keys.total(one) for one in names), decode=lambda found: [_total(one) for one in found])


def _total(stored: bytes | None) -> Counted:
    figures = struct.unpack(f">{_ALL}q", (stored or b"")[: 8 * _ALL].ljust(8 * _ALL, b"\0"))
    causes = {cause: number for cause, number in zip(CAUSES_COUNTED, figures[_FIGURES:], strict=True) if number}
    return Counted(figures[0], figures[1], figures[2], figures[3:_FIGURES], causes)


def _histogram_keys(keys: Keys, name: str, at: dt.datetime, which: Sequence[Form]) -> list[str]:
    return [keys.histogram(name, at) if form == "8" else keys.histogram7(name, at) for form in which]


def read(buckets: Sequence[str]) -> Call[list[dict[str, Counted]]]:
    """What each bucket (at least one) holds, by class, without histograms; an empty dict where there is none."""
    return commands(*(("HGETALL", key) for key in buckets), decode=_buckets)


def _buckets(replies: Sequence[Any]) -> list[dict[str, Counted]]:
    """A bucket stands beside its copy in the other layout, mostly the same: it is decoded once."""
    found: list[dict[str, Counted]] = []
    for place, flat in enumerate(replies):
        same = place > 0 and flat == replies[place - 1]
        found.append(found[-1] if same else _bucket(flat))
    return found


_KEPT = 300  # bytes of a field's name that are kept at most


def _bucket(flat: Any) -> dict[str, Counted]:
    figures: dict[str, dict[str, int]] = {}
    for field, value in zip(flat[::2], flat[1::2], strict=True):
        name, what = _field(field) if len(field) <= _KEPT else _field.__wrapped__(field)
        if name:
            one = figures.get(name)
            if one is None:
                one = figures[name] = {}
            one[what] = _number(value)
    return {name: _counted(one) for name, one in figures.items()}


@lru_cache(maxsize=4096)
def _field(field: bytes) -> tuple[str, str]:
    """The class and the figure that a field of a bucket is of; buckets have the same fields, minute for minute."""
    name, _, what = field.decode("utf-8", "surrogateescape").rpartition("|")
    return name, what


def _counted(one: dict[str, int]) -> Counted:
    plain = one.pop("p", 0), one.pop("f", 0), one.pop("ms", 0)
    return Counted(*plain, (), one)  # what is left are causes


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:  # somebody wrote something else there
        return 0


def histograms(wanted: Sequence[str]) -> Call[list[tuple[int, ...] | None]]:
    """The 26 counters at each key (at least one); None where there is no histogram."""
    return command("MGET", *map(raw, wanted), decode=lambda replies: [_counters(one) for one in replies])


def _counters(stored: bytes | None) -> tuple[int, ...] | None:
    if stored is None:
        return None
    full = stored[: 2 * _COUNTERS].ljust(2 * _COUNTERS, b"\0")
    return tuple(int.from_bytes(full[i : i + 2], "big") for i in range(0, len(full), 2))


def stamp(at: dt.datetime) -> str:
    """The minute of ``at`` (UTC) as marks are named by it: ``2026-11-21T09:03:00Z``."""
    return at.strftime(_STAMP)


def mark_lock(keys: Keys, at: dt.datetime, label: str) -> Call[bool]:
    """Whether nobody has marked ``label`` in the last minute; from now on we have."""
    return command("SET", raw(keys.deploy_lock(label)), stamp(at), "NX", "EX", _MARK_LOCK, decode=bool, again=False)


def mark(keys: Keys, at: dt.datetime, label: str) -> Call[bool]:
    """Write a deploy down; False when the minute had a label already, which stays."""
    key = keys.marks(at)
    parts: list[tuple[Arg, ...]] = [("HSETNX", key, stamp(at), raw(label)), ("EXPIRE", key, _MARK_LIFE)]
    return commands(("MULTI",), *parts, ("EXEC",), decode=lambda replies: bool(replies[-1][0]), again=True)


def unmark(keys: Keys, at: dt.datetime) -> Call[bool]:
    """Take the mark of a minute (UTC) away; False when it has none."""
    return command("HDEL", keys.marks(at), stamp(at), decode=bool)


def marks(keys: Keys, days: Sequence[dt.datetime]) -> Call[dict[float, str]]:
    """The labels of the days that ``days`` (UTC, at least one) lie in, by the Unix time of their minute."""

    def read(replies: list[Any]) -> dict[float, str]:
        return {at: label for one in replies for at, label in marks_in(one)}

    return commands(*(("HGETALL", keys.marks(one)) for one in days), decode=read)


def marks_in(flat: Any) -> list[tuple[float, str]]:
    """The marks of a day, as its key holds them: Unix time and label of each."""
    found = []
    for i in range(0, len(flat), 2):
        try:
            at = dt.datetime.fromisoformat(flat[i].decode())
        except ValueError:  # not ours, and no time
            continue
        moment = at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)
        found.append((moment.timestamp(), flat[i + 1].decode("utf-8", "surrogateescape")))
    return found


class Totals(NamedTuple):
    """Counters (for ever, and today in UTC), the sizes of the three sets, and how many jobs wait for others."""

    processed: int
    failed: int
    processed_today: int
    failed_today: int
    scheduled: int
    retries: int
    dead: int
    blocked: int
    overdue: int


def _count(reply: Any) -> int:
    try:
        return int(reply or 0)
    except ValueError:  # somebody wrote something else there
        return 0


def figures(keys: Keys, day: str, late: float) -> Call[Totals]:
    """Counters and sizes in one write; ``day`` is today as YYYY-MM-DD in UTC.

    ``overdue`` counts scheduled jobs and retries that were due before the Unix time ``late``.
    """
    counters = [
        keys.stat_processed,
        keys.stat_failed,
        keys.stat_day("processed", day),
        keys.stat_day("failed", day),
    ]
    sizes = [*(("ZCARD", key) for key in (keys.schedule, keys.retry, keys.dead)), ("HLEN", keys.parked)]
    overdue = [("ZCOUNT", key, "-inf", repr(late)) for key in (keys.schedule, keys.retry)]

    def read(replies: list[Any]) -> Totals:
        sums = [_count(one) for one in (*replies[0], *replies[1:5])]
        return Totals(*[*sums, sum(replies[5:])])

    return commands(("MGET", *counters), *sizes, *overdue, decode=read)


def isolated_ended(keys: Keys) -> Call[tuple[int, int]]:
    """How many processes of isolated runs were killed, and how many have crashed, so far."""

    def read(reply: list[Any]) -> tuple[int, int]:
        return _count(reply[0]), _count(reply[1])

    return command("HMGET", keys.isolated, "killed", "crashed", decode=read)


def count_isolated(keys: Keys, ended: Mapping[str, int]) -> Call[Any]:
    """Count processes of isolated runs that were ``killed`` or have ``crashed``."""
    return commands(*(("HINCRBY", keys.isolated, how, many) for how, many in ended.items()), again=False)


def server_info(*section: str) -> Call[dict[str, str]]:
    """What the server says of itself (INFO), all of it or a section; ServerError where that is forbidden."""

    def read(reply: bytes) -> dict[str, str]:
        lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines() if line[:1] != "#")
        return {name: value for name, _, value in lines if name}

    return command("INFO", *section, decode=read)
