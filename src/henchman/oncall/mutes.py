"""Findings that somebody muted: for how long, who, and why. They are counted as well, and are not shown as such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from henchman.errors import ArgumentError
from henchman.kernel.clock import ServerClock
from henchman.kernel.text import shorten
from henchman.store.call import Procedure, command, commands
from henchman.store.keys import Keys
from henchman.store.leases import ask_time

__all__ = ["HOURS", "Mute", "mute", "mutes", "unmute"]

HOURS: Final = (1, 8, 24, 168)  #: for which a finding can be muted
_MOST: Final = 100  # muted findings
_NOTE: Final = 200  # characters of a reason
_LIFE: Final = 8 * 86_400  # seconds for which the server keeps what nobody changes


class Mute(NamedTuple):
    """Until when (Unix seconds) a finding is muted, by whom, and why."""

    until: float
    by: str = ""
    why: str = ""


def mutes(keys: Keys) -> Procedure[Mapping[str, Mute]]:
    """What is muted, by the id of the finding; also what was until lately."""
    flat: list[bytes] = yield command("HGETALL", keys.findings_muted, decode=list)
    found = {}
    for name, stored in zip(flat[::2], flat[1::2], strict=True):
        try:
            found[name.decode("utf-8", "replace")] = msgspec.json.decode(stored, type=Mute)
        except msgspec.DecodeError:  # somebody wrote something else there
            continue
    return found


def mute(keys: Keys, finding: str, hours: int, by: str = "", why: str = "") -> Procedure[None]:
    """Mute a finding; ArgumentError when that is not for one of ``HOURS``, or too many are muted."""
    if hours not in HOURS:
        raise ArgumentError(f"a finding is muted for {', '.join(map(str, HOURS))} hours, not for {hours}")
    at: float = yield ask_time(ServerClock())
    known = yield from mutes(keys)
    over = [name for name, one in known.items() if one.until <= at]
    if len(known) - len(over) >= _MOST and finding not in known:
        raise ArgumentError(f"{_MOST} findings are muted, and more are not: unmute some")
    told = msgspec.json.encode(Mute(at + 3600 * hours, shorten(by, _NOTE), shorten(why.strip(), _NOTE)))
    forget = [("HDEL", keys.findings_muted, *over)] if over else []
    put = ("HSET", keys.findings_muted, finding, told), ("EXPIRE", keys.findings_muted, _LIFE)
    yield commands(*forget, *put)


def unmute(keys: Keys, finding: str) -> Procedure[bool]:
    """Show a finding again. False: it was not muted."""
    return bool((yield command("HDEL", keys.findings_muted, finding)))
