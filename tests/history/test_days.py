"""Life by day: what ended on a day, in UTC, out of the record; on three databases."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from sqlalchemy import insert, inspect

from henchman.cli.main import henchman
from henchman.errors import ArgumentError
from henchman.history.reading import History
from henchman.history.schema import events
from support.history import Home

MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC).timestamp()


def ended(history: History, *rows: tuple[str, str, str, float]) -> None:
    """(jid, class, status, seconds from the midnight between the 21st and the 22nd)."""
    made = [
        {"jid": jid, "class": name, "status": status, "ended_at": MIDNIGHT + at, "born": place, "changed": place}
        for place, (jid, name, status, at) in enumerate(rows, 1)
    ]
    with history.database.writing() as connection:
        connection.execute(insert(events), made)


def some(history: History) -> None:
    ended(
        history,
        ("a", "mail", "finished", -1.0),
        ("b", "mail", "error", -0.001),
        ("c", "mail", "finished", 0.0),  # begun before midnight, and ended at it: one day
        ("d", "ship", "finished", -3600.0),
        ("e", "ship", "finished", -86400.0),
        ("f", "ship", "finished", -86400.001),
        ("g", "ship", "finished", -400 * 86400.0),
    )


def test_each_end_is_of_one_day(history: History) -> None:
    some(history)
    found = history.day("2026-11-21")
    assert found.counts == {"mail": {"finished": 1, "error": 1}, "ship": {"finished": 2}}
    assert [one.jid for one in found.events] == ["b", "a", "d", "e"]
    assert history.day("2026-11-22").counts == {"mail": {"finished": 1}}
    assert history.day("2026-11-23").counts == {}
    dead = history.day("2026-11-21", status="error")
    assert (dead.counts, [one.jid for one in dead.events]) == ({"mail": {"error": 1}}, ["b"])
    assert [one.jid for one in history.day("2026-11-21", limit=1).events] == ["b"]


def test_the_last_180_days_are_counted(history: History) -> None:
    some(history)
    assert history.days("2026-11-22") == {
        "2026-11-22": {"finished": 1},
        "2026-11-21": {"error": 1, "finished": 3},
        "2026-11-20": {"finished": 1},
    }
    assert history.days("2026-11-20") == {"2026-11-20": {"finished": 1}}
    assert history.days("2026-11-22", most=1) == {"2026-11-22": {"finished": 1}}


@pytest.mark.parametrize("day", ["yesterday", "2026-13-01", "21.11.2026", ""])
def test_what_is_no_day_is_named(history: History, day: str) -> None:
    with pytest.raises(ArgumentError, match="is no day: write it as in 2026-11-21"):
        history.day(day)


def test_an_index_serves_it(history: History) -> None:
    indices = {
        one["name"]: one["column_names"] for one in inspect(history.database.engine).get_indexes("henchman_events")
    }
    assert indices["henchman_events_day"] == ["ended_at", "status", "class"]


def test_the_command(home: Home, history: History) -> None:
    some(history)
    env = {"HENCHMAN_REDIS_URL": home.config.redis_url, "HENCHMAN_DATABASE_URL": home.config.database_url}

    def command(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(henchman, ["history", "day", *words], env=env)
        return result.exit_code, result.output

    status, out = command("2026-11-21", "--status", "dead", "--json")
    told = json.loads(out)
    assert (status, told["day"], told["counts"]) == (0, "2026-11-21", {"mail": {"error": 1}})
    assert [one["jid"] for one in told["jobs"]] == ["b"]
    status, out = command("2026-11-21")
    assert status == 0
    assert "mail" in out
    assert "ship" in out
    assert command("2026-11-23") == (0, "Nothing that is recorded ended on 2026-11-23.\n")
    status, out = command("nonsense")
    assert status == 2
    assert "is no day" in out
    status, out = command("--json")
    assert status == 0
    assert isinstance(json.loads(out)["days"], dict)
