"""Settles outcomes in batches: at once when many wait, never later than 5 ms after the first.

A kill may therefore run again what finished in the last 5 ms; a job with ``ack="each"`` is settled alone, and its slot
is free only afterwards, so that a kill runs again at most one finished run of it a slot. When the server is away
outcomes are kept and tried again; they are bounded by what this process holds, because nothing more is fetched
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from henchman.client.runtime import Runtime
from henchman.errors import LeaseLost, ServerAway, ServerError
from henchman.kernel.clock import capped_backoff
from henchman.kernel.scoreboard import Scoreboard
from henchman.kernel.text import described
from henchman.kernel.threads import REFUSED, Service
from henchman.store.jobs import CALLED_OFF, EARLIER, MOST_BYTES
from henchman.wire.payload import decode
from henchman.work import checkpoint
from henchman.work.effects import EndingFacts, batch_of, encoded, facts_of, finished, heir_of, tracked
from henchman.work.outcome import DONE, Outcome
from henchman.work.unit import Row, Unit, settle_oldest_units, settle_units
from henchman.worker.journal import JournalKeeper
from henchman.worker.metrics import ExecutionMetrics
from henchman.worker.places import Places
from henchman.worker.run import JobReporter, Run
from henchman.worker.session import LeaseSession
from henchman.worker.watcher import Cancels

__all__ = ["Acker"]

BATCH = 500
FEW = 100  # outcomes beyond a batch that go with it: a call for them alone costs as much as for all
CUT_LEAST = 10  # units from which a cut is worth a call of its own
PENDING_MOST = 5000  # outcomes that may wait; while more do, nothing is fetched
PENDING_BYTES = 8 << 20  # and the most of their payloads and effects
ALONE_THREADS = 4  # that commit for the event loop what is settled alone
STEP = 0.05  # seconds between two looks whether a unit is settled that could not be settled at once
LATEST = 0.004  # seconds an outcome waits for company; with the round trip it stays below 5 ms
PATIENCE = 0.5  # seconds between two tries while the server is away: what ended is not told, and a kill repeats it

_MARK = 0  # the place on the board for what is settled now, if that is one unit


class Acker(Service):
    """Collects outcomes from every thread and commits them."""

    name = "acker"

    def __init__(self, runtime: Runtime, session: LeaseSession, cancels: Cancels, board: Scoreboard) -> None:
        super().__init__()
        self._board = board
        self._runtime = runtime
        self._session = session
        self._cancels = cancels
        self._rows: deque[Row] = deque()
        self._put_off: deque[Row] = deque()  # the server refused them, and there is no other place for them
        self._first = threading.Event()
        self._is_rung = False  # by an outcome, since the last look: asking the event each time takes longer
        self.metrics = ExecutionMetrics(runtime.clock.now)
        self.reporter = JobReporter(runtime, self._first.set)
        self._flushing = threading.Lock()
        self._away = 0
        self._was_full = False  # somebody may have heard so, and fetches nothing until he is rung
        self.in_haste = False  # a stop has no time for calls of one outcome each
        self._doubted: set[Unit] = set()  # sent, and not known whether it was settled: nobody read the answer
        self._alone = ThreadPoolExecutor(ALONE_THREADS, "henchman-ack")
        self._journal = JournalKeeper(runtime, session)
        self.places = Places()

    def start(self) -> None:
        """Begin with what workers before us could not tell."""
        self._journal.begin(self._rows.append)
        if self._rows:
            self._first.set()
        super().start()

    def end(self) -> None:
        """The last: what could not be told is kept on disk, where there is a journal."""
        self._journal.end(list(self._rows))

    def submit(self, unit: Unit, outcome: Outcome, job: Mapping[str, Any]) -> None:
        """Take one outcome; committed within 5 ms if the server is there."""
        heir = None if unit.claim is None else self._heir(unit)
        if outcome is DONE and "hm" not in job and not (unit.cancelled or unit.checkpoint):  # as most do
            self._rows.append((unit, "done", b"", 0.0, b""))
        else:
            self._rows.append(self._row(unit, outcome, job))
        if not self._is_rung:
            self._is_rung = True
            self._first.set()
        if heir is not None:
            self._begin(heir)

    def _heir(self, unit: Unit) -> Run | None:
        return None if unit.claim is None or unit.source is not None else self.places.ended(unit)

    def _begin(self, heir: Run) -> None:
        """Let the heir of a job's places start, whose end is noted."""
        for run in heir.pool.put([heir]):
            self.submit(run.unit, Outcome("released"), run.unit.job)

    def _row(self, unit: Unit, outcome: Outcome, job: Mapping[str, Any]) -> Row:
        if "hm" not in job and outcome.ending != "cancelled" and not unit.cancelled and not unit.checkpoint:
            return unit, outcome.ending, outcome.stored, outcome.delay, b""  # nothing waits for its end
        return self._row_with_effects(unit, outcome, job)

    def _row_with_effects(self, unit: Unit, outcome: Outcome, job: Mapping[str, Any]) -> Row:
        try:
            return self._written(unit, outcome, job)
        except BaseException as error:  # of values that are anybody's: it ends all the same, with fewer facts
            reason = f"how it ended could not be written down: {described(error)}"
        plain = Outcome(outcome.ending, outcome.stored, outcome.delay, reason.encode("utf-8", "replace").decode())
        try:
            return self._written(unit, plain, decode(unit.payload))
        except Exception:  # not even the payload can be read
            return unit, plain.ending, plain.stored, plain.delay, b""

    def _written(self, unit: Unit, outcome: Outcome, job: Mapping[str, Any]) -> Row:
        ending = outcome.ending
        if outcome is DONE and not (unit.cancelled or unit.checkpoint) and (effects := finished(unit, job)):
            return unit, ending, b"", 0.0, effects
        if unit.checkpoint and ending in checkpoint.GOES_ON:
            outcome = outcome._replace(stored=checkpoint.noted(outcome.stored))
        if "hm" not in job or not tracked(job):
            latest = unit.newest is not unit.payload
            facts = EndingFacts("", 0, {}, unit.cancelled, unit.checkpoint, latest, unit.spent, heir_of(unit))
            effects = encoded(self._runtime.keys, job, ending, facts)
            return unit, ending, outcome.stored, outcome.delay, effects
        batch = batch_of(job) if ending in ("dead", "cancelled") else ""
        if batch and ending == "dead":
            ending = "kept"  # with its batch, in place of the dead set, which is trimmed
        effects = encoded(self._runtime.keys, job, ending, facts_of(unit, outcome, job))
        return unit, ending, outcome.stored, batch or outcome.delay, effects

    def settle(self, unit: Unit, outcome: Outcome, job: Mapping[str, Any]) -> None:
        """Commit one outcome in a call of its own; returns when the unit is settled, or the worker ends.

        While the server is away it is kept with the others, and this waits.
        """
        self._commit_alone(unit, outcome, job)
        while not self._settled(unit):
            self.stopping.wait(STEP)

    async def asettle(self, unit: Unit, outcome: Outcome, job: Mapping[str, Any]) -> None:
        """``settle``, awaited; a cancelled task waits too, for its outcome is known."""
        if self.stopping.is_set():
            self.submit(unit, outcome, job)
            return
        turn = threading.Lock()  # whoever has it settles the unit

        def commit() -> None:
            if turn.acquire(blocking=False):
                self._commit_alone(unit, outcome, job)

        try:
            committed = asyncio.get_running_loop().run_in_executor(self._alone, commit)
        except REFUSED:  # no thread is to be had: with the others, if no thread that works has taken it meanwhile
            committed = asyncio.get_running_loop().create_future()
            if turn.acquire(blocking=False):
                self.submit(unit, outcome, job)
        while not self._settled(unit):
            with contextlib.suppress(asyncio.CancelledError):
                await (asyncio.sleep(STEP) if committed.done() else asyncio.wait([committed], timeout=STEP))

    def _settled(self, unit: Unit) -> bool:
        return unit not in self._session.held or self.stopping.is_set()

    def _commit_alone(self, unit: Unit, outcome: Outcome, job: Mapping[str, Any]) -> None:
        heir = self._heir(unit)
        row = self._row(unit, outcome, job)
        try:
            self._report()
            self._commit([row])
        except Exception as error:  # a defect of ours, as in flush
            self._rows.append(row)
            self._runtime.events.emit("part_failed", part=self.name, error=error)
        if self._rows:
            self._first.set()
        if heir is not None:
            self._begin(heir)

    @property
    def full(self) -> bool:
        """Whether so many outcomes wait that nothing more should be fetched."""
        self._was_full = True  # before the look: who makes room after it rings
        rows = self._rows
        self._was_full = len(rows) > PENDING_MOST or _size(list(rows)) > PENDING_BYTES
        return self._was_full

    def interrupt(self) -> None:
        self._first.set()
        self._alone.shutdown(wait=False)

    def run(self) -> None:
        while not self.stopping.is_set():
            self._first.wait(self.reporter.due_in() if self.reporter.timed or self.reporter.since else None)
            if 0 < len(self._rows) < BATCH:
                self.stopping.wait(LATEST)
            self._first.clear()
            self._is_rung = False  # after that: what came in between is flushed now
            if self.flush():
                if self._journal.is_on:
                    self._journal.settled()
            else:
                self._journal.keep(list(self._rows), self._away)
                self.stopping.wait(capped_backoff(self._away, most=PATIENCE))
                self._first.set()

    def flush(self) -> bool:
        """Commit everything that waits, from any thread; False when the server is away (it is kept)."""
        with self._flushing:
            while self._rows:
                batch = self._batch()
                try:
                    self._report()  # what they said comes before their end
                    if not self._commit_marked(batch):
                        return False
                except Exception as error:  # a defect of ours must not lose outcomes: a second settling finds nothing
                    return self._keep(batch, error, "part_failed")
                if self._was_full and not self.full:
                    self._session.ring()
            self._report()
            return True

    def _report(self) -> None:
        if self.reporter.timed or self.reporter.since:
            self.reporter.send()

    def _keep(self, rows: Sequence[Row], error: Exception, event: str) -> bool:
        """What could not be committed waits on, ahead of all that came since; always False."""
        self._rows.extendleft(reversed(rows))
        self._away += 1
        failures = {"failures": self._away} if event == "server_away" else {}
        self._runtime.events.emit(event, part=self.name, error=error, **failures)
        return False

    def _commit_marked(self, batch: list[Row]) -> bool:
        """Commit; meanwhile the supervisor can see that, and of a batch of one what it is."""
        if len(batch) == 1:
            self._board.mark(_MARK, batch[0][0].payload)
        self._board.settling(True)
        try:
            return self._commit(batch)
        finally:
            self._board.settling(False)
            if len(batch) == 1:
                self._board.mark(_MARK, b"")

    def _batch(self) -> list[Row]:
        """The oldest rows that wait, taken out: at most BATCH and FEW, or 4 MB of payloads and effects, and at least
        one; one alone when a process died among others'. An orphan's board may say so for ever: nobody writes there."""
        waiting = len(self._rows)
        most = waiting if waiting <= BATCH + FEW else BATCH
        if self._board.is_one_by_one() and not self.in_haste:
            most = 1
        batch = [self._rows.popleft() for _ in range(most)]
        if _size(batch) > MOST_BYTES:
            self._cut(batch)
        return batch

    def _cut(self, batch: list[Row]) -> None:
        """Put back what is beyond 4 MB."""
        size, count = 0, 0
        while count < len(batch) and size < MOST_BYTES:
            size += len(batch[count][0].payload) + len(batch[count][2]) + len(batch[count][4])
            count += 1
        self._rows.extendleft(reversed(batch[count:]))
        del batch[count:]

    def _commit(self, batch: list[Row]) -> bool:
        by_holder = _by_holder(batch)
        heard = False
        while by_holder:
            holder = next(iter(by_holder))
            try:
                if len(by_holder[holder]) >= CUT_LEAST and holder[1] is None:
                    self._cut_oldest(holder[0], by_holder[holder])
                if by_holder[holder]:
                    self._settle(holder[0], by_holder[holder])
                heard = True
            except ServerAway as error:
                if not holder[2] or self._may_release_again(by_holder[holder], error):
                    left = [row for rows in reversed(by_holder.values()) for row in rows]
                    return self._keep(left, error, "server_away")
            del by_holder[holder]
        if self._away and heard:
            self._away = 0
            self._runtime.events.emit("server_back", part="acker")
        return True

    def _may_release_again(self, rows: list[Row], error: ServerAway) -> bool:
        """Whether ``rows``, which give units back, may be sent again: those are left that surely did not go back.

        After a lost answer none may: what did go back may have been fetched again by now, into the same list, and be
        running; a second word would take it away. They are held no longer, the epoch is raised, and what their list
        still has is swept back.
        """
        rows[:] = [row for row in rows if row[0] in self._session.held]
        if error.executed is False:
            return True
        units = {row[0] for row in rows}
        self._session.doubt()  # first: from here on nobody relies on the order of our lists
        self._session.held.difference_update(units)
        self._doubted.difference_update(units)
        return False

    def _cut_oldest(self, identity: str, rows: list[Row]) -> None:
        """Settle the oldest units of each in-flight list that are done, without effects, by one cut, and take them out
        of ``rows``: all others, and what the server finds elsewhere, are settled one by one."""
        done: dict[str, set[Unit]] = {}
        flight, same = None, set[Unit]()  # neighbours are mostly of one list
        for unit, ending, _, _, effects in rows:
            if ending == "done" and not effects and unit not in self._doubted:
                if unit.flight is not flight:
                    flight = unit.flight
                    same = done.setdefault(flight.key, set())
                same.add(unit)
        for key, units in done.items():
            oldest = self._session.oldest(key, units)
            if len(oldest) >= CUT_LEAST and self._is_cut(identity, oldest):
                cut = units if len(oldest) == len(units) else set(oldest)
                self._count(rows if len(cut) == len(rows) else [row for row in rows if row[0] in cut])
                self._session.held.difference_update(cut)
                rows[:] = [] if len(cut) == len(rows) else [row for row in rows if row[0] not in cut]

    def _is_cut(self, identity: str, oldest: list[Unit]) -> bool:
        """Whether the server has cut these off the end of their list."""
        try:
            answer = settle_oldest_units(self._runtime, identity, oldest)
        except ServerAway as error:
            if error.executed is None:
                self._doubted.update(oldest)
            raise
        except (LeaseLost, ServerError):  # whatever it is, it is met, and told, one by one
            return False
        if answer == EARLIER:
            self._doubted.update(oldest)
        return answer == 1

    def _settle(self, identity: str, rows: Sequence[Row]) -> None:
        try:
            statuses = settle_units(self._runtime, identity, rows)
        except LeaseLost:
            statuses = [0] * len(rows)
        except ServerAway as error:
            if error.executed is None:
                self._doubted.update(row[0] for row in rows)
            raise
        except Exception as error:  # refused as a whole, or a row that cannot be sent
            if len(rows) > 1:
                if isinstance(error, ServerError):  # several calls in one write: others than that may be executed
                    self._doubted.update(row[0] for row in rows)
                for row in rows:  # find the one that the call failed for
                    self._settle(identity, [row])
                return
            words = str(error) if isinstance(error, ServerError) else described(error)
            statuses = [words.encode("utf-8", "replace")]
        left = [one for one in zip(rows, statuses, strict=True) if one[1] != 1 and not self._has_ended(*one)]
        others = {row[0] for row, _ in left}
        self._count(rows, others)
        ended = [row[0] for row in rows if row[0] not in others]
        self._session.held.difference_update(ended)
        self._doubted.difference_update(ended)
        for row, status in left:
            self._left(row, status)

    def _has_ended(self, row: Row, status: int | bytes) -> bool:
        return status == EARLIER or (status == 0 and row[0] in self._doubted)

    def _left(self, row: Row, status: int | bytes) -> None:
        """It did not end by this: its cancellation was taken back, or others have it, or it could not be stored."""
        if status == CALLED_OFF:
            self._go_on(row[0])
        elif status == 0:
            self._session.held.discard(row[0])
            self._runtime.events.emit("late", unit=row[0], ending=row[1])
        else:
            self._refused(row, status)

    def _go_on(self, unit: Unit) -> None:
        """Its cancellation was taken back, and we had not heard of it: it goes back into its queue, to run."""
        try:
            self._cancels.load()
        except ServerError as error:
            self._runtime.events.failed("cancels", error)
        unit.cancelled = False
        self._rows.append(self._row(unit, Outcome("released", reason="its cancellation was taken back"), unit.job))

    def _count(self, rows: Sequence[Row], left: Container[Unit] = ()) -> None:
        try:
            self.metrics.count(rows, left)
        except Exception as error:  # figures: the units are settled
            self._runtime.events.emit("part_failed", part="metrics", error=error)

    def _refused(self, row: Row, status: int | bytes) -> None:
        """The server would not store it: the dead set is next; where that is refused too it stays in flight and is
        tried again, as what has no dead set is."""
        unit, ending, stored, _, _ = row
        unit.elapsed = None  # counted already
        reason = status.decode("utf-8", "replace") if isinstance(status, bytes) else str(status)
        self._runtime.events.emit("refused", unit=unit, ending=ending, reason=reason)
        if ending == "dead" or unit.source is not None:
            self._put_off.append(row)
        else:
            detail = {"reason": f"its end could not be stored: {reason}"}
            told = EndingFacts(unit.flight.identity, detail=detail, heir=heir_of(unit))
            effects = encoded(self._runtime.keys, unit.job, "dead", told)
            stored = unit.payload if ending == "cancelled" else stored or unit.payload
            self._rows.append((unit, "dead", stored, 0.0, effects))

    def again(self) -> None:
        """Called each second, and at the end: what the server refused is tried once more."""
        for _ in range(len(self._put_off)):
            self._rows.append(self._put_off.popleft())
            self._first.set()


def _by_holder(batch: Sequence[Row]) -> dict[tuple[str, Any, bool], list[Row]]:
    """The rows by identity, source, and whether they are given back to a plain queue. Neighbours are mostly alike."""
    found: dict[tuple[str, Any, bool], list[Row]] = {}
    last: tuple[Any, Any, str] | None = None
    rows: list[Row] = []
    for row in batch:
        unit, ending = row[0], row[1]
        if last is None or unit.flight is not last[0] or unit.source is not last[1] or ending != last[2]:
            last = unit.flight, unit.source, ending
            key = (unit.flight.identity, unit.source, ending == "released" and unit.source is None)
            rows = found.setdefault(key, [])
        rows.append(row)
    return found


def _size(rows: Sequence[Row]) -> int:
    """The bytes of payloads and effects: a result that is kept may be longer than its payload."""
    return sum([len(row[0].payload) + len(row[4]) for row in rows])
