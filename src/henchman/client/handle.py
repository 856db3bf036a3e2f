"""What a push gives back: the id of the job, how it was received, and a way to ask after it."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import ResultError

__all__ = ["Admission", "Handle", "Pushed"]

R = TypeVar("R", covariant=True)

Admission = Literal["created", "duplicate", "blocked", "deferred", "buffered", "stopped"]


class Handle(Generic[R]):
    """One pushed job. ``admission``: "created"; "stopped" when a client middleware stopped the push; "blocked" when it
    waits until its atomic batch ends well; "buffered" when the server is away and the job is kept in the memory of this
    process: that is not accepted, it dies with it.
    """

    __slots__ = ("_function", "_keeps", "_runtime", "admission", "duplicate_of", "jid", "queue")

    def __init__(
        self, jid: str, queue: str, admission: Admission, runtime: Runtime, keeps: bool = False, function: Any = None
    ) -> None:
        self.jid = jid
        self.queue = queue
        self.admission: Admission = admission
        self.duplicate_of: str | None = None
        self._runtime = runtime
        self._keeps = keeps
        self._function = function

    def __repr__(self) -> str:
        return f"Handle({self.jid} in {self.queue!r}, {self.admission})"

    def status(self) -> Any:
        """Where the job is now, as ``app.job_status`` tells; it looks through its queue and the sets, page by page."""
        return self._runtime.job_status(self.jid, queue=self.queue)

    async def astatus(self) -> Any:
        """``status``, awaited."""
        return await self._runtime.ajob_status(self.jid, queue=self.queue)

    def cancel(self) -> None:
        """A waiting job never starts; a running one sees ``cancelled`` (an async job is cancelled)."""
        self._runtime.cancel(self.jid)

    async def acancel(self) -> None:
        """``cancel``, awaited."""
        await self._runtime.acancel(self.jid)

    def result(self, timeout: float | None = None) -> R:
        """What the job returned, as its return annotation says; waits until it has ended, at most ``timeout`` seconds.

        Woken by the server, nothing is polled. Raises JobFailed when the job ended otherwise, TimeoutError, and
        ResultError at once when the job keeps no result (``result_ttl=``).
        """
        self._check()
        value: R = self._runtime.result(self.jid, timeout, function=self._function, queue=self.queue)
        return value

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the same word as above
        """``result``, awaited."""
        self._check()
        value: R = await self._runtime.aresult(self.jid, timeout, function=self._function, queue=self.queue)
        return value

    def _check(self) -> None:
        if not self._keeps:
            raise ResultError(
                f"job {self.jid} keeps no result: say how long it is to be kept, as in @app.job(result_ttl=3600) or "
                "using(result_ttl=3600)"
                if self.admission != "stopped"
                else f"job {self.jid} was stopped by a client middleware: it never runs"
            )


class Pushed(msgspec.Struct, frozen=True):
    """What became of a bulk push: ``count`` rows read = created + duplicates + stopped + buffered."""

    count: int
    created: int
    duplicates: int
    stopped: int
    buffered: int = 0
