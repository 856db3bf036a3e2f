"""The judgement: every rule that the run must keep, as a function from what happened to violations."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from batch_judge import BatchJudgement
from hostile_attack import is_hostile
from key_judge import KeyJudgement, OutboxJudgement
from kinds import kind_of
from limit_judge import LimitJudgement
from ordered_judge import OrderedJudgement
from past import NEVER, History, Job, Run
from redis import Redis
from repeats import STAGED_ANEW, Repeats

from henchman.client.push import TIME_KNOWN

__all__ = ["Judgement"]

LEASE = 5.0
EARLY = 0.002  # two processes read one clock; a score has microseconds
KNOWN = 0.1  # seconds: how well a process knows the server's clock
ASKED = TIME_KNOWN + 0.5  # seconds since a producer asked the server for its time, at most
BADLY = 2.5  # where its questions were answered late, or not
HOSTILE = 4  # times, at most, that a hostile payload is counted before it is taken away
LIFE = 2.0  # seconds until a brief job expires


class Judgement:
    """``violations`` by rule; ``facts`` are the figures of the verdict.

    ``unconfirmed``: what was pushed or cancelled between these times no replica had confirmed when the server was lost;
    it is counted apart, pushes and cancellations, and with it the counters cannot be known. ``record``: the history in
    SQLite, if there was one.
    """

    def __init__(
        self,
        history: History,
        redis: Redis,
        unconfirmed: tuple[float, float] | None = None,
        record: Path | None = None,
    ) -> None:
        self.history = history
        self._redis = redis
        dead: Any = redis.zrange("dead", 0, -1)
        for key in redis.scan_iter(match="hm:batch:*:dead", count=1000):
            dead += redis.zrange(key, 0, -1)  # type: ignore[operator]
        dead = [one for one in dead if not is_hostile(one)]
        self._dead = Counter(_keys(dead))
        pills = [one for one in dead if b'"error_class":"PoisonPill"' in one]
        self._pills = dict(zip(_keys(pills), map(_died, pills), strict=True))
        self.violations: dict[str, list[str]] = {}
        self.repeats = Repeats(history)
        self.facts: dict[str, Any] = {}
        self._must: list[Job] = []
        self._unconfirmed: list[Job] = []
        self._cancels_apart: list[Job] = []
        since, to = unconfirmed or (NEVER, 0.0)
        for job in history.jobs.values():
            if job.pushed < to and (job.cancelled or 0.0) > since:
                self._cancels_apart.append(job)  # it must end all the same, in one way or the other
            if job.pushed < to and job.told_at > since:
                self._unconfirmed.append(job)
            elif job.told == "accepted" or (job.told != "refused" and (job.runs or job.unstarted)):
                self._must.append(job)
        pills = {job.key for job in self._must if self._poisoned(job)}
        self._batches = BatchJudgement(history, self.repeats, redis, record, self._planned, pills)
        for part in (self._batches, KeyJudgement(history, redis, self._planned), OutboxJudgement(history)):
            for name, found in part.rules():
                self._rule(name, found)
            self.facts |= part.facts()
        limited = LimitJudgement(history, redis, dead, self._knowing)
        for name, found in limited.rules():
            self._rule(name, found)
        self.facts |= limited.facts()
        self._rule("accepted jobs that did not reach their end", self._lost())
        self._rule("refused jobs that ran", (job.key for job in self._told("refused") if job.runs))
        self._rule("jobs that nobody pushed", self._unasked())
        self._rule("ran although cancelled or expired", self._against_will())
        self._rule("expired before its time", self._too_soon())
        self._rule("started early", self._early())
        self._rule("retries miscounted", self._retries())
        self._rule("repeats without a cause", self.repeats.unexplained)
        self._rule("orphans that nobody killed, and that a signal ended", self.repeats.unasked())
        told = Counter(status for _, status in history.exits.values())
        self.facts["orphans, by exit status"] = ", ".join(f"{many} with {one}" for one, many in sorted(told.items()))
        self._rule("arguments arrived changed", history.torn)
        self._rule("left on the server", self._left())
        self._rule("dead set", self._dead_set())
        self._rule("seen during the attacks", history.doubts)
        self._ordered = OrderedJudgement(history, self.repeats, redis, since, to, record)
        for name, found in self._ordered.rules():
            self._rule(name, found)
        self.facts |= self._ordered.facts
        if unconfirmed is None:
            self._rule("counters differ from the ledger", self._counters())
        else:
            self._tell_unconfirmed()

    def _rule(self, name: str, found: Iterable[str]) -> None:
        self.violations[name] = list(found)

    def _unasked(self) -> Iterator[str]:
        return (job.key for job in self.history.jobs.values() if not job.pushed and not job.key.startswith("called-"))

    def _told(self, word: str) -> list[Job]:
        return [job for job in self.history.jobs.values() if job.told == word]

    @staticmethod
    def _planned(job: Job) -> int:
        """In how many attempts it ends."""
        attempts = kind_of(job.key).attempts
        return int(job.notes["fails"]) + 1 if attempts is None else attempts

    def _poisoned(self, job: Job) -> bool:
        """Whether it is in the dead set because three processes of the run were struck while they held it, or ran it
        with nothing beside it. A lost host charges what it only held."""
        return len(self._pills.get(job.key, ())) >= 3 and all(map(self.repeats.struck, self._pills[job.key]))

    def _lost(self) -> Iterator[str]:
        for job in self._must:
            ended = {run.attempt for run in job.runs if run.ended < NEVER} | job.struck
            if (
                not self._planned(job)
                or self._planned(job) in ended
                or (kind_of(job.key).may_not_run and job.unstarted)
                or (kind_of(job.key).deadline and job.key in self._dead)
            ):
                continue
            if self.history.batches.may_not_run(job.key):  # its status in the batch is judged there
                continue
            if not self._poisoned(job):
                yield f"{job.key} ({job.told}, attempts ended: {sorted(ended) or 'none'}, starts: {len(job.runs)})"

    def _against_will(self) -> Iterator[str]:
        apart = {job.key for job in [*self._unconfirmed, *self._cancels_apart]}
        for job in self.history.jobs.values():
            for run in job.runs if job.key not in apart else ():
                if job.cancelled is not None and self._ran_cancelled(job, run):
                    yield f"{job.key} started {run.begun - job.cancelled:.3f} s after its cancellation was confirmed"
                late = run.begun - run.enqueued_at - LIFE
                if job.key.startswith("brief-") and late > self._knowing(job, run.begun):
                    yield f"{job.key} started {late:.3f} s after it had expired"

    def _too_soon(self) -> Iterator[str]:
        """The clock of no other process may make a job expire."""
        for job in self.history.jobs.values():
            for at in job.expired if job.key.startswith("brief-") else ():
                early = job.pushed + job.notes.get("delay", 0.0) + LIFE - at
                if early > self._knowing(job, at):
                    yield f"{job.key} expired {early:.3f} s before its time"

    def _knowing(self, job: Job, to: float) -> float:
        """How much a process may be wrong about the server's time from the push of a job until then. Where that was
        stepped, what was stored is compared with what it says now: then nothing can be said."""
        if not self.history.server.right(job.pushed - ASKED, to):
            return NEVER
        bad = (one for one in self.history.windows if one.cause in ("away", "delayed"))
        return BADLY if any(one.since <= to and one.to >= job.pushed - BADLY for one in bad) else KNOWN

    def _tell_unconfirmed(self) -> None:
        """What the lost server alone had answered: how much, and how much of it is lost."""
        accepted = [job for job in self._unconfirmed if job.told == "accepted"]
        gone = sum(not (job.runs or job.unstarted) for job in accepted)
        self.facts["accepted but not confirmed by the replica"] = f"{len(accepted)}, lost {gone}"
        ran = sum(any(self._ran_cancelled(job, run) for run in job.runs) for job in self._cancels_apart)
        told = f"{len(self._cancels_apart)}, ran all the same {ran}"
        self.facts["cancelled but not confirmed by the replica"] = told

    def _ran_cancelled(self, job: Job, run: Run) -> bool:
        return job.cancelled is not None and run.begun > job.cancelled + self._grace(job)

    def _due(self, job: Job) -> float:
        """When it is due, by the server's clock; at the earliest."""
        told = max(job.told_at, job.pushed)
        return job.notes.get("at", self.history.server.least(job.pushed, told) + job.notes.get("delay", 0.0))

    def _grace(self, job: Job) -> float:
        """None for a job that waited when it was cancelled; one that was being fetched may start within the lease."""
        cancelled = job.cancelled or NEVER
        waited = cancelled < NEVER and self.history.server.most(job.pushed, cancelled) < self._due(job) - 0.2
        return 0.0 if waited else LEASE

    def _early(self) -> Iterator[str]:
        clock = self.history.server
        for job in self.history.jobs.values():
            runs = job.attempts()
            for run in runs.get(1, [])[:1]:
                early = self._due(job) - clock.most(job.pushed - ASKED, max(run.begun, job.pushed))
                if "at" not in job.notes:  # a delay under way moves along when the clock goes back
                    early = min(early, job.pushed + job.notes.get("delay", 0.0) - run.begun)
                if early > EARLY:
                    yield f"{job.key} was due {early:.3f} s after it started"
            pause = kind_of(job.key).again
            for attempt in sorted(runs):
                begun = runs[attempt][0].begun
                last = min((run.ended for run in runs.get(attempt - 1, []) if run.ended < NEVER), default=NEVER)
                if begun < last + pause - EARLY and last < NEVER and not clock.doubtful(last, begun):
                    yield f"{job.key} attempt {attempt} came {begun - last:.3f} s after the last"

    def _retries(self) -> Iterator[str]:
        for job in self._must:
            runs = sorted({*job.attempts(), *job.struck})
            most = self._planned(job) + job.key.startswith("riser-")  # which is revived by hand once it is dead
            if runs and (runs[-1] > most or runs != list(range(1, runs[-1] + 1))):
                yield f"{job.key} was to end in attempt {self._planned(job)}, ran attempts {runs}"

    def _left(self) -> Iterator[str]:
        redis: Any = self._redis
        for pattern in ("hm:flight:*", "queue:*"):
            for key in redis.scan_iter(match=pattern, count=1000):
                yield f"{key.decode()} holds {redis.llen(key)}"
        for key in redis.scan_iter(match="hm:fair:turns:*", count=1000):
            yield f"{key.decode()} holds turns of {redis.zcard(key)} tenants"
        for key in ("schedule", "retry"):
            if redis.zcard(key):
                yield f"{key} holds {redis.zcard(key)}: {_keys(redis.zrange(key, 0, 4))}"
        if redis.llen("hm:broken"):
            yield f"hm:broken holds {redis.llen('hm:broken')}: {redis.lindex('hm:broken', 0)!r}"

    @staticmethod
    def _unmended(job: Job) -> bool:
        """Whether it failed, and nobody has retried its batch, or revived it."""
        return job.key.startswith(("mender-", "riser-")) and not any(run.how == "ok" for run in job.runs)

    @staticmethod
    def _may_have_failed(job: Job) -> bool:
        """Whether it is dead without a run if it was pushed, and nobody knows that."""
        kind = kind_of(job.key)
        return kind.dead and kind.attempts == 0 and job.told in ("unknown", "")

    def _dead_set(self) -> Iterator[str]:
        wanted = {job.key for job in self._must if kind_of(job.key).dead or self._unmended(job)}
        apart = {job.key for job in self._unconfirmed}
        apart |= {key for key in wanted if self.history.batches.may_not_run(key)}
        apart |= {job.key for job in self.history.jobs.values() if self._may_have_failed(job)}
        apart |= {job.key for job in self.history.jobs.values() if kind_of(job.key).deadline}  # see limit_judge.py
        for key in sorted(wanted - self._dead.keys() - apart):
            yield f"{key} is not there"
        for key, count in self._dead.items():
            if count > 1:
                yield f"{key} is there {count} times"
            if key not in wanted | apart and not (key in self.history.jobs and self._poisoned(self.history.jobs[key])):
                yield f"{key} does not belong there"
        self.facts["poison pills (three deaths each, the last alone)"] = sum(
            key not in wanted | apart for key in self._dead
        )

    def _counters(self) -> Iterator[str]:
        """Each run is settled once, whatever was repeated: so the counters are known to the unit."""
        claims, failed_claims, pills = self._ordered.claims()
        pills += HOSTILE * self.history.hostile + self.history.hostile_runs
        least = {"processed": claims, "failed": failed_claims}
        most = {"processed": claims + pills, "failed": failed_claims + pills}
        for job in self._must:
            kind, planned = kind_of(job.key), self._planned(job)
            failures = planned - 1 if kind.failures is None else kind.failures
            failures = int(job.key in self._dead) if kind.deadline else failures
            low, high = planned, planned
            if job.key.startswith(STAGED_ANEW):
                low = high = job.stagings()
            elif kind.may_not_run and job.unstarted:
                low, high = 0, planned if job.runs else 0
            fewest = failures
            if self._poisoned(job) and not kind.dead:
                low = failures = fewest = 0
            elif self.history.batches.may_not_run(job.key) and not self._batches.surely_ended(job):
                low = fewest = 0
                high, failures = (high, failures) if job.runs else (0, 0)
            for name, lowest, highest in (("processed", low, high), ("failed", fewest, failures)):
                least[name] += lowest
                most[name] += highest
        for name in least:
            count = int(self._redis.get(f"stat:{name}") or 0)
            self.facts[f"counter {name}"] = f"{count} (ledger: {least[name]} to {most[name]})"
            if not least[name] <= count <= most[name]:
                yield f"stat:{name} is {count}, by the ledger {least[name]} to {most[name]}"


def _died(pill: bytes) -> list[int]:
    """The processes that it names as having died."""
    return [int(pid) for pid in re.findall(r":(\d+):[0-9a-f]{12} ", json.loads(pill)["error_message"])]


def _keys(payloads: Iterable[bytes]) -> list[str]:
    found = []
    for payload in payloads:
        try:
            found.append(str(json.loads(payload)["args"][0]))
        except (ValueError, LookupError, TypeError):
            found.append(f"no job of ours: {payload[:100]!r}")
    return found
