"""One claim: some ids of an ordered queue, with their payloads, held under one token by one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from henchman.store.ordered import ClaimedId, Verdict

__all__ = ["DEATHS", "Claim"]

DEATHS = 3  # of processes that had an id in hand, the last with nothing beside it: a failure of the id

MOST_RECORDS = 500


class Claim:
    """``token`` rises from claim to claim of a queue. ``retry_count``: -1 when its ids have not failed; ``suspect``:
    processes died with it, it runs with nothing beside it. ``refused``: ids that cannot run, and why; ``verdicts``:
    how each id ends, once that is known, and ``endings`` in words, with the error."""

    __slots__ = ("endings", "ids", "refused", "retry_count", "suspect", "token", "verdicts")

    def __init__(self, token: int, ids: list[ClaimedId]) -> None:
        self.token = token
        self.ids = ids
        first = ids[0]  # what failed or crashed before is claimed alone
        self.retry_count = first.retry_count
        self.suspect = first.crashes == DEATHS - 1
        self.refused: dict[bytes, BaseException] = {}
        self.verdicts: list[Verdict] | None = None
        self.endings: dict[bytes, tuple[str, BaseException | None]] | None = None

    @property
    def records(self) -> list[str]:
        """The jids of the records that hear what its handler says: the first 500 of its payloads, where tracked."""
        return [jid.decode() for one in self.ids for jid in one.jids if jid][:MOST_RECORDS]

    def __repr__(self) -> str:
        return f"Claim({self.token}, {len(self.ids)} ids)"

    def all(self, verdict: str, delay: float = 0.0) -> list[Verdict]:
        """Every id ends alike."""
        make, token = Verdict._make, self.token  # half the time of naming each field, and this is the hot path
        return [make((token, one.id, verdict, delay, 0, "")) for one in self.ids]

    def errors(self, result: Any, problem: BaseException | None) -> dict[bytes, BaseException]:
        """The ids that failed, and of what: all when the handler raised, else those it answered an exception for."""
        found = dict(self.refused)
        if problem is not None:
            found |= {one.id: problem for one in self.ids if one.id not in found}
        elif isinstance(result, Mapping):
            answers = {encoded(name): answer for name, answer in result.items()}
            for one in self.ids:
                answer = answers.get(one.id)
                if isinstance(answer, BaseException):
                    found.setdefault(one.id, answer)
        return found


def encoded(name: Any) -> bytes:
    """An id as it is stored; the reverse of ``shown``."""
    return str(name).encode("utf-8", "surrogateescape")


def shown(name: bytes) -> str:
    """An id as handlers and people get it; one that is no UTF-8 keeps its bytes."""
    return name.decode("utf-8", "surrogateescape")
