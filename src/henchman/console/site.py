"""The console as an application: addresses, requests and answers. What a page shows stands in ``pages.py``, who may see
it in ``guard.py``."""

from __future__ import annotations

import gc
import hmac
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, parse_qs, urlsplit

import uvicorn
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.types import ASGIApp, Receive, Scope, Send

from henchman.client.runtime import Runtime
from henchman.console.api.openapi import document
from henchman.console.api.programs import json_answer, problem, wish_of
from henchman.console.api.routes import JsonApi, Wrong
from henchman.console.batches import BatchPages
from henchman.console.bulk import BulkActs
from henchman.console.days import DayPages
from henchman.console.errors import ErrorPages
from henchman.console.extensions import Extensions
from henchman.console.files import FilePages, answer_of
from henchman.console.guard import Access, Denied, Visitor, address_of, forged, hardened, with_session
from henchman.console.jobs import JobPages
from henchman.console.limits import LimitPages
from henchman.console.metrics import MetricsPages
from henchman.console.ordered import OrderedPages
from henchman.console.pages import FILTERS, Download, EntryRows, Jump, Query, Screen, Screens, View, page_links
from henchman.console.pauses import PausePages
from henchman.console.processes import ProcessPages
from henchman.console.record import RecordPages
from henchman.console.render import ASSETS, BUILD, NAV, Links, addressed, links_elsewhere, render, shelf_of
from henchman.console.search import SearchPage
from henchman.console.snapshot import Snapshot
from henchman.console.waiting import WaitingPages
from henchman.errors import ArgumentError, HenchmanError, ServerAway
from henchman.inspector import audit
from henchman.inspector.prometheus import CONTENT_TYPE, exposition
from henchman.inspector.scaling import within_of
from henchman.kernel.text import mask_url, visible
from henchman.oncall.deeds import Deed, Deeds, Missing, Order, Question, Unfit, Unwanted, question_of
from henchman.oncall.views import VIEWED, SavedView, saved_views
from henchman.store.call import command, run

__all__ = ["Console"]

_BODY: Final = 131_072  # bytes of a form: 32 KB of arguments, each byte of which may take three, and the rest
_FIELDS: Final = 50  # of a form
_SHORT: Final = {"e": "errors", "j": "jobs", "t": "batches"}  # short addresses, for alerts and chat
_PATH: Final = 2048  # characters of an address
_SEEN: Final = 30.0  # seconds that saved views of other consoles may be old
_log = logging.getLogger("henchman.console")


class Subject(Protocol):
    """Pages and acts of one subject."""

    @property
    def views(self) -> Mapping[tuple[str, int], View]: ...
    @property
    def deeds(self) -> Mapping[tuple[str, str], Deed]: ...


