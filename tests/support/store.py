"""Store calls on a real server, in few words."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

from henchman.client.registry import Registry
from henchman.config import Config
from henchman.store import jobs, leases
from henchman.store.call import Arg, Call, Script, command
from henchman.store.connection import Connections
from henchman.store.keys import Keys

__all__ = ["DAY", "ME", "Store", "changed", "fetching"]

T = TypeVar("T")

ME = "host:1:0123456789ab"
DAY = "2026-01-31"


def fetching(keys: Keys, *queues: tuple[str, int], count: int, identity: str = ME) -> Call[jobs.Fetched]:
    """The fetch of ``identity`` in its first epoch from ``queues``: (name, extra)."""
    asked = [(name, keys.queue(name), keys.in_flight(identity, 1, name), extra) for name, extra in queues]
    return jobs.fetch(keys, identity, asked, count, 30_000)


def changed(script: Script, old: str, new: str) -> Script:
    """A script with another text, which the server does not know."""
    made = Script(script.name, script.text.replace(old, new).encode(), {"keys": b""})
    assert made.sha != script.sha, old
    return made


class Store:
    """One identity with its keys and a connection. ``ask`` is a plain command."""

    def __init__(self, url: str, namespace: str = "") -> None:
        self.connections = Connections(url)
        self.keys = Keys(namespace)
        self.config = Config()
        self.registry = Registry()

    def with_settings(self, **settings: Any) -> Store:
        """The same store as an app with these settings sees it."""
        other = copy.copy(self)
        other.config = Config(**settings)
        return other

    def run(self, call: Call[T]) -> T:
        return self.connections.run(call)

    def ask(self, *parts: Arg) -> Any:
        return self.run(command(*parts))

    def push(self, queue: str, *payloads: bytes) -> None:
        """The first of ``payloads`` runs first."""
        self.run(jobs.push_many(self.keys, queue, payloads))

    def join(self, *queues: str, lease_ms: int = 30_000, identity: str = ME) -> None:
        lists = [self.keys.in_flight(identity, 1, name) for name in queues]
        self.run(leases.join(self.keys, identity, lists, lease_ms))

    def fetch(self, *queues: str | tuple[str, int], count: int = 10, identity: str = ME) -> list[list[bytes]]:
        asked = [(one, 0) if isinstance(one, str) else one for one in queues]
        return self.run(fetching(self.keys, *asked, count=count, identity=identity)).payloads

    def settle(
        self, *units: jobs.Settlement, queues: tuple[str, ...] = ("a",), dead_max: int = 100, dead_timeout: float = 60.0
    ) -> list[int | bytes]:
        """Settle units whose ``pair`` counts ``queues`` from 1."""
        pairs = [(self.flight(name), self.keys.queue(name)) for name in queues]
        call = jobs.settle(
            self.keys, ME, pairs, units, lease_ms=30_000, day=DAY, dead_max=dead_max, dead_timeout=dead_timeout
        )
        return self.run(call)

    def move(
        self, source: str, *moves: jobs.Move, dead_max: int = 100, dead_timeout: float = 60.0
    ) -> list[int | bytes]:
        return self.run(jobs.move(self.keys, source, moves, dead_max=dead_max, dead_timeout=dead_timeout))

    def flight(self, queue: str) -> str:
        return self.keys.in_flight(ME, 1, queue)

    def queue(self, name: str) -> list[bytes]:
        """What a queue holds, next to run first."""
        return list(reversed(self.ask("LRANGE", self.keys.queue(name), 0, -1)))

    def in_flight(self, name: str) -> list[bytes]:
        """What is in flight from a queue, first fetched first."""
        return list(reversed(self.ask("LRANGE", self.flight(name), 0, -1)))

    def members(self, key: str) -> list[bytes]:
        return list(self.ask("ZRANGE", key, 0, -1))

    def now(self) -> float:
        seconds, micro = self.ask("TIME")
        return int(seconds) + int(micro) / 1e6

    def all_keys(self) -> set[str]:
        return {key.decode() for key in self.ask("KEYS", "*")}
