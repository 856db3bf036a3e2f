"""From the stream into SQL: every status, whole lives, any text; and the stream is empty afterwards."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from redis import Redis

from henchman.history.reading import History
from henchman.history.recorder import Recorder
from henchman.history.records import STATUSES
from support.history import ME, Home, Teller, recording

BATCH = "b" * 32


def drained(recorder: Recorder, teller: Teller) -> None:
    """Everything told so far is recorded, and nothing is left on the server."""
    teller.flush()
    assert recorder.drain(60)
    assert teller.redis.xlen(teller.keys.history) == 0
    assert int(teller.redis.get(teller.keys.history_bytes) or 0) == 0  # type: ignore[arg-type]


def test_a_whole_life_can_be_replayed(recorder: Recorder, teller: Teller, history: History) -> None:
    teller.enqueued("j1", BATCH, status="scheduled", args=[1, {"a": "b"}], kwargs={"lang": "fr"}, tags=["vip"])
    teller.job("j1", "enqueued", BATCH, ending="staged")
    teller.working("j1", BATCH)
    teller.log("j1", "first words", BATCH)
    teller.progress("j1", 1, 4, BATCH)
    teller.ended(
        "j1",
        "retrying",
        BATCH,
        ending="retry",
        error_class="ValueError",
        message="no",
        traceback=["a", "b"],
        elapsed=1.0,
    )
    drained(recorder, teller)  # the rest comes in another transaction
    teller.job("j1", "enqueued", BATCH, attempt=2, ending="staged")
    teller.working("j1", BATCH, attempt=2)
    teller.log("j1", "second words", BATCH)
    teller.progress("j1", 4, 4, BATCH)
    teller.ended("j1", "finished", BATCH, attempt=2, ending="done", result={"rows": 3}, started=time.time() - 1)
    drained(recorder, teller)
    job = history.job("j1")
    assert job is not None
    event = job.event
    assert (event.class_, event.queue, event.status, event.attempts) == ("shop.create", "default", "finished", 2)
    assert (event.args, event.kwargs, event.tags) == ([1, {"a": "b"}], {"lang": "fr"}, ["vip"])
    assert (event.result, event.error_class, event.message, event.traceback) == ({"rows": 3}, None, None, [])
    assert (event.progress_done, event.progress_total, event.process, event.host) == (4, 4, ME, "host-1")
    assert event.enqueued_at is not None
    assert event.started_at is not None
    assert event.ended_at is not None
    statuses = ["scheduled", "enqueued", "working", "retrying", "enqueued", "working", "finished"]
    assert [one.status for one in job.changes] == statuses
    assert job.changes[3].detail["traceback"] == ["a", "b"]
    assert [one.position for one in job.changes] == sorted({one.position for one in job.changes})
    assert [(one.attempt, one.ending, one.process) for one in job.runs] == [(1, "retry", ME), (2, "done", ME)]
    assert all(one.started is not None and one.ended is not None for one in job.runs)
    assert [one.text for one in job.messages] == ["first words", "second words"]
    assert history.job("nobody") is None
    assert json.loads(json.dumps(job.to_json()))["event"]["class"] == "shop.create"


def test_a_short_run_is_known_by_its_end_alone(recorder: Recorder, teller: Teller, history: History) -> None:
    teller.enqueued("j1", BATCH)
    teller.ended("j1", "failed", BATCH, ending="failed", message="not eligible", started=100.5, elapsed=0.1)
    teller.enqueued("j2", BATCH)
    teller.ended("j2", "cancelled", BATCH, process="", attempt=0, ending="deleted", reason="by hand")
    drained(recorder, teller)
    job, deleted = history.job("j1"), history.job("j2")
    assert job is not None
    assert deleted is not None
    assert (job.event.status, job.event.message, job.event.started_at) == ("failed", "not eligible", 100.5)
    assert [(one.ending, one.started) for one in job.runs] == [("failed", 100.5)]
    assert (deleted.event.status, deleted.event.message, deleted.runs) == ("cancelled", "by hand", [])


def test_a_run_that_was_given_back_is_closed_and_the_next_is_another(
    recorder: Recorder, teller: Teller, history: History
) -> None:
    teller.enqueued("j1", BATCH)
    teller.working("j1", BATCH)
    drained(recorder, teller)
    teller.ended("j1", "enqueued", BATCH, process="other:1:ffffffffffff", ending="interrupted")
    teller.working("j1", BATCH)
    teller.ended("j1", "finished", BATCH, ending="done")
    drained(recorder, teller)
    job = history.job("j1")
    assert job is not None
    assert [(one.attempt, one.ending, one.process) for one in job.runs] == [(1, "interrupted", ME), (1, "done", ME)]


def test_every_status_is_counted_and_found(recorder: Recorder, teller: Teller, history: History) -> None:
    teller.batch(BATCH, "open", description="Import\0", tags=["x"], parent="p" * 32, expires=5.0)
    for place, status in enumerate(STATUSES):
        for number in range(place + 1):
            jid = f"{status}-{number}"
            teller.enqueued(jid, BATCH)
            teller.job(jid, status, BATCH)
    drained(recorder, teller)
    running = history.batch(BATCH)
    assert running is not None
    assert running.counts == {status: place + 1 for place, status in enumerate(STATUSES)}
    assert running.total == 55
    teller.batch(BATCH, "closed")
    teller.batch(BATCH, "cancelled")
    teller.batch(BATCH, "complete", generation=1, counts={"finished": 7, "failed": 0})
    drained(recorder, teller)
    batch = history.batch(BATCH)
    assert batch is not None
    assert batch.counts == {"finished": 7}  # what the server counted; events are counted where it is not complete
    assert (batch.description, batch.tags, batch.parent, batch.expires) == ("Import␀", ["x"], "p" * 32, 5.0)
    assert (batch.state, batch.why, batch.generation, batch.total) == ("complete", "cancelled", 1, 7)
    assert batch.created is not None
    assert batch.closed is not None
    assert batch.completed is not None
    for place, status in enumerate(STATUSES):
        page = history.events(BATCH, status)
        assert [one.jid for one in page.events] == [f"{status}-{number}" for number in range(place + 1)]
        assert page.after is None
        ended = status in STATUSES[5:]
        assert all((one.ended_at is not None) == ended for one in page.events)
    assert history.batch("unknown") is None


def test_a_job_that_lives_again_has_not_ended(recorder: Recorder, teller: Teller, history: History) -> None:
    teller.enqueued("j1", BATCH)
    teller.ended("j1", "error", BATCH, ending="dead", error_class="KeyError", message="x", traceback=["t"], elapsed=1)
    drained(recorder, teller)
    event = history.events(BATCH, "error").events[0]
    assert event.ended_at is not None
    assert (event.error_class, event.traceback) == ("KeyError", ["t"])
    teller.job("j1", "enqueued", BATCH, attempt=1)
    drained(recorder, teller)
    event = history.events(BATCH, "enqueued").events[0]
    assert event.ended_at is None
    assert event.error_class == "KeyError"  # why it was there
    teller.ended("j1", "finished", BATCH, ending="done")
    drained(recorder, teller)
    event = history.events(BATCH).events[0]
    assert (event.status, event.error_class, event.message, event.traceback) == ("finished", None, None, [])


NASTY = "NUL \0 emoji 🦀 quote ' \" back \\ percent % line\nbidi \u202e end"


def test_a_job_that_was_moved_shows_its_new_queue(recorder: Recorder, teller: Teller, history: History) -> None:
    teller.enqueued("moved", BATCH)
    teller.enqueued("stays", BATCH)
    drained(recorder, teller)
    teller.job("moved", "enqueued", BATCH, ending="moved", queue="other")
    teller.ended("stays", "finished", BATCH, ending="done")
    drained(recorder, teller)
    assert {one.jid: one.queue for one in history.events(BATCH).events} == {"moved": "other", "stays": "default"}


def test_any_text_comes_through(recorder: Recorder, teller: Teller, history: History) -> None:
    large = "x" * 1_000_000
    teller.enqueued("j1", BATCH, args=[NASTY, large], **{"class": NASTY})
    teller.log("j1", NASTY, BATCH)
    teller.ended("j1", "error", BATCH, ending="dead", error_class=NASTY, message=NASTY, traceback=[NASTY], result=None)
    drained(recorder, teller)
    job = history.job("j1")
    assert job is not None
    shown = NASTY.replace("\0", "␀")
    assert job.event.args == [NASTY, large]  # JSON keeps the NUL
    assert (job.event.class_, job.event.error_class, job.event.message) == (shown, shown, shown)
    assert job.event.traceback == [NASTY]
    assert job.messages[0].text == shown
    assert job.changes[1].detail["message"] == NASTY


def test_entries_that_make_no_sense_stop_nobody(
    recorder: Recorder, teller: Teller, history: History, redis: Redis, home: Home
) -> None:
    key = home.keys.history
    redis.xadd(key, {"k": "job", "j": "no-json", "s": "error", "d": b"{\xff"})
    redis.xadd(key, {"k": "job", "j": "a-list", "s": "error", "d": "[1]"})
    redis.xadd(key, {"k": "job", "j": "wrong", "s": "error", "a": "x", "d": '{"message": 5, "error_class": "E"}'})
    redis.xadd(key, {"k": "job", "j": "half", "s": "error", "d": '{"message": "\\ud800", "class": "C"}'})
    redis.xadd(key, {"k": "nothing known"})
    redis.xadd(key, {"x": "y"})
    redis.xadd(key, {"k": "job", "j": "l" * 5000, "s": "s" * 500, "w": "w" * 5000, "d": "{}"})
    teller.enqueued("fine", BATCH)
    drained(recorder, teller)
    assert history.job("fine") is not None
    broken = history.job("no-json")
    assert broken is not None
    assert "unreadable" in broken.changes[0].detail
    wrong = history.job("wrong")
    assert wrong is not None
    assert (wrong.event.error_class, wrong.event.message) == ("E", None)
    assert wrong.changes[0].detail["message"] == 5
    half = history.job("half")
    assert half is not None
    assert (half.event.message, half.event.class_) == ("?", "C")
    assert home.told == []


def test_numbers_beyond_the_ordinary_stay_exact(recorder: Recorder, teller: Teller, history: History) -> None:
    big = 10**60 + 1
    teller.enqueued("j1", BATCH, args=[big, 1e300, -0.0])
    drained(recorder, teller)
    event = history.events(BATCH).events[0]
    assert event.args == [big, 1e300, 0.0]


@pytest.mark.parametrize("policy", ["on", "best_effort"])
def test_the_recorder_turns_the_stream_on(redis: Redis, redis_url: str, tmp_path: Path, policy: str) -> None:
    from_settings = Home(redis_url, f"sqlite:///{tmp_path}/h.sqlite", history=policy, history_bytes=5_000_000)
    with recording(from_settings) as recorder:
        recorder.tick()
    said = {"on": b"strict 5000000", "best_effort": b"best_effort 5000000"}[policy]
    assert redis.get(from_settings.keys.history_on) == said
    assert redis.get(from_settings.keys.recorder) is None  # it let go


def test_a_row_too_large_for_a_packet_is_kept_without_its_largest_text(
    recorder: Recorder, teller: Teller, history: History, home: Home
) -> None:
    recorder._checkpoint._packet = 200_000
    teller.enqueued("j1", BATCH, args=["x" * 150_000], kwargs={"quotes": '"' * 40_000}, tags=["kept"])
    teller.enqueued("j2", BATCH)
    drained(recorder, teller)
    job, other = history.job("j1"), history.job("j2")
    assert job is not None
    assert other is not None
    assert (job.event.status, job.event.tags, other.event.args) == ("enqueued", ["kept"], [1, "two"])
    if recorder.database.kind == "mysql":  # the others have no such limit
        assert [job.event.args, job.event.kwargs].count(None) == 1
    else:
        assert job.event.args == ["x" * 150_000]
    assert home.told == []
