"""Pages of ordered queues: one queue, its ids by time, in flight, by failures, its morgue; one id with its payloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from henchman.client.runtime import Runtime
from henchman.console.pages import Query, Screen, View
from henchman.errors import ArgumentError
from henchman.inspector.ordered import Order, OrderedQueue, OrderedQueues, PileName, ids_with
from henchman.inspector.ordered_id import OrderedId, OrderedPayload, OrderedStats
from henchman.inspector.sets import Acted
from henchman.kernel.digests import sha1
from henchman.kernel.figures import span
from henchman.kernel.text import count, visible
from henchman.oncall import deeds
from henchman.oncall.deeds import NOBODY, PAUSE, PAUSE_FIELDS, Deed, Missing, Unfit, Unwanted, paused_by, said_of_one
from henchman.store.call import ask, run
from henchman.store.queues import pauses

__all__ = ["OrderedPages", "why"]

_IN_FLIGHT: Final = 200  # ids in flight that are looked at, the longest held of them first
_PAYLOADS: Final = 20  # of each pile, on the page of an id
_CHOSEN: Final = 50  # of each, where one is chosen
_TABS: Final[Mapping[str, str]] = {"": "next first", "busy": "in flight", "retry": "failed", "morgue": "morgue"}
_ORDERS: Final[Mapping[str, tuple[Order, bool]]] = {
    "": ("time", False),
    "retry": ("retry", True),
    "morgue": ("morgue", True),
}


class IdRows(NamedTuple):
    """Some ids of a queue, how many there are, and whether a search looked at all of them."""

    ids: Sequence[OrderedId]
    total: int
    whole: bool = True


class OrderedPages:
    """The pages and acts of ordered queues."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._queues = OrderedQueues(runtime)
        self.views: Mapping[tuple[str, int], View] = {("ordered", 1): self.queue, ("ordered", 2): self.id}
        self.deeds: Mapping[tuple[str, str], Deed] = {
            ("ordered", "pause"): Deed("Pause…", PAUSE, self._pause, "one", asks="Reason", fields=PAUSE_FIELDS),
            ("ordered", "resume"): Deed("Resume", "", self._resume),
            ("ordered", "run-all"): Deed(
                "Run all now…",
                "All that wait for their time, also for their next attempt, are due now.",
                self._all("run_all_now", "due now"),
                "one",
            ),
            ("ordered", "revive-all"): Deed(
                "Revive all…",
                "All that lies in the morgue waits again, due now, its failures forgotten.",
                self._all("revive_all", "revived"),
                "one",
            ),
            ("ordered", "run"): Deed("Run now", "", self._one("run_now", "is due now")),
            ("ordered", "revive"): Deed("Revive", "", self._one("revive", "waits again, due now")),
            ("ordered", "kill"): Deed("To the morgue", "", self._one("kill", "lies in the morgue")),
            ("ordered", "delete"): Deed(
                "Delete…", "All that waits under it is gone for good.", self._one("delete", "is deleted"), "list"
            ),
            ("ordered", "purge"): Deed(
                "Delete from the morgue…",
                "What lies in the morgue under it is gone for good.",
                self._one("morgue_delete", "is deleted from the morgue"),
                "list",
            ),
            ("ordered", "drop"): Deed("Delete one payload…", "", None, "one", begin=self._drop, form=self._drop_form),
        }

    def queue(self, name: str, query: Query) -> Screen:
        """One queue: its figures, and some of its ids."""
        query.unless_said(25)
        queue, stats = self._queue(name)
        by = query.word("by", *_TABS)
        rows = self._found(name, by, query.search) if query.search else self._page(queue, stats, by, query)
        facts: dict[str, Any] = {"name": name, "stats": stats, "by": by, "tabs": _TABS, "found": rows}
        paused = run(self._runtime.connections, ask(pauses(self._runtime.keys))) if stats.paused else {}
        facts["pause"] = paused.get(name)
        return Screen("ordered_queue.html", facts | ({} if query.search else {"total": rows.total}))

    def _queue(self, name: str) -> tuple[OrderedQueue, OrderedStats]:
        try:
            queue = self._queues[name]
        except ArgumentError as error:
            raise Missing(str(error)) from None
        return queue, queue.stats()

    def _page(self, queue: OrderedQueue, stats: OrderedStats, by: str, query: Query) -> IdRows:
        if by == "busy":
            some = sorted(islice(queue.busy(), _IN_FLIGHT), key=lambda one: one.holder.since if one.holder else 0.0)
            return IdRows(some[query.first : query.first + query.rows], min(stats.busy, _IN_FLIGHT))
        order, reverse = _ORDERS[by]
        totals = {"time": stats.length + stats.busy, "retry": stats.retries, "morgue": stats.morgue_length}
        ids = queue.page(query.first, query.rows, by=order, reverse=reverse)
        return IdRows(ids, max(totals[order], query.first + len(ids)))

    def _found(self, name: str, by: str, prefix: str) -> IdRows:
        part: Literal["due", "morgue"] = "morgue" if by == "morgue" else "due"
        found, whole = run(self._runtime.connections, ids_with(self._runtime.keys, name, part, prefix, 50))
        return IdRows(found, len(found), whole)

    def id(self, name: str, id: str, query: Query) -> Screen:
        """One id: who holds it, what waits, what came meanwhile, what died."""
        queue, stats = self._queue(name)
        try:
            one = queue.find(id, _PAYLOADS)
        except ArgumentError as error:
            raise Missing(str(error)) from None
        facts = {"name": name, "stats": stats, "one": one, "why": why(one, stats)}
        return Screen("ordered_id.html", facts, 404 if one.state == "absent" else 200)

    # ---- acts

    def _pause(self, name: str, *, order: deeds.Order = NOBODY) -> str:
        return paused_by(self._queues[name], order)

    def _resume(self, name: str) -> str:
        self._queues[name].unpause()
        return f"{visible(name)} goes on"

    def _all(self, method: str, words: str) -> Callable[[str], str]:
        def do(name: str) -> str:
            acted: Acted = getattr(self._queues[name], method)()
            stayed = f"; {count(acted.stayed, 'id')} stayed: {'; '.join(acted.reasons[:3])}" if acted.stayed else ""
            return f"{count(acted.done, 'id')} {words}{stayed}"

        return do

    def _one(self, method: str, words: str) -> Callable[[str, str], str]:
        def do(name: str, id: str) -> str:
            return said_of_one(getattr(self._queues[name], method)(id), id, words, f"nothing of {id} is there any more")

        return do

    def _drop_form(self, name: str, id: str, form: Mapping[str, str], problem: str) -> Screen:
        """The payloads of an id, of which one is chosen."""
        one = self._queues[name].find(id, _CHOSEN)
        if not (chosen := _droppable(one)):
            raise Unwanted(f"{visible(id)} has no payload that nobody has in hand")
        return Screen("ordered_drop.html", {"name": name, "one": one, "chosen": chosen, "problem": problem})

    def _drop(self, order: deeds.Order, name: str, id: str) -> tuple[str, str]:
        queue, wanted = self._queues[name], order.form.get("payload", "")
        chosen = _droppable(queue.find(id, _CHOSEN))
        if wanted not in chosen:
            raise Unfit("choose a payload; one that was here before is gone" if wanted else "choose a payload")
        of, payload = chosen[wanted]
        acted = queue.drop_payload(id, payload, of=of)
        said = f"is without the payload of score {payload.score:.15g}"
        return "", said_of_one(acted, id, said, "that payload is not there any more")


