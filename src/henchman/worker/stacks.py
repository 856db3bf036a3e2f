"""Where the threads of this process stand: for a dump, and for a blocked event loop."""

from __future__ import annotations

import sys
import threading
import traceback

__all__ = ["frames_of", "thread_stacks"]


def frames_of(thread_id: int | None) -> list[str]:
    """Where a thread stands now: ``path:line:in function``, newest frame first; empty when it is gone."""
    top = sys._current_frames().get(thread_id or 0)
    return (
        [f"{one.filename}:{one.lineno}:in {one.name}" for one in reversed(traceback.extract_stack(top))] if top else []
    )


def thread_stacks() -> dict[int, tuple[str, list[str]]]:
    """Name and ``frames_of`` every thread, by its id; of two of one name the second tells its id too."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found: dict[int, tuple[str, list[str]]] = {}
    taken = set[str]()
    for ident in list(sys._current_frames()):
        name = names.get(ident, str(ident))
        if name in taken:
            name = f"{name} ({ident})"
        taken.add(name)
        found[ident] = (name, frames_of(ident))
    return found
