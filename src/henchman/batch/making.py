"""What is said of a batch when it is made, checked, and as the server keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from henchman.client.draft import draft
from henchman.client.job import Using
from henchman.client.membership import OUTSIDE, within
from henchman.client.options import named_options
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, DefinitionError
from henchman.kernel.ids import new_jid
from henchman.store import history
from henchman.store.call import Arg, Call
from henchman.store.leases import ask_time
from henchman.wire.codec import Signature
from henchman.wire.payload import decode, encode

__all__ = ["Making", "announcing", "callback_fields", "callbacks", "fields", "making", "record"]

_MOST_TEXT = 10_000
_CENTURY = 100 * 365 * 86400.0


def announcing(desk: Runtime, made: Making) -> Iterator[Call[Any]]:
    """What comes before the making. Where history is on for this app: have it kept from the first job on, though no
    recorder has run yet. When it expires is counted by the server's clock."""
    if made.expires is not None:
        yield ask_time(desk.clock)
    kept = desk.config.history_kept()
    if kept:
        yield history.offer(desk.keys, kept)


class Making(NamedTuple):
    """A batch to be made. ``expires``, ``open_for`` and ``keep`` are seconds; ``callbacks``: which → job or name."""

    description: str
    tags: tuple[str, ...]
    callbacks: Mapping[str, Any]
    expires: float | None
    open_for: float
    atomic: bool
    keep: float
    parent: str | None


def making(
    description: str,
    tags: Iterable[str],
    targets: Mapping[str, Any],
    *,
    expires: Any,
    open_for: Any,
    atomic: bool,
    keep: Any,
    parent: Any,
) -> Making:
    """The same, checked; DefinitionError says what is wrong."""
    if not isinstance(description, str) or len(description) > _MOST_TEXT:
        raise DefinitionError(f"batch({description!r:.100}): describe it in a text of up to {_MOST_TEXT:,} characters")
    if isinstance(tags, str) or not all(isinstance(one, str) for one in tags):
        raise DefinitionError(f"tags={tags!r}: give a list of texts, as in tags=['import']")
    for which, target in targets.items():
        if target is not None and not isinstance(target, Using | str):
            raise DefinitionError(f"on_{which}={target!r}: give a job, job.using(…), or the name of one")
    above = getattr(parent, "id", parent)
    if above is None:
        enclosing = within.get()
        above = enclosing.id if enclosing is not None else None
    elif not isinstance(above, str):
        raise DefinitionError(f"parent={parent!r}: give a batch or its id")
    return Making(
        description,
        tuple(tags),
        {which: target for which, target in targets.items() if target is not None},
        None if expires is None else _seconds("expires", expires),
        _seconds("open_for", open_for),
        bool(atomic),
        _seconds("keep", keep),
        above,
    )


def _seconds(name: str, value: Any) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _CENTURY:
        raise DefinitionError(f"{name}={value!r}: give seconds (more than zero, up to 100 years) or a timedelta")
    return float(seconds)


def fields(made: Making, expires: float | None) -> dict[str, Arg]:
    """What the server keeps of it, without its callbacks; ``expires`` is a Unix time."""
    return {
        "description": made.description,
        "tags": msgspec.json.encode(made.tags),
        "open_for": repr(made.open_for),
        "expires": "" if expires is None else repr(expires),
        "atomic": "1" if made.atomic else "",
        "keep": str(max(int(made.keep), 1)),
        "parent": made.parent or "",
    }


def record(made: Making, expires: float | None) -> bytes:
    """What the history gets when it is made."""
    told = {"description": made.description, "tags": made.tags, "parent": made.parent, "expires": expires}
    return msgspec.json.encode({name: value for name, value in told.items() if value is not None})


def callbacks(desk: Runtime, made: Making, batch: str) -> dict[str, dict[str, Any]]:
    """The job of each callback as it would be pushed, called with the id of the batch; their ids are fixed here."""
    return {which: _callback(desk, target, batch) for which, target in made.callbacks.items()}


def _callback(desk: Runtime, target: Any, batch: str) -> dict[str, Any]:
    if isinstance(target, str):
        known: Any = desk.registry.find(target)
        name, (options, push) = target, named_options(target, {}, None if known is None else known.options)
    else:
        known, name, options, push = target.job, target.job.name, target.job.options, target.push_as
    if push.delay or push.at is not None or push.batch not in (None, OUTSIDE):
        raise DefinitionError(f"{name}: a callback is enqueued when its batch comes so far; leave out delay, at, batch")
    plan = draft(name, options, push)
    desk.client.check_queue(name, plan.queue)
    signature = _ID_ALONE if known is None else known.signature
    try:
        args, kwargs = signature.encode((batch,), {})
    except ArgumentError as error:
        raise DefinitionError(f"{name} cannot be called back with the id of a batch: {error}") from None
    return decode(plan.template.render(args, kwargs, new_jid(), desk.stamp(desk.clock.now()), None))


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
