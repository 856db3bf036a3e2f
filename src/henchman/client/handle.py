"""What a push gives back: the id of the job, how it was received, and a way to ask after it."""

from __future__ import annotations

from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

__all__ = ["Admission", "Desk", "Handle", "Pushed"]

R = TypeVar("R", covariant=True)

Admission = Literal["created", "duplicate", "blocked", "deferred", "buffered", "stopped"]


class Desk(Protocol):
    """Who answers for a handle: the app."""

    def job_status(self, jid: str, *, queue: str | None = None) -> Any: ...
    async def ajob_status(self, jid: str, *, queue: str | None = None) -> Any: ...
    def cancel(self, jid: str) -> None: ...
    async def acancel(self, jid: str) -> None: ...


class Handle(Generic[R]):
    """One pushed job. ``admission``: "created"; "stopped" when a client middleware stopped the push; "buffered" when
    the server is away and the job is kept in the memory of this process: that is not accepted, it dies with it.
    """

    __slots__ = ("_desk", "admission", "duplicate_of", "jid", "queue")

    def __init__(self, jid: str, queue: str, admission: Admission, desk: Desk) -> None:
        self.jid = jid
        self.queue = queue
        self.admission: Admission = admission
        self.duplicate_of: str | None = None
        self._desk = desk

    def __repr__(self) -> str:
        return f"Handle({self.jid} in {self.queue!r}, {self.admission})"

    def status(self) -> Any:
        """Where the job is now, as ``app.job_status`` tells; it looks through its queue and the sets, page by page."""
        return self._desk.job_status(self.jid, queue=self.queue)

    async def astatus(self) -> Any:
        """``status``, awaited."""
        return await self._desk.ajob_status(self.jid, queue=self.queue)

    def cancel(self) -> None:
        """If it waits, it never starts; if it runs, it is told (an async job is cancelled)."""
        self._desk.cancel(self.jid)

    async def acancel(self) -> None:
        """``cancel``, awaited."""
        await self._desk.acancel(self.jid)


class Pushed(msgspec.Struct, frozen=True):
    """What became of a bulk push: ``count`` rows read = created + duplicates + stopped + buffered."""

    count: int
    created: int
    duplicates: int
    stopped: int
    buffered: int = 0
