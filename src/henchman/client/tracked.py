"""Pushes of jobs that are written down: what the history is told of each with its first entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from henchman.client.draft import Draft
from henchman.client.membership import Lanes
from henchman.client.parcel import Parcel
from henchman.client.registry import Registry
from henchman.store import batches
from henchman.store.call import Call
from henchman.store.keys import Keys
from henchman.wire import jsontext
from henchman.wire.payload import decode
from henchman.wire.secret import masked, places_of

__all__ = ["record_of", "tracked_calls"]

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


def tracked_calls(
    keys: Keys, registry: Registry, lanes: Lanes, plan: Draft, parcel: Parcel, keep: str
) -> Iterator[tuple[Call[int], list[bytes]]]:
    """The pushes of ``parcel``, one a queue, each with its payloads. The next is asked for when one was answered.

    The history gets class, queue, arguments (secret ones masked) and tags of each job with them; ``keep``: how it is
    kept from the first of them on, though no recorder has led yet.
    """
    group = plan.group
    when = plan.when(parcel.scheduled)
    for queue, payloads in parcel.by_queue.items():
        rows = [_row(registry, payload, when) for payload in payloads]
        if group is None:
            yield batches.push(keys, "", queue, rows, keep=keep), payloads
            continue
        lane = lanes.take()
        yield batches.push(keys, group.id, queue, rows, member=group.member, lane=lane), payloads
        lanes.give(lane)


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
