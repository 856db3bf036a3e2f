"""What became of a run, as a value: the processor decides, the acker commits.

``ending`` is one of a closed list that ``settle.lua`` and ``effects.py`` know; the rest says what goes where.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from henchman.errors import JobDeadline, JobTimeout, LimitReached, PoisonPill, ProcessCrashed

__all__ = ["CAUSES", "DONE", "ENDINGS", "Outcome", "called_off", "cause_of", "cause_of_name"]

#: Why a run did not end well, or not by itself. ``error`` raised; ``timeout`` ran too long; ``deadline`` its job was
#: over, with all its attempts; ``crash`` its process ended; ``hang`` its process was killed because it had stopped
#: turning; ``memory`` there was none left; ``stop`` its worker stopped; ``cancelled``; ``poison`` processes died with
#: it, again and again; ``limit`` it waited for its limits as long as it wanted to.
CAUSES = ("error", "timeout", "deadline", "crash", "hang", "memory", "stop", "cancelled", "poison", "limit")

#: Every way a unit of work can end. ``done`` returned; ``failed`` a business failure; ``discarded`` forgotten by its
#: own wish; ``gone`` an error of a job that is neither retried nor kept; ``retry``, ``snoozed``, ``dead`` stored
#: again; ``kept`` as dead, but with its batch; ``invalid`` a payload that is no job; ``expired``, ``cancelled`` never
#: started; ``released`` given back as the next; ``interrupted`` by its own wish at the end of its queue, to go on.
ENDINGS = (
    "done",
    "failed",
    "discarded",
    "gone",
    "retry",
    "snoozed",
    "dead",
    "kept",
    "invalid",
    "expired",
    "cancelled",
    "deferred",
    "released",
    "interrupted",
)


class Outcome(NamedTuple):
    """How one run ended. ``stored`` is the payload as it goes on (bytes), ``delay`` seconds until it is due.

    What the list of cancellations named is ``cancelled`` with ``called_off`` as ``stored``: the server looks again.
    """

    ending: str
    stored: bytes = b""
    delay: float = 0.0
    reason: str = ""
    error: BaseException | None = None
    result: Any = None
    because: str = ""  # its cause, where neither ending nor error tells

    @property
    def cause(self) -> str:
        """One of ``CAUSES``; "" of a run that ended as its job wished."""
        return self.because or cause_of(self.ending, self.error)


DONE = Outcome("done")
_BY_ENDING = {"released": "stop", "cancelled": "cancelled"}
_RAISED = frozenset({"retry", "dead", "kept", "gone", "invalid"})


def cause_of(ending: str, error: BaseException | None) -> str:
    """One of ``CAUSES`` for an ending and the error that led to it; "" of an ending that a job wished for."""
    if ending not in _RAISED:
        return _BY_ENDING.get(ending, "")
    match error:
        case JobDeadline():
            return "deadline"
        case JobTimeout():
            return "timeout"
        case MemoryError():
            return "memory"
        case PoisonPill():
            return "poison"
        case LimitReached():
            return "limit"
        case ProcessCrashed():
            return error.cause
        case _:
            return "error"


_BY_NAME = {
    JobDeadline: "deadline",
    JobTimeout: "timeout",
    MemoryError: "memory",
    PoisonPill: "poison",
    ProcessCrashed: "crash",
}


def cause_of_name(error: str) -> str:
    """One of ``CAUSES`` for the name of an error's class, as far as the name tells."""
    return next((cause for kind, cause in _BY_NAME.items() if kind.__name__ == error), "error")


def called_off(jid: str) -> bytes:
    """How ``settle.lua`` is told under which id a job should stand in the list of cancellations."""
    return b"?" + jid.encode("utf-8", "replace")
