"""A write that replicas confirm: WAIT in the same write, behind the command that it is for.

Its limits: WAIT counts replicas that have *received* the write, not that have it on disk, and a failover may still
promote another one. What it rules out is that an accepted job was on one machine only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from henchman.errors import Unconfirmed
from henchman.store.call import Call

__all__ = ["confirmed"]

T = TypeVar("T")


def confirmed(call: Call[T], replicas: int, timeout_ms: int, jids: Callable[[], Sequence[str]]) -> Call[T]:
    """``call``, answered when ``replicas`` replicas have its write; Unconfirmed when fewer had it after ``timeout_ms``.

    ``jids`` tells which jobs it was about, and is only asked when there is an error to tell.
    """

    def decode(replies: Any) -> T:
        *inner, count = replies
        if count < replicas:
            raise Unconfirmed(jids(), wanted=replicas, confirmed=count, timeout=timeout_ms / 1000)
        return call.decode(inner if len(call.parts) > 1 else inner[0])

    parts = (*call.parts, ("WAIT", replicas, timeout_ms))
    return Call(call.name, parts, decode, again=call.again, script=call.script)
