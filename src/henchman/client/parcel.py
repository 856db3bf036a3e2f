"""Payloads on their way to the server, and into the buffer when it is away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from henchman.client.buffer import Buffer
from henchman.client.draft import Draft
from henchman.errors import ServerAway
from henchman.store import jobs
from henchman.wire.payload import decode

__all__ = ["Parcel", "keep"]


class Parcel(NamedTuple):
    """Payloads on their way, by queue. ``scheduled`` is decided once: what is due later has no ``enqueued_at``."""

    scheduled: bool
    by_queue: dict[str, list[bytes]]

    @property
    def size(self) -> int:
        """How many jobs."""
        return sum(map(len, self.by_queue.values()))

    def jobs(self) -> Iterator[dict[str, Any]]:
        """Each payload, decoded."""
        return (decode(payload) for payloads in self.by_queue.values() for payload in payloads)


def keep(buffer: Buffer, plan: Draft, parcel: Parcel, done: int, error: ServerAway | None) -> int:
    """Buffer all of ``parcel`` but its first ``done`` queues; how many jobs that are. Raises ``error`` without room."""
    entries = [
        jobs.Delivery(None if parcel.scheduled else queue, plan.at, plan.delay, payload)
        for queue, payloads in list(parcel.by_queue.items())[done:]
        for payload in payloads
    ]
    buffer.keep(entries, error)
    return len(entries)
