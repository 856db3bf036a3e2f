"""Text that comes from elsewhere, made fit to be shown: passwords masked, controls as escapes, long things cut."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

__all__ = ["as_shown", "described", "did_you_mean", "mask_url", "shorten", "visible", "words_of"]

_USERINFO = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^/?#@:]*)(?::(?P<password>[^/?#]*))?@", re.IGNORECASE
)
_QUERY_SECRET = re.compile(r"(?i)([?&][^=&#]*pass?w[^=&#]*=)[^&#]*")  # also misspelt


def mask_url(url: str) -> str:
    """``url`` with its password replaced by ``***``, also when it stands in the query."""

    def masked(match: re.Match[str]) -> str:
        if match["password"] is None:
            return f"{match['scheme']}{match['user']}@"
        return f"{match['scheme']}{match['user']}:***@"

    return _QUERY_SECRET.sub(r"\1***", _USERINFO.sub(masked, url))


def visible(text: str) -> str:
    """``text`` with control, bidirectional and other invisible characters as escapes; line feeds and tabs too."""
    if text.isprintable() and text.isascii():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else char
        for char in text
    )


def shorten(text: str, most: int) -> str:
    """At most ``most`` characters, with an ellipsis where something was cut."""
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the nearest known word, or an empty text."""
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    if not near:
        return ""
    best = min(near, key=lambda one: (-difflib.SequenceMatcher(None, one, word).ratio(), len(one)))
    return f"; did you mean {best!r}?"


def as_shown(value: Any, most: int) -> str:
    """``repr``, cut; never raises."""
    try:
        return str.__str__(repr(value))[:most]
    except BaseException:  # somebody else's __repr__
        return f"({type(value).__name__} cannot be shown: its __repr__ raises)"


def described(error: BaseException, message: Any = None) -> str:
    """``ValueError: what it says``, or ``message`` in place of what it says."""
    text = words_of(error if message is None else message)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def words_of(error: Any) -> str:
    """What it says as plain text; never raises, whatever its own ``__str__`` does."""
    try:
        return str.__str__(str(error))  # a subclass of str has methods of its own
    except BaseException:  # somebody else's __str__
        return "(it cannot be shown: its __str__ raises)"
