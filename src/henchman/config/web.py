"""The settings of what is answered over HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from henchman.config.sources import Kind, Layer
from henchman.config.sources import key as _key

__all__ = ["DUE", "WebSettings", "is_token"]

_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,200}")  # what RFC 6750 lets stand behind "Bearer"
DUE: Final = "16 to 200 letters, digits and . _ ~ + / = -"


def is_token(text: object) -> bool:
    """Whether ``text`` can be a token: long enough not to be guessed, and sendable in a header."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def _tokens() -> Kind:
    """One token or several, separated by commas where they come as text; never shown."""

    def read(value: Any, layer: Layer) -> tuple[str, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple) or not all(is_token(one) for one in value):
            raise ValueError(f"a token or a list of tokens, each {DUE}")
        return tuple(value)

    return Kind(read, hide=lambda value: "***")


@dataclass(frozen=True, repr=False)
class WebSettings:
    """The part of ``Config`` that speaks of HTTP."""

    api_token: tuple[str, ...] = _key(
        (),
        _tokens(),
        "The token, or several, that henchman.web.api asks for; each of 16 to 200 characters.",
    )
