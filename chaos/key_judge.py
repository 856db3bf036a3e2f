"""The judgement on jobs with a key, of which one may exist, wait or run, and on jobs that are rows of an outbox.

A lock is surely held from the answer to the push (or the first start, where that was not heard) until the first end of
the last attempt, or the first question whether the job may start: what lies outside of that no ledger knows.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hostile_attack import is_hostile
from key_past import Fresh, Thing
from kinds import KEYED, PATIENCE, TOLD, kind_of
from past import NEVER, History, Job
from redis import Redis
from repeats import CUT_OFF
from spans import Span, is_zombie

from henchman.client.push import TIME_KNOWN

__all__ = ["KeyJudgement", "OutboxJudgement"]

EARLY = 0.002  # seconds: two processes read one clock
KNOWN = 0.1  # seconds: how well a process knows the server's clock
ASKED = TIME_KNOWN + 0.5  # seconds since a producer asked the server for its time, at most
#: nothing of this may be left; hm:lock:o:* beside it, but for the keys of dead jobs
LEFT = (
    *("hm:lock:*", "hm:parked*", "hm:await:*", "hm:needs:*", "hm:decide", "hm:latest", "hm:releases", "hm:ready:*"),
    *("hm:debounce:*", "hm:outbox:*:sent"),
)
Interval = tuple[float, float, Job]


class KeyJudgement:
    """``rules()`` gives (name, violations). ``planned``: in how many attempts a job ends."""

    def __init__(self, history: History, redis: Redis, planned: Callable[[Job], int]) -> None:
        self._history, self._keyed, self._planned = history, history.keyed, planned
        self._redis: Any = redis
        self._by_thing: dict[Thing, list[Job]] = defaultdict(list)
        for key, thing in self._keyed.things.items():
            if key in history.jobs:
                self._by_thing[thing].append(history.jobs[key])

    def rules(self) -> Iterator[tuple[str, Iterable[str]]]:
        """Every rule with what violates it."""
        yield "keys: a key of `once` that has not exactly one job", self._once()
        yield "keys: duplicates that ran, or of no job with that key", self._duplicates()
        yield "keys: two jobs at once that may not be", self._together()
        yield "keys: two runs at once that may not be", self._overlaps()
        yield "keys: newer arguments that were forgotten, or refused and came", self._fresh()
        yield "dependencies: started before what it waits for had succeeded", self._before()
        yield "dependencies: a policy that was carried out otherwise", self._policies()
        yield "keys: left on the server", self._left()

    def facts(self) -> dict[str, Any]:
        """For the verdict."""
        if not self._keyed.things:
            return {}
        told = Counter(job.told or "producer died" for jobs in self._by_thing.values() for job in jobs)
        words = ", ".join(f"{count} {word}" for word, count in told.most_common())
        waiting, blocked = self._keyed.needs.keys(), self._keyed.blocked
        return {
            "pushes with a key": f"{len(self._keyed.things)} ({words}) of {len(self._by_thing)} keys",
            "jobs that waited for their key": f"{len(blocked - waiting)} when pushed, {len(self._keyed.parked)} when "
            "they were to start",
            "jobs that wait for others": f"{len(waiting)}, {len(blocked & waiting)} of them blocked when pushed",
        }

    def _things(self, phase: str) -> Iterator[tuple[Thing, list[Job]]]:
        """The things of kinds whose jobs hold this lock."""
        return (one for one in self._by_thing.items() if phase in KEYED[one[0].kind].phases)

    def _once(self) -> Iterator[str]:
        for thing, jobs in self._things("o"):
            began = [job.key for job in jobs if job.runs or job.struck]
            accepted = [job.key for job in jobs if job.told == "accepted"]
            there = accepted or thing in self._keyed.existing or any(job.told == "duplicate" for job in jobs)
            if len(began) > 1 or len(accepted) > 1 or (there and not began):
                told = ", ".join(f"{job.key} {job.told or 'producer died'}" for job in jobs)
                yield f"{thing.kind}/{thing.name}: {began or 'none'} ran ({told})"

    def _duplicates(self) -> Iterator[str]:
        for key, jid in self._keyed.duplicates.items():
            first, thing = self._history.keys.get(jid), self._keyed.things.get(key)
            if self._history.jobs[key].runs:
                yield f"{key} ran, and was told to be a duplicate of {jid}"
            if jid != "-" and (first is None or self._keyed.things.get(first) != thing):
                yield f"{key} was told to be a duplicate of {jid}, {first or 'which never ran'}"

    def _together(self) -> Iterator[str]:
        for phase, held in (("u", self._until_its_end), ("w", self._until_its_start)):
            for thing, jobs in self._things(phase):
                intervals = sorted(filter(None, map(held, jobs)), key=lambda one: one[:2])
                yield from _meeting(thing, intervals)

    def _until_its_end(self, job: Job) -> Interval | None:
        began = min((run.begun for run in job.runs), default=NEVER)
        taken = job.told_at if job.told == "accepted" and job.key not in self._keyed.blocked else began
        last = [run for run in job.runs if run.attempt == self._planned(job) and run.how not in CUT_OFF]
        ended = min((run.ended for run in last), default=max((run.begun for run in job.runs), default=0.0))
        return (taken, ended, job) if taken < ended else None

    def _until_its_start(self, job: Job) -> Interval | None:
        asked = [at for jid in self._history.jids.get(job.key, ()) if (at := self._keyed.asked.get(jid)) is not None]
        if job.told != "accepted" or not asked or job.told_at >= min(asked):
            return None
        return job.told_at, min(asked), job

    def _fresh(self) -> Iterator[str]:
        """After each push of newer arguments that was answered a job of that name began with them, or with those of a
        push that was not over when this one was made."""
        began: dict[str, list[tuple[float, Fresh]]] = defaultdict(list)
        for key, pushes in self._keyed.ran.items():
            last = max((run.begun for run in self._history.jobs[key].runs if run.how == "ok"), default=-NEVER)
            for push in (self._keyed.fresh[one] for one in pushes if one in self._keyed.fresh):
                began[push.name].append((last, push))
                if push.told == "refused":
                    yield f"{key} ran with arguments of a push that was refused"
        for name, push in self._keyed.fresh.items():
            if push.told in ("accepted", "duplicate") and not any(
                at >= push.at and (other is push or (other.told_at or NEVER) >= push.at)
                for at, other in began[push.name]
            ):
                yield f"{name} for {push.name} ({push.told} as {push.jid}): no run with these arguments, or later ones"

    def _overlaps(self) -> Iterator[str]:
        """A span begins when the one before it has been heard of for the last time, and under a higher token. What a
        zombie did after it was stopped does not count."""
        for entity, spans in self._keyed.by_name().items():
            held: Span | None = None
            token = -1
            for span in spans:
                seen = self._heard(span)
                if seen < span.at:
                    continue  # it came back from the dead
                if held is not None and span.at < self._heard(held) - EARLY:
                    late = self._heard(held) - span.at
                    yield f"{'/'.join(entity)}: {span.keys} in {span.pid} began {late:.3f} s before {held.keys} ended"
                if span.token <= token:
                    yield f"{'/'.join(entity)}: token {span.token} of {span.keys} began after {token}"
                token = max(token, span.token)
                held = span if held is None or seen > self._heard(held) else held

    def _heard(self, span: Span) -> float:
        """When its process was heard of for the last time, before it was a zombie."""
        dead = [one.since for one in self._history.windows if is_zombie(one, span)]
        return min([span.seen, *dead])

    def _before(self) -> Iterator[str]:
        """No need is met before a job of that thing ended as it should."""
        for key, things in self._keyed.needs.items():
            began = min((run.begun for run in self._history.jobs[key].runs), default=NEVER)
            for thing in things if began < NEVER and "time" not in self._keyed.told.get(key, ()) else ():
                met = min((self._met(job) for job in self._needed(thing)), default=NEVER)
                if began < met - EARLY:
                    late = f"{met - began:.3f} s before" if met < NEVER else "without"
                    yield f"{key} began {late} the end of {thing.kind}/{thing.name}"

    def _needed(self, thing: Thing) -> list[Job]:
        """The jobs of a thing; what has no name is known by the key of its push."""
        one = self._history.jobs.get(thing.name)
        return self._by_thing.get(thing) or ([one] if one is not None else [])

    def _met(self, job: Job) -> float:
        """When it ended first in the way that lets others go; what never runs, when what it waits for had ended."""
        kind = kind_of(job.key)
        if kind.attempts == 0:
            before = (one for thing in self._keyed.needs[job.key] for one in self._needed(thing))
            return min(map(self._met, before), default=NEVER)
        how = "Failure" if kind.status == "failed" else "Kill" if kind.dead else "ok"
        return min((run.ended for run in job.runs if run.how == how), default=NEVER)

    def _policies(self) -> Iterator[str]:
        """Who is to be cancelled or to fail never runs; who runs all the same is told why; nobody waits too short."""
        for key, job in self._history.jobs.items():
            if kind_of(key).attempts == 0 and job.runs:
                yield f"{key} began at {job.runs[0].begun:.3f}, and was never to run"
        for key, told in self._keyed.told.items():
            kind, job = key.partition("-")[0], self._history.jobs[key]
            if others := told.difference(TOLD.get(kind, ())):
                yield f"{key} was told of what it waited for: {', '.join(sorted(others))}"
            if "time" in told and kind in PATIENCE and (early := self._impatient(job, PATIENCE[kind])) > KNOWN:
                yield f"{key} waited {early:.3f} s less than the {PATIENCE[kind]:g} s for which it was to wait"

    def _impatient(self, job: Job, patience: float) -> float:
        """By how much it began too early, by our clock and by the server's, which may have been stepped."""
        began, clock = min(run.begun for run in job.runs), self._history.server
        to = max(began, job.pushed)
        theirs = clock.least(job.pushed, max(job.told_at, job.pushed)) + patience - clock.most(job.pushed - ASKED, to)
        return min(job.pushed + patience - began, theirs)

    def _left(self) -> Iterator[str]:
        dead = {json.loads(one).get("jid") for one in self._redis.zrange("dead", 0, -1) if not is_hostile(one)}
        for pattern in LEFT:
            for key in self._redis.scan_iter(match=pattern, count=1000):
                name = key.decode(errors="replace")
                if not name.startswith("hm:lock:"):
                    yield f"{name} is there"
                    continue
                for field, value in self._redis.hgetall(key).items():
                    jid = value.decode(errors="replace").rsplit(" ", 2)[0]
                    if jid not in dead or not name.startswith("hm:lock:o:"):
                        yield f"{name}: {field!r} is held by {jid}, {self._history.keys.get(jid, 'which never ran')}"


