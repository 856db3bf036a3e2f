"""What the server holds, by kind of key; who has which duty; which versions run: what ``doctor`` says of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from henchman.inspector.processes import ProcessState
from henchman.kernel.figures import size
from henchman.kernel.text import shorten, visible
from henchman.store import ordered_people, queues
from henchman.store.call import Procedure, ask, command, commands, side_by_side, unless_refused
from henchman.store.keys import Keys

__all__ = ["duties", "memory_by_kind", "versions_of"]

_QUEUES: Final = 100  # queues that are measured, plain ones and ordered ones
_BATCHES: Final = 20  # batches that are measured
_ENTRIES: Final = 5  # of each key that the server looks at; it counts the others as large as these
_OF_ORDERED: Final = ("due", "one", "busy", "retry", "err", "morgue", "merr")
_OF_BATCH: Final = ("", ":jobs", ":dead", ":parked", ":rows", ":results", ":names", ":steps", ":after")


def memory_by_kind(keys: Keys) -> Procedure[str]:
    """``queues 270 MB, dead 13 MB``: how much memory each kind takes, the most first, about; empty where the server
    does not allow to ask. Two round trips."""
    names, ordered, batches, many = yield from side_by_side(
        unless_refused(ask(queues.names(keys)), []),
        unless_refused(ask(ordered_people.names(keys)), []),
        unless_refused(ask(command("ZREVRANGE", keys.batches, 0, _BATCHES - 1)), []),
        unless_refused(ask(command("ZCARD", keys.batches)), 0),
    )
    kinds: dict[str, tuple[list[str], float]] = {
        "queues": ([keys.queue(one) for one in names[:_QUEUES]], _share(len(names), _QUEUES)),
        "ordered queues": (
            [keys.ordered(one) + part for one in ordered[:_QUEUES] for part in _OF_ORDERED],
            _share(len(ordered), _QUEUES),
        ),
        "batches": (
            [keys.batch(one.decode("utf-8", "replace")) + part for one in batches for part in _OF_BATCH],
            _share(many, _BATCHES),
        ),
        "dead": ([keys.dead], 1.0),
        "retries": ([keys.retry], 1.0),
        "scheduled": ([keys.schedule], 1.0),
        "blocked": ([keys.parked, keys.latest, keys.parked_until, keys.parked_due], 1.0),
        "history to be recorded": ([keys.history], 1.0),
        "errors": ([keys.errors, keys.error_facts, keys.error_traces, keys.error_handled], 1.0),
        "audit": ([keys.audit], 1.0),
    }
    used: list[int] = yield from unless_refused(ask(_usage([one for some, _ in kinds.values() for one in some])), [])
    return _as_text(kinds, used)


def _share(many: int, measured: int) -> float:
    """By what the memory of those that were measured is multiplied."""
    return max(many / measured, 1.0)


def _usage(wanted: Sequence[str]) -> Any:
    asked = (("MEMORY", "USAGE", queues.raw(one), "SAMPLES", _ENTRIES) for one in wanted)
    return commands(*asked, decode=lambda replies: [int(one or 0) for one in replies])


def _as_text(kinds: Mapping[str, tuple[Sequence[str], float]], used: Sequence[int]) -> str:
    sizes, left = Counter[str](), iter(used)
    for kind, (names, share) in kinds.items():
        sizes[kind] = round(share * sum(next(left, 0) for _ in names))
    return ", ".join(f"{kind} {size(many)}" for kind, many in sizes.most_common() if many)


def duties(keys: Keys) -> Procedure[Sequence[tuple[str, str]]]:
    """Each duty that one process has at a time, and the identity of who has it; empty: nobody. One round trip."""
    asked: Mapping[str, str] = {
        "scheduled jobs and retries": keys.staging,
        "rescue": keys.lifeline,
        "crons": keys.cron_leader,
        "history": keys.recorder,
        "batches": keys.auditor,
    }
    found: list[bytes | None] = yield command("MGET", *asked.values())
    return [(duty, (one or b"").decode("utf-8", "replace")) for duty, one in zip(asked, found, strict=True)]


def versions_of(processes: Iterable[ProcessState]) -> Counter[str]:
    """How many processes run each version, with the tag of what is deployed: ``henchman 1.2.0, shop v7``."""
    return Counter(visible(shorten(", ".join(filter(None, (one.version, one.tag))), 60)) or "?" for one in processes)
