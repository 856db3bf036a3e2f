"""What the ledger says of batches: which were made, what was pushed into them, and which were cancelled."""

from __future__ import annotations

from ledger import Entry

__all__ = ["Batches", "Made"]


class Made:
    """One batch. ``members``: the keys of jobs that were pushed into it, whatever came of that."""

    __slots__ = ("aborting", "cancelled", "cancelling", "members", "name", "parent", "pid", "style")

    def __init__(self, name: str) -> None:
        self.name = name
        self.style = self.parent = ""
        self.pid = 0
        self.members: list[str] = []
        self.aborting = self.cancelling = False
        self.cancelled: float | None = None  # when the cancellation returned


class Batches:
    """The batches of a history."""

    def __init__(self) -> None:
        self.made: dict[str, Made] = {}
        self.of: dict[str, Made] = {}  # by the key of a job

    def _batch(self, entry: Entry) -> Made:
        return self.made.setdefault(entry.words[1], Made(entry.words[1]))

    def lineage(self, batch: Made) -> list[Made]:
        """It, and those that it is part of."""
        found = [batch]
        while (parent := self.made.get(found[-1].parent)) is not None:
            found.append(parent)
        return found

    def cancelling(self, batch: Made) -> bool:
        """Whether somebody cancelled it, or what it is part of, or tried to."""
        return any(one.cancelling for one in self.lineage(batch))

    def may_not_run(self, key: str) -> bool:
        """Whether the job may have ended without a run, because of its batch."""
        batch = self.of.get(key)
        return batch is not None and (self.cancelling(batch) or (batch.aborting and batch.style.startswith("atomic")))

    def read_bopening(self, entry: Entry) -> None:
        batch = self._batch(entry)
        batch.pid, batch.style, batch.parent = entry.pid, entry.words[2], entry.words[3]

    def read_bjob(self, entry: Entry) -> None:
        batch = self._batch(entry)
        batch.members.append(entry.words[2])
        self.of[entry.words[2]] = batch

    def read_baborting(self, entry: Entry) -> None:
        self._batch(entry).aborting = True

    def read_bcancelling(self, entry: Entry) -> None:
        self._batch(entry).cancelling = True

    def read_bcancelled(self, entry: Entry) -> None:
        self._batch(entry).cancelled = entry.at
