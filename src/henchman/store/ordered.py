"""The moves of ordered queues as calls: push, claim, settle, free. What each guarantees stands in ``lua/``."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate, chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from henchman.errors import HistoryFull
from henchman.store.batches import FULL
from henchman.store.call import Arg, Call, Runner, command, commands, load, script
from henchman.store.jobs import EARLIER, leased
from henchman.store.keys import Keys

_PUSH = load("ordered_push")
_CLAIM = load("ordered_claim")
_SETTLE = load("ordered_settle")
_FREE = load("ordered_free")
_MOVE = load("ordered_move")
_SCORE = struct.Struct(">d")
PART = 3  # a status: so much has come together under the id that the same call has to be made again
MOST_IDS = 500  # in one push or settling, and a little more than in one claim: scripts unpack no more than 1,000


class QueueTracked(Exception):
    """Payloads of the queue have records: nothing was done, and the call for tracked queues is due."""


def claim_jid(queue: str, token: int) -> str:
    """The id of the run of one claim: told in logs, and marked where a supervisor sees what had started."""
    return f"{token}{jid_suffix(queue)}"


def jid_suffix(queue: str) -> str:
    """What all claims of a queue have in common in their ids: tokens of two queues may be the same."""
    return f"-{crc32(queue.encode()):08x}"


class Push(NamedTuple):
    """One payload for an id. ``when``: "" now, "+5" in five seconds, else a Unix time; ``score``: "" is the time."""

    id: bytes
    when: str
    score: str
    payload: bytes


def push(keys: Keys, queue: str, collapse: str, rows: Sequence[Push]) -> Call[int]:
    """Put up to ``MOST_IDS`` payloads under their ids; how many ids had nothing waiting. Raises QueueTracked."""
    args: list[Arg] = [queue, collapse, "", "", "", *(part for one in rows for part in one)]
    return script(_PUSH, [keys.queues], args, _pushed, again=False)


def _pushed(reply: Any) -> int:
    _refused(reply)
    return int(reply)


class RecordHead(NamedTuple):
    """What the records of one push begin with: the name of the handler, how their jids begin (18 hex digits), and how
    the history is kept if nobody said so before ("": not at all).
    """

    name: str
    seed: str
    keep: str

    def jid(self, row: int) -> str:
        """That of a row, counted from 1."""
        return f"{self.seed}{row:06x}"


def push_tracked(keys: Keys, queue: str, collapse: str, head: RecordHead, rows: Sequence[Push]) -> Call[int]:
    """``push``, with a record for each payload. Raises HistoryFull; then nothing was pushed."""

    def read(reply: Any) -> int:
        if reply == b"FULL":
            raise HistoryFull(FULL)
        return int(reply)

    args: list[Arg] = [queue, collapse, msgspec.json.encode(head.name), head.seed, head.keep]
    return script(_PUSH, [keys.queues], [*args, *(part for one in rows for part in one)], read, again=False)


class ClaimedId(NamedTuple):
    """One id of a claim: (score, payload) oldest first, none at all where another hand, or an eviction, took them;
    ``retry_count`` -1: it never failed. ``jids``: those of the records of its payloads, b"" where one has none; empty
    when the queue is not tracked."""

    id: bytes
    retry_count: int
    crashes: int
    payloads: list[tuple[float, bytes]]
    jids: Sequence[bytes] = ()


class Claimed(NamedTuple):
    """What a claim brought: (token, ids) for each, and in how many seconds to look again unless something rings."""

    look_in: float | None
    claims: list[tuple[int, list[ClaimedId]]]


def unpacked(single: bytes) -> tuple[float, bytes]:
    """(score, payload) of what stands alone under its id."""
    return _SCORE.unpack_from(single)[0], plain(single[8:])


def plain(stored: bytes) -> bytes:
    """A stored payload without the number of its arrival, which it has where equal ones are kept apart."""
    return stored[9:] if stored[:1] == b"\0" else stored


def pairs(flat: Sequence[bytes]) -> list[tuple[float, bytes]]:
    """(score, payload) of a ZRANGE with scores."""
    return [(float(flat[at + 1]), plain(flat[at])) for at in range(0, len(flat), 2)]


def _refused(reply: Any) -> None:
    if leased(reply) == b"TRACKED":
        raise QueueTracked


def _claimed(reply: Any, tracked: bool = False) -> Claimed:
    _refused(reply)
    look_in = float(reply[0]) if reply[0] else None
    if len(reply) == 1:
        return Claimed(look_in, [])
    first, counts, names, singles, rare = reply[1:6]
    make = ClaimedId._make  # half the time of naming each field
    ids = [
        make((name, -1, 0, [unpacked(single)] if single else [], ()))
        for name, single in zip(names, singles, strict=True)
    ]
    for at, retry_count, crashes, *flat in rare:
        one = ids[at - 1]
        ids[at - 1] = make((one.id, int(retry_count), int(crashes), pairs(flat) or one.payloads, ()))
    if tracked:
        ids = [make((*one[:4], jids)) for one, jids in zip(ids, reply[6], strict=True)]
    if not counts:
        return Claimed(look_in, [(token, [one]) for token, one in enumerate(ids, int(first))])
    ends = list(accumulate(counts))
    claims = [ids[end - count : end] for end, count in zip(ends, counts, strict=True)]
    return Claimed(look_in, list(enumerate(claims, int(first))))


def claim(
    keys: Keys,
    identity: str,
    epoch: int,
    queue: str,
    claims: int,
    extra: int,
    size: int,
    cap: int,
    lease_ms: int,
    *,
    tracked: bool = False,
) -> Call[Claimed]:
    """Take up to ``claims`` claims of up to ``size`` ids each, ``extra`` more where nothing limits the queue, with at
    most ``cap`` payloads an id. Raises LeaseLost or LeaseLapsed; without ``tracked`` QueueTracked.
    """
    names = [keys.queues, keys.held(identity, epoch, queue)]
    args: list[Arg] = [queue, identity, lease_ms, claims, extra, size, cap, lease_ms / 1000, int(tracked)]
    return script(_CLAIM, names, args, partial(_claimed, tracked=tracked), again=False)


class Verdict(NamedTuple):
    """How one id of a claim ends: done, retry, to_morgue, snooze or release, see ``ordered_settle.lua``;
    there also what ``error`` is of a queue that is tracked."""

    token: int
    id: bytes
    verdict: str
    delay: float = 0.0
    retry_count: int = 0
    error: str = ""


_HOW = itemgetter(slice(2, None))  # how an id ends, of a verdict


def _statuses(count: int, reply: Any) -> list[int | bytes]:
    _refused(reply)
    return [1] * count if reply == 1 else list(reply)


def _statuses_again(count: int, reply: Any) -> list[int | bytes]:
    """Of a settling that was sent before: it is executed whole, so either it was (nothing is held by these tokens now)
    or it was not."""
    statuses = _statuses(count, reply)
    return statuses if 1 in statuses else [EARLIER if one == 0 else one for one in statuses]


def settle(
    keys: Keys,
    identity: str,
    epoch: int,
    queue: str,
    verdicts: Sequence[Verdict],
    *,
    collapse: str,
    lease_ms: int,
    day: str,
    tracked: bool = False,
) -> Call[list[int | bytes]]:
    """End up to ``MOST_IDS`` ids; one status each: 1 settled, 0 not held under that token any more, ``EARLIER``,
    ``PART``, bytes the server's refusal. Raises LeaseLost; without ``tracked`` QueueTracked.
    """
    rows: list[Arg] = []
    endings = []
    for how, alike in groupby(verdicts, _HOW):
        before = len(rows)
        for one in alike:
            rows += one[:2]
        ending = f"{how[0]} {how[1]!r} {how[2]} {how[3]}".encode()
        endings.append(b"%d %d %b" % ((len(rows) - before) // 2, len(ending), ending))
    args: list[Arg] = [queue, identity, lease_ms, collapse, day, int(tracked), b"".join(endings), *rows]
    names = [keys.queues, keys.held(identity, epoch, queue)]
    count = len(verdicts)
    return script(
        _SETTLE,
        names,
        args,
        partial(_statuses, count),
        again=True,
        decode_again=partial(_statuses_again, count),
    )


def free(
    keys: Keys,
    identity: str,
    held_key: str,
    queue: str,
    ids: Iterable[tuple[bytes, bytes]],
    *,
    charge: bool,
    alone: bool,
) -> Call[int]:
    """Take (id, token) pairs from a holder that is gone, or that never heard of them; how many were freed."""
    args: list[Arg] = [queue, identity, int(charge), int(alone), *chain.from_iterable(ids)]
    return script(_FREE, [keys.queues, held_key], args, int, again=True)


def free_all(
    runner: Runner,
    keys: Keys,
    identity: str,
    held_key: str,
    queue: str,
    ids: Sequence[tuple[bytes, bytes]],
    *,
    charge: bool = False,
    alone: bool = False,
) -> int:
    """``free`` for any number of ids, again for those that one call could not free; without any it rings anyway."""
    freed = 0
    for start in range(0, max(len(ids), 1), MOST_IDS):
        chunk = list(ids[start : start + MOST_IDS])
        while True:
            freed += runner.run(free(keys, identity, held_key, queue, chunk, charge=charge, alone=alone))
            noted = runner.run(held(held_key)) if chunk else {}
            chunk = [one for one in chunk if noted.get(one[0]) == one[1]]
            if not chunk:
                break
    return freed


def charge(keys: Keys, queue: str, ids: Iterable[bytes]) -> Call[Any]:
    """Count a death against each of these ids, which stay held: their handler did not heed its time-out."""
    return commands(*(("HINCRBY", keys.ordered(queue) + "crash", one, 1) for one in ids), again=False)


class Moved(NamedTuple):
    """``moved`` ids went over, ``left`` still wait in the source; ``in_flight`` were left where they are."""

    moved: int
    left: int
    in_flight: list[bytes]


class MoveBegun(Moved):
    """So much waits under ``id`` that a part of it went over; move this id until it is ``moved``."""

    id: bytes


def move(
    keys: Keys,
    source: str,
    target: str,
    collapse: str,
    *,
    ids: Sequence[bytes] = (),
    skip: int = 0,
    most: int = 100,
) -> Call[Moved]:
    """Move ``ids``, or the next ``most`` (100 at most) that are due, from one ordered queue to another, which collapses
    payloads by ``collapse``. Ids that are in flight in either stay; ``skip`` those of them that were met before.
    """
    if source == target:
        raise ValueError(f"{source!r} cannot be moved to itself")
    if len(ids) > MOST_IDS or not 0 < most <= 100:
        raise ValueError(f"at most {MOST_IDS} ids, or 100 of those that are due, are moved in one call")

    def moved_again(reply: Any) -> Moved:
        """Ids that are named, and that this sending did not find, were moved by an earlier one."""
        found = _moved(reply)
        if ids and not isinstance(found, MoveBegun) and not found.moved:
            return found._replace(moved=len(ids) - len(found.in_flight))
        return found

    args: list[Arg] = [target, source, collapse, skip, most, *ids]
    return script(_MOVE, [keys.queues], args, _moved, again=True, decode_again=moved_again)


def _moved(reply: Any) -> Moved:
    if len(reply) == 3:
        return Moved(*reply)
    begun = MoveBegun(*reply[:3])
    begun.id = reply[3]
    return begun


def held(held_key: str) -> Call[dict[bytes, bytes]]:
    """What a process holds of an ordered queue: id → token."""

    def read(reply: Any) -> dict[bytes, bytes]:
        pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
        return {name: token.rstrip() for name, token in pairs}

    return command("HGETALL", held_key, decode=read)


def ring(keys: Keys, queue: str) -> Call[Any]:
    """Wake a sleeper: there is something to take that this process has no room for."""
    return command("ZADD", keys.wake(queue), 0, "0")


def declare(keys: Keys, queue: str, *, limit: int, group_limit: int, separator: str) -> Call[Any]:
    """Make the queue and its limits, as the code has them, known; 0: none. A ceiling counts the claims that were made
    since there is one: where there was none before, those that still run come on top.
    """
    return command(
        "HSET", keys.ordered(queue) + "meta", "defined", limit, "group_limit", group_limit, "separator", separator
    )
