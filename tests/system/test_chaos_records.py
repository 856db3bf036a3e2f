"""The judge of the chaos run, of the records of tracked ordered queues: what SQL must say of each payload."""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHAOS = Path(__file__).parents[2] / "chaos"
#: key → (queue, id, what its push was told, status it must have)
PUSHED = {
    "e1": ("accounts", "a1", "accepted", "finished"),
    "e2": ("accounts", "a1", "accepted", "error"),
    "e3": ("accounts", "a2", "refused", None),
    "e4": ("products", "p1", "accepted", "finished"),
}
LIVES = {"e1": "enqueued working retrying working finished", "e2": "scheduled working enqueued working error"}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "history.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE henchman_events (jid TEXT PRIMARY KEY, queue TEXT, args TEXT, status TEXT)")
        db.execute("CREATE TABLE henchman_changes (jid TEXT, sid INTEGER PRIMARY KEY, status TEXT)")
        for key, life in LIVES.items():
            queue, name, _, status = PUSHED[key]
            args = f'["{name}",{{"dead":true,"key":"{key}"}}]'
            db.execute("INSERT INTO henchman_events VALUES (?, ?, ?, ?)", (f"j-{key}", queue, args, status))
            rows = [(f"j-{key}", status) for status in life.split()]
            db.executemany("INSERT INTO henchman_changes (jid, status) VALUES (?, ?)", rows)
    return path


@pytest.fixture
def judged(record: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What the judge says of the record above, after some statements."""
    monkeypatch.syspath_prepend(str(CHAOS))
    module: Any = importlib.import_module("ordered_record")
    spans: Any = importlib.import_module("spans")

    def look(*statements: str) -> list[str]:
        with sqlite3.connect(record) as db:
            for statement in statements:
                db.execute(statement)
        pushed = {}
        for key, (queue, name, told, _) in PUSHED.items():
            pushed[key] = spans.Pushed(key)
            pushed[key].entity, pushed[key].told = (queue, name), told
        found: list[str] = list(module.OrderedRecord(record).rule(pushed, lambda one: PUSHED[one.key][3]))
        return found

    return look


def test_a_record_that_agrees_with_the_ledger(judged: Callable[..., list[str]]) -> None:
    assert judged() == [], "and what stands in a queue that is not tracked has none"


EVENT, CHANGE = "INSERT INTO henchman_events VALUES", "INSERT INTO henchman_changes (jid, status) VALUES"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM henchman_events WHERE jid = 'j-e1'", "e1 of accounts/a1 (accepted) has no record"),
        (f"""{EVENT} ('x', 'accounts', '["a1",{{"key":"e1"}}]', 'finished')""", "a second record of e1"),
        (f"""{EVENT} ('x', 'accounts', '["a2",{{"key":"e3"}}]', 'finished')""", "e3 of accounts/a2 stands as finished"),
        (f"""{EVENT} ('x', 'accounts', '["a2",{{"key":"e9"}}]', 'finished')""", "e9 has a record, and nobody pushed"),
        (f"{EVENT} ('x', 'accounts', NULL, 'finished')", "no payload"),
        ("UPDATE henchman_events SET status = 'working' WHERE jid = 'j-e1'", "e1 of accounts/a1 stands as working"),
        ("UPDATE henchman_events SET status = 'finished' WHERE jid = 'j-e2'", "e2 of accounts/a1 stands as finished"),
        ("""UPDATE henchman_events SET args = '["a7",{"key":"e1"}]' WHERE jid = 'j-e1'""", "finished of a7"),
        ("DELETE FROM henchman_changes WHERE jid = 'j-e1' AND status = 'enqueued'", "e1: working after nothing"),
        (f"{CHANGE} ('j-e1', 'finished')", "e1: finished after finished"),
        (f"{CHANGE} ('j-e2', 'enqueued')", "e2: enqueued after error"),
        ("DELETE FROM henchman_changes WHERE jid = 'j-e2' AND status = 'error'", "e2: it ends as working"),
    ],
)
def test_the_judge_sees_harm_in_the_records(judged: Callable[..., list[str]], statement: str, told: str) -> None:
    assert [one for one in judged(statement) if told in one]
