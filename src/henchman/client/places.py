"""A place of a limit outside of jobs: ``with app.limit("bank"):``.

A program has it under a lease of its own, which a thread renews. Who died renews nothing: the lifeline of the workers
gives its place to the next (``lua/limit_leave.lua``).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, TypeVar

from henchman.client.keyed import limit_value
from henchman.client.options import checked_seconds
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, HenchmanError, LimitReached, ServerError
from henchman.kernel.text import as_shown, count, did_you_mean, visible
from henchman.kernel.threads import Ticker
from henchman.limits.kinds import Concurrent, Limit
from henchman.store import limits
from henchman.store.call import Call
from henchman.store.leases import new_identity
from henchman.store.limits import KINDS, Entered, PlaceHolder
from henchman.wire import times

__all__ = ["Place"]

T = TypeVar("T")
FIRST: Final = 0.01  # seconds between the first two looks whether a place is free
LONGEST: Final = 0.1  # seconds between two looks
_SHOWN: Final = 3  # holders that an error names


class Place:
    """What ``app.limit`` gives: ``with`` and ``async with`` wait for the place, and give it back.

    ``lost``: whether the lease ran out while the block ran, so that somebody else may have the place.
    """

    def __init__(self, runtime: Runtime, limit: str | Concurrent, by: Any, wait: float | timedelta | None) -> None:
        known = _definition(runtime, limit)
        self._runtime = runtime
        self._name = limit if isinstance(limit, str) else limit.name
        self._n = known.n if known is not None else None
        self._by = _whose(self._name, known, by)
        self._wait = math.inf if wait is None else checked_seconds("wait", wait, zero=True)
        self._lease_ms = int(runtime.config.lease * 1000)
        self._lease, self._number, self._until = "", 0, 0.0
        self._renewal: _Renewal | None = None
        self.lost = False

    def __repr__(self) -> str:
        whose = f" of {visible(self._by)}" if self._by else ""
        return f"<a place of the limit {self._name}{whose}>"

    def __enter__(self) -> Place:
        run, pause = self._runtime.connections.run, FIRST
        self._begin()
        try:
            while not self._has(run(self._ask())):
                if self._is_over():
                    raise self._reached(run(self._holders()))
                time.sleep(self._pause(pause))
                pause = min(2 * pause, LONGEST)
            self._renew()
        except BaseException:
            self._end(lambda: run(self._leave()))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._renewal is not None:
            self._renewal.stop()
        self._end(lambda: self._runtime.connections.run(self._leave()))

    async def __aenter__(self) -> Place:
        run, pause = self._runtime.aconnections.run, FIRST
        self._begin()
        try:
            while not self._has(await run(self._ask())):
                if self._is_over():
                    raise self._reached(await run(self._holders()))
                await asyncio.sleep(self._pause(pause))
                pause = min(2 * pause, LONGEST)
            self._renew()
        except BaseException:  # also one that is cancelled while it waits: nothing is awaited any more
            await self._aend()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self._renewal is not None:
            self._renewal.stopping.set()
            self._renewal.interrupt()
        await self._aend()

    def _begin(self) -> None:
        if self._lease:
            raise HenchmanError(f"{self!r} is entered already: call app.limit(…) for each block")
        self._lease, self._number, self.lost = f"~{new_identity()}", 0, False
        self._until = time.monotonic() + self._wait

    def _ask(self) -> Call[Entered]:
        return limits.enter(
            *(self._runtime.keys, self._lease, self._name, self._by, self._n, self._number, self._lease_ms)
        )

    def _leave(self) -> Call[bool]:
        return limits.leave(self._runtime.keys, self._lease, self._name, self._by)

    def _holders(self) -> Call[list[PlaceHolder]]:
        return limits.holders(self._runtime.keys, self._name, self._by)

    def _has(self, answer: Entered) -> bool:
        """Whether we have it; ArgumentError where nobody can."""
        if answer.state in KINDS:
            raise ArgumentError(
                f"app.limit({self._name!r}): this limit is {KINDS[answer.state]}; only Concurrent has places"
            )
        if answer.state == "":
            near = did_you_mean(self._name, [one.name for one in self._runtime.registry.limits()])
            due = near or f"; say how large it is: app.limit(Concurrent({self._name!r}, 5))"
            raise ArgumentError(f"app.limit({self._name!r}): nobody knows such a limit{due}")
        self._number = self._number or answer.number
        return answer.state == "has"

    def _is_over(self) -> bool:
        return time.monotonic() >= self._until

    def _pause(self, pause: float) -> float:
        return max(min(pause, self._until - time.monotonic()), 0.001)

    def _reached(self, found: list[PlaceHolder]) -> LimitReached:
        others = [one for one in found if one.jid != self._lease and not one.waits]
        whose = f" of {visible(self._by)}" if self._by else ""
        named = [f"{_holder(one)} since {times.iso(one.since)}" for one in others[:_SHOWN]]
        more = [f"{count(len(others) - _SHOWN, 'other')}"] if len(others) > _SHOWN else []
        held = f"taken by {', '.join([*named, *more])}" if others else "others are before it in line"
        return LimitReached(
            f"the limit {self._name}{whose} had no place for {self._wait:g} s: {held}; "
            f"henchman limits show {self._name} says more"
        )

    def _renew(self) -> None:
        self._renewal = _Renewal(self._runtime, self._ask_again, self._say_lost)
        self._renewal.start()

    def _ask_again(self) -> Call[Entered]:
        names = (self._runtime.keys, self._lease, self._name, self._by)
        return limits.enter(*names, self._n, self._number, self._lease_ms, has=True)

    def _say_lost(self) -> None:
        self.lost = True
        self._runtime.notice("%r was given to another: its lease of %g s was not renewed", self, self._lease_ms / 1000)

    def _end(self, leave: Callable[[], object]) -> None:
        """Give it back; where the server is away, its lease does so."""
        try:
            leave()
        except ServerError as error:
            self._runtime.events.failed("limit", error)
        self._lease, self._renewal = "", None

    async def _aend(self) -> None:
        try:
            await asyncio.shield(self._runtime.aconnections.run(self._leave()))
        except ServerError as error:
            self._runtime.events.failed("limit", error)
        self._lease, self._renewal = "", None


class _Renewal(Ticker):
    """Renews the lease of one place, six times within its length."""

    name = "limit"

    def __init__(self, runtime: Runtime, ask: Callable[[], Call[Entered]], lost: Callable[[], None]) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self._ask = ask
        self._lost = lost
        self._every = runtime.config.lease / 6
        self._began = False

    def tick(self) -> float:
        """Renew."""
        if self._began and self._runtime.connections.run(self._ask()).state == "lost" and not self.stopping.is_set():
            self.stopping.set()
            self._lost()
        self._began = True
        return self._every


def _holder(one: PlaceHolder) -> str:
    return f"program {visible(one.program)}" if one.program else f"job {visible(one.jid)}"


def _definition(runtime: Runtime, limit: str | Concurrent) -> Limit | None:
    """What code says of it."""
    if not isinstance(limit, (str, Concurrent)):
        raise ArgumentError(f"app.limit({as_shown(limit, 80)}): give the name of a limit, or a Concurrent")
    if isinstance(limit, Concurrent):
        runtime.registry.check_limits("app.limit", [limit])
        return limit
    return next((one for one in runtime.registry.limits() if one.name == limit), None)


def _whose(name: str, known: Limit | None, by: Any) -> str:
    """Whose place it is; ArgumentError where each value has a limit of its own, and none is told, or none has."""
    if by is None and known is not None and known.partition is not None:
        raise ArgumentError(f"app.limit({name!r}): each value has a limit of its own; say whose: by=…")
    if by is not None and known is not None and known.partition is None:
        raise ArgumentError(f"app.limit({name!r}, by={as_shown(by, 80)}): this limit is everybody's; leave by= out")
    return "" if by is None else limit_value(name, by)
