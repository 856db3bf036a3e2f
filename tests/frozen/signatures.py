"""Signatures as lines of text, the same under every Python that we support."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import FunctionType, SimpleNamespace
from typing import Any, get_overloads

import msgspec

__all__ = ["lines_of"]

#: methods with two underscores that people use by their syntax
SPOKEN = {"__call__", "__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__aiter__", "__len__"} | {
    *("__getitem__", "__contains__", "__bool__", "__get__"),
}


def lines_of(name: str, thing: Any, *, made: bool = True) -> Iterator[str]:
    """One line for a function, or one for each public member of a class; ``made``: people make such objects."""
    if not isinstance(thing, type):
        yield from _function(name, thing)
        return
    yield f"class {name}({', '.join(_bases(thing))})"
    members = dict(_members(thing))
    for member in sorted(members if made else members.keys() - {"__init__"}):
        yield from _member(f"{name}.{member}", members[member])


def _bases(cls: type) -> list[str]:
    """Exceptions are caught by what they derive from; what else a class is made of is our own affair."""
    return [one.__name__ for one in cls.__mro__[1:-1]] if issubclass(cls, BaseException) else []


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("henchman"):
            continue
        held = base.__dict__
        told = inspect.get_annotations(base)
        defaults = _defaults(base)
        for name, annotation in told.items():
            if not name.startswith("_"):
                yield name, _Field(annotation, defaults.get(name, inspect.Parameter.empty))
        for name, one in held.items():
            if (not name.startswith("_") or name in SPOKEN) and name not in told:
                yield name, one
        if "__init__" in base.__dict__:
            yield from _of_init(base)


def _defaults(base: Any) -> dict[str, Any]:
    """The default of each field; of one that is made anew each time, what makes it."""
    if dataclasses.is_dataclass(base):
        kept = {one.name: one.default for one in dataclasses.fields(base)}
        fresh = {one.name: one.default_factory for one in dataclasses.fields(base)}
        pairs = {name: fresh[name] if one is dataclasses.MISSING else one for name, one in kept.items()}
        return {name: one for name, one in pairs.items() if one is not dataclasses.MISSING}
    if hasattr(base, "__struct_fields__"):
        return {one.name: one.default for one in msgspec.structs.fields(base) if one.default is not msgspec.NODEFAULT}
    return dict(getattr(base, "_field_defaults", {}))


def _of_init(base: type) -> Iterator[tuple[str, Any]]:
    """``__init__`` (but not one that is made of the fields), and the public attributes that it sets."""
    init: Any = base.__dict__["__init__"]
    ours = isinstance(init, FunctionType) and init.__module__.startswith("henchman")
    if not ours or init.__code__.co_filename.startswith("<"):
        return
    yield "__init__", init
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(init)))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not node.attr.startswith("_"):
            match node.value:
                case ast.Name("self"):
                    yield node.attr, _Field("set by __init__", inspect.Parameter.empty)


class _Field(SimpleNamespace):
    def __init__(self, annotation: Any, default: Any) -> None:
        super().__init__(annotation=annotation, default=default)


def _member(name: str, one: Any) -> Iterator[str]:
    if isinstance(one, _Field):
        default = "" if one.default is inspect.Parameter.empty else f" = {_text(one.default)}"
        yield f"{name}: {_annotation(one.annotation)}{default}"
    elif isinstance(one, property):
        yield f"{name} -> {_annotation(inspect.signature(one.fget).return_annotation)}  (property)"
    elif isinstance(one, staticmethod | classmethod):
        yield from _function(name, one.__func__, f"{type(one).__name__} ")
    elif callable(one) or hasattr(one, "__wrapped__"):
        yield from _function(name, one)
    else:
        yield f"{name}: {type(one).__name__}"


def _function(name: str, one: Any, before: str = "") -> Iterator[str]:
    overloads = get_overloads(one) if isinstance(one, FunctionType) else []
    for each in overloads or [one]:
        kind = before + ("async def" if inspect.iscoroutinefunction(each) else "def")
        word = "overload " if overloads else ""
        yield f"{word}{kind} {name}{_signature(each)}"


def _signature(one: Any) -> str:
    try:
        told = inspect.signature(one)
    except (TypeError, ValueError):
        return f": {type(one).__name__}"
    parts, star, slash = [], False, False
    for parameter in told.parameters.values():
        if slash and parameter.kind is not parameter.POSITIONAL_ONLY:
            parts.append("/")
        slash = parameter.kind is parameter.POSITIONAL_ONLY
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
        star |= parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY)
        parts.append(_parameter(parameter))
    back = "" if told.return_annotation is told.empty else f" -> {_annotation(told.return_annotation)}"
    return f"({', '.join([*parts, *(['/'] if slash else [])])}){back}"


def _parameter(one: inspect.Parameter) -> str:
    name = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "") + one.name
    typed = one.annotation is not one.empty and one.name not in ("self", "cls")
    text = f"{name}: {_annotation(one.annotation)}" if typed else name
    if one.default is one.empty:
        return text
    return f"{text} = {_text(one.default)}" if typed else f"{text}={_text(one.default)}"


def _annotation(one: Any) -> str:
    return one if isinstance(one, str) else getattr(one, "__forward_arg__", None) or inspect.formatannotation(one)


def _text(value: Any) -> str:
    if value is ...:
        return "..."
    if isinstance(value, type | FunctionType):
        return value.__name__
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
