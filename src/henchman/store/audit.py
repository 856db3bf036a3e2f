"""What the auditor of batches asks of the server, as calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from henchman.store.call import Call, command, commands, script
from henchman.store.keys import Keys
from henchman.store.leases import lead as lead_duty
from henchman.store.scripts import load

__all__ = [
    "LEASE_MS",
    "Found",
    "Glance",
    "find",
    "flights",
    "forget",
    "glance",
    "holders",
    "lead",
    "let_go",
    "page",
    "queue_names",
]

_FIND = load("batch_find")
LEASE_MS = 120_000
_FACTS = ("state", "why", "created", "open_for", "expires", "total", "children", "generation")
_COUNTS = (
    *("n:blocked", "n:scheduled", "n:enqueued", "n:working", "n:retrying"),
    *("n:finished", "n:failed", "n:error", "n:cancelled", "n:expired"),
)


def lead(keys: Keys, identity: str) -> Call[bool]:
    """Take or renew the lease of the auditor; False when another process has it."""
    return lead_duty(keys.auditor, identity, LEASE_MS)


def let_go(keys: Keys) -> Call[Any]:
    """End our lease."""
    return command("DEL", keys.auditor)


def page(keys: Keys, first: int, most: int) -> Call[list[str]]:
    """Batches by age, from rank ``first`` on."""
    return command(
        "ZRANGE", keys.batches, first, first + most - 1, decode=lambda reply: [one.decode() for one in reply]
    )


def forget(keys: Keys, batches: Sequence[str]) -> Call[Any]:
    """Strike batches off the list of all."""
    return command("ZREM", keys.batches, *batches)


class Glance(NamedTuple):
    """A batch as the auditor sees it; ``mark`` changes whenever something of it moves. Times are Unix seconds."""

    state: str
    why: str
    ends_open: float
    expires: float
    live: int
    children: int
    filled: bool
    parked: int
    mark: tuple[Any, ...]


def glance(keys: Keys, batches: Sequence[str]) -> Call[tuple[float, list[Glance | None]]]:
    """The server's time, and each of these batches; None: it is gone."""
    parts: list[tuple[Any, ...]] = [("TIME",)]
    for one in batches:
        key = keys.batch(one)
        parts.append(("HMGET", key, *_FACTS, *_COUNTS))
        parts += [("EXISTS", keys.producer(one)), ("LLEN", key + ":parked"), ("HLEN", key + ":jobs")]

    def read(replies: Any) -> tuple[float, list[Glance | None]]:
        seconds, micro = replies[0]
        found = [_glance(*replies[at : at + 4]) for at in range(1, len(replies), 4)]
        return int(seconds) + int(micro) / 1e6, found

    return commands(*parts, decode=read)


def _glance(told: Any, filled: int, parked: int, live: int) -> Glance | None:
    if told[0] is None:
        return None
    state, why, created, open_for, expires, _, children, _ = (one.decode() if one else "" for one in told[:8])
    return Glance(
        state=state,
        why=why,
        ends_open=float(created) + float(open_for or 0),
        expires=float(expires) if expires else float("inf"),
        live=int(live),
        children=int(children or 0),
        filled=bool(filled),
        parked=int(parked),
        mark=(*told, live),
    )


class Found(NamedTuple):
    """One stretch of a list: entries looked at, and those of the batch."""

    looked: int
    payloads: list[bytes]


def find(source: str, batch: str, first: int, most: int) -> Call[Found]:
    """Payloads of ``batch`` in a list (a key), among ``most`` entries from index ``first`` on."""
    return script(_FIND, [source], [batch, first, most], lambda reply: Found(reply[0], reply[1:]), again=True)


def queue_names(keys: Keys) -> Call[list[str]]:
    """Every queue that was pushed to."""
    return command("SMEMBERS", keys.queues, decode=lambda reply: [one.decode("utf-8", "replace") for one in reply])


def holders(keys: Keys) -> Call[list[str]]:
    """Every process that may hold something: the living, the dead, those whose work is being given back."""
    return commands(
        ("ZRANGE", keys.identities, 0, -1),
        ("ZRANGE", keys.tombs, 0, -1),
        ("SMEMBERS", keys.rescues),
        decode=lambda replies: sorted({one.decode("utf-8", "replace") for reply in replies for one in reply}),
    )


def flights(keys: Keys, identities: Sequence[str]) -> Call[list[str]]:
    """The in-flight lists of these processes."""

    def read(replies: Any) -> list[str]:
        return [one.decode("utf-8", "replace") for reply in replies for one in reply]

    return commands(
        *(("SMEMBERS", keys.flights(one)) for one in identities), ("SMEMBERS", keys.flights("")), decode=read
    )
