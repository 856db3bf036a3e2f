"""A cron as it is stored on the server: when, and the payload that each tick enqueues.

It holds the whole payload, so that the process that ticks need not know the job: another team's worker may run it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from henchman.client.job import Using
from henchman.client.options import JobOptions, PushOptions, checked_name, push_options, wrong
from henchman.client.prepared import PreparedPush, prepare, record_of
from henchman.client.registry import Definition, Registry
from henchman.client.rows import Arguments
from henchman.client.runtime import Runtime
from henchman.cron.timing import timing_of
from henchman.errors import ArgumentError, DefinitionError
from henchman.kernel.middleware import compile_sync
from henchman.kernel.text import as_shown
from henchman.store.cron import Tick
from henchman.wire import payload, times
from henchman.wire.arguments import Signature
from henchman.wire.payload import new_jid
from henchman.work.context import keep_stored

__all__ = ["Cron", "build_tick", "check_name", "decoded", "define", "encoded"]

_MISSED: Final = ("latest", "all", "skip")
OVERLAP_FOR: Final = 86400.0  # seconds
_LONGEST: Final = 366 * 86400.0


class Cron(msgspec.Struct, frozen=True):
    """``timing`` in its stored form. ``job`` is the payload's text without what differs from tick to tick; ``hm`` its
    field of that name. ``overlap_for``: for so many seconds a tick waits for the job of an earlier one; 0: never.
    ``ask``: what is asked of a job with a key, see ``client/keyed.py``; ``deadline``: so many seconds after a planned
    time the job of that tick is over."""

    timing: str
    missed: str
    queue: str
    name: str
    job: str
    hm: dict[str, Any] = {}
    overlap_for: float = 0.0
    ask: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    deadline: float | msgspec.UnsetType = msgspec.UNSET


encoded = msgspec.json.Encoder().encode
decoded = msgspec.json.Decoder(Cron).decode


def check_name(name: object) -> str:
    """A cron's name; DefinitionError when it cannot be one."""
    return checked_name(name, of="a cron")


def define(
    runtime: Runtime,
    job: Using[Any, Any] | str,
    when: tuple[str | None, float | timedelta | None, str | None],
    missed: str,
    overlap: tuple[str, float | timedelta | None],
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    queue: str | None = None,
) -> Cron:
    """A cron of ``job``, with everything checked; DefinitionError or ArgumentError says what is wrong.

    ``when``: expression, every, tz; ``overlap``: overlap, overlap_for; as ``App.cron`` takes them.
    """
    timing = timing_of(*when)
    if not isinstance(missed, str) or missed not in _MISSED:
        raise wrong("missed", missed, "give 'latest', 'all' or 'skip'")
    limit = _overlap_limit(*overlap)
    name, signature, options, push = _job(runtime.registry, job)
    if queue is not None:
        push = push_options(name, {"queue": queue}, push)
    if push.at is not None or push.delay is not None:
        raise DefinitionError(f"{name}: a cron says itself when its job is due; leave out at= and delay=")
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        raise ArgumentError(f"args={as_shown(args, 200)}: give a list or tuple of arguments")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentError(f"kwargs={as_shown(kwargs, 200)}: give a dict of arguments by name")
    plan = prepare(name, options, push, signature=signature, config=runtime.config)
    if plan.until is not None:
        raise DefinitionError(f"{name}: deadline= of a cron is seconds after each planned time, and no moment")
    runtime.registry.refuse_ordered(name, plan.queue)
    texts = signature.encode(tuple(args), dict(kwargs or {}))
    fields = payload.decode(plan.template.render(*texts, new_jid(), b"0.0", None))
    for varying in ("jid", "created_at"):
        del fields[varying]
    hm, ask = _key_of(name, plan, texts, fields.pop("hm", {}))
    text = payload.encode(fields).decode()
    return Cron(timing.text(), missed, plan.queue, name, text, hm, limit, ask, plan.deadline or msgspec.UNSET)


