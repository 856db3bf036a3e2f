"""A browser without JavaScript: it keeps cookies, sends forms, and says where it comes from. And what it looks at."""

from __future__ import annotations

import asyncio
import html
import re
from typing import Any, NamedTuple
from urllib.parse import urlencode

from support.asgi import scope_of

__all__ = ["DEAD", "RETRY", "XSS", "Browser", "Shown"]

DEAD = "d" * 24
RETRY = "e" * 24
XSS = '<script>alert("x")</script>\u202e'


class Shown(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The page."""
        return self.body.decode()

    @property
    def words(self) -> str:
        """What people read of it."""
        whole = self.text.replace("<wbr>", "")
        plain = re.sub(r"<[^>]*>", " ", re.sub(r"<(script|style|title|dialog).*?</\1>", " ", whole, flags=re.S))
        return " ".join(html.unescape(plain).split())

    @property
    def links(self) -> list[str]:
        """Where its links and forms go."""
        return [html.unescape(one) for one in re.findall(r'(?:href|action|src)="([^"]*)"', self.text)]


class Browser:
    """``client``: its address; ``host``: what it calls the console; ``root``: where the console is mounted."""

    def __init__(self, site: Any, *, client: str = "127.0.0.1", host: str = "localhost:7080", root: str = "") -> None:
        self._site = site
        self._client, self._host, self._root = client, host, root
        self.cookies: dict[str, str] = {}

    def get(self, path: str, method: str = "GET", **headers: str) -> Shown:
        """One page; no redirection is followed."""
        return asyncio.run(self._ask(path, method, b"", headers))

    def post(self, path: str, /, fields: dict[str, str] | None = None, **headers: str) -> Shown:
        """Send a form as a browser on plain HTTP does."""
        said = {"origin": f"http://{self._host}", "content_type": "application/x-www-form-urlencoded"}
        body = urlencode(fields or {}).encode()
        return asyncio.run(self._ask(path, "POST", body, {**said, **headers}))

    def send(self, path: str, body: bytes, headers: dict[str, str]) -> Shown:
        """Send anything as a program does: with these headers and no others."""
        return asyncio.run(self._ask(path, "POST", body, headers))

    def act(self, page: str, path: str, **headers: str) -> Shown:
        """Press the button that goes to ``path``, with the token that stands on ``page``."""
        return self.post(path, {"token": self.token(page)}, **headers)

    def token(self, page: str) -> str:
        """The token on a page."""
        found = re.search(r'name="token" value="([0-9a-f]+)"', self.get(page).text)
        assert found, f"no form on {page}"
        return found[1]

    async def _ask(self, path: str, method: str, body: bytes, headers: dict[str, str]) -> Shown:
        sent = {"host": self._host} | {name.replace("_", "-"): value for name, value in headers.items() if value}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = scope_of(path, method, sent, self._root) | {"client": (self._client, 50_000)}
        status, found, answered = 0, dict[str, str](), bytearray()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                for name, value in message["headers"]:
                    found[name.decode().lower()] = value.decode("latin-1")
            else:
                answered.extend(message.get("body", b""))

        await asyncio.wait_for(self._site(scope, receive, send), 30)
        if "set-cookie" in found:
            name, _, rest = found["set-cookie"].partition("=")
            self.cookies[name] = rest.partition(";")[0].strip('"')
        return Shown(status, found, bytes(answered))
