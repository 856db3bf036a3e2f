"""Arguments by their place or name, as a search asks for them: ``args.0.sku`` and ``kwargs.to``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from henchman.wire import jsontext

__all__ = ["written_at"]

_NONE: Final = object()


def written_at(kind: str, path: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[str | None]:
    """The arguments that a path is about, as one writes what is shown of them: of a text the text, of anything else
    its JSON; None where there is none. With the ``kind`` args the path begins with a place, with a name, or with a
    name in any argument; with kwargs with a name. Further words go into the value."""
    first, *further = path
    places: list[Any] = [kwargs.get(first, _NONE)]
    if kind == "args" and first.isascii() and first.isdigit():
        places += args[int(first) : int(first) + 1] if len(first) < 6 else []
    elif kind == "args":
        places += [_step(part, first) for part in args]
    for step in further:
        places = [_step(part, step) for part in places]
    return map(_written, places)


def _step(part: Any, step: str) -> Any:
    if isinstance(part, dict):
        return part.get(step, _NONE)
    at = int(step) if isinstance(part, list) and step.isascii() and step.isdigit() and len(step) < 6 else -1
    return part[at] if isinstance(part, list) and 0 <= at < len(part) else _NONE


def _written(part: Any) -> str | None:
    if part is _NONE:
        return None
    if isinstance(part, str):
        return part
    try:
        return jsontext.encode(part).decode("utf-8", "replace")
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return None