def _meeting(thing: Thing, intervals: list[Interval]) -> Iterator[str]:
    held: Interval | None = None
    for one in intervals:
        if held is not None and one[0] < held[1] - EARLY:
            early = held[1] - one[0]
            yield f"{thing.kind}/{thing.name}: {one[2].key} had the key {early:.3f} s before {held[2].key} gave it up"
        held = one if held is None or one[1] > held[1] else held


class OutboxJudgement:
    """That exactly the committed jobs ran is judged as of all jobs: the database says which were accepted. ``rules()``
    gives the rest."""

    def __init__(self, history: History) -> None:
        self._history, self._outbox = history, history.outbox

    def rules(self) -> Iterator[tuple[str, Iterable[str]]]:
        """Every rule with what violates it."""
        yield "outbox: a row that is not exactly one job", self._jobs()
        yield "outbox: what the database has differs from what it said", self._answers()
        yield "outbox: rows left", [f"{self._outbox.rows} rows"] if self._outbox.rows else []

    def facts(self) -> dict[str, Any]:
        """For the verdict."""
        told = Counter(self._outbox.told.values())
        words = ", ".join(f"{count} {word}" for word, count in told.most_common())
        committed = len(self._outbox.committed or ())
        return {"rows of the outbox": f"{len(told) and told.total()} ({words}), {committed} committed"} if told else {}

    def _jobs(self) -> Iterator[str]:
        if self._outbox.told and self._outbox.committed is None:
            yield "nobody could look which rows were committed"
        for key in self._outbox.told:
            jids, committed = self._history.jids.get(key, set()), key in (self._outbox.committed or ())
            if len(jids) != committed and self._history.jobs[key].told != "duplicate":
                yield f"{key}, {'committed' if committed else 'not committed'}, ran as {sorted(jids) or 'no job'}"

    def _answers(self) -> Iterator[str]:
        for key, told in self._outbox.told.items():
            there = key in (self._outbox.committed or ())
            if self._outbox.committed is not None and told in ("accepted", "refused") and there != (told == "accepted"):
                yield f"{key} was {told}, and is {'there' if there else 'not there'}"
        for key in (self._outbox.committed or set()) - self._outbox.told.keys():
            yield f"{key} is there, and nobody wrote it"
