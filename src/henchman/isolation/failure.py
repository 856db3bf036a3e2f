"""What an isolated run raised, as plain JSON, and as an exception again: class, message, attributes, where it was
raised, causes. Never pickle.

The exception that the worker gets is of a class made here, derived from the original one where the worker has imported
that already: nothing is imported, and nothing of the class is called, because of what a run says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from traceback import walk_tb
from types import CodeType, TracebackType
from typing import Any, Final

__all__ = ["rebuilt", "to_facts"]

_CAUSES: Final = 10
_FRAMES: Final = 100
_TEXT: Final = 20_000  # characters of one message
_PLAIN: Final = (str, int, float, bool, type(None))
_taking: Final = compile("frame = take()", "<isolated>", "exec")
_units: Final = len(_taking.co_code) // 2
#: each step stands on the first line, and in no column: eight steps at most in one entry of the table
_code: Final[CodeType] = _taking.replace(
    co_linetable=b"".join(bytes((0x80 | 13 << 3 | min(8, _units - at) - 1, 0)) for at in range(0, _units, 8))
)
_classes: Final[dict[tuple[str, str], type[BaseException]]] = {}
_MOST_CLASSES: Final = 1000


def to_facts(error: BaseException, depth: int = 0) -> dict[str, Any]:
    """``error`` as plain JSON."""
    kind = type(error)
    facts = {
        "module": str(kind.__module__),
        "name": str(kind.__qualname__),
        "message": _message(error),
        "attributes": {name: one for name, one in _attributes(error) if _sendable(one)},
        "frames": [
            [frame.f_code.co_filename, line, frame.f_code.co_name, str(frame.f_globals.get("__name__"))]
            for frame, line in walk_tb(error.__traceback__)
        ][-_FRAMES:],
        "suppress": bool(error.__suppress_context__),
    }
    for name, one in (("cause", error.__cause__), ("context", error.__context__)):
        if one is not None and depth < _CAUSES:
            facts[name] = to_facts(one, depth + 1)
    return facts


def _message(error: BaseException) -> str:
    try:
        text = str.__str__(str(error))
    except BaseException:  # a broken __str__ must not hide the failure
        text = f"({type(error).__name__} cannot be shown: its __str__ raises)"
    return _clean(text)


def _clean(text: str) -> str:
    return text[:_TEXT].encode("utf-8", "replace").decode()


def _attributes(error: BaseException) -> Iterator[tuple[str, Any]]:
    held = getattr(error, "__dict__", None)
    if isinstance(held, dict):
        yield from ((name, one) for name, one in held.items() if isinstance(name, str) and not name.startswith("_"))


def _sendable(value: Any) -> bool:
    if type(value) not in _PLAIN or (type(value) is float and value - value != 0):
        return False
    return type(value) is not str or (len(value) <= _TEXT and _clean(value) == value)


def rebuilt(facts: dict[str, Any]) -> BaseException:
    """The exception that ``to_facts`` described."""
    error = _instance(_class_of(str(facts["module"]), str(facts["name"])), str(facts["message"]))
    for name, one in facts["attributes"].items():
        try:
            setattr(error, name, one)
        except Exception:  # noqa: S112 - a class may refuse what it holds itself: then the message says it
            continue
    for name in ("cause", "context"):
        if name in facts:
            setattr(error, f"__{name}__", rebuilt(facts[name]))
    error.__suppress_context__ = bool(facts["suppress"])
    return error.with_traceback(_traceback(facts["frames"]))


class _Rebuilt:
    """What every rebuilt exception says of itself: the words of the original."""

    original_message = ""

    def __str__(self) -> str:
        return self.original_message


def _class_of(module: str, name: str) -> type[BaseException]:
    """A class of the same name, derived from the original one if this process knows it. Always the same, so that
    failures are found to be one."""
    known = _classes.get((module, name))
    if known is not None:
        return known
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if found is not None and hasattr(found, "__dict__") else None
    base = found if isinstance(found, type) and issubclass(found, BaseException) else Exception
    plain = name.rpartition(".")[2]
    try:
        made = type(plain, (_Rebuilt, base), {"__module__": module, "__qualname__": name, "__init__": _nothing})
    except Exception:  # a class that refuses to be derived from
        made = type(plain, (_Rebuilt, Exception), {"__module__": module, "__qualname__": name, "__init__": _nothing})
    if len(_classes) < _MOST_CLASSES:
        _classes[module, name] = made
    return made


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    """In place of the original ``__init__``, which may ask for anything."""


def _instance(kind: type[BaseException], message: str) -> BaseException:
    for made_of in (kind, type(kind.__name__, (_Rebuilt, Exception), {"__module__": kind.__module__})):
        try:
            error: Any = made_of.__new__(made_of, message)
            error.original_message = message
        except Exception:  # noqa: S112 - a class of the user's, with a __new__ of its own: the plain one is next
            continue
        if isinstance(error, BaseException):
            return error
    return RuntimeError(message)


def _traceback(frames: list[list[Any]]) -> TracebackType | None:
    """A traceback that shows these places: each frame is one of a code of that name, in that file, at that line."""
    below: TracebackType | None = None
    for file, line, function, module in reversed(frames):
        names: dict[str, Any] = {"take": sys._getframe, "__name__": module}
        code = _code.replace(co_filename=str(file), co_name=str(function), co_firstlineno=max(int(line), 1))
        exec(code, names)  # noqa: S102 - code of our own, which takes its frame and nothing else
        below = TracebackType(below, names["frame"], 0, max(int(line), 1))
    return below
