"""An app with one long job of each kind, for tests with real worker processes.

Each item writes the line ``item <number> <pid>`` to the file named by ``ACTING_TRACE``. As soon as there is a file
``<trace>.open`` items take no time any more. ``ACTING_SAVE``: seconds between two saves, instead of 5.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from henchman import App, IterableJob
from henchman.iterable import execution
from henchman.iterators import over_range

execution.SAVE_EVERY = float(os.environ.get("ACTING_SAVE", execution.SAVE_EVERY))
app = App()


def note(*words: Any) -> None:
    """One line to the trace; lines of several processes never mix."""
    file = os.open(os.environ["ACTING_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{' '.join(map(str, words))} {os.getpid()}\n".encode())
    finally:
        os.close(file)


def pace(pause: float) -> float:
    """Seconds that an item takes."""
    return 0.0 if os.path.exists(os.environ["ACTING_TRACE"] + ".open") else pause


@app.iterable(name="count")
class Count(IterableJob[[int, float]]):
    def build(self, most: int, pause: float, *, cursor: Any) -> Any:
        return over_range(most, cursor=cursor)

    def each_iteration(self, item: int, most: int, pause: float) -> None:
        note("item", item)
        time.sleep(pace(pause))  # the work of an item

    def on_complete(self) -> None:
        note("complete", "count")


@app.iterable(name="acount")
class AsyncCount(IterableJob[[int, float]]):
    def build(self, most: int, pause: float, *, cursor: Any) -> Any:
        return over_range(most, cursor=cursor)

    async def each_iteration(self, item: int, most: int, pause: float) -> None:
        note("item", item)
        await asyncio.sleep(pace(pause))

    def on_complete(self) -> None:
        note("complete", "acount")
