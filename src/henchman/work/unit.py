"""A fetched payload with its lease: what a worker process holds, and where the server knows that it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["InFlightList", "Unit"]


class InFlightList(NamedTuple):
    """One in-flight list: the queue it was filled from (its name and its key) and the list's own key."""

    queue: str
    queue_key: str
    key: str
    identity: str
    epoch: int


class Unit:
    """A payload that this process fetched and has not settled. ``payload`` is kept byte for byte: it is the fence."""

    __slots__ = ("cancelled", "claim", "elapsed", "fetched_at", "flight", "job", "payload", "source", "suspect")

    def __init__(
        self, payload: bytes, flight: InFlightList, fetched_at: float, source: Any = None, claim: Any = None
    ) -> None:
        self.payload = payload
        self.flight = flight
        self.fetched_at = fetched_at
        self.job: Mapping[str, Any] = {}
        self.source = source  # a work.source.Source, where the queue is not a plain list; None for all others
        self.claim = claim  # the source's own: what it gave
        self.suspect = False  # processes died with it: it runs with nothing beside it
        self.cancelled = False  # somebody cancelled its job while it was here
        self.elapsed: float | None = None  # seconds that it ran; None when it did not start, or was counted already

    def __repr__(self) -> str:
        return f"Unit({self.job.get('jid')!r} from {self.flight.queue!r})"
