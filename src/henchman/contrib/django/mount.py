"""The console, which speaks ASGI, as the answer of a view of Django, under WSGI and ASGI alike.

Each request turns an event loop in a thread of its own: pages are few, and a slow reader of a long export holds up
nobody but himself.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, MutableMapping
from typing import Any, NamedTuple

from django.http import HttpRequest, StreamingHttpResponse

from henchman.app import App

__all__ = ["Mount", "Person"]

PATIENCE = 60.0  # seconds in which a client must take the next piece, and in which the console must answer
PIECES = 16  # of an answer, that wait for the client


class Person(NamedTuple):
    """Who asks, for the console: ``display_name`` stands in its audit."""

    display_name: str
    role: str | None


class Mount:
    """The console of ``app`` for those whom Django lets in. ``secret`` signs its forms."""

    def __init__(self, app: App, secret: str) -> None:
        self._console = app.console(authorize=lambda request: request.scope["user"].role, secret=secret)

    def answer(self, request: HttpRequest, root: str, rest: str, person: Person) -> StreamingHttpResponse:
        """What the console answers to ``request`` at ``rest`` below ``root``."""
        told = _Answer()
        scope = _scope(request, root, rest) | {"user": person}
        body = request.body
        target = lambda: told.run(self._console(scope, _receiver(body), told.send))  # noqa: E731
        threading.Thread(target=target, name="henchman-console", daemon=True).start()
        head = told.next()
        if head is None:
            raise RuntimeError("the console did not answer")
        response = StreamingHttpResponse(told.pieces(), status=head["status"])
        del response.headers["Content-Type"]
        cookies = [value for name, value in head["headers"] if name == b"set-cookie"]
        for name, value in head["headers"]:
            if name not in (b"set-cookie", b"connection"):
                response.headers[name.decode("latin-1")] = value.decode("latin-1")
        for value in cookies:
            response.cookies.load(value.decode("latin-1"))
        return response


class _Answer:
    """What the console sends, on its way from its thread to the response."""

    def __init__(self) -> None:
        self._messages: queue.Queue[MutableMapping[str, Any] | None] = queue.Queue(PIECES)
        self._closed = threading.Event()

    def run(self, coroutine: Any) -> None:
        """The body of the thread."""
        try:
            asyncio.run(coroutine)
        finally:
            self._put(None)

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Of ASGI."""
        if not self._put(message):
            raise OSError("the client has left")

    def _put(self, message: MutableMapping[str, Any] | None) -> bool:
        try:
            self._messages.put(message, timeout=0 if self._closed.is_set() else PATIENCE)
        except queue.Full:
            return False
        return not self._closed.is_set()

    def next(self) -> MutableMapping[str, Any] | None:
        """The next message; None after the last."""
        return self._messages.get(timeout=PATIENCE)

    def pieces(self) -> Iterator[bytes]:
        """The body."""
        try:
            while message := self.next():
                yield message.get("body", b"")
        finally:
            self._closed.set()


def _receiver(body: bytes) -> Any:
    """Of ASGI: the body, and then nothing until the end."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        try:
            return next(messages)
        except StopIteration:
            await asyncio.Event().wait()
            raise

    return receive


def _scope(request: HttpRequest, root: str, rest: str) -> dict[str, Any]:
    """The request as ASGI describes it; host and scheme are what Django takes them for."""
    headers = [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in request.headers.items()]
    kept = [one for one in headers if one[0] != b"host"]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "root_path": root,
        "path": f"{root}/{rest}",
        "raw_path": f"{root}/{rest}".encode(),
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1", "replace"),
        "headers": [*kept, (b"host", request.get_host().encode())],
        "client": (request.META.get("REMOTE_ADDR") or "?", 0),
        "server": (request.get_host().partition(":")[0], int(request.get_port())),
    }
