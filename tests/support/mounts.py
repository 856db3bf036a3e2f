"""The console inside other people's applications, each on a real server of this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from a2wsgi import ASGIMiddleware
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from support.chromium import serving
from support.django import configure

__all__ = ["MOUNTS", "SHOP"]

SHOP: Final = "the shop"  # what the application around it answers at its own address
AT: Final = "/ops/jobs"


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class _Threading(ThreadingMixIn, WSGIServer):
    daemon_threads = True


@contextmanager
def _serving_wsgi(site: Any) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, site, _Threading, _Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(30)
        server.server_close()


@contextmanager
def _alone(console: Any) -> Iterator[tuple[str, str]]:
    with serving(console) as site:
        yield site, ""


@contextmanager
def _behind_proxy(console: Any) -> Iterator[tuple[str, str]]:
    """One that passes the whole path on, and the server knows where it is."""

    async def cut(scope: Any, receive: Any, send: Any) -> None:
        ours = scope["path"].startswith(f"{AT}/")
        await (console if ours else PlainTextResponse(SHOP))({**scope, "root_path": AT}, receive, send)

    with serving(cut) as site:
        yield site, AT


@contextmanager
def _fastapi(console: Any) -> Iterator[tuple[str, str]]:
    shop = FastAPI()
    shop.get("/")(lambda: SHOP)
    shop.mount(AT, console)
    with serving(shop) as site:
        yield site, AT


@contextmanager
def _flask(console: Any) -> Iterator[tuple[str, str]]:
    shop = Flask("shop")
    shop.get("/")(lambda: SHOP)
    shop.wsgi_app = DispatcherMiddleware(shop.wsgi_app, {AT: ASGIMiddleware(console)})  # type: ignore[method-assign]
    with _serving_wsgi(shop) as site:
        yield site, AT


@contextmanager
def _django() -> Iterator[None]:
    configure()
    urls = (path("", lambda request: HttpResponse(SHOP)),)
    with override_settings(ROOT_URLCONF=urls, ALLOWED_HOSTS=["*"], MIDDLEWARE=[]):
        yield


@contextmanager
def _django_wsgi(console: Any) -> Iterator[tuple[str, str]]:
    with _django():
        both = DispatcherMiddleware(get_wsgi_application(), {AT: ASGIMiddleware(console)})
        with _serving_wsgi(both) as site:
            yield site, AT


@contextmanager
def _django_asgi(console: Any) -> Iterator[tuple[str, str]]:
    with _django():
        both = Starlette(routes=[Mount(AT, console), Mount("/", get_asgi_application())])
        with serving(both) as site:
            yield site, AT


#: a console → the address of its server, and where it is mounted there
MOUNTS: Final[dict[str, Callable[[Any], AbstractContextManager[tuple[str, str]]]]] = {
    "alone": _alone,
    "behind a proxy": _behind_proxy,
    "FastAPI": _fastapi,
    "Flask": _flask,
    "Django, WSGI": _django_wsgi,
    "Django, ASGI": _django_asgi,
}
