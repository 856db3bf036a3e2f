"""What the ledger says of the outbox: the database itself has the last word on what was committed."""

from __future__ import annotations

from collections.abc import Iterator

from ledger import Entry

__all__ = ["Outbox"]


class Outbox:
    """``told``: by the key of a job that was written, what its writer knows; ``committed``: whose orders stand in the
    database, None as long as nobody has looked; ``rows``: how many are left in the outbox."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.committed: set[str] | None = None
        self.rows = 0

    def verdicts(self) -> Iterator[tuple[str, str]]:
        """Key and accepted or refused, of each job that was written."""
        if self.committed is not None:
            for key in self.told:
                yield key, "accepted" if key in self.committed else "refused"

    def read_order(self, entry: Entry) -> None:
        self.told[entry.words[1]] = entry.words[2]

    def read_committed(self, entry: Entry) -> None:
        self.committed = (self.committed or set()) | set(entry.words[2:])
        self.rows = int(entry.words[1])
