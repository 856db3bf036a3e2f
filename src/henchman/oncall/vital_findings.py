"""What is wrong by the vitals alone: the server, what is dead, blocked or limited, batches and ordered ids.

Each rule is a pure function of the vitals and the server's time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from henchman.inspector.blocked import Blocker
from henchman.inspector.pauses import why_paused
from henchman.kernel.figures import size, span, utc
from henchman.kernel.text import count, shorten
from henchman.oncall.finding import Finding
from henchman.oncall.vitals import LONG, Vitals

__all__ = ["VITAL_RULES"]

ROOM = 60.0  # seconds that a job waits beside a free place of its limit
FULL = 0.85  # of the memory that the server may take
STEP, STEP_SHOWN = 30.0, 86_400.0  # seconds: a step of the server's clock that is a finding, and for how long it is
HISTORY_BEHIND = 60.0  # seconds
POISON_SHOWN = 86_400.0  # seconds since the death of a poison pill for which it is a finding
STANDS = 600.0  # seconds since a batch was made, after which it is a finding that none of its jobs runs
DYING, DYING_WITHIN = 10, 600.0  # jobs that died, and within how many seconds
STUCK = 5  # failures in a row of an ordered id
_GOING = ("working", "retrying", "scheduled", "blocked")


def _replica(ground: Vitals, now: float) -> Iterator[Finding]:
    if ground.replica_of:
        text = "This server is a replica: nothing can be pushed, run or mended through it."
        advice = "name its master in redis_url, or the sentinels, which know the master"
        yield Finding("critical", "replica", text, f"a copy of {ground.replica_of}", "system", advice=advice)


def _full(ground: Vitals, now: float) -> Iterator[Finding]:
    used, most = ground.memory or (0, 0)
    if most and used > FULL * most:
        share = f"{used / most:.0%} of its memory is used"
        text = f"The server is nearly full: {share}. A full server refuses jobs."
        if used >= most:
            text = "The server is full: it refuses jobs, and workers can only end what they have."
        said, advice = (
            f"{size(used)} of {size(most)}",
            "raise maxmemory, or see what grows: delete the dead, clear a queue",
        )
        yield Finding("critical", "nearly full", text, said, "system", advice=advice)


def _evicts(ground: Vitals, now: float) -> Iterator[Finding]:
    if ground.policy not in ("", "noeviction"):
        most = (ground.memory or (0, 0))[1]
        text = f"The server may throw jobs away: its policy is {ground.policy}."
        said = f"it does so once {size(most)} are used" if most else "it has no limit to its memory yet"
        advice = "CONFIG SET maxmemory-policy noeviction, and in its configuration"
        yield Finding("critical" if most else "warning", "eviction", text, said, "system", advice=advice)


def _dying(ground: Vitals, now: float) -> Iterator[Finding]:
    """Many that died lately, of the newest that are looked at."""
    lately = [one for one in ground.dead if now - DYING_WITHIN < (one.score or 0.0) <= now]
    if len(lately) >= DYING:
        many = f"{len(lately)} jobs" if len(lately) < len(ground.dead) else f"At least {len(lately)} jobs"
        errors = Counter(one.error[0] if one.error else "no error" for one in lately)
        [(error, most)] = errors.most_common(1)
        text = f"{many} died within {span(now - min(one.score or now for one in lately))}."
        said = f"{most} of them with {shorten(error, 80)}"
        filters = (("q", f"error:{error}"),) if error.isascii() and not set(error) & set(' ":') else ()
        yield Finding(
            "warning", "many die", text, said, "dead", "", "mend what it says, then retry them there", filters
        )


def _clock(ground: Vitals, now: float) -> Iterator[Finding]:
    if ground.stepped is not None and abs(ground.stepped[0]) > STEP and ground.stepped[1] < STEP_SHOWN:
        by, ago = ground.stepped
        text = (
            f"The server's clock went {'back' if by < 0 else 'forward'} by {span(abs(by))}, {span(max(ago, 0.0))} ago."
        )
        said = "what waits was moved along; jobs with at= start by the time that it is now"
        yield Finding("warning", "clock", text, said, "system", advice="see what sets it: NTP, a suspended machine")


def _history(ground: Vitals, now: float) -> Iterator[Finding]:
    late = ground.history
    if late.lag > HISTORY_BEHIND:
        text = f"History is {span(late.lag)} behind: {count(late.entries, 'entry', 'entries', does='wait')}."
        said = f"its recorder is {late.recorder}" if late.recorder else "nobody records"
        advice = "does its database answer? Is a worker with history alive? henchman history status"
        yield Finding("warning", "history", text, said, "system", advice=advice)


def _missed(ground: Vitals, now: float) -> Iterator[Finding]:
    for one in ground.missed:
        text = f"Cron {shorten(one.name, 60)} missed {utc(one.planned)}."
        said = f"that was {span(max(now - one.planned, 0.0))} ago, and nothing was enqueued for it"
        advice = "any worker of this app enqueues it: is one alive? Run it there by hand"
        act = ("crons", one.name, "run")
        yield Finding("critical", "missed cron", text, said, "crons", one.name, advice, act=act)


def _poison(ground: Vitals, now: float) -> Iterator[Finding]:
    for one in ground.dead:
        error = one.error
        if error and error[0].endswith("PoisonPill") and now - (one.score or 0.0) < POISON_SHOWN:
            text = f"{one.name} ended every process that ran it, and is dead."
            said = f"job {one.jid}: {error[1]}"
            filters = (("q", one.jid),)
            yield Finding("critical", "poison pill", text, said, "dead", "", "mend it, then retry it there", filters)


def _blocked(ground: Vitals, now: float) -> Iterator[Finding]:
    stuck = [one for one in ground.blocked if one.is_stuck]
    if stuck:
        first = stuck[0]
        text = f"{count(len(stuck), 'job', does='wait')} for one that will not succeed by itself."
        filters = (("show", "stuck"),)
        advice = "retry what died, or let them go: henchman blocked --stuck"
        act = ("blocked", first.jid, "release") if first.jid and len(stuck) == 1 else ()
        yield Finding("critical", "blocked", text, first.sentence(), "blocked", "", advice, filters, act)


def _limits(ground: Vitals, now: float) -> Iterator[Finding]:
    """Limits whose first waiter waits beside a free place, or for long: the longest of each, of the blocked jobs that
    were looked at."""
    longest: dict[tuple[str, str], tuple[float, Blocker]] = {}
    for one in (found.lock for found in ground.blocked):
        if one is not None and one.lock == "limit" and one.since:
            key = one.scope, one.key
            longest[key] = min(longest.get(key, (one.since, one)), (one.since, one), key=lambda pair: pair[0])
    for (name, by), (since, one) in longest.items():
        waited, whose = now - since, f" of {shorten(by, 60)}" if by else ""
        said = f"{one.taken:,} of {one.size:,} places{whose} are taken, and {count(one.waiting, 'job', does='wait')}"
        act = ("limits", name, "change")
        if one.taken < one.size and waited > ROOM:
            text = f"Limit {name} has a free place, and jobs wait for it."
            advice = "set it to the size it has: henchman limits set"
            yield Finding("warning", "limit room", text, said, "limits", name, advice, act=act)
        elif one.taken >= one.size and waited > LONG:
            text = f"Limit {name} is full: a job has waited for {span(waited)}." if one.size else f"Limit {name} is 0."
            advice = "make it larger, or look who has its places"
            yield Finding("warning", "limit", text, said, "limits", name, advice, act=act)


def _batches(ground: Vitals, now: float) -> Iterator[Finding]:
    for one in ground.batches:
        left, filters = one.total - one.done, (("q", one.id),)
        name = one.description or one.id
        if one.paused and left:
            why = why_paused(one.paused, now)
            waits = "has not ended" if left == 1 else "have not ended"
            text = f"Batch {shorten(name, 80)} is paused: {count(left, 'job')} of it {waits}."
            act = ("batches", one.id, "resume")
            yield Finding("warning", "paused batch", text, why, "batches", one.id, "resume it there", act=act)
        elif one.state == "abandoned" and now - one.created > STANDS:
            text = f"Batch {shorten(name, 80)} stands still: whoever filled it is gone, and it is open."
            said = f"{count(left, 'job')} of it have not ended"
            act = ("batches", one.id, "close")
            yield Finding("warning", "batch", text, said, "batches", "", "close it there", filters, act)
        elif one.state == "closed" and left and now - one.created > STANDS and not any(map(one.counts.get, _GOING)):
            text = f"Batch {shorten(name, 80)} stands still: {count(left, 'job', does='wait')}, and none of them runs."
            said = "does a worker serve their queue?"
            yield Finding("warning", "batch", text, said, "batches", "", "its jobs say why", filters)


def _paused_kinds(ground: Vitals, now: float) -> Iterator[Finding]:
    for what, pause in ground.kinds.items():
        kind, _, name = what.partition(":")
        text = f"{kind.capitalize()} {shorten(name, 80)} is paused: none of its jobs starts."
        why, act = why_paused(pause, now), ("pauses", what, "resume")
        yield Finding("warning", f"paused {kind}", text, why, "pauses", what, "resume it there", act=act)


def _ids(ground: Vitals, now: float) -> Iterator[Finding]:
    for queue, one in ground.ids:
        holder = one.holder
        if holder is not None and now - holder.since > LONG:
            text = f"Id {shorten(one.id, 60)} of {queue} has been in flight for {span(now - holder.since)}."
            said = f"{holder.identity} has it; {count(one.arrival_count, 'payload')} came meanwhile"
            yield Finding(
                "warning", "ordered id", text, said, "ordered", queue, "look at its holder", (("by", "busy"),)
            )
        elif one.retry_count + 1 >= STUCK:
            text = f"Id {shorten(one.id, 60)} of {queue} failed {one.retry_count + 1} times in a row."
            said = f"{count(one.payload_count, 'payload', does='wait')} behind that: {one.error or ''}"
            advice = "mend what it says, or put it into the morgue"
            yield Finding("warning", "ordered id", text, said, "ordered", queue, advice, (("by", "retry"),))


VITAL_RULES: Final[tuple[Callable[[Vitals, float], Iterator[Finding]], ...]] = (
    _replica,
    _evicts,
    _full,
    _missed,
    _poison,
    _dying,
    _blocked,
    _limits,
    _batches,
    _paused_kinds,
    _ids,
    _clock,
    _history,
)
