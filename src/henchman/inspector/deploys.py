"""Deploy marks: when which version went out, shown beside the metrics (wire format, section 15).

Its limits: one mark a minute, the first stays; a label that was marked in the last minute is not marked again, so that
every machine of a fleet may mark the same deploy.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import time
from typing import NamedTuple

from henchman.errors import ArgumentError
from henchman.store import metrics as calls
from henchman.store.call import Runner
from henchman.store.keys import Keys
from henchman.store.procedure import Procedure, run
from henchman.wire.times import seconds_of

__all__ = ["Deploy", "default_label", "look_at_deploys", "mark_deploy", "write_deploy"]

_LABEL_MOST = 200
_GIT_LIMIT = 5.0  # seconds


class Deploy(NamedTuple):
    """A mark: the Unix time of its minute, and what was deployed. ``marked``: False when it, or its minute, had one."""

    at: float
    label: str
    marked: bool = True


def mark_deploy(runner: Runner, keys: Keys, label: str | None = None, at: dt.datetime | None = None) -> Deploy:
    """Mark a deploy of now, or of the aware time ``at``; without ``label`` it is ``default_label()``.

    ArgumentError for an empty label and a naive time.
    """
    moment = time.time() if at is None else seconds_of(at)
    said = default_label(moment) if label is None else label
    return run(runner, write_deploy(keys, said, moment))


def write_deploy(keys: Keys, label: str, at: float) -> Procedure[Deploy]:
    """The same for a known label and Unix time."""
    if not isinstance(label, str) or not label.strip():
        raise ArgumentError(f"{label!r} is no label of a deploy: say what was deployed, such as a version")
    short = label.strip()[:_LABEL_MOST].encode("utf-8", "replace").decode()
    try:
        moment = dt.datetime.fromtimestamp(at // 60 * 60, dt.UTC)
    except (ValueError, OverflowError, OSError):
        raise ArgumentError(f"{at!r} is no time of a deploy") from None
    first: bool = yield calls.mark_lock(keys, moment, short)
    marked = (yield calls.mark(keys, moment, short)) if first else False
    return Deploy(moment.timestamp(), short, marked)


def look_at_deploys(keys: Keys, since: float, until: float) -> Procedure[list[Deploy]]:
    """The marks from ``since`` up to ``until`` (Unix seconds), oldest first."""
    first = dt.datetime.fromtimestamp(since, dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [first]
    while days[-1].timestamp() + 86400 < until:
        days.append(days[-1] + dt.timedelta(days=1))
    found = yield calls.marks(keys, days)
    return [Deploy(at, label) for at, label in sorted(found.items()) if since <= at < until]


def default_label(now: float) -> str:
    """The short hash and subject of the commit that is checked out here; elsewhere the minute of ``now``, in UTC."""
    command = ["git", "log", "-1", "--format=%h %s"]
    try:
        done = subprocess.run(  # noqa: S603 - nothing in it comes from outside
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_GIT_LIMIT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y-%m-%d %H:%M")
    return done.stdout.decode("utf-8", "replace").strip()[:_LABEL_MOST]
