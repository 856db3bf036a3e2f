"""Where metrics stand and what is sent, letter for letter as the wire format (sections 14 and 15) has it."""

from __future__ import annotations

import datetime as dt

import pytest

from henchman.store.keys import Keys
from henchman.store.metrics import LIMITS, Counted, bucket_of, flush, forms, mark, mark_lock, metric_name

AT = dt.datetime(2026, 11, 21, 9, 5, 30, tzinfo=dt.UTC)
EARLY = dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC)
KEYS = Keys()


def test_keys_of_both_layouts() -> None:
    assert KEYS.minute(AT) == "j|261121|9:05"
    assert KEYS.ten_minutes(AT) == "j|261121|9:0"
    assert KEYS.histogram("OkJob", AT) == "h|OkJob-21-9:5"
    assert KEYS.minute7(AT) == "j|20261121|9:5"
    assert KEYS.histogram7("OkJob", AT) == "OkJob-21-09:5"
    assert KEYS.marks(AT) == "20261121-marks"
    assert KEYS.deploy_lock("v2") == "deploylock-v2"


def test_padding() -> None:
    assert KEYS.minute(EARLY) == "j|260102|3:04"
    assert KEYS.ten_minutes(EARLY) == "j|260102|3:0"
    assert KEYS.histogram("A", EARLY) == "h|A-2-3:4"
    assert KEYS.minute7(EARLY) == "j|20260102|3:4"
    assert KEYS.histogram7("A", EARLY) == "A-02-03:4"
    late = EARLY.replace(hour=23, minute=59)
    assert KEYS.minute(late) == "j|260102|23:59"
    assert KEYS.ten_minutes(late) == "j|260102|23:5"


def test_namespace_goes_before_all_of_them() -> None:
    keys = Keys("app")
    made = [keys.minute(AT), keys.ten_minutes(AT), keys.minute7(AT), keys.marks(AT), keys.deploy_lock("x")]
    made += [keys.histogram("A", AT), keys.histogram7("A", AT)]
    assert all(one.startswith("app:") for one in made)


def test_profiles() -> None:
    assert [forms(one) for one in ("mixed", "8", "7", "6")] == [("8", "7"), ("8",), ("7",), ("7",)]


@pytest.mark.parametrize(
    ("ms", "bucket"),
    [(0, 0), (19.99, 0), (20, 1), (29, 1), (30, 2), (44, 2), (999, 10), (334_999, 24), (335_000, 25), (1e15, 25)],
)
def test_bucket_is_the_first_with_a_greater_limit(ms: float, bucket: int) -> None:
    assert bucket_of(ms) == bucket


def test_there_are_26_buckets() -> None:
    assert len(LIMITS) == 25
    assert list(LIMITS) == sorted(LIMITS)
    assert [bucket_of(limit) for limit in LIMITS] == list(range(1, 26))


def so_far(*counts: str | int) -> list[tuple[str | int | float, ...]]:
    """What ran of OkJob so far, for Prometheus: ours."""
    pairs = zip(counts[::2], counts[1::2], strict=True)
    added = [part for place, number in pairs for part in ("INCRBY", "i64", place, number)]
    return [
        ("BITFIELD", "hm:total:OkJob", *added),
        ("EXPIRE", "hm:total:OkJob", 7_776_000),
        ("ZADD", "hm:totals", AT.timestamp(), "OkJob"),
        ("ZREMRANGEBYSCORE", "hm:totals", "-inf", AT.timestamp() - 7_776_000),
    ]


def test_what_is_sent() -> None:
    histogram = [0] * 26
    histogram[0], histogram[3] = 2, 1
    call = flush(KEYS, AT, {"OkJob": Counted(3, 1, 250, histogram)}, ("8",))
    assert list(call.parts) == [
        ("MULTI",),
        ("HINCRBY", "j|261121|9:0", "OkJob|p", 3),
        ("HINCRBY", "j|261121|9:0", "OkJob|f", 1),
        ("HINCRBY", "j|261121|9:0", "OkJob|ms", 250),
        ("EXPIRE", "j|261121|9:0", 259_200),
        ("HINCRBY", "j|261121|9:05", "OkJob|p", 3),
        ("HINCRBY", "j|261121|9:05", "OkJob|f", 1),
        ("HINCRBY", "j|261121|9:05", "OkJob|ms", 250),
        ("EXPIRE", "j|261121|9:05", 28_800),
        *[("BITFIELD", "h|OkJob-21-9:5", "OVERFLOW", "SAT", "INCRBY", "u16", "#0", 2, "INCRBY", "u16", "#3", 1)],
        ("EXPIRE", "h|OkJob-21-9:5", 28_800),
        *so_far("#0", 3, "#1", 1, "#2", 250, "#3", 2, "#6", 1),
        ("EXEC",),
    ]
    assert not call.again, "sent twice it would count twice"


def test_what_is_sent_for_sidekiq_7() -> None:
    sent = list(flush(KEYS, AT, {"OkJob": Counted(1, 1, 0, [0] * 26)}, ("7",)).parts)
    assert sent == [
        ("MULTI",),
        ("HINCRBY", "j|20261121|9:5", "OkJob|p", 1),
        ("HINCRBY", "j|20261121|9:5", "OkJob|f", 1),
        ("EXPIRE", "j|20261121|9:5", 28_800),
        *so_far("#0", 1, "#1", 1),
        ("EXEC",),
    ], "a run that failed leaves no time"


def test_a_deploy() -> None:
    assert list(mark_lock(KEYS, AT, "v2").parts) == [("SET", b"deploylock-v2", "2026-11-21T09:05:00Z", "NX", "EX", 60)]
    assert list(mark(KEYS, AT, "v2").parts) == [
        ("MULTI",),
        ("HSETNX", "20261121-marks", "2026-11-21T09:05:00Z", b"v2"),
        ("EXPIRE", "20261121-marks", 7_776_000),
        ("EXEC",),
    ]


def test_a_name_breaks_no_reader() -> None:
    assert metric_name("shop.jobs.send") == "shop.jobs.send"
    assert metric_name("Shop::Send") == "Shop::Send"
    assert metric_name("daily/report|p") == "daily:report:p"
    assert metric_name("é\ud800") == "é?"
    assert len(metric_name("x" * 10_000)) == 200
