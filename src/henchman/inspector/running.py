"""The running jobs, for people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from henchman.inspector.entry import Mask
from henchman.inspector.processes import Work, look_at_work
from henchman.store.call import AsyncRunner, Runner
from henchman.store.keys import Keys
from henchman.store.procedure import BothWays, Page, Pages, Procedure, first

__all__ = ["Running"]


class Running(BothWays):
    """The running jobs as of the last heartbeats, the longest running first: ``for`` and ``async for``."""

    def __init__(
        self, runner: Runner, keys: Keys, mask: Mask | None = None, arunner: AsyncRunner | None = None
    ) -> None:
        super().__init__(runner, arunner)
        self._keys = keys
        self._mask = mask

    def __iter__(self) -> Iterator[Work]:
        """Every running job. All slots of all processes are read: in order, nothing less will do."""
        return iter(self._items(self._walk))

    def __aiter__(self) -> AsyncIterator[Work]:
        """The same for ``async for``."""
        return aiter(self._items(self._walk))

    def size(self) -> int:
        """How many run."""
        return len(self._run(look_at_work(self._keys)))

    async def asize(self) -> int:
        """``size``, awaited."""
        return len(await self._arun(look_at_work(self._keys)))

    def find(self, jid: str) -> Work | None:
        """The run of a job; None when it does not run (or no heartbeat has told it yet)."""
        return self._run(self._find(jid))

    async def afind(self, jid: str) -> Work | None:
        """``find``, awaited."""
        return await self._arun(self._find(jid))

    def _find(self, jid: str) -> Procedure[Work | None]:
        return (yield from first(self._walk(), lambda one: one.entry.jid == jid)) if jid else None

    def _walk(self) -> Pages[Work]:
        yield Page((yield from look_at_work(self._keys, self._mask)))
