"""``app.iterable``: the part of the app that defines iterable jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, overload

from henchman.iterable.job import ClassDecorator, FunctionDecorator

__all__ = ["DefinesIterables"]

class DefinesIterables:
    """What an app inherits."""

    @overload
    def iterable(
        self: Any,
        *,
        over: Callable[..., Any],
        name: str | None = None,
        max_iteration_runtime: float | timedelta | None = None,
        **options: Any,
    ) -> FunctionDecorator: ...
    @overload
    def iterable(
        self: Any,
        *,
        over: None = None,
        name: str | None = None,
        max_iteration_runtime: float | timedelta | None = None,
        **options: Any,
    ) -> ClassDecorator: ...
