"""Settles jobs of batches that no script of ours ended: a Ruby worker, Sidekiq's pages, UNLINK or trimming took them.

It is slow on purpose. Only a batch that has not moved for ten minutes is searched for, and a job counts as lost when
two searches, a while apart, found it nowhere and nothing of the batch moved in between. One process audits at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from henchman.batch import procedures
from henchman.client.runtime import Runtime
from henchman.errors import PayloadError, UnknownBatch
from henchman.kernel.service import Ticker
from henchman.store import batches, queues
from henchman.store.batches import Glance
from henchman.store.call import Call
from henchman.store.leader import AUDITOR_MS, Leader
from henchman.store.procedure import run
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

    def __init__(
        self, runtime: Runtime, *, monotonic: Callable[[], float] = time.monotonic, still: float = STILL
    ) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self._leader = Leader(runtime.keys.auditor, AUDITOR_MS)
        self._monotonic = monotonic
        self._still = still
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
        done, first, seen = Audited(), 0, set[str]()
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
                        done = _plus(done, self._attend(name, glance, now))
            if gone:
                self._run(batches.forget(self._runtime.keys, gone))
                done = _plus(done, Audited(forgotten=len(gone)))
            first += len(names) - len(gone)
            if self.stopping.is_set():
                break
        else:
            self._complete &= seen
            self._watched = {name: one for name, one in self._watched.items() if name in seen}
        return done

    def _attend(self, name: str, glance: Glance, now: float) -> Audited:
        """What one batch needs. It may be gone, or another process may do it meanwhile: the scripts decide."""
        keys = self._runtime.keys
        try:
            if now > glance.expires and glance.why in ("", "aborted"):
                run(self._runtime.connections, procedures.expire(self._runtime, name))
                return Audited(expired=1)
            if glance.state == "open" and not glance.filled and now > glance.ends_open:
                run(self._runtime.connections, procedures.close(keys, name, "aborted"))
                return Audited(closed=1)
            if glance.state == "closed" and glance.parked:
                run(self._runtime.connections, procedures.release(keys, name))
                return Audited(released=1)
        except UnknownBatch:
            return Audited()
        return Audited(settled=self._look(name, glance))

    def _look(self, name: str, glance: Glance) -> int:
        """How many of its jobs were settled."""
        now = self._monotonic()
        one = self._watched.get(name)
        if one is None or one.mark != glance.mark:
            self._watched[name] = _Watched(glance.mark, now)
            return 0
        if not glance.live or now - one.since < self._still or now < one.look_at:
            return 0
        wanted, suspected = one.missed, bool(one.missed)
        if not suspected:
            one.cursor, wanted = _members(self._runtime, name, one.cursor)
        found = _search(self._runtime, name, dict(wanted))
        lost = dict.fromkeys(found.missing, "left without a word: it is in no queue and no set, and nobody runs it")
        one.missed = {} if suspected else found.missing
        settled = {jid: f"died elsewhere: {reason}" for jid, reason in found.dead.items()} | (lost if suspected else {})
        if one.missed:
            one.look_at = now + APART
        elif not settled and not one.cursor:
            one.wait = min(max(2 * one.wait, self._still), LATEST)
            one.look_at = now + one.wait
        if settled and self._unmoved(name, one):
            self._settle(name, settled)
            return len(settled)
        return 0

    def _unmoved(self, name: str, one: _Watched) -> bool:
        """Whether nothing of the batch has moved since we began to look."""
        _, [glance] = self._run(batches.glance(self._runtime.keys, [name]))
        return glance is not None and glance.mark == one.mark

    def _settle(self, name: str, reasons: Mapping[str, str]) -> None:
        effects = []
        for jid, reason in reasons.items():
            job = {"jid": jid, "hm": {"batch": name}}
            effects.append(
                encoded(self._runtime.keys, job, "gone", EndingFacts(self._leader.identity, 0, {"reason": reason}))
            )
        for start in range(0, len(effects), CHUNK):
            self._run(batches.note(self._runtime.keys, effects[start : start + CHUNK]))
        shown = sorted(set(reasons.values()))[:3]
        self._runtime.events.emit("batch_settled", batch=name, jobs=len(reasons), reasons=shown)

    def _run(self, call: Call[T]) -> T:
        return self._runtime.connections.run(call)


def _plus(one: Audited, other: Audited) -> Audited:
    return Audited(*(a + b for a, b in zip(one, other, strict=True)))


# --- where the jobs of one batch really are, looked for in everything that may hold them ---------------------------


class _Whereabouts:
    """What one search found of ``wanted`` jobs. ``dead``: jid → why it died; ``missing``: found nowhere."""

    def __init__(self, wanted: dict[str, str]) -> None:
        self.missing = wanted
        self.dead: dict[str, str] = {}

    def see(self, payload: bytes, *, dead: bool = False) -> None:
        """A payload of the batch was found."""
        try:
            job = decode(payload)
        except PayloadError:
            return
        jid = job.get("jid")
        if jid in self.missing:
            del self.missing[jid]
            if dead:
                self.dead[jid] = str(job.get("error_message") or "no reason was told")


def _members(runtime: Runtime, batch: str, cursor: int) -> tuple[int, dict[str, str]]:
    """About ``MOST`` members that are not settled, and their status; the cursor of the next ones, 0 at the end."""
    found: dict[str, str] = {}
    while True:
        cursor, some = runtime.connections.run(batches.live(runtime.keys, batch, cursor, SEARCHED))
        found |= some
        if not cursor or len(found) >= MOST:
            return cursor, found


def _search(runtime: Runtime, batch: str, wanted: dict[str, str]) -> _Whereabouts:
    """Look for ``wanted``. In the order in which jobs wander, so that one that moves meanwhile is met further on."""
    seen = _Whereabouts({name: status for name, status in wanted.items() if status != "child"})
    children = [name for name, status in wanted.items() if status == "child"]
    if children:
        names = [name.removeprefix("batch:") for name in children]
        _, glances = runtime.connections.run(batches.glance(runtime.keys, names))
        gone = [name for name, glance in zip(children, glances, strict=True) if glance is None]
        seen.missing |= dict.fromkeys(gone, "child")
    for place in (_in_queues, _in_sets, _in_flight, _in_sets, _in_queues):
        for payload in place(runtime, batch):
            seen.see(payload)
        if not seen.missing:
            return seen
    for key in (runtime.keys.dead, runtime.keys.batch(batch) + ":dead"):
        for payload in _in_set(runtime, key, batch):
            seen.see(payload, dead=True)
    return seen


def _in_queues(runtime: Runtime, batch: str) -> Iterator[bytes]:
    for name in runtime.connections.run(queues.names(runtime.keys)):
        yield from _in_list(runtime, runtime.keys.queue(name), batch)


def _in_flight(runtime: Runtime, batch: str) -> Iterator[bytes]:
    keys, run = runtime.keys, runtime.connections.run
    holders = run(batches.holders(keys))
    for key in run(batches.in_flight_lists(keys, holders)):
        if not keys.is_held(key):
            yield from _in_list(runtime, key, batch)


def _in_sets(runtime: Runtime, batch: str) -> Iterator[bytes]:
    for key in (runtime.keys.schedule, runtime.keys.retry):
        yield from _in_set(runtime, key, batch)


def _in_list(runtime: Runtime, key: str, batch: str) -> Iterator[bytes]:
    first = 0
    while True:
        found: batches.Found = runtime.connections.run(batches.find(key, batch, first, SEARCHED))
        yield from found.payloads
        first += found.looked
        if not found.looked:
            return


def _in_set(runtime: Runtime, key: str, batch: str) -> Iterator[bytes]:
    cursor = -1
    while cursor:
        found: Any = runtime.connections.run(queues.set_scan(key, max(cursor, 0), batch))
        cursor = found.cursor
        yield from (member.payload for member in found.members)
