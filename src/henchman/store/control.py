"""Telling processes something, as calls: pause, cancel, quiet, stop, dump."""

from __future__ import annotations

from typing import Any

from henchman.errors import ArgumentError
from henchman.store.call import Arg, Call, command, commands, script
from henchman.store.keys import Keys
from henchman.store.scripts import load

__all__ = ["KEEP_CANCELS", "cancel", "pause", "paused", "tell", "unpause"]

_CANCEL = load("cancel")

KEEP_CANCELS = 30 * 86400  # seconds: a job that waits longer than this can be cancelled again


def cancel(keys: Keys, jid: str) -> Call[int]:
    """Write a jid down as cancelled and tell every process, iterable jobs in Ruby too; how many heard it."""
    if not isinstance(jid, str):
        raise ArgumentError(f"cancel({jid!r:.100}): give the id of a job, such as handle.jid")
    args: list[Arg] = [jid, keys.control_all, f"cancel {jid}", KEEP_CANCELS]
    return script(_CANCEL, [keys.cancelled, keys.cancels, keys.iteration(jid)], args, int, again=True)


def pause(keys: Keys, queue: str) -> Call[Any]:
    """Nothing starts from ``queue`` any more, on any worker."""
    return commands(("SADD", keys.paused, queue), ("PUBLISH", keys.control_all, f"pause {queue}"))


def unpause(keys: Keys, queue: str) -> Call[Any]:
    """Work on ``queue`` goes on."""
    return commands(("SREM", keys.paused, queue), ("PUBLISH", keys.control_all, f"unpause {queue}"))


def paused(keys: Keys) -> Call[frozenset[str]]:
    """The names of the paused queues."""

    def read(reply: Any) -> frozenset[str]:
        return frozenset(one.decode("utf-8", "surrogateescape") for one in reply)

    return command("SMEMBERS", keys.paused, decode=read)


def tell(keys: Keys, identity: str, verb: str) -> Call[Any]:
    """Tell one process to ``quiet``, ``stop`` or ``dump``; how many heard it."""
    return command("PUBLISH", keys.control(identity), verb)
