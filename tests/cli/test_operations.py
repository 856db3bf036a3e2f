"""``henchman operations``: the list, one, abort, undo, continue."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman import App
from henchman.cli.main import henchman
from henchman.inspector import operations
from henchman.inspector.operations import Wish
from henchman.store.call import command
from henchman.wire.payload import encode


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    for number in range(3):
        job = {"class": "sync", "queue": "q", "args": [number], "jid": f"{number:024}", "created_at": 1.0}
        made.connections.run(command("ZADD", "dead", 1.0, encode(job)))
    yield made
    made.close()


def said(url: str, *words: str, status: int = 0) -> str:
    result = CliRunner().invoke(henchman, ["--redis", url, "operations", *words])
    assert result.exit_code == status, result.output
    return result.output


def test_an_operation_is_listed_continued_aborted_and_undone(app: App, redis: Redis, redis_url: str) -> None:
    assert "Nobody has run" in said(redis_url)
    number = operations.begin(app, "ana", Wish("delete", "dead", "", time.time()))
    assert json.loads(said(redis_url, "show", number, "--json"))["status"] == "running"
    assert "aborted" in said(redis_url, "abort", number)
    assert "3 jobs deleted" in said(redis_url, "continue", number)
    assert not redis.exists("dead")
    assert "delete 3: all of dead" in said(redis_url)
    assert "3 put back" in said(redis_url, "undo", number)
    assert redis.zcard("dead") == 3
    assert "cannot be undone" in said(redis_url, "undo", number, status=1)
    assert "no operation '77'" in said(redis_url, "show", "77", status=1)
