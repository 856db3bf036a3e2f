"""The OpenAPI 3.1 document of the JSON API, made of its table of endpoints and of the types of its answers."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version
from typing import Any, Final

import msgspec

from henchman.console.api import answer_types
from henchman.console.api.routes import ENDPOINTS, LIMIT_MOST, TEXTS, WORDS, Endpoint

__all__ = ["document"]

_REF: Final = "#/components/schemas/{name}"
_PROBLEMS: Final = {
    400: "A parameter makes no sense; the detail names it.",
    401: "The password is missing, or wrong.",
    403: "This visitor may not.",
    404: "There is no such thing (any more).",
    409: "It is not as it was when the act was wished; the detail says how it is.",
    503: "The server that holds the jobs does not answer.",
}
_NAME: Final = "In UTF-8; ~2F stands for the byte 2F, as for every byte that is no letter, digit or one of `-._`."
_READ, _DO = (400, 401, 403, 404, 503), (400, 401, 403, 404, 409, 503)


@cache
def _schemas() -> tuple[dict[type, Any], dict[str, Any]]:
    types = [one.answer for one in ENDPOINTS]
    types += [answer_types.WishJson, answer_types.PlanJson, answer_types.DoneJson, answer_types.ProblemJson]
    refs, components = msgspec.json.schema_components(types, ref_template=_REF)
    return dict(zip(types, refs, strict=True)), {name: _plain(one) for name, one in components.items()}


def _plain(schema: Any) -> Any:
    """Whole numbers have no bound here, and nothing stands in an answer that is not in its type."""
    if isinstance(schema, dict) and schema.get("type") == "object" and "properties" in schema:
        return {**schema, "additionalProperties": False}
    return schema


def document(server: str) -> dict[str, Any]:
    """The document; ``server``: where the API is, such as ``/console/api/v1``."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Henchman console",
            "version": version("henchman"),
            "description": "What the pages of the console show, and what can be done there.",
        },
        "servers": [{"url": server}],
        "security": [{"password": []}, {"session": []}, {}],
        "paths": {**{f"/{one.path}": {"get": _reading(one)} for one in ENDPOINTS}, **_acting()},
        "components": {
            "schemas": _schemas()[1],
            "securitySchemes": {
                "password": {"type": "http", "scheme": "bearer", "description": "A password of the console."},
                "session": {"type": "apiKey", "in": "cookie", "name": "henchman_console"},
            },
        },
    }


def _reading(one: Endpoint) -> dict[str, Any]:
    names = [_parameter(name, "path") for name in re.findall(r"{(\w+)}", one.path)]
    return {
        "operationId": re.sub(r"\W+", "_", one.path).strip("_"),
        "summary": one.summary,
        "parameters": [*names, *(_parameter(name, "query") for name in one.parameters)],
        "responses": _responses(one.answer, _READ),
    }


def _parameter(name: str, where: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "maxLength": 200 if where == "query" else 2000}
    if where == "query" and name == "limit":
        schema = {"type": "integer", "minimum": 1, "maximum": LIMIT_MOST}
    elif where == "query" and name in WORDS:
        schema = {"type": "string", "enum": list(WORDS[name])}
    found: dict[str, Any] = {"name": name, "in": where, "required": where == "path", "schema": schema}
    return {**found, "description": _NAME if where == "path" else TEXTS[name]}


def _responses(answer: type, statuses: tuple[int, ...]) -> dict[str, Any]:
    refs = _schemas()[0]
    found: dict[str, Any] = {
        "200": {"description": "The answer.", "content": {"application/json": {"schema": refs[answer]}}}
    }
    problem = {"application/problem+json": {"schema": refs[answer_types.ProblemJson]}}
    return found | {str(one): {"description": _PROBLEMS[one], "content": problem} for one in statuses}


def _acting() -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": _schemas()[0][answer_types.WishJson]}}}
    found = {}
    for path, summary, answer in (
        ("plans", "Say what an act would do", answer_types.PlanJson),
        ("acts", "Do it", answer_types.DoneJson),
    ):
        facts = {"operationId": f"post_{path}", "summary": summary, "requestBody": body}
        found[f"/{path}"] = {"post": {**facts, "responses": _responses(answer, _DO)}}
    acts = next(one for one in ENDPOINTS if one.path == "acts")
    found["/acts"]["get"] = _reading(acts)
    return found
