"""One queue for a page: its figures, some of its payloads, who serves it, and what waits in it."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final, NamedTuple

from henchman.errors import ServerAway, ServerError
from henchman.inspector.base import Entry, Mask
from henchman.inspector.flow import Flow, flow_of
from henchman.inspector.processes import ProcessState, list_processes, living
from henchman.inspector.queues import QueueState, state_of
from henchman.inspector.tenants import TenantList, tenants_of
from henchman.kernel.text import did_you_mean
from henchman.store import fair, queues
from henchman.store.call import Procedure, ask, side_by_side
from henchman.store.keys import Keys

__all__ = ["Composition", "QueueLook", "look_at_queue"]

_SAMPLE: Final = 100  # payloads of each end that tell what waits in a queue
_COMPARED: Final = 500  # names among which a similar one is sought
_TENANTS: Final = 50  # lines of a fair queue that are shown


class Composition(NamedTuple):
    """What waits in a queue, out of a sample of both ends: how many of the ``looked`` jobs are of each class, the most
    first; ``whole``: these are all that there are; ``oldest``: of those that were looked at the one pushed first."""

    classes: list[tuple[str, int]]
    looked: int
    whole: bool
    oldest: Entry | None


class QueueLook(NamedTuple):
    """A queue, some of its payloads, the next to run first, the living processes that serve it, what waits, and who, if
    it is a fair one. ``line_of``: the fair queue of which it is a line. ``unknown``: nothing is known of the name, and
    which one it may be; empty of a queue that is there."""

    state: QueueState
    flow: Flow
    entries: list[Entry]
    processes: list[ProcessState]
    made_of: Composition
    tenants: TenantList
    line_of: str = ""
    unknown: str = ""


def look_at_queue(keys: Keys, name: str, first: int, most: int, mask: Mask | None = None) -> Procedure[QueueLook]:
    """One queue whether it exists or not, with at most ``most`` payloads from place ``first`` (0: the next to run) on;
    fewer of large ones. Two round trips."""
    key, at = keys.queue(name), time.time()
    (
        [look],
        paused,
        objectives,
        page,
        processes,
        head,
        tail,
        tenants,
        known,
        shared,
        past,
        left,
    ) = yield from side_by_side(
        queues.look(keys, [name]),
        ask(queues.pauses(keys)),
        ask(queues.objectives(keys)),
        _next_first(key, first, most),
        list_processes(keys),
        _end(key, -1, _SAMPLE, leftwards=True),
        _end(key, 0, _SAMPLE),
        tenants_of(keys, name, _TENANTS),
        ask(queues.names(keys)),
        ask(fair.names(keys)),
        ask(queues.levels(keys)),
        ask(queues.ran(keys)),
    )
    parts = fair.parts_of(name)
    names = {name, parts[0] if parts else name}  # a line is served by who serves its queue
    serving = [one for one in living(processes, at) if names.intersection(one.queues)]
    made_of = _made_of(head, tail, mask)
    state, entries = state_of(name, look, at, paused, objectives), [Entry(one, mask=mask) for one in page]
    line_of = parts[0] if parts and parts[0] in shared else ""
    there = state.size or state.problem or state.paused or state.fair or serving or line_of or name in known
    unknown = "" if there else f"No queue of this name is known{did_you_mean(name, list(known)[:_COMPARED])}"
    return QueueLook(state, flow_of(past, left, state, at), entries, serving, made_of, tenants, line_of, unknown)


def _next_first(key: str, first: int, most: int) -> Procedure[list[bytes]]:
    return (yield from _end(key, -1 - first, most, leftwards=True)).payloads


def _end(key: str, first: int, most: int, *, leftwards: bool = False) -> Procedure[queues.ListPage]:
    try:
        page: queues.ListPage = yield queues.list_page(key, first, most, leftwards=leftwards)
    except ServerAway:
        raise
    except ServerError:  # it is no list, as its state says
        return queues.ListPage(0, 0, [])
    return page


def _made_of(next_ones: queues.ListPage, newest: queues.ListPage, mask: Mask | None) -> Composition:
    """The classes of a sample; where the ends overlap each job counts once."""
    size = max(next_ones.size, newest.size)
    places = {place: payload for page in (newest, next_ones) for place, payload in page.found}
    entries = [Entry(payload, mask=mask) for payload in places.values()]
    classes = Counter(one.name for one in entries)
    dated = [(at, one) for one in entries if (at := one.time("enqueued_at")) is not None]
    oldest = min(dated, key=lambda pair: pair[0])[1] if dated else None
    return Composition(classes.most_common(), len(entries), len(entries) >= size, oldest)
