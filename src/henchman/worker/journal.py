"""Keeps outcomes on disk while the server is away, and tells those of workers that ended here before."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from henchman.client.runtime import Runtime
from henchman.errors import LeaseLost
from henchman.store.jobs import MOST_BYTES
from henchman.store.leases import adopt, server_name
from henchman.wire.payload import decode
from henchman.work.journal import EndLine, EndsFile, Journal, waiting
from henchman.work.unit import InFlightList, Row, Unit
from henchman.worker.session import LeaseSession

__all__ = ["JournalKeeper"]

TRIES = 3  # failed tries after which what waits is written down: about a second
_TOGETHER = 100  # units that one call takes over


class JournalKeeper:
    """The journal of one worker, where its configuration names a folder; without one, nothing here does anything."""

    def __init__(self, runtime: Runtime, session: LeaseSession) -> None:
        self._runtime, self._session = runtime, session
        self._folder = runtime.config.journal
        self._journal: Journal | None = None
        self._told: list[EndsFile] = []  # whose units we hold, until they are settled
        self._is_full = False
        self.is_on = False

    def begin(self, put: Callable[[Row], object]) -> None:
        """Take over what earlier workers could not tell, and ``put`` it where outcomes wait. Before the first fetch:
        what a rescue put back into its queue would start again."""
        if self._folder is None:
            return
        server = self._runtime.connections.run(server_name(self._runtime.keys, os.urandom(8).hex()))
        self.is_on = True
        self._journal = Journal(self._folder, server, self._session.identity)
        try:
            for file in waiting(self._folder, server):
                self._take(file, put)
        except (OSError, LeaseLost) as error:
            self._runtime.events.failed("journal", error)

    def _take(self, file: EndsFile, put: Callable[[Row], object]) -> None:
        if not file.ours:
            file.handle.close()
            self._runtime.events.emit("journal_foreign", file=str(file.path))
            return
        late = 0
        for rows in _calls(file.rows):
            flight = self._session.adopted(rows[0].queue)
            units = [(row.flight, row.payload) for row in rows]
            asked = adopt(self._runtime.keys, flight.identity, flight.key, flight.queue, units, self._session.lease_ms)
            answers: list[int] = self._runtime.connections.run(asked)
            for row, taken in zip(rows, answers, strict=True):
                unit = _unit(row, flight)
                if taken:
                    self._session.held.add(unit)
                    put((unit, row.ending, row.stored, row.delay, row.effects))
                else:
                    late += 1
                    self._runtime.events.emit("late", unit=unit, ending=row.ending)
        if late == len(file.rows):
            file.remove()
        else:
            self._told.append(file)
        self._runtime.events.emit("journal_told", file=str(file.path), count=len(file.rows) - late, late=late)

    def keep(self, rows: Sequence[Row], tries: int = TRIES) -> None:
        """The server has been away for ``tries`` tries, and ``rows`` wait."""
        if self._journal is None or tries < TRIES or self._is_full:
            return
        try:
            if not self._journal.note(rows):
                self._is_full = True
                self._runtime.events.emit("journal_full", folder=str(self._folder))
        except OSError as error:
            self._is_full = True
            self._runtime.events.failed("journal", error)

    def settled(self) -> None:
        """Something was settled: files go of which nothing waits any more."""
        if self._journal is None:
            return
        try:
            self._journal.settled(self._session.held)
            if self._told and not any(unit.flight.epoch == 0 for unit in list(self._session.held)):
                for file in self._told:
                    file.remove()
                self._told = []
            self._is_full = False
        except OSError as error:
            self._runtime.events.failed("journal", error)

    def end(self, rows: Sequence[Row]) -> None:
        """This worker ends; ``rows`` could not be told."""
        self.settled()
        self.keep(rows)
        if self._journal is not None:
            self._journal.close()
        for file in self._told:
            file.handle.close()


def _unit(row: EndLine, flight: InFlightList) -> Unit:
    unit = Unit(row.payload, flight, time.monotonic())
    unit.job = decode(row.payload)
    return unit


def _calls(rows: Sequence[EndLine]) -> Iterator[list[EndLine]]:
    """``rows`` by queue, in their order, as many as go into one call."""
    by_queue = sorted(rows, key=lambda row: row.queue)
    for _, one_queue in groupby(by_queue, key=lambda row: row.queue):
        call, size = list[EndLine](), 0
        for row in one_queue:
            if call and (len(call) == _TOGETHER or size + len(row.payload) > MOST_BYTES):
                yield call
                call, size = [], 0
            call.append(row)
            size += len(row.payload)
        yield call
