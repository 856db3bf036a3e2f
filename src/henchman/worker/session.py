"""Under which name this process holds work, and what it holds: identity, epoch, in-flight lists, units.

The lists carry an epoch: when it is unknown what a fetch brought, the epoch is raised and the old lists are drained of
everything that is not held (PROTOCOL, section 3.2). When somebody declared us dead, we go on under a new identity.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from henchman.client.runtime import Runtime
from henchman.kernel.clock import awake
from henchman.store import leases
from henchman.store.queues import list_page
from henchman.work.effects import EndingFacts, of_payload
from henchman.work.locks import is_exclusive
from henchman.work.source import Source
from henchman.work.unit import FetchOrder, InFlightList, Unit, settle_units
from henchman.worker.rescue import AT_ONCE, give_back_list

__all__ = ["LeaseSession"]


SETTLED = 6.0  # seconds until no wait of an earlier epoch can be open: they end on the server after 5
FORGOTTEN = 3600.0


class LeaseSession:
    """What one process holds. ``announce(identity)`` tells the supervisor the name before anything is held under it.

    ``sources``: by name, those of its queues that are no plain lists. ``ring()`` wakes every fetcher of the process.
    """

    def __init__(
        self,
        runtime: Runtime,
        queues: Sequence[str],
        announce: Callable[[str], None],
        sources: Mapping[str, Source] | None = None,
    ) -> None:
        self._runtime = runtime
        self._queues = list(queues)
        self._sources = sources or {}
        self._announce = announce
        self.lease_ms = int(runtime.config.lease * 1000)
        self.lease = self.lease_ms / 1000
        self.identity = ""
        self._lapsed = False  # the lease had run out, and that was not announced yet
        self.epoch = 0
        self.valid_until = 0.0  # ``kernel.clock.awake()`` at which the lease runs out, as far as we know
        self._bells: list[threading.Event] = []
        self.doubts = 0  # how often it was not known what a wait or fetch brought
        self.settled_doubts = 0  # how many of them we have settled by fresh lists
        self.current: dict[str, InFlightList] = {}
        self.held: set[Unit] = set()
        self.orders: dict[str, FetchOrder] = {}  # of the current lists, by key
        self._old: dict[InFlightList, float] = {}  # lists of earlier epochs, and when each was last in use
        self._change = threading.Lock()

    def bell(self) -> threading.Event:
        """A new event that ``ring`` sets."""
        self._bells.append(bell := threading.Event())
        return bell

    def ring(self) -> None:
        """Wake every fetcher: what may be fetched has changed."""
        for bell in self._bells:
            bell.set()

    def doubt(self) -> None:
        """It is not known what a wait or fetch brought, or what a giving back moved: a fetcher takes fresh lists."""
        self.doubts += 1
        self.ring()

    def oldest(self, flight: str, ended: Container[Unit]) -> list[Unit]:
        """The oldest units of an in-flight list, as far as all of them are in ``ended``; none while it is not known for
        certain in which order they lie there."""
        order = self.orders.get(flight)
        return order.oldest(ended) if order is not None and self.doubts == self.settled_doubts else []

    def forget_orders(self) -> None:
        """From here on units leave their lists in other ways than one by one: they are in no known order any more."""
        self.orders = {}

    def join(self, lost: str = "") -> None:
        """Take a name, a lease and lists of their own; nothing happens when ``lost`` is not our name any more."""
        with self._change:
            if self.identity != lost:
                return
            identity = leases.new_identity()
            self._announce(identity)
            self._enter(identity, 1)
            self._old = {}

    def settle_doubts(self) -> bool:
        """Take fresh lists if there are doubts: a new epoch. Whether it did.

        What the old lists hold and we do not goes back to its queue at the next sweep.
        """
        if self.doubts == self.settled_doubts:
            return False
        with self._lapse_announced(), self._change:
            doubts = self.doubts
            if doubts != self.settled_doubts:  # else another fetcher took them meanwhile
                old = dict.fromkeys(self.current.values(), time.monotonic())
                self._prolong()  # only to know: taking the new lists takes the lease too
                self._enter(self.identity, self.epoch + 1)
                self._old |= old
                self.settled_doubts = doubts
        return True

    def _enter(self, identity: str, epoch: int) -> None:
        keys, sources = self._runtime.keys, self._sources
        flights = {
            name: sources[name].in_flight_list(identity, epoch)
            if name in sources
            else InFlightList(name, keys.queue(name), keys.in_flight(identity, epoch, name), identity, epoch)
            for name in self._queues
        }
        started = awake()
        lists = [flight.key for flight in flights.values()]
        self._runtime.connections.run(leases.join(keys, identity, lists, self.lease_ms))
        self.orders = {one.key: FetchOrder(self.held) for one in flights.values() if one.queue not in sources}
        self.identity, self.epoch, self.current = identity, epoch, flights
        # last: what was fetched under another name must not start on this one's lease
        lapsed, self.valid_until = self.valid_for() <= 0, started + self.lease
        if lapsed:
            self.ring()

    def renew(self) -> None:
        """Prolong the lease, and tell (``lease_lapsed``) when it had run out in between. Raises LeaseLost.

        A server that lost its data does not know our lists either: they go on the books again, else nobody could ever
        rescue what they hold.
        """
        runner, keys = self._runtime.connections, self._runtime.keys
        with self._lapse_announced(), self._change:
            started = awake()
            renewed, known = runner.run(leases.renew_known(keys, self.identity, self.lease_ms))
            self._lapsed |= renewed == 2
            if not known:
                runner.run(leases.join(keys, self.identity, self.lists(), self.lease_ms))
            lapsed, self.valid_until = self.valid_for() <= 0, max(self.valid_until, started + self.lease)
        if lapsed:
            self.ring()

    def _prolong(self) -> None:
        if self._runtime.connections.run(leases.renew(self._runtime.keys, self.identity, self.lease_ms)) == 2:
            self._lapsed = True

    @contextlib.contextmanager
    def _lapse_announced(self) -> Iterator[None]:
        """Tell afterwards, without our lock, and also when the server was lost right after it gave the lease again."""
        try:
            yield
        finally:
            if self._lapsed:
                self._lapsed = False
                self._runtime.events.emit("lease_lapsed", identity=self.identity)

    def valid_for(self) -> float:
        """Seconds until the lease runs out, as far as we know; negative when it may have."""
        return self.valid_until - awake()

    def strays(self) -> set[int]:
        """Payloads in the current lists that we do not hold, by hash; those on their way to us right now are among
        them."""
        found: set[int] = set()
        for flight, size in self._sizes(list(self.current.values())).items():
            if flight.queue in self._sources:
                found.update(map(hash, self._sources[flight.queue].strays(flight, list(self.held)) if size else ()))
                continue
            held = {unit.payload for unit in list(self.held) if unit.flight is flight}
            looked = size if size <= len(held) else 0
            while looked < size:
                page = self._runtime.connections.run(list_page(flight.key, looked, AT_ONCE))
                if not page.looked:
                    break
                looked += page.looked
                found.update(map(hash, page.payloads))
        return found - {hash(unit.payload) for unit in list(self.held)}

    def _sizes(self, flights: Sequence[InFlightList]) -> dict[InFlightList, int]:
        """How much each holds, asked for in one command however many there are."""
        if not flights:
            return {}
        kinds = {flight.key: "hash" if flight.queue in self._sources else "list" for flight in flights}
        sizes: list[int] = self._runtime.connections.run(leases.sizes(kinds))
        return dict(zip(flights, sizes, strict=True))

    def sweep(self) -> int:
        """Send what the lists of earlier epochs hold, and we do not, back to its queue; how many that were.

        A list is left alone while a wait on it may still be open, and forgotten when it was empty for an hour.
        """
        now, sent = time.monotonic(), 0
        old = {flight: used for flight, used in list(self._old.items()) if now - used >= SETTLED}
        for flight, size in self._sizes(list(old)).items():
            if size:
                sent += self._sweep_one(flight)
            elif now - old[flight] > FORGOTTEN:
                self._forget(flight)
        return sent

    def _sweep_one(self, flight: InFlightList) -> int:
        sent = 0
        if flight.queue in self._sources:
            sent = self._sources[flight.queue].free(flight, self.held)
        else:
            ours = Counter(unit.payload for unit in list(self.held) if unit.flight == flight)
            stays = 0  # entries from the left end on that are ours, or could not be sent
            while True:
                page = self._runtime.connections.run(list_page(flight.key, stays, AT_ONCE))
                stray = list((Counter(page.payloads) - ours).elements())
                ours -= Counter(page.payloads)
                released = self._release(flight, stray) if stray else 0
                sent, stays = sent + released, stays + page.looked - released
                if stays + released >= page.size or not page.looked:
                    break
        self._old[flight] = time.monotonic() - SETTLED
        return sent

    def _release(self, flight: InFlightList, stray: list[bytes]) -> int:
        """Send these payloads of an old list back to their queue; how many that were."""
        now, keys = time.monotonic(), self._runtime.keys
        told = EndingFacts(flight.identity, detail={"reason": "it was not known whether it had been given back"})
        rows = [
            (Unit(one, flight, now), "released", b"", 0.0, of_payload(keys, one, "released", told)) for one in stray
        ]
        return sum(status == 1 for status in settle_units(self._runtime, flight.identity, rows))

    def adopted(self, queue: str) -> InFlightList:
        """The list for units of ``queue`` that others held: of an epoch before the first. What we do not hold of it
        goes back like that of any earlier one."""
        keys = self._runtime.keys
        flight = InFlightList(queue, keys.queue(queue), keys.in_flight(self.identity, 0, queue), self.identity, 0)
        if flight not in self._old:
            self._runtime.connections.run(leases.join(keys, self.identity, [flight.key], self.lease_ms))
            self._old[flight] = time.monotonic()
        return flight

    def _forget(self, flight: InFlightList) -> None:
        self._runtime.connections.run(leases.unregister(self._runtime.keys, flight.identity, flight.key))
        self._old.pop(flight, None)

    def lists(self) -> list[str]:
        """Every in-flight list of this identity."""
        return [flight.key for flight in (*self.current.values(), *self._old)]

    def leave(self) -> bool:
        """Give back what the lists still hold and go off the books; False when something was still arriving."""
        if not self.identity:
            return True
        self.give_back_all()
        return bool(self._runtime.connections.run(leases.leave(self._runtime.keys, self.identity, self.lists())))

    def entomb(self) -> None:
        """Leave though something may still arrive: our name is buried, so that whatever does is swept at once."""
        if self.identity:
            self._runtime.connections.run(leases.entomb(self._runtime.keys, self.identity, force=True))
            self.give_back_all()

    def give_back_all(self) -> int:
        """Move everything in flight back to the right end of its queue; how many that were.

        What another source gave, or has a key, stays held while its handler runs: nobody else may have it beside that.
        """
        moved = 0
        for one in (*self.current.values(), *self._old):
            if one.queue in self._sources:
                moved += self._sources[one.queue].free(one, self.held)
            elif any(unit.flight == one and is_exclusive(unit) for unit in list(self.held)):
                moved += self._sweep_one(one)
            else:
                moved += give_back_list(
                    self._runtime, one.key, one.queue, "interrupted", "the worker stopped", cause="stop"
                )
        return moved
