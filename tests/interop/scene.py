"""A system of ours in which something stands in every place that Ruby looks at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from redis import Redis

from henchman import App
from henchman.worker.launcher import Launcher
from interop.both import make_app, ours
from support.worker import until, working

__all__ = ["Scene", "scene"]


class Scene(NamedTuple):
    """The ids of the jobs, by where they are."""

    app: App
    launcher: Launcher
    waiting: list[str]
    running: str
    retrying: str
    dead: str
    refused: str
    later: str


@contextmanager
def scene(url: str, redis: Redis) -> Iterator[Scene]:
    """One job runs, one is retried, one is dead, one is scheduled, three wait in a queue that nobody serves."""
    app = make_app(redis_url=url, queues=["py"], concurrency=3, heartbeat=0.2, tag="both", labels=["reliable"])
    with working(app, stop=0.0) as launcher:
        options = {"queue": "waiting", "tags": ["a", "b"]}
        found = Scene(
            app,
            launcher,
            waiting=[app.enqueue("pkg.mod.ok", n, "é", **options).jid for n in range(3)],
            running=app.enqueue("pkg.mod.long", 600.0, "é").jid,
            retrying=app.enqueue("pkg.mod.fails", "again").jid,
            dead=app.enqueue("pkg.mod.fails", "dies", retry=0).jid,
            refused=app.enqueue("pkg.mod.refuses").jid,
            later=app.enqueue("pkg.mod.ok", "later", delay=3600).jid,
        )
        app.enqueue("pkg.mod.ok", "done")
        until(lambda: redis.get("stat:processed") == b"4", "four jobs ended")
        until(lambda: [row for row in ours(redis) if row[0] == "long"], "one runs")
        identity = launcher.session.identity
        until(lambda: redis.hlen(f"{identity}:workers") == 1, "the beat tells of it")
        until(lambda: redis.hget(identity, "busy") == b"1", "and counts it alone")
        yield found
