"""What people do: each act needs the role "act", is written down, and says in a sentence what became of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from henchman.client.runtime import Runtime
from henchman.cron.registry import set_paused
from henchman.errors import ArgumentError
from henchman.inspector.errors import mute_error, reopen_error, resolve_error
from henchman.inspector.metrics import deploy_marks, mark_deploy, unmark_deploy
from henchman.inspector.ordered import OrderedQueue
from henchman.inspector.processes import Processes
from henchman.inspector.queues import Queue, Queues
from henchman.inspector.sets import Acted, JobSet, SetName
from henchman.kernel.figures import figure, span, utc
from henchman.kernel.text import count, visible
from henchman.oncall import mutes, views
from henchman.oncall.finding import Finding
from henchman.oncall.findings import weighed
from henchman.oncall.vitals import look
from henchman.store.call import Procedure, run
from henchman.store.leases import ask_time

__all__ = [
    "MINUTES_AGO",
    "NOBODY",
    "PAUSE",
    "PAUSE_FIELDS",
    "Deed",
    "Deeds",
    "Missing",
    "Order",
    "Question",
    "Unfit",
    "Unwanted",
    "paused_by",
    "question_of",
    "said_of_one",
]

T = TypeVar("T")


class Missing(Exception):
    """There is no such thing: what, and what to do."""


class Unwanted(Exception):
    """What was asked makes no sense, or not any more: the sentence says why."""


class Unfit(Unwanted):
    """What somebody has written into a form makes no sense: the form is shown once more, with it and with why."""


class Order(NamedTuple):
    """Who asks for an operation, and what the form says."""

    author: str
    form: Mapping[str, str]


NOBODY: Final = Order("", {})


class Question(NamedTuple):
    """What is asked before an act. ``typed``: what somebody has to write into the form first, a number or a name; empty
    for what is small or can be taken back."""

    text: str
    typed: str = ""

    def is_met(self, said: str) -> bool:
        """Whether what was written is that: of a number the digits, however they are grouped."""
        if self.typed.isdecimal():
            said = "".join(one for one in said if one not in " ,._'\u00a0\u202f")
        return not self.typed or said.strip() == self.typed

    @property
    def shown(self) -> str:
        """That, as it is asked for: a number with its thousands apart."""
        whole = self.typed.isascii() and self.typed.isdecimal() and self.typed[0] != "0"
        return figure(int(self.typed)) if whole else self.typed


class Deed(NamedTuple):
    """An act: ``title`` on the button; ``question``: asked before, "" when it can be undone; ``do``: the names in the
    address → what became of it. ``back``: where to go after the question: "" the page of all of them, "one" that of
    this one, "list" that of the first of two names. ``plan``: the names → the question, with counts, a text or a
    ``Question``.

    In place of ``do`` stands ``begin`` where an operation carries it out: an order and the names → the number of the
    operation ("": it was done at once), and what is said. ``fields``: the numbers that the
    form of the question offers, by the name of the field. ``form``: the names, what was written into it before and why
    that makes no sense → the page of a form of its own, in place of the question. ``asks``: what a line of text on the
    form of the question is for; such a ``do`` also takes the ``order``, which has that text as ``reason``. ``fills``:
    fields of the form of a page that are names behind those in the address; such a ``do`` takes the ``order`` too."""

    title: str
    question: str
    do: Callable[..., str] | None
    back: str = ""
    plan: Callable[..., str | Question] | None = None
    begin: Callable[..., tuple[str, str]] | None = None
    fields: Mapping[str, Sequence[int]] = {}
    asks: str = ""
    form: Callable[..., Any] | None = None
    fills: Sequence[str] = ()


def question_of(act: Deed, names: Sequence[str]) -> Question:
    """What is asked before an act on ``names``."""
    said = act.plan(*names) if act.plan else act.question
    return said if isinstance(said, Question) else Question(said)


def _must_have_waited(found: bool, name: str, jid: str) -> None:
    if not found:
        raise Unwanted(f"{visible(jid)} does not wait in {visible(name)} any more")


def paused_by(queue: Queue | OrderedQueue, order: Order) -> str:
    """Pause a queue of either kind for the reason and the minutes that a form says; what is said of it."""
    minutes = next((one for one in PAUSED_FOR if f"{one}" == order.form.get("minutes")), 0)
    try:
        queue.pause(order.form.get("reason", ""), by=order.author, lasts=60 * minutes or None)
    except ArgumentError as error:
        raise Unwanted(visible(str(error))) from None
    long = f" for {span(60 * minutes)}" if minutes else ""
    return f"{visible(queue.name)} is paused{long}: jobs wait, and none starts"


class Deeds:
    """The acts of one app, by page and verb; ``more``: those that other modules have; ``others``: what extensions find
    wrong."""

    def __init__(
        self,
        runtime: Runtime,
        more: Mapping[tuple[str, str], Deed] | None = None,
        others: Callable[[], Sequence[Finding]] = tuple,
    ) -> None:
        self._runtime = runtime
        self.others = others
        self._queues, self._processes = Queues(runtime), Processes(runtime)
        sets = {
            (which, verb): Deed(title, question, self._on_set(which, method))
            for which, verbs in _OF_SETS.items()
            for verb, (title, question, method) in verbs.items()
        }
        self.known: Mapping[tuple[str, str], Deed] = (
            sets
            | {
                ("queues", "pause"): Deed("Pause…", PAUSE, self._pause, "one", asks="Reason", fields=PAUSE_FIELDS),
                ("queues", "resume"): Deed("Resume", "", self._resume),
                ("queues", "next"): Deed("Run next…", _RUN_NEXT, self._run_next, "list"),
                ("queues", "delete"): Deed("Delete…", _DELETE_WAITING, self._delete_waiting, "list"),
                ("jobs", "cancel"): Deed(
                    "Cancel…", "It does not start any more; while it runs, it is told.", self._cancel
                ),
                **{
                    (page, verb): Deed(title, question, self._teller(verb, words), back)
                    for page, back in (("busy", ""), ("processes", "one"))
                    for verb, (title, question, words) in _TO_PROCESSES.items()
                },
                ("errors", "resolve"): Deed("Resolve", "", self._resolve, "one"),
                ("errors", "mute"): Deed("Mute", "", self._mute, "list"),
                ("errors", "reopen"): Deed("Reopen", "", self._reopen, "one"),
                ("crons", "run"): Deed("Run now", "", self._cron_run),
                ("crons", "pause"): Deed("Pause…", _PAUSE_CRON, self._pause_cron, asks="Reason"),
                ("crons", "resume"): Deed("Resume", "", lambda name: self._cron(name, "resume", "goes on")),
            }
            | self._of_looking()
            | dict(more or {})
        )

    def _of_looking(self) -> dict[tuple[str, str], Deed]:
        """What changes nothing about jobs: findings that are muted, marks, views."""
        return {
            ("findings", "mute"): Deed(
                "Mute…",
                _MUTE,
                self._mute_finding,
                plan=self._plan_mute,
                asks="Reason",
                fields={"hours": mutes.HOURS},
            ),
            ("findings", "unmute"): Deed("Unmute", "", self._unmute_finding),
            ("metrics", "mark"): Deed("Mark a deploy", "", self._mark_deploy, fills=("label",)),
            ("metrics", "unmark"): Deed("Remove…", _UNMARK, self._unmark_deploy, plan=self._plan_unmark),
            ("views", "save"): Deed("Save view", "", self._save_view, "named", fills=("name",)),
            ("views", "delete"): Deed("Delete view", "", self._delete_view, "named"),
        }

    def find(self, page: str, verb: str, names: Sequence[str] | None = None) -> Deed:
        """Unwanted when there is no such act, or it is not one on as many ``names``."""
        act = self.known.get((page, verb))
        if act is None:
            raise Unwanted(f"nothing is called {visible(verb)} on this page")
        if names is not None:
            try:
                if act.begin:
                    signature(act.begin).bind(None, *names)
                elif act.do:
                    signature(act.do).bind(*names)
            except TypeError:
                raise Unwanted(f"{visible(verb)} is no act on {count(len(names), 'name')}") from None
        return act

    def _on_set(self, which: SetName, method: str) -> Callable[[str], str]:
        def do(jid: str) -> str:
            jobs = JobSet(self._runtime, which)
            entry = jobs.find(jid)
            if entry is None:
                raise Unwanted(f"{visible(jid)} is not among the {_WORDS[which]} any more")
            return _said(getattr(jobs, method)(entry), jid, method)

        return do

    def _pause(self, name: str, *, order: Order = NOBODY) -> str:
        return paused_by(self._queues[name], order)

    def _resume(self, name: str) -> str:
        self._queues[name].unpause()
        return f"{visible(name)} goes on"

    def _delete_waiting(self, name: str, jid: str) -> str:
        _must_have_waited(self._queues[name].delete(jid), name, jid)
        return f"{visible(jid)} is deleted out of {visible(name)}"

    def _run_next(self, name: str, jid: str) -> str:
        _must_have_waited(self._queues[name].run_next(jid), name, jid)
        return f"{visible(jid)} is the next one of {visible(name)}"

    def _cancel(self, jid: str) -> str:
        self._runtime.cancel(jid)
        return f"{visible(jid)} is cancelled: it does not start any more; a run that goes on was told"

    def _teller(self, verb: str, words: str) -> Callable[[str], str]:
        def do(identity: str) -> str:
            if not self._processes.tell(identity, verb):
                raise Unwanted(f"{visible(identity)} is not there any more")
            return f"{visible(identity)} {words}, at the latest with its next heartbeat"

        return do

    def _resolve(self, group: str) -> str:
        return self._on_error(resolve_error(self._runtime.keys, group), group, "is resolved: it says so if it returns")

    def _mute(self, group: str, how_long: str) -> str:
        words = f"is muted for {how_long}" if how_long[-1:] != "x" else f"is muted until {how_long[:-1]} failures more"
        return self._on_error(mute_error(self._runtime.keys, group, how_long), group, visible(words))

    def _reopen(self, group: str) -> str:
        return self._on_error(reopen_error(self._runtime.keys, group), group, "is open again")

    def _on_error(self, procedure: Procedure[bool], group: str, words: str) -> str:
        try:
            known = run(self._runtime.connections, procedure)
        except ArgumentError as error:
            raise Unwanted(visible(str(error))) from None
        if not known:
            raise Unwanted(f"no error is known as {visible(group)[:40]} any more")
        return f"error {visible(group)} {words}"

    def _finding(self, id: str) -> Finding:
        """Unwanted when it is not among the findings."""
        known = weighed(*run(self._runtime.connections, look(self._runtime.keys)), self.others()).shown
        found = next((one for one in known if one.id == id), None)
        if found is None:
            raise Unwanted(f"there is no finding {visible(id)[:40]} any more: it has gone, or is muted")
        return found

    def _plan_mute(self, id: str) -> str:
        return f"{visible(self._finding(id).text)} {_MUTE}"

    def _mute_finding(self, id: str, *, order: Order = NOBODY) -> str:
        runtime, hours = self._runtime, order.form.get("hours", "1")
        found = self._finding(id)
        if hours not in map(str, mutes.HOURS):
            raise Unwanted(f"hours={visible(hours)[:40]}: say one of {', '.join(map(str, mutes.HOURS))}")
        try:
            by, why = order.author, order.form.get("reason", "")
            run(runtime.connections, mutes.mute(runtime.keys, id, int(hours), by, why))
        except ArgumentError as error:
            raise Unwanted(str(error)) from None
        return f"muted for {span(3600.0 * int(hours))}: {visible(found.text)}"

    def _unmute_finding(self, id: str) -> str:
        if not run(self._runtime.connections, mutes.unmute(self._runtime.keys, id)):
            raise Unwanted(f"the finding {visible(id)[:40]} is not muted any more")
        return "it is shown again, as long as it is wrong"

    def _mark_deploy(self, label: str, *, order: Order = NOBODY) -> str:
        minutes = order.form.get("ago", "0")
        if minutes not in map(str, MINUTES_AGO):
            raise Unwanted(f"ago={visible(minutes)[:40]}: say one of {', '.join(map(str, MINUTES_AGO))}")
        now = self._runtime.connections.run(ask_time(self._runtime.clock))
        at = dt.datetime.fromtimestamp(now, dt.UTC) - dt.timedelta(minutes=int(minutes))
        deploy = self._asked(mark_deploy(self._runtime.keys, label, at))
        if not deploy.marked:
            raise Unwanted(
                f"{visible(deploy.label)} is not marked: it was a moment ago, or its minute has another mark"
            )
        return f"marked {visible(deploy.label)} at {utc(deploy.at)}"

    def _plan_unmark(self, at: str) -> str:
        moment = _moment(at)
        marks = run(self._runtime.connections, deploy_marks(self._runtime.keys, moment, moment + 60))
        if not marks:
            raise Unwanted(f"no deploy is marked at {utc(moment)} any more")
        return f"It is {visible(marks[0].label)}, of {utc(moment)}. {_UNMARK}"

    def _unmark_deploy(self, at: str) -> str:
        moment = _moment(at)
        if not self._asked(unmark_deploy(self._runtime.keys, moment)):
            raise Unwanted(f"no deploy is marked at {utc(moment)} any more")
        return f"the mark at {utc(moment)} is gone"

    def _save_view(self, page: str, name: str, *, order: Order = NOBODY) -> str:
        try:
            asked = dict(parse_qsl(order.form.get("query", ""), max_num_fields=20))
        except ValueError:
            raise Unwanted("query has too many fields to be that of a list") from None
        view = self._asked(views.save_view(self._runtime.keys, page, name, asked, order.author))
        return f"saved as {visible(view.name)}: everybody who looks at {visible(page)} has it"

    def _delete_view(self, page: str, name: str) -> str:
        if not self._asked(views.delete_view(self._runtime.keys, page, name)):
            raise Unwanted(f"no view of {visible(page)[:40]} is called {visible(name)[:60]} any more")
        return f"the view {visible(name)} is deleted"

    def _asked(self, procedure: Procedure[T]) -> T:
        """What a procedure answers; Unwanted with what makes no sense to it."""
        try:
            return run(self._runtime.connections, procedure)
        except ArgumentError as error:
            raise Unwanted(visible(str(error))) from None

    def _cron_run(self, name: str) -> str:
        handle = self._runtime.crons.run(name)
        return f"{visible(name)} enqueued as {handle.jid}"

    def _pause_cron(self, name: str, *, order: Order = NOBODY) -> str:
        self._asked(set_paused(self._runtime.keys, name, "pause", order.form.get("reason", ""), order.author))
        return f"{visible(name)} is paused"

    def _cron(self, name: str, verb: Any, words: str) -> str:
        run(self._runtime.connections, set_paused(self._runtime.keys, name, verb))
        return f"{visible(name)} {words}"


def _moment(text: str) -> float:
    """The Unix time of a mark; Unwanted when it is none."""
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise Unwanted(f"{visible(text)[:40]} is no moment: give the Unix time of a mark")
    return float(text) // 60 * 60


_TO_PROCESSES: Final[Mapping[str, tuple[str, str, str]]] = {
    "quiet": ("Quiet", "", "takes no new jobs"),
    "stop": ("Stop…", "It ends its jobs in its grace, and goes.", "stops"),
    "dump": ("Stacks", "", "writes the stacks of its threads to its log and its page"),
}
_MUTE: Final = (
    "It is not among the findings for so long, on any console, unless it becomes critical; it stands below them."
)
_UNMARK: Final = "No page shows it any more; what ran before and after it stays as it is."
MINUTES_AGO: Final = (0, 5, 15, 30, 60, 120)  #: at which a deploy can be marked afterwards
PAUSED_FOR: Final = (0, 15, 60, 240, 1440)  # minutes for which a form offers to pause; 0: until somebody resumes it
PAUSE_FIELDS: Final = {"minutes": PAUSED_FOR}
_PAUSE_CRON: Final = "Nothing is enqueued for it until it is resumed; what is planned meanwhile is left out."
PAUSE: Final = "No job of it starts any more, on any worker; what runs goes on."
_DELETE_WAITING: Final = "It is gone for good, and no worker runs it; the rest of the queue stays as it is."
_RUN_NEXT: Final = "The next slot that is free runs it, before all that wait in the queue; their order stays as it is."
_WORDS: Final = {"retries": "retries", "scheduled": "scheduled jobs", "dead": "dead"}
_DELETE: Final = ("Delete…", "It is gone for good.", "delete")
_OF_SETS: Final[Mapping[SetName, Mapping[str, tuple[str, str, str]]]] = {
    "retries": {
        "retry": ("Run now", "", "retry"),
        "kill": ("Kill", "", "kill"),
        "delete": _DELETE,
    },
    "scheduled": {"retry": ("Run now", "", "retry"), "delete": _DELETE},
    "dead": {"retry": ("Retry", "", "retry"), "delete": _DELETE},
}


def said_of_one(acted: Acted, name: str, words: str, gone: str) -> str:
    """What became of the one that was acted on: ``words``; Unwanted with why it stays, or with ``gone``."""
    if acted.done:
        return f"{visible(name)} {words}"
    raise Unwanted(visible("; ".join(acted.reasons) if acted.stayed else gone))


def _said(acted: Acted, jid: str, method: str) -> str:
    """What became of one entry, in a sentence."""
    if acted.done:
        return f"{visible(jid)} {({'retry': 'is enqueued', 'kill': 'is dead', 'delete': 'is deleted'})[method]}"
    raise Unwanted(
        f"{visible(jid)} had gone already" if acted.gone else f"{visible(jid)} stays: {'; '.join(acted.reasons)}"
    )
