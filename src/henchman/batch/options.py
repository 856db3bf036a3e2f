"""Batch options: validation and wire form; the jobs that a batch calls back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypedDict

import msgspec

from henchman.client.job import Using
from henchman.client.keywords import HasMembership, Seconds, Texts
from henchman.client.options import OUTSIDE, checked_name, flag, named_options, texts, within, wrong
from henchman.client.prepared import prepare
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, DefinitionError
from henchman.kernel.text import did_you_mean
from henchman.store.call import Arg
from henchman.wire.arguments import Signature
from henchman.wire.payload import decode, encode, new_jid

__all__ = ["BatchOptions", "WorkflowKeywords", "callback_fields", "callbacks", "checked", "checked_workflow"]

Callback = Using[..., Any] | str | None
OPEN_FOR: Final = 3600.0  # seconds after which a workflow is given up whose producer died before it was whole
KEEP: Final = 7 * 86400.0
_MOST_TEXT = 10_000
_CENTURY = 100 * 365 * 86400.0


class BatchOptions(NamedTuple):
    """The options of a batch. ``expires``, ``open_for`` and ``keep`` are seconds; ``callbacks``: job or name each;
    ``results``: what its jobs return is kept with it.
    """

    description: str
    tags: tuple[str, ...]
    callbacks: Mapping[str, Any]
    expires: float | None
    open_for: float
    atomic: bool
    keep: float
    parent: str | None
    results: bool

    def fields(self, expires: float | None) -> dict[str, Arg]:
        """What the server keeps of them, without the callbacks; ``expires`` is a Unix time."""
        return {
            "description": self.description,
            "tags": msgspec.json.encode(self.tags),
            "open_for": repr(self.open_for),
            "expires": "" if expires is None else repr(expires),
            "atomic": "1" if self.atomic else "",
            "keep": str(max(int(self.keep), 1)),
            "parent": self.parent or "",
            **({"results": "1"} if self.results else {}),
        }

    def record(self, expires: float | None) -> bytes:
        """What the history keeps of them."""
        facts = {"description": self.description, "tags": self.tags, "parent": self.parent, "expires": expires}
        return msgspec.json.encode({name: value for name, value in facts.items() if value is not None})


class WorkflowKeywords(TypedDict, total=False):
    """The options of ``app.workflow``, which are those of ``app.batch`` that mean something to it."""

    on_success: Callback
    on_complete: Callback
    on_death: Callback
    tags: Texts
    expires: Seconds | None
    open_for: Seconds
    parent: HasMembership | str | None
    keep: Seconds


def checked_workflow(description: str, options: WorkflowKeywords) -> BatchOptions:
    """The options of ``app.workflow``, checked; DefinitionError says what is wrong."""
    given: dict[str, Any] = dict(options)
    if unknown := sorted(given.keys() - WorkflowKeywords.__annotations__.keys()):
        near = did_you_mean(unknown[0], WorkflowKeywords.__annotations__)
        raise DefinitionError(f"workflow: there is no option {unknown[0]}={near}")
    usual = {"on_success": None, "on_complete": None, "on_death": None, "tags": (), "expires": None, "parent": None}
    return checked(description, **{**usual, "open_for": OPEN_FOR, "keep": KEEP, **given}, atomic=True, results=True)


def checked(
    description: str,
    *,
    on_success: Any,
    on_complete: Any,
    on_death: Any,
    tags: Iterable[str],
    expires: Any,
    open_for: Any,
    atomic: bool,
    keep: Any,
    parent: Any,
    results: bool,
) -> BatchOptions:
    """The options of ``app.batch``, checked; DefinitionError says what is wrong."""
    if not isinstance(description, str) or len(description) > _MOST_TEXT:
        raise wrong("description", description, f"describe the batch in a text of up to {_MOST_TEXT:,} characters")
    targets = {"success": on_success, "complete": on_complete, "death": on_death}
    for which, target in targets.items():
        if isinstance(target, str):
            checked_name(target, option=f"on_{which}")
        elif target is not None and not isinstance(target, Using):
            raise wrong(f"on_{which}", target, "give a job, job.using(…), or the name of one")
    above = getattr(parent, "id", parent)
    if above is None:
        enclosing = within.get()
        above = enclosing.id if enclosing is not None else None
    elif not isinstance(above, str):
        raise wrong("parent", parent, "give a batch or its id")
    return BatchOptions(
        description,
        texts("tags", tags),
        {which: target for which, target in targets.items() if target is not None},
        None if expires is None else _seconds("expires", expires),
        _seconds("open_for", open_for),
        flag("atomic", atomic),
        _seconds("keep", keep),
        above,
        flag("results", results),
    )


def _seconds(name: str, value: Any) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _CENTURY:
        raise wrong(name, value, "give seconds (more than zero, up to 100 years) or a timedelta")
    return float(seconds)


def callbacks(runtime: Runtime, options: BatchOptions, batch: str) -> dict[str, dict[str, Any]]:
    """The job of each callback as it would be pushed, called with the id of the batch; their ids are fixed here."""
    return {which: _callback(runtime, target, batch) for which, target in options.callbacks.items()}


def _callback(runtime: Runtime, target: Any, batch: str) -> dict[str, Any]:
    if isinstance(target, str):
        known: Any = runtime.registry.find(target)
        name, (options, push) = target, named_options(target, {}, None if known is None else known.options)
    else:
        known, name, options, push = target.job, target.job.name, target.job.options, target.push_as
    if push.delay or push.at is not None or push.batch not in (None, OUTSIDE):
        raise DefinitionError(f"{name}: a callback is enqueued when its batch comes so far; leave out delay, at, batch")
    if options.key is not None:
        raise DefinitionError(f"{name} has a key, which could refuse a callback: it is enqueued once in any case")
    plan = prepare(name, options, push)
    if plan.keyed is not None:
        raise DefinitionError(
            f"{name}: a callback waits for its batch alone, and is not followed: leave out after=, followed="
        )
    runtime.client.check_queue(name, plan.queue)
    signature = _ID_ALONE if known is None else known.signature
    try:
        args, kwargs = signature.encode((batch,), {})
    except ArgumentError as error:
        raise DefinitionError(f"{name} cannot be called back with the id of a batch: {error}") from None
    return decode(plan.template.render(args, kwargs, new_jid(), runtime.stamp(runtime.clock.now()), None))


def _one(batch: Any) -> None:
    """The signature of a callback that is known only by name."""


_ID_ALONE = Signature.of(_one, name="callback")


def callback_fields(which: str, job: Mapping[str, Any]) -> dict[str, Arg]:
    """A callback as the server keeps it: its payload around the id, to which a later generation adds its number."""
    payload = encode({name: value for name, value in job.items() if name != "enqueued_at"})  # the server writes it
    jid = job["jid"].encode()
    head, found, tail = payload.rpartition(b'"jid":"' + jid + b'"')
    if not found:
        raise ArgumentError(f"the id {job['jid']!r} of a callback must be letters and digits")
    base = f"cb:{which}:"
    return {
        base + "queue": job["queue"],
        base + "head": head + b'"jid":"',
        base + "jid": jid,
        base + "tail": b'"' + tail[:-1],
    }
