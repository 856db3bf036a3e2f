"""What middleware, hooks and jobs do to the payload that they are given: a job's end is found from what was stored, so
its key, batch and cron hear of it all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from henchman import App, ArgumentError, Kill, current_job
from support.locks import left_of_keys
from support.store import Store
from support.worker import jobs_in, until, working


def empty(job: dict[str, Any]) -> None:
    """What somebody does who takes a payload for his own."""
    job.get("hm", {}).clear()
    job.clear()


def replace(job: dict[str, Any]) -> None:
    job["hm"] = {}
    job["jid"] = "0" * 24


def reach_inside(job: dict[str, Any]) -> None:
    job["hm"].pop("key", None)
    job["hm"].pop("batch", None)


def _server_middleware(app: App, meddle: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    def link(run: Any, call_next: Callable[[], Any]) -> Any:
        meddle(run.payload)
        try:
            return call_next()
        finally:
            meddle(run.payload)

    app.server_middleware.add(link)
    return {}


def _the_job_itself(app: App, meddle: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    return {"meddle": meddle}


def _error_handler(app: App, meddle: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    app.error_handlers.append(lambda error, facts: meddle(facts["job"]))
    return {}


def _death_handler(app: App, meddle: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    app.death_handlers.append(lambda job, error: meddle(job))
    return {}


def _retry_in(app: App, meddle: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    def soon(count: int, error: BaseException, job: dict[str, Any]) -> float:
        meddle(job)
        return 0.05

    return {"retry_in": soon}


def _exhausted(app: App, meddle: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    return {"retries_exhausted": lambda job, error: meddle(job)}


MEDDLERS = [_server_middleware, _the_job_itself, _error_handler, _death_handler, _retry_in, _exhausted]


@pytest.mark.parametrize("meddle", [empty, replace, reach_inside])
@pytest.mark.parametrize("meddler", MEDDLERS)
def test_a_key_and_a_batch_hear_of_each_end(
    store: Store, app: App, meddler: Callable[..., dict[str, Any]], meddle: Callable[[dict[str, Any]], None]
) -> None:
    options = {"retry_in": 0.05, **meddler(app, meddle)}
    itself = options.pop("meddle", lambda payload: None)

    @app.job(name="pay", key="order", unique=("until_success", "running"), retry=1, **options)
    def pay(order: str, way: str) -> None:
        itself(current_job().payload)
        if way == "dead" and "may_succeed" not in options:
            raise Kill("no")
        if way == "retried" and current_job().attempt == 1:
            raise ValueError("no")

    with app.batch("many") as batch:
        for way in ("done", "retried", "dead"):
            pay.enqueue(way, way)
    with working(app):
        until(lambda: batch.status().done == 3, "the batch knows how each ended")
        until(lambda: not left_of_keys(store), "no key is held any more")
        assert (batch.status().counts["finished"], batch.status().counts["error"]) == (2, 1)
        options["may_succeed"] = True
        assert batch.retry() == 1
        until(lambda: batch.status().well, "the dead one, retried, was stored as it was pushed")


@pytest.mark.parametrize("meddler", [_error_handler, _retry_in])
def test_what_is_stored_is_what_was_pushed(
    store: Store, app: App, redis: Any, meddler: Callable[..., dict[str, Any]]
) -> None:
    def longer(job: dict[str, Any]) -> None:
        job["args"].append("more")
        job["hm"]["timeout"] = 1

    options = meddler(app, longer)

    @app.job(name="pay", timeout=60, retry=3, **{"retry_in": 600, **options})
    def pay(order: str) -> None:
        raise ValueError("no")

    pay.using(timeout=70).enqueue("one")
    with working(app):
        until(lambda: redis.zcard("retry") or redis.zcard("schedule"), "it waits for its retry")
        (stored,) = jobs_in(redis, "retry")
    assert (stored["args"], stored["hm"]) == (["one"], {"timeout": 70})


@pytest.mark.parametrize("meddle", [empty, replace, reach_inside])
def test_what_becomes_due_keeps_its_key(store: Store, app: App, meddle: Callable[[dict[str, Any]], None]) -> None:
    """Client middleware sees a job again when it becomes due."""
    seen: list[str] = []

    @app.job(name="pay", key="order", unique="until_success")
    def pay(order: str) -> None:
        seen.append(order)

    def link(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        if job["args"] == ["later"] and "pushed" in seen:
            name, args = job["class"], job["args"]
            meddle(job)
            job |= {"class": name, "args": args, "queue": "default"}
        return call_next()

    app.client_middleware.add(link)
    pay.using(delay=0.2).enqueue("later")
    seen.append("pushed")
    with working(app):
        until(lambda: "later" in seen, "it has run")
        until(lambda: not left_of_keys(store), "no key is held any more")


def test_a_cron_keeps_its_key(store: Store, app: App) -> None:
    ran: list[int] = []

    @app.cron(every=0.2, overlap="skip")
    @app.job(name="tick", key=lambda: "one", unique="until_success")
    def tick() -> None:
        ran.append(1)

    def link(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        job["hm"] = {}
        return call_next()

    app.client_middleware.add(link)
    with working(app):
        until(lambda: len(ran) >= 3, "each tick comes, for the one before has ended")
    assert not left_of_keys(store)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("field", ["key", "once_for"])
def test_a_link_of_a_push_that_takes_the_key_away_is_told(store: Store, app: App, field: str, many: bool) -> None:
    @app.job(name="pay", key="order", once=True, once_for=3600)
    def pay(order: str) -> None: ...

    def link(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        del job["hm"][field]
        return call_next()

    app.client_middleware.add(link)
    with pytest.raises(ArgumentError, match="a client middleware changed the jid"):
        pay.enqueue_many([("a",)]) if many else pay.enqueue("a")
    assert not left_of_keys(store)


@pytest.mark.parametrize("many", [False, True])
def test_a_link_of_a_push_that_takes_a_job_out_of_its_batch_is_told(store: Store, app: App, many: bool) -> None:
    @app.job(name="pay")
    def pay(order: str) -> None: ...

    def link(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        job["hm"] = {}
        return call_next()

    app.client_middleware.add(link)
    with app.batch("many"), pytest.raises(ArgumentError, match=r"a client middleware took job .* out of batch"):
        pay.enqueue_many([("a",)]) if many else pay.enqueue("a")
