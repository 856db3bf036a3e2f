"""Attacks between workers and server: a slow network, a user who may do little, payloads that no client should push."""

from __future__ import annotations

from typing import Any

from field import Field
from groups import Group
from ledger import wall
from redis import Redis
from redis.exceptions import NoPermissionError
from server import PASSWORD, WORKER

__all__ = ["act_with_least", "delay_network"]

DELAY = 0.1  # seconds
LASTS = 12.0
Told = tuple[int, str]


def delay_network(field: Field, group: Group) -> Told:
    """Every answer to a group takes 100 ms more."""
    pids, before, at = set(group.workers), group.route.delayed, wall()
    group.route.delay = DELAY
    try:
        field.sleep(LASTS)
    finally:
        group.route.delay = 0.0
    pids.update(group.workers)
    if pids:
        field.window("delayed", at, wall() + DELAY, pids)
    count = group.route.delayed - before
    return count, f"group {group.number}, {count} answers"


def act_with_least(field: Field) -> Told:
    """The group that may do no more than a worker needs is at work, and is refused the rest."""
    group = next(group for group in field.groups if group.least)
    field.working(group)
    rows: Any = field.redis.client_list()
    mine = [row for row in rows if row.get("user") == WORKER]
    try:
        Redis(port=field.server.port, username=WORKER, password=PASSWORD).info()
    except NoPermissionError:
        return len(mine), f"group {group.number}, {len(mine)} connections"
    return 0, "the user may read INFO"
