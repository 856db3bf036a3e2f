"""Settles what left our hands: jobs of batches that a Ruby worker, Sidekiq's pages, UNLINK or trimming took away.

It is slow on purpose. Only a batch that has not moved for ten minutes is looked into, and a job counts as lost when two
looks, a while apart, found it nowhere and nothing of the batch moved in between. One process audits at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from henchman.batch import plans as batch_plans
from henchman.batch.search import members, whereabouts
from henchman.errors import ServerError, UnknownBatch
from henchman.kernel.ids import new_identity
from henchman.kernel.service import Ticker
from henchman.store import batches
from henchman.store.batches import Glance
from henchman.store.procedure import Procedure, run
from henchman.work.effects import EndingFacts, encoded

__all__ = ["Audited", "Auditor", "auditor_of"]

EVERY = 60.0
STILL = 600.0  # seconds that nothing of a batch has moved before it is looked into
APART = 50.0  # seconds between the two looks that must agree
LATEST = 3600.0  # a batch whose jobs all wait where they should is looked into again after so long at most
ANEW = 10  # audits after which batches that were complete are looked at again: one may have been retried
PAGE = 200
CHUNK = 500


class Audited(NamedTuple):
    """What an audit did: jobs settled, batches closed, expired, released, and forgotten."""

    settled: int = 0
    closed: int = 0
    expired: int = 0
    released: int = 0
    forgotten: int = 0


class _Watched:
    """A batch that is not complete: how it was seen last, and what a look into it missed."""

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

    def __init__(self, home: Any, *, monotonic: Callable[[], float] = time.monotonic, still: float = STILL) -> None:
        super().__init__(home.events.failed)
        self._home = home
        self._identity = new_identity()
        self._monotonic = monotonic
        self._still = still
        self._watched: dict[str, _Watched] = {}
        self._complete: set[str] = set()
        self._rounds = 0
        self._began = self._leads = self._quiet = False

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
        if self._leads:
            self._leads = False
            try:
                self._run(batches.let_go_audit(self._home.keys))
            except ServerError as error:
                self._home.events.failed(self.name, error)
        return ended

    def tick(self) -> float:
        """One round, if it is ours to make."""
        if not self._began:
            self._began = True  # a worker that has just started has more urgent things to do
        elif not self._quiet:
            self._leads = self._run(batches.lead_audit(self._home.keys, self._identity))
            if self._leads:
                self.audit()
        return EVERY

    def audit(self) -> Audited:
        """Look at every batch that is not complete; what was done."""
        self._rounds += 1
        if self._rounds % ANEW == 0:
            self._complete.clear()
        done, first, seen = Audited(), 0, set[str]()
        while names := self._run(batches.oldest(self._home.keys, first, PAGE)):
            seen.update(names)
            asked = [name for name in names if name not in self._complete]
            gone: list[str] = []
            if asked:
                now, glances = self._run(batches.glance(self._home.keys, asked))
                for name, glance in zip(asked, glances, strict=True):
                    if glance is None:
                        gone.append(name)
                    elif glance.state == "complete":
                        self._complete.add(name)
                        self._watched.pop(name, None)
                    else:
                        done = _plus(done, self._attend(name, glance, now))
            if gone:
                self._run(batches.forget(self._home.keys, gone))
                done = _plus(done, Audited(forgotten=len(gone)))
            first += len(names) - len(gone)
            if self.stopping.is_set():
                break
        else:
            self._complete &= seen
            self._watched = {name: one for name, one in self._watched.items() if name in seen}
        return done

    def _attend(self, name: str, glance: Glance, now: float) -> Audited:
        """What one batch needs. It may be gone, or somebody else may do it meanwhile: the scripts decide."""
        keys = self._home.keys
        try:
            if now > glance.expires and glance.why in ("", "aborted"):
                self._execute(batch_plans.expire(self._home, name))
                return Audited(expired=1)
            if glance.state == "open" and not glance.filled and now > glance.ends_open:
                self._execute(batch_plans.close(keys, name, "aborted"))
                return Audited(closed=1)
            if glance.state == "closed" and glance.parked:
                self._execute(batch_plans.release(keys, name))
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
            one.cursor, wanted = members(self._home, name, one.cursor)
        found = whereabouts(self._home, name, dict(wanted))
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
        _, [glance] = self._run(batches.glance(self._home.keys, [name]))
        return glance is not None and glance.mark == one.mark

    def _settle(self, name: str, reasons: Mapping[str, str]) -> None:
        texts = [
            encoded(
                self._home.keys,
                {"jid": jid, "hm": {"batch": name}},
                "gone",
                EndingFacts(self._identity, 0, {"reason": reason}),
            )
            for jid, reason in reasons.items()
        ]
        for start in range(0, len(texts), CHUNK):
            self._run(batches.note(self._home.keys, texts[start : start + CHUNK]))
        self._home.events.emit(
            "batch_settled", batch=name, jobs=len(reasons), reasons=sorted(set(reasons.values()))[:3]
        )

    def _run(self, call: Any) -> Any:
        return self._home.connections.run(call)

    def _execute(self, plan: Procedure[Any]) -> Any:
        return run(self._home.connections, plan)


def _plus(one: Audited, other: Audited) -> Audited:
    return Audited(*(a + b for a, b in zip(one, other, strict=True)))


def auditor_of(home: Any) -> Auditor:
    """The auditor that an app asks by itself; what it saw is remembered from one round to the next."""
    kept: Auditor = home.__dict__.setdefault("_auditor", Auditor(home))
    return kept
