"""Jobs that come back by hand: what they wait for once more, and what they hear of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final

from henchman.store import needs
from henchman.store.call import Procedure
from henchman.store.keys import Keys
from henchman.wire.payload import seconds
from henchman.work.effects import batch_of
from henchman.work.locks import ONCE_FOR, SaidNeed, key_of, said_needs
from henchman.work.steps import step_of

__all__ = ["await_effect", "need_names", "states_of_needs", "waits_again"]

PAGE: Final = 500
_MET: Final = {"d": "dead", "f": "over", "x": "over"}  # as a job hears of what it waits for no more

States = Mapping[tuple[str, str], str]  #: scope and name of a need → what became of it


def need_names(jobs: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """By what others wait for these jobs: (scope, name) of each key and step."""
    found = set[tuple[str, str]]()
    for job in jobs:
        key, batch, step = key_of(job), batch_of(job), step_of(job)
        found |= {(key.scope, key.name)} if key and not {"o", "f"}.isdisjoint(key.phases) else set()
        found |= {(f"batch:{batch}", step)} if batch and step else set()
    return found


def states_of_needs(keys: Keys, jobs: Sequence[Mapping[str, Any]]) -> Procedure[States]:
    """What became of all that these jobs waited for."""
    wanted = sorted({one[:3] for job in jobs for one in said_needs(job)})
    found: dict[tuple[str, str], str] = {}
    for start in range(0, len(wanted), PAGE):
        some = wanted[start : start + PAGE]
        asked = [(scope, name, once_for or ONCE_FOR) for scope, name, once_for in some]
        states: list[needs.NeedState] = yield needs.need_states(keys, asked)
        found |= {one[:2]: state.letter for one, state in zip(some, states, strict=True)}
    return found


def waits_again(job: dict[str, Any], states: States, coming: Set[tuple[str, str]]) -> list[SaidNeed]:
    """The needs for which a job that comes back waits once more, since their jobs live or come back with it, which is
    ``coming``; of the others it is told how they are."""
    again, met = list[SaidNeed](), dict[str, str]()
    for one in said_needs(job):
        letter = states.get(one[:2], "")
        if letter != "s" and (letter == "l" or one[:2] in coming):
            again.append(one)
        elif letter != "s":
            met[one.label] = _MET.get(letter, "released")
    hm = job.get("hm")
    if isinstance(hm, dict) and "needs" in hm:
        hm.pop("met", None)
        hm |= {"met": met} if met else {}
    return again


def await_effect(job: Mapping[str, Any], waits: Sequence[SaidNeed]) -> tuple[Any, ...]:
    """What ``batch_retry.lua`` and ``move.lua`` read last among the effects of a job that waits once more: its needs,
    how many different ones it has in all, its jid, and the seconds for which it waits at most (0: no limit)."""
    asked = [(one.scope, one.name, one.once_for or ONCE_FOR) for one in waits]
    ours = job.get("hm")
    limit = seconds(ours.get("wait_at_most")) if isinstance(ours, dict) else None
    return ("await", asked, len({one[:2] for one in said_needs(job)}), job.get("jid"), limit or 0)
