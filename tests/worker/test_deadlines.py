"""Deadlines: over all attempts of a job, while it waits for a time, a retry, others or a key, and while it runs."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import create_engine, orm

from henchman import App, Concurrent, JobTimeout, Snooze, current_job, testing
from henchman.client.prepared import in_outbox, prepare
from henchman.contrib.sqlalchemy import bind
from henchman.cron.definition import build_tick
from henchman.cron.definition import define as define_cron
from henchman.errors import ArgumentError
from henchman.outbox.rows import StoredRow, push_of, rows_of
from henchman.wire.times import iso
from henchman.worker.watchdog import Watchdog
from support import isolated
from support.store import Store
from support.worker import Heard, jobs_in, push_raw, settled, until, working


def stored(redis: Redis, deadline: float, **fields: Any) -> bytes:
    """A payload with a deadline ``deadline`` seconds from the server's now."""
    job = {"class": "work", "args": [], "jid": "a" * 24, "queue": "default", "created_at": server(redis)}
    return json.dumps(job | {"hm": {"deadline": server(redis) + deadline}} | fields).encode()


def server(redis: Redis) -> float:
    seconds, micros = redis.time()  # type: ignore[misc]
    return float(seconds) + micros / 1e6


def define(app: App, **options: Any) -> tuple[Any, list[int]]:
    ran: list[int] = []

    @app.job(name="work", **options)
    def work(how: str = "") -> None:
        ran.append(current_job().attempt)
        if how == "error":
            raise ValueError("no")
        if how == "snooze":
            raise Snooze(3600)
        end = time.monotonic() + 30
        while how == "sleep" and time.monotonic() < end:
            time.sleep(0.01)

    return work, ran


def left(redis: Redis) -> set[str]:
    """Names of what holds jobs still."""
    names = {"retry", "schedule", "dead", "queue:default", "hm:parked", "hm:parked:until"}
    return {name for name in names if redis.exists(name)}


# --- what the payload says --------------------------------------------------------------------------------------------


def test_the_payload_says_when_the_job_is_over_by_the_clock_of_the_server(app: App, redis: Redis) -> None:
    work, _ = define(app, deadline=60)
    now = server(redis)
    moment = dt.datetime.fromtimestamp(now + 500, dt.UTC)
    work.enqueue()
    work.using(delay=100).enqueue()
    work.using(at=dt.datetime.fromtimestamp(now + 200, dt.UTC)).enqueue()
    work.using(deadline=moment).enqueue()
    work.using(deadline=0).enqueue()
    work.enqueue_many([()])
    jobs = jobs_in(redis, "queue:default")
    said = [one.get("hm", {}).get("deadline") for one in jobs]
    assert said[0] == pytest.approx(now + 60, abs=5)
    assert said[1] == pytest.approx(moment.timestamp(), abs=0.001)
    assert said[2] is None
    assert said[3] == pytest.approx(now + 60, abs=5)
    later = sorted(one["hm"]["deadline"] for one in jobs_in(redis, "schedule"))
    assert later == [pytest.approx(now + 160, abs=5), pytest.approx(now + 260, abs=0.01)]


def test_a_job_with_a_key_says_so_too(app: App, redis: Redis) -> None:
    @app.job(name="charge", key="order", once=True, deadline=60)
    def charge(order: int) -> None: ...

    charge.enqueue(7)
    (job,) = jobs_in(redis, "queue:default")
    assert job["hm"]["deadline"] == pytest.approx(server(redis) + 60, abs=5)
    assert job["hm"]["key"] == ["charge", "7", "o"]
    assert redis.hget("hm:lock:o:charge", "7")


