"""The verdict: one page that says what was attacked, what was found, and how to run it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from attacks import ATTACKS
from field import PARTS
from judge import Judgement
from past import NEVER, History

__all__ = ["page", "passed"]

#: attacks that jobs make by themselves: how often they hit, of how often they were tried, the ledger shows
BY_JOBS = {"payloads of 3 MB": ("huge-", "ok"), "time-outs that strike while a job logs": ("chatty-", "JobTimeout")}

_SHOWN = 8  # violations of one rule on the page; the others are in the file


def _struck(history: History) -> tuple[Counter[str], Counter[str]]:
    """How often each attack hit, and was tried."""
    hits = Counter(attack.name for attack in history.attacks if attack.hit)
    tried = Counter(attack.name for attack in history.attacks)
    for name, (kind, how) in BY_JOBS.items():
        jobs = [job for job in history.jobs.values() if job.key.startswith(kind)]
        tried[name] = len(jobs)
        hits[name] = sum(any(run.how == how and run.ended < NEVER for run in job.runs) for job in jobs)
    return hits, tried


def _missed(hits: Counter[str], minutes: int, names: list[str]) -> list[str]:
    return [
        f"{name}: {hits[name]} hits in {minutes} minute{'s' if minutes > 1 else ''}"
        for name in names
        if hits[name] < minutes
    ]


def passed(judgement: Judgement, missed: list[str]) -> bool:
    """Whether nothing was violated and every attack struck often enough."""
    return not missed and not any(judgement.violations.values())


def page(
    judgement: Judgement,
    command: str,
    minutes: int,
    folder: Path,
    names: list[str] | None = None,
    left_out: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The whole page. ``names``: the attacks that must have hit once a minute; all by default but those that were
    ``left_out``, for the reason that stands there."""
    history = judgement.history
    hits, tried = _struck(history)
    names = [one for one in (*ATTACKS, *PARTS, *BY_JOBS) if one not in left_out] if names is None else names
    missed = _missed(hits, minutes, names)
    jobs = history.jobs.values()
    told = Counter(job.told or "producer died" for job in jobs)
    runs = sum(len(job.runs) for job in jobs)
    lines = [
        f"CHAOS: {'PASSED' if passed(judgement, missed) else 'FAILED'}    again: {command}",
        f"jobs pushed {len(history.jobs)}: " + ", ".join(f"{count} {word}" for word, count in told.most_common()),
        f"runs {runs}; ended without a run: "
        f"{sum('expired' in job.unstarted for job in jobs)} expired, "
        f"{sum('cancelled' in job.unstarted for job in jobs)} cancelled",
        *(f"{name}: {fact}" for name, fact in judgement.facts.items()),
        "",
        "attacks                                           hits   of  (hit at least once a minute)",
    ]
    lines += [f"  {name:<48}{hits[name]:>4}{tried[name]:>5}" for name in names]
    lines += [f"  MISSED {text}" for text in missed]
    lines += [f"  LEFT OUT {name}: {why}" for name, why in left_out.items()]
    repeats = judgement.repeats
    lines += ["", f"repeated runs {repeats.causes.total() + len(repeats.unexplained)}, of {len(repeats.jobs)} jobs:"]
    lines += [f"  {count:>5}  {cause}" for cause, count in repeats.causes.most_common()]
    lines += ["", "what workers told: " + ", ".join(f"{count} {name}" for name, count in history.events.most_common())]
    lines += ["", "rules"]
    for rule, found in judgement.violations.items():
        lines.append(f"  {'ok  ' if not found else 'FAIL'} {rule}: {len(found)}")
        lines += [f"         {text}" for text in found[:_SHOWN]]
    if not passed(judgement, missed):
        lines.append(f"ledger, logs and data are kept in {folder}")
    return "\n".join(lines).encode("utf-8", "backslashreplace").decode()  # of hostile payloads: half a character
