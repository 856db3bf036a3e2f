"""A server that forgot a script is told it again, also by a process that was held up for longer than its time-out."""

from __future__ import annotations

import asyncio

from redis import Redis

from henchman import App
from henchman.store.jobs import cancel

OVER = -1.0  # seconds: whatever a call takes, it takes longer than it may


def test_a_process_that_was_held_up_sends_the_script_all_the_same(redis_url: str, redis: Redis) -> None:
    app = App(redis_url=redis_url)
    app.connections.run(cancel(app.keys, "a"))
    redis.script_flush()
    app.connections.io_timeout = OVER
    app.connections.run(cancel(app.keys, "b"))
    assert redis.zrange("hm:cancelled", 0, -1) == [b"a", b"b"]
    app.close()


def test_so_does_an_awaited_call(redis_url: str, redis: Redis) -> None:
    app = App(redis_url=redis_url)

    async def main() -> None:
        await app.aconnections.run(cancel(app.keys, "a"))
        redis.script_flush()
        app.aconnections.io_timeout = OVER
        await app.aconnections.run(cancel(app.keys, "b"))
        await app.aclose()

    asyncio.run(main())
    assert redis.zrange("hm:cancelled", 0, -1) == [b"a", b"b"]
