"""Pushes of tracked jobs: each goes with the first entry of its record in history."""

from __future__ import annotations

import os
from collections import deque
from functools import partial
from typing import Any

import msgspec

from henchman.client.prepared import PreparedPush
from henchman.client.registry import Registry
from henchman.client.runtime import Runtime
from henchman.store import batches
from henchman.store.procedure import Procedure
from henchman.wire import jsontext
from henchman.wire.payload import decode
from henchman.wire.secret import masked, places_of

__all__ = ["PushSequence", "jids_of", "push_tracked", "record_of"]

_MOST = 65_536  # bytes of arguments that the history is given; of more it is told how many they were


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
    """

    def __init__(self) -> None:
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
            call = batches.push(keys, "", queue, rows, keep=runtime.config.history_kept())
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
