"""What may be wrong beside queues and processes: memory, clock, history, batches that stand still, ordered ids that are
stuck, jobs that wait for what is dead, poison pills. One look that costs no round trip of its own beside the overview.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple

from henchman.batch.batch import BatchStatus
from henchman.batch.listing import newest_batches, paused_batches
from henchman.cron.registry import MissedTick, missed_ticks
from henchman.inspector.base import Entry, Mask, server_facts
from henchman.inspector.blocked import BlockedJob, blocked_jobs
from henchman.inspector.errors import Errors, errors
from henchman.inspector.metrics import Deploy, Overview, UsualTime, deploy_marks, overview, usual_times
from henchman.inspector.ordered_id import OrderedId, id_of
from henchman.oncall.mutes import Mute, mutes
from henchman.store import history, needs, ordered_people
from henchman.store.call import Procedure, ask, command, side_by_side
from henchman.store.keys import Keys
from henchman.store.pauses import kinds
from henchman.store.queues import Level, Pause, Stretch, levels, ran, set_below, set_stretch

__all__ = ["LONG", "MISSED", "FindingsLook", "StuckId", "Vitals", "look"]

_NEWEST = 25  # dead jobs that are looked at
_BATCHES = 50  # the newest
_BLOCKED = 50  # blocked jobs
_IDS = 20  # of each ordered queue: in flight, and those that failed most
_QUEUES = 50  # ordered queues
MISSED = 60.0  # seconds after its time at which a tick of a cron counts as missed
LONG = 900.0  # seconds after which a running job is worth a look
_SOON = 60.0  # seconds within which retries that fall due are counted
_DEPLOYS = 7 * 86_400.0  # seconds for which a mark of a deploy is compared with the starts of workers


class StuckId(NamedTuple):
    """An id of an ordered queue that is in flight, or has failed."""

    queue: str
    one: OrderedId


class Vitals(NamedTuple):
    """What one look found. ``memory``: bytes used, and the most there may be (0: no limit); None where that may not be
    asked. ``stepped``: seconds by which the server's clock went, and how long ago. ``batches``: the newest. ``levels``:
    how long queues were, the latest first; ``ran``: how many jobs have left each. ``due``: retries that fall due within
    a minute. ``deploys``: of a week.
    ``mutes``: what somebody muted, by the id of the finding. ``replica_of``: the address of the server that it copies,
    and how that stands; empty: it takes writes. ``policy``: what it does when it is full; empty:
    not known. ``usual``: how long runs of the classes take of which one runs for long. ``kinds``: classes and tags that
    are paused.
    """

    memory: tuple[int, int] | None
    stepped: tuple[float, float] | None
    history: history.Backlog
    dead: Sequence[Entry]
    batches: Sequence[BatchStatus]
    blocked: Sequence[BlockedJob]
    ids: Sequence[StuckId]
    levels: Sequence[Level] = ()
    due: int = 0
    missed: Sequence[MissedTick] = ()
    deploys: Sequence[Deploy] = ()
    mutes: Mapping[str, Mute] = {}
    replica_of: str = ""
    ran: Mapping[str, int] = {}
    policy: str = ""
    usual: Mapping[str, UsualTime] = {}
    kinds: Mapping[str, Pause] = {}


class FindingsLook(NamedTuple):
    """All that findings are made of, at one moment."""

    seen: Overview
    failing: Errors
    ground: Vitals


def look(keys: Keys, mask: Mask | None = None) -> Procedure[FindingsLook]:
    """Everything as it is now, read side by side; one round trip more where a job has been running for long."""
    seen, failing, ground = yield from side_by_side(overview(keys, mask), errors(keys), vitals(keys, mask))
    first = takewhile(lambda one: one.run_at is not None and seen.at - one.run_at > LONG, seen.work)
    long = (one.entry.name for one in first)  # the longest running stand first: of ten thousand few are looked at
    return FindingsLook(seen, failing, ground._replace(usual=(yield from usual_times(keys, long))))


def vitals(keys: Keys, mask: Mask | None = None) -> Procedure[Vitals]:
    """Three round trips at most; each part looks at so many of its kind."""
    at = time.time()
    found = yield from side_by_side(
        _memory(),
        _stepped(keys),
        ask(history.backlog(keys)),
        _dead(keys, mask),
        _batches(keys),
        _blocked(keys, mask),
        _ids(keys),
        ask(levels(keys)),
        ask(set_below(keys.retry, at + _SOON)),
        missed_ticks(keys, MISSED),
        deploy_marks(keys, at - _DEPLOYS, at),
        mutes(keys),
        _replica_of(),
        ask(ran(keys)),
        ask(kinds(keys)),
    )
    (memory, policy), *others, held = found
    return Vitals(memory, *others)._replace(policy=policy, kinds=held)


def _memory() -> Procedure[tuple[tuple[int, int] | None, str]]:
    """Bytes that are used and the most there may be, and the policy."""
    told: Mapping[str, str] = yield from server_facts("memory")
    used = (int(told.get("used_memory", 0)), int(told.get("maxmemory", 0))) if told else None
    return used, told.get("maxmemory_policy", "")


def _replica_of() -> Procedure[str]:
    told: Mapping[str, str] = yield from server_facts("replication")
    if told.get("role") != "slave":
        return ""
    step = "in step with it" if told.get("master_link_status") == "up" else "cut off from it"
    return f"{told.get('master_host', '?')}:{told.get('master_port', '?')}, {step}"


def _stepped(keys: Keys) -> Procedure[tuple[float, float] | None]:
    (by, at), now = yield from side_by_side(ask(command("HMGET", keys.clock, "by", "at")), ask(ordered_people.now()))
    try:
        return (float(by), now - float(at)) if by and at and float(by) else None
    except ValueError:  # somebody wrote something else there
        return None


def _dead(keys: Keys, mask: Mask | None) -> Procedure[list[Entry]]:
    found: Stretch = yield set_stretch(keys.dead, 0, _NEWEST, newest_first=True)
    return [Entry(one.payload, one.score, mask) for one in found.members]


def _batches(keys: Keys) -> Procedure[list[BatchStatus]]:
    """The newest, and some that are paused."""
    newest, paused = yield from side_by_side(newest_batches(keys, 0, _BATCHES), paused_batches(keys, _BATCHES))
    return [*{one.status.id: one.status for one in (*newest.rows, *paused)}.values()]


def _blocked(keys: Keys, mask: Mask | None) -> Procedure[list[BlockedJob]]:
    _, rows = yield needs.blocked_page(keys, 0, _BLOCKED)
    return (yield from blocked_jobs(keys, rows, mask)) if rows else []


def _ids(keys: Keys) -> Procedure[list[StuckId]]:
    names: list[str] = yield ordered_people.names(keys)
    return [
        one for some in (yield from side_by_side(*(_ids_of(keys, name) for name in names[:_QUEUES]))) for one in some
    ]


def _ids_of(keys: Keys, name: str) -> Procedure[list[StuckId]]:
    (_, busy), failed = yield from side_by_side(
        ask(ordered_people.scan(keys, name, "busy", 0)),
        ask(set_stretch(keys.ordered(name) + "retry", 0, _IDS, newest_first=True)),
    )
    ids = list(dict.fromkeys([*busy[:_IDS], *(one.payload for one in failed.members)]))
    at, seen = (yield ordered_people.look(keys, name, ids, 1)) if ids else (0.0, [])
    return [StuckId(name, id_of(at, one)) for one in seen]
