"""The HTTP API: batches, their events and failures, and jobs, as JSON and CSV, to be mounted in the user's own app.

``application.mount("/jobs", api(app))``. The API only reads. Each request must carry a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from henchman.app import App
from henchman.config import UNSET, Unset
from henchman.errors import HistoryError, ServerError
from henchman.web.answers import Refusal, problem
from henchman.web.guard import Guard, texts_of, tokens_of
from henchman.web.views import Views

__all__ = ["Api", "api"]

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
    return problem(error.status, error.detail, error.headers)


def _answer(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Any:
    """A handler that answers every exception of a kind alike."""

    async def answer(request: Request, error: Exception) -> Response:
        return problem(status, detail, headers)

    return answer
