"""Carries what tracked jobs say while they run to the server, ahead of their ends: messages, progress and starts.

It reports a start when the run has lasted a while; the end of a shorter run tells when it began. It drops and counts
the oldest messages when they come faster than it can send them; of progress it sends only the latest.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import ServerAway
from henchman.store import batches
from henchman.store.call import command
from henchman.work.effects import EndingFacts, attempt_of, encoded
from henchman.worker.run import Run

__all__ = ["JobReporter"]

LASTED = 0.05  # seconds after which a run is written down as started
SAID = 0.1  # seconds that words wait for company
AWAY = 0.5  # seconds between two tries while the server is away
MOST = 10_000  # words that wait
CHUNK = 500  # notes in one call
_TEXT = 10_000  # characters of one message


class JobReporter:
    """One a process; many threads speak. ``ring()`` wakes the thread that sends.

    While neither ``timed`` nor ``since`` is set there is nothing to send: who sends need not ask.
    """

    def __init__(self, runtime: Runtime, ring: Callable[[], None] = lambda: None) -> None:
        self._runtime = runtime
        self._ring = ring
        self._fresh: dict[Run, None] = {}  # running, and not written down yet; the first began first
        self._words: deque[tuple[str, ...]] = deque()
        self._progress: dict[str, tuple[str, ...]] = {}
        self.since = 0.0  # ``time.monotonic()`` of the first word that was not sent
        self._not_before = 0.0
        self._dropped = 0
        self._begun = False  # a run began since the last look
        self.timed = False  # whoever sends will look by itself
        self._sending = threading.Lock()

    def begin(self, run: Run) -> None:
        """A tracked run starts."""
        self._fresh[run] = None
        self._begun = True
        if not self.timed:  # else whoever sends looks again in a moment: short runs must not wake it each time
            self.timed = True
            self._ring()

    def end(self, run: Run) -> None:
        """It has ended: its end says everything."""
        self._fresh.pop(run, None)

    def log(self, run: Run, message: str) -> None:
        """A job says something."""
        records = run.records
        if not records:
            return
        text = str(message)[:_TEXT].encode("utf-8", "replace").decode()
        for jid in records:
            if len(self._words) >= MOST:
                self._words.popleft()
                self._dropped += 1
            self._words.append(_word("log", jid, run, {"text": text}))
        self._rung()

    def progress(self, run: Run, done: float, total: float | None) -> None:
        """A job says how far it is."""
        for jid in run.records:
            self._progress[jid] = _word("progress", jid, run, {"done": done, "total": total})
            self._rung()

    def _rung(self) -> None:
        if not self.since:
            self.since = time.monotonic()
            self._ring()

    def due_in(self) -> float | None:
        """Seconds until something should be sent; None when there is nothing."""
        if not self._fresh and not self.since:
            if self._begun:
                self._begun = False
                return LASTED
            self.timed = False
            if not self._fresh and not self.since:  # else one began just now, and did not ring
                return None
        self.timed = True
        due = self.since + SAID if self.since else None
        for run in list(self._fresh):
            at = run.started + LASTED
            due = at if due is None else min(due, at)
            break
        return None if due is None else max(due, self._not_before) - time.monotonic()

    def send(self) -> None:
        """Send what there is to say. What cannot be sent because the server is away is kept."""
        if not self._fresh and not self.since:
            return
        with self._sending:
            if time.monotonic() < self._not_before:
                return
            try:
                self._send_started()
                self._send_words()
            except ServerAway:
                self._not_before = time.monotonic() + AWAY
            except Exception as error:  # refused, or a defect of ours: jobs go on, and their ends are what counts
                self._not_before = time.monotonic() + AWAY
                self._runtime.events.emit("part_failed", part="notes", error=error)

    def _send_started(self) -> None:
        before = time.monotonic() - LASTED
        lasting = [run for run in list(self._fresh) if 0.0 < run.started < before][:CHUNK]
        if not lasting:
            return
        keys = self._runtime.keys
        started = [batches.Started(run.unit.flight.key, run.unit.payload, _start(keys, run)) for run in lasting]
        try:
            self._runtime.connections.run(batches.started(keys, started))
        except ServerAway as error:
            if error.executed is None:  # perhaps it was written: a batch knows that, nobody else does
                lasting = [run for run in lasting if not run.batch_id]
                self._forget(lasting)
            raise
        self._forget(lasting)

    def _forget(self, runs: list[Run]) -> None:
        for run in runs:
            self._fresh.pop(run, None)

    def _send_words(self) -> None:
        if not self.since:
            return
        self.since = 0.0
        keys, runner = self._runtime.keys, self._runtime.connections
        while self._words or self._progress:
            some = [self._words.popleft() for _ in range(min(CHUNK, len(self._words)))]
            said = dict(self._progress)
            try:
                runner.run(batches.note(keys, [msgspec.json.encode([*some, *said.values()])]))
            except ServerAway as error:
                if error.executed is False:
                    self._words.extendleft(reversed(some))
                self.since = time.monotonic()
                raise
            for jid, word in said.items():
                if self._progress.get(jid) is word:
                    del self._progress[jid]
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            runner.run(command("INCRBY", keys.history_dropped, dropped, again=False))


def _word(kind: str, jid: str, run: Run, detail: dict[str, Any]) -> tuple[str, ...]:
    text = msgspec.json.encode(detail).decode()
    return ("said", kind, jid, run.batch_id, run.unit.flight.identity, text)


def _start(keys: Any, run: Run) -> bytes:
    told = EndingFacts(run.unit.flight.identity, attempt_of(run.job), {"started": round(run.started_at, 6)})
    return encoded(keys, run.job, "started", told)
