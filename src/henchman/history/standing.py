"""A batch that only history knows, in the words in which the server tells of one (``batch.status``)."""

from __future__ import annotations

from typing import Any

from henchman.config_history import ENDED
from henchman.history.records import STATUSES, Batch

__all__ = ["standing"]


def standing(found: Batch) -> dict[str, Any]:
    """How it stands, as plain values. Reasons and callbacks are not recorded: they are empty."""
    counts = {status: found.counts.get(status, 0) for status in STATUSES}
    done = sum(counts[status] for status in ENDED)
    told = found.to_json()
    del told["position"]
    return told | {
        "counts": counts,
        "done": done,
        "percent": 100.0 * done / found.total if found.total else (100.0 if found.state == "complete" else 0.0),
        "rate": 0.0,
        "eta": None,
        "children": 0,
        "bad_children": 0,
        "reasons": [],
        "called": {},
    }
