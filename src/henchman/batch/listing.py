"""Batches for people: all that the server knows, the newest first, some of them by what is looked for; one; and the
steps of a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from henchman.batch.batch import BatchStatus, status_of
from henchman.store import batches, pauses
from henchman.store.call import Procedure
from henchman.store.keys import Keys
from henchman.work.steps import KeptResult, ended_status

__all__ = [
    "LOOKED",
    "BatchList",
    "BatchRow",
    "Show",
    "WorkflowStep",
    "find_batches",
    "newest_batches",
    "one_batch",
    "paused_batches",
    "workflow_steps",
]

Show = Literal["", "open", "bad", "steps"]
LOOKED: Final = 1000  # of the newest batches, when some are looked for


class BatchRow(NamedTuple):
    """One batch; how many steps it has, 0: it is no workflow; whether it keeps what its jobs return."""

    status: BatchStatus
    steps: int = 0
    results: bool = False


class BatchList(NamedTuple):
    """Some batches, and how many fit in all. ``looked``: at how many of the newest, 0: at all of them."""

    rows: list[BatchRow]
    total: int
    looked: int = 0


def newest_batches(keys: Keys, first: int, most: int) -> Procedure[BatchList]:
    """The batches that the server knows, from place ``first`` on, the newest first: two calls."""
    ids, total = yield batches.newest_page(keys, first, most)
    return BatchList((yield from _rows(keys, ids)), total)


def paused_batches(keys: Keys, most: int) -> Procedure[list[BatchRow]]:
    """Some of the batches that are paused: two calls."""
    ids: list[str] = yield pauses.some_batches(keys, most)
    return (yield from _rows(keys, ids))


def find_batches(keys: Keys, text: str, show: Show, first: int, most: int) -> Procedure[BatchList]:
    """Those of the newest ``LOOKED`` batches that have ``text`` in their description, their tags or at the beginning of
    their id, in any case. ``show``: under way, with failures, or workflows alone. Three calls, whatever fits."""
    ids, known = yield batches.newest_page(keys, 0, LOOKED)
    seen: list[batches.Glimpse] = (yield batches.glimpses(keys, ids)) if ids else []
    fitting = [id for id, one in zip(ids, seen, strict=True) if _fits(id, one, text.lower(), show)]
    rows = yield from _rows(keys, fitting[first : first + most])
    return BatchList(rows, len(fitting), LOOKED if known > LOOKED else 0)


def _fits(id: str, one: batches.Glimpse, text: str, show: Show) -> bool:
    shown = {
        "": bool(one.state),
        "open": one.state in ("open", "closed"),
        "bad": bool(one.bad or one.why),
        "steps": one.steps > 0,
    }
    return shown[show] and (id.startswith(text) or text in one.description.lower() or text in one.tags.lower())


def one_batch(keys: Keys, batch: str) -> Procedure[BatchRow | None]:
    """The batch of this id; None when the server knows none (any more)."""
    found = yield from _rows(keys, [batch])
    return found[0] if found else None


def _rows(keys: Keys, ids: Sequence[str]) -> Procedure[list[BatchRow]]:
    found = (yield batches.several(keys, ids)) if ids else []
    return [
        BatchRow(status_of(id, facts), steps, facts.facts.get("results") == "1")
        for id, (facts, steps) in zip(ids, found, strict=True)
        if facts.facts  # it was forgotten meanwhile
    ]


class WorkflowStep(NamedTuple):
    """A step: its name, its job, which steps it waits for. ``status``: as its batch counts it, "over" where it ended
    without success and nobody knows how, "unknown" where nothing is known. ``result``: JSON text, None: none was
    looked for, or there is none; ``message``: why there is none."""

    name: str
    jid: str
    job: str
    after: tuple[str, ...]
    status: str
    result: bytes | None = None
    message: str = ""


def workflow_steps(keys: Keys, batch: str, results: int) -> Procedure[list[WorkflowStep]]:
    """Every step of a workflow by name, what comes before others first. The first ``results`` of them have their
    results, and so has whatever is over. Two calls; nothing of a batch that has no steps."""
    found: batches.WorkflowSteps = yield batches.workflow_steps(keys, batch)
    if not found.names:
        return []
    steps = _in_order({name: _step(name, found) for name in found.names})
    looked = {one.jid for one in steps[:results]} | {one.jid for one in steps if one.status in ("over", "failed")}
    jids = [one.jid for one in steps]
    live, told = yield batches.members(keys, batch, jids, sorted(looked) or jids[:1])
    results_of = dict(zip(sorted(looked) or jids[:1], told, strict=True))
    return [
        _known(one, status, found.ended.get(one.name, ""), results_of.get(one.jid))
        for one, status in zip(steps, live, strict=True)
    ]


def _step(name: str, found: batches.WorkflowSteps) -> WorkflowStep:
    jid, _, job = found.names[name].partition(" ")
    try:
        after = tuple(msgspec.json.decode(found.after.get(name, "[]"), type=list[str]))
    except msgspec.MsgspecError:  # written by somebody else
        after = ()
    status = ended_status(found.ended.get(name, ""))
    return WorkflowStep(name, jid, job, tuple(one for one in after if one in found.names), status)


def _known(step: WorkflowStep, live: str, letter: str, text: bytes | None) -> WorkflowStep:
    if live:
        return step._replace(status=live)
    if text is None:
        return step
    kept: KeptResult[Any] = KeptResult(step.job, step.jid, text)
    return step._replace(status=ended_status(letter, kept), result=kept.json, message=kept.message)


def _in_order(steps: dict[str, WorkflowStep]) -> list[WorkflowStep]:
    """As they may start: a step behind every step that it waits for; what waits for each other in a ring comes last."""
    left, order = dict(steps), list[WorkflowStep]()
    waiting = {name: set(one.after) for name, one in steps.items()}
    followers: dict[str, list[str]] = {}
    for name, one in steps.items():
        for before in one.after:
            followers.setdefault(before, []).append(name)
    ready = sorted(name for name, before in waiting.items() if not before)
    while ready:
        freed = set[str]()
        for name in ready:
            order.append(left.pop(name))
            for follower in followers.get(name, ()):
                waiting[follower].discard(name)
                if not waiting[follower]:
                    freed.add(follower)
        ready = sorted(freed)
    return order + [left[name] for name in sorted(left)]