class Console:
    """An ASGI application; ``app.console()`` makes it. ``label``: what it shows as the name of this deployment,
    ``tone`` "production", "staging" or "development": its colour."""

    def __init__(self, runtime: Runtime, access: Access, label: str = "", tone: str = "") -> None:
        self._runtime = runtime
        self._access = access
        self._bulk = BulkActs(runtime, carries_out=not access.read_only)
        self._extensions = Extensions(runtime, runtime.config.console_extensions)
        subjects: Sequence[Subject] = [
            self._extensions,
            JobPages(runtime, self._extensions.facts),
            BatchPages(runtime),
            OrderedPages(runtime),
            WaitingPages(runtime),
            LimitPages(runtime),
            PausePages(runtime),
            RecordPages(runtime),
            DayPages(runtime),
            FilePages(runtime),
            ErrorPages(runtime),
            MetricsPages(runtime),
            ProcessPages(runtime),
            SearchPage(runtime),
            self._bulk,
        ]
        self._screens = Screens(runtime, self._extensions)
        self._saved = Snapshot(lambda: run(runtime.connections, saved_views(runtime.keys)), 0.0, _SEEN, 0.0)
        self._views: dict[tuple[str, int], View] = {**self._screens.views}
        deeds: dict[tuple[str, str], Deed] = {}
        for one in subjects:
            self._views |= one.views
            deeds |= one.deeds
        self._deeds = Deeds(runtime, deeds, self._extensions.findings)
        self._api = JsonApi(runtime, self._deeds)
        self._label, self._tone = label, tone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            request = Request(scope, receive)
            try:
                answer = await self._answer(request)
            except ClientDisconnect:
                return
            hardened(answer).headers.setdefault("Cache-Control", "private, no-store")
            if answer.status_code == 429:
                answer.headers["Retry-After"] = "60"
            await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        links, parts = addressed(request.scope)
        if len(request.scope["path"]) > _PATH or parts is None:
            return PlainTextResponse("no such page", 404)
        if parts[:1] == ["static"]:
            return _asset(parts, request)
        if parts == ["healthz"]:
            return await self._health()
        visitor = await self._access.visitor(request)
        if parts[:2] == ["api", "v1"]:
            return await self._programs(request, links, parts[2:], visitor)
        began = time.perf_counter()
        try:
            if request.method in ("GET", "HEAD"):
                answer = await self._get(request, links, parts, visitor, began)
            elif request.method == "POST":
                answer = await self._post(request, links, parts, visitor)
            else:
                raise Denied(405, "pages are read with GET, and acts are done with POST")
        except (Denied, Unwanted, Missing) as error:
            answer = self._message(request, links, visitor, _status(error), str(error))
        except ServerAway as error:
            answer = self._message(request, links, visitor, 503, f"the server does not answer: {error}")
        except HenchmanError as error:
            answer = self._message(request, links, visitor, 500, str(error))
        if visitor.fresh:
            with_session(answer, request, links.prefix, visitor.session)
        return answer

    def carry_on(self) -> None:
        """Whoever carries out operations looks for those that others have left."""
        self._bulk.wake(now=True)

    def serve(self, listening: socket.socket, root_path: str = "", site: ASGIApp | None = None) -> None:
        """Serve on a socket that listens, until a signal says stop. ``root_path``: where a proxy serves it; ``site``:
        what this one is a part of."""
        options: Any = {"log_level": "warning", "access_log": False, "server_header": False, "lifespan": "off"}
        config = uvicorn.Config(site or self, root_path=root_path, **options)
        self.carry_on()
        gc.freeze()  # what is loaded stays: else each third look at a large server waits for a walk through all of it
        with suppress(KeyboardInterrupt):  # it hands the signal on when it has ended
            uvicorn.Server(config).run(sockets=[listening])

    # ---- reading

    async def _get(self, request: Request, links: Links, parts: list[str], visitor: Visitor, began: float) -> Response:
        if parts == ["login"]:
            return self._page(request, links, visitor, Screen("login.html", {"wrong": False}), Query({}))
        self._access.must("look", visitor)
        if parts == ["metrics.prom"]:
            return await self._figures(request)
        if parts == ["find"]:
            scope, key = (request.query_params.get(one, "").strip()[:300] for one in ("scope", "key"))
            return RedirectResponse(links("keys", scope, key) if scope and key else links("search"), 303)
        self._bulk.wake(now=parts[:1] == ["operations"])
        query = Query(request.query_params)
        page = await run_in_threadpool(self._look, parts, query)
        if isinstance(page, Download):
            return await run_in_threadpool(
                answer_of, page, self._runtime, visitor.name, parts, _filters(request.url.query)
            )
        if isinstance(page, Jump):
            return RedirectResponse(links(*page.place), 303)
        if page.template == "confirm.html":
            page = page._replace(facts={**page.facts, "at": _filters(_before(request).query)})
        return self._page(request, links, visitor, page, query, parts, began)

    def _look(self, parts: list[str], query: Query) -> Screen | Download | Jump:
        if self._is_act(parts):
            page, *names, _, verb = parts
            act = self._deeds.find(page, verb, names)
            return act.form(*names, {}, "") if act.form else _question(act, page, verb, names)
        page, *names = parts or [""]
        if page in _SHORT and len(names) == 1:
            return Jump((_SHORT[page], *names))
        view = self._views.get((page, len(names)))
        if view is None:
            raise Missing("there is no such page")
        shown = view(*names, query)
        if isinstance(shown, Screen) and isinstance(rows := shown.facts.get("rows"), EntryRows):
            self._extensions.name(rows.entries)
        return shown

    def _page(
        self,
        request: Request,
        links: Links,
        visitor: Visitor,
        page: Screen,
        query: Query,
        parts: list[str] | None = None,
        began: float | None = None,
    ) -> Response:
        parts = parts or []
        facts = {
            **self._frame(request, links, visitor, parts),
            **page.facts,
            "query": query,
            "here": "/".join(parts[: 2 if parts[:1] == ["x"] else 1]),
            "took": None if began is None else time.perf_counter() - began,
            "pager": None,
            "saved": self._views_of(parts),
        }
        rows, total = page.facts.get("rows"), page.facts.get("total")
        if isinstance(rows, EntryRows):
            facts["pager"] = page_links(
                links, parts[0], parts[1:], query, rows.total, more=not rows.whole, after=rows.after
            )
        elif isinstance(total, int):
            facts["pager"] = page_links(links, parts[0], parts[1:], query, total, more=False)
        return HTMLResponse(render(page.template, facts), page.status)

    def _views_of(self, parts: list[str]) -> list[SavedView]:
        """The saved views of a list page; of any other page none, and nothing is asked."""
        return (
            [one for one in self._saved.get() if [one.page] == parts] if len(parts) == 1 and parts[0] in VIEWED else []
        )

    def _frame(self, request: Request, links: Links, visitor: Visitor, parts: Sequence[str] = ()) -> dict[str, Any]:
        """What every page shows around itself."""
        theme = request.cookies.get("henchman_theme", "")
        return {
            "links": links,
            "nav": NAV + self._extensions.nav,
            "now": time.time(),
            "may_act": visitor.role == "act",
            "inside": visitor.role is not None,
            "deeds": self._deeds,
            "token": self._access.token(visitor.session),
            "logs_in": self._access.asks_password,
            "elsewhere": partial(links_elsewhere, self._runtime.config.console_links),
            "label": self._label,
            "tone": self._tone if self._tone in ("production", "staging", "development") else "",
            "theme": theme if theme in ("light", "dark") else "",
            "server": visible(mask_url(self._runtime.config.redis_url or "embedded server")),
            "said": self._said(request),
            "build": BUILD,
            "shelf": shelf_of(request.scope, parts[0] if len(parts) == 1 and (parts[0], 0) in self._views else ""),
        }

    def _said(self, request: Request) -> str:
        """What became of the last act, as its address tells; nothing that others put there."""
        text, seal = request.query_params.get("said", ""), request.query_params.get("seal", "")
        return text if text and hmac.compare_digest(seal.encode(), self._access.seal(text).encode()) else ""

    def _message(self, request: Request, links: Links, visitor: Visitor, status: int, text: str) -> Response:
        if status == 401 and request.method == "GET":
            return RedirectResponse(links("login"), 303)
        facts = self._frame(request, links, visitor) | {"status": status, "text": text, "here": None, "took": None}
        return HTMLResponse(render("message.html", facts), status)

    async def _health(self) -> Response:
        """Whether the server answers: nothing else is told to whoever asks."""
        well = await self.is_well()
        return JSONResponse({"ok": well}, 200 if well else 503)

    async def is_well(self) -> bool:
        """Whether the server answers."""
        try:
            await run_in_threadpool(self._runtime.connections.run, command("PING"))
        except HenchmanError:
            return False
        return True

    # ---- programs

    async def _programs(self, request: Request, links: Links, parts: list[str], visitor: Visitor) -> Response:
        """The JSON API. What raises becomes a problem that programs can read."""
        try:
            if request.method in ("GET", "HEAD"):
                self._access.must("look", visitor)
                return await self._answer_read(request, links, parts)
            if request.method == "POST" and parts in (["acts"], ["plans"]):
                return await self._answer_wish(request, links, visitor, parts[0])
            raise Denied(405, "what is read is read with GET; acts are done with POST to acts")
        except (Wrong, ArgumentError) as error:  # a search that makes no sense is one of these
            return problem(400, str(error))
        except (Denied, Unwanted, Missing) as error:
            return problem(_status(error), str(error))
        except ServerAway as error:
            return problem(503, f"the server does not answer: {error}")
        except HenchmanError as error:
            return problem(500, str(error))

    async def _answer_read(self, request: Request, links: Links, parts: list[str]) -> Response:
        if parts == ["openapi.json"]:
            return json_answer(document(links("api", "v1")))
        given = request.query_params.multi_items()
        found = await run_in_threadpool(self._api.answer, parts, given)
        if found is None:
            raise Missing("nothing is known under this address: see openapi.json")
        return json_answer(found)

    async def _answer_wish(self, request: Request, links: Links, visitor: Visitor, which: str) -> Response:
        """A plan or an act. A browser brings the token of a page of ours; without one a password, or this machine."""
        wish = await wish_of(request)
        headers = request.headers
        if not visitor.bearer and any(one in headers for one in ("origin", "sec-fetch-site", "cookie")):
            if why := forged(request):
                raise Denied(403, f"this request was not taken for one of our own pages: {why}")
            if not self._access.holds(headers.get("x-henchman-token", ""), visitor.session):
                raise Denied(403, "send the token of a page as X-Henchman-Token, or a password as bearer")
        self._access.must("act" if which == "acts" else "look", visitor)
        if which == "plans":
            return json_answer(await run_in_threadpool(self._api.plan, wish["page"], wish["act"], wish["names"]))
        act = self._deeds.find(wish["page"], wish["act"], wish["names"])
        order = Order(visitor.name, {"reason": wish.get("reason", "")} | wish.get("form", {}))
        said, operation = await run_in_threadpool(self._do, act, wish["page"], wish["names"], wish["act"], order)
        return json_answer({"said": said, "operation": operation or None})

    async def _figures(self, request: Request) -> Response:
        """What Prometheus reads."""
        try:
            within = within_of(request.query_params.get("within", ""))
        except ArgumentError as error:
            raise Denied(400, str(error)) from None
        told = exposition(self._runtime.keys, within)
        text = await run_in_threadpool(run, self._runtime.connections, told)
        return PlainTextResponse(text, media_type=CONTENT_TYPE)

    # ---- acting

    def _is_act(self, parts: list[str]) -> bool:
        """Whether an address is that of an act: ``page/name/do/verb``, with one name or two; ``page/do/verb`` where a
        form gives the name."""
        if len(parts) not in (3, 4, 5) or parts[-2] != "do":
            return False
        act = self._deeds.known.get((parts[0], parts[-1]))
        return len(parts) > 3 or (act is not None and bool(act.fills))

    async def _post(self, request: Request, links: Links, parts: list[str], visitor: Visitor) -> Response:
        form = await _form(request)
        if why := forged(request):
            raise Denied(403, f"this request was not taken for one of our own pages: {why}")
        if parts == ["login"]:
            return await self._log_in(request, links, form, visitor)
        if not self._access.holds(form.get("token", ""), visitor.session):
            raise Denied(403, "this page is older than twelve hours, or not of this session: load it again")
        if parts == ["logout"]:
            return with_session(RedirectResponse(links("login"), 303), request, links.prefix, "")
        self._access.must("act", visitor)
        if not self._is_act(parts):
            raise Missing("there is nothing to do at this address")
        page, *names, _, verb = parts
        names += [form.get(one, "").strip() for one in self._deeds.find(page, verb).fills]
        act = self._deeds.find(page, verb, names)
        if not Question("", form.get("must", "")).is_met(form.get("typed", "")):
            screen = await run_in_threadpool(_question, act, page, verb, names, form)
            return self._page(request, links, visitor, screen, Query({}), parts)
        try:
            order = Order(visitor.name, form)
            said, operation = await run_in_threadpool(self._do, act, page, names, verb, order)
        except Unfit as error:
            if act.form is None:
                raise
            screen = await run_in_threadpool(act.form, *names, form, str(error))
            return self._page(request, links, visitor, screen._replace(status=422), Query({}), parts)
        if operation:
            return RedirectResponse(links("operations", operation, said=said, seal=self._access.seal(said)), 303)
        where = {"one": [page, *names], "list": [page, *names[:1]], "named": names[:1]}.get(
            form.get("back", act.back), [page]
        )
        before = _before(request)
        kept = _filters(form.get("at") or (before.query if before.path == links(*where) else ""))
        return RedirectResponse(links(*where, **kept, said=said, seal=self._access.seal(said)), 303)

    def _do(self, act: Deed, page: str, names: list[str], verb: str, order: Order) -> tuple[str, str]:
        """What became of it, and the number of the operation that it began."""
        said = problem = operation = ""
        keys, connections = self._runtime.keys, self._runtime.connections
        begun = run(connections, audit.begin(keys, order.author, verb, page, names))
        try:
            if act.begin:
                operation, said = act.begin(order, *names)
            elif act.do:
                said = act.do(*names, order=order) if act.asks or act.fills else act.do(*names)
        except (Unwanted, HenchmanError) as error:
            problem = str(error)
            raise
        finally:
            self._screens.forget()
            self._saved.forget()
            with suppress(HenchmanError):  # the first line stays then
                run(connections, audit.end(keys, begun, said or problem, done=bool(said), operation=operation))
            facts = order.author, verb, page, visible(" ".join(names)), said or "not done"
            _log.info("console: %s asked for %s of %s %s: %s", *facts)
        return said, operation

    async def _log_in(self, request: Request, links: Links, form: Mapping[str, str], visitor: Visitor) -> Response:
        address = address_of(request)
        session = self._access.log_in(form.get("password", ""), address)
        if session is None:
            _log.warning("console: a wrong password from %s", address)
            answer = self._page(request, links, visitor, Screen("login.html", {"wrong": True}, 403), Query({}))
            answer.headers["Retry-After"] = "60"
            return answer
        return with_session(RedirectResponse(links(), 303), request, links.prefix, session)


