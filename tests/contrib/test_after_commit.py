"""What is pushed after a commit, when it counts from, and what becomes of a push that fails then."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import create_engine, orm

from henchman import App, BatchError, ConfigError, ResultError, testing
from henchman.batch import procedures
from henchman.client.push import Client
from henchman.contrib.sqlalchemy import bind
from henchman.errors import BatchClosed, ServerAway
from henchman.inspector.doctor import Check, examine
from henchman.store.call import run
from support.server import running_server
from support.worker import Heard, in_flight, jobs_in, looker, until, working

Numbers = Callable[[], list[int]]


@contextmanager
def shop(url: str, **settings: Any) -> Iterator[tuple[App, Any, orm.Session]]:
    """A transactional app with these settings, its job ``note``, and a session that its pushes wait for."""
    app = App(redis_url=url, transactional=True, **settings)

    @app.job(name="note")
    def note(number: int) -> None: ...

    engine = create_engine("sqlite://")
    maker = orm.sessionmaker(engine)
    bind(app, maker)
    with maker() as session, app.inside(session):
        yield app, note, session
    engine.dispose()
    app.close()


def seconds(redis: Redis) -> float:
    """The server's time."""
    whole, micro = redis.time()  # type: ignore[misc]
    return float(whole) + float(micro) / 1e6


def lost(app: App) -> Check:
    return next(one for one in examine(app.connections, app.keys) if one.name == "lost submissions")


# --- what is pushed, and from when it counts --------------------------------------------------------------------------


def test_a_delay_and_the_time_of_enqueuing_count_from_the_commit(
    app: App, note: Any, session: orm.Session, redis: Redis
) -> None:
    app.client.now = lambda: 1000.0
    note.enqueue(1)
    note.using(delay=60).enqueue(2)
    at_server = seconds(redis)
    app.client.now = lambda: 2000.0
    session.commit()
    [job] = jobs_in(redis, "queue:default")
    assert (job["created_at"], job["enqueued_at"]) == (1000.0, 2000.0)
    [(payload, due)] = redis.zrange("schedule", 0, -1, withscores=True)  # type: ignore[misc]
    assert due >= at_server + 60
    assert b"enqueued_at" not in payload


def test_a_time_that_came_before_the_commit_is_due_now(
    app: App, note: Any, session: orm.Session, redis: Redis, pushed: Numbers
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.2)
    handle = note.using(at=soon).enqueue(1)
    later = note.using(at=soon + timedelta(hours=1)).enqueue(2)
    while datetime.now(UTC) <= soon:
        time.sleep(0.01)  # until the fact: that moment has passed
    session.commit()
    assert (handle.admission, later.admission, pushed()) == ("created", "created", [1])
    assert jobs_in(redis, "queue:default")[0]["enqueued_at"] >= soon.timestamp() - 1
    assert redis.zcard("schedule") == 1


def test_jobs_run(app: App, session: orm.Session, redis: Redis) -> None:
    ran: list[int] = []

    @app.job(name="double", result_ttl=60)
    def double(number: int) -> int:
        ran.append(number)
        return 2 * number

    handle, other = double.enqueue(1), double.enqueue(2)
    with pytest.raises(ResultError, match="gives no result yet: it waits for the commit"):
        handle.result(timeout=1)
    other.cancel()
    session.commit()
    with working(app):
        assert handle.result(timeout=30) == 2
        until(lambda: not redis.llen("queue:default") and not in_flight(redis), "both have ended")
    assert ran == [1]


def test_tracked_jobs_and_jobs_by_name(app: App, note: Any, session: orm.Session, redis: Redis) -> None:
    handles = [note.using(track=True).enqueue(1), app.enqueue("HardJob", "bob", queue="ruby", track=True)]
    handles += [app.enqueue("HardJob", "eve", queue="ruby"), note.using(queue="other").enqueue(2)]
    assert [one.admission for one in handles] == ["deferred"] * 4
    assert redis.keys("queue:*") == []
    session.commit()
    assert [one.admission for one in handles] == ["created"] * 4
    assert [job["args"] for job in jobs_in(redis, "queue:ruby")] == [["bob"], ["eve"]]
    assert [redis.llen(f"queue:{name}") for name in ("default", "other")] == [1, 1]


