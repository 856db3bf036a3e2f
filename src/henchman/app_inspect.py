"""What lies in the server and what works, for people and scripts: thin properties of ``App``, opened through its door.

The types stand beside this file in ``app_inspect.pyi``: what they name is loaded when somebody looks, not before.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Inspects"]


class Inspects:
    """The inspection half of ``App``. The properties do no I/O; what they give has methods, each also awaited."""

    def _inspection(self: Any) -> Any:
        return self.open_door("inspection")(self)

    @property
    def queues(self) -> Any:
        """All queues: ``app.queues["mail"].size()``, ``for queue in app.queues``."""
        return self._inspection().queues

    @property
    def ordered_queues(self) -> Any:
        """All ordered queues: ``app.ordered_queues["products"].stats()``, ``for queue in app.ordered_queues``."""
        return self._inspection().ordered_queues

    @property
    def scheduled(self) -> Any:
        """The jobs that are to start later."""
        return self._inspection().job_set("scheduled")

    @property
    def retries(self) -> Any:
        """The jobs that failed and are tried again."""
        return self._inspection().job_set("retries")

    @property
    def dead(self) -> Any:
        """The jobs that have used up their retries, the latest first."""
        return self._inspection().job_set("dead")

    @property
    def processes(self) -> Any:
        """The worker processes, Ruby's too."""
        return self._inspection().processes

    @property
    def work(self) -> Any:
        """The running jobs, the longest running first."""
        return self._inspection().work

    def stats(self) -> Any:
        """The counts as they are now: processed, failed, enqueued, scheduled, retries, dead, busy…"""
        return self._inspection().stats()

    async def astats(self) -> Any:
        """``stats``, awaited."""
        return await self._inspection().astats()

    def job_status(self, jid: str, *, queue: str | None = None) -> Any:
        """Where a job is now, and what is known of it. ``queue``: where to look first."""
        return self._inspection().job_status(jid, queue)

    async def ajob_status(self, jid: str, *, queue: str | None = None) -> Any:
        """``job_status``, awaited."""
        return await self._inspection().ajob_status(jid, queue)
