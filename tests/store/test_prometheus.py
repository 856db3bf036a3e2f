"""What Prometheus is told, from a real server: read by ``promtool`` of Prometheus itself, and by its rules."""

from __future__ import annotations

import datetime as dt
import re
import shutil
import subprocess
import time

import pytest

from henchman.errors import ArgumentError
from henchman.inspector.prometheus import CLASSES_MOST, exposition
from henchman.inspector.queues import QueueState
from henchman.inspector.scaling import Pace, checked_within, pace, wanted_slots
from henchman.store import leases
from henchman.store.call import run
from henchman.store.metrics import CAUSES_COUNTED, Counted, bucket_of, flush
from henchman.work.outcome import CAUSES
from support.store import Store

NOW = dt.datetime.now(dt.UTC)
_LINE = re.compile(r'^(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)$')


def told(store: Store, within: float = 60.0) -> dict[str, float]:
    """Each sample by its name and labels."""
    text = run(store.connections, exposition(store.keys, within))
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _LINE.match(line)
            assert match, line
            name = match[1] + ("{" + match[2] + "}" if match[2] else "")
            assert name not in found, name
            found[name] = float(match[3])
    return found


def counted(*ms: float, failed: int = 0) -> Counted:
    histogram = [0] * 26
    for one in ms:
        histogram[bucket_of(one)] += 1
    return Counted(len(ms) + failed, failed, round(sum(ms)), histogram)


def wrote(store: Store, at: dt.datetime = NOW, **counts: Counted) -> None:
    store.run(flush(store.keys, at, counts, ("8",)))


def test_counters_of_a_job_add_up_over_the_hours(store: Store) -> None:
    wrote(store, NOW - dt.timedelta(hours=20), Mail=counted(10, 30, 400_000, failed=2))
    wrote(store, Mail=counted(10))
    seen = told(store)
    assert seen['henchman_job_runs_total{job="Mail"}'] == 6
    assert seen['henchman_job_failures_total{job="Mail"}'] == 2
    duration = {le: seen[f'henchman_job_duration_seconds_bucket{{job="Mail",le="{le}"}}'] for le in ("0.02", "0.045")}
    assert duration == {"0.02": 2, "0.045": 3}
    assert seen['henchman_job_duration_seconds_bucket{job="Mail",le="335"}'] == 3
    assert seen['henchman_job_duration_seconds_bucket{job="Mail",le="+Inf"}'] == 4
    assert seen['henchman_job_duration_seconds_count{job="Mail"}'] == 4
    assert seen['henchman_job_duration_seconds_sum{job="Mail"}'] == pytest.approx(400.05)
    assert store.ask("TTL", store.keys.total("Mail")) > 89 * 86400


def test_failures_by_cause_add_up_and_those_from_before_are_errors(store: Store) -> None:
    store.ask("BITFIELD", store.keys.total("Mail"), "SET", "i64", "#0", 9, "SET", "i64", "#1", 4)  # of an older version
    store.ask("ZADD", store.keys.totals, NOW.timestamp(), "Mail")
    assert {name: one for name, one in told(store).items() if "by_cause" in name} == {
        'henchman_job_failures_by_cause_total{job="Mail",cause="error"}': 4
    }
    for _ in range(2):
        wrote(store, Mail=Counted(5, 4, 0, (), {"timeout": 2, "limit": 1, "unheard": 1}), Fine=counted(10))
    seen = told(store)
    assert {name: one for name, one in seen.items() if "by_cause" in name} == {
        'henchman_job_failures_by_cause_total{job="Mail",cause="error"}': 6,
        'henchman_job_failures_by_cause_total{job="Mail",cause="timeout"}': 4,
        'henchman_job_failures_by_cause_total{job="Mail",cause="limit"}': 2,
    }
    assert seen['henchman_job_failures_total{job="Mail"}'] == 12
    assert seen['henchman_job_duration_seconds_count{job="Mail"}'] == 0


def test_each_cause_that_there_is_has_its_place() -> None:
    assert {"error", *CAUSES_COUNTED} == set(CAUSES)


def test_what_did_not_run_for_90_days_is_forgotten(store: Store) -> None:
    wrote(store, NOW - dt.timedelta(days=91), Old=counted(10))
    assert 'henchman_job_runs_total{job="Old"}' in told(store)
    wrote(store, New=counted(10))
    assert store.ask("ZRANGE", store.keys.totals, 0, -1) == [b"New"]
    assert 'henchman_job_runs_total{job="Old"}' not in told(store)


def test_queues_sets_and_slots(store: Store) -> None:
    store.push("mail", *[b'{"class":"Mail","jid":"%d","args":[],"enqueued_at":1.0}' % one for one in range(3)])
    store.push("quiet", b'{"class":"Mail","jid":"9","args":[]}')
    store.ask("SADD", store.keys.paused, "quiet")
    store.ask("ZADD", store.keys.dead, 1, "{}")
    store.ask("ZADD", store.keys.schedule, 1, '{"class":"Late"}')
    facts = {"info": b'{"queues":["mail"],"concurrency":7}', "busy": 2, "beat": repr(time.time()), "rss": 100}
    store.ask("SADD", store.keys.processes, "host:1:abc")
    store.ask("HSET", store.keys.process("host:1:abc"), *[part for pair in facts.items() for part in pair])
    seen = told(store)
    assert seen['henchman_queue_size{queue="mail"}'] == 3
    assert seen['henchman_queue_latency_seconds{queue="mail"}'] > 1e9
    assert (seen['henchman_queue_paused{queue="mail"}'], seen['henchman_queue_paused{queue="quiet"}']) == (0, 1)
    assert (seen['henchman_queue_slots{queue="mail"}'], seen['henchman_queue_slots{queue="quiet"}']) == (7, 0)
    assert (seen["henchman_jobs_dead"], seen["henchman_jobs_scheduled"], seen["henchman_jobs_overdue"]) == (1, 1, 1)
    assert (seen["henchman_processes"], seen["henchman_slots"], seen["henchman_slots_busy"]) == (1, 7, 2)
    assert seen["henchman_processes_memory_bytes"] == 102_400
    assert seen["henchman_server_memory_bytes"] > 100_000
    assert seen["henchman_slots_desired"] == 1, "three runs of a second each, within a minute"


