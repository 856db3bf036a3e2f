"""Acts on all that a search, a queue or an error holds: planned here, begun as operations, which have a page each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from henchman.client.runtime import Runtime
from henchman.console.pages import Query, Screen, View
from henchman.errors import ArgumentError, BatchError
from henchman.inspector import operations as asked
from henchman.inspector.due import ran_lately
from henchman.inspector.operations import COUNTED, Act, Place, Wish, sources
from henchman.inspector.operator import Operator
from henchman.kernel.figures import span
from henchman.kernel.text import count, shorten, visible
from henchman.oncall.batch_operations import CARRIERS, BatchAct, begin_on_batch, concerned
from henchman.oncall.deeds import Deed, Missing, Order, Question, Unwanted
from henchman.store.call import Procedure, ask, run
from henchman.store.operations import UNDO_FOR
from henchman.store.queues import levels

__all__ = ["BulkActs", "moment_of"]

_SAMPLES: Final = 3
_RATES: Final = (0, 10, 100, 1000)  # jobs a second that a form offers
_DELAYS: Final = (600, 3600, 6 * 3600, 86400)  # seconds that a form offers
_OVER: Final = (600, 300, 1800, 3600, 4 * 3600)  # seconds over which a form offers to spread
_FIELDS: Final[Mapping[Act, dict[str, tuple[int, ...]]]] = {"reschedule": {"delay": _DELAYS}, "spread": {"over": _OVER}}
_WORDS: Final[Mapping[Place, tuple[str, str]]] = {
    "retries": ("retry", "retries"),
    "scheduled": ("scheduled job", ""),
    "dead": ("dead job", ""),
    "queues": ("job", ""),
    "errors": ("job", ""),
    "batches": ("job", ""),
}
_VERBS: Final[Mapping[Act, tuple[str, str]]] = {
    "retry": ("Run all now…", "to be put into their queues"),
    "kill": ("Kill all…", "to be killed"),
    "delete": ("Delete all…", "to be deleted"),
    "reschedule": ("Reschedule all…", "to run later"),
    "spread": ("Spread all…", "to be spread over the minutes that you choose"),
    "cancel": ("Cancel all…", "to be cancelled"),
    "move": ("Move all…", "to move to another queue, before what waits there, in their order"),
}
_OF: Final[Mapping[Place, tuple[Act, ...]]] = {
    "retries": ("retry", "kill", "delete", "reschedule", "spread"),
    "scheduled": ("retry", "delete", "reschedule", "spread"),
    "dead": ("retry", "delete"),
}
_LARGE: Final = 1000  # jobs, from which on their number is to be written before
_UNDO: Final = f"For {UNDO_FOR / 60:.0f} minutes after its end it can be undone, as far as"
_OF_BATCH: Final[Mapping[BatchAct, str]] = {
    "retry": "of it gave up. They are pushed once more, as if for the first time; what failed by its own word "
    "(Failure) is not. That cannot be undone: cancel the batch to stop it.",
    "cancel": "of it have not ended. No job of it starts any more; those that run are told. That cannot be undone.",
}
_BACK: Final[Mapping[Act, str]] = {
    "retry": f"{_UNDO} a job has not begun to run.",
    "kill": f"{_UNDO} a job is still dead.",
    "delete": f"{_UNDO} no batch or key hangs on a job.",
    "reschedule": f"{_UNDO} a job still waits.",
    "spread": f"None runs before its time. {_UNDO} a job still waits.",
    "cancel": "That cannot be undone.",
    "move": f"{_UNDO} a job is among the next 20,000 there.",
}


def moment_of(text: str) -> float:
    """The moment of the page on which an act was wished; Unwanted where that is none."""
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise Unwanted("the address says no moment: begin at the page where the act is offered")
    return float(text) + 1  # it is in whole seconds


class BulkActs:
    """The acts that begin operations, ``page/<text>/<moment>/do/<verb>-found`` and others, the pages of operations, and
    what is done to one. What came after the moment is left alone. ``carries_out``: also here, in a thread."""

    def __init__(self, runtime: Runtime, *, carries_out: bool) -> None:
        self._runtime = runtime
        self._operator = Operator(runtime, CARRIERS) if carries_out else None

    @property
    def views(self) -> Mapping[tuple[str, int], View]:
        """The pages of operations."""
        return {("operations", 0): self.operations, ("operations", 1): self.operation}

    @property
    def deeds(self) -> Mapping[tuple[str, str], Deed]:
        """The acts, by page and verb."""
        found = {(place, f"{act}-found"): self._deed(act, place) for place, acts in _OF.items() for act in acts}
        return found | {
            ("queues", "clear"): self._deed("delete", "queues", "Clear…"),
            ("queues", "delete-found"): self._deed("delete", "queues"),
            ("queues", "move"): self._deed("move", "queues", "Move…"),
            ("queues", "move-found"): self._deed("move", "queues"),
            ("retries", "spread"): self._spread("retries"),
            ("scheduled", "spread"): self._spread("scheduled"),
            ("errors", "retry"): self._deed("retry", "errors", "Retry these…"),
            ("errors", "delete"): self._deed("delete", "errors", "Delete these…"),
            ("batches", "retry"): self._on_batch("retry", "Retry failed…"),
            ("batches", "cancel"): self._on_batch("cancel", "Cancel…"),
            ("operations", "abort"): Deed("Abort", "", self._abort, "one"),
            ("operations", "undo"): Deed("Undo", "", self._undo, "one"),
            ("operations", "continue"): Deed("Continue", "", self._continue, "one"),
        }

    def wake(self, *, now: bool = False) -> None:
        """Look whether an operation is to be carried out, where this console does that."""
        if self._operator is not None:
            self._operator.wake(now=now)

    # ---- pages

    def operations(self, query: Query) -> Screen:
        """Bulk work, the newest first."""
        page = run(self._runtime.connections, asked.operations(self._runtime.keys, query.first, query.rows))
        return Screen("operations.html", {"operations": page.operations, "total": page.total})

    def operation(self, number: str, query: Query) -> Screen:
        """One operation, as it stands now."""
        one = run(self._runtime.connections, asked.operation(self._runtime.keys, number))
        if one is None:
            raise Missing(f"no operation {visible(number)[:40]} is known: the newest 200 are kept, for 30 days")
        return Screen("operation.html", {"one": one})

    # ---- acts

    def _deed(self, act: Act, place: Place, title: str = "") -> Deed:
        named = place in ("queues", "errors")

        def wish(name: str, more: str = "", order: Order | None = None) -> Wish:
            """What is asked for: of a set its text and the moment, of an error its id and the moment, of a queue its
            name, and a text where one is searched for."""
            moment = (order.form.get("moment", "") if order else "") or str(int(time.time()))
            frozen = moment_of(moment if place == "queues" else more)
            text = more if place == "queues" else "" if named else name
            if act == "spread":
                try:
                    return asked.to_spread(self._runtime, place, text, frozen, _chosen(order, "over", _OVER))
                except ArgumentError as error:
                    raise Unwanted(visible(str(error))) from None
            to = time.time() + _chosen(order, "delay", _DELAYS) if act == "reschedule" else None
            into = order.form.get("reason", "").strip() if order and act == "move" else ""
            return Wish(act, place, text, frozen, name if named else "", to, _chosen(order, "rate", _RATES), into=into)

        def begin(order: Order, name: str, more: str = "") -> tuple[str, str]:
            what = wish(name, more, order)
            try:
                number = asked.begin(self._runtime, order.author, what)
            except ArgumentError as error:
                raise Unwanted(visible(str(error))) from None
            self.wake(now=True)
            return number, f"Operation {number} has begun: it goes on when this page is closed"

        fields = {"rate": _RATES} | _FIELDS.get(act, {})
        back = "one" if place == "queues" and title else "list" if named else ""
        said = _VERBS[act][0]
        asks = "Into the queue" if act == "move" else ""
        return Deed(title or said, "", None, back, lambda *names: self._plan(wish(*names)), begin, fields, asks=asks)

    def _spread(self, place: Place) -> Deed:
        """All of a set, as of a moment; else what a search finds."""
        found: Any = self._deed("spread", place)

        def begin(order: Order, moment: str) -> tuple[str, str]:
            return found.begin(order, "", moment)  # type: ignore[no-any-return]

        return Deed("Spread…", "", None, "", lambda moment: found.plan("", moment), begin, found.fields)

    def _on_batch(self, act: BatchAct, title: str) -> Deed:
        def begin(order: Order, batch: str) -> tuple[str, str]:
            rate = _chosen(order, "rate", _RATES)
            try:
                number = begin_on_batch(self._runtime, order.author, batch, act, rate)
            except (ArgumentError, BatchError) as error:
                raise Unwanted(visible(str(error))) from None
            self.wake(now=True)
            return number, f"Operation {number} has begun: it goes on when this page is closed"

        fields = {"rate": _RATES} if act == "retry" else {}
        return Deed(title, "", None, "one", lambda batch: self._plan_batch(batch, act), begin, fields)

    def _plan_batch(self, batch: str, act: BatchAct) -> Question:
        try:
            many = concerned(self._runtime, batch, act)
        except (ArgumentError, BatchError) as error:
            raise Unwanted(visible(str(error))) from None
        if act == "retry" and not many:
            raise Unwanted("no job of it has given up: nothing is to be pushed again")
        return Question(f"{count(many, 'job')} {_OF_BATCH[act]}", _typed(many))

    def _plan(self, wish: Wish) -> Question:
        """What would be done, counted."""
        try:
            found = [one for source in sources(self._runtime, wish) for one in islice(source.entries, COUNTED)]
        except ArgumentError as error:
            raise Unwanted(visible(str(error))) from None
        if not found:
            raise Unwanted(f"nothing to {wish.act} any more: {visible(wish.filter)}")
        some = "; ".join(shorten(one.call_text(60), 60) for one in found[:_SAMPLES])
        many = count(len(found), *_WORDS[wish.place]) + (" or more" if len(found) >= COUNTED else "")
        held = f" {wish.asked}" if wish.text else f" of {wish.filter}" if wish.name else ""
        begin = f"{many}{held}, as of the page before, {_VERBS[wish.act][1]}; what comes after it is left alone."
        cleared = (
            wish.act == "delete"
            and wish.place == "queues"
            and not wish.text
            and wish.name == visible(wish.name).strip()
        )
        typed = wish.name if cleared else _typed(len(found))
        work = self._work_of(len(found)) if wish.act == "retry" else ""
        return Question(visible(f"{begin} {work}{_BACK[wish.act]} Among them: {some}"), typed)

    def _work_of(self, many: int) -> str:
        """How long workers have to do with so many jobs, by their pace of the last minutes; empty where that is no
        minute, or not known."""
        past = run(self._runtime.connections, ask(levels(self._runtime.keys)))
        ran = ran_lately(past, self._runtime.clock.now())
        if not ran or many <= ran:
            return ""
        pace = f"workers ran {count(round(ran), 'job')} a minute lately"
        least = "at least " if many >= COUNTED else ""
        return f"That is {least}{span(60 * many / ran)} of their work ({pace}): choose a rate, or others wait longer. "

    def _abort(self, number: str) -> str:
        return self._turned(asked.abort, number, "is aborted: what it did stays done", "is at its end already")

    def _undo(self, number: str) -> str:
        said = self._turned(
            asked.undo, number, "is being undone", "cannot be undone: nothing lies in its trash any more"
        )
        self.wake(now=True)
        return said

    def _continue(self, number: str) -> str:
        one = run(self._runtime.connections, asked.operation(self._runtime.keys, number))
        self.wake(now=True)
        if one is not None and one.works:
            return f"operation {number} goes on"
        return self._turned(asked.resume, number, "goes on", "is at its end")

    def _turned(self, do: Callable[..., Procedure[bool]], number: str, words: str, otherwise: str) -> str:
        if not run(self._runtime.connections, do(self._runtime.keys, number)):
            raise Unwanted(f"operation {visible(number)[:40]} {otherwise}")
        return f"operation {number} {words}"


def _typed(many: int) -> str:
    """The number of jobs, to be written by whoever begins a large operation."""
    return str(many) if many > _LARGE else ""


def _chosen(order: Order | None, name: str, known: tuple[int, ...]) -> int:
    """What a form says, one of those that it offers; the first of them where it says nothing."""
    text = order.form.get(name, "") if order else ""
    return next((one for one in known if str(one) == text), known[0])
