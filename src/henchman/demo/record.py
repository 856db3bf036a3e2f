"""The demo's batch: how it stands by the server's count, what its history says, and the sheet of its refused rows.

``failures.csv`` is read back and held against the file: every refused row is in it, once, with the reason that the
file's own rules give, and no other.
"""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from henchman.app import open_door
from henchman.batch.status import BatchStatus, status_of
from henchman.config import Config
from henchman.demo.catalogue import Counts
from henchman.demo.products import Row, clean
from henchman.errors import Failure
from henchman.history import sheet
from henchman.store import batches, history
from henchman.store.call import command
from henchman.store.connection import Connections
from henchman.store.keys import Keys

__all__ = ["DESCRIPTION", "FILE", "Record", "address", "sheet_differences", "why_not"]

DESCRIPTION = "Import products.csv"
FILE = "history.sqlite"
LOOK = 0.05  # seconds between two looks at what is not recorded yet


def address(folder: Path) -> str:
    """Where the history of a demo in ``folder`` is kept."""
    return f"sqlite:///{folder / FILE}"


def why_not() -> str:
    """Empty when the demo can keep its history; else what is missing."""
    return Config().with_arguments(database_url=address(Path("/"))).why_history_is_off()


class Record:
    """The batch of the demo in ``folder``, on its server. ``close`` it after use."""

    def __init__(self, server: Connections, folder: Path) -> None:
        self._server, self._keys = server, Keys()
        self._desk: Any = open_door("history")(Config().with_arguments(database_url=address(folder)))
        self.batch = ""

    def close(self) -> None:
        """Close the history."""
        self._desk.close()

    def is_kept(self) -> bool:
        """Whether a recorder has turned history on: jobs that were pushed before have no full record."""
        return bool(self._server.run(command("EXISTS", self._keys.history_on)))

    def status(self) -> BatchStatus | None:
        """How the batch stands, as ``app.batch_status`` says it; None before it was made. It is the only one here."""
        if not self.batch:
            known: list[str] = self._server.run(batches.newest(self._keys, 0, 1))
            self.batch = known[0] if known else ""
        return status_of(self.batch, self._server.run(batches.facts(self._keys, self.batch))) if self.batch else None

    def complete(self, limit: float) -> bool:
        """Wait until everything is recorded; False when that takes longer than ``limit`` seconds."""
        end = time.monotonic() + limit
        while self._server.run(history.backlog(self._keys)).entries:
            if time.monotonic() > end:
                return False
            time.sleep(LOOK)
        return True

    def reasons(self) -> list[tuple[str, int]]:
        """Why rows were refused, by history, most frequent first."""
        found = Counter(one.message or "" for one in self._desk.reading.failures(self.batch) if one.status == "failed")
        return sorted(found.items(), key=lambda one: (-one[1], one[0]))

    def write_failures(self, path: Path) -> int:
        """The failures as a sheet; how many they are."""
        many = 0
        with path.open("wb") as file:
            file.write(sheet.head())
            for one in self._desk.reading.failures(self.batch):
                file.write(sheet.lines([one]))
                many += 1
        return many

    def differences(self, status: BatchStatus, counts: Counts) -> Iterator[str]:
        """Where the server's count of the batch, its history and the ledger of its jobs are not one and the same."""
        ledger = {"finished": counts.imported, "failed": counts.refused, "error": counts.dead}
        server = {name: many for name, many in status.counts.items() if many}
        found = self._desk.reading.batch(self.batch)
        recorded = {} if found is None else {name: many for name, many in found.counts.items() if many}
        if server != {name: many for name, many in ledger.items() if many}:
            yield f"the batch counts {server}, the ledger {ledger}"
        if recorded != server:
            yield f"the batch counts {server}, its history {recorded}"
        if status.called != {"complete": [1]}:
            yield f"callbacks were enqueued as {status.called}, and on_complete was to be, once"


def sheet_differences(path: Path, rows: Iterable[Row]) -> Iterator[str]:
    """One line for each row that the sheet lacks, or has though it was not refused, or with another reason."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        said = [(_number(one["arguments"]), one["message"]) for one in csv.DictReader(file)]
    wanted = Counter(_refused(rows))
    for (number, reason), many in (wanted - Counter(said)).items():
        yield f"row {number}: {path.name} lacks it {many} times: {reason}"
    for (number, reason), many in (Counter(said) - wanted).items():
        yield f"row {number}: {path.name} has it {many} times too often: {reason}"


def _number(arguments: str) -> int:
    """Of the row that a job was called with; 0 where that is not told."""
    return int(json.loads(arguments)[0]["number"]) if arguments else 0


def _refused(rows: Iterable[Row]) -> Iterator[tuple[int, str]]:
    for row in rows:
        try:
            clean(row)
        except Failure as failure:
            yield row.number, str(failure)