def test_a_batch_around_the_transaction_has_its_jobs(app: App, note: Any, session: orm.Session, redis: Redis) -> None:
    with app.batch("around") as batch:
        note.enqueue(1)
        assert note.enqueue_many([(2,), (3,)]).deferred == 2
        assert batch.status().total == 0
        session.commit()
        assert batch.status().total == 3
    assert batch.status().state == "closed"
    with app.batch("atomic", atomic=True):
        handle = note.enqueue(4)
        session.commit()
        assert handle.admission == "blocked"
        assert redis.llen("queue:default") == 3
    assert redis.llen("queue:default") == 4


def test_a_batch_inside_the_transaction_is_refused_where_it_ends(app: App, note: Any, session: orm.Session) -> None:
    def inside() -> None:
        with app.batch("inside"):
            note.enqueue(1)

    with pytest.raises(BatchError, match="open the batch around the transaction"):
        inside()
    session.rollback()
    with app.batch("now"):
        assert note.using(now=True).enqueue(1).admission == "created"


def test_a_batch_that_was_closed_meanwhile_is_told(app: App, note: Any, session: orm.Session) -> None:
    heard = Heard(app, "submission_lost")
    batch = app.batch("elsewhere").open()
    handle, plain = note.using(batch=batch).enqueue(1), note.enqueue(2)
    run(app.connections, procedures.close(app.keys, batch.id, ""))  # by another process
    session.commit()
    assert (handle.admission, plain.admission) == ("deferred", "created")
    assert BatchClosed.__name__ in str(handle.problem)
    assert [one["jids"] for one in heard["submission_lost"]] == [[handle.jid]]


