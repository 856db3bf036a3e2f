"""The acting half of an ordered queue for people: each method now, or awaited with an ``a`` before its name."""

from __future__ import annotations

from henchman.errors import ArgumentError
from henchman.inspector.acts import Acted
from henchman.inspector.ordered_acts import OrderedActs
from henchman.store import ordered_people, queues
from henchman.store.call import AsyncRunner, Runner
from henchman.store.keys import Keys
from henchman.store.procedure import BothWays, Procedure, ask
from henchman.store.queues import raw

__all__ = ["OrderedActions", "raw_id"]


class OrderedActions(BothWays):
    """What can be done to the ids of one queue. Each answers how many ids it was done to, how many had nothing there
    (``gone``), and how many stayed, and why: an id that is in flight is never taken from its holder.

    The forms for all work off a hundred ids a call and can be broken off between two; what was done stays done.
    """

    def __init__(self, runner: Runner, keys: Keys, name: str, arunner: AsyncRunner | None = None) -> None:
        super().__init__(runner, arunner)
        self.name = name
        self._keys = keys
        self._acts = OrderedActs(keys, name)

    def revive(self, *ids: str) -> Acted:
        """Out of the morgue: what lies there waits again, due now, its failures forgotten, with what waits already. Of
        an id in flight it waits until the run has ended."""
        return self._run(self._acts.on("revive", _raw(ids)))

    async def arevive(self, *ids: str) -> Acted:
        """``revive``, awaited."""
        return await self._arun(self._acts.on("revive", _raw(ids)))

    def revive_all(self) -> Acted:
        """``revive`` for every id of the morgue."""
        return self._run(self._acts.on_all("revive", "morgue"))

    async def arevive_all(self) -> Acted:
        """``revive_all``, awaited."""
        return await self._arun(self._acts.on_all("revive", "morgue"))

    def kill(self, *ids: str) -> Acted:
        """Move all that waits under these ids to the morgue."""
        return self._run(self._acts.on("kill", _raw(ids)))

    async def akill(self, *ids: str) -> Acted:
        """``kill``, awaited."""
        return await self._arun(self._acts.on("kill", _raw(ids)))

    def kill_all_failed(self) -> Acted:
        """``kill`` for every id that failed and waits for its next attempt."""
        return self._run(self._acts.on_all("kill", "retry", only_failed=True))

    async def akill_all_failed(self) -> Acted:
        """``kill_all_failed``, awaited."""
        return await self._arun(self._acts.on_all("kill", "retry", only_failed=True))

    def delete(self, *ids: str) -> Acted:
        """Remove all that waits under these ids, for good. Of an id in flight, what arrived meanwhile; the morgue is
        left alone."""
        return self._run(self._acts.on("delete", _raw(ids)))

    async def adelete(self, *ids: str) -> Acted:
        """``delete``, awaited."""
        return await self._arun(self._acts.on("delete", _raw(ids)))

    def delete_all_failed(self) -> Acted:
        """``delete`` for every id that failed and waits for its next attempt; those in flight are left alone."""
        return self._run(self._acts.on_all("delete", "retry", only_failed=True))

    async def adelete_all_failed(self) -> Acted:
        """``delete_all_failed``, awaited."""
        return await self._arun(self._acts.on_all("delete", "retry", only_failed=True))

    def morgue_delete(self, *ids: str) -> Acted:
        """Remove what lies in the morgue under these ids, for good."""
        return self._run(self._acts.on("bury", _raw(ids)))

    async def amorgue_delete(self, *ids: str) -> Acted:
        """``morgue_delete``, awaited."""
        return await self._arun(self._acts.on("bury", _raw(ids)))

    def morgue_delete_all(self) -> Acted:
        """Empty the morgue, for good."""
        return self._run(self._acts.on_all("bury", "morgue"))

    async def amorgue_delete_all(self) -> Acted:
        """``morgue_delete_all``, awaited."""
        return await self._arun(self._acts.on_all("bury", "morgue"))

    def run_now(self, *ids: str) -> Acted:
        """Make these ids due now, in the order in which they were due; what failed stays counted."""
        return self._run(self._acts.on("run", _raw(ids)))

    async def arun_now(self, *ids: str) -> Acted:
        """``run_now``, awaited."""
        return await self._arun(self._acts.on("run", _raw(ids)))

    def run_all_now(self) -> Acted:
        """``run_now`` for every id whose time is still to come, behind those that are due already."""
        return self._run(self._acts.on_all("run", "due"))

    async def arun_all_now(self) -> Acted:
        """``run_all_now``, awaited."""
        return await self._arun(self._acts.on_all("run", "due"))

    def pause(self) -> None:
        """Nothing starts from it any more, on any worker; what runs goes on."""
        self._run(ask(queues.pause(self._keys, self.name)))

    async def apause(self) -> None:
        """``pause``, awaited."""
        await self._arun(ask(queues.pause(self._keys, self.name)))

    def unpause(self) -> None:
        """Work on it goes on."""
        self._run(ask(ordered_people.go_on(self._keys, self.name)))

    async def aunpause(self) -> None:
        """``unpause``, awaited."""
        await self._arun(ask(ordered_people.go_on(self._keys, self.name)))

    def set_max_parallel(self, most: int | None) -> None:
        """At most so many claims at a time over all processes, from the next claim on; 0: no limit, None: as the code
        says. Claims that began while there was no limit are not counted. ArgumentError when it is no whole number."""
        self._run(self._limit(most))

    async def aset_max_parallel(self, most: int | None) -> None:
        """``set_max_parallel``, awaited."""
        await self._arun(self._limit(most))

    def move_to(self, other: str | OrderedActions, *ids: str) -> Acted:
        """Move these ids, or all that wait, to another ordered queue: with payloads, scores, times and what failed.
        Those that are in flight, here or there, stay. ArgumentError when it is this queue."""
        return self._run(self._acts.move(_name_of(other), _raw(ids)))

    async def amove_to(self, other: str | OrderedActions, *ids: str) -> Acted:
        """``move_to``, awaited."""
        return await self._arun(self._acts.move(_name_of(other), _raw(ids)))

    def _limit(self, most: int | None) -> Procedure[None]:
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 0 <= most < 10**9):
            raise ArgumentError(f"{most!r} is no limit: give a whole number, 0 for none, None for what the code says")
        yield ordered_people.set_limit(self._keys, self.name, most)


def raw_id(one: object) -> bytes:
    """An entity id as the server has it; ArgumentError for what is none."""
    if isinstance(one, bool) or not isinstance(one, str | int) or one == "":
        raise ArgumentError(f"{one!r} is no id: it is a text")
    return raw(str(one))


def _name_of(other: str | OrderedActions) -> str:
    name = other.name if isinstance(other, OrderedActions) else other
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"{name!r} is no name of a queue: it is a text")
    return name


def _raw(ids: tuple[str, ...]) -> list[bytes]:
    return [raw_id(one) for one in ids]
