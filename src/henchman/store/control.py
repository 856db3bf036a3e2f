"""Telling processes something, as calls: pause, cancel, quiet, stop, dump."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from henchman.errors import ArgumentError
from henchman.kernel.clock import ServerClock
from henchman.store.call import Arg, Call, command, commands, script
from henchman.store.keys import Keys
from henchman.store.scripts import load

__all__ = [
    "KEEP_CANCELS",
    "CancelNews",
    "ask_time",
    "cancel",
    "cancel_batch",
    "cancel_head",
    "cancel_news",
    "cancel_page",
    "cancelled",
    "pause",
    "paused",
    "tell",
    "uncancel",
    "unpause",
]

_CANCEL, _UNCANCEL = load("cancel"), load("uncancel")

_PAGE = 2000  # marks that one look into the list reads
KEEP_CANCELS = 30 * 86400  # seconds: a job that waits longer than this can be cancelled again


def cancel(keys: Keys, jid: str) -> Call[int]:
    """Write a jid down as cancelled and tell every process, iterable jobs in Ruby too; how many heard it."""
    if not isinstance(jid, str):
        raise ArgumentError(f"cancel({jid!r:.100}): give the id of a job, such as handle.jid")
    return _cancel(keys, jid, is_job=True)


def cancel_batch(keys: Keys, batch: str) -> Call[int]:
    """Tell every process that no job of the batch is to start, and that those that run are to hear it."""
    return _cancel(keys, f"batch:{batch}", is_job=False)


def _cancel(keys: Keys, mark: str, *, is_job: bool) -> Call[int]:
    args: list[Arg] = [mark, keys.control_all, f"cancel {mark}", KEEP_CANCELS, int(is_job)]
    return script(_CANCEL, [*_marks(keys), keys.iteration(mark)], args, int, again=True)


def _marks(keys: Keys) -> list[str]:
    return [keys.cancelled, keys.cancels, keys.cancel_log]


def uncancel(keys: Keys, members: Sequence[str]) -> Call[frozenset[str]]:
    """Let jobs start that are put into their queues again, whatever was cancelled before; which of them had been.

    ``members``: jids, or ``batch:<id>``.
    """

    def read(reply: Any) -> frozenset[str]:
        return frozenset(one.decode() for one in reply)

    plain = [one for one in members if _is_text(one)]
    return script(_UNCANCEL, [*_marks(keys), *map(keys.iteration, plain)], list(plain), read, again=True)


def cancelled(keys: Keys, jids: Sequence[str]) -> Call[frozenset[str]]:
    """Which of these jobs are marked as cancelled."""
    plain = [one for one in jids if _is_text(one)]

    def read(scores: Any) -> frozenset[str]:
        return frozenset(jid for jid, score in zip(plain, scores, strict=False) if score is not None)

    return command("ZMSCORE", keys.cancelled, *plain or ("",), decode=read)


class CancelNews(NamedTuple):
    """Steps of the counter up to ``last``, oldest first: ``+`` and the member that was cancelled, ``-`` and one that is
    not any more. ``suspects``: all of them, if they changed."""

    last: int
    steps: list[tuple[str, str]]
    suspects: frozenset[str] | None


def cancel_head(keys: Keys) -> Call[tuple[int, frozenset[str]]]:
    """The counter of cancellations, and the suspects."""

    def read(replies: Any) -> tuple[int, frozenset[str]]:
        return int(replies[0] or 0), _texts(replies[1])

    return commands(("GET", keys.cancels), ("SMEMBERS", keys.suspects), decode=read)


def cancel_page(keys: Keys, cursor: int) -> Call[tuple[int, frozenset[str]]]:
    """Some of what is cancelled: the cursor of the next page, 0 after the last, and the members."""

    def read(reply: Any) -> tuple[int, frozenset[str]]:
        return int(reply[0]), _texts(reply[1][::2])

    return command("ZSCAN", keys.cancelled, cursor, "COUNT", _PAGE, decode=read)


def cancel_news(keys: Keys, seen: int, most: int) -> Call[CancelNews | None]:
    """What the counter has counted after ``seen``, from its log, of which ``most`` steps are read; None when a step is
    missing there."""

    def read(replies: Any) -> CancelNews | None:
        steps: dict[int, str] = {}
        for entry in replies[0]:
            number, _, what = entry.decode("utf-8", "replace").partition(" ")
            steps[int(number)] = what
        last = max(steps, default=seen)
        wanted = [steps.get(number) for number in range(seen + 1, last + 1)]
        if not wanted or None in wanted:
            return None
        signed = [(what[:1], what[1:]) for what in wanted if what]
        changed = any(sign == "!" for sign, _ in signed)
        return CancelNews(last, [one for one in signed if one[0] != "!"], _texts(replies[1]) if changed else None)

    return commands(("LRANGE", keys.cancel_log, 0, most - 1), ("SMEMBERS", keys.suspects), decode=read)


def _texts(reply: Any) -> frozenset[str]:
    return frozenset(one.decode("utf-8", "replace") for one in reply)


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
