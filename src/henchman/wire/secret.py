"""The secret arguments of a job, found in texts in each form in which they usually stand there, and hidden.

Its limits first. Texts of one or two characters, True, False and None are not searched: they stand everywhere, and
every message would be stars (a list or object that holds them is still found as a whole). Names of fields are shown,
other keys are not. What the job changed or cut (a card number's last four digits) is not found.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import enum
import json
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from henchman.kernel.text import words_of

__all__ = ["MASK", "NO_SECRETS", "SEALED", "Mask", "MaskedJob", "Secrets", "cover", "is_sealed", "marked", "masked"]
__all__ += ["places_of", "shown_arguments", "without_secrets"]

#: (wire name, args, kwargs) → the same with secret values replaced; the app's registry knows which they are.
Mask = Callable[[str, list[Any], dict[str, Any]], tuple[list[Any], dict[str, Any]]]

MASK = "***"
ENCRYPTED = "encrypted"  #: what is shown of a sealed value
SEALED = "encrypted:"  #: how a sealed value begins, see ``wire.encryption``
_SHORTEST = 3
_TEXTS_MOST = 5_000
_VALUES_MOST = 2_000
_LONG = 20_000  # characters; of longer texts only the first spelling is searched
_HIDDEN = "(not shown: too much of it may be secret)"

#: How a text stands in another one: in a repr, in JSON, in a repr inside of quotes of the other kind, in an URL.
_WAYS: tuple[Callable[[str], str], ...] = (
    lambda text: repr(text)[1:-1],
    lambda text: repr(text + "'\"")[1:-4],  # both quotes in it: one is escaped
    lambda text: ascii(text)[1:-1],
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
)


class Secrets:
    """The texts to be hidden, the longest first. Its own texts are not shown either, whatever is done with it."""

    __slots__ = ("_all", "_texts")

    def __init__(self, texts: Iterable[str] = (), *, all: bool = False) -> None:
        self._texts = tuple(sorted({one for one in texts if len(one) >= _SHORTEST}, key=len, reverse=True))
        self._all = all

    @classmethod
    def of(cls, values: Iterable[Any]) -> Secrets:
        """Those of ``values`` and of all that is in them; of too many, every text is hidden whole."""
        found: set[str] = set()
        for count, value in enumerate(_inside(list(values))):
            if count > _VALUES_MOST or len(found) > _TEXTS_MOST:
                return cls(all=True)
            found.update(_texts(value))
        return cls(found)

    def __bool__(self) -> bool:
        return self._all or bool(self._texts)

    def __or__(self, other: Secrets) -> Secrets:
        return Secrets((*self._texts, *other._texts), all=self._all or other._all) if self and other else self or other

    def __repr__(self) -> str:
        return MASK

    def __reduce__(self) -> tuple[Any, ...]:
        return Secrets, ()  # a log record that is sent elsewhere takes none with it

    def hide(self, text: str) -> str:
        """``text`` with ``***`` in place of each."""
        if self._all:
            return _HIDDEN if text else ""
        for one in self._texts:
            if one in text:
                text = text.replace(one, MASK)
        return text


NO_SECRETS = Secrets()


def places_of(job: Mapping[str, Any]) -> list[Any]:
    """Where the payload itself says that its secret arguments stand (``Signature.secret_places``)."""
    ours = job.get("hm")
    places = ours.get("secret") if isinstance(ours, dict) else None
    return places if isinstance(places, list) else []


def is_sealed(value: Any) -> bool:
    """Whether an argument, as it travels, is encrypted."""
    return isinstance(value, str) and value.startswith(SEALED)


def cover(value: Any) -> str:
    """What people see in place of a secret argument."""
    return ENCRYPTED if value is ENCRYPTED or is_sealed(value) else MASK  # what was covered once stays so


def masked(places: list[Any], args: list[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with ``***`` in those places; of encrypted ones it is said that they are."""
    first = min((-1 - one for one in places if isinstance(one, int) and one < 0), default=len(args))
    shown = [cover(one) if index in places or index >= first else one for index, one in enumerate(args)]
    return shown, {name: cover(one) if name in places or "**" in places else one for name, one in kwargs.items()}


def shown_arguments(job: Mapping[str, Any], mask: Mask | None) -> tuple[list[Any], dict[str, Any]]:
    """``args`` and ``kwargs`` of a payload, masked as it says itself, and by ``mask``."""
    args, kwargs, name = job.get("args"), job.get("kwargs"), job.get("class")
    plain = args if isinstance(args, list) else [] if args is None else [args]
    plain, named = masked(places_of(job), plain, kwargs if isinstance(kwargs, dict) else {})
    return (plain, named) if mask is None else mask(name if isinstance(name, str) else "", plain, named)


class MaskedJob(dict[str, Any]):
    """A payload as handlers get it: a copy with ``***`` in place of each secret argument."""

    __slots__ = ("_whole",)

    def __init__(self, job: Mapping[str, Any], mask: Mask) -> None:
        super().__init__(job)
        self._whole = {name: job[name] for name in ("args", "kwargs") if name in job}
        self.update(zip(self._whole, shown_arguments(job, mask), strict=False))

    def unmasked(self) -> dict[str, Any]:
        """The payload with its secret arguments: not for a log, nor for what reports errors."""
        return {**self, **self._whole}


