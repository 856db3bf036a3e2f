"""Codecs of single rich values: text for times, UUID, Decimal and bytes; the value for an Enum."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from henchman.wire.codec_types import ALL_KINDS, KIND, Codec
from henchman.wire.misfit import Misfit, wrong

__all__ = ["enum_codec", "scalar"]


def scalar(kind: type) -> Codec | None:
    """The codec of a rich type that travels as text; None when ``kind`` is not one."""
    entry = _SCALARS.get(kind)
    if entry is None:
        return None
    write, read = entry
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
            raise Misfit(f" is no {name}", f"{value[:60]!r}: {error}"[:200]) from None

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
            raise Misfit(f" is no {kind.__name__}", str(error)) from None

    return Codec(kind.__name__, kinds, (kind,), encode, decode)


def _write_datetime(value: dt.datetime) -> str:
    if value.utcoffset() is None:
        raise Misfit(": naive datetime: give it a time zone", value.isoformat())
    return value.isoformat()


def _read_datetime(text: str) -> dt.datetime:
    value = dt.datetime.fromisoformat(text)
    if value.utcoffset() is None:
        raise ValueError("it has no time zone")
    return value


def _write_decimal(value: decimal.Decimal) -> str:
    if not value.is_finite():
        raise Misfit(" is NaN" if value.is_nan() else " is Infinity")
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


_SCALARS: dict[type, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    dt.datetime: (_write_datetime, _read_datetime),
    dt.date: (dt.date.isoformat, dt.date.fromisoformat),
    dt.time: (dt.time.isoformat, dt.time.fromisoformat),
    dt.timedelta: (msgspec.to_builtins, lambda text: msgspec.convert(text, dt.timedelta)),
    uuid.UUID: (str, uuid.UUID),
    decimal.Decimal: (_write_decimal, _read_decimal),
    bytes: (lambda value: base64.b64encode(value).decode(), _read_bytes),
}
