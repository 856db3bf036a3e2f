"""The judgement of batches: what the ledger, the server's counts and the record in SQL say must be one and the same."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batch_past import Made
from kinds import kind_of
from life_judge import broken, lives
from past import NEVER, History, Job
from redis import Redis
from repeats import Repeats

__all__ = ["BatchJudgement", "Row"]

LIVE = ("blocked", "scheduled", "enqueued", "working", "retrying")
FINAL = ("finished", "failed", "error", "cancelled", "expired")
GRACE = 5.0  # seconds: what was being fetched when its batch was cancelled may start within the lease
TOLD = frozenset({"JobCancelled", "CancelledError", "JobShutdown"})  # how a run ends that is told to
LARGE = ("big-", "huge-")  # kinds whose arguments are too long to be recorded
CALLBACKS = ("complete", "success", "death")
_KEY = re.compile(r'\["([^"]+)"')
Row = tuple[str, str]  # batch, status


class BatchJudgement:
    """``rules()`` gives each rule with its violations. ``planned``: in how many attempts a job ends; ``pills``: keys of
    jobs that were found to be poison pills."""

    def __init__(
        self, history: History, repeats: Repeats, redis: Redis, record: Path | None, planned: Any, pills: set[str]
    ) -> None:
        self._history, self._repeats, self._planned, self._pills = history, repeats, planned, pills
        self._redis: Any = redis
        self._made = history.batches.made
        self._facts: dict[str, dict[str, str]] = {}
        for name in self._redis.zrange("hm:batches", 0, -1):
            facts = self._redis.hgetall(f"hm:batch:{name.decode()}")
            self._facts[name.decode()] = {key.decode(): value.decode(errors="replace") for key, value in facts.items()}
            if facts.get(b"why") and name.decode() in self._made:
                self._made[name.decode()].aborting = True  # also by the auditor, when its producer was gone
        self._rows: dict[str, Row] = {}
        self._doubled: list[str] = []
        self._recorded: dict[str, tuple[str, int, int]] = {}
        self._lives: dict[str, list[str]] = {}
        if record is not None:
            self._read(record)
        self._counted: dict[str, Counter[str]] = defaultdict(Counter)
        for batch, status in self._rows.values():
            self._counted[batch][status] += 1

    def _read(self, record: Path) -> None:
        told = lives(record)
        with sqlite3.connect(f"file:{record}?mode=ro", uri=True) as db:
            query = "SELECT jid, batch, status, substr(args, 1, 200) FROM henchman_events"
            query += " WHERE batch IS NOT NULL ORDER BY args LIKE '[\"(%'"
            for jid, batch, status, args in db.execute(query):
                key = self._history.keys.get(jid) or self._key(batch, args or "")
                if key in self._rows:
                    self._doubled.append(f"{key} has two events")
                self._rows[key] = (batch, status)
                self._lives[key] = told.get(jid, [])
            query = "SELECT id, state, total, generation FROM henchman_batches"
            self._recorded = {name: (state, total, round_) for name, state, total, round_ in db.execute(query)}

    def _key(self, batch: str, args: str) -> str:
        """Of a job that never ran; where its arguments were too long to be recorded, one that may be meant."""
        unnamed = args.startswith('["(')  # "(250,033 bytes)" in place of what it was
        if not unnamed and (found := _KEY.match(args)):
            return found.group(1)
        members = self._made[batch].members if batch in self._made else []
        large = (key for key in members if key.startswith(LARGE) and not self._history.jobs[key].runs)
        known = f"no job of ours: {args!r:.80}"
        return next((key for key in large if key not in self._rows), known) if unnamed else known

    def rules(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Every rule."""
        yield "batches that are not complete", self._complete()
        yield "batches: counts of the server and of SQL differ", self._counts()
        yield "batches: members and ledger differ", self._members()
        yield "batches: status of a job and ledger differ", self._statuses()
        yield "batches: changes of a job lost or doubled in SQL", self._changes()
        yield "batches: callbacks not enqueued exactly once", self._called()
        yield "batches: started after the cancellation", self._against_will()
        yield "batches: results of rows and counts differ", self._results()
        yield "batches: left on the server", self._left()

    def facts(self) -> dict[str, Any]:
        """For the verdict."""
        if not self._facts:
            return {}
        styles = Counter(self._made[name].style for name in self._facts if name in self._made)
        whys = Counter(facts.get("why") or "well" for facts in self._facts.values())
        again = sum(facts.get("generation") != "1" for facts in self._facts.values())
        called = Counter(name.split(":")[1] for facts in self._facts.values() for name in facts if "called:" in name)
        counts: Counter[str] = Counter()
        for facts in self._facts.values():
            counts.update({status: int(facts.get(f"n:{status}", 0)) for status in FINAL})
        return {
            "batches": f"{len(self._facts)} ({_told(styles)}); ended: {_told(whys)}; retried {again}",
            "jobs in batches": f"{sum(counts.values())} ({_told(counts)}); the same in SQL, {len(self._rows)} events",
            "callbacks": _told(called),
        }

    def _complete(self) -> Iterator[str]:
        for name, facts in self._facts.items():
            live = {status: facts[f"n:{status}"] for status in LIVE if facts.get(f"n:{status}", "0") != "0"}
            total = sum(int(facts.get(f"n:{status}", 0)) for status in FINAL)
            if facts.get("state") != "complete" or live:
                waits = self._redis.hgetall(f"hm:batch:{name}:jobs")
                yield f"{self._shown(name)}: {facts.get('state')}, {live}; {dict(list(waits.items())[:4])}"
            elif total != int(facts.get("total", -1)):
                yield f"{self._shown(name)}: {total} have ended, of {facts.get('total')}"

    def _counts(self) -> Iterator[str]:
        yield from self._doubled
        for name, facts in self._facts.items():
            ours = {status: int(facts.get(f"n:{status}", 0)) for status in (*LIVE, *FINAL)}
            theirs = {status: self._counted[name][status] for status in (*LIVE, *FINAL)}
            if ours != theirs:
                apart = {one: (ours[one], theirs[one]) for one in ours if ours[one] != theirs[one]}
                yield f"{self._shown(name)}: (server, SQL) {apart}"
            told = self._recorded.get(name)
            if told is None or (told[0], told[2]) != ("complete", int(facts.get("generation", 0))):
                yield f"{self._shown(name)}: SQL says {told}"
        for key, (batch, status) in self._rows.items():
            if status not in FINAL:
                yield f"{key} is {status} in SQL, in {self._shown(batch)}"
            if batch not in self._facts:
                yield f"{key} is in SQL as of batch {batch}, which the server does not know"

    def _members(self) -> Iterator[str]:
        for name, batch in self._made.items():
            for key in batch.members:
                job, row = self._history.jobs[key], self._rows.get(key)
                if row is not None and row[0] != name:
                    yield f"{key} was pushed into {self._shown(name)}, and stands in {self._shown(row[0])}"
                nameless = key.startswith(LARGE) and not job.runs  # its name is in an argument too large for history
                if row is None and (job.told == "accepted" or job.runs) and not nameless:
                    yield f"{key} ({job.told}) is not a member of {self._shown(name)}"
                if row is not None and job.told == "refused":
                    yield f"{key} is a member of {self._shown(name)}, though its push was refused"
        for key in self._rows.keys() - self._history.batches.of.keys():
            if not key.startswith("("):  # as above: what stands in place of a large argument
                yield f"{key} is in SQL, and nobody pushed it into a batch"

    def _statuses(self) -> Iterator[str]:
        for key, (_, status) in self._rows.items():
            job, batch = self._history.jobs.get(key), self._history.batches.of.get(key)
            if job is None or batch is None:
                continue
            allowed = self._allowed(job, batch)
            if status not in allowed:
                runs = "; ".join(f"{run.attempt} {run.how or 'no end'} {run.ended:.3f}" for run in job.runs)
                yield f"{key} is {status}, by the ledger {' or '.join(sorted(allowed))} ({runs or 'no run'})"

    def _changes(self) -> Iterator[str]:
        for key, (_, status) in self._rows.items():
            job, life = self._history.jobs.get(key), self._lives[key]
            if job is None:
                continue
            as_planned = status == kind_of(key).status and status != "cancelled" and key not in self._pills
            retried = max(self._planned(job) - 1, 0) if as_planned and not key.startswith("mender-") else None
            for problem in broken(life, retried, key.startswith("mender-")):
                yield f"{key}: {problem} ({' '.join(life)})"
            if life[-1:] != [status]:
                yield f"{key} is {status}, and its last change says {life[-1:]}"

    def _allowed(self, job: Job, batch: Made) -> set[str]:
        """The statuses that fit what the ledger says of a job."""
        if job.key in self._pills:
            return {"error"}
        kind = kind_of(job.key)
        if kind.attempts == 0:
            return {kind.status} | ({"cancelled"} if self._history.batches.may_not_run(job.key) else set())
        if job.key.startswith("mender-"):
            return {"finished" if any(run.how == "ok" for run in job.runs) else "error"}
        ends = [
            run
            for run in job.runs
            if run.attempt == self._planned(job) and run.ended < NEVER and run.how != "Snooze"  # it was to come again
        ]
        if not (self._history.batches.may_not_run(job.key) or (kind.may_not_run and (job.unstarted or job.cancelling))):
            return {kind.status} if ends or self._planned(job) in job.struck else {"still to end"}
        without = {"cancelled"} if job.cancelling or self._history.batches.may_not_run(job.key) else set()
        without |= {"expired"} & job.unstarted | {"cancelled"} & job.unstarted
        if not ends:
            return without
        return {kind.status} if self.surely_ended(job) else {kind.status} | without

    def surely_ended(self, job: Job) -> bool:
        """Whether it came to the end of its last attempt, and nothing can have kept that from being told."""
        ends = (run for run in job.runs if run.attempt == self._planned(job) and run.ended < NEVER)
        sure = any(run.how not in (*TOLD, "Snooze") and self._repeats.cause(run) is None for run in ends)
        return sure and not job.unstarted

    def _called(self) -> Iterator[str]:
        calls: dict[tuple[str, str], Job] = {}
        for key, job in self._history.jobs.items():
            if key.startswith("called-"):
                _, which, name = key.split("-")
                calls[name, which] = job
                if name not in self._facts:
                    yield f"{key}: the server knows no such batch"
        for name, facts in self._facts.items():
            bad = sum(int(facts.get(f"n:{one}", 0)) for one in FINAL if one != "finished")
            bad += int(facts.get("bad_children", 0)) + bool(facts.get("why"))
            rounds = int(facts.get("generation", 0))  # the next begins when what gave up is retried
            died = rounds > 1 or facts.get("n:error", "0") != "0"
            wanted = {"complete": rounds, "success": int(not bad), "death": int(died)}
            for which in CALLBACKS:
                job = calls.get((name, which))
                enqueued = job.stagings() if job else 0
                ended = bool(job) and any(run.how == "ok" for run in job.runs)
                if enqueued != wanted[which] or ended != bool(wanted[which]):
                    yield (
                        f"on_{which} of {self._shown(name)}: enqueued {enqueued} times, "
                        f"{'ended' if ended else 'not ended'}; it should have been {wanted[which]} times"
                    )

    def _against_will(self) -> Iterator[str]:
        for batch in self._made.values():
            at = min((one.cancelled for one in self._history.batches.lineage(batch) if one.cancelled), default=None)
            for key in batch.members if at is not None else ():
                for run in self._history.jobs[key].runs:
                    if run.begun > at + GRACE:
                        yield f"{key} started {run.begun - at:.3f} s after {self._shown(batch.name)} was cancelled"

    def _results(self) -> Iterator[str]:
        """Of a batch that keeps results: each job has one row, and one result that says how it was counted."""
        for name, facts in self._facts.items():
            if facts.get("results") != "1":
                continue
            rows = [row.partition(b" ")[2] for row in self._redis.lrange(f"hm:batch:{name}:rows", 0, -1)]
            kept = self._redis.hgetall(f"hm:batch:{name}:results")
            ours = Counter({status: int(facts.get(f"n:{status}", 0)) for status in FINAL})
            told = Counter(
                "finished" if text.startswith(b"=") else json.loads(text[1:])["status"] for text in kept.values()
            )
            if sorted(rows) != sorted(kept):
                yield f"{self._shown(name)}: {len(rows)} rows, {len(kept)} results: not of the same jobs, each once"
            elif ours != told:
                yield f"{self._shown(name)}: counted {_told(ours)}, results say {_told(told)}"

    def _left(self) -> Iterator[str]:
        for suffix in ("jobs", "parked", "producer"):
            for key in self._redis.scan_iter(match=f"hm:batch:*:{suffix}", count=1000):
                if suffix != "producer" or self._facts.get(key.decode().split(":")[2], {}).get("state") == "complete":
                    yield f"{key.decode()} is there"
        if waits := self._redis.xlen("hm:history"):
            yield f"hm:history holds {waits} entries"

    def _shown(self, name: str) -> str:
        made = self._made.get(name)
        return f"{name[:8]} ({made.style}, of {made.pid})" if made else name[:8]


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common() if count)
