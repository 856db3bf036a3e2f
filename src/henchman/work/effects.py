"""What must happen in the same breath as a job's end: a pure function of its payload and of how it ends.

A closed list; each kind is carried out by ``lib/effects.lua`` under the same name and is idempotent. Whoever ends a
job (acker, stager, supervisor, command line, console) passes this list to the script, so that no crash can come
between. Ends that no script of ours sees (a Ruby worker, ``UNLINK``) have no effects: what waits for one needs an age.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from henchman.errors import PayloadError
from henchman.store.keys import Keys
from henchman.wire.payload import decode

__all__ = ["FINAL", "KINDS", "effects", "encoded", "of_payload"]

#: ``uncancel``: the cancellation of this jid has been carried out, the note of it can go. ``cron_done``: the job of
#: this cron's tick has ended, the next may come. ``uniterate``: nobody will ask any more where this iterable job
#: stands; a dead one may be retried by hand and keeps its place.
KINDS = ("uncancel", "cron_done", "uniterate")

_KEPT = frozenset({"dead", "invalid", "poisoned"})  # in the dead set
_OVER = frozenset({"done", "failed", "discarded", "gone", "expired", "cancelled", "deleted"})
#: The endings after which a job does not go on by itself.
FINAL = _KEPT | _OVER

Effect = tuple[str, ...]


def effects(keys: Keys, job: Mapping[str, Any], ending: str) -> tuple[Effect, ...]:
    """The effects of ``job`` ending as ``ending``, in order."""
    jid, ours = job.get("jid"), job.get("hm")
    if ending not in FINAL or not isinstance(jid, str):
        return ()
    said = ours if isinstance(ours, dict) else {}
    found: list[Effect] = []
    cancelled = ending == "cancelled"
    if cancelled:
        found.append(("uncancel", jid))
    if isinstance(said.get("cron"), str):
        found.append(("cron_done", said["cron"], jid))
    if cancelled or (said.get("iterable") is True and ending in _OVER):  # cancel.lua leaves a flag for any job
        found.append(("uniterate", keys.iteration(jid)))
    return tuple(found)


def encoded(keys: Keys, job: Mapping[str, Any], ending: str) -> bytes:
    """The same as the scripts read it: JSON, or nothing at all when there are none."""
    if "hm" not in job and ending != "cancelled":
        return b""
    found = effects(keys, job, ending)
    try:
        return msgspec.json.encode(found) if found else b""
    except UnicodeEncodeError:  # half a surrogate pair, which nothing of ours is called by
        return b""


def of_payload(keys: Keys, payload: bytes, ending: str) -> bytes:
    """``encoded`` for a payload as it is stored; nothing for one that cannot be read. Not for ``cancelled``."""
    if b'"hm"' not in payload:
        return b""
    try:
        return encoded(keys, decode(payload), ending)
    except PayloadError:
        return b""
