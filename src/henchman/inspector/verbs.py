"""One table of what people do to jobs: in queues, in the three sets, in ordered queues.

Programs call the methods that stand here; the command line makes a command of each verb (``henchman retries retry``),
and a page can make a button of it. ``KINDS`` has a ``JobKind`` for each thing that holds jobs; a kind has its ``Verb``s
by the name of the command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from henchman.inspector.ordered import OrderedQueue
from henchman.inspector.queues import Queue
from henchman.inspector.sets import JobSet

__all__ = ["KINDS", "JobKind", "KindName", "Verb"]

KindName = Literal["queues", "retries", "scheduled", "dead", "ordered"]


class Verb(NamedTuple):
    """One verb. ``help``: what it does, as a sentence. ``done``: what is said behind a count, "3 jobs **deleted**".

    ``some(thing, …)`` acts on entries of a set or ids of an ordered queue and gives ``Acted``; None: this verb has no
    such form. ``every(thing)`` acts on all that ``all`` names. ``lost(thing)``: how many ``every`` removes for good, to
    be confirmed before; None: this verb removes nothing for good.
    """

    help: str
    done: str
    some: Callable[..., Any] | None
    every: Callable[[Any], Any]
    all: str = "All of them."
    lost: Callable[[Any], int] | None = None


class JobKind(NamedTuple):
    """A thing that holds jobs: what one entry is called, and several; what it is; the verbs by their names.

    ``time`` is the title of the times of its entries, ``empty`` what it means that there are none.
    """

    one: str
    many: str
    help: str
    verbs: Mapping[str, Verb]
    time: str = ""
    empty: str = ""


_DELETE = Verb("Remove jobs for good.", "deleted", JobSet.delete, JobSet.clear, lost=JobSet.size)
_KILL = Verb("Move jobs to the dead set.", "moved to the dead set", JobSet.kill, JobSet.kill_all)


def _retry(help: str) -> Verb:
    return Verb(help, "put into the queue", JobSet.retry, JobSet.retry_all)


_FAILED = "All that failed and wait for their next attempt."
_MORGUE = "The whole morgue."

KINDS: Mapping[KindName, JobKind] = {
    "queues": JobKind(
        "job",
        "jobs",
        "Every queue: its size, how long its next job has waited, whether it is paused; then the ordered ones.",
        {
            "pause": Verb("Start nothing from the queue NAME any more, on any worker.", "is paused", None, Queue.pause),
            "unpause": Verb("Let work on the queue NAME go on.", "goes on", None, Queue.unpause),
            "clear": Verb("Delete the queue NAME and every job in it.", "deleted", None, Queue.clear, lost=Queue.size),
        },
        empty="No queues. A queue appears with the first job that is pushed to it.",
    ),
    "retries": JobKind(
        "retry",
        "retries",
        "Jobs that failed and are tried again.",
        {"retry": _retry("Try jobs again now."), "delete": _DELETE, "kill": _KILL},
        "next",
        "A job that fails comes here until its next attempt.",
    ),
    "scheduled": JobKind(
        "scheduled job",
        "scheduled jobs",
        "Jobs that are to start later.",
        {"retry": _retry("Start jobs now."), "delete": _DELETE, "kill": _KILL},
        "due",
        "A job with delay= or at= waits here until it is due.",
    ),
    "dead": JobKind(
        "dead job",
        "dead jobs",
        "Jobs that have used up their retries.",
        {"retry": _retry("Give jobs another try, now."), "delete": _DELETE},
        "died",
        "A job that has used up its retries is kept here.",
    ),
    "ordered": JobKind(
        "id",
        "ids",
        "Ordered queues: figures, ids, morgues; revive, kill, delete, run, move.",
        {
            "revive": Verb(
                "Let what lies in the morgue wait again, due now, its failures forgotten.",
                "revived",
                OrderedQueue.revive,
                OrderedQueue.revive_all,
                _MORGUE,
            ),
            "kill": Verb(
                "Move what waits to the morgue.",
                "moved to the morgue",
                OrderedQueue.kill,
                OrderedQueue.kill_all_failed,
                _FAILED,
            ),
            "delete": Verb(
                "Remove what waits, for good; what is in flight runs on.",
                "deleted",
                OrderedQueue.delete,
                OrderedQueue.delete_all_failed,
                _FAILED,
                lambda queue: queue.stats().retries,
            ),
            "morgue-delete": Verb(
                "Remove what lies in the morgue, for good.",
                "deleted from the morgue",
                OrderedQueue.morgue_delete,
                OrderedQueue.morgue_delete_all,
                _MORGUE,
                lambda queue: queue.stats().morgue_length,
            ),
            "run-now": Verb(
                "Make what waits due now, in the order in which it was due.",
                "due now",
                OrderedQueue.run_now,
                OrderedQueue.run_all_now,
                "All that wait for their time.",
            ),
            "pause": Verb(
                "Start nothing from the ordered queue NAME any more, on any worker.",
                "is paused",
                None,
                OrderedQueue.pause,
            ),
            "unpause": Verb("Let work on the ordered queue NAME go on.", "goes on", None, OrderedQueue.unpause),
        },
        empty="No ordered queues. One appears with the first push to it, or when a worker serves it.",
    ),
}
