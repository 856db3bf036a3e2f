"""The answer to an act by hand is lost, and the act is sent again: it says what was done, by either sending."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.kernel import failpoints
from henchman.store.call import load
from support.locks import KEY, OURS, SCOPE, holder, job, lock
from support.store import Store
from support.worker import jobs_in, working

MANY = 3


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    with closing(App(redis_url=redis_url)) as made:
        made.job(name="act")(lambda number: None)
        made.ordered(name="sync", queue="ids")(lambda claim: None)
        made.ordered(name="other", queue="others")(lambda claim: None)
        yield made


def dropping(redis: Redis, script: str, act: Callable[[], Any]) -> Any:
    """What ``act`` says when the first answer to ``script``, which the server knows and executes, is lost."""
    redis.script_load(load(script).text)
    failpoints.open_points(f"drop@{script}:after#1")
    try:
        return act()
    finally:
        assert failpoints._passed[f"{script}:after"] > 1, "it was sent again"
        failpoints.close()


def scheduled(app: App, delay: float = 600) -> None:
    app.registry.get("act").using(delay=delay).enqueue_many([(number,) for number in range(MANY)])  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", ["list", "matching", "all"])
@pytest.mark.parametrize(("act", "left"), [("retry", "queue:default"), ("kill", "dead"), ("delete", "")])
def test_entries_of_a_set(app: App, redis: Redis, where: str, act: str, left: str) -> None:
    scheduled(app)
    if where == "all":
        entries: Any = None
        act = {"delete": "clear"}.get(act, f"{act}_all")
    else:
        entries = list(app.scheduled) if where == "list" else app.scheduled.matching("act")
    done = dropping(redis, "move", lambda: getattr(app.scheduled, act)(*([entries] if entries is not None else [])))
    assert (done.done, done.gone, done.stayed) == (MANY, 0, 0)
    assert redis.zcard("schedule") == 0
    assert not left or len(jobs_in(redis, left)) == MANY


def test_one_that_is_really_gone_is_gone(app: App, redis: Redis) -> None:
    scheduled(app)
    entries = list(app.scheduled)
    redis.zrem("schedule", entries[0].payload)
    failpoints.open_points("drop@move:before#1")
    try:
        done = app.scheduled.delete(entries)
    finally:
        failpoints.close()
    assert (done.done, done.gone) == (MANY - 1, 1), "the first sending was not executed"


@pytest.mark.parametrize("act", ["reschedule", "queue"])
def test_single_entries(app: App, redis: Redis, act: str) -> None:
    if act == "reschedule":
        scheduled(app)
        (entry, *_) = list(app.scheduled)
        assert dropping(redis, "move", lambda: app.scheduled.reschedule(entry, 4e9))
        assert [score for _, score in redis.zrange("schedule", 0, -1, withscores=True)][-1] == 4e9  # type: ignore[misc]
    else:
        app.registry.get("act").enqueue(1)  # type: ignore[attr-defined]
        [jid] = [one["jid"] for one in jobs_in(redis, "queue:default")]
        assert dropping(redis, "remove", lambda: app.queues["default"].delete(jid))
        assert redis.llen("queue:default") == 0


def test_a_batch_is_cancelled_page_by_page(app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that was taken out twice, as it seemed, let the place of the next one slip: jobs were passed over."""
    monkeypatch.setattr("henchman.store.queues.SEARCHED", 2)
    with app.batch("many") as batch:
        app.registry.get("act").using(delay=600).enqueue_many([(number,) for number in range(9)])  # type: ignore[attr-defined]
    dropping(redis, "move", batch.cancel)
    assert redis.zcard("schedule") == 0
    assert batch.status().counts["cancelled"] == 9


def test_a_batch_is_retried_page_by_page(app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("henchman.batch.procedures.PAGE", 2)
    fails = [True]

    @app.job(name="fails", retry=0)
    def may_fail(number: int) -> None:
        if fails:
            raise ValueError("no")

    with app.batch("many") as batch:
        may_fail.enqueue_many([(number,) for number in range(5)])
    with working(app) as launcher:
        while batch.status().counts["error"] < 5:
            launcher.acker.stopping.wait(0.02)
    assert dropping(redis, "batch_retry", batch.retry) == 5
    assert redis.llen("queue:default") == 5


def test_a_batch_is_retried_but_for_those_whose_key_another_job_has(
    app: App, redis: Redis, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were counted as pushed, and looked at again, after a lost answer."""
    monkeypatch.setattr("henchman.batch.procedures.PAGE", 2)

    @app.job(name="fails", retry=0, key="number", unique="until_success")
    def may_fail(number: int) -> None:
        raise ValueError("no")

    with app.batch("many") as batch:
        may_fail.enqueue_many([(number,) for number in range(5)])
    with working(app) as launcher:
        while batch.status().counts["error"] < 5:
            launcher.acker.stopping.wait(0.02)
    dead = [json.loads(one)["args"][0] for one in redis.zrange(f"hm:batch:{batch.id}:dead", 0, -1)]  # type: ignore[union-attr]
    for place in (0, 3):
        lock(store, "u", OURS, scope="fails", key=str(dead[place]))
    assert dropping(redis, "batch_retry", batch.retry) == 3
    assert redis.llen("queue:default") == 3
    assert redis.zcard(f"hm:batch:{batch.id}:dead") == 2
    assert batch.status().counts["error"] == 2


def test_a_key_is_unlocked(app: App, redis: Redis, store: Store) -> None:
    lock(store, "u", OURS)
    store.ask("ZADD", "dead", 1, job(OURS, "u"))
    (state,) = dropping(redis, "unlock", lambda: app.keys.unlock(SCOPE, KEY))
    assert state.jid == OURS
    assert holder(store, "u") is None


@pytest.mark.parametrize("verb", ["pause", "resume", "remove"])
def test_a_cron(app: App, redis: Redis, verb: str) -> None:
    app.crons.add("often", "act", "0 0 1 1 *", args=[1])
    if verb == "resume":
        app.crons.pause("often")
    script = "cron_remove" if verb == "remove" else "cron_switch"
    assert dropping(redis, script, lambda: getattr(app.crons, verb)("often")) is True


@pytest.mark.parametrize(
    ("act", "script"), [("move_to", "ordered_move"), ("run_now", "ordered_act"), ("revive", "ordered_act")]
)
def test_ids_of_an_ordered_queue(app: App, redis: Redis, act: str, script: str) -> None:
    queue, names = app.ordered_queues["ids"], ("a", "b")
    for name in names:
        app.registry.get("sync").push(name, 1)  # type: ignore[attr-defined]
    if act == "revive":
        assert queue.kill(*names).done == 2
    target = ("others",) if act == "move_to" else ()
    done = dropping(redis, script, lambda: getattr(queue, act)(*target, *names))
    assert (done.done, done.gone) == (2, 0)
