"""One test for both faces of a method: the plain one, and the one that is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

__all__ = ["Face"]


def _nothing(_: Any) -> None:
    return None


class Face:
    """``do(queue, "find", jid)`` is ``queue.find(jid)`` or ``await queue.afind(jid)``; ``walk`` is ``for`` or
    ``async for``, and calls ``each`` with everything it meets."""

    def __init__(self, awaited: bool) -> None:
        self.awaited = awaited
        self._loop = asyncio.Runner()

    def do(self, thing: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if not self.awaited:
            return getattr(thing, method)(*args, **kwargs)
        return self.run(getattr(thing, f"a{method}")(*args, **kwargs))

    def walk(self, items: Any, each: Callable[[Any], Any] = _nothing) -> list[Any]:
        met = []
        if not self.awaited:
            for one in items:
                met.append(one)
                each(one)
            return met

        async def go() -> None:
            async for one in items:
                met.append(one)
                each(one)

        self.run(go())
        return met

    def run(self, coroutine: Any) -> Any:
        return self._loop.run(coroutine)

    def close(self) -> None:
        self._loop.close()
