"""Iterators for iterable jobs: each begins anew at any of its cursors and gives the rest, that item included."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from henchman import ArgumentError
from henchman.iterators import ain_batches, in_batches, over_csv, over_range, over_sequence
from support.iterators import check, listed


@pytest.mark.parametrize("bounds", [(5,), (3, 9), (3, 20, 4), (10, 0, -3), (0,)])
def test_range(bounds: tuple[int, ...]) -> None:
    assert check(lambda cursor: over_range(*bounds, cursor=cursor)) == list(range(*bounds))


def test_range_from_a_cursor_between_two_numbers() -> None:
    assert [item for item, _ in over_range(0, 10, 4, cursor=5)] == [8]


def test_sequence_with_the_cursors_of_sidekiq() -> None:
    assert check(lambda cursor: over_sequence(["a", "b", "c"], cursor=cursor)) == ["a", "b", "c"]
    assert list(over_sequence(["a", "b"], cursor=1)) == [("b", 1)]


CSV = 'id,name\r\n1,Zoë\r\n\r\n2,"two\nlines, one row"\r\n3,"a ""quote"""\r\n4,last'
ROWS = [("1", "Zoë"), ("2", "two\nlines, one row"), ("3", 'a "quote"'), ("4", "last")]


@pytest.mark.parametrize("by", ["row", "byte"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_csv(tmp_path: Path, by: Any, mark: bytes) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(mark + CSV.encode())
    rows = check(lambda cursor: over_csv(file, cursor=cursor, by=by))
    assert rows == [{"id": number, "name": name} for number, name in ROWS]


def test_csv_rows_have_the_cursors_of_sidekiq(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("a;b\n1;2\n3;4\n")
    assert list(over_csv(file, cursor=1, delimiter=";")) == [({"a": "3", "b": "4"}, 1)]


def test_csv_without_rows(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("")
    assert list(over_csv(file, cursor=None)) == list(over_csv(file, cursor=None, by="byte")) == []


def test_csv_cursors_of_the_other_kind_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="by='byte'"):
        over_csv(tmp_path, cursor=[1, 2])
    with pytest.raises(ArgumentError, match="by='row'"):
        over_csv(tmp_path, cursor=1, by="byte")


def test_batches() -> None:
    assert check(lambda cursor: in_batches(over_range(0, 5, cursor=cursor and cursor), 2)) == [[0, 1], [2, 3], [4]]
    assert list(in_batches(over_range(5, cursor=2), 2)) == [([2, 3], 2), ([4], 4)]
    with pytest.raises(ArgumentError, match="a batch of 0"):
        list(in_batches([], 0))


def test_async_batches() -> None:
    async def numbers() -> AsyncIterator[tuple[int, int]]:
        for pair in over_range(5, cursor=None):
            yield pair

    assert asyncio.run(listed(ain_batches(numbers(), 2))) == [([0, 1], 0), ([2, 3], 2), ([4], 4)]
