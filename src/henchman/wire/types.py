"""Codecs of single values and of containers: how a rich value becomes plain JSON and back, strictly.

A codec only changes the form. ``jsontext`` then judges the whole argument list once, also the values of an ``Any``.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from henchman.wire.jsontext import EncodeError, wrong

__all__ = ["ALL_KINDS", "Codec", "array", "at", "enum_codec", "mapping", "plain", "scalar", "tuple_of", "union"]

#: names of decoded JSON values; two types of one union must differ in theirs
KIND: dict[type, str] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "bool",
    type(None): "null",
    list: "array",
    dict: "object",
}
ALL_KINDS = frozenset(KIND.values())
Convert = Callable[[Any], Any]


class Codec:
    """``encode`` and ``decode``; None means: as it is. ``takes`` are the classes of value that it encodes."""

    __slots__ = ("decode", "encode", "kinds", "name", "tag", "takes")

    def __init__(
        self,
        name: str,
        kinds: frozenset[str],
        takes: tuple[type, ...] = (),
        encode: Convert | None = None,
        decode: Convert | None = None,
    ) -> None:
        self.name = name
        self.kinds = kinds
        self.takes = takes
        self.encode = encode
        self.decode = decode
        self.tag: tuple[str, Any] | None = None  # of a tagged msgspec.Struct: field and value

    @property
    def is_plain(self) -> bool:
        """Whether values pass unchanged both ways."""
        return self.encode is None and self.decode is None


def plain(name: str, *kinds: str) -> Codec:
    """Values that are JSON already; they are not checked here."""
    return Codec(name, frozenset(kinds) or ALL_KINDS)


def at(step: int | str, convert: Convert | None, value: Any) -> Any:
    """``value`` converted; an EncodeError gets ``step``, the index or key that leads to it."""
    if convert is None:
        return value
    try:
        return convert(value)
    except EncodeError as error:
        raise error.at(step) from None


def array(name: str, takes: tuple[type[Any], ...], item: Codec, make: Callable[[list[Any]], Any] | None) -> Codec:
    """A list, set or tuple of one type; ``make`` builds it from a list (None: a list is due)."""
    if takes == (list,) and item.is_plain and make is None:
        return plain(name, "array")

    def encode(value: Any) -> list[Any]:
        if not isinstance(value, takes):
            raise wrong(value, name)
        items = list(value) if item.encode is None else [at(i, item.encode, one) for i, one in enumerate(value)]
        if isinstance(value, set | frozenset):
            items.sort(key=repr)  # equal sets give equal text, in every process
        return items

    def decode(value: Any) -> Any:
        if type(value) is not list:
            raise wrong(value, f"{name} (as a list)")
        items = value if item.decode is None else [at(i, item.decode, one) for i, one in enumerate(value)]
        try:
            return items if make is None else make(items)
        except TypeError as error:  # a set of what cannot be hashed
            raise EncodeError(f" is no {name}", str(error)) from None

    return Codec(name, frozenset({"array"}), takes, encode, decode)


def tuple_of(name: str, takes: type, items: list[Codec], make: Callable[[list[Any]], Any]) -> Codec:
    """A tuple of fixed length, one codec a place."""

    def convert(value: Any, changes: list[Convert | None]) -> list[Any]:
        if len(value) != len(items):
            raise EncodeError(f" has {len(value)} items, {name} has {len(items)}")
        return [at(i, change, one) for i, (change, one) in enumerate(zip(changes, value, strict=True))]

    def encode(value: Any) -> list[Any]:
        if not isinstance(value, takes):
            raise wrong(value, name)
        return convert(value, [one.encode for one in items])

    def decode(value: Any) -> Any:
        if type(value) is not list:
            raise wrong(value, f"{name} (as a list)")
        return make(convert(value, [one.decode for one in items]))

    return Codec(name, frozenset({"array"}), (takes,), encode, decode)


def mapping(name: str, key: Codec, item: Codec) -> Codec:
    """An object; keys other than text travel as their text."""
    if key.is_plain and item.is_plain:
        return Codec(name, frozenset({"object"}), (Mapping,))

    def convert(value: Any, new_key: Convert | None, new: Convert | None) -> dict[Any, Any]:
        return {at(str(old), new_key, old): at(str(old), new, one) for old, one in value.items()}

    def encode(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise wrong(value, name)
        return convert(value, key.encode, item.encode)

    def decode(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise wrong(value, f"{name} (as an object)")
        return convert(value, key.decode, item.decode)

    return Codec(name, frozenset({"object"}), (Mapping,), encode, decode)


def union(members: list[Codec]) -> Codec:
    """One of several types, told apart by the class of the value, and in JSON by its kind; ValueError if they cannot.

    Tagged ``msgspec.Struct`` classes may share the kind "object".
    """
    name = " | ".join(member.name for member in members)
    kinds = frozenset[str]().union(*(member.kinds for member in members))
    rich = [member for member in members if not member.is_plain]
    if not rich:
        return plain(name, *kinds)
    tagged = {member.tag: member for member in rich if member.tag is not None}
    by_kind = _by_kind(members)

    def encode(value: Any) -> Any:
        for member in rich:
            if isinstance(value, member.takes):
                return value if member.encode is None else member.encode(value)
        for base, kind in KIND.items():
            if isinstance(value, base) and kind in by_kind and by_kind[kind].is_plain:
                return value
        raise wrong(value, name)

    def decode(value: Any) -> Any:
        kind = KIND[type(value)]
        if kind not in by_kind:
            raise wrong(value, name)
        member = by_kind[kind]
        if kind == "object" and tagged:
            named = [one for (field, tag), one in tagged.items() if value.get(field) == tag]
            if not named:
                raise EncodeError(f" is none of {name}: no known tag")
            member = named[0]
        return value if member.decode is None else member.decode(value)

    return Codec(name, kinds, tuple(one for member in rich for one in member.takes), encode, decode)


def _by_kind(members: list[Codec]) -> dict[str, Codec]:
    found: dict[str, Codec] = {}
    for member in members:
        for kind in member.kinds:
            other = found.setdefault(kind, member)
            both_tagged = other.tag is not None and member.tag is not None and other.tag != member.tag
            if other is not member and not (other.is_plain and member.is_plain) and not both_tagged:
                raise ValueError(f"{other.name} and {member.name} look alike in JSON and could not be told apart")
    return found


# --- single values ---------------------------------------------------------------------------------------------------


def _write_datetime(value: dt.datetime) -> str:
    if value.utcoffset() is None:
        raise EncodeError(": naive datetime: give it a time zone", value.isoformat())
    return value.isoformat()


def _read_datetime(text: str) -> dt.datetime:
    value = dt.datetime.fromisoformat(text)
    if value.utcoffset() is None:
        raise ValueError("it has no time zone")
    return value


def _write_decimal(value: decimal.Decimal) -> str:
    if not value.is_finite():
        raise EncodeError(" is NaN" if value.is_nan() else " is Infinity")
    return str(value)


def _read_decimal(text: str) -> decimal.Decimal:
    value = decimal.Decimal(text)
    if not value.is_finite():
        raise ValueError("not a finite number")
    return value


def _read_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not Base64: {error}") from None


#: types that travel as text: how they are written and read
_SCALARS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    dt.datetime: (_write_datetime, _read_datetime),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat),
    dt.timedelta: (msgspec.to_builtins, lambda text: msgspec.convert(text, dt.timedelta)),
    uuid.UUID: (str, uuid.UUID),
    decimal.Decimal: (_write_decimal, _read_decimal),
    bytes: (lambda value: base64.b64encode(value).decode(), _read_bytes),
}


def scalar(kind: type) -> Codec | None:
    """The codec of a rich type that travels as text; None when ``kind`` is not one."""
    if kind not in _SCALARS:
        return None
    write, read = _SCALARS[kind]
    name = kind.__name__
    takes = (kind, bytearray, memoryview) if kind is bytes else (kind,)

    def encode(value: Any) -> str:
        if not isinstance(value, takes) or (kind is dt.date and isinstance(value, dt.datetime)):
            raise wrong(value, name)
        return write(value)

    def decode(value: Any) -> Any:
        if type(value) is not str:
            raise wrong(value, f"{name} (as text)")
        try:
            return read(value)
        except (ValueError, ArithmeticError, msgspec.ValidationError) as error:
            raise EncodeError(f" is no {name}", f"{value[:60]!r}: {error}"[:200]) from None

    return Codec(name, frozenset({"text"}), takes, encode, decode)


def enum_codec(kind: type[enum.Enum]) -> Codec:
    """By value; ValueError when a value is not itself plain."""
    values = [member.value for member in kind]
    if not all(type(value) in (str, int, float, bool, type(None)) for value in values):
        raise ValueError(f"the values of {kind.__name__} are not all text, numbers or booleans")
    kinds = frozenset(KIND[type(value)] for value in values) or ALL_KINDS

    def encode(value: Any) -> Any:
        if not isinstance(value, kind):
            raise wrong(value, kind.__name__)
        return value.value

    def decode(value: Any) -> enum.Enum:
        try:
            return kind(value)
        except Exception as error:  # an enum may look values up in its own way
            raise EncodeError(f" is no {kind.__name__}", str(error)) from None

    return Codec(kind.__name__, kinds, (kind,), encode, decode)
