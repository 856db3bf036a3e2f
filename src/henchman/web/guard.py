"""The checks before anything is looked up (token, method, sizes), and the headers of every answer."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from henchman.config import Config, Unset
from henchman.config.web import DUE, is_token
from henchman.errors import ConfigError
from henchman.web.answers import problem

__all__ = ["HEADERS", "Guard", "texts_of", "tokens_of"]

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
