"""The push of jobs with a key as a call; ``lua/keyed_push.lua`` and ``lua/lib/admit.lua`` have what it promises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from henchman.store.call import Arg, Call, load, script
from henchman.store.keys import Keys

__all__ = ["KeyedPush", "answers_of", "push"]

_PUSH = load("keyed_push")


class KeyedPush(NamedTuple):
    """One job. ``due``: "" now, "+5" in five seconds, else a Unix time; ``mark``: of its arguments, 8 hex digits;
    ``needs``: JSON ``[[scope, name, once_for], …]`` that it waits for; then its payload is unstamped."""

    jid: str
    due: str
    payload: bytes
    mark: str
    key: str
    needs: bytes = b""


def answers_of(reply: Any) -> list[list[str]]:
    """The words of each line that ``lib/admit.lua`` answers."""
    if reply == b"C":
        return [["C"]]
    return [line.split() for line in bytes(reply).decode("utf-8", "replace").split("\n")]


def push(keys: Keys, queue: str, ask: bytes, jobs: Sequence[KeyedPush], lane: tuple[str, int]) -> Call[list[list[str]]]:
    """Push jobs into ``queue`` (or the schedule) as far as their keys let them; an answer for each, up to the first
    duplicate where ``ask`` (JSON) says raise. ``lane``: whose push this is, and its number there: it may be sent again.
    """
    args: list[Arg] = [*lane, queue, ask]
    for one in jobs:
        args += one
    return script(_PUSH, [keys.queues], args, answers_of, again=True)
