"""Pauses of queues of either kind, of classes and of tags: who made one, why, since when and until when."""

from __future__ import annotations

import datetime as dt
import shlex
from typing import TypedDict

from msgspec.structs import replace

from henchman.errors import ArgumentError
from henchman.inspector.base import Inspector
from henchman.kernel.figures import span
from henchman.kernel.text import as_shown, shorten, visible
from henchman.store import pauses, queues
from henchman.store.call import Procedure, awaited, now
from henchman.store.keys import Keys
from henchman.wire import times

__all__ = ["PauseJson", "Pauses", "called", "go_on", "pause_json", "pause_queue", "who_paused", "why_paused"]

_LEAST, _LONGEST = 5.0, 30 * 86_400.0  # seconds of a pause that ends by itself


class PauseJson(TypedDict):
    """``since``: an ISO text; ``by`` and ``reason`` are empty where nobody said them, as of a pause by Ruby; ``until``:
    when it ends by itself, null: never."""

    since: str | None
    by: str
    reason: str
    until: str | None


def pause_json(pause: queues.Pause) -> PauseJson:
    """What is known of a pause, for programs."""
    return {
        "since": None if pause.at is None else times.iso(pause.at),
        "by": pause.by,
        "reason": pause.reason,
        "until": None if pause.until is None else times.iso(pause.until),
    }


def pause_queue(
    keys: Keys, name: str, reason: str, by: str, lasts: float | dt.timedelta | None = None
) -> Procedure[None]:
    """Pause a queue of either kind, and note why; it ``lasts`` so many seconds (None: until it is resumed).
    ArgumentError when the reason is longer than 200 characters, or it lasts less than 5 seconds or more than 30 days.
    """
    length = lasts.total_seconds() if isinstance(lasts, dt.timedelta) else lasts
    if length is not None and (isinstance(length, bool) or not _LEAST <= length <= _LONGEST):
        raise ArgumentError(f"lasts={lasts!r}: it is from 5 seconds to 30 days, or None: until it is resumed")
    said = yield from pauses.beginning(reason, by)
    until = None if length is None or said.at is None else said.at + length
    yield queues.pause(keys, name, replace(said, until=until))


def who_paused(pause: queues.Pause) -> str:
    """Who paused something and why, behind the moment of it: `` by ana: provider outage``; empty: nobody said."""
    return visible("".join((pause.by and f" by {pause.by}", pause.reason and f": {pause.reason}")))


def why_paused(pause: queues.Pause | None, now: float) -> str:
    """Who paused a queue, how long ago, for how long still and why: ``by ana, 2 h ago, 30 min to go: provider outage``;
    empty when nothing is known."""
    if pause is None or (pause.at is None and not pause.by and not pause.reason and pause.until is None):
        return ""
    by = f"by {pause.by}" if pause.by else ""
    when = "" if pause.at is None else f"{span(max(now - pause.at, 0.0))} ago"
    still = "" if pause.until is None else f"{span(max(pause.until - now, 0.0))} to go"
    return visible(": ".join(filter(None, (", ".join(filter(None, (by, when, still))), pause.reason))))


def called(subject: str) -> str:
    """What is paused, as people call it: ``class shop.charge``, ``batch 9c…``."""
    return visible(shorten(subject.replace(":", " ", 1) if ":" in subject else f"batch {subject}", 120))


def go_on(subject: str) -> str:
    """The command that lets it go on."""
    return f"henchman {'pauses' if ':' in subject else 'batch'} unpause {shlex.quote(subject)}"


class Pauses(Inspector):
    """``app.pauses``: classes of jobs, and tags, of which nothing starts. Each is a text, ``class:shop.charge`` or
    ``tag:vip``. Queues and batches have pauses of their own; jobs of ordered queues go on. Each method also exists
    awaited, with ``a`` before its name."""

    def __repr__(self) -> str:
        return "<pauses>"

    @now
    def all(self) -> Procedure[dict[str, queues.Pause]]:
        """Every one, by its text."""
        found: dict[str, queues.Pause] = yield pauses.kinds(self._keys)
        return found

    @now
    def pause(self, what: str, reason: str = "", *, by: str = "") -> Procedure[None]:
        """No job of it starts any more, on any worker, until ``unpause``; what runs goes on to its end. A job whose
        turn comes meanwhile is taken out of its queue and waits as blocked: others behind it go on. ArgumentError when
        ``what`` is no class and no tag, or the reason is longer than 200 characters."""
        yield pauses.pause(self._keys, _checked(what), (yield from pauses.beginning(reason, by)))

    @now
    def unpause(self, what: str) -> Procedure[bool]:
        """It goes on: the jobs that wait go to the ends of their queues. False: it was not paused."""
        ended: bool = yield pauses.unpause(self._keys, _checked(what))
        return ended

    aall = awaited(all)
    apause = awaited(pause)
    aunpause = awaited(unpause)


def _checked(what: object) -> str:
    kind, _, name = what.partition(":") if isinstance(what, str) else ("", "", "")
    if kind not in ("class", "tag") or not 0 < len(name) <= 200 or not name.isprintable():
        raise ArgumentError(f"{as_shown(what, 100)} cannot be paused: say class:NAME or tag:NAME")
    return str(what)
