"""Telling processes something, as calls: pause, cancel, quiet, stop, dump."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from henchman.errors import ArgumentError
from henchman.kernel.clock import ServerClock
from henchman.store.call import Arg, Call, command, commands, script
from henchman.store.keys import Keys
from henchman.store.scripts import load

__all__ = ["KEEP_CANCELS", "ask_time", "cancel", "cancelled", "pause", "paused", "tell", "uncancel", "unpause"]

_CANCEL, _UNCANCEL = load("cancel"), load("uncancel")

KEEP_CANCELS = 30 * 86400  # seconds: a job that waits longer than this can be cancelled again


def cancel(keys: Keys, jid: str) -> Call[int]:
    """Write a jid down as cancelled and tell every process, iterable jobs in Ruby too; how many heard it."""
    if not isinstance(jid, str):
        raise ArgumentError(f"cancel({jid!r:.100}): give the id of a job, such as handle.jid")
    args: list[Arg] = [jid, keys.control_all, f"cancel {jid}", KEEP_CANCELS]
    return script(_CANCEL, [keys.cancelled, keys.cancels, keys.iteration(jid)], args, int, again=True)


def uncancel(keys: Keys, members: Sequence[str]) -> Call[frozenset[str]]:
    """Let jobs start that are put into their queues again, whatever was cancelled before; which of them had been.

    ``members``: jids, or ``batch:<id>``.
    """

    def read(reply: Any) -> frozenset[str]:
        return frozenset(one.decode() for one in reply)

    plain = [one for one in members if _is_text(one)]
    return script(_UNCANCEL, [keys.cancelled, keys.cancels, *map(keys.iteration, plain)], list(plain), read, again=True)


def cancelled(keys: Keys, jids: Sequence[str]) -> Call[frozenset[str]]:
    """Which of these jobs are marked as cancelled."""
    plain = [one for one in jids if _is_text(one)]

    def read(scores: Any) -> frozenset[str]:
        return frozenset(jid for jid, score in zip(plain, scores, strict=False) if score is not None)

    return command("ZMSCORE", keys.cancelled, *plain or ("",), decode=read)


def _is_text(jid: str) -> bool:
    """Whether a job can have been cancelled by this id; by half a surrogate pair none was."""
    try:
        return bool(jid.encode())
    except UnicodeEncodeError:
        return False


def ask_time(clock: ServerClock) -> Call[float]:
    """The server's Unix time, which ``clock`` knows from then on. Build the call when you send it."""
    sent = clock.sent()

    def read(reply: Any) -> float:
        clock.heard(int(reply[0]) + int(reply[1]) / 1e6, sent)
        return clock.now()

    return command("TIME", decode=read)


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
