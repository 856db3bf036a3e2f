"""JSON text, byte for byte as Ruby writes it, and only of values that JSON can hold.

msgspec writes and reads JSON, and is too kind: NaN becomes null, ``{1: 2}`` becomes ``{"1":2}``, a date becomes text.
So a value is walked first. The quick walk only answers "all plain" (exact types, ordinary floats). Every other value
goes through the careful walk, which copies, names the place of what JSON cannot hold, and writes floats beyond the
ordinary as Ruby does (``1e+15``, ``0.00001``), because Sidekiq finds some entries by their regenerated text (wire
format, section 3.2). Integers are exact to 4,300 digits both ways.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import msgspec

from henchman.wire.numbers import as_ruby

__all__ = [
    "MAX_DEPTH",
    "EncodeError",
    "canonical",
    "careful",
    "dumps",
    "encode",
    "is_plain",
    "kind_of",
    "loads",
    "loads_slowly",
    "read",
    "scalars",
    "wrong",
]

MAX_DEPTH = 90
"""Levels of lists and objects inside one argument list; Ruby stops at 100 for the whole payload."""

_STEPS = 12  # of a place that is shown
_TOO_BIG = 10**4300
_SCALARS = frozenset({int, str, bool, type(None)})
_KEYS = frozenset({str})

encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
_encode_in_order: Callable[[Any], bytes] = msgspec.json.Encoder(order="deterministic").encode
loads: Callable[[bytes], Any] = msgspec.json.Decoder().decode


class EncodeError(Exception):
    """A value that does not fit into JSON, or JSON that does not fit its annotation: raised deep inside a value, and
    given its place on the way out.

    ``what`` reads after the place (``" is NaN"``); ``shown`` may quote the value and is left out for secrets.
    ``discreet`` replaces a ``what`` that quotes, for secrets.
    """

    def __init__(self, what: str, shown: str = "", discreet: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.discreet = discreet or what
        self.shown = " ".join(shown.split())  # one line, whatever another library says
        self._steps: list[str] = []

    def at(self, step: str | int) -> EncodeError:
        """The same, one level further out: ``step`` is the index or key that leads inward."""
        if isinstance(step, int):
            self._steps.append(f"[{step}]")
        elif step.isidentifier() and len(step) <= 100:
            self._steps.append(f".{step}")
        else:
            self._steps.append(f"[{step[:100]!r}]")
        return self

    def text(self, name: str, *, secret: bool = False) -> str:
        """The whole sentence about parameter ``name``; of a secret one, neither keys nor values are shown."""
        if secret:
            return f"{name}{self.discreet} (its value is secret)"
        steps = self._steps if len(self._steps) <= _STEPS else ["…", *self._steps[-_STEPS:]]
        place = name + "".join(reversed(steps))
        return f"{place}{self.what}{f' ({self.shown[:200]})' if self.shown else ''}"


def kind_of(value: object) -> str:
    """The type of ``value`` for a message: ``"a datetime"``, ``"an int"``."""
    name = "None" if value is None else type(value).__name__
    return name if value is None else f"{'an' if name[:1].lower() in 'aeio' else 'a'} {name}"


def wrong(value: object, due: str) -> EncodeError:
    """The error for a value of another type than the one that is ``due``."""
    return EncodeError(f" is {kind_of(value)} where {due} is due")


def read(text: bytes) -> Any:
    """As ``loads``, with numbers that only the slow reader takes."""
    try:
        return loads(text)
    except msgspec.ValidationError:
        return loads_slowly(text)


def loads_slowly(text: bytes) -> Any:
    """As ``loads``, for numbers that it refuses as "out of range" (a minus before 4,300 digits); ValueError if they
    are."""
    value = json.loads(text.decode(), parse_float=_finite, parse_constant=_finite)
    encode(value)  # refuses half a surrogate pair, which the slow reader lets pass: nothing could be stored again
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is out of range")
    return value


scalars = _SCALARS.issuperset
"""Whether an iterable of types holds only types whose values are always plain."""


def is_plain(value: Any, level: int = 0) -> bool:
    """Whether the encoder may take ``value`` as it is; False also means "look closer"."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is float:
        return bool(1e-4 <= value < 1e15 or value == 0 or -1e15 < value <= -1e-4)
    if level >= MAX_DEPTH:
        return False
    if kind is dict:
        if not _KEYS.issuperset(map(type, value)):
            return False
        inner: Any = value.values()
    elif kind is list:
        inner = value
    else:
        return False
    if _SCALARS.issuperset(map(type, inner)):
        return True
    level += 1
    return all(type(one) in _SCALARS or is_plain(one, level) for one in inner)


def careful(value: Any, level: int = 0) -> Any:
    """``value`` in a form that the encoder writes right; EncodeError where JSON cannot hold it.

    Subclasses of str, int, float, list and dict travel as their base (an ``IntEnum`` as its number): where the base
    is annotated, a type checker lets them pass too.
    """
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _float(value)
    if not isinstance(value, list | dict):
        raise EncodeError(_why_not(value))
    if level >= MAX_DEPTH:
        raise EncodeError(f" is nested deeper than {MAX_DEPTH} levels")
    return _list(value, level + 1) if isinstance(value, list) else _dict(value, level + 1)


def dumps(value: Any, level: int = 0, write: Callable[[Any], bytes] = encode) -> bytes:
    """``value`` as text; EncodeError where JSON cannot hold it."""
    if is_plain(value, level):
        try:
            return write(value)
        except ValueError:  # a lone surrogate or a number of too many digits: found and named below
            pass
    return write(careful(value, level))


def canonical(value: Any) -> bytes:
    """As ``dumps``, with the keys of objects in order: equal values give equal text."""
    return dumps(value, write=_encode_in_order)


def _list(value: list[Any], level: int) -> list[Any]:
    copy = []
    for index, one in enumerate(value):
        try:
            copy.append(careful(one, level))
        except EncodeError as error:
            raise error.at(index) from None
    return copy


def _dict(value: dict[Any, Any], level: int) -> dict[str, Any]:
    copy = {}
    for key, one in value.items():
        if not isinstance(key, str):
            raise EncodeError(f": a key is {kind_of(key)}, not a string", f"key {key!r}")
        try:
            copy[_text(key)] = careful(one, level)
        except EncodeError as error:
            raise error.at(key) from None
    return copy


def _text(value: str) -> str:
    plain = str.__str__(value)
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f" has a lone surrogate at character {error.start}: it is not text") from None
    return plain


def _integer(value: int) -> int:
    plain = int.__index__(value)
    if not -_TOO_BIG < plain < _TOO_BIG:
        raise EncodeError(" is an integer of more than 4,300 digits")
    return plain


def _float(value: float) -> Any:
    plain = float.__float__(value)
    if plain != plain:
        raise EncodeError(" is NaN")
    if plain in (float("inf"), float("-inf")):
        raise EncodeError(" is Infinity" if plain > 0 else " is -Infinity")
    if is_plain(plain):
        return plain
    return msgspec.Raw(as_ruby(plain))


def _why_not(value: object) -> str:
    if isinstance(value, FunctionType):
        return " is a function"
    if isinstance(value, type):
        return " is a class"
    if isinstance(value, tuple | set | frozenset):
        return f" is {kind_of(value)}: annotate it as one, or give a list"
    if isinstance(value, enum.Enum):
        return f" is an enum member ({type(value).__name__}): annotate it as one, or give its value"
    return f" is {kind_of(value)}, which is not JSON: rich types travel only where they are annotated"
