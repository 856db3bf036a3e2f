"""When the worker let a job start, by the ledger's clock: a freeze may come between that and the job's first line."""

from __future__ import annotations

from typing import Any

from ledger import BEGUN, EPOCH
from suspended import true_monotonic

from henchman.work.current import running

__all__ = ["begun"]


def begun() -> str:
    """The last word of the line that says that a job starts."""
    run: Any = running.get()
    return f"{BEGUN}{EPOCH + true_monotonic(run.started):.6f}"
