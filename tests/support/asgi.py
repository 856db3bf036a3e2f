"""A request to an ASGI application, without a server between."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

__all__ = ["TOKEN", "Answer", "ask", "scope_of"]

TOKEN = "a-token-of-the-tests-0123456789"


class Answer(NamedTuple):
    """What came back; names of headers in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def scope_of(path: str, method: str = "GET", headers: dict[str, str] | None = None, root: str = "") -> dict[str, Any]:
    where, _, query = path.partition("?")
    given = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": root + where,
        "raw_path": where.encode("utf-8", "replace"),
        "root_path": root,
        "query_string": query.encode("latin-1"),
        "headers": given,
        "server": ("test", 80),
        "client": ("127.0.0.1", 1234),
    }


def ask(
    app: Any, path: str, method: str = "GET", *, token: str | None = TOKEN, root: str = "", **headers: str
) -> Answer:
    """``headers``: if_none_match="…" is If-None-Match."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        sent["authorization"] = f"Bearer {token}"
    return asyncio.run(_ask(app, scope_of(path, method, sent, root)))


async def _ask(app: Any, scope: dict[str, Any]) -> Answer:
    status, headers, body, ended, asked = 0, {}, bytearray(), asyncio.Event(), False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            assert not status, "an answer begins once"
            status = message["status"]
            names = [name.decode() for name, _ in message["headers"]]
            assert len(set(names)) == len(names), names
            headers.update({name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]})
        else:
            body.extend(message.get("body", b""))
            if not message.get("more_body", False):
                ended.set()

    await asyncio.wait_for(app(scope, receive, send), 60)
    assert ended.is_set()
    return Answer(status, headers, bytes(body))
