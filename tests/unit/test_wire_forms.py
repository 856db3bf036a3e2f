"""The small forms inside payloads: times, backtraces, names."""

from __future__ import annotations

import base64
import struct
import zlib
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from henchman.errors import ArgumentError
from henchman.wire import jsontext, numbers, payload, times

TABLE = Path(__file__).with_name("floats_of_ruby.txt")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1795237848.964924, 1795237848.964924),
        (1795237943, 1795237943.0),
        (1795237919179, 1795237919.179),
        (99_999_999_999, 99_999_999_999.0),
        (100_000_000_000, 100_000_000.0),
        (0, 0.0),
        ("1795237848.5", 1795237848.5),
        ("2026-11-21T09:30:48Z", datetime(2026, 11, 21, 9, 30, 48, tzinfo=UTC).timestamp()),
        ("2026-11-21T09:30:48.500+02:00", datetime(2026, 11, 21, 7, 30, 48, 500_000, tzinfo=UTC).timestamp()),
        ("2026-11-21 09:30:48", datetime(2026, 11, 21, 9, 30, 48, tzinfo=UTC).timestamp()),
        (True, None),
        (False, None),
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("x" * 1000, None),
        (float("inf"), None),
        (float("nan"), None),
        (10**400, None),
        ([], None),
        ({}, None),
    ],
)
def test_every_form_of_time_is_read(value: Any, seconds: float | None) -> None:
    assert times.read(value) == seconds


def test_times_are_written_so_that_every_sidekiq_reads_them() -> None:
    assert times.write(1795237848.964924, "seconds") == b"1795237848.965", "whole milliseconds: Ruby's digits are ours"
    assert times.write(-0.0001, "seconds") == b"0.0"
    assert times.write(1795237943, "seconds") == b"1795237943.0"
    assert times.write(0, "seconds") == b"0.0"
    assert times.write(0.00000001, "seconds") == b"0.0"
    assert times.write(1795237919.179, "ms") == b"1795237919179"
    for bad in (float("nan"), float("inf"), 1e12):
        with pytest.raises(ArgumentError, match="is not a time"):
            times.write(bad, "seconds")


