"""The deploy check: what waits on the server, held against the code that is loaded here.

What it does not read: callbacks of batches, and payloads of ordered queues, which are no calls. Everything is read in
pages of at most 4 MB; jobs that move meanwhile may be met twice, or not at all where they are done before. What is in
flight is read behind the queues: a worker that stops puts it back."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from henchman.client.registry import Registry
from henchman.client.runtime import Runtime
from henchman.cron.definition import decoded
from henchman.deploy.fit import Fits, StoredJob
from henchman.errors import ConfigError, OutboxError
from henchman.inspector.blocked import blocked_rows
from henchman.inspector.processes import list_processes, living
from henchman.inspector.sets import pages_by_score
from henchman.kernel.clock import ServerClock
from henchman.store import batches, cron, fair, leases, ordered_people, queues
from henchman.store.call import Page, Pages, Procedure, command, iterate, next_page, run
from henchman.store.keys import Keys
from henchman.store.leases import ask_time
from henchman.store.queues import ListPage, Member, Stretch, raw

__all__ = ["Checked", "check"]

_PAGE = 500
_TOGETHER = 100  # processes whose lists are asked for at once
_ROW = re.compile(rb"(\d+) (\d+) (\d+) ")  # lengths of jid, queue and due; see lua/batch_release.lua


@dataclass
class Checked:
    """What a check found. ``fits``: the faults, and what was passed over; ``total``: jobs that there are, as far as
    they are counted; ``served``: who serves the queues that are not this app's; ``ordered``: ordered queues with work
    that no definition handles; ``took``: seconds; ``unread``: why the rows of the outbox could not be read."""

    fits: Fits
    total: int
    served: dict[str, list[str]]
    ordered: list[str]
    took: float = 0.0
    unread: str = ""

    @property
    def is_clean(self) -> bool:
        """Whether every job of this app that was looked at fits."""
        return not self.fits.findings

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs."""
        fits = self.fits
        elsewhere = [
            {
                "queue": name,
                "count": one.count,
                "classes": dict(one.classes.most_common()),
                "served_by": self.served.get(name, []),
            }
            for name, one in sorted(fits.elsewhere.items())
        ]
        return {
            "clean": self.is_clean,
            "findings": [one.to_json() for one in fits.findings],
            "looked": fits.looked,
            "total": max(self.total, fits.looked),
            "older": fits.older,
            "unreadable": fits.unreadable,
            "by_alias": [{"name": old, "runs_as": new, "count": n} for (old, new), n in fits.aliased.most_common()],
            "encrypted_without_key": dict(fits.sealed.most_common()),
            "queues_not_named": dict(fits.unnamed.most_common()),
            "elsewhere": elsewhere,
            "ordered_elsewhere": self.ordered,
            "outbox_unread": self.unread or None,
            "seconds": round(self.took, 3),
        }


def check(
    runtime: Runtime,
    *,
    serves: Sequence[str] = (),
    since: float = 0.0,
    sample: int | None = None,
    refused_only: bool = False,
    rows: Iterable[tuple[str, bytes]] = (),
) -> Checked:
    """Hold everything that waits against the registered jobs.

    ``serves``: the queues that this code's workers serve; without, those that its jobs name and those that processes
    with this deployment's tag serve now. ``since``: jobs pushed before (Unix seconds) are left out. ``sample``: look at
    so many jobs of each place at most, spread over it. ``refused_only``: without plain values of another type than
    annotated. ``rows``: queue and payload of what stands in the outbox, of which a sample takes the oldest."""
    started, connections, keys = time.monotonic(), runtime.connections, runtime.keys
    named = _named(runtime.registry)
    served = run(connections, _served(keys))
    tag = runtime.config.process_tag
    mine = {name for name, ones in served.items() if any(each == tag for _, each in ones)}
    fits = Fits(
        runtime.registry,
        ours=serves or named | mine,
        named=named.union(serves),
        since=since,
        keyless=not runtime.config.encryption_keys,
        refused_only=refused_only,
    )
    for pages in _places(runtime, sample):
        for one in iterate(connections, pages):
            fits.look(one)
    unread = _look_at_rows(fits, rows, sample)
    others = {name: [f"{who} (tag {what})" if what else who for who, what in served[name]] for name in served}
    handled = runtime.registry.ordered()
    ordered = [name for name in run(connections, _ordered(keys)) if name not in handled]
    total = run(connections, _total(keys))
    return Checked(fits, total, others, ordered, time.monotonic() - started, unread)


def _look_at_rows(fits: Fits, rows: Iterable[tuple[str, bytes]], sample: int | None) -> str:
    """Take what stands in the outbox into account; why that was not possible, if so."""
    try:
        for queue, stored in islice(rows, sample):
            fits.look(StoredJob("outbox", queue, stored))
    except (ConfigError, OutboxError) as error:
        return str(error)
    return ""


def _named(registry: Registry) -> set[str]:
    """The queues that definitions name, also those of retries."""
    retried = {one.options.retry_queue for one in registry} - {None}
    return {*registry.queues(), *(str(one) for one in retried)}


def _served(keys: Keys) -> Procedure[dict[str, list[tuple[str, str]]]]:
    """By queue: the living processes that serve it, each with its tag."""
    found: dict[str, list[tuple[str, str]]] = {}
    at: float = yield ask_time(ServerClock())
    for one in living((yield from list_processes(keys)), at):
        for queue in one.queues:
            found.setdefault(queue, []).append((one.identity, one.tag))
    return found


