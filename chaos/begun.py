"""When the worker let a job start, by the machine's clock: a freeze may come between that and the job's first line."""

from __future__ import annotations

import time
from typing import Any

from ledger import BEGUN, wall

from henchman.work.current import running

__all__ = ["begun"]


def begun() -> str:
    """The last word of the line that says that a job starts."""
    run: Any = running.get()
    return f"{BEGUN}{wall() - (time.monotonic() - run.started):.6f}"  # no stop of the process stops this clock
