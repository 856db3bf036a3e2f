"""Which argument belongs to which parameter, and the sentences for those that do not fit.

As Python binds, but without a frame: keywords of positional parameters find their position, and a default is written
out only where a later position is given.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from henchman.errors import ArgumentError

__all__ = ["Binding"]

_EMPTY = inspect.Parameter.empty


class Binding:
    """The parameters of one function. ``tail`` is the name of ``*args``, ``rest`` that of ``**kwargs``."""

    def __init__(self, parameters: list[inspect.Parameter], name: str, called: str) -> None:
        self.name = name
        self._called = called
        by_kind: dict[Any, list[inspect.Parameter]] = {}
        for parameter in parameters:
            by_kind.setdefault(parameter.kind, []).append(parameter)
        unnamed = by_kind.get(inspect.Parameter.POSITIONAL_ONLY, [])
        places = unnamed + by_kind.get(inspect.Parameter.POSITIONAL_OR_KEYWORD, [])
        keywords = by_kind.get(inspect.Parameter.KEYWORD_ONLY, [])
        tail = by_kind.get(inspect.Parameter.VAR_POSITIONAL)
        rest = by_kind.get(inspect.Parameter.VAR_KEYWORD)
        self.positional = [one.name for one in places]
        self.unnamed = frozenset(one.name for one in unnamed)
        self.tail = tail[0].name if tail else None
        self.rest = rest[0].name if rest else None
        self.least = sum(one.default is _EMPTY for one in places)
        self.most = sys.maxsize if tail else len(places)
        self.required_keywords = [one.name for one in keywords if one.default is _EMPTY]
        self.by_name = [one.name for one in places if one.name not in self.unnamed] + [one.name for one in keywords]
        self._keywords = frozenset(one.name for one in keywords)
        self._required = frozenset(self.required_keywords)
        self._named: list[Any] = [None if one.name in self.unnamed else one.name for one in places]
        self._defaults = [one.default for one in places]
        self._index = {one.name: index for index, one in enumerate(places) if one.name not in self.unnamed}

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional values and the keyword-only ones; ArgumentError in Python's own words."""
        count, more = len(args), len(kwargs)
        if self.least <= count <= self.most and self._keywords >= kwargs.keys() >= self._required:
            return args, kwargs
        if not self._required and self.least <= count + more <= self.most:  # the next positions, all by name
            values = [kwargs[name] for name in self._named[count : count + more] if name in kwargs]
            if len(values) == more:
                return (*args, *values), {}
        return self._bind_slowly(args, kwargs)

    def _bind_slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        count = len(args)
        if count > self.most:
            raise self._refused(self._too_many(count))
        later: dict[int, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in kwargs.items():
            index = self._index.get(name)
            if index is not None:
                if index < count:
                    raise self._refused(f"got multiple values for argument {name!r}")
                later[index] = value
            elif name in self._keywords or self.rest is not None:
                rest[name] = value
            elif name in self.unnamed:
                raise self._refused(f"got a positional-only argument passed as keyword: {name!r}")
            else:
                raise self._refused(f"got an unexpected keyword argument {name!r}")
        if count < self.least:
            missing = [self.positional[i] for i in range(count, self.least) if i not in later]
            if missing:
                raise self._refused(_missing(missing, "positional"))
        if self.required_keywords:
            unsaid = [name for name in self.required_keywords if name not in rest]
            if unsaid:
                raise self._refused(_missing(unsaid, "keyword-only"))
        if later:
            defaults = self._defaults
            gap = range(count, max(later) + 1)
            args += tuple([later[i] if i in later else defaults[i] for i in gap])
        return args, rest

    def check(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """ArgumentError when arguments out of a payload do not fit; a positional one may come by name."""
        count = len(args)
        if count > self.most:
            raise ArgumentError(f"{self.name}: {count} argument{_s(count)} given, takes {self._range()}")
        for name in kwargs:
            index = self._index.get(name)
            if index is not None and index < count:
                raise ArgumentError(f"{self.name}: argument {name!r} is given twice")
            if index is None and name not in self._keywords and self.rest is None:
                raise ArgumentError(f"{self.name}: unexpected argument {name[:100]!r}")
        by_name = {self._index[name] for name in kwargs if name in self._index}
        missing = [self.positional[i] for i in range(count, self.least) if i not in by_name]
        missing += [name for name in self.required_keywords if name not in kwargs]
        if missing:
            raise ArgumentError(f"{self.name}: missing argument{_s(len(missing))} {', '.join(map(repr, missing))}")

    def _refused(self, why: str) -> ArgumentError:
        return ArgumentError(f"{self._called}() {why}")

    def _range(self) -> str:
        if self.most == sys.maxsize:
            return f"{self.least} or more"
        return str(self.most) if self.least == self.most else f"{self.least} to {self.most}"

    def _too_many(self, count: int) -> str:
        most = len(self._defaults)
        takes = f"{most}" if self.least == most else f"from {self.least} to {most}"
        return f"takes {takes} positional argument{_s(most)} but {count} {'was' if count == 1 else 'were'} given"


def _missing(names: list[str], kind: str) -> str:
    quoted = [repr(name) for name in names]
    listed = " and ".join(quoted) if len(quoted) <= 2 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
    return f"missing {len(names)} required {kind} argument{_s(len(names))}: {listed}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