def test_a_user_who_may_not_ask_how_the_server_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.ask("ACL", "SETUSER", "watcher", "on", ">secret", "~*", "&*", "+@all", "-info")
    try:
        store.ask("AUTH", "watcher", "secret")
        assert "henchman_server_memory_bytes" not in (seen := told(store))
        assert seen["henchman_jobs_dead"] == 0
    finally:
        store.connections.close()
        Store(store.connections.url).ask("ACL", "DELUSER", "watcher")


def test_names_of_strangers(store: Store) -> None:
    odd = 'a"b\\c\nd{}\u202e\x00'
    wrote(store, **{odd: counted(10)})
    store.ask("SADD", store.keys.queues, b"\xff\xfe", 'q"\n')
    text = run(store.connections, exposition(store.keys))
    assert r'henchman_job_runs_total{job="a\"b\\c\nd{}' in text
    told(store)


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed (apt install prometheus)")
def test_promtool_finds_nothing_to_say(store: Store) -> None:
    wrote(store, Mail=counted(10, failed=1))
    store.push("mail", b'{"class":"Mail","jid":"1","args":[]}')
    text = run(store.connections, exposition(store.keys))
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_thousand_jobs_and_a_hundred_queues_are_bounded(store: Store) -> None:
    many = {f"shop.orders.jobs.Class{one:04}": counted(10, 200, failed=1) for one in range(CLASSES_MOST + 50)}
    wrote(store, NOW - dt.timedelta(minutes=1), **dict(list(many.items())[:50]))
    wrote(store, **dict(list(many.items())[50:]))
    for one in range(100):
        store.push(f"queue{one}", b'{"class":"Mail","jid":"1","args":[]}')
    took = []
    for _ in range(5):
        began = time.process_time()
        text = run(store.connections, exposition(store.keys))
        took.append(time.process_time() - began)
    assert min(took) <= 0.1, took
    assert len(text) <= 2_000_000
    seen = told(store)
    assert seen["henchman_job_classes_hidden"] == 50
    assert 'henchman_job_runs_total{job="shop.orders.jobs.Class0000"}' not in seen, "the ones that ran last are told"
    assert sum(one.startswith("henchman_job_runs_total") for one in seen) == CLASSES_MOST
    assert sum(one.startswith("henchman_queue_size") for one in seen) == 100


def _queue(size: int, *, paused: bool = False, name: str = "q") -> QueueState:
    return QueueState(name, size, 0.0, paused)


@pytest.mark.parametrize(
    ("queues", "busy", "speed", "within", "slots"),
    [
        ([], 0, Pace(0, None), 60, 0),
        ([_queue(0)], 0, Pace(0, None), 60, 0),
        ([_queue(1)], 0, Pace(0, None), 60, 1),
        ([_queue(600)], 0, Pace(0, None), 60, 10),
        ([_queue(600)], 0, Pace(0, 0.1), 60, 1),
        ([_queue(600)], 0, Pace(50, 0.1), 60, 6),
        ([_queue(600)], 0, Pace(50, 0.1), 6, 15),
        ([_queue(600, paused=True)], 0, Pace(0, 1), 60, 0),
        ([], 3, Pace(0, None), 60, 1),
        ([], 0, Pace(20, 0.5), 60, 10),
        ([QueueState("broken", None, None, False, "a hash")], 0, Pace(0, None), 60, 0),
    ],
)
def test_slots_that_are_wanted(queues: list[QueueState], busy: int, speed: Pace, within: float, slots: int) -> None:
    assert wanted_slots(queues, [], busy, speed, within).slots == slots


def test_the_pace_of_the_last_minutes(store: Store) -> None:
    minute = NOW.timestamp() // 60 * 60
    at = dt.datetime.fromtimestamp(minute, dt.UTC)
    wrote(store, at - dt.timedelta(minutes=2), Mail=counted(*[500] * 100, failed=20))
    wrote(store, at - dt.timedelta(minutes=9), Mail=counted(*[500] * 100))
    found = run(store.connections, pace(store.keys, minute + 30))
    assert found == Pace(120 / 270, 0.5)
    assert run(store.connections, pace(store.keys, minute + 900)) == Pace(0.0, None)


@pytest.mark.parametrize("wrong", [0, -1, 0.5, 86_401, float("nan"), float("inf"), True, None, "60"])
def test_a_time_that_is_none(wrong: object) -> None:
    with pytest.raises(ArgumentError, match="within="):
        checked_within(wrong)


def test_a_process_that_went_silent_counts_no_more(store: Store) -> None:
    store.run(leases.join(store.keys, "host:2:def", [], 30_000))
    store.ask("SADD", store.keys.processes, "host:2:def")
    store.ask("HSET", store.keys.process("host:2:def"), "info", '{"concurrency":5}', "beat", repr(time.time() - 120))
    assert told(store)["henchman_slots"] == 0
