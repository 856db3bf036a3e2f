"""What the records of tracked payloads are told of the end of their run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from henchman.kernel.text import words_of
from henchman.store.ordered import Verdict
from henchman.work.effects import STATUS, text
from henchman.work.outcome import Outcome
from henchman.work.told import told_of
from henchman.work.unit import Unit

__all__ = ["written"]

_MESSAGE_MOST = 10_000
_LEFT = "retry"  # what did not go to the morgue with the payload it ran with: it failed too, and goes on


def written(ended: Sequence[tuple[Unit, Verdict]], endings: Mapping[Unit, str]) -> list[Verdict]:
    """The verdicts as ``ordered_settle_tracked.lua`` takes them. ``endings``: how each claim ended as a whole."""
    known: dict[tuple[Unit, str, int, str], str] = {}
    found = []
    for unit, verdict in ended:
        if unit.claim.endings is None and endings[unit] == "done":
            found.append(Verdict._make((verdict.token, verdict.id, "done", 0.0, 0, _well(unit))))
            continue
        word, error = _ending(unit, verdict, endings[unit])
        key = (unit, word, id(error), verdict.error)  # most ids of a claim end alike
        told = known.get(key)
        if told is None:
            told = known[key] = _told(unit, word, error, verdict)
        found.append(verdict._replace(error=told))
    return found


def _ending(unit: Unit, verdict: Verdict, ending: str) -> tuple[str, BaseException | None]:
    """How one id ended, in the words of ``work.outcome``, and of what."""
    judged = unit.claim.endings
    if judged is None:
        return ("retry" if verdict.verdict == "retry" else ending), None
    word, error = judged[verdict.id]
    if verdict.verdict == "release":
        word = "interrupted"  # it was running: what was not is not judged
    return word, error


def _told(unit: Unit, word: str, error: BaseException | None, verdict: Verdict) -> str:
    parts = [verdict.error]
    for status, ending in [(STATUS[word], word), ("enqueued", _LEFT)][: 2 if verdict.verdict == "bury" else 1]:
        reason = _message(error) if error is not None else verdict.error
        count = unit.claim.retry_count
        told = told_of(unit, Outcome(ending, reason=reason, error=error), {"retry_count": count} if count >= 0 else {})
        parts += [status, text({"ending": ending, **told.detail}), str(told.attempt)]
    return msgspec.json.encode(parts).decode()


def _well(unit: Unit) -> str:
    """What is told of a run that went well, as nearly all do: a tenth of the time."""
    times = ""
    if unit.elapsed is not None:
        times = f',"started":{time.time() - unit.elapsed:.6f},"elapsed":{unit.elapsed:.6f}'
    return f'+{max(unit.claim.retry_count, -1) + 2} {{"ending":"done"{times}}}'


def _message(error: BaseException) -> str:
    words = words_of(error) or type(error).__name__
    return words[:_MESSAGE_MOST].encode("utf-8", "replace").decode()
