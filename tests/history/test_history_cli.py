"""``henchman db``, ``henchman history`` and what ``henchman doctor`` says of them."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from redis import Redis

from henchman.cli.main import henchman
from henchman.history.database import Database
from henchman.history.recorder import Recorder, companion
from support.databases import emptied
from support.history import Home, Teller, recording

BATCH = "9" * 32


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")


def command(home: Home, *words: str) -> Result:
    env = {"HENCHMAN_REDIS_URL": home.config.redis_url, "HENCHMAN_DATABASE_URL": home.config.database_url}
    return CliRunner().invoke(henchman, [*words], env=env)


def check(home: Home, name: str) -> dict[str, str]:
    found = json.loads(command(home, "doctor", "--json").output)["checks"]
    (one,) = [check for check in found if check["name"] == name]
    return dict(one)


def test_tables_are_made_once_and_told(home: Home) -> None:
    assert home.config.database_url is not None
    emptied(home.config.database_url)
    first = command(home, "db", "current")
    assert first.exit_code == 1
    assert "no tables of Henchman, this release needs 0004" in first.output
    sqlite = home.config.database_url.startswith("sqlite")
    assert check(home, "history")["verdict"] == ("ok" if sqlite else "bad")
    made = command(home, "db", "upgrade")
    assert made.exit_code == 0, made.output
    assert "made, schema 0004" in made.output
    assert "up to date, schema 0004" in command(home, "db", "upgrade").output
    again = command(home, "db", "current", "--json")
    assert again.exit_code == 0
    assert json.loads(again.output)["found"] == "0004"
    assert check(home, "history")["verdict"] == "ok"


def test_a_database_of_a_newer_release_is_left_alone(home: Home) -> None:
    database = Database(home.config.database_url or "")
    try:
        with database.writing() as connection:
            connection.exec_driver_sql("UPDATE henchman_version SET version_num = '9999'")
    finally:
        database.close()
    result = command(home, "db", "upgrade")
    assert result.exit_code == 1
    assert "was made by a newer Henchman (schema 9999)" in result.output
    with recording(home) as recorder:
        recorder.tick()
    assert [name for name, _ in home.heard] == ["away"]


def test_a_server_database_without_tables_waits_for_a_person(home: Home, teller: Teller) -> None:
    assert home.config.database_url is not None
    emptied(home.config.database_url)
    teller.enqueued("job", BATCH)
    teller.flush()
    with recording(home) as recorder:
        if home.config.database_url.startswith("sqlite"):
            assert recorder.drain(30)
        else:
            recorder.tick()
            ((name, facts),) = home.heard
            assert name == "away"
            assert "henchman db upgrade" in str(facts["error"])
            assert teller.redis.xlen(teller.keys.history) == 1
            recorder.database.upgrade()
            assert recorder.drain(30)


def test_find_status_and_prune(home: Home, recorder: Recorder, teller: Teller) -> None:
    teller.enqueued("job-1", BATCH, **{"class": "[red]shop.create\x1b[31m"})
    teller.ended("job-1", "failed", BATCH, ending="failed", message="no such\nproduct \u202e")
    teller.enqueued("job-2", BATCH)
    teller.flush()
    behind = command(home, "history", "status")
    assert "waiting: 3 entries" in behind.output
    assert "nobody (a worker with history on does)" in behind.output
    assert check(home, "history lag")["text"].startswith("3 entries wait")
    assert recorder.drain(30)
    shown = command(home, "history", "find", f"batch:{BATCH}", "status:failed", "product")
    assert shown.exit_code == 0, shown.output
    assert "[red]shop.create\\x1b[31m" in shown.output
    assert "no such\\nproduct \\u202e" in shown.output
    assert "job-2" not in shown.output
    page = json.loads(command(home, "history", "find", "--limit", "1", "--json").output)
    assert [one["jid"] for one in page["events"]] == ["job-2"]
    assert "job-1" in command(home, "history", "find", "--after", str(page["after"])).output
    assert "Nothing that fits" in command(home, "history", "find", "class:none").output
    wrong = command(home, "history", "find", "stat:failed")
    assert wrong.exit_code == 2
    assert "did you mean state:" in wrong.output
    status = json.loads(command(home, "history", "status", "--rows", "--json").output)
    assert (status["rows"]["events"], status["entries"], status["off"]) == (2, 0, None)
    assert command(home, "history", "prune").output == "0 jobs and 0 batches removed\n"
    assert check(home, "history lag")["verdict"] == "ok"


def test_off_is_told_with_the_way_to_turn_it_on(redis_url: str, redis: Redis) -> None:
    env = {"HENCHMAN_REDIS_URL": redis_url}
    for words in (["history", "find"], ["db", "upgrade"]):
        result = CliRunner().invoke(henchman, words, env=env)
        assert result.exit_code == 1
        assert "history is off: set database_url" in result.output
    assert "history is off" in CliRunner().invoke(henchman, ["history", "status"], env=env).output
    redis.set("hm:history:on", "strict 5")
    assert CliRunner().invoke(henchman, ["history", "off"], env=env).exit_code == 0
    assert redis.get("hm:history:on") is None
    off = Home(redis_url, "sqlite:///unused.sqlite", history="off")
    assert companion(off) is None
    assert not Path("unused.sqlite").exists()


def test_passwords_are_masked(redis_url: str) -> None:
    env = {"HENCHMAN_REDIS_URL": redis_url, "HENCHMAN_DATABASE_URL": "postgresql://me:geheim@127.0.0.1:1/none"}
    for words in (["doctor"], ["doctor", "--json"], ["db", "current"], ["history", "find"], ["history", "status"]):
        output = CliRunner().invoke(henchman, words, env=env).output
        assert "geheim" not in output
        assert "***" in output


def test_an_installed_wheel_has_its_migrations(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, root],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    if done.returncode and "hatchling" in done.stderr:
        pytest.skip("hatchling is not installed here")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        assert "henchman/history/versions/v0001_first.py" in held.namelist()
        held.extractall(tmp_path / "installed")
    code = (
        "from henchman.history.database import Database; import henchman;"
        "print(henchman.__file__); d = Database('sqlite:///made.sqlite'); print(d.upgrade()); d.close()"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path / "installed")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert "installed" in out.stdout.splitlines()[0], out.stderr
    assert "found='0004'" in out.stdout, out.stderr
