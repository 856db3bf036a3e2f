"""Which options of business keys go together. ``client/options.py`` checks each alone."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["KEYED", "problem_of_key"]

#: the options of business keys
KEYED: Final = (
    *("key", "once", "once_for", "unique", "on_conflict", "scope"),
    *("debounce", "debounce_most", "throttle"),
)


def problem_of_key(made: Any) -> str:
    """Why the options of keys in ``made``, the options of a job, mean nothing together; empty when they do."""
    return _key_problem(made) or _conflict_problem(made)


def _key_problem(made: Any) -> str:
    """Why these options of keys mean nothing together; empty when they do."""
    said = [name for name in KEYED[1:] if getattr(made, name)]
    does = [name for name in ("once", "unique", "debounce", "throttle", "after", "followed") if getattr(made, name)]
    at_push = [*(["once"] if made.once else []), *(one for one in made.unique if one != "running")]
    if made.key is None:
        return f"{said[0]}= needs key=, which says what is the same work" if said else ""
    if not does:
        return (
            "key= says what is the same work; add what becomes of it: once=, unique=, debounce=, throttle=, followed= "
            "or after="
        )
    if made.once_for is not None and not made.once and not made.followed:
        return "once_for= belongs to once=True or followed=True"
    if made.debounce_most is not None and made.debounce is None:
        return "debounce_most= belongs to debounce="
    if len(at_push) > 1:
        return f"{' and '.join(at_push)} exclude each other: each says how long one key is one job; choose one"
    if made.debounce is not None and (at_push or made.throttle is not None):
        return f"debounce= goes with unique='running' alone, not with {(at_push or ['throttle'])[0]}"
    if made.debounce is not None and (made.debounce_most or made.debounce) < made.debounce:
        return f"debounce_most={made.debounce_most:g} is shorter than debounce={made.debounce:g}"
    return ""


#: by what a push looks at: what may be said of a conflict. ``running`` alone: of a conflict at the start
_CONFLICTS: Final = {
    "once": ("skip", "raise"),
    "until_success": ("skip", "raise", "wait"),
    "queued": ("skip", "raise", "replace"),
    "running": ("wait", "skip"),
    "throttle": ("skip", "raise"),
}


def _conflict_problem(made: Any) -> str:
    """Why ``on_conflict`` means nothing beside the others."""
    given, running = made.on_conflict, "running" in made.unique
    if given is None:
        return ""
    looked = ["once"] if made.once else [one for one in made.unique if one != "running"]
    looked = looked or (["running"] if running else []) or (["throttle"] if made.throttle is not None else [])
    if not looked:
        return "on_conflict= has nothing to say: debounce= always takes the newest arguments"
    if given not in _CONFLICTS[looked[0]]:
        may = " or ".join(map(repr, _CONFLICTS[looked[0]]))
        return f"on_conflict={given!r} does not go with {looked[0]}: give {may}"
    return ""
