"""The endpoints: each reads its request strictly, asks server and history, and answers."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from henchman.app import App
from henchman.batch.batch import status_of
from henchman.errors import UnknownBatch
from henchman.history.records import EventPage, batch_status
from henchman.kernel.middleware import in_thread
from henchman.store import batches
from henchman.web import paging
from henchman.web.answers import LAST, Asked, Refusal, as_json, document, tag_of, tagged, with_events

__all__ = ["Views"]

_BATCH = re.compile(r"[0-9a-f]{32}")
_JID = re.compile(r"[\x21-\x7e]{1,100}")
_LIFE = 1000  # changes, runs and messages of one job, each
_LATEST = "latest"
_PASSING = {"rate", "eta"}  # they change while nothing happens


class Views:
    """The endpoints of ``app``."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._connected = False
        self.record = paging.HistoryReader(app)

    async def batch(self, request: Request) -> Response:
        """``GET /batches/{id}``."""
        batch = _batch_id(request)
        asked = Asked(request, ("since", "limit"))
        if "limit" in asked and "since" not in asked:
            raise Refusal(400, "limit goes with since: it bounds the events that changed")
        limit = asked.whole("limit", 1, paging.MOST, paging.MOST)
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
        limit = asked.whole("limit", 1, paging.MOST, 100)
        found = await paging.page(self.record, batch, status, asked.whole("after", 0, LAST, 0), limit)
        if found.last is None:
            await self._status(batch)
        following = str(found.last.seq) if found.last is not None and found.more else None
        return document(with_events({"batch": batch, "next": following}, found.events))

    async def failures(self, request: Request) -> Response:
        """``GET /batches/{id}/failures.csv``."""
        batch = _batch_id(request)
        Asked(request)
        first: EventPage = await paging.failures(
            self.record, batch, 0
        )  # so that an error is answered before the CSV begins
        if not first.events:
            await self._status(batch)
        headers = {
            "Content-Disposition": f'attachment; filename="failures-{batch}.csv"',
            "Cache-Control": "no-store",
        }
        kind = "text/csv; charset=utf-8; header=present"
        if request.method == "HEAD":
            return Response(None, 200, headers | {"Content-Type": kind})
        return StreamingResponse(paging.csv_of(self.record, batch, first), 200, headers | {"Content-Type": kind})

    async def job(self, request: Request) -> Response:
        """``GET /jobs/{jid}``."""
        jid = request.path_params["jid"]
        Asked(request)
        found = await self.record.ask("job", jid, most=_LIFE) if _JID.fullmatch(jid) else None
        if found is None:
            raise _not_there()
        facts = found.to_json()
        facts["event"] = paging.exact(facts["event"])
        for name in ("changes", "messages"):
            facts[name] = [paging.exact(one) for one in facts[name]]
        facts["complete"] = all(len(facts[name]) < _LIFE for name in ("changes", "runs", "messages"))
        return document(as_json(facts))

    async def _status(self, batch: str) -> dict[str, Any]:
        """The status of a batch as the server counts it; as history has it, when the server has forgotten the batch."""
        if not self._connected:  # the first time this may have to find a server
            await in_thread(lambda: self._app.aconnections)
            self._connected = True
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
        found = await paging.changed(self.record, batch, since, limit)
        return str(since if found.last is None else found.last.changed), found.more, found.events


def _batch_id(request: Request) -> str:
    batch: str = request.path_params["batch"]
    if not _BATCH.fullmatch(batch):
        raise _not_there()
    return batch


def _not_there() -> Refusal:
    return Refusal(404, "nothing is known under this address")
