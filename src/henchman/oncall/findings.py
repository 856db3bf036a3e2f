"""What is wrong, as sentences: each rule is a pure function of one look at everything.

A finding leads to a page that shows the cause, or whose first entry does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Final, NamedTuple, ParamSpec

from henchman.inspector.errors import Errors
from henchman.inspector.metrics import Overview
from henchman.inspector.pauses import why_paused
from henchman.kernel.figures import span
from henchman.kernel.text import count, shorten
from henchman.oncall.finding import Finding, Severity
from henchman.oncall.mutes import Mute
from henchman.oncall.vital_findings import VITAL_RULES
from henchman.oncall.vitals import LONG, Vitals

__all__ = ["Weighed", "findings", "weighed"]

P = ParamSpec("P")

BEHIND, VERY_BEHIND = 60.0, 300.0  # seconds that the next job of a queue has waited
LOST = 30.0  # seconds after which a process with work counts as lost
NEWS = 5  # failures of a new error from which on it is a finding
BEYOND = 10.0  # times as long as is usual for its class that a running job has taken
STORM = 1000  # retries within a minute, at least, that are a storm
OLD_CODE = 900.0  # seconds since a deploy, or since the newest worker started, after which mixed versions are a finding
SLOW = 0.02  # seconds of a round trip
SKEWED = 2.0  # seconds by which the clock of a host may differ
GROWN, GROWING = 100, 240.0  # jobs by which a queue has grown, and for how many seconds at least
_SHOWN: Final = 5  # findings of one rule; more are one sentence
_OVERVIEWS: Final = {"queue": "queues", "job": "busy", "error": "errors"}  # page of one thing → page of all of them


class Weighed(NamedTuple):
    """What is wrong, the worst first; and what is wrong as well, and muted."""

    shown: list[Finding]
    muted: list[tuple[Finding, Mute]]


def weighed(
    seen: Overview, failing: Errors | None = None, ground: Vitals | None = None, more: Sequence[Finding] = ()
) -> Weighed:
    """Everything that is wrong: what is shown, and what is muted. ``more``: what others found."""
    found = sorted([*_findings(seen, failing, ground), *more], key=lambda one: one.severity != "critical")
    mutes = {name: one for name, one in ground.mutes.items() if one.until > seen.at} if ground else {}
    shown = [one for one in found if one.id not in mutes]
    return Weighed(shown, [(one, mutes[one.id]) for one in found if one.id in mutes])


def findings(seen: Overview, failing: Errors | None = None, ground: Vitals | None = None) -> list[Finding]:
    """Everything that is wrong and not muted, the worst first."""
    return weighed(seen, failing, ground).shown


def _findings(seen: Overview, failing: Errors | None, ground: Vitals | None) -> list[Finding]:
    found = [one for rule in RULES for one in rule(seen)]
    if failing is not None:
        found = [*_several(_errors)(failing), *found]
    if ground is not None:
        told = [one for rule in OF_THE_VITALS for one in rule(ground, seen.at)]
        found = [one for one in told if one.page == "system"] + found + [one for one in told if one.page != "system"]
        found += [one for rule in OF_BOTH for one in rule(seen, ground)]
    return found


def _no_worker(seen: Overview) -> Iterator[Finding]:
    waiting = seen.stats.enqueued + sum(one.length for one in seen.ordered)
    if not seen.processes and waiting:
        text, advice = (
            f"No worker is alive, and {count(waiting, 'job', does='wait')}.",
            "start one: henchman work pkg.mod:app",
        )
        yield Finding("critical", "no worker", text, "no heartbeat for a minute", "busy", advice=advice)


def _keyed(seen: Overview, ground: Vitals) -> Iterator[Finding]:
    """Jobs that wait for a key while no worker lives: whoever has it may be gone, and nobody looks."""
    waiting = [one for one in ground.blocked if one.lock is not None and one.lock.lock not in ("limit", "pause")]
    if waiting and not seen.processes:
        text = f"{count(len(waiting), 'job', does='wait')} for a key, and no worker is alive to look after it."
        advice = "start one; is the job that has the key gone? henchman doctor --forget"
        yield Finding("critical", "no worker", text, waiting[0].reason(), "blocked", advice=advice)


def _errors(failing: Errors) -> Iterator[Finding]:
    """Errors that are new, rise, or came back after somebody had resolved them; muted ones are left alone."""
    for one in failing.groups:
        state = one.state(failing.at)
        if state not in ("new", "rising", "returned") or (state == "new" and one.count < NEWS):
            continue
        jobs = ", ".join(list(one.jobs)[:2]) + (f" and {len(one.jobs) - 2} more" if len(one.jobs) > 2 else "")
        many, after = round(one.recent(failing.at)), ""
        if one.after is not None:
            after = f", {span(one.first - one.after.at)} after the deploy {one.after.label}"
        if state == "new":
            since = span(failing.at - one.first)
            said = f"New: {one.error} in {jobs}, {count(one.count, 'time')} in {since}{after}."
        elif state == "returned" and one.handled is not None:
            since = span(max(failing.at - one.handled.at, 0.0))
            said = f"Returned: {one.error} in {jobs}, {count(one.since, 'time')} since it was resolved {since} ago."
        else:
            said = f"More than usual: {one.error} in {jobs}, {count(many, 'time')} in the last hour."
        severity: Severity = "warning" if state == "rising" else "critical"
        advice = "its page shows where, and retries its jobs"
        act = ("errors", one.id, str(int(failing.at)), "retry")
        yield Finding(severity, f"{state} error", said, one.message or one.place, "error", one.id, advice, act=act)


def _served(seen: Overview) -> set[str]:
    return {name for queues in {one.queues for one in seen.processes if not one.quiet} for name in queues}


def _unserved(seen: Overview) -> Iterator[Finding]:
    if not seen.processes:
        return
    served = _served(seen)
    for one in seen.queues:
        if one.size and one.name not in served and not one.paused:
            yield Finding(
                "critical",
                "nobody serves it",
                f"Queue {one.name} has {count(one.size, 'job')} and no worker serves it.",
                f"queues that are served: {', '.join(sorted(served)[:8]) or 'none'}",
                "queue",
                one.name,
                f"start a worker with -q {one.name}",
            )


def _behind(seen: Overview) -> Iterator[Finding]:
    """Queues whose next job has waited longer than it may: as their workers say, else a minute."""
    served = _served(seen)
    for one, waited in ((one, one.latency or 0.0) for one in seen.queues):
        if one.size and not one.paused and waited > (one.objective or BEHIND) and one.name in served:
            said = f"Queue {one.name} is {span(waited)} behind"
            yield Finding(
                "critical" if waited > (5 * one.objective if one.objective else VERY_BEHIND) else "warning",
                "behind",
                f"{said}: its next job may wait for {span(one.objective)}." if one.objective else f"{said}.",
                f"{count(one.size, 'job', does='wait')}; the next one has waited for {span(waited)}",
                "queue",
                one.name,
                "more slots or workers for it, or fewer jobs before it",
            )


def _ordered_behind(seen: Overview) -> Iterator[Finding]:
    """Ordered queues whose next id has waited longer than it may, where their workers say how long that is."""
    for one in seen.ordered:
        most = seen.objectives.get(one.name)
        if most and one.length and not one.paused and one.lag > most:
            yield Finding(
                "critical" if one.lag > 5 * most else "warning",
                "behind",
                f"The ordered queue {one.name} is {span(one.lag)} behind: its next id may wait for {span(most)}.",
                f"{count(one.length, 'id', does='wait')}, {one.busy:,} in flight",
                "ordered",
                one.name,
                "more slots or workers for it, or a larger max_parallel",
            )


def _paused(seen: Overview) -> Iterator[Finding]:
    for one in seen.queues:
        if one.paused and one.size:
            why = why_paused(one.pause, seen.at)
            waited = f"the next one has waited for {span(one.latency or 0.0)}"
            yield Finding(
                "warning",
                "paused",
                f"Queue {one.name} is paused, and {count(one.size, 'job', does='wait')} in it.",
                f"paused {why}; {waited}" if why else waited,
                "queue",
                one.name,
                "resume it there",
                act=("queues", one.name, "resume"),
            )


def _broken_keys(seen: Overview) -> Iterator[Finding]:
    for one in seen.queues:
        if one.problem:
            yield Finding("critical", "unreadable", f"{one.name} is no queue.", one.problem, "queue", one.name)


def _lost(seen: Overview) -> Iterator[Finding]:
    for one in [*seen.processes, *seen.lost]:
        age = one.beat_age(seen.at) or 0.0
        if age > LOST and one.busy:
            yield Finding(
                "critical",
                "lost process",
                f"{one.hostname}:{one.pid} was not heard of for {span(age)} and holds {count(one.busy, 'job')}.",
                "another worker rescues them when its lease has run out",
                "busy",
                advice="is a worker alive? henchman work pkg.mod:app gives them back",
                filters=(("q", one.identity),),
            )


def _late(seen: Overview) -> Iterator[Finding]:
    if seen.stats.overdue:
        yield Finding(
            "critical",
            "late",
            f"{count(seen.stats.overdue, 'job')} should have been enqueued more than a minute ago.",
            "scheduled jobs and retries are moved by any worker of Henchman or Sidekiq that is alive",
            "scheduled",
            advice="is a worker alive? Is its clock right? henchman doctor",
        )


def _stuck(seen: Overview, ground: Vitals) -> Iterator[Finding]:
    """For far longer than is usual for its class; where that is not known, for long."""
    for one in seen.work:
        if one.run_at is None or (taken := seen.at - one.run_at) <= LONG:
            return  # the longest running come first
        usual = ground.usual.get(one.entry.name)
        if usual is None or usual.beyond(taken) > BEYOND:
            text, jid = f"{one.entry.name} has been running for {span(taken)}", one.entry.jid
            said = f"; 95 of 100 end within {span(usual.most)}" if usual and usual.most < inf else ""
            advice, act = "look where it stands, or cancel it", ("jobs", jid, "cancel") if jid else ()
            yield Finding("warning", "long run", f"{text}{said}.", f"on {one.identity}", "job", jid, advice, act=act)


def _versions(seen: Overview) -> Iterator[Finding]:
    """Of Henchman, for longer than a deploy takes."""
    ours = [one for one in seen.processes if one.ours]
    versions, newest = Counter(one.version for one in ours), max((one.started_at or 0.0 for one in ours), default=0.0)
    if len(versions) > 1 and seen.at - newest > OLD_CODE:
        parts = ", ".join(f"{name.removeprefix('henchman ')} on {many}" for name, many in versions.most_common(4))
        text = f"Workers run {len(versions)} versions of Henchman: {shorten(parts, 120)}."
        said = f"none of them has started within {span(OLD_CODE)}, so no deploy is under way"
        old = min(ours, key=lambda one: [int(part) for part in re.findall(r"\d+", one.version)])
        filters = (("q", old.identity),)
        advice, act = "restart those with the older version", ("busy", old.identity, "stop")
        yield Finding("warning", "versions", text, said, "busy", "", advice, filters, act)


def _host_clocks(seen: Overview) -> Iterator[Finding]:
    hosts = {one.hostname: one.skew for one in seen.processes if one.skew is not None and abs(one.skew) > SKEWED}
    for host, skew in sorted(hosts.items(), key=lambda one: -abs(one[1])):
        text = f"The clock of {host} is {span(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the server's."
        said = "jobs that its programs push with at= start at the wrong time"
        advice = "let it follow a time server (NTP)"
        yield Finding("warning", "host clock", text, said, "busy", "", advice, (("q", host),))


def _slow(seen: Overview) -> Iterator[Finding]:
    """Workers that wait long for the server, as they measured it at their last heartbeat."""
    slow = sorted((one for one in seen.processes if one.rtt_us > SLOW * 1e6), key=lambda one: -one.rtt_us)
    measured = sum(one.rtt_us > 0 for one in seen.processes)
    if slow:
        waits = f"{len(slow)} of {measured} workers wait" if measured > 1 else "The worker waits"
        text = f"{waits} long for the server: {span(slow[0].rtt_us / 1e6)} for a round trip."
        said = f"the slowest is {slow[0].hostname}:{slow[0].pid}; each job costs some round trips"
        advice = "is a command slow (SLOWLOG GET), the server's machine busy, or the network?"
        yield Finding("warning", "slow server", text, said, "busy", advice=advice, filters=(("q", slow[0].identity),))


def _morgue(seen: Overview) -> Iterator[Finding]:
    for one in seen.ordered:
        if one.morgue_length:
            yield Finding(
                "warning",
                "morgue",
                f"{count(one.morgue_length, 'id')} of the ordered queue {one.name} gave up.",
                f"{count(one.length, 'id', does='wait')}, {count(one.retries, 'id')} of them failed before",
                "ordered",
                one.name,
            )


def _grows(seen: Overview, ground: Vitals) -> Iterator[Finding]:
    """A queue that was longer in each minute than in the one before."""
    before = [one for one in ground.levels if 0 < seen.at - one.at < 600][::-1]
    if len(before) < 3 or seen.at - before[0].at < GROWING:
        return
    for one in seen.queues:
        sizes = [*(level.sizes.get(one.name, 0) for level in before), one.size or 0]
        grown, took = sizes[-1] - sizes[0], seen.at - before[0].at
        served = one.name in _served(seen) and not one.paused
        if served and grown >= max(GROWN, sizes[0] / 10) and sizes == sorted(sizes):
            text = f"Queue {one.name} grows by {count(round(60 * grown / took), 'job')} a minute."
            said = f"{sizes[0]:,} waited {span(took)} ago, {sizes[-1]:,} wait now: it does not drain"
            advice = "more slots or workers for it, or fewer jobs before it"
            yield Finding("warning", "grows", text, said, "queue", one.name, advice)


def _storm(seen: Overview, ground: Vitals) -> Iterator[Finding]:
    """More retries within a minute than workers get through."""
    slots = sum(one.concurrency for one in seen.processes)
    past = [one for one in ground.levels if 0 < seen.at - one.at < 600][-1:]
    pace = max(60 * (seen.stats.processed - past[0].processed) / (seen.at - past[0].at), 0.0) if past else 0.0
    if ground.due >= max(STORM, 10 * slots, 3 * pace):
        text = f"{count(ground.due, 'retry', 'retries', does='fall')} due within a minute."
        ran = f"ran {count(round(pace), 'job')} a minute lately" if past else "have not been measured yet"
        said = f"{count(slots, 'slot')} {ran}: other jobs wait behind them"
        advice = "does what they call answer? Spread them over some minutes there"
        act = ("retries", f"{int(seen.at)}", "spread")
        yield Finding("warning", "retry storm", text, said, "retries", "", advice, act=act)


def _old_code(seen: Overview, ground: Vitals) -> Iterator[Finding]:
    """Workers that started before the last deploy that was marked, beside others that started after it."""
    last = max(ground.deploys, key=lambda one: one.at, default=None)
    if last is None or seen.at - last.at < OLD_CODE:
        return
    known = [one for one in seen.processes if one.started_at is not None]
    old = sorted((one for one in known if (one.started_at or 0.0) < last.at), key=lambda one: one.started_at or 0.0)
    if old and len(old) < len(known):
        ran = "runs" if len(old) == 1 else "run"
        text = f"{len(old)} of {len(known)} workers {ran} the code from before the deploy {shorten(last.label, 60)}."
        said = f"it was {span(seen.at - last.at)} ago; {old[0].hostname}:{old[0].pid} has not been restarted since"
        filters, act = (("q", old[0].identity),), ("busy", old[0].identity, "stop")
        yield Finding("warning", "old code", text, said, "busy", "", "restart it", filters, act)


def _several(rule: Callable[P, Iterator[Finding]]) -> Callable[P, Iterator[Finding]]:
    """A rule that says the rest in one sentence when it finds very many."""

    def some(*looked: P.args, **named: P.kwargs) -> Iterator[Finding]:
        found = list(rule(*looked, **named))
        yield from found[:_SHOWN]
        rest = Counter(one.kind for one in found[_SHOWN:])
        for kind, many in rest.items():
            first = found[_SHOWN]
            page = _OVERVIEWS.get(first.page, first.page)
            yield Finding(first.severity, kind, f"And {many:,} more like this.", "", page)

    return some


RULES: Final = tuple(
    map(
        _several,
        (
            _no_worker,
            _unserved,
            _behind,
            _ordered_behind,
            _paused,
            _broken_keys,
            _lost,
            _late,
            _slow,
            _morgue,
            _versions,
            _host_clocks,
        ),
    )
)
OF_BOTH: Final = tuple(map(_several, (_keyed, _stuck, _storm, _grows, _old_code)))
OF_THE_VITALS: Final = tuple(map(_several, VITAL_RULES))
