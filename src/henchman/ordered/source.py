"""An ordered queue as a worker sees it: claims come in, each id of them is settled on its own.

Ids are held by the process, not by a lease of their own: who entombs the process frees them (PROTOCOL, section 5).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, ConfigError, LeaseLost, PoisonPill, ServerAway
from henchman.ordered.claim import DEATHS, Claim, OrderedRetryPolicy, record_endings, shown
from henchman.ordered.definition import OrderedJob
from henchman.store import ordered, ordered_people
from henchman.store.call import Arg, Call, command
from henchman.store.ordered import Verdict
from henchman.wire.times import day
from henchman.work.outcome import DONE, Outcome
from henchman.work.source import Brought, Ended, Reading, Teller
from henchman.work.unit import InFlightList, Unit

__all__ = ["OrderedSource", "Scheduler", "by_node", "placement", "sources_of"]

T = TypeVar("T")

FORGOTTEN = 3600.0  # seconds after which no answer can come any more
MOST_CLAIMS = 450  # in one call of the script: the server works on no more while claims wait here to be run


class OrderedSource:
    """One ordered queue of an app, run by ``definition``. Fits ``work.source.Source``."""

    def __init__(self, runtime: Runtime, queue: str, definition: OrderedJob[Any], scheduler: Scheduler) -> None:
        self.queue = queue
        self.order = scheduler.order
        self._runtime = runtime
        self._definition = definition
        self._options = definition.ordered
        self._retries = OrderedRetryPolicy(definition.ordered)
        self._name, self._log_level = definition.name, definition.options.log_level
        self._suffix = ordered.jid_suffix(queue)
        self._tracked = definition.options.track  # or because the server said so
        self._given_up: dict[bytes, float] = {}  # token of a claim that was unknown here → when we freed it

    def __repr__(self) -> str:
        return f"<ordered queue {self.queue!r}>"

    @property
    def _lease_ms(self) -> int:
        return int(self._runtime.config.lease * 1000)

    def _run(self, make: Callable[[], Call[T]]) -> T:
        """Run a call; where the server says that the queue is tracked, run it again as a tracked one."""
        try:
            return self._runtime.connections.run(make())
        except ordered.QueueTracked:
            self._tracked = True
            return self._runtime.connections.run(make())

    def declare(self) -> None:
        """Write the limits of the definition where claims look them up; a ceiling set by hand goes before them."""
        options = self._options
        limit = 1 if options.partitions and options.max_parallel is None else options.max_parallel or 0
        call = ordered.declare(
            self._runtime.keys,
            self.queue,
            limit=limit,
            group_limit=options.max_per_group or 0,
            separator=options.group_separator if options.max_per_group else "",
        )
        self._runtime.connections.run(call)

    def in_flight_list(self, identity: str, epoch: int) -> InFlightList:
        """The hash of what is held; its ``queue_key`` is the marker that wakes."""
        keys = self._runtime.keys
        return InFlightList(self.queue, keys.wake(self.queue), keys.held(identity, epoch, self.queue), identity, epoch)

    def wait(self, flight: InFlightList, seconds: float) -> tuple[Arg, ...]:
        """Wait for the marker: it says that a process should look, the claim alone says what there is."""
        return ("BZPOPMIN", flight.queue_key, seconds)

    def ring(self) -> None:
        """Set the marker."""
        self._runtime.connections.run(ordered.ring(self._runtime.keys, self.queue))

    def fetch(self, flight: InFlightList, want: int, extra: int) -> Brought:
        """Claim for ``want`` slots. Raises LeaseLost, LeaseLapsed."""
        want = min(want, MOST_CLAIMS)
        options = self._options
        claimed = self._run(
            lambda: ordered.claim(
                self._runtime.keys,
                flight.identity,
                flight.epoch,
                self.queue,
                want,
                min(extra, MOST_CLAIMS - want),
                options.claim_size,
                options.payload_cap,
                self._lease_ms,
                tracked=self._tracked,
            )
        )
        now = time.monotonic()
        units = []
        for place, (token, ids) in enumerate(claimed.claims):
            claim = Claim(token, ids)
            unit = Unit(b"", flight, now + place * 1e-7, self, claim)
            unit.suspect = claim.suspect
            units.append(unit)
        return Brought(units, claimed.look_in)

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
            if not one.payloads:
                continue  # its end takes the id off the books
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
            return self.ended(unit, job, None, None, teller)
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

    def ended(
        self, unit: Unit, job: dict[str, Any], result: Any, problem: BaseException | None, teller: Teller
    ) -> Outcome:
        """What became of each id; no answer is success for all, see ``Claim.errors``."""
        claim = unit.claim
        if problem is None and not claim.refused and result is None:
            return DONE
        return self._retries.ended(claim, job, claim.errors(result, problem), teller)

    def abandon(self, unit: Unit) -> None:
        """Count a death: the process is about to be ended, and frees the claim only by that. A zombie's is not counted:
        its ids are held by another process, or over.
        """
        token = str(unit.claim.token).encode()
        noted = self._runtime.connections.run(ordered.held(unit.flight.key))
        ids = [one.id for one in unit.claim.ids if noted.get(one.id) == token]
        if ids:
            self._runtime.connections.run(ordered.charge(self._runtime.keys, self.queue, ids))

    def settle(self, identity: str, rows: Sequence[Ended]) -> list[int | bytes]:
        """End claims; 0 where an id of one was not held under its token any more. Raises LeaseLost."""
        statuses: dict[Unit, int | bytes] = {}
        by_epoch: dict[int, list[tuple[Unit, Verdict]]] = {}
        for unit, ending, stored, delay, _ in rows:
            statuses[unit] = 1
            ended = by_epoch.setdefault(unit.flight.epoch, [])
            for one in unit.claim.verdicts or unit.claim.by_ending(ending, delay, stored):
                ended.append((unit, one))
        sent = False
        for epoch, ended in by_epoch.items():
            for start in range(0, len(ended), ordered.MOST_IDS):
                left = ended[start : start + ordered.MOST_IDS]
                while left:
                    try:
                        answers = self._settle(identity, epoch, left, rows)
                    except LeaseLost:
                        if not sent:
                            raise
                        answers = [0] * len(left)  # what was settled before the burial is settled
                    except ServerAway as error:
                        if sent and error.executed is False:  # others of these claims were settled
                            raise ServerAway(str(error), executed=None) from error
                        raise
                    sent = True
                    for (unit, _), status in zip(left, answers, strict=True):
                        if status not in (1, ordered.PART) and isinstance(statuses[unit], int):
                            statuses[unit] = status
                    left = [one for one, status in zip(left, answers, strict=True) if status == ordered.PART]
        return list(statuses.values())

    def _settle(
        self, identity: str, epoch: int, ended: Sequence[tuple[Unit, Verdict]], rows: Sequence[Ended]
    ) -> list[int | bytes]:
        def call() -> Call[list[int | bytes]]:
            tracked = self._tracked
            return ordered.settle(
                self._runtime.keys,
                identity,
                epoch,
                self.queue,
                record_endings(ended, {row[0]: row[1] for row in rows}) if tracked else [one for _, one in ended],
                collapse=self._options.collapse,
                lease_ms=self._lease_ms,
                day=day(self._runtime.clock.now()),
                tracked=tracked,
            )

        return self._run(call)

    def strays(self, flight: InFlightList, held: Collection[Unit]) -> set[bytes]:
        """``token:id`` of what the server notes as ours and this process does not know."""
        ours = _tokens(flight, held)
        if self._runtime.connections.run(command("HLEN", flight.key)) <= len(ours):
            return set()
        noted = self._runtime.connections.run(ordered.held(flight.key))
        return {token + b":" + name for name, token in noted.items() if ours.get(name) != token}

    def free(self, flight: InFlightList, held: Collection[Unit]) -> int:
        """Free claims whose answer never came; what runs here stays ours. ``held`` is the live collection, no copy."""
        runtime, now = self._runtime, time.monotonic()
        for token in [token for token, at in self._given_up.items() if now - at > FORGOTTEN]:
            del self._given_up[token]
        noted = runtime.connections.run(ordered.held(flight.key))
        # Before we look at what is ours: a claim whose answer comes now is then given up by ``read``.
        self._given_up |= dict.fromkeys(noted.values(), now)
        ours = _tokens(flight, held)
        unknown = {name: token for name, token in noted.items() if ours.get(name) != token}
        for token in set(noted.values()) - set(unknown.values()):
            del self._given_up[token]
        if not unknown:
            return 0
        return ordered.free_all(
            runtime.connections, runtime.keys, flight.identity, flight.key, self.queue, list(unknown.items())
        )


def _tokens(flight: InFlightList, held: Collection[Unit]) -> dict[bytes, bytes]:
    """What this process holds of ``flight``: id → token."""
    units = [unit for unit in list(held) if unit.flight == flight]
    return {one.id: str(unit.claim.token).encode() for unit in units for one in unit.claim.ids}


def sources_of(runtime: Runtime) -> dict[str, OrderedSource]:
    """The ordered queues that an app defines, by name."""
    scheduler = Scheduler(runtime, runtime.config.ordered_scheduler)
    known: Mapping[str, Any] = runtime.registry.ordered()
    return {queue: OrderedSource(runtime, queue, definition, scheduler) for queue, definition in known.items()}


# --- which queue is looked into first, and which ones a process serves: Lowkiq's schedulers and splitters -------------

#: gets the names of every ordered queue that the process could serve; gives those that it does
Splitter = Callable[[Sequence[str]], Sequence[str]]


class Scheduler:
    """One a process. ``kind``: "lag" (the queue whose head has waited longest goes first), "seq" (round robin),
    "weighted" (as the capsule drew them)."""

    def __init__(self, runtime: Runtime, kind: str) -> None:
        self._runtime = runtime
        self._kind = kind
        self._turn = 0
        self._lock = threading.Lock()

    def order(self, names: Sequence[str]) -> list[str]:
        """``names`` in the order to look into them."""
        if self._kind == "weighted" or len(names) < 2:
            return list(names)
        if self._kind == "seq":
            with self._lock:
                self._turn += 1
                first = self._turn % len(names)
            in_turn = sorted(names)
            return in_turn[first:] + in_turn[:first]
        heads = self._runtime.connections.run(ordered_people.heads(self._runtime.keys, names))
        return sorted(names, key=lambda name: heads[name])


def by_node(nodes: int, node: int) -> Splitter:
    """Queue number i belongs to node i modulo ``nodes``, counted from 0; ConfigError when there is no such node."""
    if not 0 <= node < nodes:
        raise ConfigError(f"ordered_node = {node}: with ordered_nodes = {nodes} the nodes are 0 to {nodes - 1}")
    return lambda queues: [name for number, name in enumerate(sorted(queues)) if number % nodes == node]


def placement(runtime: Runtime, queues: Sequence[str]) -> frozenset[str]:
    """Which of the ordered ``queues`` this process serves: as ``app.ordered_splitter`` says, else by node, else all.

    ConfigError when the splitter names others, or there is no such node.
    """
    config, splitter = runtime.config, runtime.ordered_splitter
    if splitter is None and (config.ordered_nodes > 1 or config.ordered_node):
        splitter = by_node(config.ordered_nodes, config.ordered_node)
    chosen = frozenset(queues if splitter is None else runtime.hooks.ask(splitter, queues))
    if not chosen <= set(queues):
        raise ConfigError(f"ordered_splitter answered {sorted(chosen - set(queues))}; it is to choose from {queues}")
    return chosen
