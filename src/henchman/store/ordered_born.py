"""The push of an ordered queue whose payloads have records, as a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from henchman.errors import HistoryFull
from henchman.store.batches import FULL
from henchman.store.call import Arg, Call, script
from henchman.store.effects import shared_keys
from henchman.store.keys import Keys
from henchman.store.ordered import Push
from henchman.store.scripts import load

__all__ = ["Born", "push"]

_PUSH = load("ordered_push_tracked")


class Born(NamedTuple):
    """What the records of one push begin with: the name of the handler, how their jids begin (18 hex digits), and how
    the history is kept if nobody said so before ("": not at all).
    """

    name: str
    seed: str
    keep: str

    def jid(self, row: int) -> str:
        """That of a row, counted from 1."""
        return f"{self.seed}{row:06x}"


def push(keys: Keys, queue: str, collapse: str, born: Born, rows: Sequence[Push]) -> Call[int]:
    """``ordered.push``, with a record for each payload. Raises HistoryFull; then nothing was pushed."""

    def read(reply: Any) -> int:
        if reply == b"FULL":
            raise HistoryFull(FULL)
        return int(reply)

    names = [keys.ordered(queue), keys.ordered_queues, *shared_keys(keys)]
    args: list[Arg] = [queue, collapse, msgspec.json.encode(born.name), born.seed, born.keep]
    for one in rows:
        args += one
    return script(_PUSH, names, args, read, again=False)
