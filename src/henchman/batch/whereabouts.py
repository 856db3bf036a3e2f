"""Where jobs really are: a search through everything that may hold them, for those of whom no script has heard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from henchman.client.runtime import Runtime
from henchman.errors import PayloadError
from henchman.store import batches, fair, locks, queues
from henchman.store.call import run
from henchman.wire.payload import decode

__all__ = ["SEARCHED", "Whereabouts"]

SEARCHED = 1000  # members of a list, or of a batch, that are read in one call


class Whereabouts:
    """A search for the jobs ``wanted`` (by jid). ``in_lists``, ``in_sets``: text that their payloads hold. Afterwards
    ``dead``: those found in the sets (keys) of the dead, jid → why it died; ``missing``: those found nowhere."""

    def __init__(
        self, runtime: Runtime, wanted: Mapping[str, str], *, in_lists: str, in_sets: str, dead: Iterable[str]
    ) -> None:
        self.missing = dict(wanted)
        self.dead: dict[str, str] = {}
        self._keys, self._runner = runtime.keys, runtime.connections
        self._run = self._runner.run
        self._in_lists, self._in_sets = in_lists, in_sets
        # In the order in which jobs move, so that the search meets one that moves meanwhile further on.
        order = (self._queues, self._sets, self._in_flight, self._parked, self._sets, self._queues)
        for place in order:
            for payload in place() if self.missing else ():
                self._found(payload)
        for key in dead if self.missing else ():
            for payload in self._set(key) if self.missing else ():
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
        for name in run(self._runner, fair.all_names(self._keys)):
            yield from self._list(self._keys.queue(name))

    def _in_flight(self) -> Iterator[bytes]:
        holders = self._run(batches.holders(self._keys))
        for key in self._run(batches.in_flight_lists(self._keys, holders)):
            if not self._keys.is_held(key):
                yield from self._list(key)

    def _parked(self) -> Iterator[bytes]:
        """Jobs that wait for a key that another has."""
        wanted = list(self.missing)
        for start in range(0, len(wanted), SEARCHED):
            found = self._run(locks.parked(self._keys, wanted[start : start + SEARCHED]))
            yield from (one.payload for one in found if one is not None)

    def _sets(self) -> Iterator[bytes]:
        for key in (self._keys.schedule, self._keys.retry):
            yield from self._set(key)

    def _list(self, key: str) -> Iterator[bytes]:
        first = 0
        while True:
            found = self._run(queues.list_page(key, first, SEARCHED, text=self._in_lists))
            yield from found.payloads
            first += found.looked
            if not found.looked:
                return

    def _set(self, key: str) -> Iterator[bytes]:
        place, more = 0, True
        while more:
            found = self._run(queues.set_stretch(key, place, SEARCHED, newest_first=True, text=self._in_sets))
            place, more = place + found.step(), found.more
            yield from (member.payload for member in found.holding(self._in_sets))
