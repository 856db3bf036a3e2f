"""How a batch stands, read in one look whatever its size."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from henchman.errors import UnknownBatch
from henchman.store.batches import Facts

__all__ = ["FINAL", "LIVE", "BatchStatus", "Reason", "status_of"]

LIVE = ("blocked", "scheduled", "enqueued", "working", "retrying")
FINAL = ("finished", "failed", "error", "cancelled", "expired")


class Reason(msgspec.Struct, frozen=True):
    """Why jobs failed: ``status`` is failed or error, ``count`` how many said the same."""

    status: str
    reason: str
    count: int


class BatchStatus(msgspec.Struct, frozen=True):
    """A batch as it stands now. Times are Unix seconds, durations seconds; None: not yet, or not known.

    ``state``: "open" (jobs may come), "abandoned" (open, but whoever filled it is gone), "closed", "complete".
    ``why``: "" or aborted, cancelled, expired, invalidated. ``counts``: jobs by status; ``done``: those that ended.
    ``rate``: jobs that ended a second, since the first did. ``eta``: seconds until all have, at that rate, of a batch
    that gets no more. ``children``: batches that are part of it, ``bad_children``: those of them that are complete and
    did not end well. ``reasons``: the most frequent first. ``called``: callbacks that were enqueued, by the generation
    in which.
    """

    id: str
    description: str
    tags: list[str]
    state: str
    why: str
    total: int
    counts: dict[str, int]
    done: int
    percent: float
    rate: float
    eta: float | None
    generation: int
    children: int
    bad_children: int
    parent: str | None
    created: float
    closed: float | None
    completed: float | None
    expires: float | None
    reasons: list[Reason]
    called: dict[str, list[int]]

    @property
    def well(self) -> bool:
        """Whether it is complete, and every job and every batch in it ended well: ``on_success`` is called then."""
        fine = not self.why and not self.bad_children and self.counts["finished"] == self.total
        return fine and self.state == "complete"

    @property
    def failures(self) -> list[Reason]:
        """``reasons``, as they are called in the design."""
        return self.reasons

    @property
    def failed(self) -> int:
        """How many ended badly: failed, error."""
        return self.counts["failed"] + self.counts["error"]


def _time(text: str | None) -> float | None:
    return float(text) if text else None


def status_of(batch: str, told: Facts) -> BatchStatus:
    """What ``told`` says; UnknownBatch when it is nothing."""
    facts = told.facts
    if not facts:
        raise UnknownBatch(f"there is no batch {batch!r} on this server (any more)")
    counts = {status: int(facts.get(f"n:{status}", 0)) for status in (*LIVE, *FINAL)}
    done = sum(counts[status] for status in FINAL)
    total = int(facts.get("total", 0))
    state, completed = facts["state"], _time(facts.get("completed"))
    first = _time(facts.get("first"))
    spent = (completed or told.now) - first if first is not None else 0.0
    rate = done / max(spent, 0.001) if done else 0.0
    reasons = [Reason(*name.partition(" ")[::2], count) for name, count in told.reasons.items()]
    return BatchStatus(
        id=batch,
        description=facts.get("description", ""),
        tags=msgspec.json.decode(facts.get("tags") or "[]", type=list[str]),
        state="abandoned" if state == "open" and not told.filled else state,
        why=facts.get("why", ""),
        total=total,
        counts=counts,
        done=done,
        percent=100.0 * done / total if total else (100.0 if state == "complete" else 0.0),
        rate=rate,
        eta=(total - done) / rate if state == "closed" and rate else None,
        generation=int(facts.get("generation", 1)),
        children=int(facts.get("children", 0)),
        bad_children=int(facts.get("bad_children", 0)),
        parent=facts.get("parent") or None,
        created=float(facts["created"]),
        closed=_time(facts.get("closed")),
        completed=completed,
        expires=_time(facts.get("expires")),
        reasons=sorted(reasons, key=lambda one: (-one.count, one.status, one.reason)),
        called=_called(facts),
    )


def _called(facts: Mapping[str, str]) -> dict[str, list[int]]:
    called: dict[str, list[int]] = {}
    for name in facts:
        if name.startswith("called:"):
            which, _, generation = name.removeprefix("called:").rpartition(":")
            called.setdefault(which, []).append(int(generation))
    return {which: sorted(generations) for which, generations in sorted(called.items())}
