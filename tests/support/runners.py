"""The sync and the async runner behind one face, so that both go through one table of cases."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from henchman.store.aconnection import AsyncConnections
from henchman.store.call import Call
from henchman.store.connection import Connections

__all__ = ["AwaitedRunner", "Maker", "PlainRunner", "Runner"]


class Runner(Protocol):
    def run(self, call: Call[Any]) -> Any: ...
    def run_all(self, call: Call[Any], count: int) -> list[Any]: ...
    def close(self) -> None: ...


class AwaitedRunner:
    """The async runner behind the sync one's face; its loop stands still between two calls."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._loop = asyncio.Runner()
        self._connections = AsyncConnections(*args, **options)

    def run(self, call: Call[Any]) -> Any:
        return self._loop.run(self._connections.run(call))

    def run_all(self, call: Call[Any], count: int) -> list[Any]:
        """Run ``call`` so many times at once."""

        async def scene() -> list[Any]:
            return await asyncio.gather(*(self._connections.run(call) for _ in range(count)))

        return self._loop.run(scene())

    def close(self) -> None:
        self._loop.run(self._connections.close())
        self._loop.close()


class PlainRunner(Connections):
    """The sync runner."""

    def run_all(self, call: Call[Any], count: int) -> list[Any]:
        """Run ``call`` so many times at once."""
        with ThreadPoolExecutor(count) as threads:
            return list(threads.map(self.run, [call] * count))


class Maker:
    """Makes runners of one kind, and closes them."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self._made: list[Runner] = []

    def __call__(self, url: str, **options: Any) -> Runner:
        self._made.append(self._kind(url, **options))
        return self._made[-1]

    def close(self) -> None:
        for one in self._made:
            one.close()
