"""What a worker writes down of failures: real runs, on a real server."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.store.failures import MOST_GROUPS, group_errors
from henchman.work.failures import normal
from support.worker import jobs_in, push_raw, settled, until, working


def groups(redis: Redis) -> dict[str, dict[str, Any]]:
    return {
        name.decode(): json.loads(facts)
        for name, facts in redis.hgetall("hm:errors:facts").items()  # type: ignore[union-attr]
        if name
    }


def ask(shop: int) -> None:
    raise TimeoutError(f"shop {shop} at https://user:pw@shop{shop}.example/x?password=1 does not answer")


def sample(at: float, **facts: Any) -> dict[str, Any]:
    found = {"id": "g", "error": "E", "message": "m", "place": "a:b", "trace": ["a.py:1:in b"], "count": 1}
    counts = {"hours": {str(int(at // 3600)): 1}, "jobs": {"act": 1}, "queues": {"q": 1}}
    return {**found, "first": at, "last": at, "jid": "j", **counts, **facts}


def test_failures_of_one_kind_are_one_group(app: App, redis: Redis) -> None:
    @app.job(name="sync", retry=3)
    def sync(shop: int) -> None:
        ask(shop)

    @app.job(name="refund", retry=0, queue="pay")
    def refund(shop: int) -> None:
        if shop:
            ask(shop)
        raise KeyError("customer_id")

    app.configure(queues=["default", "pay"])
    for shop in (77, 78, 79):
        sync.enqueue(shop)
    refund.enqueue(80)
    refund.enqueue(0)
    with working(app):
        settled(redis, 5)
    found = {(one["error"], one["count"]): one for one in groups(redis).values()}
    assert found.keys() == {("TimeoutError", 3), ("TimeoutError", 1), ("KeyError", 1)}, "by where it was raised"
    sums = found["TimeoutError", 3]
    assert sums["place"].startswith("test_error_groups:ask < test_error_groups:test_failures_of_one_kind")
    assert (sums["jobs"], sums["queues"], sum(sums["hours"].values())) == ({"sync": 3}, {"default": 3}, 3)
    assert "does not answer" in sums["message"]
    assert ":pw@" not in sums["message"]
    assert time.time() - 60 < sums["first"] <= sums["last"]
    names = {name for name, one in groups(redis).items() if one == sums}
    assert {job["error_group"] for job in jobs_in(redis, "retry")} == names, "the payload names its group"
    trace = json.loads(redis.hget("hm:errors:traces", names.pop()))  # type: ignore[arg-type]
    assert trace[0].endswith(":in ask")
    assert {redis.ttl(f"hm:errors{part}") > 86400 for part in ("", ":facts", ":traces")} == {True}


def test_a_beat_writes_them_and_they_add_up(app: App, redis: Redis) -> None:
    app.configure(heartbeat=0.1)

    @app.job(name="act", retry=0)
    def act() -> None:
        raise ValueError("broken")

    with working(app):
        for many in (1, 2):
            act.enqueue()
            until(lambda many=many: [one["count"] for one in groups(redis).values()] == [many], "it shows up")
    assert redis.zcard("hm:errors") == 1


def test_a_caused_error_tells_its_cause_and_a_wrong_payload_is_none(app: App, redis: Redis) -> None:
    @app.job(name="act", retry=0)
    def act() -> None:
        try:
            ask(1)
        except TimeoutError as error:
            raise RuntimeError("no order") from error

    act.enqueue()
    push_raw(redis, "{nonsense")
    with working(app):
        until(lambda: redis.zcard("dead") == 2, "both are dead")
    [trace] = [json.loads(one) for one in redis.hvals("hm:errors:traces")]  # type: ignore[union-attr]
    assert "caused by TimeoutError" in trace
    assert any(line.endswith(":in ask") for line in trace)


def test_the_oldest_groups_go_and_are_counted(app: App, redis: Redis) -> None:
    now = time.time()
    for first in range(0, MOST_GROUPS + 20, 20):
        rows = [sample(now + number, id=f"g{number}") for number in range(first, first + 20)]
        app.connections.run(group_errors(app.keys, rows, now))
    assert redis.zcard("hm:errors") == redis.hlen("hm:errors:traces") == MOST_GROUPS
    assert redis.hget("hm:errors:facts", "") == b"20"
    assert "g19" not in groups(redis)
    assert "g20" in groups(redis)


def test_one_group_stays_small_and_old_ones_go(app: App, redis: Redis) -> None:
    now = time.time()
    for hour in range(100):
        at = now - (100 - hour) * 3600
        one = sample(at, jobs={f"job{hour}": 1}, queues={f"q{hour}": 1}, jid=f"j{hour}")
        app.connections.run(group_errors(app.keys, [one], at))
    app.connections.run(group_errors(app.keys, [sample(now - 9999, count=5, jid="late")], now))
    facts = groups(redis)["g"]
    assert (facts["count"], facts["jid"]) == (105, "j99"), "the last one is the example"
    assert len(facts["hours"]) <= 48
    assert len(facts["jobs"]) <= 21
    assert len(facts["queues"]) <= 21
    redis.hset("hm:errors:facts", "g", "nonsense")
    app.connections.run(group_errors(app.keys, [sample(now, id="x")], now + 15 * 86400))
    assert groups(redis).keys() == {"x"}, "what was not seen for 14 days is forgotten, whatever stands there"


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("shop 77 does not answer", "shop • does not answer"),
        ("Read timed out. (read timeout=30.5)", "Read timed out. (read timeout=•)"),
        ("no user a.b+c@mail.example.org, sorry", "no user •, sorry"),
        ("https://user:pw@pay.example/77?x=1 refused", "• refused"),
        ("KeyError: 'customer id 7' and \"a b\" can't be, won't be", "KeyError: • and • can't be, won't be"),
        ("[Errno 2] No such file: '/srv/data/a.csv'", "[Errno •] No such file: •"),
        ("cannot open /srv/data/a.csv or and/or", "cannot open • or and/or"),
        ("job 9f31c2aa-0001-4abc-8def-0123456789ab at 0x7f3a and deadbeef01", "job • at • and •"),
        ("connect to 10.0.0.12:6379 failed at 03:01:22", "connect to • failed at •"),
        ("facade decade", "facade decade"),
        ("", ""),
    ],
)
def test_what_varies_from_job_to_job_makes_no_group(message: str, kept: str) -> None:
    assert normal(message) == kept
