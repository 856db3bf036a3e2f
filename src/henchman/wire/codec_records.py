"""Codecs of classes with fields: dataclass, ``msgspec.Struct``, NamedTuple, TypedDict, pydantic models.

pydantic is never imported: a model is known by what it can do (``model_dump``, ``model_validate_json``).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from henchman.wire import jsontext
from henchman.wire.codec_types import ALL_KINDS, Codec
from henchman.wire.misfit import Misfit, kind_of

__all__ = ["Field", "fields_of", "is_model", "model_codec", "record_codec", "typed_dict_codec"]


class Field(NamedTuple):
    """One field of a record: its attribute, its name in JSON, its annotation, whether the constructor needs it."""

    attribute: str
    name: str
    annotation: Any
    required: bool


def fields_of(kind: type) -> list[Field] | None:
    """The fields of a dataclass or Struct; None for any other class. NameError when an annotation has no meaning,
    ValueError when the constructor needs more than its fields."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [Field(one.name, one.encode_name, one.type, one.required) for one in msgspec.structs.fields(kind)]
    if not dataclasses.is_dataclass(kind):
        return None
    hints = typing.get_type_hints(kind)
    fields = [
        Field(one.name, one.name, hints[one.name], one.default is one.default_factory is dataclasses.MISSING)
        for one in dataclasses.fields(kind)
        if one.init
    ]
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.default is parameter.empty and parameter.name not in {field.attribute for field in fields}:
            raise ValueError(f"its constructor needs {parameter.name!r}, which is not a field")
    return fields


def record_codec(kind: type, codec: Codec, parts: list[tuple[Field, Codec]]) -> None:
    """Fill ``codec`` (made before its parts: a record may hold itself) for a dataclass or Struct."""
    name = kind.__name__
    known = {field.name: (field, part) for field, part in parts}
    tag = codec.tag

    def encode(value: Any) -> dict[str, Any]:
        if type(value) is not kind:
            raise Misfit(f" is {kind_of(value)} where {name} is due")
        converted = {} if tag is None else {tag[0]: tag[1]}
        for field, part in parts:
            one = getattr(value, field.attribute)
            try:
                converted[field.name] = one if part.encode is None else part.encode(one)
            except Misfit as misfit:
                raise misfit.at(field.attribute) from None
        return converted

    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise Misfit(f" is {kind_of(value)} where {name} (as an object) is due")
        given = {}
        for key, one in value.items():
            if key in known:
                field, part = known[key]
                given[field.attribute] = _at(field.name, part.decode, one)
            elif tag != (key, one):
                raise Misfit(
                    f" has the field {key[:100]!r}, which {name} does not know",
                    discreet=f" has a field that {name} does not know",
                )
        for field, _ in parts:
            if field.required and field.attribute not in given:
                raise Misfit(f" lacks the field {field.name!r} of {name}")
        return _built(kind, lambda: kind(**given))

    codec.encode, codec.decode = encode, decode


def typed_dict_codec(kind: type, codec: Codec, parts: dict[str, Codec]) -> None:
    """Fill ``codec`` for a TypedDict: a dict whose known keys have types; it stays plain when they all are."""
    if all(part.is_plain for part in parts.values()):
        codec.encode = codec.decode = None
        return
    required: frozenset[str] = getattr(kind, "__required_keys__", frozenset())

    def convert(value: Any, which: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Misfit(f" is {kind_of(value)} where {kind.__name__} is due")
        for key in required - value.keys():
            raise Misfit(f" lacks the key {key!r} of {kind.__name__}")
        return {key: _at(key, getattr(parts[key], which), one) if key in parts else one for key, one in value.items()}

    codec.encode = lambda value: convert(value, "encode")
    codec.decode = lambda value: convert(value, "decode")


def is_model(kind: type) -> bool:
    """Whether ``kind`` behaves like a pydantic model."""
    return callable(getattr(kind, "model_dump", None)) and callable(getattr(kind, "model_validate_json", None))


def model_codec(kind: Any) -> Codec:
    """As pydantic itself writes and reads it; naive datetimes inside are refused as everywhere."""
    name = kind.__name__

    def encode(value: Any) -> Any:
        if type(value) is not kind:
            raise Misfit(f" is {kind_of(value)} where {name} is due")
        _refuse_naive(value.model_dump())
        try:
            return value.model_dump(mode="json", by_alias=True, round_trip=True)
        except ValueError as error:  # pydantic's serialisation errors are ValueErrors
            raise Misfit(f" cannot be written by {name}", str(error)) from None

    def decode(value: Any) -> Any:
        return _built(kind, lambda: kind.model_validate_json(jsontext.encode(value)))

    kinds = ALL_KINDS if getattr(kind, "__pydantic_root_model__", False) else frozenset({"object"})
    return Codec(name, kinds, (kind,), encode, decode)


def _at(step: str, change: Callable[[Any], Any] | None, value: Any) -> Any:
    if change is None:
        return value
    try:
        return change(value)
    except Misfit as misfit:
        raise misfit.at(step) from None


def _built(kind: type, build: Callable[[], Any]) -> Any:
    try:
        return build()
    except Exception as error:  # the class is somebody else's code and may refuse in its own way
        raise Misfit(f" cannot be rebuilt as {kind.__name__}", f"{type(error).__name__}: {error}") from None


def _refuse_naive(value: Any) -> None:
    if isinstance(value, dt.datetime) and value.utcoffset() is None:
        raise Misfit(": naive datetime: give it a time zone", value.isoformat())
    if isinstance(value, dict):
        for key, one in value.items():
            _at(str(key), _refuse_naive, one)
    elif isinstance(value, list | tuple | set | frozenset):
        for index, one in enumerate(value):
            try:
                _refuse_naive(one)
            except Misfit as misfit:
                raise misfit.at(index) from None
