"""``app.ordered``: the part of the app that defines ordered queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from henchman.ordered.decorator import DerivingDecorator, OrderedDecorator
from henchman.ordered.definition import OrderedJob
from henchman.ordered.push import Home
from henchman.ordered.worker_class import OrderedWorker

__all__ = ["DefinesOrdered"]

T = TypeVar("T")
W = TypeVar("W", bound=type[OrderedWorker])

class DefinesOrdered:
    """What an app inherits."""

    @overload
    def ordered(self: Home, target: W, /) -> W: ...
    @overload
    def ordered(self: Home, target: Callable[[dict[str, list[T]]], Any], /) -> OrderedJob[T]: ...
    @overload
    def ordered(
        self: Home, *, name: str | None = None, derive: Callable[[Any], Any], **options: Any
    ) -> DerivingDecorator: ...
    @overload
    def ordered(self: Home, *, name: str | None = None, derive: None = None, **options: Any) -> OrderedDecorator: ...
