"""The same API for WSGI applications (Flask, Django without ASGI), by a2wsgi."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote

from a2wsgi import ASGIMiddleware
from starlette.types import Message, Receive, Scope, Send

from henchman.app import App
from henchman.config import UNSET, Unset
from henchman.web.api import Api, api

__all__ = ["WsgiApi", "wsgi_api"]

_PATIENCE = 300.0  # seconds in which a client must take the next piece


def wsgi_api(app: App, *, token: str | Iterable[str] | Unset | None = UNSET, origins: Iterable[str] = ()) -> WsgiApi:
    """The API of ``app`` as a WSGI application; everything else as ``henchman.web.api.api``."""
    return WsgiApi(api(app, token=token, origins=origins))


class _Turning(NamedTuple):
    """An event loop that turns in a thread, of the process ``pid``; ``middleware`` sends requests to it."""

    pid: int
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    middleware: Any


class WsgiApi:
    """A WSGI application; made by ``wsgi_api``. Its event loop runs in a thread of each process that answers."""

    def __init__(self, inner: Api) -> None:
        self._inner = inner
        self._turning: _Turning | None = None
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """One request."""
        answer: Iterable[bytes] = self._middleware()(_readable(environ), start_response)
        return answer

    def close(self) -> None:
        """End the thread and what it has open; close idle connections to the database of history."""
        with self._lock:
            turning, self._turning = self._turning, None
        if turning is not None and turning.pid == os.getpid():
            asyncio.run_coroutine_threadsafe(_wind_up(), turning.loop).result(10)
            turning.loop.call_soon_threadsafe(turning.loop.stop)
            turning.thread.join(10)
            turning.loop.close()
        self._inner.close()

    def _middleware(self) -> Any:
        """Made by the process that answers: a thread does not outlive a fork."""
        with self._lock:
            if self._turning is None or self._turning.pid != os.getpid():
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name="henchman-api", daemon=True)
                try:
                    thread.start()
                except BaseException:  # the system refuses one
                    loop.close()
                    raise
                middleware = ASGIMiddleware(self._patient, loop=loop)  # type: ignore[arg-type]
                self._turning = _Turning(os.getpid(), loop, thread, middleware)
            return self._turning.middleware

    async def _patient(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The API; a client that stops reading in the middle of an answer is waited for only so long."""

        async def within(message: Message) -> None:
            await asyncio.wait_for(send(message), _PATIENCE)

        await self._inner(scope, receive, within)


async def _wind_up() -> None:
    """End every request that is left, and close the connections to the server."""
    others = [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
    for one in others:
        one.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _readable(environ: dict[str, Any]) -> dict[str, Any]:
    """The environ in a form that the middleware can read: a client may send bytes that are no ASCII, a path that is no
    UTF-8."""
    query = environ.get("QUERY_STRING", "")
    path = environ.get("PATH_INFO", "").encode("latin-1", "replace").decode("utf-8", "replace")
    return environ | {
        "QUERY_STRING": quote(query, safe="".join(map(chr, range(33, 127))), encoding="latin-1", errors="replace"),
        "PATH_INFO": path.encode().decode("latin-1"),
    }
