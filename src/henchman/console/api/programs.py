"""Requests and answers of the JSON API as HTTP has them."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from henchman.console.api.answer_types import WishJson
from henchman.console.api.routes import Wrong

__all__ = ["json_answer", "problem", "wish_of"]

_BODY: Final = 131_072  # bytes of a wish
_NAMES: Final = 2  # of a wish
_encode = msgspec.json.Encoder(enc_hook=str).encode


def json_answer(value: Any, status: int = 200, kind: str = "application/json") -> Response:
    """A value as JSON; half a surrogate pair in it, which is no UTF-8, becomes a question mark."""
    try:
        body = _encode(value)
    except UnicodeEncodeError:
        body = _encode(_clean(value))
    return Response(body, status, media_type=kind)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_clean(name): _clean(one) for name, one in value.items()}
    return [_clean(one) for one in value] if isinstance(value, list | tuple) else value


def problem(status: int, detail: str) -> Response:
    """Why there is no answer, as RFC 9457 has it."""
    title = HTTPStatus(status).phrase
    facts = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    answer = json_answer(facts, status, "application/problem+json")
    if status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="henchman"'
    return answer


async def wish_of(request: Request) -> WishJson:
    """What a request wants done; Wrong when it does not say that."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Wrong("send JSON: Content-Type: application/json")
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _BODY:
            raise Wrong(f"a wish has at most {_BODY:,} bytes")
    try:
        wish = msgspec.json.decode(body, type=WishJson)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Wrong(
            f'this is no wish: {error}. It looks so: {{"page": "dead", "act": "retry", "names": ["JID"]}}'
        ) from None
    if not 1 <= len(wish["names"]) <= _NAMES:
        raise Wrong(f"names has {len(wish['names'])}: give the one or two that stand in the address of the page's form")
    return wish
