"""What an app offers for batches and results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar, overload

from henchman.batch.auditor import Audited
from henchman.batch.batch import Batch, BatchStatus
from henchman.client.job import Using

__all__ = ["Batches"]

R = TypeVar("R")
Callback = Using[..., Any] | str | None

class Batches:
    """The half of ``App`` for batches and results. Each method also exists awaited, with an ``a`` before its name."""

    def batch(
        self,
        description: str = "",
        *,
        on_success: Callback = None,
        on_complete: Callback = None,
        on_death: Callback = None,
        tags: Iterable[str] = (),
        expires: float | timedelta | None = None,
        open_for: float | timedelta = 86400.0,
        atomic: bool = False,
        parent: Batch | str | None = None,
        keep: float | timedelta = ...,
    ) -> Batch: ...
    def get_batch(self, batch: str) -> Batch: ...
    def batch_status(self, batch: str) -> BatchStatus: ...
    async def abatch_status(self, batch: str) -> BatchStatus: ...
    def batch_events(self, batch: str, status: str | Sequence[str] | None = None) -> Iterator[Any]: ...
    def abatch_events(self, batch: str, status: str | Sequence[str] | None = None) -> AsyncIterator[Any]: ...
    def audit(self) -> Audited: ...
    async def aaudit(self) -> Audited: ...
    @overload
    def result(
        self, jid: str, timeout: float | None = None, *, function: None = None, queue: str | None = None
    ) -> Any: ...
    @overload
    def result(
        self, jid: str, timeout: float | None = None, *, function: Callable[..., R], queue: str | None = None
    ) -> R: ...
    @overload
    async def aresult(
        self,
        jid: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the same word as above
        *,
        function: None = None,
        queue: str | None = None,
    ) -> Any: ...
    @overload
    async def aresult(
        self,
        jid: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the same word as above
        *,
        function: Callable[..., R],
        queue: str | None = None,
    ) -> R: ...
