"""How long the next job of a queue may wait: said in the settings of its workers, known to everybody who looks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman import App
from henchman.cli.main import henchman
from henchman.errors import ConfigError
from henchman.inspector.metrics import overview
from henchman.oncall.findings import Finding, findings
from henchman.store.call import run
from henchman.wire.payload import encode
from support.browsing import Browser
from support.worker import working

DEFAULTS = {"mail": {"objective": 20.0}, "prices": {"objective": 5.0}, "elsewhere": {"objective": 1.0}}


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url, queues=["mail", "default", "prices"], queue_defaults=DEFAULTS)

    @made.ordered(queue="prices", name="shop.price")
    def price(claim: dict[str, list[Any]]) -> None: ...

    with working(made):
        pass
    yield made
    made.close()


def wait_for(redis: Redis, queue: str, seconds: float) -> None:
    """A job has waited so long in ``queue``, which a living worker serves."""
    now = time.time()
    info = {"hostname": "h", "pid": 1, "queues": ["mail", "default", "elsewhere"], "concurrency": 1, "started_at": now}
    redis.sadd("processes", "h:1:aaaaaaaaaaaa")
    redis.hset("h:1:aaaaaaaaaaaa", mapping={"info": encode(info), "busy": 0, "beat": repr(now), "quiet": "false"})
    redis.sadd("queues", queue)
    job = {"class": "shop.mail", "jid": "j" * 24, "args": [], "queue": queue, "enqueued_at": now - seconds}
    redis.lpush(f"queue:{queue}", encode(job))


def behind(app: App) -> list[Finding]:
    seen = run(app.connections, overview(app.keys))
    return [one for one in findings(seen) if one.kind == "behind"]


def test_a_worker_tells_what_it_serves_and_takes_back_what_is_not_said_any_more(app: App, redis: Redis) -> None:
    assert redis.hgetall("hm:objectives") == {b"mail": b"20.0", b"prices": b"5.0"}, "elsewhere is not served here"
    redis.hset("hm:objectives", mapping={"other": "3"})
    with working(App(redis_url=app.config.redis_url, queues=["mail", "default"])):
        pass
    assert redis.hgetall("hm:objectives") == {b"prices": b"5.0", b"other": b"3"}


def test_a_queue_over_its_bound_is_found_and_one_below_it_is_not(app: App, redis: Redis) -> None:
    wait_for(redis, "mail", 15)
    assert behind(app) == []
    redis.delete("queue:mail")
    wait_for(redis, "mail", 30)
    [found] = behind(app)
    assert (found.severity, found.page, found.name) == ("warning", "queue", "mail")
    assert "its next job may wait for 20 s" in found.text
    redis.delete("queue:mail")
    wait_for(redis, "mail", 101)
    assert [one.severity for one in behind(app)] == ["critical"]


def test_a_long_bound_is_quiet_where_a_minute_was_said_to_be_late(app: App, redis: Redis) -> None:
    wait_for(redis, "mail", 100)
    redis.hset("hm:objectives", "mail", 600)
    assert behind(app) == []
    redis.hdel("hm:objectives", "mail")
    assert len(behind(app)) == 1


@pytest.mark.parametrize("odd", ["x", "-5", "0", "nan", "inf", "", "1e999"])
def test_what_somebody_else_wrote_there_is_no_bound(app: App, redis: Redis, odd: str) -> None:
    redis.hset("hm:objectives", mapping={"mail": odd})
    wait_for(redis, "mail", 30)
    assert behind(app) == []
    assert [one.objective for one in app.queues.states()] == [None]


def test_an_ordered_queue_has_one_too(app: App, redis: Redis) -> None:
    push = app.ordered_queues["prices"]
    redis.hset("hm:objectives", "prices", "0.000001")
    app.registry.get("shop.price").push("7", 1)
    assert push.stats().length == 1
    [found] = behind(app)
    assert (found.page, found.name) == ("ordered", "prices")


def test_pages_programs_and_the_terminal_say_it(app: App, redis: Redis, redis_url: str) -> None:
    wait_for(redis, "mail", 30)
    wait_for(redis, "default", 1)
    browser = Browser(app.console())
    assert "may 20 s" in browser.get("/queues").words
    assert "May wait 20 s" in browser.get("/queues/mail").words
    assert "May wait" not in browser.get("/queues/default").words
    told = {one["name"]: one["objective"] for one in json.loads(browser.get("/api/v1/queues").text)["items"]}
    assert told == {"default": None, "mail": 20.0}
    assert 'henchman_queue_objective_seconds{queue="mail"} 20' in browser.get("/metrics.prom").text
    shown = CliRunner().invoke(henchman, ["queues", "--redis", redis_url])
    assert "over its 20 s" in shown.output


def test_a_wrong_bound_is_refused_with_its_name(redis_url: str) -> None:
    with pytest.raises(ConfigError, match="objective"):
        App(redis_url=redis_url, queue_defaults={"mail": {"objectiv": 5.0}})
    with pytest.raises(ConfigError, match="-5"):
        App(redis_url=redis_url, queue_defaults={"mail": {"objective": -5}})
