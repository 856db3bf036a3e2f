"""What people type to find jobs: ``class:shop.create status:failed since:2h "no such product"``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import Any

from henchman.errors import ArgumentError
from henchman.history.records import STATUSES, Search
from henchman.kernel.text import did_you_mean
from henchman.wire import times

__all__ = ["FIELDS", "parse"]

FIELDS = ("class", "status", "batch", "queue", "since", "until", "text")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_WHEN = "a time ago such as 90s, 30m, 2h, 5d, 1w, or a moment such as 2026-11-21 or 2026-11-21T09:30 (UTC)"


def parse(words: Iterable[str], *, now: float | None = None) -> Search:
    """A search out of ``field:value`` words; other words are text to look for. ArgumentError names what is wrong."""
    found: dict[str, Any] = {}
    texts = []
    for word in words:
        field, colon, value = word.partition(":")
        if not colon or not re.fullmatch(r"[a-z_]+", field):
            texts.append(word)
            continue
        if field not in FIELDS:
            near = did_you_mean(field, FIELDS)
            raise ArgumentError(
                f"there is no field {field!r}{near}; there are {', '.join(FIELDS)} (text:{word} is text)"
            )
        if not value:
            raise ArgumentError(f"{field}: needs a value right behind the colon")
        if field == "text":
            texts.append(value)
        elif field in found:
            raise ArgumentError(f"{field}: stands there twice")
        else:
            found[field] = value
    if "status" in found and found["status"] not in STATUSES:
        status = found["status"]
        near = did_you_mean(status, STATUSES)
        raise ArgumentError(f"there is no status {status!r}{near}; there are {', '.join(STATUSES)}")
    now = time.time() if now is None else now
    since, until = (_moment(name, found.pop(name, None), now) for name in ("since", "until"))
    class_ = found.pop("class", None)
    return Search(class_=class_, since=since, until=until, text=" ".join(texts) or None, **found)


def _moment(field: str, text: str | None, now: float) -> float | None:
    if text is None:
        return None
    ago = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", text)
    if ago:
        return now - float(ago[1]) * _UNITS[ago[2]]
    moment = times.read(text) if re.match(r"\d{4}-", text) else None
    if moment is None:
        raise ArgumentError(f"{field}:{text}: it must be {_WHEN}")
    return moment
