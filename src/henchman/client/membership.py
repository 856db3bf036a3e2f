"""The batch that a push belongs to, as far as the push must know it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from henchman.store.call import Call, command
from henchman.store.keys import Keys

__all__ = ["OUTSIDE", "Membership", "within"]


class Membership:
    """A batch as its pushes see it. ``expires`` is a Unix time; those of an ``atomic`` one are parked till its end.

    ``member``: the running job that adds to its own batch. ``known``: False for a batch that was made elsewhere, until
    ``learn`` was carried out.
    """

    __slots__ = ("atomic", "expires", "id", "known", "member")

    def __init__(
        self, batch: str, *, member: str = "", expires: float | None = None, atomic: bool = False, known: bool = True
    ) -> None:
        self.id = batch
        self.member = member
        self.expires = expires
        self.atomic = atomic
        self.known = known

    def learn(self, keys: Keys) -> Call[None]:
        """Ask the server for what pushes must know."""

        def read(reply: Any) -> None:
            self.expires = float(reply[0]) if reply[0] else None
            self.atomic = reply[1] == b"1" and reply[2] in (b"open", None)
            self.known = True

        return command("HMGET", keys.batch(self.id), "expires", "atomic", "state", decode=read)


#: in place of a batch: the push belongs to none, whatever block it is in
OUTSIDE = Membership("")
#: the batch whose block this thread or task is in
within: ContextVar[Membership | None] = ContextVar("henchman_batch", default=None)
