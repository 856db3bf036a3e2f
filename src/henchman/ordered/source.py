"""An ordered queue as a worker sees it: claims come in, each id of them is settled on its own.

Ids are held by the process, not by a lease of their own: whoever buries the process frees them (PROTOCOL, section 5).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from henchman.client.ordered_options import OrderedOptions
from henchman.client.registry import Definition
from henchman.config import Config
from henchman.errors import ArgumentError, PoisonPill, ServerAway
from henchman.kernel.clock import ServerClock
from henchman.ordered.claim import DEATHS, Claim, shown
from henchman.ordered.records import written
from henchman.ordered.scheduler import Scheduler
from henchman.ordered.verdict import Bench
from henchman.store import ordered
from henchman.store.call import Arg, Runner, command
from henchman.store.keys import Keys
from henchman.store.ordered import Claimed, Verdict
from henchman.wire.times import day
from henchman.work.outcome import Outcome
from henchman.work.source import Brought, Ended, Reading, Teller
from henchman.work.unit import Flight, Unit

__all__ = ["OrderedSource", "sources_of"]

FORGOTTEN = 3600.0  # seconds after which no answer can come any more
MOST_CLAIMS = 200  # in one call of the script: while the server is at it, what is here already runs


class OrderedDefinition(Definition, Protocol):
    """A definition with what only ordered queues have."""

    @property
    def ordered(self) -> OrderedOptions: ...
    def decode(self, name: str, raw: list[bytes]) -> list[Any]:
        """The payloads of one id, as annotated; ArgumentError names the place."""
        ...


class Desk(Protocol):
    """As much of an app as a source needs."""

    @property
    def config(self) -> Config: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def clock(self) -> ServerClock: ...
    @property
    def connections(self) -> Runner: ...


class OrderedSource:
    """One ordered queue of ``desk``, run by ``definition``. Fits ``work.source.Source``."""

    def __init__(self, desk: Desk, queue: str, definition: OrderedDefinition, scheduler: Scheduler) -> None:
        self.queue = queue
        self._scheduler = scheduler
        self._desk = desk
        self._definition = definition
        self._options = definition.ordered
        self._bench = Bench(definition.ordered)
        self._name, self._log_level = definition.name, definition.options.log_level
        self._suffix = ordered.jid_suffix(queue)
        self._tracked = definition.options.track  # or because the server said so
        self._given_up: dict[bytes, float] = {}  # tokens of claims that we had not heard of, and when we freed them

    def __repr__(self) -> str:
        return f"<ordered queue {self.queue!r}>"

    @property
    def _lease_ms(self) -> int:
        return int(self._desk.config.lease * 1000)

    def declare(self) -> None:
        """Write the limits that the code names where claims look them up; a ceiling set by hand goes before them."""
        options = self._options
        limit = 1 if options.partitions and options.max_parallel is None else options.max_parallel or 0
        call = ordered.declare(
            self._desk.keys,
            self.queue,
            limit=limit,
            group_limit=options.max_per_group or 0,
            separator=options.group_separator if options.max_per_group else "",
        )
        self._desk.connections.run(call)

    def flight(self, identity: str, epoch: int) -> Flight:
        """The hash of what is held; its ``queue_key`` is the marker that wakes."""
        keys = self._desk.keys
        return Flight(self.queue, keys.wake(self.queue), keys.held(identity, epoch, self.queue), identity, epoch)

    def wait(self, flight: Flight, seconds: float) -> tuple[Arg, ...]:
        """Wait for the marker: it says that somebody should look, the claim alone says what there is."""
        return ("BZPOPMIN", flight.queue_key, seconds)

    def order(self, names: Sequence[str]) -> list[str]:
        """As the process's scheduler says."""
        return self._scheduler.order(names)

    def ring(self) -> None:
        """Set the marker."""
        self._desk.connections.run(ordered.ring(self._desk.keys, self.queue))

    def fetch(self, flight: Flight, want: int, extra: int) -> Brought:
        """Claim for ``want`` slots. Raises LeaseLost, LeaseLapsed."""
        want = min(want, MOST_CLAIMS)
        try:
            claimed = self._claim(flight, want, min(extra, MOST_CLAIMS - want))
        except ordered.QueueTracked:
            self._tracked = True
            claimed = self._claim(flight, want, min(extra, MOST_CLAIMS - want))
        now = time.monotonic()
        units = []
        for place, (token, ids) in enumerate(claimed.claims):
            claim = Claim(token, ids)
            unit = Unit(b"", flight, now + place * 1e-7, self, claim)
            unit.suspect = claim.suspect
            units.append(unit)
        return Brought(units, claimed.look_in)

    def _claim(self, flight: Flight, want: int, extra: int) -> Claimed:
        options = self._options
        return self._desk.connections.run(
            ordered.claim(
                self._desk.keys,
                flight.identity,
                flight.epoch,
                self.queue,
                want,
                extra,
                options.claim_size,
                options.payload_cap,
                self._lease_ms,
                tracked=self._tracked,
            )
        )

    def read(self, unit: Unit, teller: Teller) -> Reading | Outcome:
        """The claim as the handler gets it; ids whose payloads do not fit, or that killed three processes, fail."""
        claim, definition = unit.claim, self._definition
        if self._given_up and str(claim.token).encode() in self._given_up:
            unit.job = self._job(claim, {})
            return Outcome("released", reason="its answer came after it had been given up")
        entities: dict[str, list[Any]] = {}
        decode = definition.decode
        for one in claim.ids:
            name = shown(one.id)
            if one.crashes >= DEATHS:
                claim.refused[one.id] = PoisonPill(f"its process died {one.crashes} times while it ran")
                continue
            try:
                entities[name] = decode(name, [raw for _, raw in one.payloads])
            except ArgumentError as error:
                claim.refused[one.id] = error
        job = self._job(claim, entities)
        unit.job = job
        if not entities:
            return self.judge(unit, job, None, None, teller)
        return Reading(definition.name, job, (entities,))

    def _job(self, claim: Claim, entities: dict[str, list[Any]]) -> dict[str, Any]:
        """The claim as logs, middleware and lists of running jobs see it."""
        job: dict[str, Any] = {
            "class": self._name,
            "jid": f"{claim.token}{self._suffix}",
            "queue": self.queue,
            "args": [entities],
        }
        if claim.retry_count >= 0:
            job["retry_count"] = claim.retry_count
        if self._log_level is not None:
            job["log_level"] = self._log_level
        return job

    def judge(
        self, unit: Unit, job: dict[str, Any], result: Any, problem: BaseException | None, teller: Teller
    ) -> Outcome:
        """What became of each id; no answer is success for all, see ``Claim.errors``."""
        claim = unit.claim
        if problem is None and not claim.refused and result is None:
            return _DONE
        return self._bench.judge(claim, job, claim.errors(result, problem), teller)

    def abandon(self, unit: Unit) -> None:
        """Count a death: its process is about to be ended, and frees it only by that. A zombie's is not counted: what
        it holds is another's, or over.
        """
        token = str(unit.claim.token).encode()
        noted = self._desk.connections.run(ordered.held(unit.flight.key))
        ids = [one.id for one in unit.claim.ids if noted.get(one.id) == token]
        if ids:
            self._desk.connections.run(ordered.charge(self._desk.keys, self.queue, ids))

    def settle(self, identity: str, rows: Sequence[Ended]) -> list[int | bytes]:
        """End claims; 0 where an id of one was not held under its token any more. Raises LeaseLost."""
        statuses: dict[Unit, int | bytes] = {}
        by_epoch: dict[int, list[tuple[Unit, Verdict]]] = {}
        for unit, ending, stored, delay, _ in rows:
            statuses[unit] = 1
            claim, epoch = unit.claim, unit.flight.epoch
            ended = by_epoch.setdefault(epoch, [])
            for one in claim.verdicts or _by_ending(claim, ending, delay, stored):
                ended.append((unit, one))
        sent = False
        for epoch, ended in by_epoch.items():
            for chunk in _chunks(ended):
                left = chunk
                while left:
                    try:
                        told = self._send(identity, epoch, left, rows)
                    except ServerAway as error:
                        if sent and error.executed is False:  # others of these claims were settled
                            raise ServerAway(str(error), executed=None) from error
                        raise
                    sent = True
                    for (unit, _), status in zip(left, told, strict=True):
                        if status not in (1, ordered.PART) and isinstance(statuses[unit], int):
                            statuses[unit] = status
                    left = [one for one, status in zip(left, told, strict=True) if status == ordered.PART]
        return list(statuses.values())

    def _send(
        self, identity: str, epoch: int, ended: Sequence[tuple[Unit, Verdict]], rows: Sequence[Ended]
    ) -> list[int | bytes]:
        verdicts = written(ended, {row[0]: row[1] for row in rows}) if self._tracked else [one for _, one in ended]
        call = ordered.settle(
            self._desk.keys,
            identity,
            epoch,
            self.queue,
            verdicts,
            collapse=self._options.collapse,
            lease_ms=self._lease_ms,
            day=day(self._desk.clock.now()),
            tracked=self._tracked,
        )
        try:
            return self._desk.connections.run(call)
        except ordered.QueueTracked:
            self._tracked = True
            return self._send(identity, epoch, ended, rows)

    def strays(self, flight: Flight, held: Collection[Unit]) -> set[bytes]:
        """``token:id`` of what is noted as ours and unknown to us."""
        return {token + b":" + name for name, token in self._unknown(flight, held).items()}

    def free(self, flight: Flight, held: Collection[Unit]) -> int:
        """Free what we never heard of; what runs here stays ours. ``held`` is what is held now, not a copy."""
        now = time.monotonic()
        for token in [token for token, at in self._given_up.items() if now - at > FORGOTTEN]:
            del self._given_up[token]
        noted = self._desk.connections.run(ordered.held(flight.key))
        self._given_up |= dict.fromkeys(
            noted.values(), now
        )  # before the look at what is ours: if it comes now, it waits
        ours = _tokens(flight, held)
        unknown = {name: token for name, token in noted.items() if ours.get(name) != token}
        for token in set(noted.values()) - set(unknown.values()):
            del self._given_up[token]
        if not unknown:
            return 0
        desk = self._desk
        return ordered.free_all(
            desk.connections, desk.keys, flight.identity, flight.key, self.queue, list(unknown.items())
        )

    def _unknown(self, flight: Flight, held: Collection[Unit]) -> dict[bytes, bytes]:
        ours = _tokens(flight, held)
        if self._desk.connections.run(command("HLEN", flight.key)) <= len(ours):
            return {}
        noted = self._desk.connections.run(ordered.held(flight.key))
        return {name: token for name, token in noted.items() if ours.get(name) != token}


