"""Lists as files, ``jobs.csv`` for a spreadsheet and ``jobs.ndjson`` for programs: what the filter of a page finds,
more of it than the page shows, read bit by bit.

Each has at most 100,000 jobs. A file is no snapshot: what moves while it is read may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any, Final, NamedTuple

from starlette.responses import Response, StreamingResponse

from henchman.client.runtime import Runtime
from henchman.console.pages import SETS, Download, Query, View
from henchman.console.record import words_of_search
from henchman.errors import ArgumentError, HenchmanError, HistoryError
from henchman.history import as_csv
from henchman.history.records import Event
from henchman.inspector import audit
from henchman.inspector.base import Entry
from henchman.inspector.days import SOURCES, STATUSES, EndedJob, day_of
from henchman.inspector.sets import JobSet, SetName
from henchman.kernel.spreadsheet import MARK, safe, written
from henchman.oncall.deeds import Deed, Missing
from henchman.store.call import run
from henchman.wire.plain_json import as_json

__all__ = ["EVENTS_CSV", "JSON_LINES", "FilePages", "answer_of", "file_of", "taken"]

_MOST: Final = 100_000  # jobs of a file
_STEP: Final = 500  # that are read at once
_ON_SERVER: Final = 2000  # jobs of a day: more than it remembers
_TYPES: Final = {"csv": "text/csv; charset=utf-8", "ndjson": "application/x-ndjson"}
_WHEN: Final = {"retries": "next run (UTC)", "scheduled": "due (UTC)", "dead": "died (UTC)"}
_ENTRY: Final = ("job id", "class", "queue", "runs", "error class", "error message", "cause", "arguments")
_MORE: Final = ("keyword arguments", "tags", "enqueued (UTC)", "failed (UTC)")
_ENDED: Final = ("ended (UTC)", "job id", "class", "status", "error class", "message")


def file_of(name: str, parts: Iterator[bytes]) -> Download:
    """A file that begins to be read now: what is wrong is said instead of it, not in its middle."""
    first = next(parts, b"")
    return Download(name, _TYPES[name.rpartition(".")[2]], chain([first], parts))


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
        """Retries, scheduled or dead jobs, in the order of the page."""
        head = MARK + written([(_WHEN[which], *_ENTRY, *_MORE)])
        form = _form(name, FileForm("csv", head, lambda some: written(map(_entry_cells, some))))
        jobs = JobSet(self._runtime, which)
        try:
            found = islice(jobs.matching(query.search) if query.search else iter(jobs), _MOST)
        except ArgumentError as error:
            raise Missing(str(error)) from None
        return file_of(f"{which}.{form.kind}", form.parts(iter(lambda: list(islice(found, _STEP)), [])))

    def _history(self, name: str, query: Query) -> Download:
        """What a search finds in history, the latest first."""
        form = _form(name, EVENTS_CSV)
        try:
            return file_of(f"history.{form.kind}", form.parts(self._events(query)))
        except (ArgumentError, HistoryError) as error:
            raise Missing(str(error)) from None

    def _events(self, query: Query) -> Iterator[Sequence[Event]]:
        search, _ = words_of_search(query.search)
        reading: Any = self._runtime.open_history().reading
        after, left = None, _MOST
        while left and (after or left == _MOST):
            page = reading.find(search, after=after, limit=_STEP)
            yield page.events
            after, left = page.after, left - _STEP

    def _day(self, day: str, name: str, query: Query) -> Download:
        """What ended on a day, the latest first."""
        try:
            return self._ended(day, name, query)
        except (ArgumentError, HistoryError) as error:
            raise Missing(str(error)) from None

    def _ended(self, day: str, name: str, query: Query) -> Download:
        status, job = query.word("status", *STATUSES), query.word("job")
        wanted, source = [status] if status else None, query.word("source", *SOURCES)
        found = day_of(self._runtime, day, wanted, job, 0, _ON_SERVER, source)
        if found.source == "server":  # all of it is there
            form, some = _form(name, _ENDED_CSV), iter([found.jobs])
        else:
            reading: Any = self._runtime.open_history().reading
            some = reading.ended_on(day, status=wanted, name=job, most=_MOST)
            form = _form(name, EVENTS_CSV)
        return file_of(f"{day[:10]}.{form.kind}", form.parts(some))


class FileForm(NamedTuple):
    """How a file is written: what it begins with, and the lines of some of its jobs."""

    kind: str
    head: bytes
    lines: Callable[[Sequence[Any]], bytes]

    def parts(self, found: Iterable[Sequence[Any]]) -> Iterator[bytes]:
        """The file, a part for each of ``found``; the first one has the head."""
        head = self.head
        for some in found:
            yield head + self.lines(some)
            head = b""
        yield head


def _form(name: str, sheet: FileForm) -> FileForm:
    """``sheet`` for ``jobs.csv``; ``JSON_LINES`` for ``jobs.ndjson``."""
    if name not in ("jobs.csv", "jobs.ndjson"):
        raise Missing("there is no such file: jobs.csv, jobs.ndjson")
    return sheet if name == "jobs.csv" else JSON_LINES


def _json_lines(some: Sequence[Any]) -> bytes:
    return b"".join(as_json(one.to_json()) + b"\n" for one in some)


#: a JSON document a line, with what programs know of each job
JSON_LINES: Final = FileForm("ndjson", b"", _json_lines)
#: events of history for a spreadsheet
EVENTS_CSV: Final = FileForm("csv", as_csv.head(), as_csv.lines)
_ENDED_CSV: Final = FileForm("csv", MARK + written([_ENDED]), lambda some: written(map(_ended_cells, some)))


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
