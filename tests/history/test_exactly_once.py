"""Exactly once, whatever is killed: the database, the recorder, or two recorders at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis
from sqlalchemy import func, select, text

import henchman
from henchman.errors import HistoryAway, HistoryError, ServerAway
from henchman.history import recorder as recorder_module
from henchman.history.checkpoint import Checkpoint, Overtaken, Position
from henchman.history.database import Database
from henchman.history.reading import History
from henchman.history.recorder import Recorder
from henchman.history.schema import changes, events, messages, position, runs
from henchman.history.stream import Rows
from henchman.kernel.events import Events
from henchman.store.call import load
from support.databases import DatabaseServer
from support.history import Home, Teller, recording
from support.worker import until

BATCH = "c" * 32
PATHS = [str(Path(henchman.__file__).parents[1]), str(Path(__file__).parents[1])]


def tell(teller: Teller, first: int, count: int) -> None:
    """``count`` jobs: pushed, a message, working, finished; drawn through each other, every second ten together."""
    for ten in range(first, first + count, 10):
        jids = [f"job-{number}" for number in range(ten, min(ten + 10, first + count))]
        together = ten % 20 == 10
        if together:
            teller.together(
                "enqueued", {jid: {"class": "shop.create", "queue": "q", "args": [1]} for jid in jids}, BATCH
            )
        for jid in jids:
            if not together:
                teller.enqueued(jid, BATCH)
            teller.working(jid, BATCH)
            teller.log(jid, f"words of {jid}", BATCH)
            if not together:
                teller.ended(jid, "finished", BATCH, ending="done")
        if together:
            teller.together("finished", {jid: {"ending": "done"} for jid in jids}, BATCH, 1)
    teller.flush()


def entries(count: int) -> int:
    """How many entries ``tell`` wrote."""
    tens = [min(10, count - first) for first in range(0, count, 10)]
    return sum(2 * ten + (2 if place % 2 else 2 * ten) for place, ten in enumerate(tens))


def judge(database_url: str, teller: Teller, count: int) -> None:
    """Every entry stands once in SQL, none is left on the server."""
    database = Database(database_url)
    try:
        with database.reading() as connection:
            statuses = connection.execute(select(events.c.status, func.count()).group_by(events.c.status)).all()
            rows = connection.execute(select(changes.c.jid, changes.c.status)).all()
            said = connection.execute(select(messages.c.jid)).scalars().all()
            ran = connection.execute(select(runs.c.jid, runs.c.ending)).all()
    finally:
        database.close()
    jids = [f"job-{number}" for number in range(count)]
    assert [tuple(row) for row in statuses] == [("finished", count)]
    assert Counter(map(tuple, rows)) == {(jid, s): 1 for jid in jids for s in ("enqueued", "working", "finished")}
    assert Counter(said) == dict.fromkeys(jids, 1)
    assert Counter(map(tuple, ran)) == {(jid, "done"): 1 for jid in jids}
    assert teller.redis.xlen(teller.keys.history) == 0


def test_the_stream_is_trimmed_only_after_the_commit(
    home: Home, recorder: Recorder, teller: Teller, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    tell(teller, 0, 50)

    def refused(*_: object, **__: object) -> None:
        raise HistoryAway("the commit was not answered")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "commit", refused)
        assert recorder.tick() > 0
        assert teller.redis.xlen(teller.keys.history) == entries(50)
    assert [name for name, _ in home.heard] == ["away"]
    assert recorder.drain(60)
    assert [name for name, _ in home.heard] == ["away", "back"]
    judge(database_url, teller, 50)


def test_what_was_committed_and_not_trimmed_is_not_written_twice(
    home: Home, recorder: Recorder, teller: Teller, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    tell(teller, 0, 50)
    commit = Checkpoint.commit

    def lost(self: Checkpoint, rows: Rows, old: Position, new: Position) -> None:
        commit(self, rows, old, new)
        raise HistoryAway("committed, and the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "commit", lost)
        recorder.tick()
    assert teller.redis.xlen(teller.keys.history) == entries(50)
    tell(teller, 50, 10)
    assert recorder.drain(60)
    assert int(teller.redis.get(teller.keys.history_bytes)) == 0  # type: ignore[arg-type]
    judge(database_url, teller, 60)


def test_a_position_that_moved_meanwhile_writes_nothing(database_url: str, redis_url: str) -> None:
    database = Database(database_url)
    try:
        checkpoint = Checkpoint(database, "hm:history", Events())
        old = checkpoint.load()
        brought = ("j", 7, None, "enqueued", None, None, 1.0, "", None, None, None)
        checkpoint.commit(Rows({}, {}, [brought], []), old, Position("5-0", 7))
        with pytest.raises(Overtaken):
            checkpoint.commit(Rows({}, {}, [("j", 8, *brought[2:])], []), old, Position("6-0", 8))
        assert checkpoint.load() == Position("5-0", 7)
        with database.reading() as connection:
            assert connection.execute(select(changes.c.sid)).scalars().all() == [7]
            assert connection.execute(select(func.count()).select_from(position)).scalar() == 1
        with pytest.raises(HistoryError, match="other:hm:history"):
            Checkpoint(database, "other:hm:history", Events()).load()
    finally:
        database.close()


def test_two_recorders_at_once_write_everything_once(
    redis_url: str, database_url: str, teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MOST", 60)
    tell(teller, 0, 400)
    homes = [Home(redis_url, database_url) for _ in range(2)]
    stop = threading.Event()

    def work(home: Home) -> None:
        with recording(home) as recorder:
            recorder._lead = lambda now: True  # type: ignore[method-assign]
            while not stop.is_set():
                recorder.tick()

    threads = [threading.Thread(target=work, args=(home,)) for home in homes]
    for one in threads:
        one.start()
    try:
        until(lambda: teller.redis.xlen(teller.keys.history) == 0, "all is recorded", 90)
    finally:
        stop.set()
        for one in threads:
            one.join(30)
    judge(database_url, teller, 400)


def test_one_of_two_leads_and_the_other_takes_over(redis_url: str, database_url: str, teller: Teller) -> None:
    first, second = Home(redis_url, database_url), Home(redis_url, database_url)
    with recording(first) as leader, recording(second) as other:
        leader.tick()
        other.tick()
        assert (leader.leads, other.leads) == (True, False)
        tell(teller, 0, 5)
        leader.stop()
        assert other.drain(60)
        assert (leader.leads, other.leads) == (False, True)
        other._renew_at = 0.0
        teller.redis.set(teller.keys.recorder, "somebody")
        other.tick()
        assert not other.leads  # what it lost it does not go on with
    judge(database_url, teller, 5)


def test_a_killed_recorder_leaves_no_gap_and_no_double(
    redis_url: str, database_url: str, teller: Teller, redis: Redis
) -> None:
    dice = random.Random(7)
    count = 600
    tell(teller, 0, count)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)}
    killed = 0
    while killed < 2 or (killed < 6 and redis.xlen(teller.keys.history)):
        if not redis.xlen(teller.keys.history):  # the one before was quick, or its killer slow
            tell(teller, count, 200)
            count += 200
        before = redis.xlen(teller.keys.history)
        child = subprocess.Popen(
            [sys.executable, "-m", "support.recording_child", redis_url, database_url],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "up\n"
            until(lambda before=before: redis.xlen(teller.keys.history) < before, "it records", 60)  # type: ignore[misc]
            time.sleep(dice.random() * 0.05)  # somewhere in a transaction, or between two
            child.send_signal(signal.SIGKILL)
            killed += 1
        finally:
            child.kill()
            child.communicate(timeout=30)
        redis.delete(teller.keys.recorder)  # its lease would last another 10 s
    with recording(Home(redis_url, database_url)) as recorder:
        assert recorder.drain(90)
    judge(database_url, teller, count)


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("script", ["lead", "history_trim"])
def test_a_recorder_killed_beside_a_script_leaves_no_gap_and_no_double(
    redis_url: str, database_url: str, teller: Teller, redis: Redis, script: str, where: str
) -> None:
    redis.script_load(load(script).text)  # so that it passes the points once, not also with the text
    tell(teller, 0, 100)
    faults = {"HENCHMAN_TEST_FAULTS": f"kill@{script}:{where}", "PYTHONPATH": os.pathsep.join(PATHS)}
    command = [sys.executable, "-m", "support.recording_child", redis_url, database_url]
    child = subprocess.run(command, env=os.environ | faults, stdout=subprocess.DEVNULL, timeout=150, check=False)
    assert child.returncode == -signal.SIGKILL
    assert bool(redis.exists(teller.keys.recorder)) is (script == "history_trim" or where == "after")
    redis.delete(teller.keys.recorder)  # its lease would last another 10 s
    with recording(Home(redis_url, database_url)) as recorder:
        assert recorder.drain(60)
    assert redis.get(teller.keys.history_bytes) == b"0"
    judge(database_url, teller, 100)


def test_a_full_server_is_emptied(redis_url: str, database_url: str, teller: Teller, redis: Redis) -> None:
    """Whoever records makes room: a server that is full of what is not recorded must not keep it from that."""
    tell(teller, 0, 50)
    redis.delete(teller.keys.history_on)
    redis.config_set("maxmemory", "1")
    try:
        with recording(Home(redis_url, database_url)) as recorder:
            assert recorder.drain(60)
            assert redis.get(teller.keys.history_on) == b"strict 268435456"
    finally:
        redis.config_set("maxmemory", "0")
    judge(database_url, teller, 50)


def test_a_database_that_is_killed_in_the_middle_gets_everything_once(
    redis_url: str, database_server: DatabaseServer, teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MOST", 60)
    tell(teller, 0, 300)
    home = Home(redis_url, database_server.url)
    with recording(home) as recorder:
        recorder.start()
        left, count = entries(300), 300
        for part in (left - 150, left - 350, left - 600):
            until(lambda part=part: teller.redis.xlen(teller.keys.history) < part, "it records", 60)  # type: ignore[misc]
            database_server.kill()
            tell(teller, count, 10)  # who was quick enough to have recorded everything has something to do
            count += 10
            until(lambda: [one for one in home.heard if one[0] == "away"], "the outage was told", 60)
            left = teller.redis.xlen(teller.keys.history)
            home.heard.clear()
            assert recorder.backlog().entries == left
            database_server.start()
            until(lambda: [one for one in home.heard if one[0] == "back"], "it goes on", 60)
            home.heard.clear()
        tell(teller, count, 50)
        until(lambda: teller.redis.xlen(teller.keys.history) == 0, "all is recorded", 60)
        assert recorder.lag() == 0.0
    judge(database_server.url, teller, count + 50)


def test_lag_is_the_age_of_the_oldest_entry(home: Home, recorder: Recorder, teller: Teller) -> None:
    assert recorder.lag() == 0.0
    teller.enqueued("j1", BATCH)
    teller.flush()
    written = time.monotonic()
    found = until(lambda: recorder.lag() >= 0.2 and recorder.backlog(), "it waits")
    assert found.lag <= time.monotonic() - written + 1.0
    assert found.entries == 1
    assert found.bytes > 60
    assert recorder.drain(30)
    assert recorder.lag() == 0.0


def test_a_count_of_bytes_that_a_killed_recorder_left_is_mended(
    home: Home, recorder: Recorder, teller: Teller, redis: Redis
) -> None:
    redis.incrby(home.keys.history_bytes, 12345)
    tell(teller, 0, 1)
    assert recorder.drain(30)
    assert int(redis.get(home.keys.history_bytes)) == 0  # type: ignore[arg-type]


def test_a_server_that_went_back_is_noticed_and_loses_nothing(
    home: Home, recorder: Recorder, teller: Teller, redis: Redis, history: History, database_url: str
) -> None:
    tell(teller, 0, 3)
    kept = redis.xrange(home.keys.history)
    assert recorder.drain(30)
    recorder._ready = False
    redis.delete(home.keys.history)  # an older state: what was recorded stands there again, and more comes with old ids
    recorder.tick()
    assert home.told == ["lost"]
    home.heard.clear()
    new = int(kept[0][0].partition(b"-")[0]) - 1000
    teller.write(f"{new}-1", k="job", j="old", b=BATCH, s="enqueued", a=0, w="", d="{}")
    teller.flush()
    for one, fields in kept:
        redis.xadd(home.keys.history, fields, id=one)
    recorder._ready = False
    assert recorder.drain(30)
    assert home.told == ["rewound"]
    old = history.job("old")
    assert old is not None
    assert old.event.changed > max(one.changed for one in history.events(BATCH, "finished").events)
    with recorder.database.writing() as connection:
        connection.execute(text("DELETE FROM henchman_events WHERE jid = 'old'"))
        connection.execute(text("DELETE FROM henchman_changes WHERE jid = 'old'"))
    judge(database_url, teller, 3)


def test_a_clock_that_went_back_doubles_nothing_that_a_killed_recorder_had_written(
    home: Home, recorder: Recorder, teller: Teller, redis: Redis, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of the stream stand still then, at one millisecond, for as many entries as come until it has passed."""
    ahead = int((time.time() + 3600) * 1000)
    redis.xadd(home.keys.history, {"k": "unknown"}, id=f"{ahead}-1022")
    tell(teller, 0, 30)
    entries = redis.xrange(home.keys.history)
    assert entries[-1][0].startswith(b"%d-1" % ahead), "all in that millisecond, beyond what a position can tell"
    with monkeypatch.context() as patch:
        patch.setattr(recorder_module.store, "trim", _killed)
        with pytest.raises(ServerAway):
            recorder.tick()
    recorder._ready = False
    assert recorder.drain(30)
    assert not home.told
    judge(database_url, teller, 30)


