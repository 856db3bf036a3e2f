"""What becomes of a job that waits for another, by how that one ends and what the job says: the same in a worker and in
memory."""

from __future__ import annotations

from typing import Any, Final

from henchman import Discard, Failure, Kill

__all__ = ["ENDS", "HOW", "POLICIES", "becomes"]

#: how the job that is waited for ends; it is never retried
ENDS: Final[dict[str, BaseException | None]] = {
    "done": None,
    "failed": Failure("no"),
    "discarded": Discard("no"),
    "gone": ValueError("no"),
    "dead": Kill("no"),
}
#: what ``current_job().needs`` says of it then
HOW: Final = {"done": "finished", "dead": "dead"} | dict.fromkeys(("failed", "discarded", "gone"), "over")
#: what its dependants say, by their names
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "usual": {},
    "run": {"on_failed": "run"},
    "fail": {"on_failed": "fail"},
    "cancel": {"on_failed": "cancel"},
    "run, wait for the dead": {"on_failed": "run", "on_dead": "wait"},
    "cancel of the dead": {"on_dead": "cancel"},
}


def becomes(end: str, policy: str) -> str:
    """ "ran", "dead", "cancelled", or "blocked" still."""
    if end == "done":
        return "ran"
    said = POLICIES[policy]
    failed = said.get("on_failed", "wait")
    chosen = said.get("on_dead", failed) if end == "dead" else failed
    return {"run": "ran", "fail": "dead", "cancel": "cancelled", "wait": "blocked"}[chosen]
