"""What an app offers for batches and results. Nothing behind it is loaded until an app uses it.

The types stand in the stub beside it.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Batches"]


class Batches:
    """The half of ``App`` for batches and results. Each method also exists awaited, with an ``a`` before its name."""

    def batch(
        self: Any,
        description: str = "",
        *,
        on_success: Any = None,
        on_complete: Any = None,
        on_death: Any = None,
        tags: Any = (),
        expires: Any = None,
        open_for: Any = 86400.0,
        atomic: bool = False,
        parent: Any = None,
        keep: Any = 7 * 86400.0,
    ) -> Any:
        """A batch of jobs: ``with app.batch("Import", on_complete=notify) as b:``, or ``open()`` and ``close()`` it.

        Jobs that this thread or task enqueues within the block belong to it (tasks too, threads not: they use
        ``b.add(job, rows)`` or ``job.using(batch=b)``). Callbacks are jobs or names of jobs, called with the id of the
        batch: ``on_complete`` when every job is settled for good, ``on_success`` when all finished, ``on_death`` at the
        first error; each is enqueued exactly once a generation. ``expires``: seconds after which no job of it starts.
        ``open_for``: seconds after which a batch is closed whose producer is gone. ``atomic``: nothing starts before
        the block has ended well. ``parent``: the batch that it is part of; the block that it is made in, when nothing
        is said. ``keep``: seconds that the server keeps a complete one. Nothing is sent before it is opened.
        DefinitionError says what is wrong.
        """
        return self.open_door("batch")(
            self,
            description,
            on_success=on_success,
            on_complete=on_complete,
            on_death=on_death,
            tags=tags,
            expires=expires,
            open_for=open_for,
            atomic=atomic,
            parent=parent,
            keep=keep,
        )

    def get_batch(self: Any, batch: str) -> Any:
        """The batch of this id, wherever it was made. No I/O; what is done with it raises UnknownBatch."""
        return self.open_door("found_batch")(self, batch)

    def batch_status(self: Any, batch: str) -> Any:
        """How the batch of this id stands, in one look whatever its size; UnknownBatch when there is none."""
        return self.get_batch(batch).status()

    async def abatch_status(self: Any, batch: str) -> Any:
        """``batch_status``, awaited."""
        return await self.get_batch(batch).astatus()

    def batch_events(self: Any, batch: str, status: Any = None) -> Any:
        """What became of each job of a batch, in the order in which they were enqueued, from history; one page after
        the other is read. ``status``: only those, "failed" or ["failed", "error"].

        HistoryError says why there is no history, and how to turn it on.
        """
        return self.get_batch(batch).events(status)

    def abatch_events(self: Any, batch: str, status: Any = None) -> Any:
        """``batch_events``, for ``async for``."""
        return self.get_batch(batch).aevents(status)

    def audit(self: Any) -> Any:
        """One round of the auditor, as a worker makes it each minute; what it did.

        It closes batches that were left open, and settles jobs that left our hands; of a batch it must have seen that
        nothing moves for ten minutes, so a single call of a short program does little.
        """
        return self.open_door("auditor_of")(self).audit()

    async def aaudit(self: Any) -> Any:
        """``audit``, awaited."""
        return await self.open_door("in_thread")(self.audit)

    def result(
        self: Any, jid: str, timeout: float | None = None, *, function: Any = None, queue: str | None = None
    ) -> Any:
        """What the job ``jid`` returned, plain JSON, or as ``function`` is annotated; waits until it has ended.

        Raises JobFailed when it ended otherwise; TimeoutError after ``timeout`` seconds, also for a job that keeps no
        result (``result_ttl=``). ``queue``: where it was pushed to, to say more when it does not end.
        """
        return self.open_door("await_result")(self, jid, timeout, function, queue)

    async def aresult(
        self: Any,
        jid: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the same word as above
        *,
        function: Any = None,
        queue: str | None = None,
    ) -> Any:
        """``result``, awaited."""
        return await self.open_door("aawait_result")(self, jid, timeout, function, queue)
