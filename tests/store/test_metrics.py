"""Metrics on a real server: written, read back by minutes and hours, in either layout and in both; deploy marks."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

import pytest

from henchman import App
from henchman.errors import ArgumentError
from henchman.inspector.metrics import Deploy, Metrics, default_label, deploy_marks, mark_deploy, metrics
from henchman.store.call import run
from henchman.store.metrics import Counted, Form, bucket_of, flush
from support.store import Store

AT = dt.datetime(2026, 11, 21, 9, 5, 30, tzinfo=dt.UTC)
NOW = AT.timestamp()
OURS = ("hm:totals", "hm:total:OkJob")  # what ran so far, for Prometheus
BITS = [part for index in range(26) for part in ("GET", "u16", f"#{index}")]


def runs(*times_ms: float, failed: int = 0) -> Counted:
    counters = [0] * 26
    for ms in times_ms:
        counters[bucket_of(ms)] += 1
    return Counted(len(times_ms) + failed, failed, round(sum(times_ms)), counters)


def write(store: Store, back: float, *which: Form, **counts: Counted) -> None:
    """Write ``counts`` as if it were ``back`` minutes before AT."""
    store.run(flush(store.keys, AT - dt.timedelta(minutes=back), counts, which or ("8",)))


def look(store: Store, minutes: int | None = None, hours: int | None = None, name: str | None = None) -> Metrics:
    return run(store.connections, metrics(store.keys, minutes, hours=hours, name=name, now=NOW))


def test_what_stands_there_for_sidekiq_8(store: Store) -> None:
    write(store, 0, OkJob=runs(10, 12, 50, failed=1))
    write(store, 0, OkJob=runs(228))
    assert store.all_keys() == {"j|261121|9:0", "j|261121|9:05", "h|OkJob-21-9:5", *OURS}
    for key, life in (("j|261121|9:05", 28_800), ("j|261121|9:0", 259_200), ("h|OkJob-21-9:5", 28_800)):
        assert life - 60 < store.ask("TTL", key) <= life
    for key in ("j|261121|9:05", "j|261121|9:0"):
        flat = store.ask("HGETALL", key)
        assert dict(zip(flat[::2], flat[1::2], strict=True)) == {
            b"OkJob|p": b"5",
            b"OkJob|f": b"1",
            b"OkJob|ms": b"300",
        }
    assert store.ask("BITFIELD_RO", "h|OkJob-21-9:5", *BITS) == [2, 0, 0, 1, 0, 0, 0, 1, *[0] * 18]
    assert store.ask("GETRANGE", "h|OkJob-21-9:5", 0, 1) == b"\x00\x02", "big-endian"


def test_what_stands_there_for_sidekiq_7_and_for_both(store: Store) -> None:
    write(store, 0, "7", OkJob=runs(10))
    assert store.all_keys() == {"j|20261121|9:5", "OkJob-21-09:5", *OURS}
    write(store, 0, "8", "7", OkJob=runs(10))
    new = {"j|261121|9:0", "j|261121|9:05", "h|OkJob-21-9:5"}
    assert store.all_keys() == {"j|20261121|9:5", "OkJob-21-09:5", *OURS} | new
    assert store.ask("HGET", "j|20261121|9:5", "OkJob|p") == b"2"


def test_a_counter_stops_at_its_top(store: Store) -> None:
    many = Counted(70_000, 0, 0, [70_000, *[0] * 25])
    write(store, 0, A=many)
    assert store.ask("BITFIELD_RO", "h|A-21-9:5", "GET", "u16", "#0", "GET", "u16", "#1") == [65_535, 0]


def test_by_minutes(store: Store) -> None:
    write(store, 0, Slow=runs(400, 600), Fast=runs(1, 1, failed=2))
    write(store, 4, Slow=runs(2000))
    write(store, 5, Old=runs(1))
    found = look(store, 5)
    assert found.step == 60
    assert found.buckets == tuple(NOW - 30 - 60 * back for back in (4, 3, 2, 1, 0))
    slow, fast = found.classes
    assert (slow.name, slow.processed, slow.failed, slow.ms, slow.mean_ms) == ("Slow", 3, 0, 3000, 1000.0)
    assert [one.processed for one in slow.points] == [1, 0, 0, 0, 2]
    assert [one.ms for one in slow.points] == [2000, 0, 0, 0, 1000]
    assert (fast.name, fast.processed, fast.failed, fast.mean_ms) == ("Fast", 4, 2, 1.0)
    assert (slow.percentile_ms(0.3), slow.percentile_ms(0.5), slow.percentile_ms(0.95)) == (500, 750, 2500)
    assert fast.percentile_ms(0.5) == 20
    assert [one.name for one in look(store, 6).classes] == ["Slow", "Fast", "Old"]


def test_by_hours(store: Store) -> None:
    write(store, 0, A=runs(100))
    write(store, 9, A=runs(200))
    write(store, 71 * 60, A=runs(300))
    write(store, 73 * 60, A=runs(1))
    found = look(store, hours=72)
    assert (found.step, len(found.buckets)) == (600, 72 * 6)
    (only,) = found.classes
    assert (only.processed, only.ms) == (3, 600)
    assert [one.processed for one in only.points[-2:]] == [1, 1]
    assert only.percentile_ms(0.5) is None, "histograms are there by the minute only"
    assert look(store, hours=1).classes[0].processed == 2


def test_seven_is_read_where_there_is_no_eight(store: Store) -> None:
    write(store, 1, "7", Old=runs(50, 60, failed=1))
    write(store, 0, "8", New=runs(5))
    old, new = look(store, 10).classes
    assert (old.name, old.processed, old.failed, old.ms, old.percentile_ms(0.5)) == ("Old", 3, 1, 110, 65)
    assert (new.name, new.processed) == ("New", 1)
    by_hours = {one.name: (one.processed, one.ms) for one in look(store, hours=1).classes}
    assert by_hours == {"Old": (3, 110), "New": (1, 5)}


def test_both_layouts_are_not_added(store: Store) -> None:
    write(store, 0, "8", "7", A=runs(10, 10))
    write(store, 0, "7", A=runs(30))  # somebody who writes the older one alone
    (only,) = look(store, 1).classes
    assert (only.processed, only.ms) == (3, 50)
    assert only.histogram is not None
    assert only.histogram[:3] == (2, 0, 1)
    assert look(store, hours=1).classes[0].processed == 3


def test_one_class_and_failures_alone(store: Store) -> None:
    write(store, 0, A=runs(1), B=runs(failed=3))
    (only,) = look(store, name="B").classes
    assert (only.processed, only.failed, only.mean_ms, only.percentile_ms(0.5)) == (3, 3, None, None)
    assert look(store, name="C").classes == ()


def test_beyond_the_last_limit(store: Store) -> None:
    write(store, 0, A=runs(1, 400_000))
    (only,) = look(store, 1).classes
    assert (only.percentile_ms(0.5), only.percentile_ms(0.95)) == (20, float("inf"))


def test_strange_things_in_the_buckets(store: Store) -> None:
    store.ask("HSET", "j|261121|9:05", "no bar", 1, "|p", 1, "A|p", "x", b"\xff|p", 2, "A|other", 3, "A|b|p", 4)
    found = {one.name: one.processed for one in look(store, 1).classes}
    assert found == {"A": 0, "\udcff": 2, "A|b": 4}
    store.ask("SET", "h|A|b-21-9:5", b"\x00\x01\x00")
    store.ask("LPUSH", "A|b-21-09:5", "a list")
    assert {one.name: one.histogram for one in look(store, 1).classes}["A|b"] == (1, *[0] * 25)


def test_nothing(store: Store) -> None:
    assert look(store).classes == ()
    assert len(look(store).buckets) == 60
    assert len(look(store, 480).buckets) == 480


@pytest.mark.parametrize("asked", [{"minutes": 0}, {"minutes": 481}, {"hours": 73}, {"minutes": 1, "hours": 1}])
def test_wrong_spans(store: Store, asked: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=r"minutes=|hours="):
        look(store, **asked)
    with pytest.raises(ArgumentError, match="minutes=True"):
        look(store, True)


def test_a_namespace_of_its_own(redis_url: str) -> None:
    one, other = Store(redis_url, "one"), Store(redis_url, "other")
    write(one, 0, A=runs(1))
    assert [each.name for each in look(one, 1).classes] == ["A"]
    assert look(other, 1).classes == ()
    one.connections.close()
    other.connections.close()


def test_marks(store: Store) -> None:
    def mark(label: str, seconds: float) -> Deploy:
        return run(store.connections, mark_deploy(store.keys, label, now=NOW + seconds))

    assert mark("v1", 0) == Deploy(NOW - 30, "v1", marked=True)
    assert store.ask("HGETALL", "20261121-marks") == [b"2026-11-21T09:05:00Z", b"v1"]
    assert 7_775_000 < store.ask("TTL", "20261121-marks") <= 7_776_000
    assert store.ask("GET", "deploylock-v1") == b"2026-11-21T09:05:00Z"
    assert 0 < store.ask("TTL", "deploylock-v1") <= 60
    assert not mark("v1", 60).marked, "each machine of a fleet may say so"
    assert not mark("v2", 10).marked, "the first label of a minute stays"
    assert store.ask("HVALS", "20261121-marks") == [b"v1"]
    assert mark("  v3 é ", -86400).marked
    found = run(store.connections, deploy_marks(store.keys, NOW - 2 * 86400, NOW))
    assert [(one.at, one.label) for one in found] == [(NOW - 30 - 86400, "v3 é"), (NOW - 30, "v1")]
    assert [one.label for one in look(store, 10).deploys] == ["v1"]
    assert [one.label for one in look(store, hours=72).deploys] == ["v3 é", "v1"]


def test_strange_marks(store: Store) -> None:
    store.ask("HSET", "20261121-marks", "no time", "a", "2026-11-21T09:05:00Z", b"\xff", "2026-11-21T09:04:00", "naive")
    assert [one.label for one in look(store, 10).deploys] == ["naive", "\udcff"]
    for label in ("", "  "):
        with pytest.raises(ArgumentError, match="no label"):
            run(store.connections, mark_deploy(store.keys, label))
    with pytest.raises(ArgumentError, match="naive datetime"):
        run(store.connections, mark_deploy(store.keys, "v", AT.replace(tzinfo=None)))


def test_the_label_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_label(NOW)
    monkeypatch.setenv("GIT_DIR", str(tmp_path))  # no repository there
    assert default_label(NOW) == "2026-11-21 09:05"


async def _awaited(app: App) -> tuple[Deploy, Metrics]:
    return await app.amark_deploy("v9"), await app.ametrics(hours=1)


def test_the_app(redis_url: str, store: Store) -> None:
    app = App(redis_url=redis_url)
    assert app.metrics(minutes=1).classes == ()
    assert app.mark_deploy("v8", dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5)).marked
    deploy, found = asyncio.run(_awaited(app))
    assert deploy.marked
    assert [one.label for one in found.deploys][-1] == "v9"
    assert [one.label for one in run(store.connections, metrics(store.keys)).deploys] == ["v8", "v9"]
    app.close()
