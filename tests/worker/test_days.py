"""What ended on each day, kept on the server without SQL: on one day, bounded, and the same as history has it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman import App, Discard, Failure
from henchman.cli.main import henchman
from henchman.errors import ArgumentError
from henchman.inspector.days import ended_on, last_days
from henchman.inspector.doctor import examine
from henchman.store.call import run
from henchman.wire import times
from henchman.work.unit import InFlightList, Unit
from henchman.worker.metrics import ExecutionMetrics
from support.worker import push_raw, settled, until, working

MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC).timestamp()
HALF_A_YEAR = 180 * 86400
FLIGHT = InFlightList("a", "queue:a", "list", "me", 1)
Row = tuple[Unit, str, bytes, float, bytes]


class Clock:
    """The server's time."""

    def __init__(self, at: float) -> None:
        self.at = at

    def now(self) -> float:
        return self.at


def row(elapsed: float | None = 0.001, ending: str = "done", stored: bytes = b"", **job: Any) -> Row:
    unit = Unit(b"{}", FLIGHT, 0.0)
    unit.job = {"class": "A", "args": [], "jid": "j1", **job}
    unit.elapsed = elapsed
    return unit, ending, stored, 0.0, b"effects" if "hm" in job else b""


def dead(number: int, message: str = "broken") -> Row:
    stored = json.dumps({"error_class": "ValueError", "error_message": message}).encode()
    return row(0.1, "dead", stored, **{"class": f"shop.class{number % 300}", "jid": f"{number:024}"})


def counts(app: App, day: str) -> dict[str, dict[str, int]]:
    return run(app.connections, ended_on(app.keys, day)).counts


def test_midnight_between_run_and_settle_and_between_settle_and_flush(app: App, redis: Redis) -> None:
    clock = Clock(MIDNIGHT - 1)
    tally = ExecutionMetrics(clock.now)
    tally.count([row(jid="before"), row(3600.0)])
    clock.at = MIDNIGHT
    tally.count([row(7200.0), row(0.2, "dead")])  # ran before midnight, settled at it
    tally.flush(app, MIDNIGHT + 9)
    assert counts(app, "2026-11-21") == {"A": {"finished": 2}}
    assert counts(app, "2026-11-22") == {"A": {"finished": 1, "error": 1}}
    assert {key.decode() for key in redis.scan_iter("hm:day:*")} == {
        *("hm:day:20261121", "hm:day:20261122", "hm:day:20261122:dead")
    }


def test_what_did_not_end_here_is_of_no_day(app: App) -> None:
    tally = ExecutionMetrics(Clock(MIDNIGHT).now)
    lost, called_off, kept = row(0.001, hm={"track": True}), row(None, "cancelled"), row(0.001, hm={"key": ["a", "b"]})
    tally.count(
        [lost, called_off, kept, row(0.1, "retry"), row(1.0, "released"), row(0.1, "snoozed")], {lost[0], called_off[0]}
    )
    tally.flush(app, MIDNIGHT)
    found = run(app.connections, ended_on(app.keys, "2026-11-22"))
    assert (found.counts, [one.status for one in found.jobs]) == ({"A": {"finished": 1}}, ["finished"])


def test_a_full_day_stays_bounded(app: App, redis: Redis) -> None:
    """Three hundred classes, more of everything than is kept."""
    tally = ExecutionMetrics(Clock(MIDNIGHT).now)
    keyed = [row(**{"class": f"shop.class{n}", "jid": f"{n:024}", "hm": {"key": ["a", "b"]}}) for n in range(300)]
    for flushed in range(5):
        tally.count([dead(flushed * 600 + n, "x" * 1000) for n in range(600)])
        tally.count(keyed)
        tally.flush(app, MIDNIGHT)
    keys = ("hm:day:20261122", "hm:day:20261122:dead", "hm:day:20261122:done")
    assert (redis.hlen(keys[0]), redis.llen(keys[1]), redis.llen(keys[2])) == (602, 1000, 200)
    assert sum(int(redis.memory_usage(key, samples=0) or 0) for key in keys) < 480_000
    assert all(HALF_A_YEAR - 60 < redis.ttl(key) <= HALF_A_YEAR for key in keys)
    found = run(app.connections, ended_on(app.keys, "2026-11-22", ["error"], 2000))
    assert sum(one["error"] for one in found.counts.values()) == 3000, "counts tell of all"
    assert len(found.jobs) == 1000
    assert {one.jid for one in found.jobs} == {f"{n:024}" for n in range(2000, 3000)}, "the latest are kept"
    assert {(one.error_class, one.message) for one in found.jobs} == {("ValueError", "x" * 200)}


