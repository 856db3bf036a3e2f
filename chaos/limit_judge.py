"""The judgement on jobs with limits and with deadlines.

A place is taken from the moment at which a worker lets a job start until its end is written down, or until its process
was heard of for the last time. What a zombie does counts no more: nothing of it is accepted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kinds import PLACES, kind_of, lane_of
from past import NEVER, History, Job, Run
from redis import Redis
from spans import RESCUE

__all__ = ["LimitJudgement"]

EARLY = 0.002  # seconds: two processes read one clock
#: nothing of this may be left; who waits is judged with those that wait for a key
LEFT = ("hm:slots:*", "hm:behind", "hm:limited:*", "hm:programs")


class LimitJudgement:
    """``rules()`` gives (name, violations). ``dead``: the payloads of all that are dead; ``knowing(job, to)``: how much
    a process may be wrong about the server's time from the push of a job until then."""

    def __init__(
        self, history: History, redis: Redis, dead: Iterable[bytes], knowing: Callable[[Job, float], float]
    ) -> None:
        self._history, self._knowing, self._dead = history, knowing, list(dead)
        self._redis: Any = redis

    def rules(self) -> Iterator[tuple[str, Iterable[str]]]:
        """Every rule with what violates it."""
        yield "limits: more ran at once than there are places", self._together()
        yield "limits: places left on the server", self._left()
        yield "deadlines: started after its deadline", self._late()
        yield "deadlines: dead for another reason", self._causes()

    def facts(self) -> dict[str, Any]:
        """For the verdict."""
        waits = [
            min(run.begun for run in job.runs) - job.told_at
            for job in self._of("capped", "acapped", "paced")
            if job.runs and job.told == "accepted"
        ]
        pressed = self._of("pressed")
        if not waits and not pressed:
            return {}
        dead = sum(b'"class":"pressed"' in one for one in self._dead)
        expired = sum(bool(job.unstarted) for job in pressed)
        return {
            "jobs with limits": f"{len(waits)}, the last started {max(waits, default=0.0):.1f} s after its push",
            "jobs with a deadline": f"{len(pressed)}, {expired} expired, {dead} dead",
        }

    def _of(self, *kinds: str) -> list[Job]:
        return [job for job in self._history.jobs.values() if job.key.partition("-")[0] in kinds]

    def _together(self) -> Iterator[str]:
        changes: dict[int, list[tuple[float, int, str]]] = defaultdict(list)
        for job in self._of("capped", "acapped"):
            for run in job.runs:
                ended = self._accepted_until(run)
                if ended - run.begun > EARLY:
                    changes[lane_of(job.key)] += [(run.begun, 1, job.key), (ended - EARLY, -1, job.key)]
        for lane, found in changes.items():
            running: set[str] = set()
            for at, change, key in sorted(found):
                (running.add if change > 0 else running.discard)(key)
                if change > 0 and len(running) > PLACES:
                    yield f"lane {lane}: {sorted(running)} at {at:.3f}"

    def _accepted_until(self, run: Run) -> float:
        """When a run ended, was heard of for the last time, or when its process became a zombie."""
        seen = run.ended if run.ended < NEVER else run.at
        return min([seen, *(one.since for one in self._history.windows if self._is_buried(one, run, seen))])

    @staticmethod
    def _is_buried(window: Any, run: Run, seen: float) -> bool:
        buried = window.cause == "failover" or (window.cause == "stopped" and window.to - window.since > RESCUE)
        return buried and run.pid in window.pids and run.begun <= window.to and seen >= window.since

    def _left(self) -> Iterator[str]:
        for pattern in LEFT:
            for key in self._redis.scan_iter(match=pattern, count=1000):
                yield key.decode()

    def _late(self) -> Iterator[str]:
        for job in self._of("pressed"):
            for run in job.runs if job.told == "accepted" else ():
                late = run.begun - job.told_at - kind_of(job.key).deadline
                if late > self._knowing(job, run.begun):
                    yield f"{job.key} started {late:.3f} s after its deadline"

    def _causes(self) -> Iterator[str]:
        for payload in self._dead:
            if b'"class":"pressed"' in payload:
                job = json.loads(payload)
                if job.get("error_cause") not in ("deadline", "poison"):
                    yield f"{job['args'][0]}: {job.get('error_class')} by {job.get('error_cause')}"
