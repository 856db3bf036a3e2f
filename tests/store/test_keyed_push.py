"""Pushes of jobs with a key on a real server: one piece of work is one job, however often it is pushed."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.client import admission as pushes
from henchman.errors import ArgumentError, DefinitionError, DuplicateJob, ServerAway, ServerError
from henchman.kernel import failpoints
from henchman.store import admission, batches
from henchman.store.call import Call, load
from henchman.store.keys import Keys
from support.keys import PHASES, end, lock, locks, waiting
from support.worker import looker

KEYS = Keys()


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    failpoints.close()
    made.close()


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with looker(redis_url) as client:
        for name in ("keyed_push", "batch_push"):
            client.script_load(load(name).text)
        yield client


def charge(order_id: Any, cents: int = 100) -> None:
    """The job of these tests."""


def defined(app: App, **options: Any) -> Any:
    return app.job(name="charge", key="order_id", **options)(charge)


# --- one key, one job ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
def test_a_second_push_is_a_duplicate_of_the_first(app: App, redis: Redis, phase: str) -> None:
    job = defined(app, **PHASES[phase])
    first, again, other = job.enqueue("17"), job.enqueue(17), job.enqueue("18")
    assert (first.admission, again.admission, other.admission) == ("created", "duplicate", "created")
    assert again.jid == again.duplicate_of == first.jid
    assert [one["jid"] for one in waiting(redis)] == [first.jid, other.jid]
    assert locks(redis, phase, "charge") == {"17": first.jid, "18": other.jid}
    assert redis.smembers("hm:scopes") == {b"charge"}
    assert redis.smembers("queues") == {b"default"}
    ended = end(redis, phase, "charge", "17")
    assert ended["jid"] == first.jid
    assert job.enqueue("17").admission == "created"


@pytest.mark.parametrize("phase", PHASES)
def test_a_lock_holds_the_jid_the_time_and_a_mark_of_the_arguments(app: App, redis: Redis, phase: str) -> None:
    first = defined(app, **PHASES[phase]).enqueue("17", 5)
    jid, since, mark = redis.hget(f"hm:lock:{phase}:charge", "17").decode().split()
    assert jid == first.jid
    assert abs(float(since) - time.time()) < 60
    assert len(mark) == 8
    assert redis.ttl(f"hm:lock:{phase}:charge") == -1, "no timer frees the key of a living job"


def test_other_arguments_under_the_same_key_are_told(app: App, redis: Redis) -> None:
    job = defined(app, once=True)
    job.enqueue("17", 990)
    assert job.enqueue("17", 990).differs is False
    duplicate = job.enqueue("17", 991)
    assert (duplicate.admission, duplicate.differs) == ("duplicate", True)
    assert len(waiting(redis)) == 1


def test_a_scope_is_shared_and_others_are_apart(app: App, redis: Redis) -> None:
    shared = [app.job(name=name, key="order_id", unique="queued", scope="orders")(charge) for name in ("one", "two")]
    apart = app.job(name="three", key="order_id", unique="queued")(charge)
    handles = [job.enqueue("17") for job in (*shared, apart)]
    assert [one.admission for one in handles] == ["created", "duplicate", "created"]
    assert handles[1].jid == handles[0].jid


@pytest.mark.parametrize("key", ["1", "a\nb", "nul\0nul", "}{x}", "ü☃", "x" * 10_000, " ", "o charge\n17"])
def test_any_text_is_a_key(app: App, redis: Redis, key: str) -> None:
    job = defined(app, once=True)
    first, again = job.enqueue(key), job.enqueue(key)
    assert again.jid == first.jid
    assert again.admission == "duplicate"
    [field] = redis.hkeys("hm:lock:o:charge")
    assert len(field) <= 200
    assert json.loads(redis.lindex("queue:default", 0))["hm"]["key"][1].encode() == field


def test_the_key_of_a_secret_is_stored_nowhere_but_in_the_arguments(app: App, redis: Redis) -> None:
    job = defined(app, once=True, secret=["order_id"])
    assert job.enqueue("4111-1111").jid == job.enqueue("4111-1111").jid
    [payload] = waiting(redis)
    assert payload.pop("args") == ["4111-1111"]
    assert "4111-1111" not in json.dumps(payload)
    for name in redis.scan_iter("hm:*"):
        stored = redis.dump(name)
        assert b"4111-1111" not in name + stored, name


def test_again_takes_the_key_over_and_the_first_ones_end_does_not_free_it(app: App, redis: Redis) -> None:
    job = defined(app, once=True)
    first, second = job.enqueue("17"), job.using(again=True).enqueue("17")
    assert (second.admission, second.duplicate_of) == ("created", None)
    assert lock(redis, "o", "charge", "17") == second.jid != first.jid
    assert len(waiting(redis)) == 2
    assert job.enqueue("17").jid == second.jid


def test_a_running_key_keeps_no_push_out(app: App, redis: Redis) -> None:
    job = defined(app, unique="running")
    assert [job.enqueue("17").admission for _ in range(2)] == ["created", "created"]
    assert [one["hm"]["key"] for one in waiting(redis)] == [["charge", "17", "r"]] * 2
    assert not locks(redis, "r", "charge"), "it is taken at the start"


@pytest.mark.parametrize("given", [{"delay": 60}, {"delay": 0}])
def test_a_delayed_job_holds_its_key(app: App, redis: Redis, given: dict[str, Any]) -> None:
    job = defined(app, unique="queued")
    first, again = job.using(**given).enqueue("17"), job.enqueue("17")
    assert again.duplicate_of == first.jid
    assert redis.zcard("schedule") + redis.llen("queue:default") == 1
    assert redis.zcard("schedule") == int(given["delay"] > 0)


def test_a_duplicate_that_raises_pushes_nothing(app: App, redis: Redis) -> None:
    job = defined(app, once=True, on_conflict="raise")
    first = job.enqueue("17")
    with pytest.raises(DuplicateJob) as caught:
        job.enqueue("17", 5)
    assert (caught.value.jid, caught.value.differs) == (first.jid, True)
    with pytest.raises(DuplicateJob) as caught:
        job.enqueue_many([("18",), ("19",), ("17",), ("20",)])
    assert caught.value.pushed == 2
    assert [one["args"][0] for one in waiting(redis)] == ["17", "18", "19"]
    assert set(locks(redis, "o", "charge")) == {"17", "18", "19"}


def test_a_lock_that_refuses_for_ten_minutes_is_in_doubt(app: App, redis: Redis) -> None:
    job = defined(app, once=True)
    first = job.enqueue("17", 5)
    job.enqueue("17")
    assert not redis.exists("hm:doubt")
    jid, since, mark = redis.hget("hm:lock:o:charge", "17").split()
    redis.hset("hm:lock:o:charge", "17", b"%b %.6f %b" % (jid, float(since) - 601, mark))
    assert job.enqueue("17").jid == first.jid
    [(name, at)] = redis.zrange("hm:doubt", 0, -1, withscores=True)
    assert name == b"o charge\n17"
    job.enqueue("17")
    assert redis.zscore("hm:doubt", name) == at, "the first doubt counts"


def test_a_damaged_lock_is_none(app: App, redis: Redis) -> None:
    """Somebody wrote something else there: the push goes through, and nothing crashes."""
    redis.hset("hm:lock:o:charge", "17", "what is this")
    assert defined(app, once=True).enqueue("17").admission in ("created", "duplicate")


# --- bulk ------------------------------------------------------------------------------------------------------------


def test_a_thousand_rows_with_500_duplicates_among_them(app: App, redis: Redis) -> None:
    """Exactly one each, in order, whatever slice the second one is in."""
    job = defined(app, once=True)
    order = [*range(300), *range(300), *range(300, 500), *range(300, 500)]
    pushed = job.enqueue_many((n, n) for n in order)
    assert (pushed.count, pushed.created, pushed.duplicates, pushed.stopped, pushed.blocked) == (1000, 500, 500, 0, 0)
    jobs = waiting(redis)
    assert [one["args"][0] for one in jobs] == list(range(500))
    assert locks(redis, "o", "charge") == {str(one["args"][0]): one["jid"] for one in jobs}
    again = job.enqueue_many((n, n) for n in range(500))
    assert (again.created, again.duplicates) == (0, 500)
    assert len(waiting(redis)) == 500


def test_a_call_has_250_rows_so_that_it_holds_the_server_up_for_a_moment(app: App, redis: Redis) -> None:
    before = _calls(redis)
    defined(app, once=True).enqueue_many((n,) for n in range(1000))
    assert _calls(redis) - before == 4


def _calls(redis: Redis) -> int:
    stats: dict[str, Any] = redis.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


def test_pushes_from_many_threads_make_one_job_a_key(app: App, redis: Redis) -> None:
    job = defined(app, unique="until_success")
    created: Counter[str] = Counter()
    start = threading.Barrier(8)

    def push() -> None:
        start.wait(30)
        for n in range(50):
            created[job.enqueue(n).admission] += 1

    threads = [threading.Thread(target=push) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert created == {"created": 50, "duplicate": 350}
    assert len(waiting(redis)) == 50


# --- answers that were lost ------------------------------------------------------------------------------------------


def pushing(phase: str, turn: int = 1) -> Call[Any]:
    ask = {"scope": "s", "phases": phase, "conflict": "skip", **({"once_for": 60} if phase == "o" else {})}
    row = admission.KeyedPush("0" * 24, "", b'{"jid":"000000000000000000000000"}', "0" * 8, "17")
    return admission.push(KEYS, "default", json.dumps(ask).encode(), [row], ("me", turn))


@pytest.mark.parametrize("phase", PHASES)
def test_a_push_that_comes_late_behind_the_next_one_makes_no_job(app: App, redis: Redis, phase: str) -> None:
    """Bytes of a connection that was given up may arrive when the next push under that name has been answered."""
    for turn in (1, 2):
        assert app.connections.run(pushing(phase, turn)) == [["C"]]
        end(redis, phase, "s", "17")
    app.connections.run(pushing(phase, 1))
    assert not redis.llen("queue:default")
    assert not locks(redis, phase, "s")


@pytest.mark.parametrize("phase", PHASES)
def test_a_push_that_is_sent_again_after_its_job_has_ended_makes_no_second_job(
    app: App, redis: Redis, phase: str
) -> None:
    """Push executed, answer lost, job ended, push sent again: one job."""
    assert pushing(phase).again
    assert app.connections.run(pushing(phase)) == [["C"]]
    end(redis, phase, "s", "17")
    assert app.connections.run(pushing(phase)) == [["C"]], "the same answer"
    assert not redis.llen("queue:default")
    assert not locks(redis, phase, "s")
    assert app.connections.run(pushing(phase, 2)) == [["C"]], "the next push is another one"
    assert redis.llen("queue:default") == 1
    assert 3_500_000 < redis.pttl("hm:lane:me") <= 3_600_000


@pytest.mark.parametrize("phase", PHASES)
def test_a_lost_answer_is_asked_for_again_by_the_client(
    app: App, redis: Redis, phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = defined(app, **PHASES[phase])
    app.connections  # noqa: B018 - connects before the points are open
    failpoints.open_points("drop@keyed_push:after", tmp_path)
    handle = job.enqueue("17")
    assert list(tmp_path.iterdir()), "an answer was lost"
    assert handle.admission == "created"
    assert [one["jid"] for one in waiting(redis)] == [handle.jid]


def test_a_bulk_push_with_lost_answers_counts_exactly(app: App, redis: Redis, tmp_path: Path) -> None:
    job = defined(app, once=True)
    app.connections  # noqa: B018
    failpoints.open_points("drop@keyed_push:after#2", tmp_path)
    pushed = job.enqueue_many((n % 400,) for n in range(800))
    assert list(tmp_path.iterdir())
    assert (pushed.created, pushed.duplicates) == (400, 400)
    assert len(waiting(redis)) == 400


def test_a_push_whose_answers_stay_lost_is_unknown_and_its_lane_is_left(app: App, redis: Redis, tmp_path: Path) -> None:
    job = defined(app, once=True)
    app.connections  # noqa: B018
    failpoints.open_points("drop@keyed_push:after,drop@keyed_push:after#2")
    with pytest.raises(ServerAway) as caught:
        job.enqueue("17")
    assert caught.value.executed is None
    failpoints.close()
    again = job.enqueue("17")
    assert again.admission == "duplicate"
    assert len(waiting(redis)) == 1
    assert len(list(redis.scan_iter("hm:lane:*"))) == 2, "the next push has a lane of its own"


# --- a full server ---------------------------------------------------------------------------------------------------


FULL: dict[str, dict[str, Any]] = {
    **PHASES,
    "replace": {"unique": "queued", "on_conflict": "replace"},
    "wait": {"unique": "until_success", "on_conflict": "wait"},
    "throttle": {"throttle": 60},
    "debounce": {"debounce": 60},
    "tracked": {"once": True, "track": True},
}


@pytest.mark.parametrize("kind", FULL)
def test_a_full_server_refuses_before_its_first_write(app: App, redis: Redis, kind: str) -> None:
    job = defined(app, **FULL[kind])
    job.enqueue("17", 1)
    before = {name: redis.dump(name) for name in redis.scan_iter("*")}
    redis.config_set("maxmemory", 1)
    try:
        for key in ("17", "18"):
            with pytest.raises(ServerError, match="maxmemory"):
                job.enqueue(key, 2)
        assert {name: redis.dump(name) for name in redis.scan_iter("*")} == before
    finally:
        redis.config_set("maxmemory", 0)
    assert job.enqueue("18").admission == "created"


def test_a_queue_that_is_no_list_leaves_no_lock(app: App, redis: Redis) -> None:
    redis.set("queue:default", "something else")
    job = defined(app, once=True)
    with pytest.raises(ServerError, match="WRONGTYPE"):
        job.enqueue("17")
    assert not locks(redis, "o", "charge")
    redis.delete("queue:default")
    assert job.enqueue("17").admission == "created"


# --- replace ---------------------------------------------------------------------------------------------------------


def test_newer_arguments_replace_those_of_the_job_that_waits(app: App, redis: Redis) -> None:
    job = defined(app, unique="queued", on_conflict="replace")
    first = job.enqueue("17", 1)
    stored = redis.lindex("queue:default", 0)
    second, third = job.enqueue("17", 2), job.enqueue("17", 3)
    assert [one.admission for one in (first, second, third)] == ["created", "duplicate", "duplicate"]
    assert {one.jid for one in (first, second, third)} == {first.jid}
    assert redis.lrange("queue:default", 0, -1) == [stored], "the stored bytes are the fence: they stay"
    latest = json.loads(redis.hget("hm:latest", first.jid))
    assert (latest["jid"], latest["args"]) == (first.jid, ["17", 3])
    assert lock(redis, "w", "charge", "17") == first.jid


@pytest.mark.parametrize("options", [{"unique": "queued", "on_conflict": "replace"}, {"debounce": 5}])
def test_what_replaces_belongs_to_no_batch(app: App, redis: Redis, options: dict[str, Any]) -> None:
    job = defined(app, **options)
    with app.batch("b"), pytest.raises(DefinitionError, match="takes newer arguments into a job that is there"):
        job.enqueue("17")
    with app.batch("b"):
        assert job.using(batch=None).enqueue("17").admission == "created"


# --- wait ------------------------------------------------------------------------------------------------------------


def test_a_job_that_waits_for_its_key_is_parked(app: App, redis: Redis) -> None:
    job = defined(app, unique="until_success", on_conflict="wait")
    first, second, third = job.enqueue("17", 1), job.enqueue("17", 2), job.using(delay=60).enqueue("17", 3)
    assert [one.admission for one in (first, second, third)] == ["created", "blocked", "blocked"]
    assert len({one.jid for one in (first, second, third)}) == 3
    [payload] = waiting(redis)
    assert (payload["jid"], "enqueued_at" in payload) == (first.jid, True)
    assert set(redis.hkeys("hm:parked")) == {second.jid.encode(), third.jid.encode()}
    queue, due, _, parked = redis.hget("hm:parked", second.jid).split(b"\n", 3)
    assert (queue, due) == (b"default", b"")
    assert "enqueued_at" not in json.loads(parked)
    _, due, _, _ = redis.hget("hm:parked", third.jid).split(b"\n", 3)
    assert 50 < float(due) - time.time() < 70
    assert job.enqueue_many([("17",), ("18",)]).blocked == 1


# --- throttle --------------------------------------------------------------------------------------------------------


def test_at_most_one_push_in_a_time(app: App, redis: Redis) -> None:
    job = defined(app, throttle=60)
    first, second = job.enqueue("17", 1), job.enqueue("17", 2)
    assert (second.admission, second.jid) == ("duplicate", first.jid)
    assert not second.differs, "other arguments are what a throttle is for"
    assert job.enqueue("18").admission == "created"
    redis.rpop("queue:default")
    assert job.enqueue("17").admission == "duplicate", "freed by nothing but time"
    keys = list(redis.scan_iter("hm:throttle:*"))
    assert len(keys) == 2
    assert all(50_000 < redis.pttl(key) <= 60_000 for key in keys)
    for key in keys:
        redis.delete(key)
    assert job.enqueue("17").admission == "created"


def test_a_throttle_lasts_no_longer_than_its_time_when_the_clock_goes_back(app: App, redis: Redis) -> None:
    """The server ends it at a moment: an hour earlier by the clock, that is an hour more."""
    job = defined(app, throttle=60)
    first = job.enqueue("17", 1)
    (window,) = redis.scan_iter("hm:throttle:*")
    redis.pexpire(window, 3_660_000)
    assert job.enqueue("17", 2).jid == first.jid
    assert 50_000 < redis.pttl(window) <= 60_000


def test_a_throttle_beside_a_key(app: App, redis: Redis) -> None:
    job = defined(app, throttle=60, unique="queued")
    first = job.enqueue("17")
    for key in redis.scan_iter("hm:throttle:*"):
        redis.delete(key)
    assert job.enqueue("17").jid == first.jid, "the key is held"
    assert not list(redis.scan_iter("hm:throttle:*")), "what was not pushed throttles nothing"
    end(redis, "w", "charge", "17")
    assert job.enqueue("17").admission == "created"
    assert job.using(again=True).enqueue("17").admission == "created"


# --- debounce --------------------------------------------------------------------------------------------------------


def scheduled(redis: Redis) -> list[tuple[dict[str, Any], float]]:
    return [(json.loads(one), due) for one, due in redis.zrange("schedule", 0, -1, withscores=True)]


def test_each_push_puts_the_job_off_and_the_newest_arguments_run(app: App, redis: Redis) -> None:
    job = defined(app, debounce=30, debounce_most=600)
    first = job.enqueue("17", 1)
    [(_, due)] = scheduled(redis)
    time.sleep(0.01)
    second = job.enqueue("17", 2)
    [(payload, later)] = scheduled(redis)
    assert (first.admission, second.admission, second.jid) == ("created", "duplicate", first.jid)
    assert (payload["jid"], payload["args"]) == (first.jid, ["17", 2])
    assert payload["hm"] == {"delay": 30.0, "debounce": ["charge", "17"]}
    assert due < later
    assert 20 < later - time.time() < 40
    job.enqueue("18")
    assert len(scheduled(redis)) == 2
    assert not redis.llen("queue:default")


def test_a_burst_waits_no_longer_than_was_said(app: App, redis: Redis) -> None:
    job = defined(app, debounce=30, debounce_most=45)
    job.enqueue("17", 1)
    began = float(redis.hget("hm:debounce:charge", "17").split()[0])
    payload = redis.hget("hm:debounce:charge", "17").split(b" ", 1)[1]
    redis.hset("hm:debounce:charge", "17", b"%.6f %b" % (began - 40, payload))  # it began 40 s ago
    job.enqueue("17", 2)
    [(_, due)] = scheduled(redis)
    assert abs(due - (began - 40 + 45)) < 0.001


def test_after_the_job_went_its_way_a_new_burst_begins(app: App, redis: Redis) -> None:
    job = defined(app, debounce=30)
    first = job.enqueue("17", 1)
    redis.delete("schedule")  # staged
    second = job.enqueue("17", 2)
    assert (second.admission, second.jid != first.jid) == ("created", True)
    began, jid, _ = redis.hget("hm:debounce:charge", "17").split(b" ", 2)
    assert jid.decode() == second.jid
    assert abs(float(began) - time.time()) < 60


# --- batches ---------------------------------------------------------------------------------------------------------


def test_a_duplicate_is_no_member_of_its_batch(app: App, redis: Redis) -> None:
    job = defined(app, once=True)
    outside = job.enqueue("1")
    with app.batch("b") as batch:
        handles = [job.enqueue(key) for key in ("1", "2", "2")]
        pushed = job.enqueue_many([("2",), ("3",), ("3",), ("1",)])
    assert [one.admission for one in handles] == ["duplicate", "created", "duplicate"]
    assert handles[0].jid == outside.jid
    assert (pushed.created, pushed.duplicates) == (1, 3)
    status = app.batch_status(batch.id)
    assert (status.total, status.counts["enqueued"], status.state) == (2, 2, "closed")
    assert redis.hlen(KEYS.batch(batch.id) + ":jobs") == 2


def test_a_batch_of_duplicates_alone_is_complete(app: App, redis: Redis) -> None:
    job = defined(app, once=True)
    job.enqueue("1")
    with app.batch("b") as batch:
        assert job.enqueue("1").admission == "duplicate"
    assert app.batch_status(batch.id).state == "complete"


def test_jobs_of_an_atomic_batch_meet_their_key_when_it_is_released(app: App, redis: Redis) -> None:
    job = defined(app, unique="queued")
    with app.batch("b", atomic=True) as batch:
        handles = [job.enqueue(key) for key in ("1", "2", "1")]
        assert not locks(redis, "w", "charge")
        beside = job.using(batch=None).enqueue("2")
    assert [one.admission for one in handles] == ["blocked"] * 3
    assert beside.admission == "created"
    assert {one["jid"] for one in waiting(redis)} == {beside.jid, handles[0].jid}
    assert all("enqueued_at" in one for one in waiting(redis))
    assert locks(redis, "w", "charge") == {"1": handles[0].jid, "2": beside.jid}
    status = app.batch_status(batch.id)
    assert (status.total, status.counts["enqueued"], status.counts["blocked"]) == (1, 1, 0)


def test_a_row_of_an_atomic_batch_that_is_a_duplicate_says_so(app: App, redis: Redis) -> None:
    job = defined(app, unique="queued")
    first = job.enqueue("2")
    with app.batch("b", atomic=True, results=True) as batch:
        job.enqueue_many([("1",), ("2",)])
    rows = [(one.status, one.message) for one in batch.results()]
    assert rows == [("enqueued", ""), ("cancelled", f"a duplicate of {first.jid}")]


def test_an_aborted_batch_takes_no_key(app: App, redis: Redis) -> None:
    job = defined(app, once=True)

    def abort() -> None:
        with app.batch("b", atomic=True):
            job.enqueue("1")
            raise ArgumentError("no")

    with pytest.raises(ArgumentError, match="no"):
        abort()
    assert not locks(redis, "o", "charge")
    assert job.enqueue("1").admission == "created"


@pytest.mark.parametrize("batch", ["", "b"])
def test_a_tracked_push_that_is_sent_again_makes_no_second_job(app: App, redis: Redis, batch: str) -> None:
    if batch:
        app.connections.run(batches.make(KEYS, "b", {"keep": "60"}, b"{}"))
    ask = json.dumps({"scope": "s", "phases": "w", "conflict": "skip", "key": "17", "mark": "0" * 8}).encode()
    row = batches.TrackedPush("0" * 24, "", b'{"jid":"000000000000000000000000"}', b"{}", ask)
    call = batches.push_keyed(KEYS, batch, "default", [row], lane=("me", 1))
    assert app.connections.run(call) == [["C"]]
    end(redis, "w", "s", "17")
    assert app.connections.run(call) == [["C"]]
    assert not redis.llen("queue:default")
    if batch:
        assert redis.hget(KEYS.batch("b"), "total") == b"1"


# --- crons -----------------------------------------------------------------------------------------------------------


def test_a_cron_enqueued_by_hand_meets_its_key(app: App, redis: Redis) -> None:
    job = defined(app, unique="queued")
    app.crons.add("nightly", job, every=3600, args=["17"])
    first = app.crons.run("nightly")
    again = app.crons.run("nightly")
    assert (first.admission, again.admission, again.jid) == ("created", "duplicate", first.jid)
    assert len(waiting(redis)) == 1
    assert redis.llen("hm:cron:past:nightly") == 1
    with pytest.raises(DefinitionError, match="a job with debounce= cannot be one"):
        app.crons.add("index", defined(app, debounce=5), every=3600, args=["17"])


# --- async -----------------------------------------------------------------------------------------------------------


def test_the_awaited_forms(app: App, redis: Redis) -> None:
    job = defined(app, once=True)

    async def push() -> None:
        first, again = await job.aenqueue("17"), await job.aenqueue("17")
        assert (again.admission, again.jid) == ("duplicate", first.jid)
        pushed = await job.aenqueue_many([("17",), ("18",)])
        assert (pushed.created, pushed.duplicates) == (1, 1)
        await app.aclose()

    asyncio.run(push())


def test_slices_are_small_enough() -> None:
    assert pushes.KEYED_SLICE == 250, "a thousand would hold the server for 10 ms"
