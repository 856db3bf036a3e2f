"""Settles jobs of batches that no script of ours ended: a Ruby worker, Sidekiq's pages, UNLINK or trimming took them.
Business keys of such jobs are freed by ``lock_auditor.py``, in the same round.

It is slow on purpose. Only a batch that has not moved for ten minutes is searched for, and a job counts as lost when
two searches, a while apart, found it nowhere and nothing of the batch moved in between. A batch that was left open is
closed when two looks, a while apart, found nobody who fills it: a step of the server's clock ends the leases of all who
do, until they renew them. One process audits at a time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple, TypeVar

from henchman.batch import procedures
from henchman.batch.lock_auditor import LockAuditor
from henchman.batch.lock_patrol import LockPatrol
from henchman.batch.whereabouts import SEARCHED, Whereabouts
from henchman.client.runtime import Runtime
from henchman.errors import UnknownBatch
from henchman.kernel.threads import Ticker
from henchman.store import batches
from henchman.store.batches import Glance
from henchman.store.call import Call, run
from henchman.store.leases import AUDITOR_MS, Leader
from henchman.work.effects import EndingFacts, encoded

__all__ = ["Audited", "Auditor"]

T = TypeVar("T")

EVERY = 60.0
STILL = 600.0  # seconds that nothing of a batch has moved before it is looked into
APART = 50.0  # seconds between the two looks that must agree
LATEST = 3600.0  # a batch whose jobs all wait where they should is looked into again after so long at most
ANEW = 10  # audits after which batches that were complete are looked at again: one may have been retried
PAGE = 200  # batches
CHUNK = 500  # jobs that are settled in one call
MOST = 20_000  # members that one search is about


class Audited(NamedTuple):
    """What an audit did: jobs settled, batches closed, expired, released, and forgotten, business keys unlocked."""

    settled: int = 0
    closed: int = 0
    expired: int = 0
    released: int = 0
    forgotten: int = 0
    unlocked: int = 0


class _Watched:
    """A batch that is not complete: how it was seen last, and which jobs the last search missed."""

    def __init__(self, mark: Any, now: float) -> None:
        self.mark = mark
        self.since = now
        self.look_at = 0.0
        self.wait = 0.0
        self.cursor = 0
        self.missed: dict[str, str] = {}


class Auditor(Ticker):
    """A companion of a worker process; ``audit()`` is one round, which anybody may ask for."""

    name = "auditor"
    after_error = EVERY

    def __init__(self, runtime: Runtime, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self._leader = Leader(runtime.keys.auditor, AUDITOR_MS)
        self._monotonic = monotonic
        self._watched: dict[str, _Watched] = {}
        self._complete: set[str] = set()
        self._left: dict[str, float] = {}  # open batches that nobody fills, and since when
        self._locks = LockAuditor(runtime, monotonic=monotonic)
        self._patrol = LockPatrol(runtime, monotonic=monotonic)
        self._rounds = 0
        self._began = self._quiet = False

    @property
    def verbs(self) -> Mapping[str, Callable[[str], None]]:
        """It obeys nothing."""
        return {}

    def quiet(self) -> None:
        """Audit no more."""
        self._quiet = True

    def stop(self, timeout: float = 5.0) -> bool:
        """Audit no more, and let another process do so."""
        ended = super().stop(timeout)
        if self._leader.leads:
            self._leader.resign(self._runtime.connections, self._runtime.events, self.name)
        return ended

    def tick(self) -> float:
        """One round, if it is ours to make."""
        if not self._began:
            self._began = True  # a worker that has just started has more urgent things to do
        elif not self._quiet:
            self._leader.contend(self._runtime.connections)
            if self._leader.leads:
                self.audit()
        return EVERY

    def audit(self) -> Audited:
        """Look at every batch that is not complete; what was done."""
        self._rounds += 1
        if self._rounds % ANEW == 0:
            self._complete.clear()
        done, first, seen = Counter[str](), 0, set[str]()
        while names := self._run(batches.oldest(self._runtime.keys, first, PAGE)):
            seen.update(names)
            asked = [name for name in names if name not in self._complete]
            gone: list[str] = []
            if asked:
                now, glances = self._run(batches.glance(self._runtime.keys, asked))
                for name, glance in zip(asked, glances, strict=True):
                    if glance is None:
                        gone.append(name)
                    elif glance.state == "complete":
                        self._complete.add(name)
                        self._watched.pop(name, None)
                    else:
                        done += self._attend(name, glance, now)
            if gone:
                self._run(batches.forget(self._runtime.keys, gone))
                done["forgotten"] += len(gone)
            first += len(names) - len(gone)
            if self.stopping.is_set():
                break
        else:
            self._complete &= seen
            self._left = {name: since for name, since in self._left.items() if name in seen}
            self._watched = {name: one for name, one in self._watched.items() if name in seen}
        self._patrol.walk()
        done["unlocked"] = self._locks.audit()
        return Audited(**done)

    def _attend(self, name: str, glance: Glance, now: float) -> Counter[str]:
        """Do what one batch needs. It may be gone, or another process may do it meanwhile: the scripts decide."""
        keys = self._runtime.keys
        now -= self._runtime.clock.leapt(glance.created)  # so much less has passed
        try:
            if now > glance.expires and glance.why in ("", "aborted"):
                run(self._runtime.connections, procedures.expire(self._runtime, name))
                return Counter(expired=1)
            if glance.state == "open" and not glance.filled and now > glance.ends_open:
                if self._monotonic() - self._left.setdefault(name, self._monotonic()) >= APART:
                    run(self._runtime.connections, procedures.close(keys, name, "aborted"))
                    return Counter(closed=1)
            else:
                self._left.pop(name, None)
            if glance.state == "closed" and glance.parked:
                run(self._runtime.connections, procedures.release(keys, name))
                return Counter(released=1)
        except UnknownBatch:
            return Counter()
        return Counter(settled=self._look(name, glance))

    def _look(self, name: str, glance: Glance) -> int:
        """How many of its jobs were settled."""
        now = self._monotonic()
        one = self._watched.get(name)
        if one is None or one.mark != glance.mark:
            self._watched[name] = _Watched(glance.mark, now)
            return 0
        if not glance.live or now - one.since < STILL or now < one.look_at:
            return 0
        wanted, suspected = one.missed, bool(one.missed)
        if not suspected:
            one.cursor, wanted = self._members(name, one.cursor)
            if glance.parked:  # then what is blocked waits in the batch itself, in no queue and no set
                wanted = {jid: status for jid, status in wanted.items() if status != "blocked"}
        found = self._search(name, wanted)
        lost = dict.fromkeys(found.missing, "left without a word: it is in no queue and no set, and nobody runs it")
        one.missed = {} if suspected else found.missing
        settled = {jid: f"died elsewhere: {reason}" for jid, reason in found.dead.items()} | (lost if suspected else {})
        if one.missed:
            one.look_at = now + APART
        elif not settled and not one.cursor:
            one.wait = min(max(2 * one.wait, STILL), LATEST)
            one.look_at = now + one.wait
        if settled and self._unmoved(name, one):
            self._settle(name, settled, glance, dead=found.dead.keys())
            return len(settled)
        return 0

    def _search(self, name: str, wanted: Mapping[str, str]) -> Whereabouts:
        """Where these members of a batch are; children that are gone are missing, too."""
        jobs = {one: status for one, status in wanted.items() if status != "child"}
        dead = (self._runtime.keys.dead, self._runtime.keys.batch(name) + ":dead")
        found = Whereabouts(self._runtime, jobs, in_lists=f'"batch":"{name}"', in_sets=name, dead=dead)
        if children := [one for one, status in wanted.items() if status == "child"]:
            _, glances = self._run(batches.glance(self._runtime.keys, [one.removeprefix("batch:") for one in children]))
            gone = [one for one, glance in zip(children, glances, strict=True) if glance is None]
            found.missing |= dict.fromkeys(gone, "child")
        return found

    def _members(self, name: str, cursor: int) -> tuple[int, dict[str, str]]:
        """About ``MOST`` members that are not settled, and their status; the cursor of the next ones, 0 at the end."""
        found: dict[str, str] = {}
        while True:
            cursor, some = self._run(batches.live(self._runtime.keys, name, cursor, SEARCHED))
            found |= some
            if not cursor or len(found) >= MOST:
                return cursor, found

    def _unmoved(self, name: str, one: _Watched) -> bool:
        """Whether nothing of the batch has moved since we began to look."""
        _, [glance] = self._run(batches.glance(self._runtime.keys, [name]))
        return glance is not None and glance.mark == one.mark

    def _settle(self, name: str, reasons: Mapping[str, str], glance: Glance, *, dead: Set[str]) -> None:
        """End these jobs: who waits for one of the ``dead`` waits for one that may be revived."""
        hm, effects = {"batch": name, "results": glance.results}, []
        steps = self._run(batches.step_names(self._runtime.keys, name))
        for jid, reason in reasons.items():
            facts = EndingFacts(self._leader.identity, 0, {"reason": reason})
            ours = hm | ({"step": steps[jid]} if jid in steps else {})  # for those that wait for it
            ending = "dead" if jid in dead else "gone"
            effects.append(encoded(self._runtime.keys, {"jid": jid, "hm": ours}, ending, facts))
        for start in range(0, len(effects), CHUNK):
            self._run(batches.note(self._runtime.keys, effects[start : start + CHUNK]))
        shown = sorted(set(reasons.values()))[:3]
        self._runtime.events.emit("batch_settled", batch=name, jobs=len(reasons), reasons=shown)

    def _run(self, call: Call[T]) -> T:
        return self._runtime.connections.run(call)
