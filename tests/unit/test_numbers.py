"""Numbers out of payloads: bounded, whatever they are; and what C is handed."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest

from henchman.errors import ArgumentError
from henchman.store.connection import LARGE, pack, pack_all, pieces
from henchman.wire import payload, times
from henchman.worker.retry import retry_delay

HUGE = 10**5000
ANY: tuple[Any, ...] = (None, True, False, "5", [1], {}, "", "nan")


@pytest.mark.parametrize(
    ("value", "count"),
    [(0, 0), (7, 7), (-1, -1), (2**31, 10**9), (HUGE, 10**9), (-HUGE, -1), (1.5, None)],
    ids=[*"abcdefg"],  # pytest would write the numbers
)
def test_a_count(value: Any, count: int | None) -> None:
    assert payload.count(value) == count


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0.0), (1.5, 1.5), (-2, -2.0), (HUGE, 9e9), (-HUGE, -9e9), (1e308, 9e9), (math.inf, 9e9)],
    ids=[*"abcdefg"],
)
def test_seconds(value: Any, seconds: float) -> None:
    found = payload.seconds(value)
    assert found == seconds
    assert type(found) is float


def test_what_is_no_number_is_none() -> None:
    for value in ANY:
        assert payload.count(value) is None
        assert payload.seconds(value) is None
    assert payload.seconds(math.nan) is None


def test_times_beyond_every_calendar_are_none() -> None:
    for value in (HUGE, -HUGE, 1e308, -1e308, 1e11, math.inf, math.nan, "1e400", "-inf", "nan", "1e300", True):
        assert times.read(value) is None, value
    assert times.read(99_999_999_999) == 99_999_999_999.0
    assert times.read(1_795_237_919_500) == 1_795_237_919.5


def test_a_delay_has_a_bound() -> None:
    assert retry_delay(2) < 16 + 15 + 30
    assert retry_delay(HUGE) < payload.LONGEST
    assert retry_delay(300) <= retry_delay(10**9) + 10 * 301


@pytest.mark.parametrize("value", [HUGE, -HUGE, 2**63, -(2**63) - 1], ids=[*"abcd"])
def test_an_integer_beyond_64_bits_is_refused_before_c_sees_it(value: int) -> None:
    with pytest.raises(ArgumentError, match="beyond 64 bits"):
        pack(("SET", "k", value))


def test_what_is_packed_is_what_the_server_reads() -> None:
    assert pack(("SET", b"k", 2**63 - 1)) == b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$19\r\n9223372036854775807\r\n"
    assert pack(("A", 1e308, math.inf)).count(b"\r\n") == 7
    with pytest.raises(UnicodeEncodeError):
        pack(("A", "\ud800"))
    for wrong in (True, None, [1]):
        with pytest.raises(TypeError):
            pack(("A", wrong))  # type: ignore[arg-type]
    assert pack_all([("A",), ("B", "c")]) == pack(("A",)) + pack(("B", "c"))


def test_a_large_value_is_sent_as_it_is() -> None:
    large = b"x" * LARGE
    assert pieces(("SET", "k", 5, 0.5)) == [pack(("SET", "k", 5, 0.5))]
    for parts in [("A", large), (large, "é", 7, 1e308, large, large), ("A", large, 5, b"", "k", 0.1, large, b"\r\n")]:
        found = pieces(parts)
        assert b"".join(found) == pack(parts)
        assert sum(one is large for one in found) == parts.count(large), "no copy"
    with pytest.raises(ArgumentError, match="beyond 64 bits"):
        pieces((large, HUGE))


def test_without_the_guard_the_process_ends() -> None:
    """Why it is there; when this fails, hiredis is mended and the guard may go."""
    code = "import hiredis; hiredis.pack_command(('A', 10**5000))"
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, timeout=60)
    assert ended.returncode < 0, "hiredis no longer crashes at a huge integer"
