"""Work written once, as a generator of steps, and done in a thread or on an event loop.

A step is a callable without arguments; the generator gets what it returns, or gave when awaited, and what it raises.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from typing import Any

__all__ = ["Step", "Steps", "adrive", "drive", "settled"]

Step = Callable[[], Any]
Steps = Generator[Step, Any, None]


def drive(steps: Steps) -> None:
    """Take ``steps`` in this thread, to their end. Whatever is raised, here too, is raised in the generator."""
    answer: Any = None
    problem: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if problem is None else steps.throw(problem)
            problem = None
            answer = step()
        except BaseException as error:
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                if isinstance(error, StopIteration):
                    return
                raise
            answer, problem = None, error


async def adrive(steps: Steps) -> None:
    """``drive`` for steps that may have to be awaited."""
    answer: Any = None
    problem: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if problem is None else steps.throw(problem)
            problem = None
            answer = await settled(step())
        except BaseException as error:
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                if isinstance(error, StopIteration):
                    return
                raise
            answer, problem = None, error


async def settled(answer: Any) -> Any:
    """``answer``, awaited where it can be."""
    return await answer if inspect.isawaitable(answer) else answer
