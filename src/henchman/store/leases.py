"""Leases as calls: join, renew, bury, leave. Who holds what, and for how long (PROTOCOL, sections 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from henchman.errors import LeaseLost
from henchman.store.call import Call, command, script
from henchman.store.keys import Keys
from henchman.store.scripts import load

__all__ = [
    "TOMB_MS",
    "bury",
    "flights",
    "identities",
    "join",
    "lease_alive",
    "leave",
    "renew",
    "renew_all",
    "unregister",
]

_JOIN = load("join")
_RENEW = load("renew")
_BURY = load("bury")
_LEAVE = load("leave")

TOMB_MS = 3_600_000  # an hour: no frozen process holds bytes back for longer (PROTOCOL, section 2.3)
STANDS_MS = TOMB_MS + 120_000  # its lists are swept a little later: nobody may take the name again before that


def _number(reply: Any) -> int:
    if reply == b"LOST":
        raise LeaseLost("this process was declared dead by another one")
    return int(reply)


def _texts(reply: Iterable[bytes]) -> list[str]:
    return sorted(one.decode("utf-8", "replace") for one in reply)


def join(keys: Keys, identity: str, flight_lists: Sequence[str], lease_ms: int) -> Call[int]:
    """Take the lease and register the in-flight lists, before anything is fetched into them. Raises LeaseLost."""
    names = [keys.lease(identity), keys.tomb(identity), keys.identities, keys.flights(identity)]
    return script(_JOIN, names, [lease_ms, identity, *flight_lists], _number, again=True)


def renew(keys: Keys, identity: str, lease_ms: int) -> Call[int]:
    """1 renewed, 2 it had lapsed and was taken again. Raises LeaseLost."""
    return script(_RENEW, [keys.lease(identity), keys.tomb(identity)], [lease_ms], _number, again=True)


def renew_all(keys: Keys, identities: Sequence[str], lease_ms: int) -> Call[list[str]]:
    """Renew the leases of several identities (at least one) in one write; those that were declared dead by another
    process. One that is refused does not keep the others from being renewed, but its error is what is raised."""
    parts = [("EVALSHA", _RENEW.sha, 2, keys.lease(one), keys.tomb(one), lease_ms) for one in identities]

    def lost(replies: Any) -> list[str]:
        answers = replies if len(parts) > 1 else [replies]
        return [one for one, answer in zip(identities, answers, strict=True) if answer == b"LOST"]

    return Call(_RENEW.name, parts, lost, again=True, script=_RENEW)


def bury(keys: Keys, identity: str, *, force: bool) -> Call[int]:
    """1 the identity is dead from now on; 0 its lease is alive and ``force`` is False."""
    names = [keys.lease(identity), keys.tomb(identity), keys.tombs]
    return script(_BURY, names, [identity, STANDS_MS, int(force)], int, again=True)


def leave(keys: Keys, identity: str, flight_lists: Sequence[str]) -> Call[int]:
    """1 the identity is off the books; 0 one of its lists still holds something."""
    names = [keys.lease(identity), keys.identities, keys.flights(identity), *flight_lists]
    return script(_LEAVE, names, [identity], int, again=True)


def lease_alive(keys: Keys, identity: str) -> Call[bool]:
    """Whether the lease of an identity stands."""
    return command("EXISTS", keys.lease(identity), decode=bool)


def flights(keys: Keys, identity: str) -> Call[list[str]]:
    """The registered in-flight lists of an identity."""
    return command("SMEMBERS", keys.flights(identity), decode=_texts)


def unregister(keys: Keys, identity: str, flight: str) -> Call[int]:
    """Forget one in-flight list that nothing can reach any more."""
    return command("SREM", keys.flights(identity), flight, decode=int)


def identities(keys: Keys) -> Call[list[str]]:
    """Every identity that joined and neither left nor was swept."""
    return command("ZRANGE", keys.identities, 0, -1, decode=_texts)
