"""How each step of a workflow stands: its status, what it waits for, whether there is a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from henchman.errors import PayloadError
from henchman.store import batches, needs, pauses
from henchman.store.call import Procedure
from henchman.store.keys import Keys
from henchman.store.needs import Blocked
from henchman.wire.payload import decode
from henchman.work.locks import key_of, said_needs
from henchman.work.steps import KeptResult, ended_status

__all__ = ["MOST", "StepState", "step_states"]

MOST: Final = 10_000  # steps that one look reads
PAGE: Final = 500
LARGE: Final = 4096  # bytes of a result that is not read to see whether there is one


class StepState(msgspec.Struct, frozen=True):
    """A step of a workflow as it stands now.

    ``status``: as the batch counts its job; "error" when its retries are used up, "over" when it ended without success
    and the batch knows no more. ``waits_for``: what is missing before it starts, steps by their names; nothing of a
    workflow that is still put together. ``result``: it returned something that is kept. ``message``: why not.
    """

    name: str
    job: str
    jid: str
    status: str
    waits_for: list[str]
    result: bool
    message: str = ""


def step_states(keys: Keys, batch: str, most: int = MOST) -> Procedure[tuple[list[StepState], bool]]:
    """The first ``most`` steps of a workflow, in the order in which they were pushed, and whether there are more;
    nothing of a batch that is no workflow, or that the server does not know."""
    names: dict[str, tuple[str, str]] = {}
    cursor = -1
    while cursor and len(names) < MOST:
        cursor, found = yield needs.step_jobs(keys, batch, max(cursor, 0), PAGE)
        names |= found
    if not names:
        return [], False
    pushed: list[str] = yield needs.row_order(keys, batch, MOST)
    place = {jid: number for number, jid in enumerate(pushed)}
    ordered = sorted(names.items(), key=lambda pair: place.get(pair[1][0], MOST))
    shown: list[StepState] = []
    for start in range(0, min(len(ordered), most), PAGE):
        shown += yield from _page(keys, batch, ordered[start : min(start + PAGE, most)])
    return shown, bool(cursor) or len(ordered) > len(shown)


def _page(keys: Keys, batch: str, some: Sequence[tuple[str, tuple[str, str]]]) -> Procedure[list[StepState]]:
    jids = [jid for _, (jid, _) in some]
    facts: list[needs.StepFacts] = yield needs.step_facts(keys, batch, [name for name, _ in some], jids)
    blocked = [jid for jid, one in zip(jids, facts, strict=True) if one.live == "blocked"]
    waiting: dict[str, list[str]] = {}
    while blocked:
        rows: list[Blocked | None] = yield needs.blocked(keys, blocked)  # large ones come in smaller pages
        waiting |= {row.jid: _waits_for(row, batch) for row in rows if row is not None}
        blocked = blocked[max(len(rows), 1) :]
    small = [jid for jid, one in zip(jids, facts, strict=True) if 0 < one.size <= LARGE]
    texts: list[bytes | None] = (yield batches.kept_results(keys, batch, small)) if small else []
    kept = dict(zip(small, texts, strict=True))
    return [
        _state(name, job, jid, one, kept.get(jid), waiting.get(jid, []))
        for (name, (jid, job)), one in zip(some, facts, strict=True)
    ]


def _state(name: str, job: str, jid: str, one: needs.StepFacts, text: bytes | None, waits_for: list[str]) -> StepState:
    if one.live:
        return StepState(name, job, jid, one.live, waits_for, result=False)
    kept: KeptResult[Any] | None = None if text is None else KeptResult(job, jid, text)
    status = ended_status(one.letter, kept)
    if kept is None:
        return StepState(name, job, jid, status, [], result=one.size > LARGE)
    return StepState(name, job, jid, status, [], kept.ok, kept.message)


def _waits_for(row: Blocked, batch: str) -> list[str]:
    """What a parked step waits for, as people call it."""
    try:
        job = decode(row.payload)
    except PayloadError:
        return []
    if not row.reason.startswith("needs"):
        key = key_of(job)
        return [] if key is None else [f"key {key.name} of {key.scope}"]
    missing = row.missing or [one[:2] for one in said_needs(job)[:1]]
    return [_need(scope, name, batch) for scope, name in missing]


def _need(scope: str, name: str, batch: str) -> str:
    if scope == f"batch:{batch}":
        return name
    if scope == pauses.PAUSED:
        return f"its {name.partition(':')[0] if ':' in name else 'batch'}, which is paused"
    return f"{scope}/{name}" if scope else f"job {name}"
