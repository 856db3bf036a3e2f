"""The entries of the stream, as they are read: their fields, and the JSON that came with them.

Whatever stands there, nothing here raises: text that no database takes is made fit, JSON that is none is kept as it
is under ``unreadable``. A NUL character becomes ``␀`` in plain text (PostgreSQL refuses it); in what is kept as JSON
(arguments, results, details) it is ``\\u0000``, as JSON writes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from henchman.history.schema import KEY, NAME, WORD

__all__ = [
    "NOTHING",
    "Detail",
    "Entry",
    "batch_of",
    "host_of",
    "ident",
    "name",
    "number_of",
    "plain",
    "read_detail",
    "said",
]

#: a stream id and field, value, field, value…
Entry = tuple[bytes, Sequence[bytes]]

_ENTRY_BITS, _PART_BITS = 10, 11  # of a position: entries of one millisecond, jobs of one entry
NOT_TOLD = msgspec.Raw(b"")


class Detail(msgspec.Struct, gc=False):
    """``d`` of an entry; what was not told is None or empty. JSON that is only kept stays JSON."""

    class_: str | None = msgspec.field(default=None, name="class")
    queue: str | None = None
    args: msgspec.Raw = NOT_TOLD
    kwargs: msgspec.Raw = NOT_TOLD
    tags: msgspec.Raw = NOT_TOLD
    reason: str | None = None
    error_class: str | None = None
    message: str | None = None
    traceback: msgspec.Raw = NOT_TOLD
    result: msgspec.Raw = NOT_TOLD
    started: float | None = None
    elapsed: float | None = None
    ending: str | None = None
    text: str | None = None  # of a message
    done: float | None = None  # of progress
    total: float | None = None
    description: str | None = None  # of a batch, and what follows
    parent: str | None = None
    expires: float | str | None = None
    generation: int | None = None
    counts: msgspec.Raw = NOT_TOLD


NOTHING = Detail()
_decode = msgspec.json.Decoder(Detail).decode
_fields = tuple(Detail.__struct_fields__)


def read_detail(text: bytes) -> tuple[Detail, str]:
    """``d`` and the same as JSON text to keep: empty when the columns of its row hold all of it."""
    if text == b"{}" or not text:
        return NOTHING, ""
    try:
        detail = _decode(text)
        return detail, "" if _is_plain(text, detail) else text.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return _mended(text)


def _is_plain(text: bytes, detail: Detail) -> bool:
    """Whether it is a job's beginning, or nothing is told but how a run ended, when it had begun and how long it took:
    then all the quotation marks are accounted for."""
    if detail.class_ is not None:
        return True
    known = (detail.started is not None) + (detail.elapsed is not None) + 2 * (detail.ending is not None)
    return text.count(b'"') == 2 * known and len(detail.ending or "") <= WORD


def _mended(text: bytes) -> tuple[Detail, str]:
    """As much as can be had of a text that is not as it should be."""
    try:
        told = json.loads(text.decode("utf-8", "replace"))
        if not isinstance(told, dict):
            raise ValueError
    except (ValueError, RecursionError):
        told = {"unreadable": text[:100_000].decode("utf-8", "replace")}
    kept = json.dumps(told)  # ASCII: half of a surrogate pair stays an escape
    found = Detail()
    for field, info in zip(_fields, msgspec.structs.fields(Detail), strict=True):
        value = told.get(info.encode_name)
        if value is None:
            continue
        try:
            setattr(found, field, msgspec.json.decode(json.dumps(_fit(value)).encode(), type=info.type))
        except (msgspec.MsgspecError, ValueError):
            continue  # it is in the detail that is kept
    return found, kept


def _fit(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def plain(text: str | None) -> str | None:
    """Text that every database takes."""
    return text if text is None or "\0" not in text else text.replace("\0", "␀")


def _cut(text: str, most: int) -> str:
    """Longer names keep their beginning; a digest tells them apart."""
    text = text.replace("\0", "␀")
    if len(text) <= most:
        return text
    return text[: most - 17] + "~" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def ident(text: bytes) -> str:
    """A jid or the id of a batch."""
    found = text.decode("utf-8", "replace")
    return found if len(found) <= KEY and "\0" not in found else _cut(found, KEY)


def name(text: str | None) -> str | None:
    """The name of a class, queue, process or error."""
    return text if text is None or (len(text) <= NAME and "\0" not in text) else _cut(text, NAME)


@lru_cache(1000)
def said(text: bytes) -> str:
    """What many entries have in common, a status or the name of a process, as text."""
    return text.decode("utf-8", "replace").replace("\0", "␀")


@lru_cache(1000)
def host_of(process: str) -> str:
    """The host of ``host:pid:nonce``."""
    return process.rsplit(":", 2)[0]


@lru_cache(1000)
def batch_of(text: bytes) -> str | None:
    """The id of a batch; None: there is none."""
    return ident(text) or None


@lru_cache(1000)
def _of_whole(stream_id: bytes) -> tuple[int, float]:
    ms, _, within = stream_id.partition(b"-")
    number = int(ms) << _ENTRY_BITS | min(int(within or b"0"), (1 << _ENTRY_BITS) - 1)
    return number << _PART_BITS, int(ms) / 1000


def number_of(stream_id: bytes) -> tuple[int, float]:
    """The position that a stream id (or the name of a part of its entry, ``5-0.1``) stands for, and its time in Unix
    seconds."""
    whole, _, part = stream_id.partition(b".")
    number, at = _of_whole(whole)
    return (number | min(int(part), (1 << _PART_BITS) - 1) if part else number), at