def _tokens(flight: Flight, held: Collection[Unit]) -> dict[bytes, bytes]:
    """What is held here of ``flight``: id → token."""
    units = [unit for unit in list(held) if unit.flight == flight]
    return {one.id: str(unit.claim.token).encode() for unit in units for one in unit.claim.ids}


_DONE = Outcome("done")
T = TypeVar("T")


def _chunks(many: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(many), ordered.MOST_IDS):
        yield many[start : start + ordered.MOST_IDS]


def _by_ending(claim: Claim, ending: str, delay: float | str, defect: bytes) -> list[Verdict]:
    """The verdicts on a claim that was not judged: it ended as a whole. ``defect``: why it could not be judged."""
    if ending in ("done", "cancelled", "discarded"):
        return claim.all("done")
    if ending in ("released", "interrupted"):
        return claim.all("release")
    if ending in ("deferred", "snoozed"):
        return claim.all("snooze", float(delay))
    error = defect.decode("utf-8", "replace") or f"it could not be judged ({ending})"  # nothing is dropped for that
    return [Verdict(claim.token, one.id, "retry", 60.0, one.retry_count + 1, error) for one in claim.ids]


def sources_of(desk: Any) -> dict[str, OrderedSource]:
    """The ordered queues that an app defines, by name."""
    scheduler = Scheduler(desk, desk.config.ordered_scheduler)
    known = desk.registry.ordered()
    return {queue: OrderedSource(desk, queue, definition, scheduler) for queue, definition in known.items()}
