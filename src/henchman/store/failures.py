"""Errors by group, as calls: the groups that were met last, each with its counts, and where it was raised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from henchman.store.call import Call, commands, load, script
from henchman.store.keys import Keys

__all__ = ["MOST_GROUPS", "group_errors", "groups", "some_groups"]

MOST_GROUPS: Final = 500
LIFE: Final = 14 * 86400  # seconds after the last failure
_GROUP_ERRORS = load("group_errors")


def group_errors(keys: Keys, found: Sequence[Mapping[str, Any]], now: float) -> Call[int]:
    """Add failures to their groups, at least one; how many old groups were forgotten to make room.

    ``found``: id, error, message, place, trace, count, first, last, jid, and counts by ``hours`` (Unix time // 3600),
    ``jobs`` and ``queues``.
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


def some_groups(
    keys: Keys, names: Sequence[str], *, traces: bool = False
) -> Call[tuple[list[Any], list[Any], int, int]]:
    """The facts of groups (at least one), as they are stored; their traces, if wanted; how many groups there are, and
    how many were forgotten for want of room."""

    def read(replies: list[Any]) -> tuple[list[Any], list[Any], int, int]:
        facts = replies[0][:-1]
        stored = replies[2] if traces else [None] * len(names)
        return facts, stored, int(replies[1]), int(replies[0][-1] or 0)

    more = [("HMGET", keys.error_traces, *names)] if traces else []
    return commands(("HMGET", keys.error_facts, *names, ""), ("ZCARD", keys.errors), *more, decode=read)
