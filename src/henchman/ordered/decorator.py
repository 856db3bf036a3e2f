"""What ``app.ordered(queue=…)`` gives: it makes an ordered job of a function, or of a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from henchman.ordered.definition import DerivingJob, OrderedJob, define_ordered
from henchman.ordered.push import Home
from henchman.ordered.worker_class import OrderedWorker, define_class

__all__ = ["DerivingDecorator", "OrderedDecorator"]

T = TypeVar("T")
W = TypeVar("W", bound=type[OrderedWorker])


class _Decorator:
    """A function becomes an ordered job; a class derived from ``OrderedWorker`` stays what it is."""

    def __init__(self, home: Home, name: str | None, options: dict[str, Any]) -> None:
        self._home = home
        self._name = name
        self._options = options

    def _made(self, target: Any) -> Any:
        if isinstance(target, type):
            define_class(target, self._home, self._name, self._options)
            return target
        return define_ordered(target, self._home, self._name, self._options)


class OrderedDecorator(_Decorator):
    """What it makes of a function is pushed an id and a payload."""

    @overload
    def __call__(self, target: W, /) -> W: ...
    @overload
    def __call__(self, target: Callable[[dict[str, list[T]]], Any], /) -> OrderedJob[T]: ...
    def __call__(self, target: Any, /) -> Any:
        return self._made(target)


class DerivingDecorator(_Decorator):
    """With ``derive=``: what it makes of a function is pushed payloads alone."""

    @overload
    def __call__(self, target: W, /) -> W: ...
    @overload
    def __call__(self, target: Callable[[dict[str, list[T]]], Any], /) -> DerivingJob[T]: ...
    def __call__(self, target: Any, /) -> Any:
        return self._made(target)
