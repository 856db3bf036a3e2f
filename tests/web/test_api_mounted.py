"""The API inside other applications: Starlette, FastAPI, Flask, plain WSGI; and served by a real uvicorn."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.routing import Mount
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from henchman.web.api import Api
from henchman.web.wsgi import WsgiApi, wsgi_api
from support.asgi import TOKEN, Answer, ask
from support.server import DIE_WITH_PARENT
from support.web import Import

SERVED = """
from henchman import App
from henchman.web.api import api

app = App(redis_url={redis!r}, database_url={database!r}, api_token={token!r})
application = api(app)
"""

BESIDE_DJANGO = """
import django
from django.conf import settings
from django.http import HttpResponse
from django.urls import path

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="of the tests")
django.setup()
urlpatterns = [path("", lambda request: HttpResponse("the shop"))]

from django.core.asgi import get_asgi_application
from starlette.applications import Starlette
from starlette.routing import Mount

from served import application as ours
from support.asgi import ask

both = Starlette(routes=[Mount("/jobs-api", ours), Mount("/", get_asgi_application())])
print(ask(both, "/").body.decode())
print(ask(both, "/jobs-api/batches/{batch}").json["total"])
print(ask(both, "/jobs-api/batches/{batch}", token=None).status)
ours.close()
"""


@pytest.fixture
def wsgi(imported: Import) -> Iterator[WsgiApi]:
    made = wsgi_api(imported.app)
    yield made
    made.close()
    imported.app.close()


def call(app: Any, path: str, method: str = "GET", *, token: str | None = TOKEN, **environ: str) -> Answer:
    """A request to a WSGI application."""
    where, _, query = path.partition("?")
    told: dict[str, Any] = {"REQUEST_METHOD": method, "PATH_INFO": where, "QUERY_STRING": query, **environ}
    if token is not None:
        told["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    setup_testing_defaults(told)
    begun: list[tuple[int, dict[str, str]]] = []

    def start(status: str, headers: list[tuple[str, str]], problem: Any = None) -> None:
        begun.append((int(status[:3]), {name.lower(): value for name, value in headers}))

    body = b"".join(app(told, start))
    [(status, headers)] = begun
    return Answer(status, headers, body)


@pytest.mark.parametrize("outer", ["starlette", "fastapi"])
def test_mounted_in_an_asgi_application(web: Api, imported: Import, outer: str) -> None:
    app: Any = Starlette(routes=[Mount("/jobs-api", web)]) if outer == "starlette" else FastAPI()
    if outer == "fastapi":
        app.mount("/jobs-api", web)
    answer = ask(app, f"/jobs-api/batches/{imported.batch}")
    assert (answer.status, answer.json["total"]) == (200, 30)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ask(app, "/jobs-api/batches/x", token=None).status == 401
    assert ask(app, "/jobs-api/batches/x").json["detail"] == "nothing is known under this address"
    assert ask(app, f"/jobs-api/batches/{imported.batch}?since=x").status == 400
    assert ask(app, "/jobs-api/" + "x" * 600).status == 414
    assert len(ask(app, f"/jobs-api/batches/{imported.batch}/failures.csv").body.splitlines()) > 11


def test_as_a_wsgi_application(wsgi: WsgiApi, web: Api, imported: Import) -> None:
    here = f"/batches/{imported.batch}"
    for path in (here + "/events?limit=3", here + "/failures.csv", "/jobs/nobody", here + "?since=x", here + "?x=\xff"):
        there, same = call(wsgi, path), ask(web, path)
        assert (there.status, there.body) == (same.status, same.body)
        assert there.headers == same.headers
    first = call(wsgi, here)
    again = call(wsgi, here, HTTP_IF_NONE_MATCH=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert (call(wsgi, here, "HEAD").status, call(wsgi, here, "HEAD").body) == (200, b"")
    assert call(wsgi, here, token=None).headers["www-authenticate"].startswith("Bearer")
    assert call(wsgi, here, "POST").status == 405
    assert call(wsgi, "/jobs/\xff\xfe").status == 404
    assert call(wsgi, here[8:], SCRIPT_NAME="/batches").status == 404
    assert call(wsgi, here, SCRIPT_NAME="/some/where").status == 200


def test_who_leaves_a_sheet_does_not_hold_up_the_next(wsgi: WsgiApi, imported: Import) -> None:
    told: dict[str, Any] = {"PATH_INFO": f"/batches/{imported.batch}/failures.csv"}
    setup_testing_defaults(told)
    told["HTTP_AUTHORIZATION"] = f"Bearer {TOKEN}"
    parts = iter(wsgi(told, lambda *begun: None))
    assert next(parts).startswith(b"\xef\xbb\xbf")
    parts.close()  # type: ignore[attr-defined]
    assert call(wsgi, f"/batches/{imported.batch}").status == 200


def test_beside_flask(wsgi: WsgiApi, imported: Import) -> None:
    flask = Flask("shop")

    @flask.get("/")
    def home() -> str:
        return "the shop"

    flask.wsgi_app = DispatcherMiddleware(flask.wsgi_app, {"/jobs-api": wsgi})  # type: ignore[method-assign]
    assert call(flask, "/").body == b"the shop"
    assert call(flask, f"/jobs-api/batches/{imported.batch}").json["total"] == 30
    assert call(flask, f"/jobs-api/batches/{imported.batch}", token=None).status == 401


def write_served(imported: Import, folder: Path) -> None:
    config = imported.app.config
    (folder / "served.py").write_text(
        SERVED.format(redis=config.redis_url, database=config.database_url, token=TOKEN), encoding="utf-8"
    )


def test_beside_django(imported: Import, tmp_path: Path) -> None:
    write_served(imported, tmp_path)
    (tmp_path / "beside.py").write_text(BESIDE_DJANGO.replace("{batch}", imported.batch), encoding="utf-8")
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "beside.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": tests},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == ["the shop", "30", "401"], done.stderr


@contextmanager
def served(imported: Import, folder: Path) -> Iterator[int]:
    """The API in a process of its own; the port."""
    write_served(imported, folder)
    guarded = [sys.executable, "-ISc", DIE_WITH_PARENT] if sys.platform == "linux" else []
    words = [*guarded, sys.executable, "-m", "uvicorn", "served:application", "--port", "0", "--no-access-log"]
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"running on http://127.0.0.1:(\d+)", line):
                yield int(found[1])
                break
        else:
            pytest.fail("uvicorn did not start")
    finally:
        process.terminate()
        rest = process.communicate(timeout=30)[1]
    assert "Traceback" not in rest, rest


def test_served_by_uvicorn(imported: Import, tmp_path: Path) -> None:
    here = f"/batches/{imported.batch}"
    with served(imported, tmp_path) as port:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

        def get(path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            client.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"} | sent)
            answer = client.getresponse()
            return answer, answer.read()

        first, _ = get(here)
        tag = first.getheader("ETag")
        assert (first.status, tag is not None) == (200, True)
        assert get(here, If_None_Match=str(tag))[0].status == 304
        assert get(here, "HEAD")[0].status == 200
        sheet, body = get(here + "/failures.csv")
        assert sheet.getheader("Transfer-Encoding") == "chunked"
        assert body.startswith(b"\xef\xbb\xbfjob id")
        assert get(here, "DELETE")[0].status == 405
        assert get("/jobs/%00%ff")[0].status == 404
        assert get(here, Authorization="Bearer nobody-knows-this-one")[0].status == 401
        client.close()
