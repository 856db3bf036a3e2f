"""What the history is told of a run's end: who ran it, when, how long, and why it ended so."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from henchman.wire import numbers
from henchman.wire.backtrace import lines_of
from henchman.work.effects import Told
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit

__all__ = ["attempt_of", "finished", "told_of", "tracked"]

_LINES = 60  # of a traceback
_TEXT = 10_000
_WORD = re.compile(r'[^\s"\\]+')


def tracked(job: Mapping[str, Any]) -> bool:
    """Whether anything of this job is written down: it is in a batch, tracked, or keeps its result."""
    ours = job.get("hm")
    return isinstance(ours, dict) and ("batch" in ours or ours.get("track") is True or "result_ttl" in ours)


def attempt_of(job: Mapping[str, Any]) -> int:
    """1 in the first run, 2 in the first retry."""
    count = numbers.count(job.get("retry_count"))
    return 1 if count is None else count + 2


_MEMBER = frozenset({"batch", "batch_expires", "track", "secret"})


def finished(unit: Unit, job: Mapping[str, Any]) -> bytes:
    """The effect of a plain run that returned nothing, as ``lib/batch.lua`` reads it; empty: ask ``effects.encoded``.

    Nearly every tracked job ends so, and this takes an eighth of the time.
    """
    hm, jid, elapsed = job["hm"], job.get("jid"), unit.elapsed
    batch = hm.get("batch", "")
    if elapsed is None or not _MEMBER.issuperset(hm) or not isinstance(jid, str) or not isinstance(batch, str):
        return b""
    who = unit.flight.identity
    if not (jid and (jid + batch).isalnum() and (jid + batch + who).isascii()) or not _WORD.fullmatch(who):
        return b""
    return (
        f'+{batch} {attempt_of(job)} {who} {jid} {{"ending":"done","started":{time.time() - elapsed:.6f},'
        f'"elapsed":{elapsed:.6f}}}'
    ).encode()


def told_of(unit: Unit, outcome: Outcome, job: Mapping[str, Any]) -> Told:
    """The facts of ``outcome``; a run that did not start has no times."""
    detail: dict[str, Any] = {}
    if outcome.reason:
        detail["reason"] = outcome.reason[:_TEXT]
    if outcome.error is not None:
        detail |= {"error_class": type(outcome.error).__name__, "message": outcome.reason[:_TEXT]}
        if outcome.ending not in ("failed", "discarded", "cancelled", "expired", "snoozed", "released"):
            detail["traceback"] = lines_of(outcome.error, _LINES)
    if outcome.result is not None:
        detail["result"] = outcome.result
    if unit.elapsed is not None:
        detail |= {"started": round(time.time() - unit.elapsed, 6), "elapsed": round(unit.elapsed, 6)}
    return Told(unit.flight.identity, attempt_of(job), detail, unit.cancelled)
