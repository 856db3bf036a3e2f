"""What became of a run, as a value: the processor decides, the acker commits.

``ending`` is one of a closed list that ``settle.lua`` and ``effects.py`` know; the rest says what goes where.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["DONE", "ENDINGS", "Outcome", "called_off"]

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


DONE = Outcome("done")


def called_off(jid: str) -> bytes:
    """How ``settle.lua`` is told under which id a job should stand in the list of cancellations."""
    return b"?" + jid.encode("utf-8", "replace")
