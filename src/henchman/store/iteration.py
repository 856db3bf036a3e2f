"""Where an iterable job stands, as calls: Sidekiq's hash of each such job (wire format, section 16).

It is removed by an effect of the job's end (``uniterate``), so that no kill can come between the two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from henchman.errors import PayloadError
from henchman.store.call import Call, command, script
from henchman.store.keys import Keys
from henchman.store.scripts import load as load_script

__all__ = ["KEEP", "LATE", "State", "load", "save"]

_ITERATE = load_script("iterate")

KEEP = 30 * 86400  # seconds after the last save
LATE = -1  # what ``save`` answers when a later execution of the job has saved already


class State(NamedTuple):
    """``executions`` begun so far, ``cursor`` as JSON text (None: from the start), ``run_time`` of those that ended."""

    executions: int = 0
    cursor: bytes | None = None
    run_time: float = 0.0
    cancelled: bool = False


def load(keys: Keys, jid: str) -> Call[State]:
    """Where the job stands; an empty ``State`` when nothing was saved. PayloadError when somebody broke it."""

    def read(flat: list[bytes]) -> State:
        found = {flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}
        try:
            executions, run_time = int(found.get(b"ex") or 0), float(found.get(b"rt") or 0)
        except ValueError:
            raise PayloadError(f"{keys.iteration(jid)} cannot be read: {found!r}; delete it to start anew") from None
        return State(executions, found.get(b"c"), run_time, b"cancelled" in found)

    return command("HGETALL", keys.iteration(jid), decode=read)


def save(keys: Keys, jid: str, executions: int, cursor: bytes, run_time: float) -> Call[int]:
    """Write down where it stands; 1 when the job was cancelled, 0 when not, ``LATE``."""
    args: list[Any] = [executions, cursor, f"{run_time:.6f}".rstrip("0").rstrip("."), KEEP]
    return script(_ITERATE, [keys.iteration(jid)], args, int, again=True)
