"""The secret arguments of a job, found in texts in each form in which they usually stand there, and hidden.

Its limits first. Texts of one or two characters, True, False and None are not searched: they stand everywhere, and
every message would be stars (a list or object that holds them is still found as a whole). Names of fields are shown,
other keys are not. What the job changed or cut (a card number's last four digits) is not found.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import enum
import json
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["MASK", "NO_SECRETS", "Secrets", "marked", "masked", "places_of"]

MASK = "***"
_SHORTEST = 3
_TEXTS_MOST = 5_000
_VALUES_MOST = 2_000
_LONG = 20_000  # characters; of longer texts only the first spelling is searched
_HIDDEN = "(not shown: too much of it may be secret)"

#: How a text stands in another one: in a repr, in JSON, in a repr inside of quotes of the other kind, in an URL.
_WAYS: tuple[Callable[[str], str], ...] = (
    lambda text: repr(text)[1:-1],
    lambda text: repr(text + "'\"")[1:-4],  # both quotes in it: one is escaped
    lambda text: ascii(text)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
)


class Secrets:
    """The texts to be hidden, the longest first. Its own texts are not shown either, whatever is done with it."""

    __slots__ = ("_all", "_texts")

    def __init__(self, texts: Iterable[str] = (), *, all: bool = False) -> None:
        self._texts = tuple(sorted({one for one in texts if len(one) >= _SHORTEST}, key=len, reverse=True))
        self._all = all

    @classmethod
    def of(cls, values: Iterable[Any]) -> Secrets:
        """Those of ``values`` and of all that is in them; of too many, every text is hidden whole."""
        found: set[str] = set()
        for count, value in enumerate(_inside(list(values))):
            if count > _VALUES_MOST or len(found) > _TEXTS_MOST:
                return cls(all=True)
            found.update(_texts(value))
        return cls(found)

    def __bool__(self) -> bool:
        return self._all or bool(self._texts)

    def __or__(self, other: Secrets) -> Secrets:
        return Secrets((*self._texts, *other._texts), all=self._all or other._all) if self and other else self or other

    def __repr__(self) -> str:
        return MASK

    def __reduce__(self) -> tuple[Any, ...]:
        return Secrets, ()  # a log record that is sent elsewhere takes none with it

    def hide(self, text: str) -> str:
        """``text`` with ``***`` in place of each."""
        if self._all:
            return _HIDDEN if text else ""
        for one in self._texts:
            if one in text:
                text = text.replace(one, MASK)
        return text


NO_SECRETS = Secrets()


def places_of(job: Mapping[str, Any]) -> list[Any]:
    """Where the payload itself says that its secret arguments stand (``Signature.secret_places``)."""
    ours = job.get("hm")
    places = ours.get("secret") if isinstance(ours, dict) else None
    return places if isinstance(places, list) else []


def masked(places: list[Any], args: list[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with ``***`` in those places."""
    first = min((-1 - one for one in places if isinstance(one, int) and one < 0), default=len(args))
    shown = [MASK if index in places or index >= first else one for index, one in enumerate(args)]
    return shown, {name: MASK if name in places or "**" in places else one for name, one in kwargs.items()}


def marked(places: list[Any], args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments in those places."""
    args = list(args)
    shown, named = masked(places, args, kwargs)
    found = [one for one, seen in zip(args, shown, strict=True) if seen is MASK]
    return [*found, *(kwargs[name] for name, seen in named.items() if seen is MASK)]


def _inside(waiting: list[Any]) -> Iterator[Any]:
    """All values in ``waiting`` and inside of them, each object once."""
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, (str, bytes, int, float)) or id(value) not in seen:
            seen.add(id(value))
            yield value
            with contextlib.suppress(Exception):  # a user's own attributes
                waiting += _parts(value)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        keys = [key for key in value if not (isinstance(key, str) and key.isidentifier())]
        return [*value.values(), *keys]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, enum.Enum):
        return [value.value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, one.name) for one in dataclasses.fields(value)]
    fields = getattr(type(value), "__struct_fields__", None)  # of msgspec
    if fields is not None:
        return [getattr(value, name) for name in fields]
    return list(vars(value).values()) if hasattr(value, "__dict__") and not isinstance(value, type) else []


def _texts(value: Any) -> set[str]:
    """How one value, without what is in it, may stand in a text."""
    if value is None or isinstance(value, bool):
        return set()
    if isinstance(value, str):
        return _spelt(value)
    found: set[str] = set()
    if isinstance(value, (bytes, bytearray)):
        found = {value.hex(), base64.b64encode(value).decode(), base64.urlsafe_b64encode(value).decode()}
        with contextlib.suppress(UnicodeDecodeError):
            found |= _spelt(value.decode())
    for way in (str, repr, json.dumps, _compact, _grouped):
        with contextlib.suppress(Exception):  # a user's own __str__; a value that is no JSON
            text = way(value)
            found |= {text, text[2:-1]} if isinstance(value, (bytes, bytearray)) else _spelt(text)
    return found


def _spelt(text: str) -> set[str]:
    found = {text, text.strip()}
    if len(text) > _LONG:
        return found
    found |= {line.strip() for line in text.splitlines() if len(line.strip()) >= 8}
    found |= {urllib.parse.quote(text, safe=""), urllib.parse.quote_plus(text)} if not _half(text) else set()
    for _ in range(2):  # the repr of a repr: what KeyError makes of a text that quotes one
        found |= {way(one) for one in found for way in _WAYS}
    return found


def _half(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _grouped(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
