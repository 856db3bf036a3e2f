"""From an annotation to its codec: done once, when a job is defined, and refused there with a reason."""

from __future__ import annotations

import collections.abc as abc
import enum
import types
import typing
from typing import Any, Literal, TypeVar, Union

import msgspec

from henchman.errors import DefinitionError
from henchman.wire.codec_records import (
    fields_of,
    is_model,
    model_codec,
    record_codec,
    typed_dict_codec,
)
from henchman.wire.codec_scalars import enum_codec, scalar
from henchman.wire.codec_types import Codec, array, mapping, plain, tuple_of, union
from henchman.wire.misfit import Misfit

__all__ = ["Compiler"]

_PLAIN: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Any, ()),
    (object, ()),
    (str, ("text",)),
    (int, ("number", "bool")),
    (float, ("number",)),
    (bool, ("bool",)),
    (type(None), ("null",)),
    (None, ("null",)),
)
_SEQUENCES = (abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence)
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_SETS: dict[Any, Any] = {set: set, frozenset: frozenset, abc.Set: frozenset, abc.MutableSet: set}
_ANY = plain("anything")
_WAY_OUT = (
    "a parameter may be plain JSON, dataclass, msgspec.Struct, pydantic model, datetime, date, UUID, Decimal, Enum, "
    "bytes, or lists, dicts, sets and tuples of those; send an id and look the object up in the job"
)


class Compiler:
    """Makes codecs; remembers those of classes, so that a class may hold itself."""

    def __init__(self) -> None:
        self._made: dict[Any, Codec] = {}

    def codec(self, annotation: Any) -> Codec:
        """The codec of ``annotation``; DefinitionError when its values could not travel."""
        for known, kinds in _PLAIN:
            if annotation is known:
                return plain(_name(annotation), *kinds)
        if hasattr(annotation, "__supertype__"):  # NewType
            return self.codec(annotation.__supertype__)
        if isinstance(annotation, TypeVar):
            return self.codec(annotation.__bound__) if annotation.__bound__ else _ANY
        if type(annotation).__name__ == "TypeAliasType":  # type X = …, from Python 3.12 on
            return self.codec(annotation.__value__)
        try:
            origin = typing.get_origin(annotation) or annotation
            found = self._generic(origin, typing.get_args(annotation), _name(annotation))
            if found is None and isinstance(origin, type):
                found = self._class(origin)
        except ValueError as error:
            raise DefinitionError(f"{_name(annotation)}: {error}") from None
        except NameError as error:
            raise DefinitionError(f"{_name(annotation)} has an annotation that means nothing here: {error}") from None
        if found is None:
            raise DefinitionError(f"{_name(annotation)} cannot travel as JSON; {_WAY_OUT}")
        return found

    def _generic(self, origin: Any, args: tuple[Any, ...], name: str) -> Codec | None:
        if origin is typing.Annotated or origin in (typing.Required, typing.NotRequired):
            return self.codec(args[0])
        if origin is Union or origin is types.UnionType:
            return union([self.codec(one) for one in args])
        if origin is Literal:
            return union([self.codec(kind) for kind in {type(one): None for one in args}])
        if origin is list:
            return array(name, (list,), self._first(args), None)
        if origin in _SEQUENCES:
            return array(name, (list, tuple), self._first(args), None)
        if origin in _SETS:
            return array(name, (set, frozenset), self._first(args), _SETS[origin])
        if origin is tuple:
            return self._tuple(args, name)
        if origin in _MAPPINGS:
            return mapping(name, self._key(args[0]) if args else _ANY, self.codec(args[1]) if args else _ANY)
        return None

    def _first(self, args: tuple[Any, ...]) -> Codec:
        return self.codec(args[0]) if args else _ANY

    def _tuple(self, args: tuple[Any, ...], name: str) -> Codec:
        if not args and name in ("tuple", "Tuple"):
            return array(name, (tuple,), _ANY, tuple)
        if len(args) == 2 and args[1] is Ellipsis:
            return array(name, (tuple,), self.codec(args[0]), tuple)
        return tuple_of(name, tuple, [self.codec(one) for one in args], tuple)

    def _key(self, annotation: Any) -> Codec:
        if annotation is int:
            return _INT_KEY
        codec = self.codec(annotation)
        if annotation in (Any, object):
            return _ANY
        if codec.kinds != {"text"}:
            raise ValueError(f"keys of an object are text, {codec.name} is not")
        return codec

    def _class(self, kind: type) -> Codec | None:
        if kind in self._made:
            return self._made[kind]
        simple = scalar(kind)
        if simple is not None:
            return simple
        if issubclass(kind, enum.Enum):
            return enum_codec(kind)
        if is_model(kind):
            return model_codec(kind)
        if typing.is_typeddict(kind):
            return self._typed_dict(kind)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._named_tuple(kind)
        return self._record(kind)

    def _record(self, kind: type) -> Codec | None:
        fields = fields_of(kind)
        if fields is None:
            return None
        codec = self._made[kind] = Codec(kind.__name__, frozenset({"object"}), (kind,), _unfinished, _unfinished)
        settings = getattr(kind, "__struct_config__", None)
        if isinstance(settings, msgspec.structs.StructConfig) and settings.tag is not None:
            codec.tag = (settings.tag_field or "type", settings.tag)
        record_codec(kind, codec, [(field, self.codec(field.annotation)) for field in fields])
        return codec

    def _typed_dict(self, kind: type) -> Codec:
        codec = self._made[kind] = Codec(kind.__name__, frozenset({"object"}), (dict,), _unfinished, _unfinished)
        hints = typing.get_type_hints(kind)
        typed_dict_codec(kind, codec, {name: self.codec(annotation) for name, annotation in hints.items()})
        return codec

    def _named_tuple(self, kind: Any) -> Codec:
        hints = typing.get_type_hints(kind)
        parts = [self.codec(hints.get(name, Any)) for name in kind._fields]
        return tuple_of(kind.__name__, kind, parts, kind._make)


def _name(annotation: Any) -> str:
    if annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _unfinished(value: Any) -> Any:
    raise AssertionError(f"codec used before it was finished: {value!r}")


def _int_key(value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misfit(": the key is not an int")
    return str(int(value))


def _read_int_key(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Misfit(": the key is not an int") from None


_INT_KEY = Codec("int", frozenset({"text"}), (int,), _int_key, _read_int_key)
