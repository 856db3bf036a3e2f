"""From an annotation to its codec: done once, when a job is defined, and refused there with a reason.

pydantic is never imported: a model is recognised by its methods (``model_dump``, ``model_validate_json``).
"""

from __future__ import annotations

import collections.abc as abc
import dataclasses
import datetime as dt
import enum
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, Union

import msgspec

from henchman.errors import DefinitionError
from henchman.wire import jsontext
from henchman.wire.jsontext import EncodeError, wrong
from henchman.wire.types import ALL_KINDS, Codec, array, at, enum_codec, mapping, plain, scalar, tuple_of, union

__all__ = ["Compiler", "annotation_of"]

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
        if callable(getattr(kind, "model_dump", None)) and callable(getattr(kind, "model_validate_json", None)):
            return _model(kind)
        if typing.is_typeddict(kind):
            return self._typed_dict(kind)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._named_tuple(kind)
        return self._record(kind)

    def _record(self, kind: type) -> Codec | None:
        fields = _fields_of(kind)
        if fields is None:
            return None
        codec = self._unfinished(kind, kind)
        settings = getattr(kind, "__struct_config__", None)
        if isinstance(settings, msgspec.structs.StructConfig) and settings.tag is not None:
            codec.tag = (settings.tag_field or "type", settings.tag)
        _finish_record(kind, codec, [(field, self.codec(field.annotation)) for field in fields])
        return codec

    def _typed_dict(self, kind: type) -> Codec:
        codec = self._unfinished(kind, dict)
        hints = typing.get_type_hints(kind)
        _finish_typed_dict(kind, codec, {name: self.codec(annotation) for name, annotation in hints.items()})
        return codec

    def _unfinished(self, kind: type, takes: type) -> Codec:
        """A codec that is known before its parts, so that a class may hold itself."""
        codec = self._made[kind] = Codec(kind.__name__, frozenset({"object"}), (takes,), _never, _never)
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


def _never(value: Any) -> Any:
    raise AssertionError(f"codec used before it was finished: {value!r}")


def _int_key(value: Any) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        raise EncodeError(": the key is not an int")
    return str(int(value))


