"""Who answers in place of an app's server while a test lasts.

It holds for the whole app, for every thread: a push from a server thread or a task is caught like any other. Stand-ins
nest; the one that came last answers, and each leaves without disturbing the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from henchman.app import App

__all__ = ["StandIn", "View", "standing_in"]


class StandIn(NamedTuple):
    """A sync runner, an async one (with ``close``, awaited), and the time (Unix, seconds) that pushes are given."""

    runner: Any
    arunner: Any
    now: Callable[[], float]


class View:
    """An app as a worker sees it, with some parts of its own: what the test nests meanwhile does not touch them."""

    def __init__(self, app: Any, **own: Any) -> None:
        self._app = app
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)


@contextmanager
def standing_in(app: App, one: StandIn) -> Iterator[None]:
    """``one`` answers for ``app``, connected or not, for the length of the block."""
    _set(app, lambda others: (*others, one))
    try:
        yield
    finally:
        _set(app, lambda others: tuple(other for other in others if other is not one))


def _set(app: App, change: Callable[[tuple[StandIn, ...]], tuple[StandIn, ...]]) -> None:
    with app._lock:
        app.stand_ins = left = change(app.stand_ins)
        app.client.now = left[-1].now if left else time.time
