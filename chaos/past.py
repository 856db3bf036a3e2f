"""The ledger read back: what became of each job, and which processes were struck when."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

from batch_past import Batches
from key_past import Keyed
from ledger import Entry, read_all
from outbox_past import Outbox
from server_clock import ServerClock
from spans import Spans

__all__ = ["Attack", "History", "Job", "Run", "Window"]

NEVER = float("inf")
_UNIT = re.compile(r"unit=Unit\('(\w+)'")


class Run:
    """One start of a job in one process: ``begun`` when the worker let it start, ``at`` when its first line came;
    ``late`` when the worker learned that its end did not count any more, ``settled``: that it did."""

    __slots__ = ("at", "attempt", "begun", "ended", "enqueued_at", "how", "late", "pid", "settled")

    def __init__(self, begun: float, at: float, pid: int, attempt: int, enqueued_at: float) -> None:
        self.begun, self.at, self.pid, self.attempt, self.enqueued_at = begun, at, pid, attempt, enqueued_at
        self.ended = self.late = NEVER
        self.how = ""
        self.settled = False


class Job:
    """Everything the ledger says of one job. ``told``: accepted, refused, unknown, duplicate (another job has its key),
    or "" when its producer died."""

    __slots__ = (
        *("cancelled", "cancelling", "expired", "key", "notes", "pushed", "runs", "struck", "told", "told_at"),
        "unstarted",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.pushed = self.told_at = 0.0
        self.told = ""
        self.notes: dict[str, float] = {}
        self.runs: list[Run] = []
        self.cancelling = False
        self.cancelled: float | None = None  # when cancel returned
        self.unstarted: set[str] = set()  # "expired", "cancelled"
        self.expired: list[float] = []  # when a worker found that it had
        self.struck: set[int] = set()  # attempts that ended in a time-out, perhaps before their first line

    def attempts(self) -> dict[int, list[Run]]:
        """Its runs by attempt, the earliest first."""
        found: dict[int, list[Run]] = defaultdict(list)
        for run in sorted(self.runs, key=lambda one: one.at):
            found[run.attempt].append(run)
        return found

    def stagings(self) -> int:
        """How often it was put into its queue anew: what is given back keeps the time at which that was."""
        return len({run.enqueued_at for run in self.runs})


class Window(NamedTuple):
    """From ``since`` to ``to`` something was done to ``pids`` (none: to all)."""

    cause: str
    since: float
    to: float
    pids: frozenset[int]


class Attack(NamedTuple):
    """One attack, as it was told."""

    at: float
    name: str
    hit: bool
    text: str


class History:
    """The whole run."""

    def __init__(self, folder: Path) -> None:
        self.jobs: dict[str, Job] = {}
        self.windows: list[Window] = []
        self.exits: dict[int, tuple[float, int]] = {}  # of orphans: when, and with which status
        self.attacks: list[Attack] = []
        self.doubts: list[str] = []
        self.events: Counter[str] = Counter()
        self.failed_parts: Counter[str] = Counter()
        self.torn: list[str] = []
        self.hostile = 0  # payloads that no client should push
        self.hostile_runs = 0  # of those that raise: with what stands in them some are tried again as long as it lasts
        self.keys: dict[str, str] = {}  # by jid, of jobs that ran
        self.jids: dict[str, set[str]] = defaultdict(set)  # the same by key
        self.server = ServerClock()
        self.ordered = Spans()
        self.batches = Batches()
        self.keyed = Keyed()
        self.outbox = Outbox()
        self._open: dict[tuple[int, str], list[Run]] = defaultdict(list)
        self._by_jid: dict[tuple[int, str], Run] = {}
        for entry in read_all(folder):
            name = entry.words[0]
            reader = getattr(self, f"_read_{name}", None)
            for place in (self.ordered, self.batches, self.keyed, self.outbox):
                reader = reader or getattr(place, f"read_{name}", None)
            if reader is not None:
                reader(entry)
        for made in self.keyed.made(self.jobs):
            job = self.jobs.setdefault(made.key, Job(made.key))
            job.pushed, job.told, job.told_at = made.pushed, made.told, made.told_at
        ran = {self.keyed.things.get(key) for key, job in self.jobs.items() if job.runs} - {None}
        for key, told in self.outbox.verdicts():
            ends = self.jobs[key].runs or self.keyed.things.get(key) not in ran
            self.jobs[key].told = told if told == "refused" or ends else "duplicate"

    def _job(self, entry: Entry) -> Job:
        key = entry.words[1]
        job = self.jobs.get(key)
        if job is None:
            job = self.jobs[key] = Job(key)
        return job

    def _read_push(self, entry: Entry) -> None:
        job = self._job(entry)
        job.pushed = entry.at
        for note in entry.words[2:]:
            name, _, value = note.partition("=")
            job.notes[name] = float(value)

    def _verdict(self, entry: Entry) -> None:
        job = self._job(entry)
        job.told, job.told_at = entry.words[0], entry.at

    def _read_accepted(self, entry: Entry) -> None:
        self._verdict(entry)
        if entry.words[2:] == ["blocked"]:
            self.keyed.blocked.add(entry.words[1])

    def _read_duplicate(self, entry: Entry) -> None:
        self._verdict(entry)
        self.keyed.duplicates[entry.words[1]] = entry.words[2]

    _read_refused = _read_unknown = _verdict

    def _read_cancelling(self, entry: Entry) -> None:
        self._job(entry).cancelling = True

    def _read_start(self, entry: Entry) -> None:
        run = Run(entry.begun, entry.at, entry.pid, int(entry.words[2]), float(entry.words[3]))
        self._job(entry).runs.append(run)
        if len(entry.words) > 4:
            self.keys[entry.words[4]] = entry.words[1]
            self.jids[entry.words[1]].add(entry.words[4])
            self._by_jid[entry.pid, entry.words[4]] = run
        self._open[entry.pid, entry.words[1]].append(run)

    def _read_end(self, entry: Entry) -> None:
        for run in self._open[entry.pid, entry.words[1]]:
            if run.ended == NEVER and run.attempt == int(entry.words[2]):
                run.ended, run.how = entry.at, entry.words[3]
                return

    def _read_settled(self, entry: Entry) -> None:
        for jid in entry.words[1:]:
            if (entry.pid, jid) in self._by_jid:  # the latest run of it here
                self._by_jid[entry.pid, jid].settled = True

    def _read_expired(self, entry: Entry) -> None:
        self._job(entry).unstarted.add("expired")
        self._job(entry).expired.append(entry.at)

    def _read_struck(self, entry: Entry) -> None:
        self._job(entry).struck.add(int(entry.words[2]))

    def _read_cancelled(self, entry: Entry) -> None:
        if entry.role == "producer":
            self._job(entry).cancelled = entry.at
        else:
            self._job(entry).unstarted.add("cancelled")

    def _read_torn(self, entry: Entry) -> None:
        self.torn.append(entry.words[1])

    def _read_event(self, entry: Entry) -> None:
        name = entry.words[1]
        self.events[name] += 1
        if name == "clock_stepped":
            self.server.noticed(entry.at)
        if name == "late" and (unit := _UNIT.match(entry.words[2])) and (entry.pid, unit[1]) in self._by_jid:
            self._by_jid[entry.pid, unit[1]].late = entry.at
        if name == "part_failed":
            self.failed_parts[" ".join(entry.words[2:])[:160]] += 1

    def _read_attack(self, entry: Entry) -> None:
        name, hit, text = entry.words[1:4]
        self.attacks.append(Attack(entry.at, name.replace("_", " "), hit == "hit", text.replace("_", " ")))

    def _read_window(self, entry: Entry) -> None:
        cause, since, to, pids = entry.words[1:5]
        which = frozenset() if pids == "all" else frozenset(map(int, pids.split(",")))
        self.windows.append(Window(cause, float(since), float(to), which))

    def _read_exit(self, entry: Entry) -> None:
        self.exits[int(entry.words[1])] = entry.at, int(entry.words[2])

    def _read_hostile(self, entry: Entry) -> None:
        self.hostile += int(entry.words[1])

    def _read_hostilerun(self, entry: Entry) -> None:
        self.hostile_runs += 1

    def _read_stepped(self, entry: Entry) -> None:
        self.server.stepped(*map(float, entry.words[1:4]))

    def _read_violation(self, entry: Entry) -> None:
        self.doubts.append(entry.words[1].replace("_", " "))
