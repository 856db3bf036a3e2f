"""``app.ordered``: the part of the app that defines ordered queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from henchman.ordered.definition import DerivingJob, OrderedJob

__all__ = ["DefinesOrdered"]

T = TypeVar("T")

class DefinesOrdered:
    """What an app inherits."""

    @overload
    def ordered(self: Any, target: Callable[[dict[str, list[T]]], Any], /) -> OrderedJob[T]: ...
    @overload
    def ordered(
        self: Any, *, name: str | None = None, derive: Callable[[Any], Any], **options: Any
    ) -> Callable[[Callable[[dict[str, list[T]]], Any]], DerivingJob[T]]: ...
    @overload
    def ordered(
        self: Any, *, name: str | None = None, derive: None = None, **options: Any
    ) -> Callable[[Callable[[dict[str, list[T]]], Any]], OrderedJob[T]]: ...
