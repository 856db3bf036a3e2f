"""The payloads of one definition, out and in: as canonical JSON, so that equal payloads have equal bytes and merge.

``1`` and ``1.0`` are equal in Python and differ in JSON: they do not merge.
"""

from __future__ import annotations

import collections.abc as abc
import inspect
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from henchman.errors import ArgumentError, DefinitionError
from henchman.kernel.text import shorten
from henchman.wire import jsontext
from henchman.wire.codec import MAX_BYTES, annotation_of
from henchman.wire.codec_compile import Compiler
from henchman.wire.misfit import Misfit

__all__ = ["Payloads"]

_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable)
_HOW = "annotate it as dict[str, list[Payload]], or not at all"


class Payloads:
    """How payloads travel, read off the handler's one parameter."""

    def __init__(self, name: str, parameter: str, annotation: Any) -> None:
        self.name = name
        self.parameter = parameter
        try:
            codec = Compiler().codec(annotation)
        except DefinitionError as error:
            raise DefinitionError(f"{name}: parameter {parameter!r}: {error}") from None
        self._encode = codec.encode
        self._decode = codec.decode

    @classmethod
    def of(cls, function: Callable[..., Any], name: str) -> Payloads:
        """Read the annotation of ``function``; DefinitionError when it does not take a claim."""
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError, NameError) as error:
            raise DefinitionError(f"{name}: the parameters of {function!r} cannot be read: {error}") from None
        if len(parameters) != 1 or parameters[0].kind > inspect.Parameter.VAR_POSITIONAL:
            shown = ", ".join(str(one) for one in parameters)
            raise DefinitionError(
                f"{name} takes ({shown}); the handler of an ordered queue takes one parameter, the claim: "
                "a dict of lists of payloads by id"
            )
        (claim,) = parameters
        if claim.kind is inspect.Parameter.VAR_POSITIONAL:
            return cls(name, claim.name, Any)
        annotation = annotation_of(function, claim)
        return cls(name, claim.name, _payload_of(f"{name}: parameter {claim.name!r}", annotation))

    def encode(self, payload: Any) -> bytes:
        """``payload`` as text; ArgumentError names the place of what cannot be sent."""
        try:
            text = jsontext.canonical(payload if self._encode is None else self._encode(payload))
        except Misfit as misfit:
            raise ArgumentError(misfit.text("payload")) from None
        except RecursionError:
            raise ArgumentError(f"payload is nested deeper than {jsontext.MAX_DEPTH} levels") from None
        if len(text) > MAX_BYTES:
            raise ArgumentError(
                f"{self.name}: the payload takes {len(text):,} bytes, more than {MAX_BYTES:,}; "
                "keep large data in a file or table and send its name"
            )
        return text

    def decode(self, id: str, raw: list[bytes]) -> list[Any]:
        """The payloads of one id, rebuilt as annotated; ArgumentError names the id and the place."""
        decode, payloads = self._decode, []
        for index, text in enumerate(raw):
            try:
                payload = read(text)
                payloads.append(payload if decode is None else decode(payload))
            except Misfit as misfit:
                raise ArgumentError(misfit.text(f"{self.parameter}[{shorten(id, 100)!r}][{index}]")) from None
            except RecursionError:
                place = f"{self.parameter}[{shorten(id, 100)!r}][{index}]"
                raise ArgumentError(f"{place} is nested too deep to be read") from None
        return payloads


def read(text: bytes) -> Any:
    """What stands in a stored payload; Misfit when that is not JSON."""
    try:
        return jsontext.loads(text)
    except msgspec.ValidationError:
        try:
            return jsontext.loads_slowly(text)
        except ValueError as error:
            raise Misfit(" holds a number that cannot be read", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Misfit(" is not JSON", f"{error}; it begins {text[:40]!r}") from None


def _payload_of(where: str, annotation: Any) -> Any:
    """The annotation of one payload in that of a claim."""
    if type(annotation).__name__ == "TypeAliasType":  # type X = …, from Python 3.12 on
        return _payload_of(where, annotation.__value__)
    if annotation is Any or annotation is object or isinstance(annotation, typing.TypeVar):
        return Any
    claim = _inner(annotation, _MAPPINGS)
    if claim is None:
        raise DefinitionError(f"{where} is annotated {annotation!r}, but a claim is a dict of lists by id; {_HOW}")
    if not claim:
        return Any
    key, payloads = claim
    if key not in (Any, str, object) and getattr(key, "__supertype__", None) is not str:
        raise DefinitionError(f"{where} is annotated {annotation!r}, but ids are text, whatever was pushed; {_HOW}")
    if payloads is Any or payloads is object:
        return Any
    items = _inner(payloads, _LISTS)
    if items is None:
        raise DefinitionError(f"{where} is annotated {annotation!r}, but each id comes with a list of payloads; {_HOW}")
    return items[0] if items else Any


def _inner(annotation: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments of a generic of one of ``kinds``; None for anything else."""
    origin = typing.get_origin(annotation) or annotation
    return typing.get_args(annotation) if origin in kinds else None
