"""Gets work from the queues of one capsule, in their order: plain lists by one script, others by their source.

A source is asked only when it may have something: it rang, or the time has come that it named. While nobody waits for
its ring (every slot is busy, or there are too many queues) it is asked now and then: else the queues that always have
something would starve it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from henchman.errors import ServerError
from henchman.kernel.clock import awake
from henchman.store.jobs import fetch
from henchman.work.source import Source
from henchman.work.unit import Flight, Unit
from henchman.worker.cancels import Cancels
from henchman.worker.capsule import Capsule
from henchman.worker.flights import Flights
from henchman.worker.host import Host

__all__ = ["Gather"]

SURE = 30.0  # seconds after which a source is asked though nothing rang: a marker may be lost with the one who took it
NOW_AND_THEN = 0.05  # seconds between two looks into a source for which nobody waits


class Gather:
    """One capsule's way to the server. ``asked_as``: the name under which it asked last."""

    def __init__(
        self, host: Host, flights: Flights, cancels: Cancels, sources: Mapping[str, Source], capsule: Capsule
    ) -> None:
        self._host = host
        self._flights = flights
        self._cancels = cancels
        self._capsule = capsule
        self._sources = {name: sources[name] for name in capsule.queues if name in sources}
        self._look_at = dict.fromkeys(self._sources, 0.0)  # time.monotonic() from which a source may have something
        self._asked = dict.fromkeys(self._sources, 0.0)
        self._passed_on: set[str] = set()
        self.asked_as = ""
        self.waits_for: Callable[[str], bool] = lambda queue: False  # whether a push into the queue would ring

    def rang(self, queue: str) -> None:
        """Somebody put something into the queue of a source."""
        self._look_at[queue] = 0.0
        self._passed_on.discard(queue)

    def look_all(self) -> None:
        """Any queue may have something."""
        for queue in self._look_at:
            self.rang(queue)

    def due_in(self, paused: Collection[str]) -> float:
        """Seconds until a source that is not ``paused`` should be asked again; 0 when one should be now."""
        soonest = min([at for name, at in self._look_at.items() if name not in paused], default=None)
        return SURE if soonest is None else max(soonest - time.monotonic(), 0.0)

    def pass_on(self) -> None:
        """There is no room here for what the sources may have: let another process look, once each."""
        now = time.monotonic()
        for queue, at in self._look_at.items():
            if at <= now and queue not in self._passed_on:
                self._passed_on.add(queue)
                try:
                    self._sources[queue].ring()
                except ServerError as error:  # a courtesy: it looks again itself when there is room
                    self._host.events.failed("fetcher", error)

    def fetch(self, want: int, extra: Callable[[str], int], paused: frozenset[str]) -> Iterator[tuple[str, list[Unit]]]:
        """(queue, units) for at most ``want`` units, and up to ``extra(queue)`` more from the queue that fills it."""
        current = self._flights.current  # as one value: another capsule may change the epoch meanwhile
        self.asked_as = current[self._capsule.queues[0]].identity
        order = self._order(paused)
        for names in _stretches(order, self._sources):
            if want <= 0:
                return
            brought = (
                self._claim(names[0], want, extra, current)
                if names[0] in self._sources
                else (self._fetch(names, want, extra, current))
            )
            for name, units in brought:
                want -= len(units)
                yield name, units

    def _order(self, paused: frozenset[str]) -> list[str]:
        """The queues as the capsule drew them; places of sources that may have something, as their scheduler says."""
        order = [name for name in self._capsule.order() if name not in paused]
        if len(self._sources) < 2 or self._capsule.mode == "strict":
            return order
        places = [place for place, name in enumerate(order) if name in self._sources and self._may_have(name)]
        if len(places) > 1:
            names = [order[place] for place in places]
            for place, name in zip(places, self._sources[names[0]].order(names), strict=True):
                order[place] = name
        return order

    def _may_have(self, name: str) -> bool:
        """Whether the source should be asked now."""
        now = time.monotonic()
        return self._look_at[name] <= now or (now >= self._asked[name] + NOW_AND_THEN and not self.waits_for(name))

    def _fetch(
        self, names: Sequence[str], want: int, extra: Callable[[str], int], current: Mapping[str, Flight]
    ) -> list[tuple[str, list[Unit]]]:
        """What the plain queues ``names`` have, by one script."""
        flights, lists = self._flights, current[names[0]]
        started = awake()
        asked = [(name, extra(name)) for name in names]
        call = fetch(self._host.keys, lists.identity, lists.epoch, asked, want, flights.lease_ms)
        fetched = self._host.connections.run(call)
        flights.renewed = max(flights.renewed, started)
        self._cancels.catch_up(fetched.cancels)
        now = time.monotonic()
        # a hair apart, so that what goes back keeps its order
        return [
            (name, [Unit(one, current[name], now + place * 1e-7) for place, one in enumerate(payloads)])
            for name, payloads in zip(names, fetched.payloads, strict=True)
            if payloads
        ]

    def _claim(
        self, name: str, want: int, extra: Callable[[str], int], current: Mapping[str, Flight]
    ) -> list[tuple[str, list[Unit]]]:
        """What the source ``name`` has, if it may have anything."""
        if not self._may_have(name):
            return []
        self._asked[name] = time.monotonic()
        self._look_at[name] = time.monotonic() + SURE  # before asking: what rings from here on counts
        self._passed_on.discard(name)
        started = awake()
        try:
            units, look_in = self._sources[name].fetch(current[name], want, extra(name))
        except BaseException:
            self._look_at[name] = 0.0
            raise
        self._flights.renewed = max(self._flights.renewed, started)
        if look_in is not None:
            self._look_at[name] = min(self._look_at[name], time.monotonic() + look_in)
        return [(name, units)] if units else []


def _stretches(order: Sequence[str], sources: Mapping[str, Source]) -> Iterator[list[str]]:
    """Plain queues that stand beside each other together, each of the others alone; the order stays."""
    plain: list[str] = []
    for name in order:
        if name not in sources:
            plain.append(name)
            continue
        if plain:
            yield plain
            plain = []
        yield [name]
    if plain:
        yield plain
