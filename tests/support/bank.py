"""Jobs with limits, which run until a test lets them end."""

from __future__ import annotations

import threading
import time

from redis import Redis

from henchman import App, Concurrent, Leaky


class Bank:
    """``pay``: two may run at once for each tenant; they run until ``go``.
    ``call``: a rate of ``calls`` in ten minutes."""

    def __init__(self, app: App, calls: int = 1) -> None:
        self.app, self.go, self.began = app, threading.Event(), list[str]()

        @app.job(name="pay", queue="a", limits=[Concurrent("bank", 2, by="tenant")])
        def pay(tenant: str, number: int) -> None:
            self.began.append(f"{tenant}{number}")
            assert self.go.wait(60)

        @app.job(name="call", queue="a", limits=[Leaky("shop", calls, per=600)])
        def call() -> None: ...

        self.pay, self.call = pay, call


def parked_since(redis: Redis, seconds: float) -> None:
    """Who waits for a place waits since so much earlier."""
    for jid, row in redis.hgetall("hm:parked").items():  # type: ignore[union-attr]
        queue, due, reason, rest = row.split(b"\n", 3)
        words = reason.split(b" ")
        assert words[0] == b"limit"
        words[1] = str(time.time() - seconds).encode()
        redis.hset("hm:parked", jid, b"\n".join((queue, due, b" ".join(words), rest)))
