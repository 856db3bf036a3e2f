"""When retries and scheduled jobs come due, and spreading those that come at once."""

from __future__ import annotations

import json
import time
from typing import Any

from redis import Redis

from console.test_bulk import _alone, put
from henchman import App
from henchman.inspector.due import due_times, peak_of, spread_time
from henchman.inspector.operations import begin as begin_operation
from henchman.inspector.operations import operation, to_spread
from henchman.inspector.operator import carry_out
from henchman.inspector.sets import JobSet
from henchman.store.call import command, run
from henchman.store.queues import Level
from henchman.wire.payload import encode
from support.browsing import XSS, Browser
from support.worker import until

__all__ = ["_alone"]


def storm(app: App, many: int, at: float, word: str = "sync") -> None:
    """So many retries that fall due at one time."""
    now = time.time()
    job = {"class": word, "queue": "q", "args": [], "retry": 5, "retry_count": 0, "created_at": now, "failed_at": now}
    job |= {"error_class": "E", "error_message": XSS}
    pairs: list[Any] = []
    for number in range(many):
        pairs += [at, encode({**job, "jid": f"{word}{number:020}"})]
    app.connections.run(command("ZADD", app.keys.retry, *pairs))


def ran(redis: Redis, now: float, a_minute: int) -> None:
    """What workers wrote down of the last five minutes."""
    for back in range(5, -1, -1):
        redis.lpush("hm:levels", encode({"at": now - 60 * back, "processed": (5 - back) * a_minute, "sizes": {}}))


def state(app: App, number: str) -> str:
    """How an operation stands."""
    one = run(app.connections, operation(app.keys, number))
    return one.state if one else ""


def test_the_server_counts_by_the_minute_and_by_half_an_hour(app: App, redis: Redis) -> None:
    now = 1_795_000_000.0 // 3600 * 3600 + 1830.0
    for at in (now - 600, now - 1, now + 1, now + 61, now + 3540, now + 3600, now + 7200, now + 100_000):
        redis.zadd("retry", {f"{at}": at})
    hour = run(app.connections, due_times(app.keys, "retry", now))
    assert (hour.since, hour.step, hour.overdue, hour.later) == (now - 30, 60, 1, 3)
    assert [(bar, many) for bar, many in enumerate(hour.counts) if many] == [(0, 2), (1, 1), (59, 1)]
    day = run(app.connections, due_times(app.keys, "retry", now, "day"))
    assert (day.step, day.overdue, sum(day.counts), day.later) == (1800, 1, 6, 1)
    assert day.ran is None
    assert len(day.counts) == 48


def test_a_peak_is_more_than_workers_run(app: App, redis: Redis) -> None:
    now = 1_795_000_000.0 // 60 * 60
    redis.zadd("retry", {f"{number}": now + 120 for number in range(300)})
    ran(redis, now, 100)
    found = run(app.connections, due_times(app.keys, "retry", now))
    assert found.ran == 100
    assert found.peak == (now + 120, 300)
    assert found.to_json()["peak"] is not None
    redis.delete("hm:levels")
    ran(redis, now, 200)
    assert run(app.connections, due_times(app.keys, "retry", now)).peak is None
    assert Level.__struct_fields__ == ("at", "processed", "sizes", "ran")


def test_a_storm_is_spread_and_nothing_runs_before_its_time(app: App, redis: Redis) -> None:
    begin = time.time() // 60 * 60 + 300
    storm(app, 500, begin + 30)
    storm(app, 3, begin - 200, "early")
    storm(app, 3, begin + 5000, "late")
    before = dict(redis.zrange("retry", 0, -1, withscores=True))
    wish = to_spread(app, "retries", "", time.time() + 1, 600)
    assert wish.to == begin
    browser = Browser(app.console())
    moment = str(int(time.time()))
    asked = browser.get(f"/retries/{moment}/do/spread")
    assert "to be spread over the minutes that you choose" in asked.words
    assert "None runs before its time." in asked.words
    act = f"/retries/{moment}/do/spread"
    assert browser.post(act, {"token": browser.token(act), "over": "600"}).status == 303
    until(lambda: state(app, "1") == "done", "the operation has ended")
    after = dict(redis.zrange("retry", 0, -1, withscores=True))
    assert before.keys() == after.keys()
    assert all(after[job] >= before[job] for job in after)
    assert {after[job] - before[job] for job in after if b'"sync' not in job} == {0.0}
    times = [score for job, score in after.items() if b'"sync' in job]
    assert max(times) <= begin + 600
    minutes = [sum(begin + 60 * bar <= at < begin + 60 * bar + 60 for at in times) for bar in range(10)]
    assert max(minutes) < 120, "it was 500 within one"
    assert browser.act("/operations/1", "/operations/1/do/undo").status == 303
    until(lambda: dict(redis.zrange("retry", 0, -1, withscores=True)) == before, "it was taken back")