def test_client_middleware_runs_at_the_call(app: App, note: Any, session: orm.Session, pushed: Numbers) -> None:
    seen = []

    def link(job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        seen.append(job["args"][0])
        if job["args"][0] != 2:
            job["args"][0] += 10
            call_next()

    app.client_middleware.add(link)
    handles = [note.enqueue(number) for number in (1, 2, 3)]
    assert (seen, [one.admission for one in handles]) == ([1, 2, 3], ["deferred", "stopped", "deferred"])
    session.commit()
    assert (seen, pushed()) == ([1, 2, 3], [11, 13])


def test_nothing_is_paid_by_an_app_that_waits_for_nothing(app: App, note: Any, session: orm.Session) -> None:
    assert type(App().client) is Client
    client: Any = app.client
    session.commit()
    note.using(now=True).enqueue(1)
    outside = note.using(now=True)
    outside.enqueue(1)
    assert client._direct(outside) is not None
    assert client._direct(note) is None


def test_it_is_said_where_the_app_is_made() -> None:
    app = App()
    app.configure(transactional=False)
    with pytest.raises(ConfigError, match=r"App\(transactional=True\)"):
        app.configure(transactional=True)


# --- a push that fails after the commit -------------------------------------------------------------------------------


def test_a_server_that_is_away_loses_the_jobs_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with running_server() as server, shop(server.url, io_timeout=0.4) as (app, note, session):
        heard = Heard(app, "submission_lost")
        note.using(now=True).enqueue(0)
        handles = [note.enqueue(1), note.using(track=True).enqueue(2), note.enqueue(3)]
        server.kill()
        with caplog.at_level(logging.ERROR, "henchman"):
            session.commit()
        jids = [one.jid for one in handles]
        assert [one["jids"] for one in heard["submission_lost"]] == [jids]
        assert heard["submission_lost"][0]["names"] == ["note"]
        [line] = [one.getMessage() for one in caplog.records]
        assert line.startswith("lost after the commit of their transaction: 3 jobs (note): ServerAway")
        assert all(jid in line for jid in jids)
        assert all(str(one.problem).startswith("lost after the commit") for one in handles)
        assert {one.admission for one in handles} == {"deferred"}
        with pytest.raises(ResultError):
            handles[0].result()
        server.socket.unlink(missing_ok=True)
        server.start()
        assert lost(app).verdict == "ok"  # the server cannot know yet
        note.enqueue(4)
        session.commit()  # this session was never broken
        told = lost(app)
        assert (told.verdict, told.text[:6]) == ("bad", "3 jobs")
        with looker(server.url) as redis:
            assert [job["args"] for job in jobs_in(redis, "queue:default")] == [[4]]
            assert redis.ttl("hm:submissions_lost") > 0


def test_with_a_buffer_the_jobs_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    with running_server() as server, shop(server.url, buffer=10) as (app, note, session):
        heard = Heard(app, "submission_lost")
        note.using(now=True).enqueue(0)
        handles = [note.enqueue(1), note.using(delay=60).enqueue(2)]
        server.kill()
        session.commit()
        assert [(one.admission, one.problem) for one in handles] == [("buffered", None)] * 2
        behind = note.enqueue(3)
        session.commit()
        assert behind.admission == "buffered"
        assert app.client.buffer.waiting == 3
        server.socket.unlink(missing_ok=True)
        server.start()
        assert app.client.buffer.flush(30) == []
        with looker(server.url) as redis:
            assert [job["args"] for job in jobs_in(redis, "queue:default")] == [[1], [3]]
            assert redis.zcard("schedule") == 1
        assert heard["submission_lost"] == []


def test_a_lost_answer_makes_no_second_job(
    app: App, note: Any, session: orm.Session, pushed: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, sent = app.connections.run, []

    def unheard(call: Any) -> Any:
        answer = really(call)
        if call.name == "deliver":
            sent.append(call)
            if len(sent) == 1:
                raise ServerAway("the answer was lost", executed=None)
        return answer

    monkeypatch.setattr(app.connections, "run", unheard)
    handles = [note.enqueue(number) for number in range(3)]
    session.commit()
    assert (len(sent), pushed()) == (2, [0, 1, 2])
    assert [(one.admission, one.problem) for one in handles] == [("created", None)] * 3


def test_a_server_that_is_full_refuses_and_the_rest_is_tried() -> None:
    with running_server() as server, shop(server.url) as (app, note, session):
        heard = Heard(app, "submission_lost")
        handle = note.enqueue(1)
        assert server.ask("CONFIG", "SET", "maxmemory", "1") == "+OK"
        session.commit()
        assert [one["jids"] for one in heard["submission_lost"]] == [[handle.jid]]
        assert "maxmemory" in str(handle.problem)
        assert server.ask("CONFIG", "SET", "maxmemory", "0") == "+OK"
        note.enqueue(2)
        session.commit()
        assert lost(app).text.startswith("1 jobs")


def test_replicas_that_do_not_confirm_are_told_and_the_job_is_there(
    redis_url: str, pushed: Numbers, caplog: pytest.LogCaptureFixture
) -> None:
    with shop(redis_url, wait_replicas=1, wait_timeout=0.05) as (app, note, session):
        heard = Heard(app, "submission_lost")
        handle = note.enqueue(1)
        session.commit()
        assert (handle.admission, pushed()) == ("created", [1])
        assert "replicas" in str(handle.problem)
        assert heard["submission_lost"] == []
        assert "replicas" in caplog.text


# --- in tests of users ------------------------------------------------------------------------------------------------


def test_a_fake_lists_what_waits(app: App, note: Any, session: orm.Session) -> None:
    with testing.fake(app) as jobs:
        note.enqueue(1)
        note.using(delay=60).enqueue(2)
        note.enqueue_many([(3,), (4,)])
        assert [(one.args, one.place) for one in jobs.deferred] == [((n,), "deferred") for n in (1, 2, 3, 4)]
        assert len(jobs) == 0
        jobs.assert_not_enqueued(note)
        session.commit()
        assert jobs.deferred == []
        assert [(one.args[0], one.place) for one in jobs] == [(1, "queue"), (2, "schedule"), (3, "queue"), (4, "queue")]
        jobs.assert_enqueued(note, 2, at=timedelta(seconds=60))
        note.enqueue(5)
        session.rollback()
        assert jobs.deferred == []
        assert jobs.drain_all().count("done") == 3


def test_inline_runs_at_the_commit_and_raises_there(app: App, session: orm.Session) -> None:
    @app.job(name="divide")
    def divide(number: int) -> float:
        return 1 / number

    with testing.inline(app) as jobs:
        divide.enqueue(1)
        assert jobs.ran == []
        session.commit()
        assert [one.ending for one in jobs.ran] == ["done"]
        divide.enqueue(0)
        with pytest.raises(ZeroDivisionError):
            session.commit()
