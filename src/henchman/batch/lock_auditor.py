"""Frees business keys, and places of limits, of jobs that no script of ours ended: Sidekiq's pages, a Ruby worker or
UNLINK took them.

A key is in doubt when it keeps another job out, or when the patrol missed its job (``lock_patrol.py``), and searched
for when it is ten minutes old. Its job counts as lost when two searches, a while apart, found it nowhere. A job that
others put with the dead has died. Who waits for a key that no job has waits for one that has yet to be pushed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from henchman.batch.whereabouts import Whereabouts
from henchman.client.runtime import Runtime
from henchman.store import batches, limits, locks
from henchman.store.locks import Doubt, HeldKey
from henchman.work.effects import encoded

__all__ = ["OLD", "LockAuditor", "end_key", "search_keyed"]

OLD = 600.0  # seconds by the server that a lock stands before its job is searched for
APART = 50.0  # seconds between the two looks that must agree
LATEST = 3600.0  # a key whose job is where it should be is looked into again after so long at most
MOST = 1000  # keys that one round looks into
PAGE = 200  # batches


class _LastLook(NamedTuple):
    """What the last look at a key in doubt showed: its job was missed or found, and when to look again."""

    jid: str
    missed: bool
    at: float
    wait: float


class LockAuditor:
    """``audit()`` is one round; the auditor of batches calls it, in one process at a time."""

    def __init__(self, runtime: Runtime, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._runtime = runtime
        self._monotonic = monotonic
        self._looked: dict[bytes, _LastLook] = {}

    def audit(self) -> int:
        """Look into the keys that keep somebody out; how many were freed."""
        runner, keys = self._runtime.connections, self._runtime.keys
        names = runner.run(locks.doubts(keys, MOST))
        if not names:
            return 0
        now, doubts = runner.run(locks.in_doubt(keys, names))
        settled = {one.member for one in doubts if not one.jid and not one.waiting}
        for one in doubts:
            if not one.jid and one.waiting and one.phase not in "of":
                runner.run(locks.unlock(keys, one.phase, one.scope, one.name, ""))  # to the first in line
        due = [one for one in doubts if one.jid and _age(one, now) >= OLD and self._is_due(one)]
        freed, well = self._look(due) if due else (0, [])
        freed += self._free_places([one for one in doubts if one.phase == "s" and one.waiting], now)
        settled |= {one.member for one in well if not one.waiting}
        later = {one.member: now + self._pause(one, now) for one in doubts if one.member not in settled}
        self._trust(settled, now)
        if later:
            runner.run(locks.look_later(keys, later))
        forgotten = self._monotonic() - LATEST
        self._looked = {member: look for member, look in self._looked.items() if look.at > forgotten}
        return freed

    def _free_places(self, full: Sequence[Doubt], now: float) -> int:
        """Look into who has the places that jobs wait for, which a limit has; how many places were freed."""
        runner, keys, due = self._runtime.connections, self._runtime.keys, list[Doubt]()
        for one in full:
            for holder in runner.run(limits.holders(keys, one.scope, one.name)):
                if holder.program:  # it is given back when its lease lapses
                    continue
                member = one.member + b"\n" + holder.jid.encode("utf-8", "replace")
                due.append(one._replace(member=member, jid=holder.jid, since=holder.since))
        due = [one for one in due if _age(one, now) >= OLD and self._is_due(one)][:MOST]
        return self._look(due)[0] if due else 0

    def _trust(self, members: Set[bytes], now: float) -> None:
        """Nobody waits for these keys; those for which somebody does by now are in doubt as before."""
        if not members:
            return
        runner, keys = self._runtime.connections, self._runtime.keys
        runner.run(locks.trust(keys, list(members)))
        _, again = runner.run(locks.in_doubt(keys, list(members)))
        for one in again:
            if one.waiting:
                runner.run(locks.distrust(keys, one.member, now))
            else:
                self._looked.pop(one.member, None)

    def _pause(self, one: Doubt, now: float) -> float:
        """Seconds until a key is to be looked at again."""
        look = self._looked.get(one.member)
        if look is None or look.jid != one.jid:
            return max(OLD - _age(one, now), 0.0)
        return max(look.at - self._monotonic(), 0.0)

    def _is_due(self, one: Doubt) -> bool:
        look = self._looked.get(one.member)
        return look is None or look.jid != one.jid or self._monotonic() >= look.at

    def _look(self, due: Sequence[Doubt]) -> tuple[int, list[Doubt]]:
        """How many keys were freed, and those whose jobs are where they should be."""
        wanted = {one.jid: one.phase for one in due}
        found = search_keyed(self._runtime, wanted, '"limits":[' if due[0].phase == "s" else '"key":[')
        freed, well, now = 0, list[Doubt](), self._monotonic()
        for one in due:
            before = self._looked.pop(one.member, None)
            known = before is not None and before.jid == one.jid
            if one.jid in found.dead and one.phase not in "of":
                freed += self._free(one, "dead", f"its job {one.jid} died elsewhere: {found.dead[one.jid]}")
            elif one.jid not in found.missing:
                if one.jid in found.dead:  # it keeps its key; who waits for it is told, if nobody did so
                    end_key(self._runtime, one, "dead")
                wait = min(max(2 * before.wait, OLD), LATEST) if before is not None and known else OLD
                self._looked[one.member] = _LastLook(one.jid, False, now + wait, wait)
                well.append(one)
            elif before is not None and known and before.missed:
                freed += self._free(one, "gone", f"its job {one.jid} left without a word: it is in no queue and no set")
            else:
                self._looked[one.member] = _LastLook(one.jid, True, now + APART, 0.0)
        return freed, well

    def _free(self, one: Doubt, ending: str, reason: str) -> int:
        """End the job as far as this key goes; if the lock is another job's by now, nothing happens."""
        end_key(self._runtime, one, ending)
        self._runtime.events.emit("key_freed", scope=one.scope, key=one.name, jid=one.jid, reason=reason)
        return 1


def search_keyed(runtime: Runtime, wanted: Mapping[str, str], having: str = '"key":[') -> Whereabouts:
    """Where the jobs ``wanted`` (by jid) are, whose payloads have this text: they have keys, or limits."""
    return Whereabouts(runtime, wanted, in_lists=having, in_sets=having, dead=_graves(runtime))


def _graves(runtime: Runtime) -> Iterator[str]:
    """The sets of the dead: the one of all, and those of batches."""
    keys, first = runtime.keys, 0
    yield keys.dead
    while names := runtime.connections.run(batches.oldest(keys, first, PAGE)):
        for batch in runtime.connections.run(batches.having(keys, names, "dead")):
            yield keys.batch(batch) + ":dead"
        first += len(names)


def end_key(runtime: Runtime, one: Doubt | HeldKey, ending: str) -> None:
    """The job of a key has ended, as far as this key goes; if the lock is another job's by now, nothing happens."""
    held: dict[str, Any] = {"key": [one.scope, one.name, one.phase]}
    if one.phase == "s":  # a place of a limit
        held = {"limits": [["c", one.scope, one.name, 1, 0, 1]]}
    job = {"jid": one.jid, "hm": held}
    runtime.connections.run(batches.note(runtime.keys, [encoded(runtime.keys, job, ending)]))


def _age(one: Doubt, now: float) -> float:
    """Seconds for which the lock of a key stands. After the clock went back nobody knows: then it is looked into."""
    return now - one.since if one.since <= now else OLD
