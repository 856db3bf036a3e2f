"""Deaths charged to jobs, as calls: who killed whom, who is a suspect (PROTOCOL, section 7)."""

from __future__ import annotations

from typing import Any

from henchman.store.call import Arg, Call, command, script
from henchman.store.effects import own_keys, shared_keys
from henchman.store.keys import Keys
from henchman.store.scripts import load

__all__ = ["KEEP", "charge", "deaths", "stopping"]

_CHARGE = load("charge")

KEEP = 72 * 3600  # seconds for which a death counts, as Sidekiq Pro's poison pills


def charge(
    keys: Keys,
    flight: str,
    jid: str,
    record: bytes,
    payload: bytes,
    stored: bytes,
    *,
    alone: bool,
    dead_max: int,
    dead_timeout: float,
    effects: bytes = b"",
    batch: str = "",
) -> Call[int]:
    """Charge job ``jid``, which lies as ``payload`` in the list ``flight``, with one death: ``record`` is one line,
    ``<time> <identity> <cause>``; a second one for the same identity is none.

    The deaths it has now, 0 when it does not lie there any more; -1 when it was the third, alone: it
    went to the dead set as ``stored``, and its ``effects`` were carried out.
    """
    names = [keys.deaths, keys.charged, keys.suspects, keys.cancels, flight, keys.dead, keys.cancel_log]
    names += [*shared_keys(keys), *own_keys([effects])]
    args: list[Arg] = [jid, record, payload, stored, int(alone), dead_max, dead_timeout, KEEP, effects, batch]
    return script(_CHARGE, names, args, int, again=True)


def deaths(keys: Keys, jid: str) -> Call[list[str]]:
    """The lines that were written down for ``jid`` so far, oldest first."""

    def read(reply: Any) -> list[str]:
        return reply.decode("utf-8", "replace").split("\n") if reply else []

    return command("HGET", keys.deaths, jid, decode=read)


def stopping(keys: Keys, identity: str) -> Call[Any]:
    """This process was told to stop: if it is killed now, that is a deploy's haste, and no job's fault."""
    return command("ZADD", keys.stopping, "NX", 0, identity)
