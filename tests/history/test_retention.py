"""What is old goes, by age and by how it ended, with all that hangs on it; what lives stays."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import event

from henchman.config import Config
from henchman.history import admin
from henchman.history.admin import SLICE, Admin, Pruning
from henchman.history.database import Database
from henchman.history.reading import History
from henchman.history.recorder import Recorder
from support.history import Home, Teller

DAY = 86400.0
BATCH, RECENT = "a" * 32, "b" * 32


def past(teller: Teller, days: float, sequence: int, jid: str, batch: str, status: str, **fields: object) -> None:
    ms = int((time.time() - days * DAY) * 1000)
    told = {"k": "job", "j": jid, "b": batch, "s": status, "a": 1, "w": "", "d": "{}"} | fields
    teller.write(f"{ms}-{sequence}", **told)


def prune(config: Config) -> Pruning:
    made = Admin(config)
    try:
        return made.prune(time.time())
    finally:
        made.close()


def test_age_and_status_decide_and_everything_of_a_job_goes(
    recorder: Recorder, teller: Teller, history: History, database_url: str
) -> None:
    sequence = 0
    statuses = ("finished", "failed", "error", "cancelled", "expired", "working", "enqueued")
    for days in (400, 100, 5):
        for status in statuses:
            sequence += 1
            past(teller, days, sequence, f"{status}-{days}", BATCH if days > 5 else RECENT, "enqueued")
            sequence += 1
            past(teller, days, sequence, f"{status}-{days}", BATCH if days > 5 else RECENT, status)
    teller.flush()
    assert recorder.drain(60)
    config = Config(database_url=database_url, history_keep_status={"finished": 30 * DAY, "expired": 1000 * DAY})
    done = prune(config)
    assert done.removed == 5  # four that are kept 180 days of the oldest but expired, and finished twice
    left = {one.jid for batch in (BATCH, RECENT) for one in history.events(batch).events}
    gone = {"finished-400", "finished-100", "failed-400", "error-400", "cancelled-400"}
    assert left == {f"{status}-{days}" for days in (400, 100, 5) for status in statuses} - gone
    assert history.job("finished-400") is None
    assert history.sizes()["changes"] == 2 * len(left)
    assert prune(config).removed == 0


def test_slices_are_small_also_of_one_that_said_very_much(
    recorder: Recorder, teller: Teller, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    past(teller, 300, 0, "talker", BATCH, "enqueued")
    for number in range(1, 2 * SLICE + 500):
        past(teller, 300, number, "talker", BATCH, "", k="log", d='{"text": "x"}')
    past(teller, 299, 0, "talker", BATCH, "finished")
    for number in range(450):
        past(teller, 298, number, f"job-{number}", BATCH, "finished")
    past(teller, 297, 0, "orphan", "", "", k="log", d='{"text": "of a job that nobody knows"}')
    ms = int((time.time() - 296 * DAY) * 1000)
    teller.write(f"{ms}-0", k="batch", b=BATCH, s="open", d="{}")
    teller.write(f"{ms}-1", k="batch", b=BATCH, s="complete", d="{}")
    teller.write(k="batch", b=RECENT, s="open", d="{}")
    teller.flush()
    assert recorder.drain(60)
    removed: list[int] = []

    def executed(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("DELETE"):
            removed.append(cursor.rowcount)  # type: ignore[attr-defined]

    event.listen(recorder.database.engine, "after_cursor_execute", executed)
    pruning = Pruning(recorder.database, Config(), now=time.time())
    while pruning.slice():
        pass
    assert (pruning.removed, pruning.batches) == (452, 1)
    assert max(removed) <= SLICE
    assert history.sizes() == {"batches": 1, "events": 0, "runs": 0, "changes": 1, "messages": 0}


def test_the_recorder_does_it_by_itself(home: Home, recorder: Recorder, teller: Teller, history: History) -> None:
    past(teller, 300, 0, "old", BATCH, "finished")
    teller.flush()
    assert recorder.drain(60)
    assert history.job("old") is not None
    recorder._prune_at = 0.0
    while history.job("old") is not None:
        recorder.tick()
    assert recorder._prune_at > 0.0


def test_a_host_a_year_ahead_forgets_nothing(
    home: Home, recorder: Recorder, teller: Teller, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    past(teller, 300, 0, "old", BATCH, "finished")
    past(teller, 1, 0, "young", BATCH, "finished")
    teller.flush()
    assert recorder.drain(60)
    monkeypatch.setattr(time, "time", lambda wall=time.time: wall() + 365 * DAY)
    recorder._prune_at = 0.0
    while recorder._prune_at == 0.0 or recorder._pruning is not None:
        recorder.tick()
    assert history.job("old") is None
    assert history.job("young") is not None


def test_a_round_counts_what_it_removed(database_url: str) -> None:
    database = Database(database_url)
    try:
        pruning = Pruning(database, Config(), now=time.time())
        assert not pruning.slice()
        assert (pruning.removed, pruning.batches) == (0, 0)
        assert admin.PAUSE > 0
    finally:
        database.close()
