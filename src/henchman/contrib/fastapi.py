"""FastAPI: the app of jobs within the lifespan, as a dependency, its errors as answers, its web API as a router.

Needs the extra ``fastapi``. Nothing here knows more than the public API: each piece may be left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Annotated, Any, Final

try:  # ahead of Henchman's own web API, which would name Starlette alone
    from fastapi import APIRouter, Depends, Request, Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send
except ImportError as missing:
    raise ImportError("henchman.contrib.fastapi needs FastAPI: pip install 'henchman[fastapi]'") from missing

from henchman.app import App
from henchman.config import UNSET, Unset
from henchman.errors import (
    BatchClosed,
    ConfigError,
    DuplicateJob,
    HenchmanError,
    HistoryAway,
    OutboxAway,
    ServerError,
    UnknownBatch,
)
from henchman.web.api import Api, api
from henchman.web.views import problem

__all__ = ["Jobs", "exception_handlers", "jobs_app", "lifespan", "router"]

_STATE: Final = "henchman"  # of FastAPI's own state, which dependencies and handlers read

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(app: App, own: Lifespan | None = None, *, worker: bool = False, **settings: Any) -> Lifespan:
    """What ``FastAPI(lifespan=…)`` takes: ``app`` is there for ``Jobs``, and its connections are closed at the end.

    ``own``: the lifespan that the application has anyway; it begins after this one and ends before it, and its state is
    the application's. ``worker``: a worker runs in this process too, with ``settings`` as ``app.embed`` takes them
    (``concurrency=4``): for development, for it has no supervisor. ConfigError for settings without a worker, and for
    those that are none of a worker's.
    """
    if settings and not worker:
        raise ConfigError(f"lifespan(…, {', '.join(settings)}=…): these are a worker's; say worker=True as well")
    if worker:
        app.embed(**settings)  # what makes no sense is told now, not at the start

    @asynccontextmanager
    async def within(application: Any) -> AsyncIterator[Mapping[str, Any] | None]:
        setattr(application.state, _STATE, app)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(app.aclose)
            if worker:
                await stack.enter_async_context(app.embed(**settings))
            yield await stack.enter_async_context(own(application)) if own is not None else None

    return within


def jobs_app(request: Request) -> App:
    """The app of jobs that serves this request. ConfigError when ``lifespan(app)`` is not the application's."""
    found = getattr(request.app.state, _STATE, None)
    if not isinstance(found, App):
        raise ConfigError("no app of jobs is known here: FastAPI(lifespan=henchman.contrib.fastapi.lifespan(app))")
    return found


#: a parameter of a path function: ``async def start(jobs: Jobs)``; tests replace ``jobs_app`` in dependency_overrides
Jobs = Annotated[App, Depends(jobs_app)]


#: the status of an answer to each error; what is away may be back in a moment
_STATUS: Final[dict[type[HenchmanError], int]] = {
    UnknownBatch: 404,
    DuplicateJob: 409,
    BatchClosed: 409,
    ServerError: 503,
    HistoryAway: 503,
    OutboxAway: 503,
}
_APOLOGY: Final = "what keeps the jobs cannot be asked just now; nothing is known of this request's job"


def _answering(status: int) -> Any:
    async def answer(request: Request, error: Exception) -> Response:
        if status < 500:
            return problem(status, str(error))
        return problem(status, _APOLOGY, {"Retry-After": "5"})

    return answer


#: ``FastAPI(exception_handlers={**exception_handlers, …})``: an unknown batch is 404, a duplicate of a job and a batch
#: that takes no more are 409, a server or database that does not answer is 503 with ``Retry-After``; each as a problem
#: (RFC 9457). Other errors are the program's own, and stay what they are: 500.
exception_handlers: Final[dict[type[HenchmanError], Any]] = {
    kind: _answering(status) for kind, status in _STATUS.items()
}


def router(
    app: App, *, token: str | Iterable[str] | Unset | None = UNSET, origins: str | Iterable[str] = ()
) -> APIRouter:
    """The web API (batches, events, failures, results, jobs; it only reads): ``web.include_router(router(app),
    prefix="/jobs-api")``. ``token`` and ``origins`` as ``henchman.web.api.api`` has them, with its errors.
    """
    served = api(app, token=token, origins=origins)
    made = APIRouter()
    made.routes.append(Route("/{below:path}", _Below(served), include_in_schema=False))
    return made


class _Below:
    """The web API as an endpoint: what stands ahead of its own addresses is told as a mount tells it."""

    def __init__(self, served: Api) -> None:
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        below = scope["path_params"]["below"]
        ahead = scope["path"][: len(scope["path"]) - len(below)].rstrip("/")
        await self._served({**scope, "root_path": ahead}, receive, send)
