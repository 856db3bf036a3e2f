"""What the jobs of a batch returned, in the order in which they were pushed: read page by page, and as a file.

A result is kept as the JSON text that the job's worker wrote. It is rebuilt when somebody asks for ``value``.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from henchman.client.job import Using
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, BatchError
from henchman.kernel import spreadsheet
from henchman.kernel.text import as_shown
from henchman.store import batches
from henchman.store.call import Page, Pages, Procedure
from henchman.work.steps import KeptResult, plain_json

__all__ = ["BatchResult", "as_csv", "as_json_lines", "results"]

R = TypeVar("R", covariant=True)

PAGE: Final = 1000  # rows; the server ends a page at 4 MB as well
MOST_COLUMNS: Final = 1000


class BatchResult(KeptResult[R]):
    """What became of one row of a batch.

    ``row``: its number, from 0, in the order in which the rows were pushed. ``jid``, ``job``: the id of the job and its
    name. ``status``: as the batch counts it: "finished", "failed", "error", "cancelled", "expired"; of a job that has
    not ended "enqueued", "working" and so on; "unknown" when it has ended and nothing is known of that. ``json``: what
    it returned, as JSON text; None when there is no result. ``message``, ``error_class``: why not; "" when unknown.
    """

    __slots__ = ("row",)

    def __init__(self, row: int, job: str, jid: str, text: bytes, function: Any = None) -> None:
        super().__init__(job, jid, text, function)
        self.row = row

    def __repr__(self) -> str:
        return f"<row {self.row}: {self.job} {self.jid} {self.status}>"

    @property
    def _place(self) -> str:
        """Which job it is, in words."""
        return f"job {self.jid} (row {self.row} of its batch)"


Rows = list[BatchResult[Any]]


def results(runtime: Runtime, batch: str, job: Any = None) -> Pages[BatchResult[Any]]:
    """Every row of a batch, or those of one job; a page is read when its first row is asked for."""
    wanted = None if job is None else _definition(job)
    row, count = 0, 1
    while row < count:
        count, page = yield from _read(runtime, batch, row, wanted)
        row += len(page)
        yield Page(page if wanted is None else [one for one in page if one.job == wanted.name])


def _definition(job: Any) -> Any:
    if not isinstance(job, Using):
        raise ArgumentError(f"results({as_shown(job, 100)}): give a job of the app, or nothing for those of every job")
    return job.job


def _read(runtime: Runtime, batch: str, first: int, job: Any = None) -> Procedure[tuple[int, Rows]]:
    """How many rows the batch has, and those from ``first`` on that one call reads. ``job``: need not be known."""
    found: batches.ResultRows = yield batches.results(runtime.keys, batch, first, PAGE)
    known = {name: runtime.registry.find(name) for name in {row[0] for row in found.rows}}
    if job is not None:
        known[job.name] = job
    functions = {name: None if one is None else one.function for name, one in known.items()}
    numbered = enumerate(found.rows, first)
    rows: Rows = [BatchResult(number, name, jid, text, functions[name]) for number, (name, jid, text) in numbered]
    return (found.total if rows else first), rows


# --- as a file --------------------------------------------------------------------------------------------------------


def as_json_lines(runtime: Runtime, batch: str) -> Pages[bytes]:
    """Parts of a file of JSON Lines: an object a row, with ``result``, or with ``message`` and ``error_class``."""
    row, count = 0, 1
    while row < count:
        count, page = yield from _read(runtime, batch, row)
        row += len(page)
        yield Page([b"".join(map(_line, page))])


def _line(one: BatchResult[Any]) -> bytes:
    facts: dict[str, Any] = {"row": one.row, "jid": one.jid, "job": one.job, "status": one.status}
    if one.json is not None:
        facts["result"] = msgspec.Raw(one.json)
    else:
        facts |= {"message": one.message, "error_class": one.error_class}
    return msgspec.json.encode(facts) + b"\n"


def as_csv(runtime: Runtime, batch: str) -> Pages[bytes]:
    """Parts of a file for a spreadsheet: a line a row, and a column for each name in the results.

    The rows are read twice: first for the names. Raises BatchError when these are more than ``MOST_COLUMNS``.
    """
    columns, row, count = _Columns(), 0, 1
    while row < count:
        count, page = yield from _read(runtime, batch, row)
        row += len(page)
        columns.learn(page)
    yield Page([spreadsheet.MARK + spreadsheet.written([columns.titles()])])
    row = 0
    while row < count:
        count, page = yield from _read(runtime, batch, row)
        row += len(page)
        yield Page([spreadsheet.written(map(columns.cells, page))])


class _Columns:
    """The columns of a file: facts of the row, each name in results that are objects, ``result`` for all others."""

    FACTS: Final = ("row", "job id", "job", "status", "message", "error class")

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._others = False

    def learn(self, page: Rows) -> None:
        """Take the names in the results of a page."""
        for one in page:
            named, other = _parts(one)
            self._names |= dict.fromkeys(named)
            self._others |= other is not None
        if len(self._names) > MOST_COLUMNS:
            raise BatchError(
                f"the results hold more than {MOST_COLUMNS:,} different names, too many for columns: take JSON Lines"
            )

    def titles(self) -> list[str]:
        """The first line. A name that is taken gets ``result`` before it."""
        taken = {*self.FACTS, "result"}
        names = [spreadsheet.safe(f"result {name}" if name in taken else name) for name in self._names]
        return [*self.FACTS, *names, *(["result"] if self._others else [])]

    def cells(self, one: BatchResult[Any]) -> list[str | int | float]:
        """The line of a row; BatchError when its result came between the two readings, and has no column."""
        named, other = _parts(one)
        if not named.keys() <= self._names.keys() or (other is not None and not self._others):
            raise BatchError(f"row {one.row} ended while the file was written, with other columns: write it once more")
        facts = [spreadsheet.safe(text) for text in (one.jid, one.job, one.status, one.message, one.error_class)]
        values = [_cell(named.get(name)) for name in self._names]
        return [one.row, *facts, *values, *([_cell(other)] if self._others else [])]


def _parts(one: BatchResult[Any]) -> tuple[dict[str, Any], Any]:
    """The result of a row as an object, or as something else."""
    result = None if one.json is None else plain_json(one.json)
    return (result, None) if isinstance(result, dict) else ({}, result)


def _cell(value: Any) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return spreadsheet.safe(value if isinstance(value, str) else msgspec.json.encode(value).decode())
