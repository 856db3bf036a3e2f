"""The endpoints: each reads its request strictly, asks server and history, and answers.

Of the history it reads pages of so many events and so many bytes, however large the arguments of jobs are. Answers are
JSON under entity tags, and problems (RFC 9457).
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from henchman.app import App
from henchman.batch import results
from henchman.batch.batch import status_of
from henchman.errors import BatchError, HistoryError, ServerError, UnknownBatch
from henchman.history import as_csv, load
from henchman.history.records import FAILURES, STATUSES, Changes, Event, EventPage, batch_status
from henchman.kernel.middleware import in_thread
from henchman.kernel.text import did_you_mean, shorten, visible
from henchman.store import batches
from henchman.store.call import Pages, aiterate
from henchman.wire.plain_json import as_json

__all__ = ["Refusal", "Views", "failures", "problem"]

MOST: Final = 1000  # events of one answer
BYTES: Final = 8 * 1024 * 1024  # of its text; the first event is given however large it is
_STEP = 100  # events that are read first; their size says how many are read next
_CSV_STEP = 500
#: reads events behind a position, as many as the second number says; the position behind them, None: no more
_Read = Callable[[int, int], Awaitable[tuple[Sequence[Event], int | None]]]


class HistoryReader:
    """The history of ``app``, opened at the first question; each is asked in a thread. Refusal (501): it is off."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._database: Any = None
        self._lock = threading.Lock()

    @property
    def is_on(self) -> bool:
        """Whether this app's settings name a database."""
        return not self._app.config.why_history_is_off()

    async def ask(self, method: str, *args: Any, **named: Any) -> Any:
        """What the method of History answers; HistoryAway, HistoryError."""
        return await in_thread(self._ask, method, args, named)

    def close(self) -> None:
        """Close its connections; opened again when it is asked again."""
        with self._lock:
            database, self._database = self._database, None
        if database is not None:
            database.close()

    def _ask(self, method: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        with self._lock:
            if self._database is None:
                if not self.is_on:
                    raise Refusal(501, "this needs the history, which is off: see database_url in the settings")
                self._database = load(self._app.config)
            reading = self._database.reading
        return getattr(reading, method)(*args, **named)


class EventsJson(NamedTuple):
    """Some events as a JSON list, the last of them, and whether there are more."""

    events: bytes
    last: Event | None
    more: bool


class _Filling:
    """A page that takes events until it is full. Each event becomes JSON once."""

    def __init__(self, limit: int) -> None:
        self.last: Event | None = None
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = self._bytes = 0

    def page(self, *, more: bool) -> EventsJson:
        """The events that were taken."""
        return EventsJson(b"[" + b",".join(self._parts) + b"]", self.last, more)

    def take(self, events: Sequence[Event]) -> bool:
        """Take as many events as have room, the first in any case; whether all of them had room."""
        if not events or self._add(events):
            return True
        return all(self._add([one], first=not self._parts) for one in events)

    def _add(self, events: Sequence[Event], *, first: bool = False) -> bool:
        text = as_json([exact(one.to_json()) for one in events])[1:-1]
        if self._bytes + len(text) > BYTES and not first:
            return False
        self._parts.append(text)
        self._bytes += len(text)
        self._held += len(events)
        self.last = events[-1]
        return True

    @property
    def step(self) -> int:
        """How many events to read next, fewer when they are large; 0: the page is full."""
        left = self._limit - self._held
        if not self._held:
            return min(left, _STEP)
        return min(left, max((BYTES - self._bytes) * self._held // self._bytes, 1))


def exact(record: dict[str, Any]) -> dict[str, Any]:
    """A record whose positions are text: JavaScript rounds whole numbers of this size."""
    return record | {name: str(record[name]) for name in ("seq", "changed", "position") if name in record}


async def page(record: HistoryReader, batch: str, status: Sequence[str] | None, after: int, limit: int) -> EventsJson:
    """Events of a batch behind position ``after``, in the order in which they were enqueued."""

    async def read(after: int, step: int) -> tuple[Sequence[Event], int | None]:
        found: EventPage = await record.ask("events", batch, status, after=after, limit=step)
        return found.events, found.after

    return await _filled(read, after, limit)


async def changed(record: HistoryReader, batch: str, position: int, limit: int) -> EventsJson:
    """Events of a batch that changed behind ``position``, in the order in which they did."""

    async def read(position: int, step: int) -> tuple[Sequence[Event], int | None]:
        found: Changes = await record.ask("changed_since", batch, position, limit=step)
        return found.events, found.position if found.more else None

    return await _filled(read, position, limit)


async def _filled(read: _Read, position: int, limit: int) -> EventsJson:
    filling = _Filling(limit)
    while True:
        events, following = await read(position, filling.step)
        whole = filling.take(events)
        if not whole or following is None or not filling.step:
            return filling.page(more=not whole or following is not None)
        position = following


async def csv_of(record: HistoryReader, batch: str, first: EventPage) -> AsyncIterator[bytes]:
    """The failures of a batch as CSV, from their ``first`` page on, a page at a time."""
    yield as_csv.head()
    found = first
    while True:
        if found.events:
            yield as_csv.lines(found.events)
        if found.after is None:
            return
        try:
            found = await failures(record, batch, found.after)
        except HistoryError as error:  # as an OSError it would pass for a client that went away
            raise RuntimeError(f"failures.csv of batch {batch} breaks off: {error}") from error


async def failures(record: HistoryReader, batch: str, after: int) -> EventPage:
    """The next failures of a batch, as many as are written at once."""
    found: EventPage = await record.ask("events", batch, FAILURES, after=after, limit=_CSV_STEP)
    return found


async def parts_of(name: str, first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The file ``name``, of whose parts the ``first`` has been read."""
    yield first
    try:
        async for part in rest:
            yield part
    except (BatchError, ServerError) as error:  # as an OSError it would pass for a client that went away
        raise RuntimeError(f"{name} breaks off: {error}") from error


LAST: Final = 2**63 - 1  # the greatest position that a database holds
TITLES: Final = {
    400: "Bad request",
    401: "Token needed",
    404: "Not found",
    405: "Read only",
    414: "Too long",
    500: "Internal error",
    501: "History is off",
    503: "Try again later",
}


class Refusal(Exception):
    """A request that is refused, with the status and a sentence that says why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as JSON that programs can read."""
    body = {"type": "about:blank", "title": TITLES.get(status, "Error"), "status": status, "detail": detail}
    return Response(as_json(body), status, {"Cache-Control": "no-store", **(headers or {})}, "application/problem+json")


def with_events(facts: Mapping[str, Any], events: bytes | None) -> bytes:
    """A document as JSON, with ``events``, which are JSON already, as its last field."""
    text = as_json(facts)
    return text if events is None else text[:-1] + b',"events":' + events + b"}"


def document(text: bytes) -> Response:
    """A JSON document that no cache keeps."""
    return Response(text, 200, {"Cache-Control": "no-store"}, "application/json")


def tagged(text: bytes, tag: str, given: str | None) -> Response:
    """A JSON document under an entity tag; 304 without it when ``given`` (If-None-Match) names that tag."""
    headers = {"Cache-Control": "private, no-cache", "ETag": tag, "Vary": "Authorization"}
    if same(tag, given):
        return Response(None, 304, headers)
    return Response(text, 200, headers, "application/json")


def tag_of(value: Any) -> str:
    """A weak entity tag of the content of ``value``."""
    return f'W/"{hashlib.blake2b(as_json(value), digest_size=12).hexdigest()}"'


def same(tag: str, given: str | None) -> bool:
    """Whether If-None-Match names ``tag`` (weak comparison)."""
    return given is not None and (given.strip() == "*" or tag.removeprefix("W/") in re.findall(r'"[^"]*"', given))


class Asked:
    """The parameters of a request: only ``known`` ones, each once; Refusal names the one that is wrong."""

    def __init__(self, request: Request, known: Iterable[str] = ()) -> None:
        known = tuple(known)
        self._given: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name not in known:
                there = f"; there are {', '.join(known)}" if known else "; there are none here"
                more = did_you_mean(name[:50], known) or there
                raise Refusal(400, f"there is no parameter {_shown(name)}{more}")
            if name in self._given:
                raise Refusal(400, f"{name} stands there twice")
            self._given[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def text(self, name: str) -> str | None:
        """The parameter as it stands in the request."""
        return self._given.get(name)

    def whole(self, name: str, low: int, high: int, otherwise: int) -> int:
        """A whole number from ``low`` to ``high``."""
        text = self._given.get(name)
        if text is None:
            return otherwise
        if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII) or not low <= int(text) <= high:
            raise Refusal(400, f"{name}={_shown(text)}: a whole number from {low:,} to {high:,}")
        return int(text)

    def statuses(self, name: str) -> tuple[str, ...] | None:
        """One status or several, separated by commas; None when nothing was given."""
        text = self._given.get(name)
        if text is None:
            return None
        wanted = tuple(dict.fromkeys(text.split(",")))
        for one in wanted:
            if one not in STATUSES:
                near = did_you_mean(one[:50], STATUSES)
                raise Refusal(400, f"{name}: there is no status {_shown(one)}{near}; there are {', '.join(STATUSES)}")
        return wanted


def _shown(text: str) -> str:
    return repr(visible(shorten(text, 100)))


_BATCH = re.compile(r"[0-9a-f]{32}")
_JID = re.compile(r"[\x21-\x7e]{1,100}")
_LIFE = 1000  # changes, runs and messages of one job, each
_LATEST = "latest"
_CSV = "text/csv; charset=utf-8; header=present"
_PASSING = {"rate", "eta"}  # they change while nothing happens


class Views:
    """The endpoints of ``app``."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.record = HistoryReader(app)

    async def batch(self, request: Request) -> Response:
        """``GET /batches/{id}``."""
        batch = _batch_id(request)
        asked = Asked(request, ("since", "limit"))
        if "limit" in asked and "since" not in asked:
            raise Refusal(400, "limit goes with since: it bounds the events that changed")
        limit = asked.whole("limit", 1, MOST, MOST)
        latest = asked.text("since") == _LATEST
        since = 0 if latest else asked.whole("since", 0, LAST, 0)
        facts, events = await self._status(batch), None
        if "since" in asked:
            position, more, events = await self._changes(batch, None if latest else since, limit)
            facts |= {"position": position, "more": more}
        steady = {name: value for name, value in facts.items() if name not in _PASSING}
        tag = tag_of([steady, since, limit])
        return tagged(with_events(facts, events), tag, request.headers.get("if-none-match"))

    async def events(self, request: Request) -> Response:
        """``GET /batches/{id}/events``."""
        batch = _batch_id(request)
        asked = Asked(request, ("status", "after", "limit"))
        status = asked.statuses("status")
        limit = asked.whole("limit", 1, MOST, 100)
        found = await page(self.record, batch, status, asked.whole("after", 0, LAST, 0), limit)
        if found.last is None:
            await self._status(batch)
        following = str(found.last.seq) if found.last is not None and found.more else None
        return document(with_events({"batch": batch, "next": following}, found.events))

    async def failures(self, request: Request) -> Response:
        """``GET /batches/{id}/failures.csv``."""
        batch = _batch_id(request)
        Asked(request)
        first: EventPage = await failures(self.record, batch, 0)  # so that an error is answered before the CSV begins
        if not first.events:
            await self._status(batch)
        return _file(request, f"failures-{batch}.csv", _CSV, csv_of(self.record, batch, first))

    async def results_csv(self, request: Request) -> Response:
        """``GET /batches/{id}/results.csv``."""
        return await self._results(request, "csv", _CSV, results.as_csv)

    async def results_json_lines(self, request: Request) -> Response:
        """``GET /batches/{id}/results.jsonl``."""
        return await self._results(request, "jsonl", "application/jsonl; charset=utf-8", results.as_json_lines)

    async def _results(self, request: Request, ending: str, kind: str, form: Callable[..., Pages[bytes]]) -> Response:
        batch = _batch_id(request)
        Asked(request)
        parts = aiterate(self._app.aconnections, form(self._app, batch))
        try:
            first = await anext(parts, b"")  # so that an error is answered before the file begins
        except UnknownBatch:
            raise _not_there() from None
        except BatchError as error:
            raise Refusal(404, str(error)) from None
        name = f"results-{batch}.{ending}"
        return _file(request, name, kind, parts_of(name, first, parts))

    async def job(self, request: Request) -> Response:
        """``GET /jobs/{jid}``."""
        jid = request.path_params["jid"]
        Asked(request)
        found = await self.record.ask("job", jid, most=_LIFE) if _JID.fullmatch(jid) else None
        if found is None:
            raise _not_there()
        facts = found.to_json()
        facts["event"] = exact(facts["event"])
        for name in ("changes", "messages"):
            facts[name] = [exact(one) for one in facts[name]]
        facts["complete"] = all(len(facts[name]) < _LIFE for name in ("changes", "runs", "messages"))
        return document(as_json(facts))

    async def _status(self, batch: str) -> dict[str, Any]:
        """The status of a batch as the server counts it; as history has it, when the server has forgotten the batch."""
        counted = await self._app.aconnections.run(batches.facts(self._app.keys, batch))
        try:
            plain: dict[str, Any] = msgspec.to_builtins(status_of(batch, counted))
        except UnknownBatch:
            found = await self.record.ask("batch", batch) if self.record.is_on else None
            if found is None:
                raise _not_there() from None
            return batch_status(found) | {"source": "history"}
        return plain | {"source": "server"}

    async def _changes(self, batch: str, since: int | None, limit: int) -> tuple[str, bool, bytes]:
        """The position to go on from, whether there is more at once, and the events as JSON."""
        if since is None:
            return str(await self.record.ask("latest", batch)), False, b"[]"
        found = await changed(self.record, batch, since, limit)
        return str(since if found.last is None else found.last.changed), found.more, found.events


def _file(request: Request, name: str, kind: str, parts: AsyncIterator[bytes]) -> Response:
    """A file to be downloaded, sent as it is read."""
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
        "Content-Type": kind,
    }
    if request.method == "HEAD":
        return Response(None, 200, headers)
    return StreamingResponse(parts, 200, headers)


def _batch_id(request: Request) -> str:
    batch: str = request.path_params["batch"]
    if not _BATCH.fullmatch(batch):
        raise _not_there()
    return batch


def _not_there() -> Refusal:
    return Refusal(404, "nothing is known under this address")
