"""The app's connections: made on first use, closed, used again, and after a fork."""

from __future__ import annotations

import asyncio
import os

import pytest

from henchman import App
from henchman.errors import ConfigError, DefinitionError
from henchman.store.call import Call, command


def work(number: int) -> None:
    """The job of these tests."""


def test_closed_is_not_the_end(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    app.close()  # nothing was open
    job = app.job(name="j")(work)
    for number in range(3):
        job.enqueue(number)
        app.close()
        app.close()
    assert app.connections.run(_length()) == 3
    app.close()


def test_awaited_and_closed(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    job = app.job(name="j")(work)

    async def scene() -> None:
        await app.aclose()  # nothing was open
        for number in range(3):
            await job.aenqueue(number)
            await app.aclose()

    asyncio.run(scene())  # a connection left open is a ResourceWarning, and that is an error here
    assert app.connections.run(_length()) == 3
    app.close()


def test_a_forked_child_pushes_for_itself(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    job = app.job(name="j")(work)
    job.enqueue(1)
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for step in range(50):
                    job.enqueue(100 * number + step)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    for step in range(50):
        job.enqueue(step)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert app.connections.run(_length()) == 1 + 50 + 4 * 50
    app.close()


def test_no_server_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_URL", "HENCHMAN_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    app = App(embedded=False)
    with pytest.raises(ConfigError, match="set redis_url in"):
        app.job(name="j")(work).enqueue(1)


def test_an_event_that_is_none() -> None:
    with pytest.raises(DefinitionError, match="there is no event 'start'; there are startup"):
        App(redis_url="redis://h").on("start")


def test_status_and_cancel_from_both_worlds(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    handle = app.job(name="j")(work).enqueue(1)

    async def scene() -> None:
        assert (await handle.astatus()).state == "enqueued"
        await handle.acancel()
        assert (await app.ajob_status(handle.jid)).cancelled
        await app.aclose()

    asyncio.run(scene())
    assert handle.status().cancelled
    app.close()


def _length() -> Call[int]:

    return command("LLEN", "queue:default")
