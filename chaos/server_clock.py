"""The time on the server's clock at a moment of the run: attacks step it, and what is stored goes by it alone."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

__all__ = ["ServerClock"]

NEVER = float("inf")
NOTICED = 12.0  # seconds: a server may be down for 9 s, the lease of a stager is 2 s
MOVED = 0.5  # seconds in which the waiting is moved along: a retry written meanwhile may be taken for an earlier one


class Piece(NamedTuple):
    """From ``since`` to ``to`` the server's clock may have been ``ahead`` seconds ahead. While it was being stepped two
    pieces hold."""

    since: float
    to: float
    ahead: float


class ServerClock:
    """Made of the steps; moments are the ledger's."""

    def __init__(self) -> None:
        self._pieces = [Piece(-NEVER, NEVER, 0.0)]
        self._noticed: list[float] = []

    def noticed(self, at: float) -> None:
        """A worker has noticed a step, and moves what waits along with it."""
        self._noticed.append(at)

    def doubtful(self, since: float, to: float) -> bool:
        """Whether what was written at ``since`` and ran at ``to`` may have been taken for something of before a step:
        it was written, or ran, before a worker had noticed that and had moved all along. The lease of a stager that was
        killed lasts for 2 s, and a server that is down is looked at when it is back: so long may it take."""
        for before, piece in pairwise(self._pieces):
            known = min((one for one in self._noticed if one >= piece.since), default=NEVER)
            if to >= piece.since and since <= min(known, before.to + NOTICED) + MOVED:
                return True
        return False

    def stepped(self, earliest: float, latest: float, ahead: float) -> None:
        """It was stepped between the two moments. Steps come in their order."""
        last = self._pieces.pop()
        self._pieces += [last._replace(to=latest), Piece(earliest, NEVER, ahead)]

    def _pieces_in(self, since: float, to: float) -> list[Piece]:
        return [one for one in self._pieces if one.since <= to and one.to >= since]

    def least(self, since: float, to: float) -> float:
        """The earliest time that it can have shown between two moments."""
        return min(max(since, one.since) + one.ahead for one in self._pieces_in(since, to))

    def most(self, since: float, to: float) -> float:
        """The latest time that it can have shown between two moments."""
        return max(min(to, one.to) + one.ahead for one in self._pieces_in(since, to))

    def right(self, since: float, to: float) -> bool:
        """Whether it was right all the time between two moments."""
        return all(one.ahead == 0.0 for one in self._pieces_in(since, to))