def marked(places: list[Any], args: Iterable[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments in those places."""
    args = list(args)
    shown, named = masked(places, args, kwargs)
    found = [one for one, seen in zip(args, shown, strict=True) if seen is MASK or seen is ENCRYPTED]
    return [*found, *(kwargs[name] for name, seen in named.items() if seen is MASK or seen is ENCRYPTED)]


def _inside(waiting: list[Any]) -> Iterator[Any]:
    """All values in ``waiting`` and inside of them, each object once."""
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, (str, bytes, int, float)) or id(value) not in seen:
            seen.add(id(value))
            yield value
            with contextlib.suppress(Exception):  # a user's own attributes
                waiting += _parts(value)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        keys = [key for key in value if not (isinstance(key, str) and key.isidentifier())]
        return [*value.values(), *keys]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, enum.Enum):
        return [value.value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, one.name) for one in dataclasses.fields(value)]
    fields = getattr(type(value), "__struct_fields__", None)  # of msgspec
    if fields is not None:
        return [getattr(value, name) for name in fields]
    return list(vars(value).values()) if hasattr(value, "__dict__") and not isinstance(value, type) else []


def _texts(value: Any) -> set[str]:
    """How one value, without what is in it, may stand in a text."""
    if value is None or isinstance(value, bool):
        return set()
    if isinstance(value, str):
        return _spelt(value)
    found: set[str] = set()
    if isinstance(value, (bytes, bytearray)):
        found = {value.hex(), base64.b64encode(value).decode(), base64.urlsafe_b64encode(value).decode()}
        with contextlib.suppress(UnicodeDecodeError):
            found |= _spelt(value.decode())
    for way in (str, repr, json.dumps, _compact, _grouped):
        with contextlib.suppress(Exception):  # a user's own __str__; a value that is no JSON
            text = way(value)
            found |= {text, text[2:-1]} if isinstance(value, (bytes, bytearray)) else _spelt(text)
    return found


def _spelt(text: str) -> set[str]:
    found = {text, text.strip()}
    if len(text) > _LONG:
        return found
    found |= {line.strip() for line in text.splitlines() if len(line.strip()) >= 8}
    found |= {urllib.parse.quote(text, safe=""), urllib.parse.quote_plus(text)} if not _half(text) else set()
    for _ in range(2):  # the repr of a repr: what KeyError makes of a text that quotes one
        found |= {way(one) for one in found for way in _WAYS}
    return found


def _half(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _grouped(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


# ---- errors

_ERRORS_MOST = 100  # errors in one chain or group; what is beyond is left out
_PLAIN = (str, bytes, int, float, list, tuple, dict, set, frozenset)


def without_secrets(error: BaseException, secrets: Secrets) -> BaseException:
    """``error`` as it is, but with ``***`` in place of ``secrets`` in what it, its causes, notes and parts say.

    Its class is the same; where none can be made that says just this, one of the same name.
    """
    return _copy(error, secrets, {}) if secrets else error


def _copy(error: BaseException, secrets: Secrets, made: dict[int, BaseException]) -> BaseException:
    if id(error) in made or len(made) >= _ERRORS_MOST:
        return made.get(id(error), Exception("(more of them were left out)"))
    if isinstance(error, BaseExceptionGroup):
        made[id(error)] = Exception("(a group that holds itself)")
        args: list[Any] = [secrets.hide(error.message), [_copy(one, secrets, made) for one in error.exceptions]]
    elif isinstance(error, OSError) and error.filename is not None:  # which is not among its args
        given = (error.errno, error.strerror, error.filename, None, error.filename2)
        args = [_hidden(one, secrets) for one in given]
    else:
        args = [_hidden(one, secrets) for one in error.args]
    same = _of_its_class(error, args, secrets)
    copy = made[id(error)] = _stand_in(error, args, secrets) if same is None else same
    for note in getattr(error, "__notes__", ()):
        copy.add_note(secrets.hide(str(note)))
    copy.__cause__ = None if error.__cause__ is None else _copy(error.__cause__, secrets, made)
    copy.__context__ = None if error.__context__ is None else _copy(error.__context__, secrets, made)
    copy.__suppress_context__ = error.__suppress_context__
    return copy.with_traceback(error.__traceback__)


def _of_its_class(error: BaseException, args: list[Any], secrets: Secrets) -> BaseException | None:
    """An error of the same class, whose ``__init__`` is not called; None when that does not say what ``error`` says."""
    kind = type(error)
    try:
        made: BaseException = kind.__new__(kind, *args)
        known = {name: value for name, value in vars(error).items() if name != "__notes__"}
        vars(made).update({name: _hidden(value, secrets) for name, value in known.items()})
    except Exception:  # a __new__ of the user's
        return None
    return made if words_of(made) == secrets.hide(words_of(error)) else None


def _stand_in(error: BaseException, args: list[Any], secrets: Secrets) -> BaseException:
    """An error of a class that has but the name of its class."""
    kind = type(error)
    group = isinstance(error, BaseExceptionGroup)
    base: type[BaseException] = BaseExceptionGroup if group else Exception
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__str__": base.__str__}
    made: BaseException = type(kind.__name__, (base,), names)(*(args if group else [secrets.hide(words_of(error))]))
    return made


def _hidden(value: Any, secrets: Secrets) -> Any:
    """``value``, or its text without ``secrets`` where that holds one; objects of the user's are left as they are."""
    if not isinstance(value, _PLAIN):
        return value
    text = words_of(value)
    shown = secrets.hide(text)
    return value if shown == text else shown
