"""Errors by group, as calls: the groups that were met last, each with its counts, and where it was raised."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from henchman.store.call import Arg, Call, Procedure, command, commands, load, script
from henchman.store.keys import Keys
from henchman.store.metrics import marks_in

__all__ = ["MOST_GROUPS", "StoredGroups", "group_errors", "groups", "handle_group", "some_groups"]

MOST_GROUPS: Final = 500
LIFE: Final = 14 * 86400  # seconds after the last failure
_GROUP_ERRORS = load("group_errors")


def group_errors(keys: Keys, found: Sequence[Mapping[str, Any]], now: float) -> Call[int]:
    """Add failures to their groups, at least one; how many old groups were forgotten to make room.

    ``found``: id, error, message, place, trace, count, first, last, jid, and counts by ``hours`` (Unix time // 3600),
    ``jobs``, ``queues``, ``hosts``, ``versions`` and ``attempts``.
    """
    args: list[Any] = []
    for one in found:
        facts = {name: value for name, value in one.items() if name not in ("id", "trace")}
        args += [one["id"], msgspec.json.encode(facts), msgspec.json.encode(one["trace"])]
    store = [keys.errors, keys.error_facts, keys.error_traces]
    return script(_GROUP_ERRORS, store, [repr(now), LIFE, MOST_GROUPS, *args], int, again=False)


def groups(keys: Keys, first: int, most: int) -> Call[list[str]]:
    """The ids of groups, the last seen first, from place ``first`` on."""
    return commands(
        ("ZREVRANGE", keys.errors, first, first + most - 1), decode=lambda replies: [one.decode() for one in replies[0]]
    )


class StoredGroups(NamedTuple):
    """Groups as they are stored, None where one is not known; ``total``: how many there are; ``forgotten``: how many
    went to make room; ``marks``: deploys of today and of the two days before, by Unix time."""

    facts: list[bytes | None]
    traces: list[bytes | None]
    total: int
    forgotten: int
    marks: dict[float, str]
    handled: list[bytes | None] = []  # noqa: RUF012 - what people decided about each, where they did


def some_groups(keys: Keys, names: Sequence[str], now: float, *, traces: bool = False) -> Call[StoredGroups]:
    """What is known of groups (at least one) as of the Unix time ``now``; ``traces``: also where they were raised."""
    days = [dt.datetime.fromtimestamp(now - back * 86400, dt.UTC) for back in range(3)]

    def read(replies: list[Any]) -> StoredGroups:
        marks = {at: label for one in replies[2:5] for at, label in marks_in(one)}
        forgotten = int(replies[0][-1] or 0) if (replies[0][-1] or b"0").isdigit() else 0
        return StoredGroups(
            replies[0][:-1],
            replies[6] if traces else [None] * len(names),
            int(replies[1]),
            forgotten,
            marks,
            replies[5],
        )

    more = [("HMGET", keys.error_traces, *names)] if traces else []
    looks = [("HGETALL", keys.marks(day)) for day in days]
    facts = ("HMGET", keys.error_facts, *names, ""), ("ZCARD", keys.errors)
    return commands(*facts, *looks, ("HMGET", keys.error_handled, *names), *more, decode=read)


def handle_group(keys: Keys, name: str, decided: bytes) -> Procedure[None]:
    """Keep what somebody decided about a group, empty: nothing any more; and forget it of groups that have gone."""
    known: list[bytes] = yield command("HKEYS", keys.error_handled, decode=list)
    stored = (yield command("HMGET", keys.error_facts, *known, decode=list)) if known else []
    gone = [one for one, facts in zip(known, stored, strict=True) if facts is None]
    put: tuple[Arg, ...] = (
        ("HSET", keys.error_handled, name, decided) if decided else ("HDEL", keys.error_handled, name)
    )
    forget: list[tuple[Arg, ...]] = [("HDEL", keys.error_handled, *gone)] if gone else []
    yield commands(put, *forget, ("EXPIRE", keys.error_handled, LIFE), again=True)
