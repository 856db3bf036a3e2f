"""What a class must look like to be an iterable job, and what is read off it when it is defined."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from henchman.errors import DefinitionError

__all__ = ["HOOKS", "arguments", "blank_of", "checked_class", "checked_limit", "inner", "is_async"]

HOOKS = ("on_start", "on_resume", "on_stop", "on_cancel", "on_complete")


def blank_of(cls: type[Any]) -> Any:
    """An instance to look at: its ``__init__`` has not run."""
    make: Any = cls.__new__
    return make(cls)


def checked_limit(value: Any) -> float | None:
    """``max_iteration_runtime`` in seconds; DefinitionError when it is none."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e10:
        raise DefinitionError(f"max_iteration_runtime={value!r}: give seconds (more than zero) or a timedelta")
    return float(seconds)


def inner(method: Any) -> Any:
    """The function that somebody wrote, beneath binding and decorators."""
    return inspect.unwrap(getattr(method, "__func__", method))


def checked_class(cls: Any, base: type[Any]) -> type[Any]:
    """``cls``, if an iterable job can be made of it; DefinitionError says what is wrong."""
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise DefinitionError(f"@app.iterable is for classes derived from henchman.IterableJob, not for {cls!r}")
    name = cls.__qualname__
    for method in ("build", "each_iteration"):
        if not callable(getattr(cls, method, None)):
            raise DefinitionError(f"{name} has no method {method}")
    if hasattr(cls, "perform"):
        raise DefinitionError(f"{name}.perform: an iterable job has build and each_iteration instead")
    if any(one.default is one.empty and one.kind < one.VAR_POSITIONAL for one in _parameters(cls)):
        raise DefinitionError(f"{name}() must need no arguments: those of the job go to build and each_iteration")
    each = cls.each_iteration  # type: ignore[attr-defined]  # looked up above
    if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
        raise DefinitionError(f"{name}.each_iteration is a generator; it returns, build is what yields")
    return cls


def _parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def is_async(cls: type[Any], job: Any) -> bool:
    """Whether the job must be awaited; DefinitionError when only a hook says so."""
    awaited = inspect.iscoroutinefunction(job.each_iteration) or inspect.iscoroutinefunction(job.build)
    awaited = awaited or inspect.isasyncgenfunction(job.build)
    for hook in HOOKS:
        if inspect.iscoroutinefunction(getattr(job, hook)) and not awaited:
            raise DefinitionError(f"{cls.__qualname__}.{hook} is async; make each_iteration async too")
    return awaited


def arguments(cls: type[Any], job: Any) -> Callable[..., Any]:
    """A function with the parameters of the job: those of ``each_iteration`` after the item."""
    given = _parameters(job.each_iteration)
    if not given or given[0].kind > inspect.Parameter.VAR_POSITIONAL:
        raise DefinitionError(f"{cls.__qualname__}.each_iteration takes no item")
    mine = given if given[0].kind == inspect.Parameter.VAR_POSITIONAL else given[1:]
    if not any(one.kind == one.VAR_KEYWORD or one.name == "cursor" for one in _parameters(job.build)):
        raise DefinitionError(f"{cls.__qualname__}.build takes no cursor; add one: def build(self, …, *, cursor)")
    theirs = [one for one in _parameters(job.build) if one.name != "cursor"]
    loose = any(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in (*mine, *theirs))
    if not loose and [one.name for one in mine] != [one.name for one in theirs]:
        raise DefinitionError(
            f"{cls.__qualname__}: build takes ({', '.join(one.name for one in theirs)}) and each_iteration, after the "
            f"item, ({', '.join(one.name for one in mine)}); give both the arguments of the job"
        )

    def stand_in() -> None: ...

    shown = functools.update_wrapper(stand_in, inner(job.each_iteration))
    shown.__qualname__ = cls.__qualname__
    shown.__signature__ = inspect.Signature(mine)  # type: ignore[attr-defined]  # inspect reads it
    return shown
