"""The judgement on the records of tracked ordered queues: each payload has one in SQL, which tells how it ended."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kinds import ORDERED
from life_judge import broken, lives
from spans import Pushed

__all__ = ["TRACKED", "OrderedRecord"]

TRACKED = tuple(queue for queue, kind in ORDERED.items() if kind.options.get("track"))
#: an ordered id does not go through a queue again: what failed, or was put off, is claimed where it lies
AFTER = {"retrying": {"working"}, "scheduled": {"working"}}
_KEY = re.compile(r'"key":"([^"]+)"')


class Record(NamedTuple):
    """One record as SQL has it."""

    jid: str
    name: str  # the id that it was pushed for
    status: str


class OrderedRecord:
    """What SQL says of the payloads of tracked queues, by their keys."""

    def __init__(self, record: Path) -> None:
        self._lives = lives(record)
        self._of: dict[str, Record] = {}
        self._wrong: list[str] = []
        marks = ", ".join("?" for _ in TRACKED)
        query = f"SELECT jid, args, status FROM henchman_events WHERE queue IN ({marks})"  # noqa: S608
        with sqlite3.connect(f"file:{record}?mode=ro", uri=True) as db:
            for jid, args, status in db.execute(query, TRACKED):
                key = _KEY.search(args or "")
                if key is None or key[1] in self._of:
                    self._wrong.append(f"{jid}: {f'a second record of {key[1]}' if key else f'no payload: {args!r}'}")
                    continue
                self._of[key[1]] = Record(jid, args.partition('"')[2].partition('"')[0], status)

    def rule(self, pushed: dict[str, Pushed], ended: Callable[[Pushed], str | None]) -> Iterator[str]:
        """Every violation. ``ended`` says which status a payload must have; None: it may have none."""
        yield from self._wrong
        for one in pushed.values():
            if one.entity[0] not in TRACKED:
                continue
            found, due = self._of.get(one.key), ended(one)
            if found is None:
                if due is not None:
                    yield f"{one.key} of {'/'.join(one.entity)} ({one.told}) has no record"
                continue
            if found.name != one.entity[1] or found.status != due:
                yield f"{one.key} of {'/'.join(one.entity)} stands as {found.status} of {found.name}, due: {due}"
        for key, found in self._of.items():
            if key not in pushed:
                yield f"{key} has a record, and nobody pushed it"
            life = self._lives[found.jid]
            for problem in broken(life, None, revived=False, more=AFTER):
                yield f"{key}: {problem} ({' '.join(life)})"
            if life[-1:] != [found.status]:
                yield f"{key} is {found.status}, and its last change says {life[-1:]}"

    def told(self) -> str:
        """For the verdict."""
        counts = Counter(one.status for one in self._of.values())
        return f"{len(self._of)} (" + ", ".join(f"{count} {status}" for status, count in counts.most_common()) + ")"