def _question(act: Deed, page: str, verb: str, names: list[str], form: Mapping[str, str] | None = None) -> Screen:
    """What is asked before an act; ``form``: what was written into that wrongly."""
    facts = {"act": act, "question": question_of(act, names), "names": names, "verb": verb, "on": page, "form": form}
    return Screen("confirm.html", facts | ({"at": _filters(form.get("at", ""))} if form else {}), 422 if form else 200)


def _status(error: Exception) -> int:
    if isinstance(error, Denied):
        return error.status
    return 404 if isinstance(error, Missing) else 409


def _filters(query: str) -> dict[str, str]:
    """What narrows a list, out of the query of an address of ours; to go back to the list as it was."""
    given: dict[str, list[str]] = {}
    with suppress(ValueError):  # too many of them: nothing of ours
        given = parse_qs(query[:_PATH], max_num_fields=20)
    return {name: given[name][-1][:200] for name in (*FILTERS, "p") if name in given}


def _before(request: Request) -> SplitResult:
    """The address of the page that was left for this one, as its browser tells."""
    try:
        return urlsplit(request.headers.get("referer", ""))
    except ValueError:  # no address
        return urlsplit("")


def _asset(parts: list[str], request: Request) -> Response:
    """A file that browsers keep for ever under this address."""
    asset = ASSETS.get(parts[-1]) if len(parts) == 3 else None
    if asset is None or request.method not in ("GET", "HEAD"):
        return PlainTextResponse("no such file", 404)
    fresh = "public, max-age=31536000, immutable" if parts[1] == BUILD else "no-cache"
    return Response(asset.body, media_type=asset.media_type, headers={"Cache-Control": fresh})


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form; Denied for one that is too large, or has too many."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _BODY:
            raise Denied(413, f"a form of this console has at most {_BODY:,} bytes")
    try:
        given = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_FIELDS)
    except ValueError:
        raise Denied(400, f"a form of this console has at most {_FIELDS} fields") from None
    return {name: values[-1] for name, values in given.items()}


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
