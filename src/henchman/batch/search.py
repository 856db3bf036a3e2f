"""Where the jobs of one batch really are: looked for in everything that may hold them, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from henchman.client.runtime import Runtime
from henchman.errors import PayloadError
from henchman.store import batches, queues
from henchman.wire.payload import decode

__all__ = ["MOST", "Whereabouts", "members", "whereabouts"]

MOST = 20_000  # members that one look is about
PAGE = 1000


class Whereabouts:
    """What one look found of the members asked about. ``dead``: jid → why it died; ``missing``: nowhere."""

    def __init__(self, wanted: dict[str, str]) -> None:
        self.missing = wanted
        self.dead: dict[str, str] = {}

    def see(self, payload: bytes, *, dead: bool = False) -> None:
        """A payload of the batch was found."""
        try:
            job = decode(payload)
        except PayloadError:
            return
        jid = job.get("jid")
        if jid in self.missing:
            del self.missing[jid]
            if dead:
                self.dead[jid] = str(job.get("error_message") or "no reason was told")


def members(desk: Runtime, batch: str, cursor: int) -> tuple[int, dict[str, str]]:
    """About ``MOST`` members that are not settled, and their status; the cursor of the next ones, 0 at the end."""
    found: dict[str, str] = {}
    while True:
        cursor, some = desk.connections.run(batches.live(desk.keys, batch, cursor, PAGE))
        found |= some
        if not cursor or len(found) >= MOST:
            return cursor, found


def whereabouts(desk: Runtime, batch: str, wanted: dict[str, str]) -> Whereabouts:
    """Look for ``wanted``. In the order in which jobs wander, so that one that moves meanwhile is met further on."""
    seen = Whereabouts({name: status for name, status in wanted.items() if status != "child"})
    children = [name for name, status in wanted.items() if status == "child"]
    if children:
        names = [name.removeprefix("batch:") for name in children]
        _, glances = desk.connections.run(batches.glance(desk.keys, names))
        gone = [name for name, glance in zip(children, glances, strict=True) if glance is None]
        seen.missing |= dict.fromkeys(gone, "child")
    for place in (_in_queues, _in_sets, _in_flight, _in_sets, _in_queues):
        for payload in place(desk, batch):
            seen.see(payload)
        if not seen.missing:
            return seen
    for key in (desk.keys.dead, desk.keys.batch(batch) + ":dead"):
        for payload in _in_set(desk, key, batch):
            seen.see(payload, dead=True)
    return seen


def _in_queues(desk: Runtime, batch: str) -> Iterator[bytes]:
    for name in desk.connections.run(queues.names(desk.keys)):
        yield from _in_list(desk, desk.keys.queue(name), batch)


def _in_flight(desk: Runtime, batch: str) -> Iterator[bytes]:
    keys, run = desk.keys, desk.connections.run
    holders = run(batches.holders(keys))
    for key in run(batches.in_flight_lists(keys, holders)):
        if not keys.is_held(key):
            yield from _in_list(desk, key, batch)


def _in_sets(desk: Runtime, batch: str) -> Iterator[bytes]:
    for key in (desk.keys.schedule, desk.keys.retry):
        yield from _in_set(desk, key, batch)


def _in_list(desk: Runtime, key: str, batch: str) -> Iterator[bytes]:
    first = 0
    while True:
        found: batches.Found = desk.connections.run(batches.find(key, batch, first, PAGE))
        yield from found.payloads
        first += found.looked
        if not found.looked:
            return


def _in_set(desk: Runtime, key: str, batch: str) -> Iterator[bytes]:
    cursor = -1
    while cursor:
        found: Any = desk.connections.run(queues.set_scan(key, max(cursor, 0), batch))
        cursor = found.cursor
        yield from (member.payload for member in found.members)
