"""How a producer fills batches: blocks that end well, are aborted or cancelled, hold others, or get more jobs later.

Written down are: ``bopening ID STYLE PARENT``, ``bjob ID KEY`` before each push into it, ``baborting``, and
``bcancelling`` and ``bcancelled`` around a cancellation. Whether it was opened and closed, the server knows.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import jobs
import policies
from ledger import Ledger
from pushes import at_once

from henchman.errors import BatchError, ServerError

__all__ = ["ROWS", "BatchPushes", "Source"]

ROWS = (50, 200)  # jobs in a block
OPEN_FOR = 5.0  # seconds, after the 30 s for which its producer may be silent
STYLES = (
    "block",
    "adding",
    "later",
    "nested",
    "cancelled",
    "aborted",
    "atomic",
    "atomicaborted",
    "mended",
)


class Source(Protocol):
    """The producer, as far as batches are concerned: what pushes some more plain jobs, and whether it is to end."""

    stopped: bool
    batch: Any
    batch_name: str

    async def some(self, many: int) -> None: ...
    async def bulk(self, many: int) -> None: ...
    async def single(self, kind: str, many: int) -> None: ...


class _Abort(Exception):
    """The block ends badly, as its style says."""


def _callbacks() -> dict[str, Any]:
    return {f"on_{which}": getattr(jobs, f"called_{which}") for which in ("complete", "success", "death")}


class BatchPushes:
    """One producer's batches. With ``awaits`` they are used in their awaited form."""

    def __init__(self, source: Source, name: str, seed: int, ledger: Ledger, *, awaits: bool) -> None:
        self._source, self._ledger, self._awaits = source, ledger, awaits
        self._chance = random.Random(f"{seed}{name} batches")  # noqa: S311 - to be repeated, not to be secret
        self._open: list[tuple[float, Any]] = []
        self._deck: list[str] = []
        self._mending: list[Any] = []
        self._look_at = 0.0
        self._name, self._number = name, 0

    async def block(self) -> int:
        """Make a workflow, and one batch and fill it; how many jobs that were to be."""
        many = self._chance.randint(*ROWS)
        steps = await self._flow()
        if not self._deck:  # each style in turn, so that a short run has them all
            self._deck = self._chance.sample(STYLES, len(STYLES))
        style = self._deck.pop()
        batch = self._made(style)
        if style == "later":
            await self._later(batch, many)
        else:
            await self._within(batch, lambda: self._body(batch, style, many))
            if style == "cancelled":
                await self._cancel(batch)
            elif style == "mended":
                self._mending.append(batch)
        return many + steps

    async def _flow(self) -> int:
        """Make a workflow; how many steps it has."""
        flow = jobs.app.workflow(f"flow of {os.getpid()}", open_for=OPEN_FOR, **_callbacks())
        self._ledger.write("bopening", flow.id, "atomicflow", "-")
        keys: list[str] = []
        try:
            if self._awaits:
                async with flow:
                    keys = self._steps(flow)
            else:
                with flow:
                    keys = self._steps(flow)
            verdict = "accepted"
        except (ServerError, BatchError):
            verdict = "unknown"  # whole or nothing
        for key in keys:
            self._ledger.write(verdict, key)
        return len(keys)

    def _steps(self, flow: Any) -> list[str]:
        """Add them, and write down what is about to be pushed."""
        made = policies.add_steps(flow, self._step_name, int(self._chance.random() < 0.3))
        for key, notes, before in made:
            self._ledger.write("bjob", flow.id, key)
            if before:
                self._ledger.write("needs", key, *(f"{one.partition('-')[0]}/{one}" for one in before))
            self._ledger.write("push", key, *notes)
        return [key for key, _, _ in made]

    def _step_name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._name}-{self._number}"

    async def now_and_then(self) -> None:
        """Add to those that are open still; close those whose time has come."""
        for at, batch in list(self._open):
            await self._into(batch, batch.id, 3)
            if time.monotonic() > at or self._source.stopped:
                self._open.remove((at, batch))
                await self._quietly(batch.aclose if self._awaits else lambda one=batch: at_once(one.close))

        if self._mending and time.monotonic() > self._look_at:
            self._look_at = time.monotonic() + 1.0
            await self._mend(self._mending[0])

    async def _mend(self, batch: Any) -> None:
        """Retry what gave up, once all has ended."""
        self._mending.append(self._mending.pop(0))
        try:
            status = await (batch.astatus() if self._awaits else at_once(batch.status))
            if status.state == "complete":
                await (batch.aretry() if self._awaits else at_once(batch.retry))
                self._mending.remove(batch)
        except ServerError:
            return  # another look comes
        except BatchError:
            self._mending.remove(batch)  # it could not be opened

    def _made(self, style: str, parent: str = "-") -> Any:
        told: dict[str, Any] = {
            "open_for": OPEN_FOR,
            "atomic": style.startswith("atomic"),
            "results": self._chance.random() < 0.5,
        }
        batch = jobs.app.batch(f"{style} of {os.getpid()}", **told, **_callbacks())
        self._ledger.write("bopening", batch.id, style, parent)
        return batch

    async def _within(self, batch: Any, body: Callable[[], Awaitable[None]]) -> None:
        """The body in the block of ``batch``. A batch that could not be opened or closed is not our business here."""
        try:
            if self._awaits:
                async with batch:
                    await self._named(batch.id, body)
            else:
                with batch:
                    await self._named(batch.id, body)
        except (_Abort, ServerError, BatchError):
            return

    async def _named(self, name: str, body: Callable[[], Awaitable[None]]) -> None:
        before, self._source.batch_name = self._source.batch_name, name
        try:
            await body()
        finally:
            self._source.batch_name = before

    async def _body(self, batch: Any, style: str, many: int) -> None:
        if style == "mended":
            await self._source.bulk(many - 8)
            return await self._source.single("mender", 8)
        if style == "nested":
            await self._source.some(many // 3)
            inner = self._made("inner", batch.id)
            await self._within(inner, lambda: self._source.some(many // 3))
            many //= 3
        if style == "adding":
            await self._source.single("adder", many // 20)
        await self._source.some(many // 2)
        if style == "cancelled" and self._chance.random() < 0.5:
            await self._cancel(batch)
        if style.endswith("aborted"):
            self._ledger.write("baborting", batch.id)
            raise _Abort
        return await self._source.some(many - many // 2)

    async def _later(self, batch: Any, many: int) -> None:
        """Open now, filled bit by bit."""
        opened = await self._quietly(batch.aopen if self._awaits else lambda: at_once(batch.open))
        if opened:
            await self._into(batch, batch.id, many // 2)
            self._open.append((time.monotonic() + self._chance.uniform(2, 12), batch))

    async def _into(self, batch: Any, name: str, many: int) -> None:
        self._source.batch = batch
        try:
            await self._named(name, lambda: self._source.some(many))
        finally:
            self._source.batch = None

    async def _cancel(self, batch: Any) -> None:
        self._ledger.write("bcancelling", batch.id)
        if await self._quietly(batch.acancel if self._awaits else lambda: at_once(batch.cancel)):
            self._ledger.write("bcancelled", batch.id)

    @staticmethod
    async def _quietly(call: Callable[[], Awaitable[Any]]) -> bool:
        """Whether it was answered."""
        try:
            await call()
        except (ServerError, BatchError):
            return False
        return True
