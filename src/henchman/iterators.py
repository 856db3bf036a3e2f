"""Iterators for iterable jobs: each gives (item, cursor), from ``cursor`` on, that item included; None is the start.

The cursors of sequences, CSV rows and keys are those of Sidekiq's enumerators. Databases are read in pages by a key,
so that no transaction is open and no page gets slower towards the end; the key must be unique and not null, and rows
that get a smaller key than the cursor after it passed are not seen. SQLAlchemy and Django are asked by the objects
given; neither is imported here.
"""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import itertools
import os
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

from henchman.errors import ArgumentError

__all__ = [
    "ain_batches",
    "aover_django",
    "aover_sqlalchemy",
    "in_batches",
    "over_csv",
    "over_django",
    "over_range",
    "over_sequence",
    "over_sqlalchemy",
]

T = TypeVar("T")
Row = dict[str, str]


def over_range(start: int, stop: int | None = None, step: int = 1, *, cursor: int | None) -> Iterator[tuple[int, int]]:
    """The numbers of ``range(start, stop, step)`` (or of ``range(start)``); the cursor is the number."""
    numbers = range(start) if stop is None else range(start, stop, step)
    if cursor is not None and step > 0:
        numbers = range(numbers.start + -(-max(cursor - numbers.start, 0) // step) * step, numbers.stop, step)
    elif cursor is not None:
        numbers = range(numbers.start + (max(numbers.start - cursor, 0) // -step) * step, numbers.stop, step)
    return ((number, number) for number in numbers)


def over_sequence(items: Sequence[T], *, cursor: int | None) -> Iterator[tuple[T, int]]:
    """The items of a list or tuple, which must be the same at each execution; the cursor is the index."""
    return ((items[index], index) for index in range(cursor or 0, len(items)))


def over_csv(
    path: str | os.PathLike[str],
    *,
    cursor: int | list[int] | None,
    by: Literal["row", "byte"] = "row",
    encoding: str = "utf-8-sig",
    **options: Any,
) -> Iterator[tuple[Row, Any]]:
    """The rows of a CSV file with a header, as dicts; the file must be the same at each execution.

    ``by="row"``: the cursor is the number of the row, from 0; a later execution reads past the rows before it (about
    a second for each million). ``by="byte"``: the cursor is [row, byte], a later execution begins right there; for
    encodings in which a line break is one byte, such as UTF-8. ``options`` are those of ``csv.reader``.
    """
    if by == "row":
        if cursor is not None and not isinstance(cursor, int):
            raise ArgumentError(f"over_csv: the cursor {cursor!r} is not the number of a row; was it saved by='byte'?")
        return _by_row(path, cursor or 0, encoding, options)
    if cursor is not None and not isinstance(cursor, list):
        raise ArgumentError(f"over_csv: the cursor {cursor!r} is not [row, byte]; was it saved by='row'?")
    return _by_byte(path, cursor, encoding, options)


def _by_row(path: Any, cursor: int, encoding: str, options: dict[str, Any]) -> Iterator[tuple[Row, int]]:
    with open(path, encoding=encoding, newline="") as file:
        rows = (row for row in csv.reader(file, **options) if row)  # an empty line is no row
        head = next(rows, [])
        for number, row in enumerate(itertools.islice(rows, cursor, None), cursor):
            yield dict(zip(head, row, strict=False)), number


def _by_byte(
    path: Any, cursor: list[int] | None, encoding: str, options: dict[str, Any]
) -> Iterator[tuple[Row, list[int]]]:
    with open(path, "rb") as file:
        place = 0

        def lines() -> Iterator[str]:
            nonlocal place
            for line in file:
                place += len(line)
                yield line.decode(encoding)

        reader = csv.reader(lines(), **options)
        head = next((row for row in reader if row), [])
        number = 0
        if cursor is not None:
            number, place = cursor
            file.seek(place)
        while True:
            began = place
            row = next(reader, None)
            if row is None:
                return
            if row:
                yield dict(zip(head, row, strict=False)), [number, began]
                number += 1


def over_sqlalchemy(session: Any, query: Any, *, key: Any, cursor: Any, batch: int = 500) -> Iterator[tuple[Any, Any]]:
    """The rows of a SQLAlchemy ``select``, by ``key`` (a unique column of it, such as ``User.id``).

    ``session``: a Session or Connection. A row of one column or entity is given as that, others as the tuple. The
    query must have no order and no limit of its own.
    """
    pages = _Pages(query, key, cursor, batch)
    while pages.wanted is not None:
        yield from pages.read(session.execute(pages.wanted).all())


async def aover_sqlalchemy(
    session: Any, query: Any, *, key: Any, cursor: Any, batch: int = 500
) -> AsyncIterator[tuple[Any, Any]]:
    """``over_sqlalchemy`` with an AsyncSession or AsyncConnection."""
    pages = _Pages(query, key, cursor, batch)
    while pages.wanted is not None:
        for pair in pages.read((await session.execute(pages.wanted)).all()):
            yield pair


class _Pages:
    """The pages of a select by key: ``wanted`` is the next one, None after the last."""

    def __init__(self, query: Any, key: Any, cursor: Any, batch: int) -> None:
        _check_batch(batch)
        self._key = key
        self._batch = batch
        self._query = query.add_columns(key.label("henchman_cursor")).order_by(key).limit(batch)
        rebuild = _rebuilder(key.type.python_type)
        self.wanted = self._query if cursor is None else self._query.where(key >= rebuild(cursor))

    def read(self, rows: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        """The (item, cursor) of a page."""
        self.wanted = self._query.where(self._key > rows[-1][-1]) if len(rows) == self._batch else None
        for row in rows:
            yield row[0] if len(row) == 2 else tuple(row[:-1]), _as_cursor(row[-1])


def over_django(queryset: Any, *, key: str = "pk", cursor: Any, batch: int = 500) -> Iterator[tuple[Any, Any]]:
    """The objects of a Django queryset, by ``key`` (the name of a unique field).

    The queryset must not be sliced; its order is replaced.
    """
    first, later = _django_pages(queryset, key, cursor, batch)
    page = list(first)
    while page:
        yield from ((one, _as_cursor(_key_of(one, key))) for one in page)
        page = list(later(page[-1])) if len(page) == batch else []


async def aover_django(
    queryset: Any, *, key: str = "pk", cursor: Any, batch: int = 500
) -> AsyncIterator[tuple[Any, Any]]:
    """``over_django`` with Django's asynchronous queries."""
    first, later = _django_pages(queryset, key, cursor, batch)
    page = [one async for one in first]
    while page:
        for one in page:
            yield one, _as_cursor(_key_of(one, key))
        page = [one async for one in later(page[-1])] if len(page) == batch else []


def _django_pages(queryset: Any, key: str, cursor: Any, batch: int) -> tuple[Any, Callable[[Any], Any]]:
    _check_batch(batch)
    meta = queryset.model._meta
    field = meta.pk if key == "pk" else meta.get_field(key)
    ordered = queryset.order_by(key)
    first = ordered if cursor is None else ordered.filter(**{f"{key}__gte": field.to_python(cursor)})
    return first[:batch], lambda last: ordered.filter(**{f"{key}__gt": _key_of(last, key)})[:batch]


def _key_of(one: Any, key: str) -> Any:
    return one[key] if isinstance(one, dict) else getattr(one, key)


def in_batches(pairs: Iterable[tuple[T, Any]], size: int) -> Iterator[tuple[list[T], Any]]:
    """Lists of up to ``size`` items as one item each; the cursor is that of the first."""
    _check_batch(size)
    rest = iter(pairs)
    while batch := list(itertools.islice(rest, size)):
        yield [item for item, _ in batch], batch[0][1]


async def ain_batches(pairs: AsyncIterable[tuple[T, Any]], size: int) -> AsyncIterator[tuple[list[T], Any]]:
    """``in_batches`` of an async iterator."""
    _check_batch(size)
    batch: list[tuple[T, Any]] = []
    async for pair in pairs:
        batch.append(pair)
        if len(batch) == size:
            yield [item for item, _ in batch], batch[0][1]
            batch = []
    if batch:
        yield [item for item, _ in batch], batch[0][1]


def _check_batch(size: Any) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ArgumentError(f"a batch of {size!r}: give a number of rows, 1 or more")


def _as_cursor(value: Any) -> Any:
    """A key as plain JSON."""
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, uuid.UUID | decimal.Decimal):
        return str(value)
    return value


def _rebuilder(kind: type[Any]) -> Callable[[Any], Any]:
    """How a key of this type is made of its cursor."""
    if kind in (dt.datetime, dt.date):
        rebuild: Callable[[Any], Any] = kind.fromisoformat
        return rebuild
    return kind if kind in (uuid.UUID, decimal.Decimal) else lambda cursor: cursor