def test_what_would_be_due_after_its_deadline_is_refused(app: App, redis: Redis) -> None:
    work, _ = define(app)
    soon = dt.datetime.fromtimestamp(server(redis) + 60, dt.UTC)
    with pytest.raises(ArgumentError, match="after its deadline"):
        work.using(delay=3600, deadline=soon).enqueue()
    assert not redis.exists("schedule")


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
def test_a_clock_of_the_producer_that_is_an_hour_off_does_no_harm(
    app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    work, ran = define(app, deadline=60)
    right = time.time
    with monkeypatch.context() as patch:
        patch.setattr("time.time", lambda: right() + ahead)
        work.enqueue()
    (job,) = jobs_in(redis, "queue:default")
    assert job["hm"]["deadline"] == pytest.approx(server(redis) + 60, abs=5)
    with working(app):
        settled(redis, 1)
    assert ran == [1]


# --- who waits --------------------------------------------------------------------------------------------------------


def test_one_that_never_started_has_expired(app: App, redis: Redis) -> None:
    define(app)
    heard = Heard(app, "job_failed")
    _, ran = define(App(redis_url=app.config.redis_url))
    push_raw(redis, stored(redis, -1))
    with working(app):
        until(lambda: heard["job_failed"], "it has ended")
        until(lambda: not redis.llen("queue:default"), "its queue is empty")
    (told,) = heard["job_failed"]
    assert (told["outcome"].ending, told["outcome"].cause) == ("expired", "deadline")
    assert not ran
    assert left(redis) == set()


def test_one_that_had_begun_is_dead(app: App, redis: Redis) -> None:
    _, ran = define(app)
    failed = {"retry_count": 0, "error_class": "ValueError", "error_message": "no", "failed_at": server(redis)}
    push_raw(redis, stored(redis, -1, retry=5, **failed))
    with working(app):
        until(lambda: redis.zcard("dead"), "it is dead")
    (job,) = jobs_in(redis, "dead")
    assert (job["error_class"], job["error_cause"]) == ("JobDeadline", "deadline")
    assert not ran
    assert left(redis) == {"dead"}


@pytest.mark.parametrize(("where", "begun"), [("schedule", False), ("schedule", True), ("retry", True)])
def test_one_that_waits_for_its_time_ends_without_a_start(app: App, redis: Redis, where: str, begun: bool) -> None:
    _, ran = define(app)
    failed = {"retry_count": 1, "error_class": "ValueError", "error_message": "no", "failed_at": server(redis)}
    redis.zadd(where, {stored(redis, -1, **(failed if begun else {})): server(redis) - 0.5})
    with working(app):
        until(lambda: not redis.exists(where), "it waits no longer")
        until(lambda: redis.zcard("dead") == int(begun), "it is where it belongs")
    if begun:
        (job,) = jobs_in(redis, "dead")
        assert (job["error_class"], job["error_message"], job["error_cause"]) == ("ValueError", "no", "deadline")
    assert not ran
    assert left(redis) == ({"dead"} if begun else set())


def test_a_retry_that_would_come_after_the_deadline_ends_at_once(app: App, redis: Redis) -> None:
    work, ran = define(app, deadline=60, retry=25, retry_in=3600)
    heard = Heard(app, "job_failed")
    work.enqueue("error")
    with working(app):
        until(lambda: redis.zcard("dead"), "it is dead")
        until(lambda: heard["job_failed"], "an event tells")
    (job,) = jobs_in(redis, "dead")
    assert (job["error_class"], job["error_message"], job["error_cause"]) == ("ValueError", "no", "deadline")
    assert heard["job_failed"][0]["outcome"].cause == "deadline"
    assert ran == [1]
    assert left(redis) == {"dead"}
    (counted,) = app.metrics(name="work").classes
    assert counted.causes == {"deadline": 1}


def test_the_deadline_is_the_same_for_all_attempts(app: App, redis: Redis) -> None:
    work, ran = define(app, deadline=600, retry=3, retry_in=0)
    work.enqueue("error")
    (job,) = jobs_in(redis, "queue:default")
    with working(app):
        until(lambda: redis.zcard("dead"), "it is dead")
    (dead,) = jobs_in(redis, "dead")
    assert ran == [1, 2, 3, 4]
    assert dead["hm"]["deadline"] == job["hm"]["deadline"]
    assert "error_cause" not in dead


def test_who_puts_itself_off_until_after_its_deadline_is_dead(app: App, redis: Redis) -> None:
    work, _ = define(app, deadline=60)
    work.enqueue("snooze")
    work.using(deadline=7200).enqueue("snooze")
    with working(app):
        until(lambda: redis.zcard("dead") and redis.zcard("schedule"), "both have ended")
    (dead,), (waits,) = jobs_in(redis, "dead"), jobs_in(redis, "schedule")
    assert (dead["error_class"], dead["error_cause"]) == ("JobDeadline", "deadline")
    assert waits["hm"]["begun"] is True


# --- who runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, 600])
def test_a_run_ends_with_the_deadline_of_its_job(app: App, redis: Redis, timeout: float | None) -> None:
    raised: list[type[BaseException]] = []
    limits: list[float] = []

    @app.job(name="slow", timeout=timeout, retry=25)
    def slow() -> None:
        limits.append((current_job().deadline or 0) - time.monotonic())
        try:
            end = time.monotonic() + 30
            while time.monotonic() < end:
                time.sleep(0.01)
        except JobTimeout as error:
            raised.append(type(error))
            raise

    heard = Heard(app, "job_failed")
    slow.using(deadline=0.5).enqueue()
    with working(app):
        until(lambda: redis.zcard("dead"), "it is dead")
        until(lambda: heard["job_failed"], "an event tells")
    (job,) = jobs_in(redis, "dead")
    assert (job["error_class"], job["error_cause"]) == ("JobDeadline", "deadline")
    assert "its deadline passed while it ran" in job["error_message"]
    assert raised == [JobTimeout]
    assert 0 < limits[0] <= 0.6
    assert heard["job_failed"][0]["outcome"].cause == "deadline"
    assert left(redis) == {"dead"}


def test_a_time_out_before_the_deadline_is_one(app: App, redis: Redis) -> None:
    work, _ = define(app, timeout=0.2, deadline=600, retry=0)
    work.enqueue("sleep")
    with working(app):
        until(lambda: redis.zcard("dead"), "it is dead")
    (job,) = jobs_in(redis, "dead")
    assert (job["error_class"], job["error_cause"]) == ("JobTimeout", "timeout")
    assert job["error_message"] == "the job ran longer than its timeout of 0.2 s"


def test_an_async_run_ends_with_it_too(app: App, redis: Redis) -> None:
    @app.job(name="slow", retry=5)
    async def slow() -> None:
        await asyncio.sleep(30)

    slow.using(deadline=0.3).enqueue()
    with working(app):
        until(lambda: redis.zcard("dead"), "it is dead")
    (job,) = jobs_in(redis, "dead")
    assert (job["error_class"], job["error_cause"]) == ("JobDeadline", "deadline")


@pytest.mark.parametrize("grace", [30.0, 0.2])
def test_a_handler_in_a_call_of_c_ends_by_its_deadline_once(
    app: App, redis: Redis, grace: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception comes when the call returns; a worker that loses patience earlier ends the job beside it."""
    monkeypatch.setattr(Watchdog.__init__, "__defaults__", (grace,))
    left_at: list[float] = []

    @app.job(name="inside", retry=25)
    def inside() -> None:
        try:
            time.sleep(1.5)
        finally:
            left_at.append(time.monotonic())

    heard = Heard(app, "job_failed", "job_abandoned")
    inside.using(deadline=0.4).enqueue()
    with working(app):
        until(lambda: redis.zcard("dead"), "it is dead")
        assert bool(left_at) == (grace > 1)
        until(lambda: left_at, "the call has returned")
        settled(redis, 1)
    (job,) = jobs_in(redis, "dead")
    assert (job["error_class"], job["error_cause"], job["retry_count"]) == ("JobDeadline", "deadline", 0)
    told = [one["outcome"].cause for one in heard["job_failed"]]
    assert (told, len(heard["job_abandoned"])) == ((["deadline"], 0) if grace > 1 else ([], 1))
    assert left(redis) == {"dead"}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_time_out_at_the_moment_of_success_ends_once(app: App, redis: Redis, is_async: bool) -> None:
    """Jobs that return at about their deadline: each has one ending, whichever it is."""
    ended: list[str] = []

    def in_a_thread() -> None:
        end = (current_job().deadline or 0.0) - 0.002
        while time.monotonic() < end:
            time.sleep(0.0005)

    async def in_the_loop() -> None:
        end = (current_job().deadline or 0.0) - 0.002
        while time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.0005)

    close = app.job(name="close", retry=0)(in_the_loop if is_async else in_a_thread)

    heard = Heard(app, "job_failed", "job_end")
    for _ in range(40):
        close.using(deadline=0.3).enqueue()
    with working(app):
        until(lambda: len(heard["job_failed"]) + len(heard["job_end"]) >= 40, "all have ended")
        until(lambda: not any(redis.llen(key) for key in redis.scan_iter("hm:flight:*")), "nothing is in flight")
    told = [one["run"].jid for name in ("job_failed", "job_end") for one in heard[name] if one.get("run")]
    assert len(told) == len(set(told)), ended
    dead = int(redis.zcard("dead"))
    failed = [one for one in heard["job_failed"] if one["outcome"].ending == "dead"]
    assert dead == len(failed)
    assert left(redis) <= {"dead"}


def test_a_push_that_waits_for_a_commit_counts_from_it(redis_url: str, redis: Redis) -> None:
    """Each ends in its way: what was committed in time runs, what waited for too long in the queue does not."""
    app = App(redis_url=redis_url, transactional=True)
    work, ran = define(app)
    engine = create_engine("sqlite://")
    maker = orm.sessionmaker(engine)
    bind(app, maker)
    with maker() as session, app.inside(session):
        before = server(redis)
        fine, late = work.using(deadline=60).enqueue(), work.using(deadline=0.3).enqueue()
        until(lambda: server(redis) > before + 1, "the transaction takes longer than that")
        begins = server(redis)
        session.commit()
    engine.dispose()
    said = {one["jid"]: one["hm"]["deadline"] for one in jobs_in(redis, "queue:default")}
    assert said[fine.jid] - begins == pytest.approx(60, abs=0.5)
    assert said[late.jid] - begins == pytest.approx(0.3, abs=0.2)
    until(lambda: server(redis) > said[late.jid], "one is over")
    heard = Heard(app, "job_end", "job_expired")
    with working(app):
        settled(redis, 1)
        until(lambda: not redis.llen("queue:default"), "the queue is empty")
    assert ran == [1]
    assert {one["run"].jid: one["outcome"].ending for one in heard["job_end"]}[fine.jid] == "done"
    assert left(redis) == set()


def test_in_a_fair_queue_it_ends_the_same_way(app: App, redis: Redis) -> None:
    ran: list[str] = []

    @app.job(name="served", queue="fairly", fair_by="tenant", retry=5, retry_in=0.1)
    def served(tenant: str, how: str) -> None:
        ran.append(how)
        end = time.monotonic() + 30
        while how == "sleep" and time.monotonic() < end:
            time.sleep(0.01)

    late = served.using(deadline=0.2).enqueue("a", "late")
    until(lambda: server(redis) > app.job_status(late.jid).created_at + 0.3, "it is over before anybody serves it")
    served.using(deadline=60).enqueue("a", "fine")
    served.using(deadline=2).enqueue("b", "sleep")
    with working(app):
        until(lambda: redis.zcard("dead"), "who ran for too long is dead")
        until(lambda: "fine" in ran, "the next of its tenant ran")
        settled(redis, 2)
    assert sorted(ran) == ["fine", "sleep"]
    assert [one["error_cause"] for one in jobs_in(redis, "dead")] == ["deadline"]
    assert not [key for key in redis.scan_iter("*fairly*") if redis.type(key) == b"list"]
    assert left(redis) == {"dead"}


# --- who is parked ----------------------------------------------------------------------------------------------------


def test_one_that_waits_for_others_ends_with_its_deadline(app: App, redis: Redis, store: Store) -> None:
    @app.job(name="charge", key="order", once=True)
    def charge(order: int) -> None: ...

    @app.job(name="ship", key="order", after=charge, track=True, deadline=0.5)
    def ship(order: int) -> None: ...

    handle = ship.enqueue(7)
    assert handle.admission == "blocked"
    with working(app):
        until(lambda: not redis.exists("hm:parked"), "it waits no longer")
    assert handle.status().state in ("unknown", "expired")
    left_over = {one for one in store.all_keys() if "parked" in one or "needs" in one or "await" in one}
    assert left_over == set()
    assert left(redis) == set()


def test_the_deadline_beats_a_longer_wait_and_a_shorter_wait_the_deadline(app: App, redis: Redis) -> None:
    @app.job(name="charge", key="order", once=True)
    def charge(order: int) -> None: ...

    @app.job(name="ship", key="order", after=charge, on_failed="fail", wait_at_most=3600, deadline=0.3)
    def ship(order: int) -> None: ...

    @app.job(name="mail", key="order", after=charge, on_failed="fail", wait_at_most=0.3, deadline=3600)
    def mail(order: int) -> None: ...

    ship.enqueue(1)
    mail.enqueue(2)
    with working(app):
        until(lambda: not redis.exists("hm:parked"), "nobody waits")
    (dead,) = jobs_in(redis, "dead")
    assert (dead["class"], dead["error_class"]) == ("mail", "DependencyFailed")
    assert left(redis) == {"dead"}


def test_one_that_waits_for_a_running_key_ends_with_its_deadline(app: App, redis: Redis, store: Store) -> None:
    ran: list[str] = []
    go_on: list[bool] = []

    @app.job(name="one", key="order", unique="running", on_conflict="wait")
    def one(order: int, what: str) -> None:
        ran.append(what)
        until(lambda: what != "first" or go_on, "it may end")

    one.enqueue(7, "first")
    with working(app):
        until(lambda: ran == ["first"], "the first runs")
        one.using(deadline=0.5).enqueue(7, "second")
        until(lambda: redis.hlen("hm:parked") == 1, "the second waits for it")
        until(lambda: not redis.exists("hm:parked"), "its deadline has passed")
        go_on.append(True)
        until(lambda: not redis.exists("hm:lock:r:one"), "the key is free")
    assert ran == ["first"]
    assert left(redis) == set()
    assert not [one for one in store.all_keys() if "await" in one]


def test_one_that_waits_for_a_place_of_a_limit_ends_with_it(app: App, redis: Redis) -> None:
    ran: list[str] = []
    go_on: list[bool] = []

    @app.job(name="pay", limits=[Concurrent("bank", 1)], max_wait=3600)
    def pay(what: str) -> None:
        ran.append(what)
        until(lambda: what != "first" or go_on, "it may end")

    pay.enqueue("first")
    with working(app):
        until(lambda: ran == ["first"], "the first runs")
        pay.using(deadline=0.5).enqueue("second")
        until(lambda: redis.hlen("hm:parked") == 1, "the second waits for its place")
        until(lambda: not redis.exists("hm:parked"), "its deadline has passed")
        go_on.append(True)
        until(lambda: not redis.exists("hm:slots:bank:"), "its place is free")
    assert ran == ["first"]
    assert left(redis) == set()


def test_one_that_is_let_go_in_time_leaves_no_limit_behind(app: App, redis: Redis) -> None:
    @app.job(name="charge", key="order", once=True)
    def charge(order: int) -> None: ...

    ran: list[int] = []

    @app.job(name="ship", key="order", after=charge, deadline=600)
    def ship(order: int) -> None:
        ran.append(order)

    @app.job(name="one", key="order", unique="running", on_conflict="wait", deadline=600)
    def one(order: int) -> None:
        until(lambda: ran, "the other job has run")

    ship.enqueue(7)
    one.enqueue(1)
    one.enqueue(1)
    assert redis.zcard("hm:parked:until") == 1
    with working(app):
        charge.enqueue(7)
        settled(redis, 4)
    assert ran == [7]
    assert left(redis) == set()


# --- by hand, and by default ------------------------------------------------------------------------------------------


def test_who_retries_it_by_hand_wants_it_to_run(app: App, redis: Redis) -> None:
    work, ran = define(app, deadline=60, retry=5, retry_in=3600)
    work.enqueue("error")
    with working(app):
        until(lambda: redis.zcard("dead"), "it is dead")
    past = jobs_in(redis, "dead")[0]
    past["hm"]["deadline"] = server(redis) - 1
    redis.delete("dead")
    redis.zadd("dead", {json.dumps(past).encode(): server(redis)})
    app.dead.retry_all()
    (job,) = jobs_in(redis, "queue:default")
    assert "hm" not in job
    with working(app):
        until(lambda: len(ran) == 2, "it runs again")


def test_what_a_queue_and_the_app_say_holds_for_jobs_that_do_not(redis_url: str, redis: Redis) -> None:
    defaults = {"mail": {"timeout": 0.2, "deadline": 100}, "free": {"timeout": 0, "deadline": 0}}
    app = App(redis_url=redis_url, job_timeout=50, job_deadline=500, queue_defaults=defaults)
    limits: dict[str, Any] = {}

    def job(name: str, **options: Any) -> Any:
        @app.job(name=name, retry=0, **options)
        def run() -> None:
            ends = current_job().deadline
            limits[name] = None if ends is None else round(ends - time.monotonic())

        return run

    made = {
        "app": job("app"),
        "queue": job("queue", queue="mail", timeout=30),
        "job": job("job", queue="mail", timeout=20, deadline=1000),
        "none": job("none", queue="mail", timeout=0, deadline=0),
        "free": job("free", queue="free"),
    }
    now = server(redis)
    for one in made.values():
        one.enqueue()
    said = {
        one["class"]: one.get("hm", {}).get("deadline")
        for queue in ("default", "mail", "free")
        for one in jobs_in(redis, f"queue:{queue}")
    }
    assert {name: at and round((at - now) / 10) for name, at in said.items()} == {
        "app": 50,
        "queue": 10,
        "job": 100,
        "none": None,
        "free": None,
    }
    with working(app):
        settled(redis, 5)
    assert limits == {"app": 50, "queue": 30, "job": 20, "none": None, "free": None}


def test_the_time_out_of_a_queue_ends_a_run(redis_url: str, redis: Redis) -> None:
    app = App(redis_url=redis_url, queue_defaults={"mail": {"timeout": 0.2}})
    work, _ = define(app, queue="mail", retry=0)
    work.enqueue("sleep")
    with working(app):
        until(lambda: redis.zcard("dead"), "it is dead")
    (job,) = jobs_in(redis, "dead")
    assert job["error_message"] == "the job ran longer than its timeout of 0.2 s"


# --- other ways into the world ----------------------------------------------------------------------------------------


def test_a_cron_counts_from_the_planned_time(app: App) -> None:
    work, _ = define(app, deadline=60)
    cron = define_cron(app, work, ("0 9 * * *", None, "UTC"), "latest", ("allow", None), (), None)
    tick = build_tick(app, "morning", cron, 1_000_000_000.0, 1_000_000_500.0)
    assert json.loads(tick.payload)["hm"] == {
        "cron": "morning",
        "planned": 1_000_000_000.0,
        "deadline": 1_000_000_060.0,
    }


def test_a_row_of_an_outbox_counts_from_its_push(app: App) -> None:
    work, _ = define(app, deadline=60)
    plan = in_outbox(prepare(work.name, work.options, work.push_as, signature=work.signature), object())
    payload = plan.template.render(b"[]", None, "b" * 24, b"1.0", None)
    (row,) = rows_of(plan, False, {"default": [payload]}, 1.0, {})
    stored_row = StoredRow(1, row["jid"], "default", row["payload"], None, row["meta"], None, None)
    pushed = push_of(stored_row, app)
    assert "hm" not in json.loads(payload)
    assert json.loads(pushed.payload)["hm"]["deadline"] == pytest.approx(app.clock.now() + 60, abs=5)


def test_the_step_of_a_workflow_has_one(app: App, redis: Redis) -> None:
    ran: list[str] = []

    @app.job(name="pay", retry=False)
    def pay() -> None:
        until(lambda: redis.hlen("hm:parked") == 0, "the other step has ended")

    @app.job(name="ship", deadline=0.5)
    def ship() -> None:
        ran.append("ship")

    with app.workflow("order") as flow:
        first = flow.add(pay.call())
        flow.add(ship.call(), after=[first])
    with working(app):
        until(lambda: app.batch_status(flow.id).done, "the workflow is over")
    counts = app.batch_status(flow.id).counts
    assert (counts.get("finished"), counts.get("expired")) == (1, 1)
    assert not ran


@pytest.mark.parametrize("how", ["heeds", "does not heed", "async"])
def test_an_isolated_run_ends_with_it(
    redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    monkeypatch.setenv("ACTING_TRACE", str(tmp_path / "trace"))
    (tmp_path / "trace").touch()
    before = isolated.app.config
    isolated.app.configure(redis_url=redis_url)
    push = (isolated.ahangs if how == "async" else isolated.hangs).using(deadline=1.0, retry=5)
    try:
        push.enqueue(*(["a"] if how == "async" else ["a", how == "heeds"]))
        with working(isolated.app):
            until(lambda: redis.zcard("dead"), "it is dead")
    finally:
        isolated.app.close()
        isolated.app.config = before
    (job,) = jobs_in(redis, "dead")
    assert (job["error_class"], job["error_cause"]) == ("JobDeadline", "deadline")


def test_tests_have_it_too() -> None:
    app = App(redis_url="redis://nobody.invalid:1")

    @app.job(name="charge", key="order", once=True)
    def charge(order: int) -> None: ...

    @app.job(name="ship", key="order", after=charge, deadline=60)
    def ship(order: int) -> None: ...

    work, ran = define(app, deadline=60, retry=3, retry_in=3600)
    start = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    with testing.fake(app, clock=testing.Clock(start)) as jobs:
        work.enqueue("error")
        work.using(delay=30).enqueue()
        ship.enqueue(7)
        jobs.drain_all(advance=True)
        assert jobs.clock.now() == start + dt.timedelta(seconds=60)
        assert [one.jid for one in jobs.dead] != []
    assert ran == [1, 1]
    assert not len(jobs)


# --- what people see --------------------------------------------------------------------------------------------------


def test_people_see_it(app: App, redis: Redis, redis_url: str) -> None:
    work, _ = define(app, deadline=60)
    jid = work.enqueue().jid
    status = app.job_status(jid)
    assert status.to_json()["deadline"] == iso(jobs_in(redis, "queue:default")[0]["hm"]["deadline"])
    assert "its deadline is" in app.why(jid)
    redis.delete("queue:default")
    push_raw(redis, stored(redis, -1))
    assert "its deadline passed" in app.why("a" * 24)
