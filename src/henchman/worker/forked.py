"""The child of a process that a job forked (``os.fork``, ``multiprocessing``): it is no worker.

It has a copy of everything and none of the threads: no slot, lease, connection or pipe of its parent is its own. It may
do what it likes in the job, and ends where the job's frame does.
"""

from __future__ import annotations

import os
import sys
import traceback
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["end_child", "in_child"]

_told: weakref.WeakSet[Any] = weakref.WeakSet()


def in_child(who: Any) -> None:
    """Call ``who.forked()`` in every child that this process forks, as long as ``who`` lives."""
    _told.add(who)


def _tell() -> None:
    for who in list(_told):
        who.forked()


os.register_at_fork(after_in_child=_tell)


def end_child(problem: BaseException | None, leave: Callable[[int], NoReturn] = os._exit) -> NoReturn:
    """End a forked child as Python would have: status 0 when the job returned, that of ``sys.exit()``, or 1."""
    status = 0
    if isinstance(problem, SystemExit):
        status = problem.code if isinstance(problem.code, int) else int(problem.code is not None)
    try:
        if problem is not None and not isinstance(problem, SystemExit):
            status = 1
            traceback.print_exception(problem)
        elif status and not isinstance(getattr(problem, "code", 0), int):
            sys.stderr.write(f"{problem}\n")
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        leave(status & 0xFF)
