"""Identities that are gone, and a lifeline that looks after them at a test's word."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from henchman import App
from henchman.store.call import Call
from henchman.worker.rescue import entomb, rescue_lost
from support.store import Store

__all__ = ["DEAD", "Spy", "corpse", "entomb_and_rescue", "job"]

T = TypeVar("T")
DEAD = "host:1:dead00000000"


def job(name: str, **fields: Any) -> bytes:
    """A payload; its jid is its name."""
    return json.dumps(
        {"class": "act", "args": [name], "jid": name, "queue": "default", "retry": True} | fields
    ).encode()


def corpse(store: Store, *payloads: bytes, identity: str = DEAD, expired: bool = True) -> None:
    """``payloads`` are in flight of a process that is gone; its lease has run out, or stands."""
    store.join("default", identity=identity)
    if payloads:
        store.push("default", *payloads)
        store.fetch("default", identity=identity)
    if expired:
        store.ask("DEL", store.keys.lease(identity))


def entomb_and_rescue(app: App, identity: str) -> tuple[int, Exception | None] | None:
    """What a lifeline does that is certain of this death: how many went back, and the first error. None: the process
    lives after all."""
    return rescue_lost(app, identity)[:2] if entomb(app, identity) else None


class Spy:
    """An app's connections, with a note of every call; ``before(call)`` is asked first and may raise."""

    def __init__(self, app: App, before: Callable[[Call[Any]], None] = lambda call: None) -> None:
        self.calls: list[Call[Any]] = []
        self._before = before
        self._connections = app.connections
        self._run = app.connections.run

    def __enter__(self) -> Spy:
        self._connections.run = self.run
        return self

    def __exit__(self, *_: object) -> None:
        del self._connections.run

    def run(self, call: Call[T]) -> T:
        """Execute ``call`` after noting it."""
        self.calls.append(call)
        self._before(call)
        result: T = self._run(call)
        return result

    def names(self) -> list[str]:
        """What was called, in order."""
        return [call.name for call in self.calls]
