"""One codec a type: how a rich value becomes plain JSON, and back, strictly.

A codec only changes the form; whether what it leaves (or what an ``Any`` holds) is fit for JSON is judged once, over
the whole argument list, by ``jsontext``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from henchman.wire.misfit import Misfit, wrong

__all__ = ["ALL_KINDS", "KIND", "Codec", "array", "mapping", "plain", "tuple_of", "union"]

KIND: dict[type, str] = {
    str: "text",
    int: "number",
    float: "number",
    bool: "bool",
    type(None): "null",
    list: "array",
    dict: "object",
}
"""What a decoded JSON value is called; two types of one union must differ in it."""

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
    """Values that are JSON already; what they are is not looked at."""
    return Codec(name, frozenset(kinds) or ALL_KINDS)


def array(name: str, takes: tuple[type[Any], ...], item: Codec, make: Callable[[list[Any]], Any] | None) -> Codec:
    """A list, set or tuple of one type; ``make`` builds it from a list (None: a list is what is due)."""
    if takes == (list,) and item.is_plain and make is None:
        return plain(name, "array")

    def encode(value: Any) -> list[Any]:
        if not isinstance(value, takes):
            raise wrong(value, name)
        items = list(value) if item.encode is None else _each(item.encode, value)
        if isinstance(value, set | frozenset):
            items.sort(key=repr)  # equal sets give equal text, in every process
        return items

    def decode(value: Any) -> Any:
        if type(value) is not list:
            raise wrong(value, f"{name} (as a list)")
        items = value if item.decode is None else _each(item.decode, value)
        try:
            return items if make is None else make(items)
        except TypeError as error:  # a set of what cannot be hashed
            raise Misfit(f" is no {name}", str(error)) from None

    return Codec(name, frozenset({"array"}), takes, encode, decode)


def tuple_of(name: str, takes: type, items: list[Codec], make: Callable[[list[Any]], Any]) -> Codec:
    """A tuple of fixed length, one codec a place."""

    def convert(value: Any, which: str) -> list[Any]:
        if len(value) != len(items):
            raise Misfit(f" has {len(value)} items, {name} has {len(items)}")
        converted = []
        for index, (codec, one) in enumerate(zip(items, value, strict=True)):
            change = getattr(codec, which)
            try:
                converted.append(one if change is None else change(one))
            except Misfit as misfit:
                raise misfit.at(index) from None
        return converted

    def encode(value: Any) -> list[Any]:
        if not isinstance(value, takes):
            raise wrong(value, name)
        return convert(value, "encode")

    def decode(value: Any) -> Any:
        if type(value) is not list:
            raise wrong(value, f"{name} (as a list)")
        return make(convert(value, "decode"))

    return Codec(name, frozenset({"array"}), (takes,), encode, decode)


def mapping(name: str, key: Codec, item: Codec) -> Codec:
    """An object; keys other than text travel as their text."""
    if key.is_plain and item.is_plain:
        return Codec(name, frozenset({"object"}), (Mapping,))

    def convert(value: Any, which: str) -> dict[Any, Any]:
        change_key, change = getattr(key, which), getattr(item, which)
        converted = {}
        for name_, one in value.items():
            try:
                new_key = name_ if change_key is None else change_key(name_)
                converted[new_key] = one if change is None else change(one)
            except Misfit as misfit:
                raise misfit.at(str(name_)) from None
        return converted

    def encode(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise wrong(value, name)
        return convert(value, "encode")

    def decode(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise wrong(value, f"{name} (as an object)")
        return convert(value, "decode")

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
    by_kind = _by_kind(members, tagged)

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
                raise Misfit(f" is none of {name}: no known tag")
            member = named[0]
        return value if member.decode is None else member.decode(value)

    return Codec(name, kinds, tuple(one for member in rich for one in member.takes), encode, decode)


def _by_kind(members: list[Codec], tagged: dict[tuple[str, Any], Codec]) -> dict[str, Codec]:
    found: dict[str, Codec] = {}
    for member in members:
        for kind in member.kinds:
            other = found.setdefault(kind, member)
            both_tagged = other.tag is not None and member.tag is not None and other.tag != member.tag
            if other is not member and not (other.is_plain and member.is_plain) and not both_tagged:
                raise ValueError(f"{other.name} and {member.name} look alike in JSON and could not be told apart")
    return found


def _each(convert: Convert, values: Any) -> list[Any]:
    converted = []
    for index, one in enumerate(values):
        try:
            converted.append(convert(one))
        except Misfit as misfit:
            raise misfit.at(index) from None
    return converted
