"""Many rows as payloads, in slices that fit one round trip; rows are read lazily."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from henchman.client.job import BoundCall
from henchman.errors import ArgumentError

__all__ = ["slices"]

SLICE_JOBS = 1000
SLICE_BYTES = 4_000_000
_NO_KWARGS: dict[str, Any] = {}


def slices(job: Any, rows: Iterable[Any]) -> Iterator[list[tuple[bytes, bytes | None]]]:
    """The encoded arguments of each row of ``job``, up to 1,000 rows or 4 MB at a time.

    A row that cannot be sent raises ArgumentError with its number, after the slice of those before it.
    """
    encode = job.signature.encode
    texts: list[tuple[bytes, bytes | None]] = []
    size = 0
    for number, row in enumerate(rows):
        try:
            text = encode(row, _NO_KWARGS) if type(row) is tuple else encode(*_arguments(job.name, row))
        except ArgumentError as error:
            if texts:
                yield texts
            raise ArgumentError(f"row {number}: {error}") from error
        texts.append(text)
        size += len(text[0]) + len(text[1] or b"")
        if len(texts) == SLICE_JOBS or size >= SLICE_BYTES:
            yield texts
            texts, size = [], 0
    if texts:
        yield texts


def _arguments(name: str, row: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(row, BoundCall):
        return row
    if isinstance(row, tuple):
        return row, _NO_KWARGS
    if isinstance(row, dict):
        return (), row
    raise ArgumentError(
        f"{name}.enqueue_many got {type(row).__name__} {row!r:.80}; give a tuple of arguments, a dict of arguments by "
        "name, or job.call(…)"
    )