def test_doubles_are_written_digit_for_digit_as_ruby_writes_them() -> None:
    """Ten thousand of every magnitude; those beyond the ordinary as they travel in arguments, too."""
    rows = [line.split() for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    pairs = [(struct.unpack(">d", bytes.fromhex(bits))[0], text.encode()) for bits, text in rows]
    assert len(pairs) == 10_000
    assert [(one, text) for one, text in pairs if numbers.as_ruby(one) != text] == []
    beyond = [(one, text) for one, text in pairs if not jsontext.is_plain(one)]
    assert len(beyond) > 5000
    assert [(one, text) for one, text in beyond if jsontext.dumps([one]) != b"[%b]" % text] == []
    moments = [(one, text) for one, text in pairs if 1e9 < one < 1e11 and one == round(one, 3)]
    assert len(moments) > 400
    assert [(one, text) for one, text in moments if times.write(one, "seconds") != text] == []


def test_times_are_shown_in_utc() -> None:
    assert times.iso(1795237848.964924) == "2026-11-21T05:10:48.964Z"
    assert times.day(1795237848.964924) == "2026-11-21"
    for none in (None, 1e300, float("nan")):
        assert times.iso(none) == ""
    assert times.day(1e300) == ""


def test_a_moment_needs_its_zone() -> None:
    assert times.seconds_of(datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == 0
    with pytest.raises(ArgumentError, match="naive datetime 1970-01-01T00:00:00: give it a time zone"):
        times.seconds_of(datetime(1970, 1, 1))  # noqa: DTZ001


LINES = ["app/jobs/boom.py:12:in perform", "app/lib/x.py:3:in call"]
VECTOR = "eJyLVkosKNDPyk8q1k/Kz8/VK6i0MjSyysxTKEgtSssvylXSASvIyUzSrwBJGoPkkhNzcpRiAV06E+Y="


def test_a_backtrace_is_read_in_all_its_forms() -> None:
    assert payload.expand_backtrace(VECTOR) == LINES
    assert payload.expand_backtrace(VECTOR[:60] + "\n" + VECTOR[60:] + "\n") == LINES
    assert payload.expand_backtrace(LINES) == LINES
    assert payload.expand_backtrace(payload.compress_backtrace(LINES)) == LINES
    assert payload.expand_backtrace(payload.compress_backtrace(["é\ud800"])) == ["é?"]
    assert "\n" not in payload.compress_backtrace(LINES * 100)


def packed(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text)).decode()


@pytest.mark.parametrize(
    "garbage",
    [None, "", "x", "é", "\ud800", 5, True, {}, VECTOR[:40], packed(b"{}"), packed(b"nonsense"), packed(b"\xff"),
     packed(b'["' + b"x" * 20_000_000 + b'"]'), packed(b"[" * 100_000)],
    ids=lambda value: str(value)[:20].encode("ascii", "replace").decode(),
)  # fmt: skip
def test_garbage_is_no_backtrace(garbage: Any) -> None:
    assert payload.expand_backtrace(garbage) is None


def dig(levels: int) -> None:
    if levels:
        dig(levels - 1)
    raise KeyError(levels)


def test_lines_come_newest_frame_first_and_limited() -> None:
    with pytest.raises(KeyError) as caught:
        dig(2)

    lines = payload.backtrace_of(caught.value)
    assert lines[0].endswith(":in dig")
    assert lines[-1].endswith(":in test_lines_come_newest_frame_first_and_limited")
    assert len(lines) == 4
    path, number, _ = lines[0].rsplit(":", 2)
    assert path == __file__
    assert number.isdigit()
    assert payload.backtrace_of(caught.value, 1) == lines[:1]
    assert payload.backtrace_of(caught.value, 0) == []
    assert payload.backtrace_of(KeyError()) == []


WRAPPER = "Sidekiq::ActiveJob::Wrapper"
OLD_WRAPPER = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"
MAIL = {"arguments": ["UserMailer", "welcome", "deliver_now"], "job_class": "ActionMailer::MailDeliveryJob"}


@pytest.mark.parametrize(
    ("job", "shown"),
    [
        ({"class": "A"}, "A"),
        ({"class": "A", "display_class": "B"}, "B"),
        ({"class": "A", "display_class": ""}, "A"),
        ({"class": "A", "wrapped": "B"}, "A"),
        ({"class": WRAPPER, "wrapped": "B", "args": [{}]}, "B"),
        ({"class": OLD_WRAPPER, "args": ["B"]}, "B"),
        ({"class": OLD_WRAPPER, "args": [{"job_class": "B"}]}, "B"),
        ({"class": WRAPPER, "wrapped": "ActionMailer::MailDeliveryJob", "args": [MAIL]}, "UserMailer#welcome"),
        ({"class": WRAPPER, "args": [MAIL]}, "UserMailer#welcome"),
        ({"class": WRAPPER, "wrapped": "ActionMailer::DeliveryJob", "args": []}, "ActionMailer::DeliveryJob"),
        ({"class": WRAPPER, "wrapped": "ActionMailer::DeliveryJob", "args": [{"arguments": 5}]},
         "ActionMailer::DeliveryJob"),
        ({"class": WRAPPER}, WRAPPER),
        ({"class": WRAPPER, "wrapped": 5, "args": {}}, WRAPPER),
        ({}, ""),
        ({"class": 5}, "5"),
        ({"class": ["A"], "display_class": []}, "['A']"),
    ],
)  # fmt: skip
def test_a_job_is_shown_under_the_name_sidekiq_shows(job: dict[str, Any], shown: str) -> None:
    assert payload.display_class(job) == shown


def test_queue_names_keep_to_the_alphabet_of_the_pages() -> None:
    for good in ("default", "a_b:c.d-E9"):
        assert payload.check_queue(good) == good
    for bad in ("", "a b", "é", "a\n", "a/b", None, 5):
        with pytest.raises(ArgumentError, match="is not a queue name"):
            payload.check_queue(bad)
