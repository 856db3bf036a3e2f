"""What a job returns, out and in: as its return annotation says, where that can travel; else plain JSON."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from henchman.errors import DefinitionError
from henchman.kernel.text import described
from henchman.wire import jsontext
from henchman.wire.codec import annotation_of
from henchman.wire.codec_compile import Compiler
from henchman.wire.codec_types import Codec
from henchman.wire.misfit import Misfit

__all__ = ["from_json", "to_json"]

_PLACE = "the returned value"


@lru_cache(maxsize=1000)
def _codec(function: Callable[..., Any]) -> Codec | None:
    try:
        annotation = inspect.signature(function).return_annotation
        parameter = inspect.Parameter("it", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
        return Compiler().codec(annotation_of(function, parameter))
    except (DefinitionError, TypeError, ValueError, NameError):
        return None  # nothing that we could rebuild: what JSON holds is given as it is


def to_json(function: Any, value: Any) -> Any:
    """``value`` as plain JSON; ValueError says what of it JSON cannot hold."""
    codec = None if function is None else _codec(function)
    try:
        plain = value if codec is None or codec.encode is None else codec.encode(value)
        return plain if jsontext.is_plain(plain) and _fits(plain) else jsontext.careful(plain)
    except Misfit as misfit:
        raise ValueError(misfit.text(_PLACE)) from None
    except RecursionError:
        raise ValueError(f"{_PLACE} is nested deeper than {jsontext.MAX_DEPTH} levels") from None
    except BaseException as error:  # of the value's own code, a SystemExit too: the job has ended before it
        raise ValueError(f"{_PLACE} cannot be read: {described(error)}") from None


def _fits(plain: Any) -> bool:
    """Whether the encoder takes it: not a number of too many digits, nor half a surrogate pair."""
    try:
        jsontext.encode(plain)
    except ValueError:
        return False
    return True


def from_json(function: Any, value: Any) -> Any:
    """What ``to_json`` made plain; ValueError when it does not fit the annotation (any more)."""
    codec = None if function is None else _codec(function)
    if codec is None or codec.decode is None:
        return value
    try:
        return codec.decode(value)
    except Misfit as misfit:
        raise ValueError(misfit.text(_PLACE)) from None
