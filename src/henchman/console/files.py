"""Lists as files for a spreadsheet: what the filter of a page finds, more of it than the page shows, read bit by bit.

Each has at most 100,000 jobs. A file is no snapshot: what moves while it is read may be missing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, Final

from starlette.responses import Response, StreamingResponse

from henchman.client.runtime import Runtime
from henchman.console.pages import SETS, Download, Query, View
from henchman.console.record import words_of_search
from henchman.errors import ArgumentError, HenchmanError, HistoryError
from henchman.history import as_csv
from henchman.inspector import audit
from henchman.inspector.base import Entry
from henchman.inspector.days import SOURCES, STATUSES, EndedJob, day_of
from henchman.inspector.sets import JobSet, SetName
from henchman.kernel.spreadsheet import MARK, safe, written
from henchman.oncall.deeds import Deed, Missing
from henchman.store.call import run

__all__ = ["FilePages", "answer_of", "csv_file", "taken"]

_MOST: Final = 100_000  # jobs of a file
_STEP: Final = 500  # that are read at once
_ON_SERVER: Final = 2000  # jobs of a day: more than it remembers
_CSV: Final = "text/csv; charset=utf-8"
_WHEN: Final = {"retries": "next run (UTC)", "scheduled": "due (UTC)", "dead": "died (UTC)"}
_ENTRY: Final = ("job id", "class", "queue", "runs", "error class", "error message", "cause", "arguments")
_MORE: Final = ("keyword arguments", "tags", "enqueued (UTC)", "failed (UTC)")
_ENDED: Final = ("ended (UTC)", "job id", "class", "status", "error class", "message")


def csv_file(name: str, parts: Iterator[bytes]) -> Download:
    """A file that begins to be read now: what is wrong is said instead of it, not in its middle."""
    first = next(parts, b"")
    return Download(name, _CSV, chain([first], parts))


def answer_of(one: Download, runtime: Runtime, who: str, parts: Sequence[str], words: Mapping[str, str]) -> Response:
    """A file that the browser shows as it is, or keeps. That ``who`` took one to keep, with the filter ``words``, is a
    line of the audit, without which there is no file."""
    disposition = {"Content-Disposition": f'{"attachment" if one.kept else "inline"}; filename="{one.name}"'}
    body = taken(one, runtime, who, parts, words) if one.kept else one.parts
    return StreamingResponse(body, media_type=one.media_type, headers=disposition)


def taken(
    one: Download, runtime: Runtime, who: str, parts: Sequence[str], words: Mapping[str, str]
) -> Generator[bytes]:
    """The parts of a file, with a line of the audit for who reads them: how much of it that was, or nothing."""
    names = [*parts[1:], *(f"{name}={word}" for name, word in words.items())]
    begun = run(runtime.connections, audit.begin(runtime.keys, who, "export", parts[0], names))

    def reading() -> Generator[bytes]:
        size, whole = 0, False
        try:
            for part in one.parts:
                yield part
                size += len(part)
            whole = True
        finally:
            said = f"{size:,} bytes" if whole else f"left after {size:,} bytes"
            with suppress(HenchmanError):  # the first line stays then
                run(runtime.connections, audit.end(runtime.keys, begun, said, done=whole))

    return reading()


class FilePages:
    """The files; nothing is done there."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        sets: dict[tuple[str, int], View] = {(which, 1): partial(self._set, which) for which in SETS}
        self.views: Mapping[tuple[str, int], View] = {
            **sets,
            ("history", 1): self._history,
            ("days", 2): self._day,
        }
        self.deeds: Mapping[tuple[str, str], Deed] = {}

    def _set(self, which: SetName, name: str, query: Query) -> Download:
        """``jobs.csv``: retries, scheduled or dead jobs, in the order of the page."""
        _is(name)
        jobs = JobSet(self._runtime, which)
        try:
            found = iter(jobs.matching(query.search) if query.search else jobs)
        except ArgumentError as error:
            raise Missing(str(error)) from None
        return csv_file(f"{which}.csv", self._entries(which, islice(found, _MOST)))

    def _entries(self, which: SetName, found: Iterator[Entry]) -> Iterator[bytes]:
        yield MARK + written([(_WHEN[which], *_ENTRY, *_MORE)])
        while some := list(islice(found, _STEP)):
            yield written(map(_entry_cells, some))

    def _history(self, name: str, query: Query) -> Download:
        """``jobs.csv``: what a search finds in history, the latest first."""
        _is(name)
        try:
            return csv_file("history.csv", self._events(query))
        except (ArgumentError, HistoryError) as error:
            raise Missing(str(error)) from None

    def _events(self, query: Query) -> Iterator[bytes]:
        search, _ = words_of_search(query.search)
        reading: Any = self._runtime.open_history().reading
        after, head, left = None, as_csv.head(), _MOST
        while left and (after or left == _MOST):
            page = reading.find(search, after=after, limit=_STEP)
            yield head + as_csv.lines(page.events)
            head, after, left = b"", page.after, left - _STEP

    def _day(self, day: str, name: str, query: Query) -> Download:
        """``jobs.csv``: what ended on a day, the latest first."""
        _is(name)
        try:
            return csv_file(f"{day[:10]}.csv", self._ended(day, query))
        except (ArgumentError, HistoryError) as error:
            raise Missing(str(error)) from None

    def _ended(self, day: str, query: Query) -> Iterator[bytes]:
        status, name = query.word("status", *STATUSES), query.word("job")
        wanted, source = [status] if status else None, query.word("source", *SOURCES)
        found = day_of(self._runtime, day, wanted, name, 0, _ON_SERVER, source)
        if found.source == "server":  # all of it is there
            yield MARK + written([_ENDED, *map(_ended_cells, found.jobs)])
            return
        yield as_csv.head()
        reading: Any = self._runtime.open_history().reading
        for some in reading.ended_on(day, status=wanted, name=name, most=_MOST):
            yield as_csv.lines(some)


def _is(name: str) -> None:
    if name != "jobs.csv":
        raise Missing("there is no such file: jobs.csv")


def _entry_cells(one: Entry) -> tuple[str | int, ...]:
    args, kwargs = one.arguments
    error = one.error or ("", "")
    texts = one.jid, one.name, one.queue or "", one.attempts, *error, one.cause, as_csv.json_cell(args)
    more = as_csv.json_cell(kwargs or None), as_csv.json_cell(one.tags or None)
    moments = (one.score, one.time("enqueued_at"), one.time("failed_at"))
    first, *last = map(as_csv.moment_cell, moments)
    return (first, *(safe(text) if isinstance(text, str) else text for text in (*texts, *more)), *last)


def _ended_cells(one: EndedJob) -> tuple[str, ...]:
    return (as_csv.moment_cell(one.at), *map(safe, (one.jid, one.name, one.status, one.error_class, one.message)))