def test_who_goes_on_after_a_death_spreads_nothing_twice(app: App, redis: Redis) -> None:
    begin = time.time() // 60 * 60 + 300
    storm(app, 50, begin + 30)
    wish = to_spread(app, "retries", "", time.time() + 1, 600)
    [one, *_] = JobSet(app, "retries").between()
    assert spread_time(one, begin, 600) == spread_time(one, begin, 600)
    first = begin_operation(app, "ana", wish)
    assert carry_out(app, first)
    spread = redis.zrange("retry", 0, -1, withscores=True)
    moved = run(app.connections, operation(app.keys, first))
    assert moved is not None
    assert moved.done > 0
    assert f"{moved.done} jobs spread over 10 min" in moved.result
    redis.hset(f"hm:operation:{first}", mapping={"state": "running", "slice": ""})
    redis.sadd("hm:operations:open", first)
    carry_out(app, first)
    assert redis.zrange("retry", 0, -1, withscores=True) == spread


def test_what_is_overdue_is_spread_from_now_on(app: App, redis: Redis) -> None:
    storm(app, 40, time.time() - 5)
    frozen = time.time() + 1
    assert peak_of(JobSet(app, "retries").between(), frozen, 100) == frozen
    assert carry_out(app, begin_operation(app, "ana", to_spread(app, "retries", "", frozen, 600)))
    scores = [score for _, score in redis.zrange("retry", 0, -1, withscores=True)]
    assert min(scores) >= frozen
    assert max(scores) <= frozen + 600


def test_the_pages_show_when_and_offer_to_spread(app: App, redis: Redis) -> None:
    now = time.time()
    ran(redis, now, 60)
    storm(app, 300, now // 60 * 60 + 150)
    put(app, "schedule", "later", 3, at=now + 7200)
    browser = Browser(app.console())
    page = browser.get("/retries")
    assert "300 fall due within a minute" in page.words
    assert "Workers ran 60 a minute lately." in page.words
    assert [link for link in page.links if link.endswith("/do/spread")]
    assert "do/spread" not in Browser(app.console(authorize=lambda request: "look")).get("/retries").text
    assert "300 due in the next day" in browser.get("/retries?by=day").words
    assert "fall due within" not in browser.get("/retries?by=day").words, "workers ran 1,800 in half an hour"
    found = browser.get("/retries?q=class%3Async")
    assert [link for link in found.links if link.endswith("/do/spread-found")]
    scheduled = browser.get("/scheduled").words
    assert "0 due in the next hour 3 later" in scheduled
    assert "do/spread" not in browser.get("/dead").text
    redis.delete("retry")
    assert "When they are due" not in browser.get("/retries").words


def test_the_finding_of_a_storm_leads_to_the_act(app: App, redis: Redis) -> None:
    storm(app, 1200, time.time() + 30)
    redis.set("stat:processed", 1)
    browser = Browser(app.console())
    page = browser.get("/")
    assert "1,200 retries fall due within a minute." in page.words
    [act] = [link for link in page.links if link.endswith("/do/spread")]
    assert "to be spread over the minutes that you choose" in browser.get(act).words
    [told] = [one for one in json.loads(browser.get("/api/v1/findings").text)["items"] if one["kind"] == "retry storm"]
    assert (told["act"]["page"], told["act"]["act"]) == ("retries", "spread")
    assert "do/spread" not in Browser(app.console(authorize=lambda request: "look")).get("/").text


def test_programs_ask_when(app: App, redis: Redis) -> None:
    storm(app, 300, time.time() // 60 * 60 + 150)
    browser = Browser(app.console())
    told = json.loads(browser.get("/api/v1/retries/due").text)
    assert (told["step"], sum(told["counts"]), told["overdue"], told["ran"]) == (60, 300, 0, None)
    assert told["peak"] is not None
    assert json.loads(browser.get("/api/v1/scheduled/due?span=day").text)["step"] == 1800
    assert browser.get("/api/v1/retries/due?span=week").status == 400
    wish = {"page": "retries", "act": "spread", "names": [str(int(time.time()))], "form": {"over": "3600"}}
    done = browser.send("/api/v1/acts", json.dumps(wish).encode(), {"content-type": "application/json"})
    assert done.status == 200, done.text
    until(lambda: state(app, "1") == "done", "the operation has ended")
    assert "jobs spread over 1 h" in browser.get("/operations/1").words
