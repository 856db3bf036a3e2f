"""Figures as calls for people: counters, sizes, and what every process says of itself and holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from henchman.store.call import Arg, Call, command, commands
from henchman.store.keys import Keys
from henchman.store.queues import raw

__all__ = ["Figures", "Record", "figures", "flight_lists", "identities", "in_flight", "joined", "records", "signal"]

_SIGNAL_LIFE = 60  # seconds: a signal that nobody fetched is gone


class Figures(NamedTuple):
    """Counters (for ever, and today in UTC) and the sizes of the three sets."""

    processed: int
    failed: int
    processed_today: int
    failed_today: int
    scheduled: int
    retries: int
    dead: int
    overdue: int


class Record(NamedTuple):
    """What one process wrote down: its facts, and its running jobs by slot."""

    identity: str
    facts: Mapping[str, bytes]
    work: Mapping[str, bytes]


def _count(reply: Any) -> int:
    try:
        return int(reply or 0)
    except ValueError:  # somebody wrote something else there
        return 0


def figures(keys: Keys, day: str, late: float) -> Call[Figures]:
    """Counters and sizes in one write; ``day`` is today as YYYY-MM-DD in UTC.

    ``overdue`` counts scheduled jobs and retries that were due before the Unix time ``late``.
    """
    counters = [
        keys.stat_processed,
        keys.stat_failed,
        keys.stat_day("processed", day),
        keys.stat_day("failed", day),
    ]
    sizes = [("ZCARD", key) for key in (keys.schedule, keys.retry, keys.dead)]
    overdue = [("ZCOUNT", key, "-inf", repr(late)) for key in (keys.schedule, keys.retry)]

    def read(replies: list[Any]) -> Figures:
        sums = [_count(one) for one in (*replies[0], *replies[1:4])]
        return Figures(*[*sums, sum(replies[4:])])

    return commands(("MGET", *counters), *sizes, *overdue, decode=read)


def _texts(reply: Any) -> list[str]:
    return sorted(one.decode("utf-8", "surrogateescape") for one in reply)


def identities(keys: Keys) -> Call[list[str]]:
    """The identities on Sidekiq's list of processes, whatever stands there; some may have died since."""
    return command("SMEMBERS", keys.processes, decode=_texts)


def joined(keys: Keys) -> Call[list[str]]:
    """The identities that joined and neither left nor were swept: those that may hold work in flight."""
    return command("ZRANGE", keys.identities, 0, -1, decode=_texts)


def _pairs(flat: Any) -> dict[str, bytes]:
    return {flat[i].decode("utf-8", "surrogateescape"): flat[i + 1] for i in range(0, len(flat), 2)}


def records(keys: Keys, which: Sequence[str]) -> Call[list[Record]]:
    """The records of the processes ``which`` (at least one), in one write; empty facts: that one is gone."""
    parts = [
        ("HGETALL", raw(key))
        for identity in which
        for key in (keys.process(identity), keys.work(identity), keys.workers(identity))
    ]

    def read(replies: list[Any]) -> list[Record]:
        rows = [[_pairs(one) for one in replies[i : i + 3]] for i in range(0, len(replies), 3)]
        return [Record(name, facts, work or old) for name, (facts, work, old) in zip(which, rows, strict=True)]

    return commands(*parts, decode=read)


def flight_lists(keys: Keys, which: Sequence[str]) -> Call[list[str]]:
    """The keys of the in-flight lists of the processes ``which`` (at least one)."""
    parts = [("SMEMBERS", raw(keys.flights(identity))) for identity in which]
    return commands(*parts, decode=lambda replies: [name for one in replies for name in _texts(one)])


def in_flight(lists: Sequence[str], most: int) -> Call[list[list[bytes]]]:
    """At most ``most`` payloads of each in-flight list (at least one), the last fetched first."""
    return commands(*(("LRANGE", raw(key), 0, most - 1) for key in lists))


def signal(keys: Keys, identity: str, name: str) -> Call[Any]:
    """Leave a signal (TSTP, TERM, TTIN) for a process that fetches such at its next heartbeat, as Sidekiq's do."""
    key = raw(keys.signals(identity))
    parts: list[tuple[Arg, ...]] = [("MULTI",), ("LPUSH", key, name), ("EXPIRE", key, _SIGNAL_LIFE), ("EXEC",)]
    return commands(*parts, again=False)