def _key_of(
    name: str, plan: PreparedPush, texts: Arguments, hm: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any] | msgspec.UnsetType]:
    """What stands under ``hm``, and what is asked of a job with a key: all ticks have the arguments, and so the key."""
    if plan.keyed is None:
        return hm, msgspec.UNSET
    if "debounce" in plan.keyed.ask:
        raise DefinitionError(f"{name}: a cron says itself when its job is due; a job with debounce= cannot be one")
    if plan.keyed.missing:
        raise DefinitionError(
            f"{name}: a cron enqueues its job when it is due, and after= would hold it back: leave it out"
        )
    if plan.keyed.rule is None and plan.keyed.phases:
        raise DefinitionError(f"{name}: nobody has the handle of a cron's job to wait for: followed= needs key= here")
    key = plan.keyed.key("", *texts)
    return plan.keyed.own_fields(key, *texts), {**plan.keyed.ask, "key": key, "mark": plan.keyed.mark(*texts)}


def _overlap_limit(overlap: str, limit: float | timedelta | None) -> float:
    """How long a job that has not ended holds its cron's ticks up, in seconds; 0 when it does not."""
    if not isinstance(overlap, str) or overlap not in ("allow", "skip"):
        raise wrong("overlap", overlap, "give 'allow' or 'skip'")
    if limit is None:
        return OVERLAP_FOR if overlap == "skip" else 0.0
    seconds = limit.total_seconds() if isinstance(limit, timedelta) else limit
    if overlap == "allow":
        raise DefinitionError(f"overlap_for={as_shown(limit, 200)} belongs to overlap='skip'")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST:
        raise wrong("overlap_for", limit, f"give seconds, up to {_LONGEST:,.0f}, or a timedelta")
    return float(seconds)


def _job(registry: Registry, job: Any) -> tuple[str, Signature, JobOptions, PushOptions]:
    if isinstance(job, Using):
        return job.job.name, job.job.signature, job.job.options, job.push_as
    if not isinstance(job, str) or not job:
        raise DefinitionError(f"{as_shown(job, 200)} is no job: give one made by @app.job, or the name of one")
    known: Definition | None = registry.find(job)
    if known is not None:
        return job, known.signature, known.options, PushOptions()
    return job, Signature.by_name(job), JobOptions(), PushOptions()


def build_tick(runtime: Runtime, name: str, cron: Cron, planned: float, now: float) -> Tick:
    """The job of one tick, through the client middleware; without a payload when a link stopped it."""
    jid, moment = new_jid(), runtime.stamp(now)
    ours = {**cron.hm, "cron": name, "planned": planned}
    if not isinstance(cron.deadline, msgspec.UnsetType):
        ours["deadline"] = times.rounded(planned + cron.deadline)
    extra = payload.members({"hm": ours})
    tail = b',"jid":"%b","created_at":%b,"enqueued_at":%b}' % (jid.encode(), moment, moment)
    ask = b"" if isinstance(cron.ask, msgspec.UnsetType) else encoded(cron.ask)
    waits = b'"conflict":"wait"' in ask
    if waits:
        tail = tail[: tail.index(b',"enqueued_at"')] + b"}"
    text = cron.job.encode()[:-1] + extra + tail
    if not runtime.client_middleware.links:
        return Tick(name, planned, cron.queue, jid, text, cron.overlap_for, _record(runtime, text, cron.hm), ask)
    reached: list[dict[str, Any]] = []
    compile_sync(runtime.client_middleware, reached.append)(payload.decode(text))
    if not reached:
        return Tick(name, planned)
    final = keep_stored(reached[-1], payload.decode(text))
    for field in ("queue", "class", "jid"):
        if not isinstance(final.get(field), str) or not final[field]:
            raise ArgumentError(f"a client middleware set {field} of the job of cron {name!r} to {final.get(field)!r}")
    if waits:
        final.pop("enqueued_at", None)
    whole = payload.encode(final)
    record = _record(runtime, whole, final["hm"])
    return Tick(name, planned, final["queue"], final["jid"], whole, cron.overlap_for, record, ask)


def _record(runtime: Runtime, text: bytes, ours: Any) -> bytes:
    tracked = isinstance(ours, Mapping) and ours.get("track") is True
    return record_of(runtime.registry, text)[1] if tracked else b""
