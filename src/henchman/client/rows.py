"""The rows of a bulk push: read lazily, encoded, and cut into slices of a round trip each."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from henchman.errors import ArgumentError, BatchError, DuplicateJob, ServerError
from henchman.kernel.text import as_shown
from henchman.work.effects import batch_of

__all__ = [
    "SLICE_RECORDED",
    "Arguments",
    "BoundCall",
    "Pushed",
    "RowSlices",
    "Slice",
    "check_reached",
    "each_row",
    "tell_pushed",
]

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
SLICE_JOBS = 1000
SLICE_RECORDED = 250  # of jobs with a record or a key: the server works 10 µs on each, and others wait meanwhile
SLICE_BYTES = 4_000_000
_NO_KWARGS: dict[str, Any] = {}
Arguments = tuple[bytes, bytes | None]  # the texts of args and, where there are any, of kwargs
Slice = list[Arguments]


@dataclass(frozen=True, slots=True)
class BoundCall(Generic[P, R]):
    """A job with its arguments, as ``job.call(…)`` makes it: a row of a bulk push, or a step of a workflow. P are the
    parameters that they fit, R is what the job returns. ``using``: the job, or the job with options.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    using: Any = None


class Pushed(msgspec.Struct, frozen=True):
    """What became of a bulk push: ``count`` rows read = created + duplicates + stopped + buffered + deferred.

    ``blocked``: how many of the created wait for the end of the job that has their key (``on_conflict="wait"``).
    """

    count: int
    created: int
    duplicates: int
    stopped: int
    buffered: int = 0
    deferred: int = 0
    blocked: int = 0


class RowSlices:
    """The rows of a bulk push of ``job``, read as encoded arguments in slices of up to ``most`` rows or 4 MB.

    A row that cannot be sent raises ArgumentError with its number, after the slice of those before it.
    """

    def __init__(self, job: Any) -> None:
        self._name = job.name
        self._encode = job.signature.encode
        self._slice: Slice = []
        self._size = self._number = 0
        self._problem: ArgumentError | None = None
        self.most = SLICE_JOBS

    def read(self, rows: Iterable[Any]) -> Iterator[Slice]:
        """Each slice of ``rows``."""
        for row in each_row(rows, f"{self._name}.enqueue_many"):
            if self._fills(row):
                yield from self._taken()
        yield from self._taken()

    async def aread(self, rows: AsyncIterable[Any]) -> AsyncIterator[Slice]:
        """``read`` of rows that are awaited."""
        async for row in rows:
            if self._fills(row):
                for taken in self._taken():
                    yield taken
        for taken in self._taken():
            yield taken

    def _fills(self, row: Any) -> bool:
        """Add a row; whether its slice is to be pushed now: it is full, or the row cannot be sent."""
        encode, self._number = self._encode, self._number + 1
        try:
            text = encode(row, _NO_KWARGS) if type(row) is tuple else encode(*_arguments(self._name, row))
        except ArgumentError as error:
            self._problem = ArgumentError(f"row {self._number - 1}: {error}")
            self._problem.__cause__ = error
            return True
        self._slice.append(text)
        self._size += len(text[0]) + len(text[1] or b"")
        return len(self._slice) >= self.most or self._size >= SLICE_BYTES

    def _taken(self) -> Iterator[Slice]:
        """The slice, when there is anything in it; then ArgumentError when the row behind it cannot be sent."""
        taken, self._slice, self._size = self._slice, [], 0
        if taken:
            yield taken
        if self._problem is not None:
            raise self._problem


def each_row(rows: Any, where: str) -> Iterator[Any]:
    """``rows``, one by one; ArgumentError when there is nothing to go through."""
    try:
        return iter(rows)
    except TypeError:
        raise ArgumentError(f"{where}({as_shown(rows, 80)}): give rows, in anything that a for loop takes") from None


def _arguments(name: str, row: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(row, BoundCall):
        return row.args, row.kwargs
    if isinstance(row, tuple):
        return row, _NO_KWARGS
    if isinstance(row, Mapping):
        return (), dict(row)
    raise ArgumentError(
        f"{name}.enqueue_many got {type(row).__name__} {as_shown(row, 80)}; give a tuple of arguments, a dict of "
        "arguments by name, or job.call(…)"
    )


def tell_pushed(error: Exception, count: int) -> None:
    """Tell in ``error``, which ended a bulk push, how many rows were taken before."""
    if isinstance(error, ArgumentError | ServerError | BatchError | DuplicateJob):
        error.pushed = count
    error.add_note(f"{count:,} rows were pushed before")


def check_reached(job: Mapping[str, Any], batch: str) -> None:
    """ArgumentError when a client middleware left ``job`` without a name, an id or a queue, or took it out of its
    ``batch`` (empty: it is of none), which waits for its end."""
    for field in ("queue", "class", "jid"):
        if not isinstance(job.get(field), str) or not job[field]:
            raise ArgumentError(f"a client middleware set {field} of job {job.get('jid')!r} to {job.get(field)!r}")
    if batch and batch_of(job) != batch:
        raise ArgumentError(f"a client middleware took job {job['jid']!r} out of batch {batch} (hm.batch)")
