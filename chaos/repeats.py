"""Runs that happened more than once, each with its cause.

A run may be repeated when its process died, lost its lease or was orphaned and cut it off, or before its end could
be told: at most 5 ms later with the server at hand, or, when the server was away, after the next try. One that was
stopped and goes on says itself what it told too late. What the server has confirmed is never run again. Everything else
is a violation.
"""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from collections.abc import Iterator

from groups import GRACE
from past import NEVER, History, Job, Run, Window

__all__ = ["STAGED_ANEW", "Repeats"]

STAGED_ANEW = ("snoozer-", "mender-", "riser-", "called-")  # kinds that come into a queue more often, as was asked for

ACK = 0.005
KILLS = ("kill", "stopped")  # what is stopped for too long its supervisor kills
AGAIN = 1.5  # seconds until a worker tries again, at the latest, after the server has come back
CUT_OFF = ("", "JobShutdown", "CancelledError")  # how a run ends that does not come to its end
BUSY = 0.5  # seconds that an ack may take on a machine whose processors and disk are all taken; counted apart
SLOW = 0.7  # the same where answers come 100 ms later, that of the ack before it, too


class Repeats:
    """``causes`` counts explained repeats; ``unexplained`` names the others."""

    def __init__(self, history: History) -> None:
        self.causes: Counter[str] = Counter()
        self.unexplained: list[str] = []
        self.jobs: set[str] = set()
        self._exits = history.exits
        self._strikes: dict[int, list[Window]] = defaultdict(list)
        self._absent = [window for window in history.windows if window.cause == "away"]
        self._absences: dict[int, list[tuple[float, float]]] = {}
        self._slow = [window for window in history.windows if window.cause == "delayed"]
        for window in history.windows:
            if window.cause not in ("away", "delayed"):
                for pid in window.pids:
                    self._strikes[pid].append(window)
        for job in history.jobs.values():
            for attempt, runs in job.attempts().items():
                self._look(job, attempt, runs)

    def _look(self, job: Job, attempt: int, runs: list[Run]) -> None:
        planned = job.stagings() if job.key.startswith(STAGED_ANEW) else 1
        extra = len(runs) - planned
        if extra <= 0:
            return
        self.jobs.add(job.key)
        found = sorted(cause for run in runs if (cause := self.cause(run)) is not None)
        self.causes.update(found[:extra])
        for _ in range(extra - len(found)):
            told = "; ".join(map(self._told, runs))
            self.unexplained.append(f"{job.key} attempt {attempt} ran {len(runs)} times: {told}")

    def _told(self, run: Run) -> str:
        text = f"{run.pid} {run.at:.3f}-{run.ended:.3f} {run.how or 'no end'}"
        if run.pid in self._exits:
            text += " (an orphan, ended at {:.3f} with status {})".format(*self._exits[run.pid])
        return text

    def unasked(self) -> Iterator[str]:
        """Orphans that a signal ended which no attack sent.

        A group whose members are stopped, and whose last parent outside of it dies, gets SIGHUP from the kernel (POSIX,
        orphaned process groups): workers ignore it, one that has only begun to start dies of it.
        """
        for pid, (at, status) in self._exits.items():
            struck = any(one.cause in KILLS and one.since <= at for one in self._strikes[pid])
            if status < 0 and not (struck and -status in (signal.SIGKILL, signal.SIGHUP)):
                yield f"{pid} was ended by signal {-status} at {at:.3f}"

    def struck(self, pid: int) -> bool:
        """Whether an attack was made on the process."""
        return pid in self._strikes

    def cause(self, run: Run) -> str | None:
        """Why ``run`` may be repeated; None when it may not."""
        for strike in self._strikes[run.pid]:
            if run.begun > strike.to or (run.settled and strike.cause != "failover"):
                continue
            if run.ended >= strike.since and strike.cause == "orphaned":
                if cause := self._orphaned(run, strike):
                    return cause
                continue
            if run.ended >= strike.since:
                return f"{strike.cause}: it was running" if strike.cause != "failover" else "failover"
            late = strike.since - run.ended
            if late <= ACK:
                return f"{strike.cause}: it had ended less than 5 ms before"
            if any(since - BUSY <= run.ended and strike.since <= to + AGAIN for since, to in self._away(run.pid)):
                return f"{strike.cause}: it had ended while the server was away"
            if late <= SLOW and any(run.pid in one.pids and one.since <= run.ended <= one.to for one in self._slow):
                return f"{strike.cause}: it had ended while answers came late"
            if late > BUSY:
                continue
            if strike.cause == "stopped" and strike.since < run.late < NEVER:
                return "stopped: it had ended, and its word came too late"
            return f"{strike.cause}: it had ended {ACK * 1000:g} to {BUSY * 1000:g} ms before (machine busy)"
        return None

    def _orphaned(self, run: Run, strike: Window) -> str | None:
        """An orphan finishes what it can: what it had to cut off is run again, and what it could not tell any more."""
        if run.how in CUT_OFF or run.ended >= strike.since + float(GRACE):
            return "orphaned: it was running"
        if any(since - BUSY <= run.ended <= to for since, to in self._away(run.pid)):
            return "orphaned: it had ended while the server was away"
        return None

    def _away(self, pid: int) -> list[tuple[float, float]]:
        """From when to when ``pid`` could tell nothing: what begins before its next try belongs to what was before."""
        if pid not in self._absences:
            merged: list[tuple[float, float]] = []
            concerning = [(one.since, one.to) for one in self._absent if not one.pids or pid in one.pids]
            for since, to in sorted(concerning):
                if merged and since <= merged[-1][1] + AGAIN:
                    merged[-1] = (merged[-1][0], max(to, merged[-1][1]))
                else:
                    merged.append((since, to))
            self._absences[pid] = merged
        return self._absences[pid]
