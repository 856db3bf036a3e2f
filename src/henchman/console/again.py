"""A job once more, with other arguments: a new job, made of what a form says; and the links between the two."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, DefinitionError, HistoryError
from henchman.inspector.base import Entry
from henchman.inspector.jobs import JobStatus
from henchman.inspector.sets import JobSet, SetName
from henchman.kernel.figures import size
from henchman.kernel.text import visible
from henchman.oncall.deeds import Order, Unfit, Unwanted
from henchman.store import jobs, operations
from henchman.wire import jsontext
from henchman.wire.payload import decode, encode, new_jid
from henchman.wire.secret import ENCRYPTED, MASK, places_of, shown_arguments

__all__ = ["REMOVABLE", "Again", "NewCall"]

MOST: Final = 32_768  # bytes of arguments that the form takes
#: where a job stands that can be removed, and the name of its set
REMOVABLE: Final[Mapping[str, SetName]] = {"dead": "dead", "retrying": "retries", "scheduled": "scheduled"}
#: how a job can have ended of which only history knows
RECORDED: Final = ("finished", "failed", "error", "cancelled", "expired")
_SPENT: Final = (
    *("retry_count", "failed_at", "retried_at", "error_message", "error_class", "error_backtrace", "error_group"),
    *("error_attempts", "error_causes", "created_at", "enqueued_at", "at", "bid"),
)


class NewCall(NamedTuple):
    """What the form holds: the arguments as JSON, and what becomes of the old job ("keep" or "remove")."""

    args: str
    kwargs: str
    old: str = "keep"

    @classmethod
    def of(cls, status: JobStatus) -> NewCall:
        """The arguments that the job has now."""
        texts = (json.dumps(one, indent=2, ensure_ascii=False) for one in (list(status.args), status.kwargs))
        return cls(*texts)

    @classmethod
    def said(cls, form: Mapping[str, str]) -> NewCall:
        """What somebody has written into the form."""
        return cls(form.get("args", ""), form.get("kwargs", "") or "{}", form.get("old", "keep"))


class Again:
    """Pushes jobs anew."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def why_not(self, status: JobStatus) -> str:
        """Why the arguments of a job cannot be changed here; "" when they can."""
        entry = status.entry or self._recorded(status)
        if entry is None:
            return "nothing holds the arguments of this job any more: enqueue it from code"
        if entry.problem:
            return f"its payload cannot be read ({entry.problem})"
        known = self._runtime.registry.find(entry.name) is not None
        if self._hides(entry):
            return (
                "some of its arguments are secret or encrypted. This page may not show them, and would send *** in "
                "their place: enqueue it from code, where their values are known"
            )
        if not known and status.entry is None:
            return (
                f"history has its arguments, and not how it is enqueued: this console does not know {entry.name}, open "
                f"it with the application (henchman web shop.jobs:app)"
            )
        if not known and "hm" in entry.job:
            return (
                f"it is tracked, or has a key, a batch or limits, which its definition says, and this console does not "
                f"know {entry.name}: open it with the application (henchman web shop.jobs:app)"
            )
        new = NewCall.of(status)
        if len(new.args.encode()) + len(new.kwargs.encode()) > MOST:
            taken = size(len(entry.payload))
            return f"its payload has {taken}, and this form takes arguments of {size(MOST)}: enqueue it from code"
        return ""

    def _recorded(self, status: JobStatus) -> Entry | None:
        """A job of which only history knows, as a payload without what was asked for it; None: its arguments were not
        recorded."""
        if status.state not in RECORDED or self._runtime.config.why_history_is_off():
            return None
        try:
            found = self._runtime.open_history().reading.job(status.jid, most=1)
        except HistoryError:
            return None
        if found is None or found.event.args is None or found.event.class_ != status.name:
            return None
        event = found.event
        job = {"class": event.class_, "jid": event.jid, "queue": event.queue, "args": event.args}
        job |= {"kwargs": event.kwargs or {}, "tags": event.tags or []}
        return Entry(encode(job), None, self._runtime.registry.mask)

    def _hides(self, entry: Entry) -> bool:
        """Whether people may not see all of its arguments."""
        if places_of(entry.job) or entry.job.get("encrypt"):  # the latter is how Sidekiq says it
            return True
        args, kwargs = entry.arguments
        if any(one is MASK or one is ENCRYPTED for one in (*args, *kwargs.values())):  # also where they are recorded so
            return True
        return shown_arguments(entry.job, self._runtime.registry.mask) != shown_arguments(entry.job, None)

    def begin(self, status: JobStatus, order: Order) -> str:
        """Push the new job, and remove the old one where the form says so; what became of it."""
        if why := self.why_not(status):
            raise Unwanted(f"{visible(status.jid)} cannot run again with other arguments: {why}")
        new = NewCall.said(order.form)
        if new.old not in ("keep", "remove") or (new.old == "remove" and status.state not in REMOVABLE):
            raise Unfit(
                f"the old job is {status.state}: it can only stay" if new.old == "remove" else "keep, or remove"
            )
        args, kwargs = _read(new)
        entry: Any = status.entry or self._recorded(status)
        jid = self._pushed(entry, status.queue or "default", args, kwargs)
        self._runtime.connections.run(operations.link_again(self._runtime.keys, status.jid, jid))
        said = f"{visible(status.jid)} runs again with other arguments, as {jid}"
        return f"{said}; the old one {self._old(status, entry, new)}"

    def _old(self, status: JobStatus, entry: Entry, new: NewCall) -> str:
        """What became of the old job, in words."""
        if new.old == "keep":
            return "stays where it is"
        acted = JobSet(self._runtime, REMOVABLE[status.state]).delete(entry)
        if acted.done:
            return "is deleted"
        return f"stays: {'; '.join(acted.reasons)}" if acted.stayed else "had gone meanwhile"

    def _pushed(self, entry: Entry, queue: str, args: list[Any], kwargs: dict[str, Any]) -> str:
        """Push; the id of the new job."""
        definition = self._runtime.registry.find(entry.name)
        try:
            if definition is None:
                return self._copied(entry, queue, args, kwargs)
            definition.signature.decode(args, kwargs)
            given: dict[str, Any] = {"queue": queue, "tags": entry.tags, "batch": None}
            if isinstance(entry.job.get("retry"), bool | int):
                given["retry"] = entry.job["retry"]
            handle = self._runtime.client.by_name(entry.name, tuple(args), given, kwargs)
        except (ArgumentError, DefinitionError, jsontext.EncodeError) as error:
            raise Unfit(str(error)) from None
        if handle.admission in ("duplicate", "stopped"):
            held = f": {handle.duplicate_of} has its key" if handle.admission == "duplicate" else " by a middleware"
            raise Unwanted(f"the new job was refused{held}; the old one stays where it is")
        return str(handle.jid)

    def _copied(self, entry: Entry, queue: str, args: list[Any], kwargs: dict[str, Any]) -> str:
        """The same payload with other arguments: of a job that only its worker knows."""
        job, jid = decode(entry.payload), new_jid()
        for name in (*_SPENT, "args", "kwargs"):
            job.pop(name, None)
        clock = self._runtime.clock
        now = msgspec.json.decode(self._runtime.stamp(clock.now()))
        job |= {"jid": jid, "args": args, "queue": queue, "created_at": now, "enqueued_at": now}
        if kwargs:
            job["kwargs"] = kwargs
        self._runtime.connections.run(jobs.push(self._runtime.keys, queue, encode(job)))
        return jid


def _read(new: NewCall) -> tuple[list[Any], dict[str, Any]]:
    """What the form says, as values; Unfit names the place of what is wrong."""
    if len(new.args.encode()) + len(new.kwargs.encode()) > MOST:
        raise Unfit(f"these arguments have more than {size(MOST)}: enqueue the job from code")
    found: list[Any] = []
    for text, kind, what, shape in (
        (new.args, list, "the arguments", 'a list, as [42, "de"]'),
        (new.kwargs, dict, "the named arguments", 'an object, as {"lang": "de"}'),
    ):
        try:
            value = jsontext.read(text.encode())
        except (msgspec.MsgspecError, jsontext.EncodeError, ValueError, RecursionError) as error:
            raise Unfit(f"{what} are no JSON: {error}") from None
        if not isinstance(value, kind):
            raise Unfit(f"{what} are {shape}; this is {jsontext.kind_of(value)}")
        found.append(value)
    return found[0], found[1]
