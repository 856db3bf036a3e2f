"""Periodic jobs and processes that are killed: each tick once. And what the command line says of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from redis import Redis

from henchman.cli.main import henchman
from henchman.wire import times
from support.processes import Work, state_of
from support.store import Store
from support.worker import in_flight, jobs_in, until

TARGET = "support.clockwork:app"


def leader(redis: Redis) -> int:
    """The process that ticks."""
    name = until(lambda: redis.get("hm:cron:leader"), "one ticks")
    return int(name.split(b":")[-2])  # type: ignore[union-attr]


def planned(work: Work) -> list[float]:
    return [float(line[1]) for line in work.trace() if line[0] == "tick"]


def kill_leader(redis: Redis, work: Work) -> tuple[int, int]:
    """kill -9 of the process that ticks, when there is another that can go on at once: which it was, and how many jobs
    were in its hands."""
    pids = work.ready(redis, 2)
    pid = until(lambda: (found := leader(redis)) in pids and found, "one of those that live ticks")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", "it stands still")
    held = sum(redis.llen(key) for key in redis.scan_iter(match=f"hm:flight:*:{pid}:*", count=1000))  # type: ignore[misc]
    os.kill(pid, signal.SIGKILL)
    return pid, held


def come_to_rest(redis: Redis, url: str) -> None:
    """No more ticks, and the jobs of those that there were have run: at a stop, one may be given back beside a later
    one that ran."""
    assert run(url, "pause", "tick").exit_code == 0
    until(lambda: not redis.llen("queue:default") and not in_flight(redis), "every tick has run")


def test_each_tick_once_whoever_is_killed(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-p", "2", "-c", "2", target=TARGET) as work:
        killed, held = [], 0
        for share in (4, 14):  # ticks; the second time when another has long taken over
            until(lambda share=share: len(planned(work)) >= share, f"{share} ticks ran")  # type: ignore[misc]
            pid, jobs = kill_leader(redis, work)
            killed.append(pid)
            held += jobs
        until(lambda: len(planned(work)) >= 26, "it went on")
        come_to_rest(redis, redis_url)
        assert work.stop() == 0, work.log
    assert killed[0] != killed[1]
    runs = planned(work)
    first, last = min(runs), max(runs)
    assert sorted(set(runs)) == [first + 0.5 * n for n in range(round((last - first) * 2) + 1)], "none is missing"
    doubled = len(runs) - len(set(runs))
    assert doubled <= held, "only what the killed processes had ran again"
    assert int(redis.get("stat:processed") or 0) == len(set(runs)), "each was enqueued once"  # type: ignore[arg-type]


def test_two_that_tick_at_once_enqueue_each_tick_once(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """Nobody's lease lasts: at each look another one leads."""
    with Work(tmp_path / "w", redis_url, "-p", "2", "-c", "2", target=TARGET) as work:
        work.ready(redis, 2)

        def disturbed() -> bool:
            redis.delete("hm:cron:leader")
            return len(planned(work)) >= 12

        until(disturbed, "ticks run")
        come_to_rest(redis, redis_url)
        assert work.stop() == 0, work.log
    runs = sorted(planned(work))
    assert runs == [runs[0] + 0.5 * n for n in range(len(runs))]


def run(url: str, *words: str) -> Result:
    return CliRunner().invoke(henchman, ["cron", *words, "--redis", url])


