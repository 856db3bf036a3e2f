"""Steps of a workflow on their way to the server: their names and ids, what their payloads say, and the push."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import count
from typing import Any, Final, NamedTuple

from henchman.client.needs import policy
from henchman.client.options import Membership, PushOptions, checked_name, flag
from henchman.client.prepared import PreparedPush, dated, prepare, record_of
from henchman.client.rows import Arguments, BoundCall
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, BatchError, DefinitionError
from henchman.kernel.text import as_shown, did_you_mean
from henchman.store import batches
from henchman.store.call import Procedure
from henchman.wire import jsontext
from henchman.wire.payload import decode, encode
from henchman.work.steps import Step

__all__ = [
    "After",
    "NewStep",
    "StepJob",
    "check_known",
    "check_order",
    "jobs_of",
    "named",
    "needs_of",
    "new_step",
    "pushed",
]

After = Step[Any] | str | Iterable[Step[Any] | str]

LONGEST_NAME: Final = 200
_CALL_JOBS: Final = 250
_CALL_BYTES: Final = 4_000_000
_PUSHES_ELSEWHERE: Final = ("batch", "outbox", "line", "db", "session")


class NewStep(NamedTuple):
    """A step that was added and not pushed. ``after``: the names of the steps that it waits for; ``takes``: it takes
    their results; ``said``: its policies, as the payload has them; ``key``: its business key, if its job has one."""

    step: Step[Any]
    plan: PreparedPush
    arguments: Arguments
    after: tuple[str, ...]
    takes: bool
    said: Mapping[str, str]
    key: str


class StepJob(NamedTuple):
    """The job of a new step. ``ask``: what the server is asked, see ``lua/lib/admit.lua``; ``field``: its ``hm``."""

    step: str
    jid: str
    job: dict[str, Any]
    when: str
    ask: bytes
    field: bytes


def new_step(
    runtime: Runtime,
    membership: Membership,
    call: Any,
    name: str,
    after: tuple[str, ...],
    *,
    results: bool,
    on_failed: Any,
    on_dead: Any,
) -> NewStep:
    """The step ``name`` of a workflow; ArgumentError or DefinitionError says what is wrong with it."""
    if not isinstance(call, BoundCall) or call.using is None:
        raise ArgumentError(
            f"add({as_shown(call, 80)}): give a job with its arguments, as in flow.add(charge.call(17))"
        )
    using, job = call.using, call.using.job
    takes = flag("results", results)
    said = _policies(on_failed, on_dead)
    if not after and (takes or said):
        option = "results" if takes else next(iter(said))
        raise DefinitionError(f"step {name}: {option}= is about the steps that it waits for: say after=")
    plan = _plan(runtime, using, membership)
    if after and plan.keyed is not None and (plan.keyed.ask["conflict"] == "wait" or "throttle" in plan.keyed.ask):
        what = "throttle=" if "throttle" in plan.keyed.ask else "on_conflict='wait'"
        raise DefinitionError(
            f"step {name}: {what} of {job.name} does not go with after=: push it outside of workflows"
        )
    _check_transaction(runtime, name, using)
    arguments = job.signature.encode(call.args, call.kwargs)
    digest = hashlib.sha256()
    for part in (membership.id, membership.member, name, job.name, *arguments):
        text = part.encode() if isinstance(part, str) else part or b""
        digest.update(b"%d %b" % (len(text), text))
    step = Step[Any](name, digest.hexdigest()[:24], job.name, membership.id, job.function)
    key = plan.keyed.key(step.jid, *arguments) if plan.keyed is not None else ""
    return NewStep(step, plan, arguments, after, takes, said, key)


def _plan(runtime: Runtime, using: Any, membership: Membership) -> PreparedPush:
    push: PushOptions = using.push_as
    for option in _PUSHES_ELSEWHERE:
        if getattr(push, option):
            raise DefinitionError(
                f"{using.job.name}: {option}= says where a job goes, and a step is part of its workflow: leave it out"
            )
    plan: PreparedPush | None = using.prepared_in_batch
    if plan is None or plan.group is not membership:
        job = using.job
        plan = prepare(job.name, job.options, push, membership, job.function, job.signature, runtime.config)
        using.prepared_in_batch = plan
    return plan


def _check_transaction(runtime: Runtime, name: str, using: Any) -> None:
    if runtime.config.transactional and runtime.client.open_transaction(using.push_as) is not None:
        short = using.job.name.rpartition(".")[2]
        raise BatchError(
            f"step {name}: a transaction is open, and a workflow waits for no commit: enqueue it after the commit, or "
            f"say {short}.using(now=True).call(…)"
        )


def _policies(on_failed: Any, on_dead: Any) -> dict[str, str]:
    """What becomes of a step when one that it waits for is over without success, or dead: as far as it is said."""
    for option, value in (("on_failed", on_failed), ("on_dead", on_dead)):
        if value is not None:
            policy(option, value)
    dead = on_failed if on_dead is None else on_dead
    return {option: value for option, value in (("on_failed", on_failed), ("on_dead", dead)) if value is not None}


def named(call: Any, name: str | None, taken: Mapping[str, Any], adder: str) -> str:
    """The name of a new step: as given, or that of its function; of a step that ``adder`` adds behind the name of that.
    The second of a name has ``-2``."""
    if name is not None:
        if checked_name(name, of="a step") in taken:
            raise DefinitionError(f"name={as_shown(name, 80)}: this workflow has a step of that name; choose another")
        plain = name
    else:
        job = getattr(getattr(call, "using", None), "job", None)
        plain = (f"{adder}/" if adder else "") + str(getattr(job, "name", "step")).rpartition(".")[2]
        numbered = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        plain = next(one for one in numbered if one not in taken)
    if len(plain) > LONGEST_NAME:
        raise DefinitionError(f"step {as_shown(plain, 80)}: a name has up to {LONGEST_NAME} characters; give name=")
    return plain


def needs_of(workflow: str, after: Any) -> tuple[str, ...]:
    """The names of the steps in ``after``, each once; ArgumentError for what is no step of this workflow."""
    many = (after,) if isinstance(after, Step | str) else after
    try:
        given = tuple(many)
    except TypeError:
        raise ArgumentError(
            f"after={as_shown(after, 80)}: give a step, or several, as flow.add(…) gives them"
        ) from None
    for one in given:
        if not isinstance(one, Step | str):
            raise ArgumentError(f"after={as_shown(one, 80)}: give a step, as flow.add(…) gives it, or its name")
        if isinstance(one, Step) and one.workflow != workflow:
            raise ArgumentError(f"after={one!r}: that is a step of another workflow, and this one is {workflow}")
    return tuple(dict.fromkeys(one.name if isinstance(one, Step) else one for one in given))


def check_order(steps: Mapping[str, NewStep]) -> None:
    """DefinitionError when a step waits for one that is not there, or steps wait for each other in a ring."""
    for name, new in steps.items():
        check_known(name, new.after, steps)
    try:
        TopologicalSorter({name: new.after for name, new in steps.items()}).prepare()
    except CycleError as error:
        ring = " → ".join(error.args[1])
        raise DefinitionError(f"these steps wait for each other in a ring, and none could ever start: {ring}") from None


def check_known(step: str, after: Sequence[str], known: Iterable[str]) -> None:
    """DefinitionError when ``step`` waits for one that is not among the ``known``."""
    there = set(known)
    for name in after:
        if name not in there:
            near = did_you_mean(name, there)
            raise DefinitionError(f"step {step}: after={as_shown(name, 80)}: this workflow has no such step{near}")


def jobs_of(runtime: Runtime, new: Sequence[NewStep], known: Mapping[str, tuple[str, str]]) -> list[StepJob]:
    """The jobs of new steps; ``known``: step → jid and job of each step that one of them waits for."""
    now = runtime.client.now()
    return [_job_of(one, known, runtime.client.now_for(one.plan), runtime.stamp(now)) for one in new]


def _job_of(new: NewStep, known: Mapping[str, tuple[str, str]], now: float, stamp: bytes) -> StepJob:
    step, plan = new.step, dated(new.plan, now)
    extra = b"" if plan.keyed is None else plan.keyed.member(new.key, *new.arguments)
    when = plan.when(plan.may_wait and plan.scheduled(now))
    goes_now = not (when or new.after or plan.unstamped)
    job = decode(plan.template.render(*new.arguments, step.jid, stamp, stamp if goes_now else None, extra))
    ours = job["hm"] = {**job.get("hm", {}), "step": step.name, **new.said}
    question: dict[str, Any] = {"scope": "", "phases": "", "conflict": "skip", "key": "", "mark": "", "step": step.name}
    if plan.keyed is not None:
        conflict = "skip" if plan.keyed.raises else plan.keyed.ask["conflict"]  # those behind it decide, not who adds
        question |= {**plan.keyed.ask, "conflict": conflict, "key": new.key, "mark": plan.keyed.mark(*new.arguments)}
    if needs := [*ours.get("needs", ()), *([f"batch:{step.workflow}", name, 0, name] for name in new.after)]:
        ours["needs"], question["needs"] = needs, [one[:3] for one in needs]
    if new.takes:
        ours["takes"] = {name: list(known[name]) for name in new.after}
    return StepJob(step.name, step.jid, job, when, jsontext.encode(question), encode(ours))


def pushed(
    runtime: Runtime, membership: Membership, jobs: Sequence[StepJob], reached: Sequence[dict[str, Any]]
) -> Procedure[None]:
    """Push the jobs of steps, as the client middleware left them, in their order."""
    client, rows = runtime.client, _rows(runtime, jobs, reached)
    for queue, some in _calls(rows):
        lane = client.sequence.take()
        member = membership.member
        call = batches.push_keyed(runtime.keys, membership.id, queue, some, member=member, lane=lane)
        yield client.confirmed(call, partial(_jids, some))
        client.sequence.give(lane)


def _rows(
    runtime: Runtime, jobs: Sequence[StepJob], reached: Sequence[dict[str, Any]]
) -> list[tuple[str, batches.TrackedPush]]:
    """The queue and the row of each job. A workflow is whole or not at all: no link may stop a step, or change what
    other steps know it by."""
    left = {job.get("jid"): job for job in reached}
    rows = []
    for one in jobs:
        jid, step = one.jid, one.step
        job = left.get(jid)
        if job is None:
            raise BatchError(
                f"a client middleware stopped step {step}, or changed its jid: a workflow is whole or nothing"
            )
        if encode(job.get("hm") or {}) != one.field:
            raise ArgumentError(f"a client middleware changed hm of step {step}: other steps know the step by it")
        runtime.client.check_queue(job["class"], job["queue"])
        payload = encode(job)
        rows.append(
            (
                job["queue"],
                batches.TrackedPush(jid, one.when, payload, record_of(runtime.registry, payload)[1], one.ask),
            )
        )
    return rows


def _calls(
    rows: Sequence[tuple[str, batches.TrackedPush]],
) -> Iterator[tuple[str, list[batches.TrackedPush]]]:
    """The rows cut into calls: each of one queue, and of no more than a call takes."""
    some, size = list[batches.TrackedPush](), 0
    for place, (queue, row) in enumerate(rows):
        some.append(row)
        size += len(row.payload)
        following = rows[place + 1][0] if place + 1 < len(rows) else None
        if following != queue or len(some) == _CALL_JOBS or size >= _CALL_BYTES:
            yield queue, some
            some, size = [], 0


def _jids(some: Sequence[batches.TrackedPush]) -> list[str]:
    return [one.jid for one in some]