def _ordered(keys: Keys) -> Procedure[list[str]]:
    """The ordered queues that have work."""
    names: list[str] = yield ordered_people.names(keys)
    heads: dict[str, float] = (yield ordered_people.heads(keys, names)) if names else {}
    return [name for name in names if name in heads]


def _total(keys: Keys) -> Procedure[int]:
    names: list[str] = yield queues.names(keys)
    looks = (yield from queues.look(keys, names)) if names else []
    sizes = [one.size for one in looks if isinstance(one, queues.Look)]
    for name in (keys.schedule, keys.retry, keys.dead):
        sizes.append((yield queues.set_size(name)))
    sizes.append((yield command("HLEN", keys.parked, decode=int)))
    return sum(sizes)


# ---- the places where jobs wait, each read in pages


def _places(runtime: Runtime, sample: int | None) -> Iterator[Pages[StoredJob]]:
    keys = runtime.keys
    for name in runtime.connections.run(queues.names(keys)):
        yield _list(keys.queue(name), f"queue {name}", name, sample)
    for line, name in run(runtime.connections, fair.lines_everywhere(keys)).items():
        yield _list(keys.queue(line), f"queue {name}", name, sample)
    for key, place in ((keys.schedule, "scheduled"), (keys.retry, "retries"), (keys.dead, "dead")):
        yield _set(key, place, sample)
    yield _blocked(keys, sample)
    yield _crons(keys)
    yield _batches(keys, sample)
    yield _in_flight(keys, sample)


def _spread(size: int, sample: int | None) -> Iterator[tuple[int, int]]:
    """Stretches of a place, (first, behind the last): all of it, or pages at equal distances with ``sample``
    entries."""
    if sample is None or size <= sample:
        yield 0, size
        return
    pages = -(-sample // _PAGE)
    for at in range(pages):
        first = at * size // pages
        yield first, min(first + -(-sample // pages), size)


def _list(key: str, place: str, queue: str | None, sample: int | None) -> Pages[StoredJob]:
    """A queue from the newest on: what is pushed meanwhile moves jobs to where they are met once more, none out of
    sight."""
    if (yield command("TYPE", raw(key))) != b"list":
        return
    size: int = yield command("LLEN", raw(key), decode=int)
    for at, end in _spread(size, sample):
        first = at
        while first < end:
            page: ListPage = yield queues.list_page(key, first, min(end - first, _PAGE))
            yield Page(StoredJob(place, queue, one) for _, one in page.found)
            if not page.looked:
                return
            first += page.looked


def _set(key: str, place: str, sample: int | None) -> Pages[StoredJob]:
    def waiting(member: Member) -> StoredJob:
        return StoredJob(place, None, member.payload)

    size: int = yield queues.set_size(key)
    if sample is None or size <= sample:
        yield from pages_by_score(key, waiting)
        return
    for at, end in _spread(size, sample):
        first = at
        while first < end:
            found: Stretch = yield queues.set_stretch(key, first, min(end - first, _PAGE))
            yield Page(map(waiting, found.members))
            if not found.looked:
                return
            first += found.looked


def _blocked(keys: Keys, sample: int | None) -> Pages[StoredJob]:
    looked, pages = 0, blocked_rows(keys)
    while (rows := (yield from next_page(pages))) is not None and (sample is None or looked < sample):
        yield Page(StoredJob("blocked", one.queue, one.payload) for one in rows)
        looked += len(rows)


def _in_flight(keys: Keys, sample: int | None) -> Pages[StoredJob]:
    """What the processes that joined have fetched, and run or are about to."""
    joined: list[str] = yield leases.joined(keys)
    for at in range(0, len(joined), _TOGETHER):
        names: list[str] = yield leases.lists_of(keys, joined[at : at + _TOGETHER])
        lists = dict.fromkeys((one for one in names if not keys.is_held(one)), "list")
        sizes: list[int] = (yield leases.sizes(lists)) if lists else []
        for name, size in zip(lists, sizes, strict=True):
            if size:
                yield from _list(name, "in flight", keys.queue_of_flight(name), sample)


def _crons(keys: Keys) -> Pages[StoredJob]:
    """Those that were added live: workers of the new code declare their own anew."""
    stored: cron.Stored = yield cron.read(keys)
    found = []
    for name, text in stored.definitions.items():
        if name not in stored.declared:
            try:
                one = decoded(text)
            except msgspec.MsgspecError:
                continue
            found.append(StoredJob(f"cron {name}", one.queue, one.job.encode()))
    yield Page(found)


def _batches(keys: Keys, sample: int | None) -> Pages[StoredJob]:
    """Jobs of atomic batches that are not released, and the dead that batches keep."""
    first = 0
    while names := (yield batches.newest(keys, first, _PAGE)):
        for name in (yield batches.having(keys, names, "parked")):
            yield from _parked(keys.batch(name) + ":parked", f"batch {name}", sample)
        for name in (yield batches.having(keys, names, "dead")):
            yield from _set(keys.batch(name) + ":dead", f"dead of batch {name}", sample)
        first += len(names)


def _parked(key: str, place: str, sample: int | None) -> Pages[StoredJob]:
    """The rows of a batch that is not released, each with its queue and payload."""
    pages = _list(key, place, None, sample)
    while (rows := (yield from next_page(pages))) is not None:
        yield Page(map(_unpacked, rows))


def _unpacked(one: StoredJob) -> StoredJob:
    found = _ROW.match(one.payload)
    if found is None:
        return one
    jid, queue, due = map(int, found.groups())
    at = found.end() + jid
    name = one.payload[at : at + queue].decode("utf-8", "replace")
    return StoredJob(one.place, name, one.payload[at + queue + due :])
