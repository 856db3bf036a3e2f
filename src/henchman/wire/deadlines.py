"""The deadline of a job, ``hm.deadline``: the server's time at which it is over, with all its attempts.

A job that had not begun by then has expired; one that had is dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from henchman.wire import times
from henchman.wire.payload import count, decode, encode

__all__ = ["deadline_of", "forgive_deadline", "has_begun", "is_over", "noted_as_begun", "with_deadline"]


def deadline_of(job: Mapping[str, Any]) -> float | None:
    """The Unix time at which ``job`` is over; None where it has no deadline, or none that can be read."""
    ours = job.get("hm")
    return times.read(ours.get("deadline")) if isinstance(ours, dict) and "deadline" in ours else None


def is_over(job: Mapping[str, Any], now: float) -> bool:
    """Whether the deadline of ``job`` has passed at the server's time ``now``."""
    deadline = deadline_of(job)
    return deadline is not None and now >= deadline


def has_begun(job: Mapping[str, Any]) -> bool:
    """Whether a run of ``job`` has ended before: it failed, or put itself off. Of one that was given back (its worker
    stopped, or died) nobody knows."""
    ours = job.get("hm")
    return count(job.get("retry_count")) is not None or (isinstance(ours, dict) and ours.get("begun") is True)


def with_deadline(stored: bytes, at: float) -> bytes:
    """``stored``, which ``decode`` can read, of a job that is over at the Unix time ``at``."""
    return _with(stored, deadline=times.rounded(at))


def noted_as_begun(stored: bytes) -> bytes:
    """``stored`` of a job that puts itself off, which has begun then; the same where it has no deadline."""
    return _with(stored, begun=True) if b'"deadline"' in stored and deadline_of(decode(stored)) is not None else stored


def forgive_deadline(job: dict[str, Any], now: float) -> None:
    """``job`` comes back by hand: whoever does that wants it to run, also after its deadline, which it loses then."""
    if is_over(job, now):
        job["hm"] = {name: value for name, value in job["hm"].items() if name not in ("deadline", "begun")}
        if not job["hm"]:
            del job["hm"]


def _with(stored: bytes, **fields: Any) -> bytes:
    job = decode(stored)
    ours = job.get("hm", {})
    if isinstance(ours, dict):  # else another program uses the field
        job["hm"] = ours | fields
    return encode(job)
