"""The arguments of one job, out and in: compiled once from its function's parameters.

Positional parameters travel in an array, also where they were given by keyword; keyword-only ones in an object.
Plain values pass as they are; where an annotation names a rich type its codec changes the form. What JSON cannot
hold is refused at the call site, with its place.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Any

from henchman.errors import ArgumentError, DefinitionError
from henchman.wire import jsontext
from henchman.wire.binding import Binding
from henchman.wire.codec_compile import Compiler
from henchman.wire.codec_types import Codec
from henchman.wire.misfit import Misfit
from henchman.wire.secret import MASK, Secrets

__all__ = ["MAX_BYTES", "Signature", "annotation_of"]

MAX_BYTES = 100 * 1024 * 1024
"""The most that the arguments of one job may take as text."""

_encode = jsontext.encode
_scalars = jsontext.scalars
_is_plain = jsontext.is_plain


class Signature:
    """How arguments of one job travel. ``plain``: no parameter is rich, so decoding only checks count and names."""

    def __init__(self, binding: Binding, codecs: dict[str, Codec], secret: frozenset[str]) -> None:
        self.binding = binding
        self.secret = secret
        self.plain = all(codec.is_plain for codec in codecs.values())
        self._by_name = {name: codecs[name] for name in binding.by_name}
        self._positional = [codecs[name] for name in binding.positional]
        self._tail = codecs[binding.tail] if binding.tail else None
        self._rest = codecs[binding.rest] if binding.rest else None
        self._least = sys.maxsize if binding.required_keywords else binding.least  # then the quick path is never taken
        self._most = binding.most

    @classmethod
    def of(cls, function: Callable[..., Any], *, name: str, secret: Collection[str] = ()) -> Signature:
        """Compile the parameters of ``function``; DefinitionError when one cannot travel or ``secret`` names none."""
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError, NameError) as error:
            raise DefinitionError(f"{name}: the parameters of {function!r} cannot be read: {error}") from None
        unknown = set(secret) - parameters.keys()
        if unknown:
            raise DefinitionError(f"{name}: secret={sorted(unknown)!r} names no parameter; it has {list(parameters)!r}")
        compiler = Compiler()
        codecs = {}
        for parameter in parameters.values():
            try:
                codecs[parameter.name] = compiler.codec(annotation_of(function, parameter))
            except DefinitionError as error:
                raise DefinitionError(f"{name}: parameter {parameter.name!r}: {error}") from None
        called = getattr(function, "__qualname__", name)
        return cls(Binding(list(parameters.values()), name, called), codecs, frozenset(secret))

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, bytes | None]:
        """The texts of the positional array and of the keyword-only object (None without any).

        ArgumentError when the arguments do not fit the parameters or cannot be sent.
        """
        if kwargs or not self._least <= len(args) <= self._most:
            args, rest = self.binding.bind(args, kwargs)
        else:
            rest = None
        if self.plain and (_scalars(map(type, args)) or all(map(_is_plain, args))):
            try:
                text = _encode(args)
            except ValueError:  # a lone surrogate, a number of too many digits: the careful walk names it
                text = self._careful(args)
        else:
            text = self._careful(args)
        keywords = None if not rest else self._keywords(rest)
        if len(text) + len(keywords or b"") > MAX_BYTES:
            size = len(text) + len(keywords or b"")
            raise ArgumentError(
                f"{self.binding.name}: the arguments take {size:,} bytes, more than {MAX_BYTES:,}; "
                "keep large data in a file or table and send its name"
            )
        return text, keywords

    def decode(self, args: list[Any], kwargs: dict[str, Any] | None) -> tuple[Sequence[Any], dict[str, Any]]:
        """Arguments to call the function with, from what was read out of a payload.

        ArgumentError, naming the parameter, when count, names or a rich value do not fit.
        """
        if not (kwargs is None and self._least <= len(args) <= self._most):
            self.binding.check(args, kwargs or {})
        if self.plain:
            return args, kwargs or {}
        decoded: list[Any] = []
        for index, value in enumerate(args):
            codec = self._codec_at(index)
            decoded.append(value if codec.decode is None else self._change(index, codec.decode, value))
        named = {}
        for name, value in (kwargs or {}).items():
            change = self._codec_of(name).decode
            named[name] = value if change is None else self._change(name, change, value)
        return decoded, named

    def mask(self, args: list[Any], kwargs: dict[str, Any] | None) -> tuple[list[Any], dict[str, Any] | None]:
        """The same with secret parameters replaced by ``***``: for logs, events and people."""
        if not self.secret:
            return args, kwargs
        shown = [MASK if self._name_at(index) in self.secret else value for index, value in enumerate(args)]
        if kwargs is None:
            return shown, None
        return shown, {name: MASK if self._hides(name) else value for name, value in kwargs.items()}

    def secrets(self, *calls: tuple[Sequence[Any], dict[str, Any] | None]) -> Secrets:
        """What must not be shown of the secret parameters of ``calls``: (args, kwargs), each in any of its forms."""
        return Secrets.of(
            [
                *(one for args, _ in calls for index, one in enumerate(args) if self._name_at(index) in self.secret),
                *(one for _, kwargs in calls for name, one in (kwargs or {}).items() if self._hides(name)),
            ]
        )

    @cached_property
    def secret_places(self) -> list[int | str] | None:
        """Where secret arguments stand, for whoever shows a payload and does not know its job; None without any.

        Of ``args`` the index, or ``-1 - index`` for that one and all that follow; of ``kwargs`` the name, or ``"**"``
        for all of them.
        """
        names = self.binding.positional
        places: list[int | str] = [index for index, name in enumerate(names) if name in self.secret]
        if self.binding.tail in self.secret:
            places.append(-1 - len(names))
        keywords = [name for name in self._by_name if name in self.secret and name not in names]
        return [*places, *(["**"] if self.binding.rest in self.secret else keywords)] or None

    def _careful(self, args: Sequence[Any]) -> bytes:
        converted = []
        for index, value in enumerate(args):
            encode = self._codec_at(index).encode
            one = value if encode is None else self._change(index, encode, value)
            converted.append(one if _is_plain(one) else self._change(index, jsontext.careful, one))
        return self._text(converted, range(len(converted)))

    def _keywords(self, rest: dict[str, Any]) -> bytes:
        converted = {}
        for name, value in rest.items():
            encode = self._codec_of(name).encode
            one = value if encode is None else self._change(name, encode, value)
            converted[name] = one if _is_plain(one) else self._change(name, jsontext.careful, one)
        return self._text(converted, converted)

    def _text(self, converted: Any, places: Any) -> bytes:
        try:
            return _encode(converted)
        except ValueError:  # found once more, by the walk that names it; what it walked before is known to be good
            for place in places:
                if _is_plain(converted[place]):
                    self._change(place, jsontext.careful, converted[place])
            raise

    def _change(self, place: int | str, change: Callable[[Any], Any], value: Any) -> Any:
        name = self._name_at(place) if isinstance(place, int) else place
        try:
            return change(value)
        except Misfit as misfit:
            if isinstance(place, int) and place >= len(self._positional):
                misfit.at(place - len(self._positional))
            raise ArgumentError(misfit.text(name, secret=self._hides(name))) from None
        except RecursionError:
            raise ArgumentError(f"{name} is nested deeper than {jsontext.MAX_DEPTH} levels") from None

    def _hides(self, name: str) -> bool:
        return name in self.secret or (name not in self._by_name and self.binding.rest in self.secret)

    def _codec_at(self, index: int) -> Codec:
        if index < len(self._positional):
            return self._positional[index]
        assert self._tail is not None  # noqa: S101 - the count was checked before
        return self._tail

    def _codec_of(self, name: str) -> Codec:
        codec = self._by_name.get(name) or self._rest
        assert codec is not None  # noqa: S101 - the names were checked before
        return codec

    def _name_at(self, index: int) -> str:
        positional = self.binding.positional
        return positional[index] if index < len(positional) else self.binding.tail or ""


def annotation_of(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """What ``parameter`` of ``function`` is annotated with, Any without; DefinitionError when that means nothing."""
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
