"""What a job waits for: others that must have succeeded before it goes its way. Here is how that is said and checked.

A need is named by the scope and the key of the job that it waits for; of a job without a key the name is its id, in the
scope "". That job must be ``once`` or ``followed``: the end of any other is told to nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, Literal, NamedTuple

from henchman.errors import DefinitionError
from henchman.kernel.text import as_shown

__all__ = [
    "AFTER",
    "FOLLOW_FOR",
    "Need",
    "Policy",
    "check_after",
    "check_rings",
    "need_of",
    "policies",
    "policy",
    "predecessors",
    "problem_of_definition",
    "problem_of_push",
    "pushed_after",
]

Policy = Literal["wait", "run", "fail", "cancel"]
POLICIES: Final = ("wait", "run", "fail", "cancel")
#: the options of dependencies
AFTER: Final = ("after", "followed", "on_failed", "on_dead", "wait_at_most")
FOLLOW_FOR: Final = 7 * 86400  # seconds for which the end of a job is remembered, unless its once_for= says other
MOST: Final = 100  # jobs that one job waits for


class Need(NamedTuple):
    """One job that is waited for. ``once_for``: for how many seconds its success is remembered. ``label``: what people
    call it, and ``current_job().needs``: the name of a job, or an id."""

    scope: str
    name: str
    once_for: int
    label: str


# --- options: each alone ----------------------------------------------------------------------------------------------


def predecessors(name: str, value: Any) -> tuple[Any, ...]:
    """The jobs in ``after`` of a definition."""
    return _each(name, value, _job, "give a job, or a list of jobs, as in after=charge")


def pushed_after(name: str, value: Any) -> tuple[Any, ...]:
    """What stands in ``after`` of a push: a Need for a handle or an id, and jobs."""
    return _each(name, value, _pushed, "give the handle of a job, its id, or a job, or a list of these")


def policy(name: str, value: Any) -> str:
    """What becomes of a job when one that it waits for does not succeed."""
    if not isinstance(value, str) or value not in POLICIES:
        raise DefinitionError(f"{name}={as_shown(value, 200)}: give 'wait', 'run', 'fail' or 'cancel'")
    return value


def _each(name: str, value: Any, read: Any, due: str) -> tuple[Any, ...]:
    many = value if isinstance(value, list | tuple | set | frozenset) else (value,)
    found = []
    for one in many:
        made = read(one)
        if made is None:
            raise DefinitionError(f"{name}={as_shown(one, 200)}: {due}")
        if made not in found:
            found.append(made)
    if len(found) > MOST:
        raise DefinitionError(
            f"{name}= names {len(found)} jobs, and one job waits for at most {MOST}: push those into a batch, and this "
            "one as its on_success="
        )
    return tuple(found)


def _job(value: Any) -> Any:
    """A job, also where its class or ``using`` stands for it; None for anything else."""
    job = getattr(value, "job", None)
    return job if hasattr(job, "options") and hasattr(job, "signature") else None


def _pushed(value: Any) -> Any:
    if isinstance(value, Need):
        return value
    if isinstance(value, str):
        if not 0 < len(value) <= 200 or not value.isprintable():
            raise DefinitionError(f"after={as_shown(value, 200)}: the id of a job is a printable text")
        return Need("", value, FOLLOW_FOR, value)
    if not hasattr(value, "admission"):
        return _job(value)
    if value.need is None:
        why = (
            "was stopped by a client middleware: it never runs"
            if value.admission == "stopped"
            else "is followed by nobody: push it with using(followed=True), or define it as followed=True or once=True"
        )
        raise DefinitionError(f"after={value!r}: that job {why}")
    return value.need


# --- options: which go together ---------------------------------------------------------------------------------------


def problem_of_definition(made: Any) -> str:
    """Why the options of dependencies in ``made``, the options of a job, mean nothing; empty when they do."""
    return (
        _unsaid(made, made.after)
        or _problem(made, made.after, follows=made.followed)
        or _never(made.on_failed, made.on_dead, made.wait_at_most)
    )


def problem_of_push(made: Any, push: Any, after: Sequence[Any], *, follows: bool) -> str:
    """The same of a push with these options, of a job with the options ``made``, that waits for ``after``."""
    return _unsaid(push, after) or _problem(made, after, follows=follows)


def _unsaid(made: Any, after: Sequence[Any]) -> str:
    said = [name for name in AFTER[2:] if getattr(made, name) is not None]
    return f"{said[0]}= is about the jobs that this one waits for: say after= too" if said and not after else ""


def _problem(made: Any, after: Sequence[Any], *, follows: bool) -> str:
    exclude = [name for name in ("debounce", "throttle") if getattr(made, name) is not None]
    if follows and made.key is not None and not made.once:
        others = [*(one for one in made.unique if one != "running"), *exclude]
        if others:
            return f"followed= with key= goes with unique='running' alone, not with {others[0]}; use once=True"
    exclude += [f"on_conflict={made.on_conflict!r}"] if made.on_conflict in ("wait", "replace") else []
    return f"after= does not go with {exclude[0]}" if after and exclude else ""


def _never(on_failed: str | None, on_dead: str | None, wait_at_most: float | None) -> str:
    failed = on_failed or "wait"
    if wait_at_most is not None and failed == "wait" and (on_dead or failed) == "wait":
        return "wait_at_most= needs on_failed= or on_dead=: what becomes of the job then, 'run', 'fail' or 'cancel'?"
    return ""


def policies(options: Any, push: Any, name: str) -> dict[str, Any]:
    """What a payload says of its policies, as far as they are not the usual ones. What a push says goes before."""
    failed = push.on_failed or options.on_failed or "wait"
    dead = push.on_dead or push.on_failed or options.on_dead or failed
    most = options.wait_at_most if push.wait_at_most is None else push.wait_at_most
    if problem := _never(failed, dead, most):
        raise DefinitionError(f"{name}: {problem}")
    said = {
        "on_failed": None if failed == "wait" else failed,
        "on_dead": None if dead == failed else dead,
        "wait_at_most": most,
    }
    return {option: value for option, value in said.items() if value is not None}


# --- definitions among each other -------------------------------------------------------------------------------------


def scope_of(job: Any) -> str:
    """Whose keys those of ``job`` are compared with."""
    return str(job.options.scope or job.name)


def need_of(job: Any) -> tuple[str, int, str]:
    """Scope, memory in seconds and label of a need for ``job``, whose name is a key."""
    return scope_of(job), math.ceil(job.options.once_for or FOLLOW_FOR), job.name


def check_after(name: str, options: Any, signature: Any, jobs: Iterable[Any]) -> None:
    """DefinitionError when the job ``name`` can never wait for one of ``jobs``, as for the one of its own key."""
    for other in jobs:
        theirs = other.options
        if theirs.key is None or not (theirs.once or theirs.followed):
            what = "has no key" if theirs.key is None else "is neither once= nor followed="
            raise DefinitionError(
                f"{name}: after={other.name} waits for the {other.name} of the same key, and that job {what}: define "
                "it with key= and once=True or followed=True, or push using(after=handle)"
            )
        if options.key is None:
            raise DefinitionError(
                f"{name}: after={other.name} waits for the job of the same key, and this one has none: say key=, or "
                "push using(after=handle)"
            )
        scope, same = scope_of(other), scope_of(other) == (options.scope or name)
        if same and (options.once or options.followed):
            raise DefinitionError(
                f"{name}: after={other.name} is of the same scope {scope!r}: with the same key it would wait for itself"
            )
        hides, hidden = _hides(options, signature), _hides(theirs, other.signature)
        if hides != hidden or (hides and not same):
            raise DefinitionError(
                f"{name}: after={other.name}: a key that may hold what is secret is stored as a digest of its scope: "
                f"make it secret in both, and say scope={scope!r} here"
            )


def _hides(options: Any, signature: Any) -> bool:
    """Whether a key is stored as a digest; of a function, by whatever argument is secret."""
    return bool(signature.secret if callable(options.key) else signature.secret.intersection(options.key))


def check_rings(definitions: Mapping[str, Any]) -> None:
    """DefinitionError when jobs wait for each other in a ring, by the scopes of their keys."""
    holders: dict[str, list[str]] = {}
    for name, one in definitions.items():
        if one.options.key is not None and (one.options.once or one.options.followed):
            holders.setdefault(scope_of(one), []).append(name)
    graph = {
        name: [other for before in one.options.after for other in holders.get(scope_of(before), ())]
        for name, one in definitions.items()
        if one.options.after
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring = " → ".join(reversed(error.args[1]))
        raise DefinitionError(
            f"these jobs wait for each other in a ring, and with one key none could ever start: {ring}"
        ) from None