def test_pushers_cannot_make_a_day_large(app: App, redis: Redis) -> None:
    tally = ExecutionMetrics(Clock(MIDNIGHT).now)
    for start in range(0, 3000, 500):
        tally.count([row(wrapped=f"name {start + n}") for n in range(500)])
        tally.flush(app, MIDNIGHT)
    assert redis.hlen("hm:day:20261122") == 1000 + 1 + 1
    assert counts(app, "2026-11-22")["(others)"] == {"finished": 2000}


def test_text_of_others_breaks_nothing(app: App, redis: Redis) -> None:
    tally = ExecutionMetrics(Clock(MIDNIGHT).now)
    tally.count(
        [row(0.1, "dead", b"\xff no json", **{"class": "a|done", "jid": 7}), row(None, "invalid", **{"class": None})]
    )
    tally.flush(app, MIDNIGHT)
    redis.hset(
        "hm:day:20261122",
        mapping={"": "x", "B|done": "x", "nothing": "1", "\udc80".encode("utf-8", "surrogateescape"): "1"},
    )  # type: ignore[arg-type,dict-item]
    redis.lpush("hm:day:20261122:dead", b"\xff", "[]", '["a"]')
    found = run(app.connections, ended_on(app.keys, "2026-11-22"))
    assert found.counts == {"a|done": {"error": 1}, "?": {"error": 1}}
    assert [one.name for one in found.jobs] == ["a|done", "?"] or [one.name for one in found.jobs] == ["?", "a|done"]


@pytest.mark.parametrize("day", ["yesterday", "2026-13-01", ""])
def test_what_is_no_day_is_named(app: App, day: str) -> None:
    with pytest.raises(ArgumentError, match="is no day: write it as in 2026-11-21"):
        run(app.connections, ended_on(app.keys, day))


def define(app: App) -> Any:
    @app.job(name="act", retry=0, track=True)
    def act(what: str) -> None:
        if what == "fail":
            raise Failure("the answer is no")
        if what == "error":
            raise ValueError("broken")
        if what == "discard":
            raise Discard("not needed")

    return act


def test_history_and_server_count_the_same_day(redis_url: str, redis: Redis, tmp_path: Path) -> None:
    app = App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path}/history.db", concurrency=2, heartbeat=0.1)
    history = app.open_history()
    history.upgrade()
    act = define(app)
    for what in ("ok", "ok", "fail", "error", "error", "discard"):
        act.enqueue(what)
    cancelled = act.enqueue("ok")
    cancelled.cancel()
    with working(app):
        today = times.day(app.clock.now())
        until(lambda: sum(counts(app, today).get("act", {}).values()) == 7, "all are counted")
        until(lambda: sum(history.reading.day(today).counts.get("act", {}).values()) == 7, "all are recorded")
    assert counts(app, today) == history.reading.day(today).counts
    assert run(app.connections, last_days(app.keys)) == history.reading.days(today)
    mine = {one.jid for one in run(app.connections, ended_on(app.keys, today, ["error"])).jobs}
    assert mine == {one.jid for one in history.reading.day(today, status="error").events}
    app.close()


def test_the_command_reads_it_where_there_is_no_history(app: App, redis: Redis, redis_url: str) -> None:
    act = define(app)
    for what in ("ok", "error"):
        act.enqueue(what)
    push_raw(redis, '{"class":"Unknown","args":[],"jid":"1","retry":false}', "garbage")
    with working(app):
        settled(redis, 2)
        until(lambda: not redis.exists("queue:default"), "the queue is empty")
    today = times.day(app.clock.now())

    def command(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(henchman, ["history", "day", *words], env={"HENCHMAN_REDIS_URL": redis_url})
        return result.exit_code, result.output

    status, out = command(today, "--status", "dead", "--json")
    told = json.loads(out)
    assert (status, told["source"], told["counts"]["act"]) == (0, "server", {"error": 1})
    [broken] = [one for one in told["jobs"] if one["class"] == "act"]
    assert (broken["error_class"], broken["message"]) == ("ValueError", "broken")
    status, out = command(today)
    assert status == 0
    assert "There is no history" in out
    assert "broken" in out
    status, out = command("--json")
    assert json.loads(out)["days"][today]["finished"] == 1
    assert command("2020-01-01")[1].endswith("Nothing that is known ended on 2020-01-01.\n")
    assert command(today, "--status", "nonsense")[0] == 2
    assert command("nonsense")[0] == 2
    [check] = [one for one in examine(app.connections, app.keys) if one.name == "days"]
    assert check.verdict == "ok"
    assert check.text.startswith("1 day, ")
