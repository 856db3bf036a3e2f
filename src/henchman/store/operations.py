"""Operations, bulk work of people, as calls: made, carried out in slices, ended, taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from henchman.store.call import Arg, Call, command, commands, load, script
from henchman.store.jobs import Move
from henchman.store.keys import Keys
from henchman.store.queues import raw

__all__ = [
    "DOER_MS",
    "KEPT",
    "NO_SLICE",
    "TRASH_BYTES",
    "UNDO_FOR",
    "OperationSlice",
    "StoredOperation",
    "Turned",
    "back",
    "begun",
    "link_again",
    "links_again",
    "listed",
    "made",
    "next_number",
    "note_act",
    "operate",
    "some",
    "still_open",
    "turn",
]

KEPT: Final = 200  # operations
LIFE: Final = 30 * 86400  # seconds that an operation is kept
UNDO_FOR: Final = 900.0  # seconds after its end for which it can be undone
TRASH_BYTES: Final = 64 << 20  # of all that can be put back, of all operations together
DOER_MS: Final = 10_000  # of silence after which another may go on
_LINKED_S: Final = 30 * 86400  # seconds for which a job and its copy know of each other
_REACH: Final = 20_000  # of the newest jobs of a queue, to take one back from it
_OPERATE, _BACK, _TURN = load("operate"), load("operation_back"), load("operation_turn")
_AUDIT = load("audit")


def note_act(keys: Keys, entry: bytes, most: int, begun: bytes = b"") -> Call[int]:
    """Write down what somebody does, in place of the line ``begun``; of ``most`` lines the oldest goes."""
    return script(_AUDIT, [keys.audit], [entry, begun, most], int, again=True)


def next_number(keys: Keys) -> Call[str]:
    """The number of a new operation."""
    return command("INCR", keys.operations_last, decode=str, again=False)


def made(keys: Keys, number: str, facts: Mapping[str, Arg]) -> Call[Any]:
    """Write a new operation down. It begins at once: whoever looks for open ones may carry it out."""
    pairs = [part for pair in facts.items() for part in pair]
    return commands(
        ("MULTI",),
        ("HSET", keys.operation(number), "state", "running", *pairs),
        ("EXPIRE", keys.operation(number), LIFE),
        ("ZADD", keys.operations, number, number),
        ("ZREMRANGEBYRANK", keys.operations, 0, -KEPT - 1),
        ("SADD", keys.operations_open, number),
        ("EXEC",),
    )


def begun(keys: Keys, number: str) -> Call[Any]:
    """Somebody goes through it from the beginning on: what stays is met, and counted, anew."""
    return command("HDEL", keys.operation(number), "stayed", "reason")


def listed(keys: Keys, first: int, most: int) -> Call[tuple[list[str], int]]:
    """Numbers of operations, the newest first, from place ``first`` on; and how many there are."""
    return commands(
        ("ZREVRANGE", keys.operations, first, first + most - 1),
        ("ZCARD", keys.operations),
        decode=lambda replies: ([one.decode() for one in replies[0]], int(replies[1])),
    )


def still_open(keys: Keys) -> Call[list[str]]:
    """The numbers of operations that are not at their end, the oldest first."""
    return command("SMEMBERS", keys.operations_open, decode=lambda reply: sorted((b.decode() for b in reply), key=int))


class StoredOperation(NamedTuple):
    """An operation as it is stored; no facts: there is none. ``doer``: somebody works on it."""

    facts: dict[str, bytes]
    doer: bool


def some(keys: Keys, numbers: Sequence[str]) -> Call[tuple[float, list[StoredOperation]]]:
    """The server's Unix time, and operations."""
    parts = [part for one in numbers for part in (("HGETALL", keys.operation(one)), ("EXISTS", keys.doer(one)))]

    def read(replies: list[Any]) -> tuple[float, list[StoredOperation]]:
        (seconds, micros), *rest = replies
        found = []
        for flat, doer in zip(rest[::2], rest[1::2], strict=True):
            found.append(StoredOperation({flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}, bool(doer)))
        return int(seconds) + int(micros) / 1e6, found

    return commands(("TIME",), *parts, decode=read)


def operate(
    keys: Keys,
    number: str,
    identity: str,
    slice_: str,
    source: str,
    moves: Sequence[Move],
    *,
    looked: int,
    dead_max: int,
    dead_timeout: float,
    queue: str = "",
) -> Call[str]:
    """Move entries of the set ``source`` (a key), or delete them from the ``queue`` of that name: the state of the
    operation, or LOST."""
    args: list[Arg] = [dead_max, dead_timeout, identity, DOER_MS, slice_, int(UNDO_FOR), TRASH_BYTES]
    args += (raw(queue), looked)
    for one in moves:
        args += (*one.target(), one.old, one.new, one.effects)
    names = [keys.operation(number), keys.doer(number), keys.trash(number), keys.trashes]
    return script(_OPERATE, [keys.queues, raw(source), *names], args, bytes.decode, again=True)


class Back(NamedTuple):
    """The state of an operation, and how many entries lie in its trash."""

    state: str
    left: int


def back(keys: Keys, number: str, identity: str, slice_: str, most: int, *, first: bool) -> Call[Back]:
    """Put ``most`` entries back; ``first``: those that were moved first, else those that were moved last."""
    names = [keys.queues, keys.operation(number), keys.doer(number), keys.trash(number)]
    args: list[Arg] = [identity, DOER_MS, slice_, most, int(first), _REACH]
    return script(_BACK, names, args, lambda reply: Back(reply[0].decode(), int([*reply, 0][1])), again=True)


class Turned(Exception):
    """A slice of an operation did nothing: the operation has the ``state``, or that is LOST: another does it by now."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state


class OperationSlice(NamedTuple):
    """A part of the operation ``number``, done once by ``identity``, whose lease on it is renewed."""

    number: str
    identity: str
    name: str
    lease_ms: int


NO_SLICE: Final = OperationSlice("0", "", "", 0)  #: what no operation does


def turn(keys: Keys, number: str, target: str, states: Sequence[str], text: str = "") -> Call[int]:
    """Give an operation that has one of ``states`` another: 1 done, 0 it has none of them, -1 nothing to undo."""
    names = [keys.operation(number), keys.operations_open, keys.trash(number), keys.trashes]
    return script(_TURN, names, [number, target, int(UNDO_FOR), LIFE, text, *states], int, again=True)


def link_again(keys: Keys, old: str, new: str) -> Call[Any]:
    """Write down that job ``new`` is job ``old`` with other arguments: the page of each leads to the other."""
    parts = [(keys.again(old), "to", new), (keys.again(new), "from", old)]
    writes = [("HSET", raw(key), field, raw(jid)) for key, field, jid in parts]
    return commands(*writes, *(("EXPIRE", raw(key), _LINKED_S) for key, _, _ in parts))


def links_again(keys: Keys, jid: str) -> Call[tuple[str, str]]:
    """The job that this one is a copy of, and the last one that is a copy of this one; "" where there is none."""

    def read(found: Any) -> tuple[str, str]:
        old, new = (one.decode("utf-8", "surrogateescape") if one else "" for one in found)
        return old, new

    return command("HMGET", raw(keys.again(jid)), "from", "to", decode=read)
