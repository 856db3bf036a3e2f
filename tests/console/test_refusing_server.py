"""A server that refuses: full, or a replica. The console says what it is and the way out, and does what can be done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from henchman import App
from henchman.inspector.audit import audited
from henchman.store.call import run
from support.browsing import DEAD, Browser, Shown
from support.replicas import nodes


def act(browser: Browser, page: str, reason: str = "") -> Shown:
    return browser.post(page, {"token": browser.token(page), "reason": reason})


@pytest.fixture
def full(shop: App, redis: Redis) -> Iterator[App]:
    used = int(redis.info("memory")["used_memory"])  # type: ignore[index]
    redis.config_set("maxmemory", used // 2)
    yield shop
    redis.config_set("maxmemory", 0)


def test_on_a_full_server_what_removes_is_done_and_written_down(full: App, redis: Redis) -> None:
    browser = Browser(full.console())
    assert "The server is full: it refuses jobs" in browser.get("/").words
    assert act(browser, f"/dead/{DEAD}/do/delete").status == 303
    assert redis.zcard("dead") == 0
    [line] = run(full.connections, audited(full.keys, "", 0, 9)).entries
    assert (line.act, line.page, line.names, line.outcome) == ("delete", "dead", [DEAD], "done")


def test_what_a_full_server_refuses_is_explained_with_the_way_out(full: App, redis: Redis) -> None:
    browser = Browser(full.console())
    refused = act(browser, "/queues/mail/do/pause", "they are away")
    assert refused.status == 500
    assert "The server refused it" in refused.words
    assert "raise its limit: CONFIG SET maxmemory" in refused.words
    assert {"/dead", "/queues", "/system"} <= set(refused.links)
    assert redis.scard("paused") == 0
    outcomes = [one.outcome for one in run(full.connections, audited(full.keys, "", 0, 9)).entries]
    assert outcomes == ["refused"], "its attempt stands in the audit"


@pytest.mark.timeout(120)
def test_a_console_at_a_replica_says_so_first(tmp_path: Path) -> None:
    with nodes(tmp_path, 2) as (master, replica):
        pushing, looking = (App(redis_url=f"redis://127.0.0.1:{one.port}/0") for one in (master, replica))

        @pushing.job(name="shop.mail", queue="mail")
        def mail(user: int) -> None: ...

        mail.enqueue_many([(one,) for one in range(5)])
        browser = Browser(looking.console())
        words = browser.get("/").words
        assert words.index("This server is a replica") < words.index("No worker is alive")
        assert f"a copy of 127.0.0.1:{master.port}, in step with it" in words
        system = browser.get("/system")
        assert system.status == 200
        assert "nobody may write: this server is a replica" in system.words
        with Redis(port=replica.port) as bare:
            assert "errorstat_READONLY" not in bare.info("errorstats"), "a refused write is tried again for seconds"
        refused = act(browser, "/queues/mail/do/pause")
        assert refused.status == 503
        assert "start the console with the address of its master" in refused.words
        pushing.close()
        looking.close()