def _droppable(one: OrderedId) -> Mapping[str, tuple[PileName, OrderedPayload]]:
    """The first payloads of an id that no run has in hand, by what a form calls each."""
    piles: dict[PileName, Sequence[OrderedPayload]] = {
        "payloads": [] if one.holder else one.payloads,
        "arrivals": one.arrivals,
        "dead": one.dead,
    }
    return {
        f"{of} {payload.score!r} {sha1(payload.payload).hexdigest()}": (of, payload)
        for of, some in piles.items()
        for payload in some
    }


def why(one: OrderedId, stats: OrderedStats) -> str:
    """Why an id does not run, or where it does, as a sentence."""
    if one.holder is not None:
        who = f"{one.holder.identity} has had it for {span(max(one.at - one.holder.since, 0.0))}"
        if one.holder.alive:
            return f"It runs: {who}, with {count(one.holder.delivered, 'payload')}."
        return f"{who}, and is gone: the next process that looks takes its ids back, within seconds."
    if one.state == "dead":
        return "It gave up. Nothing of it runs until it is revived, or pushed again."
    if one.state == "absent":
        return "Nothing is known of it: nothing waits, runs or died under this id."
    if stats.paused:
        return "Its queue is paused."
    if one.put_off:
        return "Its group has as many in flight as it may: it goes when one of them ends."
    if one.due is not None and one.due > one.at:
        failed = f"It failed {count(one.retry_count + 1, 'time')}; the" if one.retry_count >= 0 else "The"
        return f"{failed} next attempt is in {span(one.due - one.at)}."
    if stats.max_parallel is not None and stats.busy >= stats.max_parallel:
        return f"It is due, and as many ids are in flight as the queue allows ({stats.max_parallel:,})."
    if not stats.busy:
        return "It is due. Nothing of its queue runs: does a worker serve it?"
    return f"It is due: {count(stats.busy, 'id')} in flight before it."
