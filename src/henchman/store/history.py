"""The history stream as calls: read, trim, measure, and who reads it. Scripts write it (``lua/lib/batch.lua``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from henchman.store.call import Arg, Call, command, commands, load, script
from henchman.store.keys import Keys

_TRIM = load("history_trim")

_ENTRY = 60  # bytes that an entry counts beside its fields, as the scripts do it


def read(keys: Keys, after: str, most: int, block_ms: int) -> tuple[Arg, ...]:
    """The command that waits for entries behind ``after``; for a connection of its own."""
    return ("XREAD", "COUNT", most, "BLOCK", block_ms, "STREAMS", keys.history, after)


def size_of(fields: Sequence[bytes]) -> int:
    """The bytes that an entry counts."""
    return _ENTRY + sum(map(len, fields))


def turn_on(keys: Keys, policy: str, most_bytes: int) -> Call[Any]:
    """From now on what happens is written into the stream. ``policy``: ``strict`` or ``best_effort``."""
    return command("SET", keys.history_on, f"{policy} {most_bytes}")


def offer(keys: Keys, kept: str) -> Call[Any]:
    """``turn_on``, unless it is on already: by who pushes before any recorder has run. ``kept``: policy and bytes."""
    return command("SET", keys.history_on, kept, "NX")


def turn_off(keys: Keys) -> Call[Any]:
    """Nothing more is written into the stream; what stands there stays."""
    return command("DEL", keys.history_on)


class Trimmed(NamedTuple):
    """After a trim: entries removed, bytes counted, entries left."""

    removed: int
    bytes: int
    entries: int


def trim(keys: Keys, upto: str, size: int) -> Call[Trimmed]:
    """Remove every entry up to and with ``upto``, and ``size`` bytes from the count, in one step."""
    ms, _, within = upto.partition("-")
    least = f"{ms}-{int(within) + 1}"
    names = [keys.history, keys.history_bytes]
    return script(_TRIM, names, [least, size], lambda reply: Trimmed(*map(int, reply)), again=False)


def correct(keys: Keys, by: int) -> Call[Any]:
    """Set the count of bytes right: a recorder had died between two steps."""
    return command("DECRBY", keys.history_bytes, by, again=False)


def exists(keys: Keys) -> Call[bool]:
    """Whether there is a stream; once written it stays, also when it is empty."""
    return command("EXISTS", keys.history, decode=bool)


class Backlog(NamedTuple):
    """What is not recorded yet: entries, bytes, seconds since the oldest; what was dropped; who records."""

    entries: int
    bytes: int
    lag: float
    dropped: int
    recorder: str


def backlog(keys: Keys) -> Call[Backlog]:
    """How far the record is behind, by the server's clock."""

    def decode(replies: Any) -> Backlog:
        first, entries, size, dropped, recorder, (seconds, micro) = replies
        lag = 0.0
        if first:
            lag = int(seconds) + int(micro) / 1e6 - int(first[0][0].partition(b"-")[0]) / 1000
        return Backlog(
            int(entries), max(int(size or 0), 0), max(lag, 0.0), int(dropped or 0), (recorder or b"").decode()
        )

    return commands(
        ("XRANGE", keys.history, "-", "+", "COUNT", 1),
        ("XLEN", keys.history),
        ("GET", keys.history_bytes),
        ("GET", keys.history_dropped),
        ("GET", keys.recorder),
        ("TIME",),
        decode=decode,
    )
