"""One job that waits in a queue, deleted or brought forward from the queue's page or its own; the others stay
where they are."""

from __future__ import annotations

import json

import pytest
from redis import Redis

from henchman import App
from henchman.console.render import tilde
from henchman.wire.payload import encode
from support.browsing import Browser


def ids(redis: Redis, queue: str) -> list[str]:
    return [json.loads(one)["jid"] for one in redis.lrange(f"queue:{queue}", 0, -1)]  # type: ignore[union-attr]


def fill(redis: Redis, queue: str, jids: list[str]) -> None:
    """Jobs with these ids, the last of them the next to run."""
    redis.sadd("queues", queue)
    for jid in jids:
        redis.rpush(f"queue:{queue}", encode({"class": "HardJob", "queue": queue, "args": [], "jid": jid}))


@pytest.mark.parametrize("queue", ["mail", "odd/ü?#<b>"])
def test_one_of_a_queue_is_deleted(app: App, redis: Redis, queue: str) -> None:
    before = [f"{number:024x}" for number in range(4)]
    gone = before[2]
    fill(redis, queue, before)
    browser = Browser(app.console())
    own = browser.get(f"/jobs/{gone}")
    [act] = [link for link in own.links if link.endswith(f"/{gone}/do/delete")]
    assert act in browser.get(act.partition(f"/{gone}")[0]).links, "the page of the queue has it, too"
    assert "It is gone for good" in browser.get(act).words
    done = browser.act(act, act)
    assert done.status == 303
    assert done.headers["location"].startswith(act.partition(f"/{gone}")[0] + "?said=")
    assert ids(redis, queue) == [one for one in before if one != gone]
    again = browser.act(f"/queues/{tilde(queue)}/do/pause", act)
    assert (again.status, "does not wait in" in again.words) == (409, True)
    assert f"{gone} is deleted out of" in browser.get("/audit").words
    assert ids(redis, queue) == [one for one in before if one != gone]


def test_what_hangs_on_it_is_let_go(app: App, redis: Redis) -> None:
    """Its key is free for the next job, and its batch does not wait for it."""

    @app.job(name="pay", key="order", unique="queued")
    def pay(order: int) -> None: ...

    first = pay.enqueue(1)
    browser = Browser(app.console())
    browser.act(act := f"/queues/default/{first.jid}/do/delete", act)
    second = pay.enqueue(1)
    assert ids(redis, "default") == [second.jid] != [first.jid]
    with app.batch("two") as batch:
        left, kept = (pay.using(queue="b").enqueue(number) for number in (2, 3))
    browser.act(act := f"/queues/b/{left.jid}/do/delete", act)
    assert ids(redis, "b") == [kept.jid]
    status = batch.status()
    assert (status.total, status.done, status.state) == (2, 1, "closed")


def test_who_only_looks_is_not_offered_it(app: App, redis: Redis) -> None:
    handle = app.enqueue("HardJob", 1, queue="mail")
    looker = Browser(app.console(authorize=lambda request: "look"))
    for page in ("/queues/mail", f"/jobs/{handle.jid}"):
        assert "/do/delete" not in " ".join(looker.get(page).links)
    assert looker.post(f"/queues/mail/{handle.jid}/do/delete").status == 403
    assert ids(redis, "mail") == [handle.jid]


@pytest.mark.parametrize("queue", ["mail", "odd/ü?#<b>"])
def test_one_of_a_queue_runs_next(app: App, redis: Redis, queue: str) -> None:
    before = [f"{number:024x}" for number in range(4)]
    chosen = before[1]
    fill(redis, queue, before[::-1])
    browser = Browser(app.console())
    page = f"/queues/{tilde(queue)}"
    act = f"{page}/{chosen}/do/next"
    assert act in browser.get(f"/jobs/{chosen}").links
    links = browser.get(page).links
    assert act in links
    assert f"{page}/{before[0]}/do/next" not in links, "it is the next one"
    for _ in range(2):
        assert "before all that wait" in browser.get(act).words
        done = browser.act(act, act)
        assert (done.status, done.headers["location"].startswith(page + "?said=")) == (303, True)
        assert ids(redis, queue)[::-1] == [chosen, before[0], *before[2:]]
    assert "is the next one of" in browser.get("/audit").words
    token = browser.token(act)
    redis.rpop(f"queue:{queue}")
    assert browser.post(act, {"token": token}).status == 409
    looker = Browser(app.console(authorize=lambda request: "look"))
    assert "/do/next" not in " ".join(looker.get(page).links)
    assert looker.post(act).status == 403
    assert ids(redis, queue)[::-1] == [before[0], *before[2:]]


def test_one_of_a_line_is_the_next_of_its_line(app: App, redis: Redis) -> None:
    fill(redis, "f@A", [f"{number:024x}" for number in (2, 1, 0)])
    redis.sadd("queues", "f")
    line = app.queues["f@A"]
    assert line.run_next(f"{2:024x}")
    assert ids(redis, "f@A")[::-1] == [f"{number:024x}" for number in (2, 0, 1)]
    assert not line.run_next("0" * 23 + "9")
