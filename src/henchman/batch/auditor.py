"""Settles jobs of batches that no script of ours ended: a Ruby worker, Sidekiq's pages, UNLINK or trimming took them.

It is slow on purpose. Only a batch that has not moved for ten minutes is searched for, and a job counts as lost when
two searches, a while apart, found it nowhere and nothing of the batch moved in between. One process audits at a time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from henchman.batch import procedures
from henchman.client.runtime import Runtime
from henchman.errors import PayloadError, UnknownBatch
from henchman.kernel.threads import Ticker
from henchman.store import batches, queues
from henchman.store.batches import Glance
from henchman.store.call import Call, run
from henchman.store.leases import AUDITOR_MS, Leader
from henchman.wire.payload import decode
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
SEARCHED = 1000  # members of a list, or of a batch, that are read in one call


class Audited(NamedTuple):
    """What an audit did: jobs settled, batches closed, expired, released, and forgotten."""

    settled: int = 0
    closed: int = 0
    expired: int = 0
    released: int = 0
    forgotten: int = 0


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
            self._watched = {name: one for name, one in self._watched.items() if name in seen}
        return Audited(**done)

    def _attend(self, name: str, glance: Glance, now: float) -> Counter[str]:
        """Do what one batch needs. It may be gone, or another process may do it meanwhile: the scripts decide."""
        keys = self._runtime.keys
        try:
            if now > glance.expires and glance.why in ("", "aborted"):
                run(self._runtime.connections, procedures.expire(self._runtime, name))
                return Counter(expired=1)
            if glance.state == "open" and not glance.filled and now > glance.ends_open:
                run(self._runtime.connections, procedures.close(keys, name, "aborted"))
                return Counter(closed=1)
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
        found = _Whereabouts(self._runtime, name, wanted)
        lost = dict.fromkeys(found.missing, "left without a word: it is in no queue and no set, and nobody runs it")
        one.missed = {} if suspected else found.missing
        settled = {jid: f"died elsewhere: {reason}" for jid, reason in found.dead.items()} | (lost if suspected else {})
        if one.missed:
            one.look_at = now + APART
        elif not settled and not one.cursor:
            one.wait = min(max(2 * one.wait, STILL), LATEST)
            one.look_at = now + one.wait
        if settled and self._unmoved(name, one):
            self._settle(name, settled, glance)
            return len(settled)
        return 0

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

    def _settle(self, name: str, reasons: Mapping[str, str], glance: Glance) -> None:
        hm, effects = {"batch": name, "results": glance.results}, []
        for jid, reason in reasons.items():
            facts = EndingFacts(self._leader.identity, 0, {"reason": reason})
            effects.append(encoded(self._runtime.keys, {"jid": jid, "hm": hm}, "gone", facts))
        for start in range(0, len(effects), CHUNK):
            self._run(batches.note(self._runtime.keys, effects[start : start + CHUNK]))
        shown = sorted(set(reasons.values()))[:3]
        self._runtime.events.emit("batch_settled", batch=name, jobs=len(reasons), reasons=shown)

    def _run(self, call: Call[T]) -> T:
        return self._runtime.connections.run(call)


class _Whereabouts:
    """A search for ``wanted`` jobs of a batch in everything that may hold them. ``dead``: jid → why it died;
    ``missing``: found nowhere."""

    def __init__(self, runtime: Runtime, batch: str, wanted: Mapping[str, str]) -> None:
        self.missing = {name: status for name, status in wanted.items() if status != "child"}
        self.dead: dict[str, str] = {}
        self._keys, self._run, self._batch = runtime.keys, runtime.connections.run, batch
        children = [name for name, status in wanted.items() if status == "child"]
        if children:
            names = [name.removeprefix("batch:") for name in children]
            _, glances = self._run(batches.glance(self._keys, names))
            gone = [name for name, glance in zip(children, glances, strict=True) if glance is None]
            self.missing |= dict.fromkeys(gone, "child")
        # In the order in which jobs wander, so that the search meets one that moves meanwhile further on.
        for place in (self._queues, self._sets, self._in_flight, self._sets, self._queues):
            for payload in place():
                self._found(payload)
            if not self.missing:
                return
        for key in (self._keys.dead, self._keys.batch(batch) + ":dead"):
            for payload in self._set(key):
                self._found(payload, dead=True)

    def _found(self, payload: bytes, *, dead: bool = False) -> None:
        try:
            job = decode(payload)
        except PayloadError:
            return
        jid = job.get("jid")
        if jid in self.missing:
            del self.missing[jid]
            if dead:
                self.dead[jid] = str(job.get("error_message") or "no reason was told")

    def _queues(self) -> Iterator[bytes]:
        for name in self._run(queues.names(self._keys)):
            yield from self._list(self._keys.queue(name))

    def _in_flight(self) -> Iterator[bytes]:
        holders = self._run(batches.holders(self._keys))
        for key in self._run(batches.in_flight_lists(self._keys, holders)):
            if not self._keys.is_held(key):
                yield from self._list(key)

    def _sets(self) -> Iterator[bytes]:
        for key in (self._keys.schedule, self._keys.retry):
            yield from self._set(key)

    def _list(self, key: str) -> Iterator[bytes]:
        first = 0
        while True:
            found = self._run(queues.list_page(key, first, SEARCHED, text=f'"batch":"{self._batch}"'))
            yield from found.payloads
            first += found.looked
            if not found.looked:
                return

    def _set(self, key: str) -> Iterator[bytes]:
        place, more = 0, True
        while more:
            found = self._run(queues.set_stretch(key, place, SEARCHED, newest_first=True, text=self._batch))
            place, more = place + found.step(), found.more
            yield from (member.payload for member in found.holding(self._batch))
