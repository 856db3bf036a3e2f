"""Our half of the mixed system: jobs under the names that Ruby's classes have, for workers in here and in processes."""

from __future__ import annotations

import functools
import json
import os
import time
from typing import Any

from redis import Redis

from henchman import App, Failure, current_job

__all__ = ["app", "make_app", "ours"]


def make_app(**settings: Any) -> App:
    """An app whose jobs write what happened to ``our:trace`` on the same server."""
    app = App(**settings)

    def write(event: str, *facts: Any) -> None:
        url = app.config.redis_url
        assert url is not None
        job = current_job()
        _client(url).rpush("our:trace", json.dumps([event, job.jid, job.attempt, *facts], ensure_ascii=False))

    @app.job(name="Echo", queue="ruby")
    def echo(*args: Any) -> None:
        write("echo", *args)

    @app.job(name="Shared", queue="shared")
    def shared(who_fails: str, *rest: Any) -> None:
        write("shared", who_fails, *rest)
        if who_fails in ("python", "both"):
            raise ValueError("failed in Python")

    @app.job(name="pkg.mod.fails", queue="py", backtrace=True, tags=["vip", "é"])
    def fails(*args: Any) -> None:
        write("fails", *args)
        raise LookupError(f"kein Glück <b>{args[0] if args else ''}</b>")

    @app.job(name="pkg.mod.ok", queue="py")
    def ok(*args: Any) -> None:
        write("ok", *args)

    @app.job(name="pkg.mod.refuses", queue="py")
    def refuses(*args: Any) -> None:
        raise Failure("not eligible")

    @app.job(name="pkg.mod.long", queue="py")
    def long(seconds: float, *rest: Any) -> None:
        write("long", seconds)
        opened = _client(str(app.config.redis_url)).exists("our:open")  # it is to end at once
        end = time.monotonic() + (0.0 if opened else seconds)
        while time.monotonic() < end:
            time.sleep(0.02)  # in slices, as code that waits for something does

    return app


@functools.cache
def _client(url: str) -> Redis:
    """One a process: a connection for each job would make 2,500 of them a matter of many seconds."""
    return Redis.from_url(url, protocol=2)


def ours(redis: Redis) -> list[list[Any]]:
    """What our jobs wrote: [event, jid, attempt, facts…], in order."""
    return [json.loads(row) for row in redis.lrange("our:trace", 0, -1)]  # type: ignore[union-attr]


app = make_app(redis_url=os.environ.get("HENCHMAN_REDIS_URL", "redis://127.0.0.1:1"))
