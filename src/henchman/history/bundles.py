"""Entries of the stream that tell of many jobs at once, taken apart: one for each job.

A script that ends or pushes many jobs writes what they have in common once (``lua/lib/batch.lua``): ``k`` is ``jobs``,
and ``d`` has a line ``jid detail`` for each of them. The parts of entry ``5-0`` are called ``5-0``, ``5-0.1``,
``5-0.2`` …: a position can stand between them, because a database may refuse one and take the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from henchman.history.entries import Entry

__all__ = ["order", "unbundled"]

_COMMON = 10  # fields and values before `d`: k, b, s, a and w


def unbundled(entries: Iterable[Entry]) -> list[Entry]:
    """The same entries, each of them of one job (or batch, or message)."""
    return [part for one in entries for part in _parts(one)]


def _parts(entry: Entry) -> Iterator[Entry]:
    stream_id, flat = entry
    if len(flat) != _COMMON + 2 or flat[1] != b"jobs" or flat[_COMMON] != b"d":
        yield entry
        return
    common: Sequence[bytes] = flat[2:_COMMON]
    name = stream_id
    for number, line in enumerate(flat[_COMMON + 1].split(b"\n"), 1):
        jid, _, detail = line.partition(b" ")
        yield name, [b"k", b"job", b"j", jid, *common, b"d", detail]
        name = b"%s.%d" % (stream_id, number)


def order(stream_id: bytes | str) -> tuple[int, int, int]:
    """What entries and their parts are sorted by."""
    text = stream_id.decode() if isinstance(stream_id, bytes) else stream_id
    ms, _, within = text.partition("-")
    entry, _, part = within.partition(".")
    return int(ms), int(entry or "0"), int(part or "0")
