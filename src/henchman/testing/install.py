"""The clock of a test, and the stand-ins that answer for an app's server while a test lasts.

A stand-in holds for the whole app, for every thread: a push from a server thread or a task is caught like any other.
Stand-ins nest; the latest one answers, and each leaves without disturbing the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from henchman.app import App
from henchman.errors import ArgumentError, HenchmanError
from henchman.kernel.clock import ServerClock
from henchman.store.call import Call

__all__ = ["AppView", "Clock", "GivenClock", "NoFixture", "StandIn", "moment", "refusing", "standing_in", "words_of"]

_HAIR = 1e-6  # seconds; what sums of large floats may lose


class Clock:
    """The time as a fake sees it. Thread-safe.

    Without ``start`` it goes with the world's clock, ahead of it by what it was advanced. With a ``start``, and after
    ``travel_to``, it stands still and moves only when told.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._lock = threading.Lock()
        self._ahead = 0.0
        self._stands: float | None = None if start is None else moment("start", start)

    def __repr__(self) -> str:
        return f"Clock({self.now().isoformat()}{'' if self._stands is None else ', standing'})"

    def time(self) -> float:
        """The Unix time here, in seconds."""
        stands = self._stands
        return time.time() + self._ahead if stands is None else stands

    def now(self) -> datetime:
        """The same as a datetime in UTC."""
        return datetime.fromtimestamp(self.time(), UTC)

    def advance(self, by: float | timedelta) -> None:
        """Move on by seconds or a timedelta; ArgumentError for less than nothing."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else float(by)
        if not 0 <= seconds < 1e10:
            raise ArgumentError(f"advance({by!r}): give 0 to 10,000,000,000 seconds; travel_to() goes anywhere")
        with self._lock:
            if self._stands is None:
                self._ahead += seconds
            else:
                self._stands += seconds

    def travel_to(self, when: datetime) -> None:
        """Go to a datetime with a time zone, and stand there."""
        seconds = moment("travel_to", when)
        with self._lock:
            self._stands = seconds

    def reach(self, seconds: float) -> None:
        """Move on to the Unix time ``seconds``, if that is still ahead."""
        with self._lock:
            missing = seconds - self.time()
            if missing > 0 and self._stands is None:
                self._ahead += missing + _HAIR
            elif missing > 0:
                self._stands = seconds


def moment(name: str, when: datetime) -> float:
    """The Unix time of ``when``; ArgumentError, with ``name``, when it has no time zone."""
    if not isinstance(when, datetime) or when.utcoffset() is None:
        raise ArgumentError(
            f"{name}({when!r}): give a datetime with a time zone, as in datetime(2030, 1, 1, tzinfo=UTC)"
        )
    return when.timestamp()


class GivenClock(ServerClock):
    """The clock of a test in place of the server's; answers of a server do not set it."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(wall=now)

    def heard(self, server: float, sent: float) -> None:
        """Learn nothing."""


class StandIn(NamedTuple):
    """A sync runner, an async one (with ``close``, awaited), and the time (Unix, seconds) that pushes are given."""

    runner: Any
    arunner: Any
    now: Callable[[], float]


class AppView:
    """An app as a worker sees it, with some parts of its own: what the test nests meanwhile does not touch them."""

    def __init__(self, app: Any, **own: Any) -> None:
        self._app = app
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)


class NoFixture(HenchmanError):
    """A test talks to the server of the app itself; the text says what is asked of it, and the ways out."""

    def __init__(self, asked: str) -> None:
        super().__init__(
            f"this test talks to the server of the app itself ({asked}), outside of any fixture: use the fixture "
            "henchman_fake or henchman, or a block of testing.fake, inline or worker; henchman_real_server = true in "
            "pytest's settings allows it"
        )


class _Refusing:
    """Stands in for the server of every app where there must be a fixture."""

    def run(self, call: Call[Any]) -> Any:
        raise NoFixture(words_of(call))

    def __getattr__(self, name: str) -> Any:
        raise NoFixture(f"connections.{name}")


class _ARefusing:
    """The awaited form of ``_Refusing``."""

    async def run(self, call: Call[Any]) -> Any:
        raise NoFixture(words_of(call))

    async def close(self) -> None:
        """There is nothing to close."""

    def __getattr__(self, name: str) -> Any:
        raise NoFixture(f"aconnections.{name}")


def words_of(call: Call[Any]) -> str:
    """What ``call`` asks of a server: the script, or the command and its first word."""
    if call.script is not None:
        return call.name
    return " ".join(one.decode(errors="replace") if isinstance(one, bytes) else str(one) for one in call.parts[0][:2])


@contextmanager
def refusing() -> Iterator[None]:
    """Within the block no app talks to its server, but through another stand-in."""
    before = App.stand_ins
    App.stand_ins = (StandIn(_Refusing(), _ARefusing(), time.time),)
    try:
        yield
    finally:
        App.stand_ins = before


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
        if left == type(app).stand_ins:
            del app.stand_ins
        app.client.now = left[-1].now if left else time.time