def _read_int_key(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise EncodeError(": the key is not an int") from None


_INT_KEY = Codec("int", frozenset({"text"}), (int,), _int_key, _read_int_key)


# --- classes with fields ---------------------------------------------------------------------------------------------


class _Field(NamedTuple):
    """One field of a record: its attribute, its name in JSON, its annotation, whether the constructor needs it."""

    attribute: str
    name: str
    annotation: Any
    required: bool


def _fields_of(kind: type) -> list[_Field] | None:
    """The fields of a dataclass or Struct; None for any other class. NameError when an annotation has no meaning,
    ValueError when the constructor needs more than its fields."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return [_Field(one.name, one.encode_name, one.type, one.required) for one in msgspec.structs.fields(kind)]
    if not dataclasses.is_dataclass(kind):
        return None
    hints = typing.get_type_hints(kind)
    fields = [
        _Field(one.name, one.name, hints[one.name], one.default is one.default_factory is dataclasses.MISSING)
        for one in dataclasses.fields(kind)
        if one.init
    ]
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.default is parameter.empty and parameter.name not in {field.attribute for field in fields}:
            raise ValueError(f"its constructor needs {parameter.name!r}, which is not a field")
    return fields


def _finish_record(kind: type, codec: Codec, parts: list[tuple[_Field, Codec]]) -> None:
    """Fill ``codec`` (made before its parts: a record may hold itself) for a dataclass or Struct."""
    name = kind.__name__
    known = {field.name: (field, part) for field, part in parts}
    tag = codec.tag

    def encode(value: Any) -> dict[str, Any]:
        if type(value) is not kind:
            raise wrong(value, name)
        converted = {} if tag is None else {tag[0]: tag[1]}
        for field, part in parts:
            one = getattr(value, field.attribute)
            converted[field.name] = one if part.encode is None else at(field.attribute, part.encode, one)
        return converted

    def decode(value: Any) -> Any:
        if type(value) is not dict:
            raise wrong(value, f"{name} (as an object)")
        given = {}
        for key, one in value.items():
            if key in known:
                field, part = known[key]
                given[field.attribute] = at(field.name, part.decode, one)
            elif tag != (key, one):
                raise EncodeError(
                    f" has the field {key[:100]!r}, which {name} does not know",
                    discreet=f" has a field that {name} does not know",
                )
        for field, _ in parts:
            if field.required and field.attribute not in given:
                raise EncodeError(f" lacks the field {field.name!r} of {name}")
        return _built(kind, lambda: kind(**given))

    codec.encode, codec.decode = encode, decode


def _finish_typed_dict(kind: type, codec: Codec, parts: dict[str, Codec]) -> None:
    """Fill ``codec`` for a TypedDict: a dict whose known keys have types; it stays plain when they all are."""
    if all(part.is_plain for part in parts.values()):
        codec.encode = codec.decode = None
        return
    required: frozenset[str] = getattr(kind, "__required_keys__", frozenset())

    def convert(value: Any, which: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise wrong(value, kind.__name__)
        for key in required - value.keys():
            raise EncodeError(f" lacks the key {key!r} of {kind.__name__}")
        return {key: at(key, getattr(parts[key], which), one) if key in parts else one for key, one in value.items()}

    codec.encode = lambda value: convert(value, "encode")
    codec.decode = lambda value: convert(value, "decode")


def _model(kind: Any) -> Codec:
    """As pydantic itself writes and reads it; naive datetimes inside are refused as everywhere."""
    name = kind.__name__

    def encode(value: Any) -> Any:
        if type(value) is not kind:
            raise wrong(value, name)
        _refuse_naive(value.model_dump())
        try:
            return value.model_dump(mode="json", by_alias=True, round_trip=True)
        except ValueError as error:  # pydantic's serialisation errors are ValueErrors
            raise EncodeError(f" cannot be written by {name}", str(error)) from None

    def decode(value: Any) -> Any:
        return _built(kind, lambda: kind.model_validate_json(jsontext.encode(value)))

    kinds = ALL_KINDS if getattr(kind, "__pydantic_root_model__", False) else frozenset({"object"})
    return Codec(name, kinds, (kind,), encode, decode)


def _built(kind: type, build: Callable[[], Any]) -> Any:
    try:
        return build()
    except Exception as error:  # the class may refuse in its own way
        raise EncodeError(f" cannot be rebuilt as {kind.__name__}", f"{type(error).__name__}: {error}") from None


def _refuse_naive(value: Any) -> None:
    if isinstance(value, dt.datetime) and value.utcoffset() is None:
        raise EncodeError(": naive datetime: give it a time zone", value.isoformat())
    if isinstance(value, dict):
        for key, one in value.items():
            at(str(key), _refuse_naive, one)
    elif isinstance(value, list | tuple | set | frozenset):
        for index, one in enumerate(value):
            at(index, _refuse_naive, one)


# --- annotations of parameters ---------------------------------------------------------------------------------------


def annotation_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The annotation of ``parameter`` of ``function``, Any without; DefinitionError when it means nothing."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return Any
    inner = inspect.unwrap(getattr(function, "func", function))  # of a partial
    if not hasattr(inner, "__globals__") and not isinstance(inner, type):
        inner = getattr(inner, "__func__", None) or type(inner).__call__

    def holder() -> None: ...

    holder.__annotations__ = {"it": annotation}
    try:
        found = typing.get_type_hints(holder, getattr(inner, "__globals__", {}), _around(inner))["it"]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise DefinitionError(
            f"the annotation {annotation!r} means nothing when the job is defined ({error}); "
            "import the name at run time, not under TYPE_CHECKING, and define it before the job"
        ) from None
    return typing.Optional[found] if parameter.default is None else found  # noqa: UP045 - found is a value


def _around(function: Any) -> dict[str, Any]:
    code = getattr(function, "__code__", None)
    names = {}
    for name, cell in zip(code.co_freevars if code else (), getattr(function, "__closure__", None) or (), strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not yet filled
            continue
    return names
