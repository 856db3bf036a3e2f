"""A worker inside the test's own process, and what tests ask of the server behind its back."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from redis import Redis

from henchman import App
from henchman.worker.launcher import Launcher, default_capsules

__all__ = ["Heard", "in_flight", "jobs_in", "looker", "overdue", "push_raw", "settled", "teller", "until"]
__all__ += ["working"]

T = TypeVar("T")


def until(fact: Callable[[], T], what: str, limit: float = 90.0) -> T:
    """Wait until ``fact()`` is true and return it; AssertionError says ``what`` did not come about."""
    started = time.monotonic()
    while True:
        looked = time.monotonic()
        found = fact()
        if found:
            return found
        now = time.monotonic()
        assert now < started + limit, f"not within {limit:g} s: {what} (last: {found!r})"
        # A look that is dear is taken less often, as is one after a long wait: others need the processor.
        time.sleep(min(0.02, max(0.005, 2 * (now - looked), (now - started) / 100)))


@contextmanager
def looker(url: str) -> Iterator[Redis]:
    """A plain client of the server, for looking."""
    with Redis.from_url(url, protocol=2) as redis:
        yield redis


@contextmanager
def working(app: App, *, stop: float = 5.0, start: bool = True, **hooks: Any) -> Iterator[Launcher]:
    """The worker of ``app`` with its configured queues and slots, running for the length of the block."""
    launcher = Launcher(app, default_capsules(app), **hooks)
    if start:
        launcher.start()
    try:
        yield launcher
    finally:
        launcher.stop(stop)
        app.close()


def overdue(launcher: Launcher) -> None:
    """The time-out of every job that runs in a thread has come, whatever the clock says."""
    watchdog, now = launcher.watchdog, time.monotonic()
    with watchdog._lock:
        watchdog._heap = [one._replace(when=now) for one in sorted(watchdog._heap)]
    watchdog.wake()


def in_flight(redis: Redis) -> list[bytes]:
    """Every payload in any in-flight list."""
    keys: list[bytes] = list(redis.scan_iter(match="*hm:flight:*", count=1000))
    return [payload for key in keys for payload in redis.lrange(key.decode(), 0, -1)]  # type: ignore[union-attr]


def jobs_in(redis: Redis, key: str) -> list[dict[str, Any]]:
    """The jobs of a list (next to run first) or sorted set, decoded."""
    kind = redis.type(key)
    if kind == b"none":  # it may be made a moment later, and be either
        return []
    rows: Any = reversed(redis.lrange(key, 0, -1)) if kind == b"list" else redis.zrange(key, 0, -1)  # type: ignore[call-overload]
    return [json.loads(row) for row in rows]


def settled(redis: Redis, processed: int) -> None:
    """Wait until ``processed`` jobs are counted and nothing is in flight."""
    until(lambda: int(redis.get("stat:processed") or 0) >= processed, f"{processed} jobs settled")  # type: ignore[arg-type]
    until(lambda: not in_flight(redis), "nothing is left in flight")


def push_raw(redis: Redis, *payloads: bytes | str, queue: str = "default") -> None:
    """Push as any program may: SADD, LPUSH."""
    redis.sadd("queues", queue)
    redis.lpush(f"queue:{queue}", *payloads)


class Heard:
    """Events of an app, kept: ``heard["retry"]`` is the list of their facts."""

    def __init__(self, app: App, *names: str) -> None:
        self._facts: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        self._lock = threading.Lock()
        for name in names:
            app.events.on(name, self._listener(name))

    def _listener(self, name: str) -> Callable[..., None]:
        def listen(**facts: Any) -> None:
            with self._lock:
                self._facts[name].append(facts)

        return listen

    def __getitem__(self, name: str) -> list[dict[str, Any]]:
        with self._lock:
            return list(self._facts[name])


def teller(said: list[str]) -> Callable[..., None]:
    """What the parts of a supervisor say, as lines: the words, and ``name=value`` of each fact."""

    def say(words: str, /, *, level: int = 0, text: str = "", **facts: Any) -> None:
        said.append(" ".join([words, *(f"{name}={value}" for name, value in facts.items())]))

    return say