def document(url: str, *words: str) -> list[dict[str, object]]:
    result = run(url, "list", *words, "--json")
    assert result.exit_code == 0, result.output
    crons: list[dict[str, object]] = json.loads(result.output)["crons"]
    return crons


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("REDIS_URL", "HENCHMAN_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_command_line(redis: Redis, redis_url: str, project: Path) -> None:
    result = run(redis_url)
    assert (result.exit_code, "No periodic jobs" in result.output) == (0, True)
    with Work(project / "w", redis_url, "-q", "default", target=TARGET) as work:
        until(lambda: len(planned(work)) >= 2, "ticks run")
        tick, weekdays = document(redis_url)
        assert (tick["name"], tick["every"], tick["expression"], tick["tz"]) == ("tick", 0.5, None, None)
        assert weekdays | {"next": 0} == {
            "name": "weekdays",
            "job": "report",
            "queue": "reports",
            "expression": "0 9 * * 1-5",
            "words": "At 09:00 on Monday through Friday",
            "every": None,
            "tz": "Europe/Paris",
            "missed": "skip",
            "state": "active",
            "origin": "code",
            "next": 0,
            "last": [],
            "problem": None,
            "overlap": "allow",
            "overlap_for": None,
            "running": None,
            "skipped": None,
            "pause": None,
        }
        assert len(weekdays["next"]) == len(tick["next"]) == 5  # type: ignore[arg-type]
        assert all(at.endswith(("T07:00:00.000Z", "T08:00:00.000Z")) for at in weekdays["next"])  # type: ignore[attr-defined]
        result = run(redis_url, "run", "weekdays")
        [job] = jobs_in(redis, "queue:reports")
        assert (result.exit_code, result.output) == (0, f"{job['jid']}\n")
        assert document(redis_url, "weekdays")[0]["last"][0]["jid"] == job["jid"]  # type: ignore[index]
        shown = run(redis_url, "list", "weekdays").output
        assert "0 9 * * 1-5  Europe/Paris  active  report on reports, missed: skip" in shown
        assert shown.count("09:00:00") == 5, "in its own time zone"
        assert "goes on" not in run(redis_url, "resume", "tick").output
        assert "tick is paused" in run(redis_url, "pause", "tick", "--reason", "a load test").output
        assert document(redis_url, "tick")[0]["pause"]["reason"] == "a load test"  # type: ignore[index]
        assert "was paused already" in run(redis_url, "pause", "tick").output
        assert [one["state"] for one in document(redis_url)] == ["paused", "active"]
        assert "tick goes on" in run(redis_url, "resume", "tick").output


@pytest.mark.parametrize("verb", ["run", "pause", "resume", "list"])
def test_a_name_that_is_not_there(redis_url: str, project: Path, verb: str) -> None:
    store = Store(redis_url)
    store.ask(
        "HSET", store.keys.crons, "nightly", '{"timing":"every 5","missed":"skip","queue":"q","name":"j","job":"{}"}'
    )
    result = run(redis_url, verb, "nightli")
    assert result.exit_code == 1
    assert "there is no cron 'nightli'; did you mean 'nightly'?" in result.output
    store.connections.close()


def test_names_and_definitions_from_elsewhere_are_shown_as_text(redis_url: str, project: Path) -> None:
    store = Store(redis_url)
    store.ask("HSET", store.keys.crons, "\x1b[31mred", "garbage", b"\xff\xfe", b"\xff")
    result = run(redis_url)
    assert (result.exit_code, "\x1b" in result.output, "unreadable" in result.output) == (0, False, True)
    assert [one["state"] for one in document(redis_url)] == ["unreadable"] * 2
    store.connections.close()


def test_a_tick_that_was_passed_over_is_shown_with_the_reason(redis_url: str, project: Path) -> None:
    store = Store(redis_url)
    definition = {"timing": "cron Europe/Paris 0 9 * * *", "missed": "skip", "queue": "q", "name": "j", "job": "{}"}
    store.ask("HSET", store.keys.crons, "nightly", json.dumps(definition | {"overlap_for": 3600.0}))
    at = 1_795_161_600.0  # 09:00 in Paris, 20 November 2026
    assert (document(redis_url)[0]["running"], document(redis_url)[0]["skipped"]) == (None, None)
    now = store.now()
    store.ask("HSET", store.keys.cron_running, "nightly", f"{now - 120:.6f} \x1b[31mjid")
    store.ask("HSET", store.keys.cron_skipped, "nightly", f"{at:.6f} {at + 0.5:.6f} 3 \x1b[31mjid")
    [found] = document(redis_url)
    assert (found["overlap"], found["overlap_for"]) == ("skip", 3600.0)
    assert found["running"] == {"since": times.iso(round(now - 120, 6)), "jid": "\x1b[31mjid"}
    assert found["skipped"] == {
        "planned": "2026-11-20T08:00:00.000Z",
        "at": "2026-11-20T08:00:00.500Z",
        "ticks": 3,
        "jid": "\x1b[31mjid",
    }
    text = run(redis_url).output
    assert "\x1b" not in text
    assert "missed: skip, overlap: skip (at most 1 h)" in text
    assert "jid, enqueued 2 min ago: ticks are passed over" in text
    assert "3 ticks, the last Fri 2026-11-20 09:00:00 (" in text
    assert "jid had not ended" in text
    store.connections.close()
