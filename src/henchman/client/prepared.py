"""Prepared pushes: the payload fields that options give, made once and used for every push of a job.

Pushes of tracked jobs go with the first entry of each job's record in history.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec

from henchman.client.fair import is_fair, tenant_of
from henchman.client.keyed import Keyed, keyed, limits_by_value
from henchman.client.options import JobOptions, Membership, PushOptions
from henchman.client.registry import Registry
from henchman.client.runtime import Runtime
from henchman.config import Config
from henchman.config.defaults import deadline_of
from henchman.errors import ArgumentError, DefinitionError
from henchman.store import batches
from henchman.store.call import Procedure
from henchman.wire import jsontext, times
from henchman.wire.arguments import Signature
from henchman.wire.deadlines import with_deadline
from henchman.wire.payload import Template, decode
from henchman.wire.secret import masked, places_of

__all__ = [
    "Admission",
    "PreparedPush",
    "PushSequence",
    "at_commit",
    "dated",
    "in_outbox",
    "jids_of",
    "prepare",
    "push_tracked",
    "record_of",
]

Admission = Literal["created", "duplicate", "blocked", "deferred", "buffered", "stopped"]


class PreparedPush(NamedTuple):
    """A payload as far as it is the same for every push of one job with one set of options.

    ``group``: the batch of the jobs. ``result_ttl``: seconds that a result is kept, None when none is. ``function``:
    the job's own, where it is known. ``timed``: workers compare times of its payloads with the server's clock, so take
    them from there too. ``is_plain``: its jobs are only pushed, without a record in history. ``may_wait``: they have a
    delay or a time. ``parked``: they wait until their batch is released. ``admission``: how the server receives them.
    ``transaction``: what they wait for on this side, see ``henchman.contrib.transactions``.
    ``unstamped``: their ``enqueued_at`` is written when they enter their queue. ``outbox``: the transaction that they
    are part of, as ``using`` was told, on ``line`` if that is set. ``keyed``: they have a key, are followed or wait for
    others. ``fair``: their queue is a fair one. ``until``: the Unix time at which they are over; ``deadline``: so many
    seconds after they are due.
    """

    template: Template
    queue: str
    delay: float
    at: float | None
    group: Membership | None = None
    result_ttl: float | None = None
    function: Any = None
    timed: bool = False
    is_plain: bool = True
    may_wait: bool = False
    parked: bool = False
    admission: Admission = "created"
    transaction: Any = None
    unstamped: bool = False
    tracked: bool = False
    outbox: Any = None
    line: str | None = None
    keyed: Keyed | None = None
    fair: bool = False
    until: float | None = None
    deadline: float | None = None

    def due(self, now: float) -> float:
        """When jobs are due that are pushed ``now``, whatever they wait for."""
        if self.at is not None:
            return max(self.at, now)
        return now + max(self.delay, 0.0 if self.keyed is None else self.keyed.ask.get("debounce", 0.0))

    def scheduled(self, now: float) -> bool:
        """Whether it goes to the schedule: due later than now. A past ``at`` is due now."""
        return self.delay > 0 or (self.at is not None and self.at > now)

    def when(self, scheduled: bool) -> str:
        """When its jobs are due, as a tracked push says it."""
        due = "" if not scheduled else repr(float(self.at)) if self.at is not None else f"+{float(self.delay)!r}"
        return "parked" + due if self.parked else due


def prepare(
    name: str,
    options: JobOptions,
    push: PushOptions,
    group: Membership | None = None,
    function: Any = None,
    signature: Signature | None = None,
    config: Config | None = None,
) -> PreparedPush:
    """The payload fields of jobs of ``group``, by ``options``, ``push`` and, where they say nothing, ``config``."""
    queue, tracked, result_ttl = _said(options, push)
    until, deadline = _deadline(options, push, queue, config)
    ours = _own_fields(options, push, group, tracked, result_ttl, signature, until)
    key = _keyed(name, options, push, signature, ours, group, tracked)
    fields = _sidekiq_fields(name, queue, options, push) | ({"hm": ours} if ours and key is None else {})
    parked = group is not None and group.atomic
    outbox = _outbox(name, push)
    timed = (push.at, push.expires, options.expires, until, deadline) != (None,) * 5
    return PreparedPush(
        Template(fields, tenant_of(name, options, signature)),
        queue,
        push.delay or 0.0,
        push.at,
        group,
        result_ttl,
        function,
        timed and outbox is None,
        is_plain=group is None and not tracked and outbox is None and key is None,
        may_wait=bool(push.delay) or push.at is not None,
        parked=parked,
        admission="deferred" if outbox is not None else "blocked" if parked else "created",
        unstamped=parked or outbox is not None or (key is not None and not key.stamped),
        tracked=bool(tracked),
        outbox=outbox,
        line=push.line,
        keyed=key,
        fair=is_fair(options) or push.priority is not None,
        until=until,
        deadline=deadline,
    )


def _said(options: JobOptions, push: PushOptions) -> tuple[str, bool, float | None]:
    """Queue, whether history keeps the jobs, and for how long their results are kept."""
    tracked = options.track if push.track is None else push.track
    return push.queue or options.queue, tracked, options.result_ttl if push.result_ttl is None else push.result_ttl


def _deadline(
    options: JobOptions, push: PushOptions, queue: str, config: Config | None
) -> tuple[float | None, float | None]:
    """The moment at which a job is over, or how many seconds after it is due; None where it never is."""
    if isinstance(push.deadline, datetime):
        return times.rounded(push.deadline.timestamp()), None
    said = options.deadline if push.deadline is None else push.deadline
    return None, (said or None) if config is None else deadline_of(config, queue, said)


def dated(plan: PreparedPush, now: float) -> PreparedPush:
    """``plan`` for jobs that are pushed ``now``, by the server's clock: their payloads say when they are over. Rows of
    an outbox, and what waits for a commit, do so when they come to the server. ArgumentError: they are due later."""
    if plan.outbox is not None or plan.transaction is not None:
        return plan
    if plan.until is not None and plan.due(now) > max(plan.until, now):
        raise ArgumentError(
            f"this job would be due at {times.iso(plan.due(now))}, after its deadline {times.iso(plan.until)}, and "
            "never run: give it a later deadline=, or let it be due earlier"
        )
    if plan.deadline is None:
        return plan
    until = times.rounded(plan.due(now) + plan.deadline)
    if plan.keyed is not None:
        return plan._replace(keyed=plan.keyed.ending(until))
    return plan._replace(template=plan.template.ending(until))


def at_commit(stored: bytes, plan: PreparedPush, now: float) -> bytes:
    """The payload of a job that waited for a commit, and comes to the server ``now``."""
    return stored if plan.deadline is None else with_deadline(stored, plan.due(now) + plan.deadline)


def _outbox(name: str, push: PushOptions) -> Any:
    outbox = None if push.outbox is False else push.outbox
    if push.line is not None and outbox is None:
        raise DefinitionError(f"{name}: line= is the order of rows of the outbox; say outbox= too")
    return outbox


def in_outbox(plan: PreparedPush, target: Any) -> PreparedPush:
    """``plan`` for jobs that become rows of the transaction of ``target``, a session or connection."""
    if plan.keyed is not None and plan.keyed.raises:
        raise DefinitionError(_nobody_to_tell(plan.keyed.name))
    return plan._replace(outbox=target, is_plain=False, unstamped=True, admission="deferred", timed=False)


def _nobody_to_tell(name: str) -> str:
    """Why a job whose duplicates are errors goes through no outbox."""
    return (
        f"{name} has on_conflict='raise', and whose its key is turns out when a relay pushes it: then there is nobody "
        "who could be told. Let it be 'skip', or say outbox=False: it is pushed after the commit, and the handle's "
        "problem tells; or at once with using(now=True)"
    )


def _keyed(
    name: str,
    options: JobOptions,
    push: PushOptions,
    signature: Signature | None,
    fields: Mapping[str, Any],
    group: Membership | None,
    tracked: bool | None,
) -> Keyed | None:
    """What is special about pushes of a job that has a key, is followed or waits for others; None for any other job."""
    if options.on_conflict == "raise" and push.outbox:
        raise DefinitionError(_nobody_to_tell(name))
    is_recorded = group is not None or bool(tracked)
    return keyed(name, options, push, signature, fields, in_batch=group is not None, is_recorded=is_recorded)


def _sidekiq_fields(name: str, queue: str, options: JobOptions, push: PushOptions) -> dict[str, Any]:
    """What Sidekiq knows too."""
    retry_for = options.retry_for if push.retry_for is None else push.retry_for
    retry = options.retry if push.retry is None else push.retry
    optional = {
        "retry_for": math.ceil(retry_for) if retry_for else None,
        "retry_queue": options.retry_queue,
        "dead": None if options.dead else False,
        "backtrace": options.backtrace or None,
        "tags": list(options.tags if push.tags is None else push.tags) or None,
        "log_level": options.log_level,
    }
    said = {field: value for field, value in optional.items() if value is not None}
    priority = push.priority or options.priority  # first, where scripts look for it
    first = {} if priority in (None, "normal") else {"priority": priority}
    return {**first, "retry": retry, "queue": queue, "class": name, **said}


def _own_fields(
    options: JobOptions,
    push: PushOptions,
    group: Membership | None,
    tracked: bool | None,
    result_ttl: float | None,
    signature: Signature | None,
    until: float | None,
) -> dict[str, Any]:
    """What stands under ``hm``."""
    limits = options.limits if push.limits is None else push.limits
    fields = {
        "limits": [one.said("") for one in limits] if limits and not limits_by_value(options, push) else None,
        "max_wait": (options.max_wait if push.max_wait is None else push.max_wait) if limits else None,
        "delay": push.delay or None,  # it moves along when the server's clock steps
        "timeout": push.timeout,
        "expires": push.expires,
        "deadline": until,
        "iterable": options.iterable or None,
        "batch": group.id if group else None,
        "batch_expires": group.expires if group else None,
        "results": (group is not None and group.results) or None,
        "track": tracked or None,
        "result_ttl": result_ttl,
        "secret": signature.secret_places if signature is not None else None,
    }
    return {key: value for key, value in fields.items() if value is not None}


_MOST = 65_536  # bytes of arguments that history keeps; of longer ones it keeps the number of bytes


class _Parts(msgspec.Struct, gc=False):
    """A payload, with what is only passed on left as text."""

    name: str = msgspec.field(name="class")
    args: msgspec.Raw = msgspec.Raw(b"[]")
    jid: str = ""
    queue: str = ""
    kwargs: msgspec.Raw = msgspec.Raw()
    tags: msgspec.Raw = msgspec.Raw()


_parts = msgspec.json.Decoder(_Parts).decode
_text = msgspec.json.encode


class PushSequence:
    """Numbers tracked pushes under names, so that the server knows a push that is sent again after a lost answer.

    One push at a time uses a name; a process has as many names as it ever had pushes on their way at once.
    ``keep``: how the app keeps history, from its first tracked push on.
    """

    def __init__(self) -> None:
        self.keep: str | None = None
        self._free: deque[tuple[str, int]] = deque()
        self._pid = os.getpid()

    def take(self) -> tuple[str, int]:
        """A name, and the number of the next push under it."""
        if os.getpid() != self._pid:
            self._free, self._pid = deque(), os.getpid()  # the parent process goes on with its own names
        try:
            name, number = self._free.pop()
        except IndexError:
            name, number = os.urandom(6).hex(), 0
        return name, number + 1

    def give(self, taken: tuple[str, int]) -> None:
        """The push of this number was answered."""
        self._free.append(taken)


def push_tracked(
    runtime: Runtime, sequence: PushSequence, plan: PreparedPush, scheduled: bool, by_queue: dict[str, list[bytes]]
) -> Procedure[None]:
    """Push payloads that history keeps, with class, queue, arguments (secret ones masked) and tags of each job.

    A job outside a batch also tells how history keeps it: no recorder may have led yet.
    """
    group, keys = plan.group, runtime.keys
    when = plan.when(scheduled)
    for queue, payloads in by_queue.items():
        rows = [_row(runtime.registry, payload, when) for payload in payloads]
        if group is None:
            if sequence.keep is None:
                sequence.keep = runtime.config.history_kept()
            call = batches.push(keys, "", queue, rows, keep=sequence.keep)
            yield runtime.client.confirmed(call, partial(jids_of, payloads))
            continue
        taken = sequence.take()
        call = batches.push(keys, group.id, queue, rows, member=group.member, lane=taken)
        yield runtime.client.confirmed(call, partial(jids_of, payloads))
        sequence.give(taken)


def jids_of(payloads: list[bytes]) -> list[str]:
    """The ids of jobs by their payloads."""
    return [decode(payload)["jid"] for payload in payloads]


def _row(registry: Registry, payload: bytes, when: str) -> batches.TrackedPush:
    jid, detail = record_of(registry, payload)
    return batches.TrackedPush(jid, when, payload, detail)


def record_of(registry: Registry, payload: bytes) -> tuple[str, bytes]:
    """The jid, and what the history is first told of this job (JSON). The payload is one of ours."""
    parts = _parts(payload)
    args, kwargs = bytes(parts.args), bytes(parts.kwargs)
    known = registry.find(parts.name)
    signature = None if known is None else known.signature
    if (signature is not None and signature.secret) or b'"secret"' in payload:
        args, kwargs = _masked(signature, decode(payload))
    if len(args) + len(kwargs) > _MOST:
        args, kwargs = _text([f"({len(args) + len(kwargs):,} bytes)"]), b""
    detail = [b'{"class":', _text(parts.name), b',"queue":', _text(parts.queue), b',"args":', args]
    for name, value in ((b',"kwargs":', kwargs), (b',"tags":', bytes(parts.tags))):
        if value:
            detail += (name, value)
    return parts.jid, b"".join((*detail, b"}"))


def _masked(signature: Any, job: dict[str, Any]) -> tuple[bytes, bytes]:
    """By what the app knows of the job, and by what the payload says of itself: middleware may give it another name."""
    args, kwargs = masked(places_of(job), job.get("args") or [], job.get("kwargs") or {})
    if signature is not None:
        args, kwargs = signature.mask(args, kwargs)
    return jsontext.dumps(args), jsontext.dumps(kwargs) if kwargs else b""