def _killed(*_: object) -> None:
    raise ServerAway("killed between writing and trimming")


def test_a_position_may_stand_within_an_entry(
    home: Home, recorder: Recorder, teller: Teller, monkeypatch: pytest.MonkeyPatch, history: History, database_url: str
) -> None:
    commit, calls = Checkpoint.commit, list[str]()

    def choosy(self: Checkpoint, rows: Rows, old: Position, new: Position) -> None:
        calls.append(new.at)
        if len(rows.changes) > 4:
            raise HistoryError("too many at once")
        if len(calls) == 6:
            raise HistoryAway("in the middle of an entry")
        commit(self, rows, old, new)

    tell(teller, 10, 10)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "commit", choosy)
        recorder.tick()
    assert [name for name, _ in home.heard] == ["away"]
    stands = recorder._checkpoint.load().at
    assert "." in stands, "some jobs of the first entry are recorded, and the others are not"
    assert 0 < len(history.events(BATCH).events) < 10
    assert teller.redis.xlen(teller.keys.history) == 22
    assert recorder.drain(30)
    tell(teller, 0, 10)
    assert recorder.drain(30)
    judge(database_url, teller, 20)


def test_what_was_read_ahead_is_read_again_when_the_chunk_before_it_was_not_written(
    home: Home, recorder: Recorder, teller: Teller, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    monkeypatch.setattr(recorder_module, "MOST", 60)
    commit, calls, ahead = Checkpoint.commit, list[str](), list[bool]()

    def away_twice(self: Checkpoint, rows: Rows, old: Position, new: Position) -> None:
        calls.append(new.at)
        if len(calls) in (2, 5):
            raise HistoryAway("for a moment")
        commit(self, rows, old, new)

    monkeypatch.setattr(Checkpoint, "commit", away_twice)
    tell(teller, 0, 200)
    while teller.redis.xlen(teller.keys.history):
        recorder.tick()
        ahead.append(recorder._ahead is not None)
    assert any(ahead) == (recorder.database.kind != "sqlite"), "a server writes while the next ones are read"
    assert [name for name, _ in home.heard] == ["away", "back"] * 2
    judge(database_url, teller, 200)


def test_one_entry_that_the_database_refuses_does_not_stop_the_rest(
    home: Home, recorder: Recorder, teller: Teller, monkeypatch: pytest.MonkeyPatch, history: History
) -> None:
    commit = Checkpoint.commit

    def choosy(self: Checkpoint, rows: Rows, old: Position, new: Position) -> None:
        if any(event.class_ == "bad" for event in rows.events.values()):
            raise HistoryError("no such value")
        commit(self, rows, old, new)

    monkeypatch.setattr(Checkpoint, "commit", choosy)
    for number in range(9):
        teller.enqueued(f"job-{number}", BATCH, **{"class": "bad" if number == 4 else "good"})
    teller.flush()
    assert recorder.drain(30)
    assert home.told == ["refused"]
    assert len(history.events(BATCH, "enqueued").events) == 9
    refused = history.job("job-4")
    assert refused is not None
    assert refused.changes[0].detail == {"refused": "no such value"}


@pytest.mark.parametrize("number", [2**31, 2**63, -(2**64), 10**30, 10**300, 10**400])
def test_numbers_that_no_column_takes_do_not_stop_the_rest(
    home: Home, recorder: Recorder, teller: Teller, redis: Redis, history: History, number: int
) -> None:
    """Anybody may write entries: one number ended each try to write what came with it, for ever."""
    detail = f'{{"total":{number},"generation":{number},"done":{number},"started":{number},"elapsed":{number}}}'
    for kind, status in (("batch", "open"), ("batch", "complete"), ("job", "finished"), ("progress", "")):
        fields = {"k": kind, "j": "evil", "b": BATCH, "s": status, "a": str(number), "w": "", "d": detail}
        redis.xadd(teller.keys.history, fields)  # type: ignore[arg-type]
    teller.enqueued("good", BATCH, **{"class": "good"})
    teller.flush()
    assert recorder.drain(30)
    assert history.job("good") is not None
    assert history.job("evil") is not None
    assert home.told == []


def test_an_entry_of_the_far_future_does_not_stop_the_rest(
    home: Home, recorder: Recorder, teller: Teller, redis: Redis, history: History
) -> None:
    fields = {"k": "job", "j": "evil", "b": "", "s": "finished", "a": "1", "w": "", "d": "{}"}
    redis.xadd(teller.keys.history, fields, id=f"{2**62}-5")  # type: ignore[arg-type]
    teller.enqueued("good", BATCH, **{"class": "good"})
    teller.flush()
    assert recorder.drain(30)
    assert history.job("good") is not None
    assert history.job("evil") is not None


def test_what_a_driver_cannot_bind_is_refused_alone(
    home: Home, recorder: Recorder, teller: Teller, monkeypatch: pytest.MonkeyPatch, history: History
) -> None:
    """A number that got past everything else: the change is kept without its detail."""
    monkeypatch.setattr("henchman.history.stream._LARGEST", 10**400)
    teller.redis.xadd(
        teller.keys.history,
        {"k": "batch", "b": BATCH, "s": "open", "d": f'{{"generation":{10**30}}}'},
    )
    teller.enqueued("good", BATCH, **{"class": "good"})
    teller.flush()
    assert recorder.drain(30)
    assert history.job("good") is not None
    assert [name for name, _ in home.heard] == ["refused"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_what_a_server_says_of_an_unfinished_row_is_no_outage(
    home: Home, recorder: Recorder, teller: Teller, monkeypatch: pytest.MonkeyPatch, history: History
) -> None:
    """psycopg before 3.1.10 sends it, with bytes of anything behind it; most answers are of the class of outages."""
    leave = psycopg.Copy.__exit__

    def answered(self: Any, kind: Any, error: Any, trace: Any) -> None:
        leave(self, kind, error, trace)
        if error is not None:
            raise psycopg.errors.ProtocolViolation("insufficient data left in message")

    monkeypatch.setattr(psycopg.Copy, "__exit__", answered)
    test_what_a_driver_cannot_bind_is_refused_alone(home, recorder, teller, monkeypatch, history)
