"""Leases as calls: join, renew, bury, leave. Who holds what, and for how long (PROTOCOL, sections 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from henchman.errors import LeaseLost
from henchman.store.call import Arg, Call, command, script
from henchman.store.keys import Keys
from henchman.store.scripts import load

__all__ = [
    "AT_ONCE",
    "TOMB_MS",
    "Watch",
    "bury",
    "flights",
    "join",
    "lead",
    "lease_alive",
    "leave",
    "renew",
    "renew_all",
    "renew_known",
    "sizes",
    "unregister",
    "watch",
]

_JOIN = load("join")
_RENEW = load("renew")
_BURY = load("bury")
_LEAVE = load("leave")
_SIZES = load("sizes")
_WATCH = load("watch")
_LEAD = load("lead")

AT_ONCE = 1000  # leases in one look
TOMB_MS = 3_600_000  # an hour: no frozen process holds bytes back for longer (PROTOCOL, section 2.3)
STANDS_MS = TOMB_MS + 120_000  # its lists are swept a little later: nobody may take the name again before that


def _number(reply: Any) -> int:
    if reply == b"LOST":
        raise LeaseLost("this process was declared dead by another one")
    return int(reply)


def _text(one: bytes) -> str:
    return one.decode("utf-8", "replace")


def _texts(reply: Iterable[bytes]) -> list[str]:
    return sorted(map(_text, reply))


def join(keys: Keys, identity: str, flight_lists: Sequence[str], lease_ms: int) -> Call[int]:
    """Take the lease and register the in-flight lists, before anything is fetched into them. Raises LeaseLost."""
    names = [keys.lease(identity), keys.tomb(identity), keys.identities, keys.flights(identity)]
    return script(_JOIN, names, [lease_ms, identity, *flight_lists], _number, again=True)


def renew(keys: Keys, identity: str, lease_ms: int) -> Call[int]:
    """1 renewed, 2 it had lapsed and was taken again. Raises LeaseLost."""
    return script(_RENEW, _renewing(keys, identity), [lease_ms], lambda reply: _renewed(reply)[0], again=True)


def renew_known(keys: Keys, identity: str, lease_ms: int) -> Call[tuple[int, bool]]:
    """As ``renew``, and whether the server knows the in-flight lists of the identity: not when it lost its data."""
    return script(_RENEW, _renewing(keys, identity), [lease_ms], _renewed, again=True)


def _renewing(keys: Keys, identity: str) -> list[str]:
    return [keys.lease(identity), keys.tomb(identity), keys.flights(identity)]


def _renewed(reply: Any) -> tuple[int, bool]:
    if reply == b"LOST":
        return _number(reply), False
    return int(reply[0]), bool(reply[1])


def renew_all(keys: Keys, identities: Sequence[str], lease_ms: int) -> Call[list[str]]:
    """Renew the leases of several identities (at least one) in one write; those that were declared dead by another
    process. One that is refused does not keep the others from being renewed, but its error is what is raised."""
    parts: list[tuple[Arg, ...]] = [("EVALSHA", _RENEW.sha, 3, *_renewing(keys, one), lease_ms) for one in identities]

    def lost(replies: Any) -> list[str]:
        answers = replies if len(parts) > 1 else [replies]
        return [one for one, answer in zip(identities, answers, strict=True) if answer == b"LOST"]

    return Call(_RENEW.name, parts, lost, again=True, script=_RENEW)


class Watch(NamedTuple):
    """What one look at the leases showed. ``turn``: whether it is ours; if not, ``left`` seconds of another's are left.

    ``expires``: by identity, the server's time in milliseconds at which its lease runs out; 0: it has. ``begun``: the
    identities whose rescue was begun.
    """

    turn: bool
    left: float
    begun: list[str]
    expires: dict[str, int]


def watch(keys: Keys, identity: str, former: Iterable[str], turn_ms: int, first: int = 0) -> Call[Watch]:
    """Take the turn to look after the dead, or keep it, and look at ``AT_ONCE`` leases, from the ``first`` on.
    ``former``: names that this process had before."""

    def read(reply: Any) -> Watch:
        turn, *rest = reply
        if not turn:
            return Watch(False, rest[0] / 1000, [], {})
        begun, *pairs = rest
        return Watch(True, 0.0, _texts(begun), {_text(pairs[i]): pairs[i + 1] for i in range(0, len(pairs), 2)})

    names = [keys.lifeline, keys.identities, keys.rescues, keys.leases]
    return script(_WATCH, names, [identity, turn_ms, first, AT_ONCE, *former], read, again=True)


def bury(keys: Keys, identity: str, *, force: bool) -> Call[int]:
    """1 the identity is dead from now on; 0 its lease is alive and ``force`` is False."""
    names = [keys.lease(identity), keys.tomb(identity), keys.tombs]
    return script(_BURY, names, [identity, STANDS_MS, int(force)], int, again=True)


def leave(keys: Keys, identity: str, flight_lists: Sequence[str]) -> Call[int]:
    """1 the identity is off the books; 0 one of its lists still holds something."""
    names = [keys.lease(identity), keys.identities, keys.flights(identity), *flight_lists]
    return script(_LEAVE, names, [identity], int, again=True)


def lead(lease: str, identity: str, lease_ms: int) -> Call[bool]:
    """Take or renew ``lease`` (a key), that of a duty which one process at a time has; False when another has it."""
    return script(_LEAD, [lease], [identity, lease_ms], bool, again=True)


def lease_alive(keys: Keys, identity: str) -> Call[bool]:
    """Whether the lease of an identity stands."""
    return command("EXISTS", keys.lease(identity), decode=bool)


def flights(keys: Keys, identity: str) -> Call[list[str]]:
    """The registered in-flight lists of an identity."""
    return command("SMEMBERS", keys.flights(identity), decode=_texts)


def sizes(kinds: Mapping[str, str]) -> Call[list[int]]:
    """How much each in-flight key holds; ``kinds``: key → ``list``, or ``hash`` of an ordered queue."""
    return script(_SIZES, list(kinds), list(kinds.values()), list, again=True)


def unregister(keys: Keys, identity: str, flight: str) -> Call[int]:
    """Forget one in-flight list that nothing can reach any more."""
    return command("SREM", keys.flights(identity), flight, decode=int)
