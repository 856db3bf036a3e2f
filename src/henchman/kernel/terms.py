"""The grammar of a search, one for every box, command and program: ``class:shop.charge,shop.mail -queue:low took:>30s
refused``. Terms hold together; values with a comma between them are alternatives; ``-`` turns a term round; a ``*`` at
the end of a value leaves its end open; what needs spaces, or is not to be taken for a term, stands in quotes."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from henchman.errors import ArgumentError
from henchman.kernel.text import SECONDS_OF, nearest, visible

__all__ = ["Bound", "Kind", "Term", "Terms", "Value", "quoted", "terms_of"]

#: what a term takes: texts, texts behind a path (``args.0:42``), bounds of a number, of seconds, of bytes, or a moment
Kind = Literal["text", "path", "number", "seconds", "bytes", "moment"]
MOST: Final = 20  # terms of a search
_LONGEST: Final = 2000  # characters of one
_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_VALUE: Final = rf'(?:{_STRING}|[^\s",][^\s,]*)'
_TERM: Final = re.compile(rf'(?<!\S)(-?)([a-z]+)(\.[^\s:"]+)?:({_VALUE}(?:,{_VALUE})*)(?!\S)')
_ONE_VALUE: Final = re.compile(_VALUE)
_QUOTED: Final = re.compile(_STRING)
_BARE: Final = re.compile(r'[^\s"\\,*<>=-][^\s"\\,*]*')
_BOUND: Final = re.compile(r"(>=|<=|>|<|=?)([0-9]{1,12}(?:\.[0-9]{1,6})?)([a-zA-Z]{0,5})")
_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}
_UNITS: Final[Mapping[Kind, Mapping[str, float]]] = {
    "number": {"": 1},
    "seconds": {"": 1, "ms": 0.001, "min": 60, **SECONDS_OF},
    "bytes": {"": 1, "b": 1, "k": 1024, "kb": 1024, "m": 1024**2, "mb": 1024**2},
}
_FORMS: Final[Mapping[Kind, str]] = {
    "number": "a bound such as >3, <=10 or 2",
    "seconds": "a bound such as >30s, <500ms, >=5m or <2h",
    "bytes": "a bound such as >64k or <1m",
}
_NEAR: Final = 0.8  # how alike a word is to a term's name that was probably meant


class Value(NamedTuple):
    """A text that is asked for, as a whole, or (``begins``) as the beginning of one."""

    text: str
    begins: bool = False

    def fits(self, other: object) -> bool:
        """Whether ``other`` is that."""
        if not isinstance(other, str):
            return False
        return other.startswith(self.text) if self.begins else other == self.text


class Bound(NamedTuple):
    """A bound of numbers, in seconds or bytes where it is one of these."""

    sign: str
    limit: float

    def fits(self, other: float | None) -> bool:
        """Whether a number is within it; what is not known never is."""
        return other is not None and _SIGNS[self.sign](other, self.limit)


class Term(NamedTuple):
    """One term: its name, the ``path`` behind it (``args.0.id`` → 0, id), and what it asks for: one of these, or
    (``negated``) none of them. ``source``: as it was written."""

    name: str
    path: Sequence[str]
    values: Sequence[Value]
    bounds: Sequence[Bound]
    negated: bool
    source: str

    def holds(self, *others: object) -> bool:
        """Whether one of these values is asked for, or (``negated``) is not to be there."""
        return any(value.fits(one) for one in others for value in self.values)

    def within(self, number: float | None) -> bool:
        """Whether a number is within one of the bounds, that are asked for or (``negated``) are not to hold."""
        return any(one.fits(number) for one in self.bounds)

    @property
    def only(self) -> str:
        """The one text that it asks for as a whole; empty where it asks for something else."""
        [one, *others] = self.values or [Value("")]
        return "" if others or one.begins or self.negated else one.text


class Terms(NamedTuple):
    """The terms of a search, and the text beside them."""

    terms: Sequence[Term]
    text: str


def terms_of(said: str, known: Mapping[str, Kind]) -> Terms:
    """What somebody wrote, with the ``known`` terms. Whatever is no term is text (``shop:77``, an address); a text that
    is in quotes as a whole is what stands in them. ArgumentError says what is wrong with a term, and of a name that is
    nearly a known one, which that is."""
    if len(said) > _LONGEST:
        raise ArgumentError(f"the search has {len(said):,} characters; it may have {_LONGEST:,}")
    found = [one for one in _TERM.finditer(said) if one[2] in known or _nearly(one[2], one[0], known)]
    if len(found) > MOST:
        raise ArgumentError(f"the search has {len(found)} terms; it may have {MOST}")
    rest, at = [], 0
    for one in found:
        rest.append(said[at : one.start()])
        at = one.end()
    rest.append(said[at:])
    text = " ".join(" ".join(rest).split()) if found else said
    return Terms([_term(one, known[one[2]]) for one in found], _unquoted(text))


def _nearly(name: str, source: str, known: Mapping[str, Kind]) -> bool:
    """False; ArgumentError for what is probably a slip."""
    near = nearest(name, known, _NEAR)
    if near:
        words = f"{visible(name)}: is no term of a search; did you mean {near}:? As text it stands in quotes:"
        raise ArgumentError(f"{words} {json.dumps(visible(source), ensure_ascii=False)}")
    return False


def _term(one: re.Match[str], kind: Kind) -> Term:
    minus, name, behind, said = one[1], one[2], one[3] or "", one[4]
    path = [part for part in behind[1:].split(".") if part]
    if (kind == "path") is not bool(path):
        form = f"a place: {name}.0:42 or {name}.shop:77" if kind == "path" else f"no path: {name}:{said}"
        raise ArgumentError(f"{visible(one[0])}: {name} needs {form}")
    sources = _ONE_VALUE.findall(said)
    bounds = [_bound(name, source, kind) for source in sources] if kind in _UNITS else []
    values = [] if bounds else [_value(source) for source in sources]
    return Term(name, path, values, bounds, bool(minus), one[0])


def _value(source: str) -> Value:
    begins = source.endswith("*") and not source.startswith('"')
    return Value(_unquoted(source.removesuffix("*") if begins else source), begins)


def _bound(name: str, source: str, kind: Kind) -> Bound:
    found, units = _BOUND.fullmatch(source), _UNITS[kind]
    if found is None or found[3].lower() not in units:
        raise ArgumentError(f"{name}:{visible(source)}: {name} needs {_FORMS[kind]}")
    sign, limit = found[1] or "=", float(found[2]) * units[found[3].lower()]
    if sign == "=" and kind != "number":
        raise ArgumentError(f"{name}:{visible(source)}: say more or less: {name}:>{source} or {name}:<{source}")
    return Bound(sign, limit)


def _unquoted(value: str) -> str:
    """What stands in the quotes, where these hold the whole of it."""
    try:
        return str(json.loads(value)) if _QUOTED.fullmatch(value) else value
    except ValueError:
        return value


def quoted(value: str) -> str:
    """A value as it stands behind a term's colon."""
    return value if _BARE.fullmatch(value) else json.dumps(value, ensure_ascii=False)
