"""The queues as calls for people: names, sizes, pages. Nothing loads a whole list.

A name that is not UTF-8 is read with surrogate escapes and sent back byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from henchman.store.call import Arg, Call, command, commands, script
from henchman.store.effects import own_keys, shared_keys
from henchman.store.keys import Keys
from henchman.store.scripts import load

__all__ = ["CHUNK", "Cleared", "Look", "clear", "drop", "look", "names", "page", "paused", "raw", "remove", "stretch"]


_REMOVE = load("remove")
_CLEAR = load("clear")

CHUNK = 1000  # payloads that one call of ``clear`` takes, at most


class Look(NamedTuple):
    """How many payloads a queue holds, and the one that is next to run."""

    size: int
    next: bytes | None


def raw(text: str) -> bytes:
    """A name or key as the server has it."""
    return text.encode("utf-8", "surrogateescape")


def _names(reply: Any) -> list[str]:
    return sorted(one.decode("utf-8", "surrogateescape") for one in reply)


def names(keys: Keys) -> Call[list[str]]:
    """Every queue that was pushed to and not cleared since, sorted."""
    return command("SMEMBERS", keys.queues, decode=_names)


def paused(keys: Keys) -> Call[frozenset[str]]:
    """The names of the paused queues, whatever they hold."""
    return command("SMEMBERS", keys.paused, decode=lambda reply: frozenset(_names(reply)))


def look(keys: Keys, which: Sequence[str]) -> Call[list[Look]]:
    """Size and next payload of each of the queues ``which`` (at least one), in one write."""
    parts: list[tuple[Arg, ...]] = []
    for name in which:
        parts += (("LLEN", raw(keys.queue(name))), ("LINDEX", raw(keys.queue(name)), -1))

    def read(replies: list[Any]) -> list[Look]:
        return [Look(int(replies[i]), replies[i + 1]) for i in range(0, len(replies), 2)]

    return commands(*parts, decode=read)


def page(keys: Keys, name: str, first: int, last: int) -> Call[list[bytes]]:
    """The payloads from ``first`` to ``last``, both included; 0 is the newest, -1 the next to run."""
    return command("LRANGE", raw(keys.queue(name)), first, last, decode=list)


def stretch(keys: Keys, name: str, first: int, last: int) -> Call[tuple[int, list[bytes]]]:
    """The size, and what stands from ``first`` down to ``last`` + 1 places before the right end (1: next to run)."""
    key = raw(keys.queue(name))
    return commands(("LLEN", key), ("LRANGE", key, -first, -last - 1), decode=lambda replies: (replies[0], replies[1]))


def remove(keys: Keys, name: str, payload: bytes, effects: bytes = b"") -> Call[int]:
    """1 the payload is out of the queue, and its effects are carried out; 0 it was not there."""
    names: list[str | bytes] = [raw(keys.queue(name)), *shared_keys(keys), *own_keys([effects])]
    return script(_REMOVE, names, [payload, effects], int, again=True)


class Cleared(NamedTuple):
    """How many payloads were taken, and those whose effects ``clear`` must be told before it goes on."""

    taken: int
    asked: list[bytes]


def clear(keys: Keys, name: str, most: int, effects: Mapping[bytes, bytes]) -> Call[Cleared]:
    """Take up to ``most`` payloads out of a queue, next to run first. ``effects`` by payload: those of the last answer.

    An empty queue is forgotten. Never sent again: what was pushed meanwhile would be taken too.
    """
    names: list[str | bytes] = [raw(keys.queue(name)), *shared_keys(keys), *own_keys(effects.values())]
    args: list[Arg] = [raw(name), most]
    for pair in effects.items():
        args += pair
    return script(_CLEAR, names, args, lambda reply: Cleared(reply[0], reply[1:]), again=False)


def drop(keys: Keys, name: str) -> Call[Any]:
    """Remove what stands under the key of a queue and is none, in one transaction."""
    key = raw(keys.queue(name))
    return commands(("MULTI",), ("UNLINK", key), ("SREM", keys.queues, raw(name)), ("EXEC",))
