"""Answers: JSON, problems (RFC 9457), entity tags; and the strict reading of query parameters."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from henchman.history.records import STATUSES
from henchman.kernel.text import did_you_mean, shorten, visible

__all__ = ["LAST", "Asked", "Refusal", "as_json", "document", "problem", "same", "tag_of", "tagged", "with_events"]

LAST: Final = 2**63 - 1  # the greatest position that a database holds
TITLES: Final = {
    400: "Bad request",
    401: "Token needed",
    404: "Not found",
    405: "Read only",
    414: "Too long",
    500: "Internal error",
    501: "History is off",
    503: "Try again later",
}


class Refusal(Exception):
    """A request that is refused, with the status and a sentence that says why."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as JSON that programs can read."""
    body = {"type": "about:blank", "title": TITLES.get(status, "Error"), "status": status, "detail": detail}
    return Response(as_json(body), status, {"Cache-Control": "no-store", **(headers or {})}, "application/problem+json")


def with_events(facts: Mapping[str, Any], events: bytes | None) -> bytes:
    """A document as JSON, with ``events``, which are JSON already, as its last field."""
    text = as_json(facts)
    return text if events is None else text[:-1] + b',"events":' + events + b"}"


def document(text: bytes) -> Response:
    """A JSON document that no cache keeps."""
    return Response(text, 200, {"Cache-Control": "no-store"}, "application/json")


def tagged(text: bytes, tag: str, given: str | None) -> Response:
    """A JSON document under an entity tag; 304 without it when ``given`` (If-None-Match) names that tag."""
    headers = {"Cache-Control": "private, no-cache", "ETag": tag, "Vary": "Authorization"}
    if same(tag, given):
        return Response(None, 304, headers)
    return Response(text, 200, headers, "application/json")


def tag_of(value: Any) -> str:
    """A weak entity tag of the content of ``value``."""
    return f'W/"{hashlib.blake2b(as_json(value), digest_size=12).hexdigest()}"'


def same(tag: str, given: str | None) -> bool:
    """Whether If-None-Match names ``tag`` (weak comparison)."""
    return given is not None and (given.strip() == "*" or tag.removeprefix("W/") in re.findall(r'"[^"]*"', given))


def as_json(value: Any) -> bytes:
    """Plain values as JSON in ASCII, all other characters escaped. NaN and infinities become null."""
    try:
        return _written(value)
    except ValueError:
        return _written(_finite(value))


def _written(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Asked:
    """The parameters of a request: only ``known`` ones, each once; Refusal names the one that is wrong."""

    def __init__(self, request: Request, known: Iterable[str] = ()) -> None:
        known = tuple(known)
        self._given: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if name not in known:
                there = f"; there are {', '.join(known)}" if known else "; there are none here"
                more = did_you_mean(name[:50], known) or there
                raise Refusal(400, f"there is no parameter {_shown(name)}{more}")
            if name in self._given:
                raise Refusal(400, f"{name} stands there twice")
            self._given[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def text(self, name: str) -> str | None:
        """The parameter as it stands in the request."""
        return self._given.get(name)

    def whole(self, name: str, low: int, high: int, otherwise: int) -> int:
        """A whole number from ``low`` to ``high``."""
        text = self._given.get(name)
        if text is None:
            return otherwise
        if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII) or not low <= int(text) <= high:
            raise Refusal(400, f"{name}={_shown(text)}: a whole number from {low:,} to {high:,}")
        return int(text)

    def statuses(self, name: str) -> tuple[str, ...] | None:
        """One status or several, separated by commas; None when nothing was given."""
        text = self._given.get(name)
        if text is None:
            return None
        wanted = tuple(dict.fromkeys(text.split(",")))
        for one in wanted:
            if one not in STATUSES:
                near = did_you_mean(one[:50], STATUSES)
                raise Refusal(400, f"{name}: there is no status {_shown(one)}{near}; there are {', '.join(STATUSES)}")
        return wanted


def _shown(text: str) -> str:
    return repr(visible(shorten(text, 100)))
