"""The HTTP API: batches, their events, failures and results, and jobs, to be mounted in the user's own app.

``application.mount("/jobs", api(app))``. The API only reads. Each request must carry a token: ``Guard`` checks that,
method and sizes before anything is looked up, and puts our headers on every answer.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from henchman.app import App
from henchman.config import UNSET, Config, Unset
from henchman.config.settings import DUE, is_token
from henchman.errors import ConfigError, HistoryError, ServerError
from henchman.web.views import Refusal, Views, problem

__all__ = ["Api", "api"]

_PATH, _QUERY = 512, 1024  # bytes behind the mount point, and behind the question mark
HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


def texts_of(name: str, given: object) -> tuple[str, ...]:
    """One text or several as a tuple; ConfigError, which does not show the value, for anything else."""
    several = (given,) if isinstance(given, str) else given
    if not isinstance(several, Iterable) or isinstance(several, bytes | Mapping):
        raise ConfigError(f"{name}= is a value of type {type(given).__name__}: give a text, or several in a list")
    texts = tuple(several)
    for one in texts:
        if not isinstance(one, str):
            raise ConfigError(f"{name}= holds a value of type {type(one).__name__}: give a text, or several in a list")
    return texts


def tokens_of(config: Config, given: str | Iterable[str] | Unset | None) -> tuple[str, ...] | None:
    """The valid tokens: those in ``given``, else the setting's; None: the caller gave None, and the API is open.

    ConfigError when there are none, or one is no token.
    """
    if given is None:
        return None
    tokens = config.api_token if isinstance(given, Unset) else texts_of("token", given)
    if not tokens:
        raise ConfigError(
            "the API has no token: set api_token (HENCHMAN_API_TOKEN) or give token=…; token=None opens it to whoever "
            "can reach it"
        )
    for one in tokens:
        if not is_token(one):
            raise ConfigError(f"a token of the API must have {DUE}; secrets.token_urlsafe(32) makes one")
    return tokens


class Guard:
    """An ASGI application around another one; ``tokens``: any of them opens, None: no token is needed."""

    def __init__(self, inner: ASGIApp, tokens: tuple[str, ...] | None) -> None:
        self._inner = inner
        self._digests = None if tokens is None else [sha256(one.encode()).digest() for one in tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan of the server."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
        elif scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            target = self._refused(scope) or self._inner
            await target(scope, receive, _outgoing(send, silent=scope["method"] == "HEAD"))

    def _refused(self, scope: Scope) -> Response | None:
        if self._digests is not None:
            given = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
            if not given:
                return _unauthorized("send the token: Authorization: Bearer …", "")
            if len(given) > 1 or not self._opens(given[0]):
                return _unauthorized("this token opens nothing here", ', error="invalid_token"')
        if scope["method"] not in ("GET", "HEAD"):
            return problem(405, "everything here can only be read: GET or HEAD", {"Allow": "GET, HEAD"})
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if len(path.encode("utf-8", "replace")) > _PATH:
            return problem(414, f"the path is longer than {_PATH} bytes")
        if len(scope.get("query_string", b"")) > _QUERY:
            return problem(414, f"the query is longer than {_QUERY:,} bytes")
        return None

    def _opens(self, value: bytes) -> bool:
        scheme, _, token = value.strip().partition(b" ")
        given = sha256(token.strip()).digest()
        found = False
        for one in self._digests or ():  # all of them, so that the time says nothing
            found |= hmac.compare_digest(given, one)
        return found and scheme.lower() == b"bearer"


def _unauthorized(detail: str, error: str) -> Response:
    return problem(401, detail, {"WWW-Authenticate": f'Bearer realm="henchman"{error}'})


def _outgoing(send: Send, *, silent: bool) -> Send:
    """``send`` with our headers on each answer; ``silent``: without its body, as HEAD wants it."""

    async def go(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message.get("headers", ())}
            added = [pair for pair in HEADERS if pair[0] not in present]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        elif silent and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return go


_AGAIN = {"Retry-After": "5"}


def api(app: App, *, token: str | Iterable[str] | Unset | None = UNSET, origins: str | Iterable[str] = ()) -> Api:
    """The API of ``app`` as an ASGI application.

    ``token``: one or several, any of which opens; when nothing is said, those of the setting ``api_token``; None
    leaves it open. ``origins``: pages of other sites that may ask from a browser, such as ``"https://shop.example"``.
    ConfigError when there is no token, or either is neither a text nor several.
    """
    return Api(app, tokens_of(app.config, token), texts_of("origins", origins))


class Api:
    """An ASGI application; made by ``api``. ``close`` it when the server stops."""

    def __init__(self, app: App, tokens: tuple[str, ...] | None, origins: tuple[str, ...]) -> None:
        self._views = Views(app)
        inner: ASGIApp = Guard(_routed(self._views), tokens)
        if origins:
            inner = CORSMiddleware(
                inner,
                allow_origins=origins,
                allow_methods=("GET", "HEAD"),
                allow_headers=("Authorization", "If-None-Match"),
                expose_headers=("ETag", "Retry-After", "Content-Disposition"),
            )
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        await self._inner(scope, receive, send)

    def close(self) -> None:
        """Close idle connections to the database of history; those to the server are the app's."""
        self._views.record.close()


def _routed(views: Views) -> Starlette:
    routes = [
        Route("/batches/{batch}", views.batch),
        Route("/batches/{batch}/events", views.events),
        Route("/batches/{batch}/failures.csv", views.failures),
        Route("/batches/{batch}/results.csv", views.results_csv),
        Route("/batches/{batch}/results.jsonl", views.results_json_lines),
        Route("/jobs/{jid}", views.job),
    ]
    made = Starlette(
        routes=routes,
        exception_handlers={
            Refusal: _refused,
            HTTPException: _answer(404, "nothing is known under this address"),
            ServerError: _answer(503, "the server that holds the jobs cannot be asked just now", _AGAIN),
            HistoryError: _answer(503, "the database of history cannot be asked just now", _AGAIN),
            Exception: _answer(500, "this should not have happened; the server's log says what did"),
        },
    )
    made.router.redirect_slashes = False  # the way there would be made of the Host header
    return made


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)  # noqa: S101 - for the type checker: it is registered for these
    return problem(error.status, error.detail)


def _answer(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Any:
    """A handler that answers every exception of a kind alike."""

    async def answer(request: Request, error: Exception) -> Response:
        return problem(status, detail, headers)

    return answer
