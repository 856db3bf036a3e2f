"""One ordered queue on a real server, in few words: several processes, verdicts, and clocks that are set by hand."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from henchman.store import leases, ordered
from henchman.store.ordered import Claimed, ClaimedId, Push, Verdict
from support.store import DAY, Store

__all__ = ["FAR", "LOOK", "Kept", "OrderedQueue"]

LOOK = 300.0  # s: the lease; nothing runs out by itself while a test runs
FAR = 4e9  # a time that no test sees
STATUS_OF = {
    "done": "finished",
    "retry": "retrying",
    "to_morgue": "error",
    "snooze": "scheduled",
    "release": "enqueued",
}


class Kept(NamedTuple):
    """Everything that the server holds of an ordered queue; payloads by id, (score, stored bytes) in their order."""

    due: dict[bytes, float]
    payloads: dict[bytes, list[tuple[float, bytes]]]
    arrived: dict[bytes, list[tuple[float, bytes]]]
    arrived_due: dict[bytes, float]
    busy: dict[bytes, bytes]
    retry: dict[bytes, float]
    errors: dict[bytes, bytes]
    crashes: dict[bytes, int]
    morgue: dict[bytes, list[tuple[float, bytes]]]
    morgue_errors: dict[bytes, bytes]
    open: dict[bytes, float]
    inside: dict[bytes, dict[bytes, float]]
    put_off: dict[bytes, dict[bytes, float]]
    sets: set[bytes]  # ids whose payloads stand in a set
    rung: bool
    both: set[bytes]  # ids with a single payload and a set of them: there must be none


class OrderedQueue:
    """The queue ``name``, whose payloads ``collapse`` so, each pushed with a record where it is ``tracked``.

    ``owner`` arguments are identities.
    """

    def __init__(self, store: Store, name: str = "q", collapse: str = "min", *, tracked: bool = False) -> None:
        self.store = store
        self.name = name
        self.collapse = collapse
        self.base = store.keys.ordered(name)
        self.tracked = self.tracked_from_birth = tracked  # then each payload has a record
        self.seeds = 0

    def key(self, piece: str) -> str:
        return self.base + piece

    def push(self, *rows: Push) -> int:
        if self.tracked:
            self.seeds += 1
            head = ordered.RecordHead("job", f"{self.name.encode().hex():0>8}{self.seeds:010x}", "strict 100000000")
            return self.store.run(ordered.push_tracked(self.store.keys, self.name, self.collapse, head, rows))
        try:
            return self.store.run(ordered.push(self.store.keys, self.name, self.collapse, rows))
        except ordered.QueueTracked:
            self.tracked = True
            return self.push(*rows)

    def put(self, name: str | bytes, payload: bytes = b"1", score: float | str = "", when: float | str = "") -> int:
        """Push one payload."""
        return self.push(Push(name.encode() if isinstance(name, str) else name, str(when), str(score), payload))

    def join(self, *owners: str) -> None:
        for one in owners:
            held = self.store.keys.held(one, 1, self.name)
            self.store.run(leases.join(self.store.keys, one, [held], int(LOOK * 1000)))

    def claim(self, owner: str, claims: int = 10, *, extra: int = 0, size: int = 1, cap: int = 1000) -> Claimed:
        lease = int(LOOK * 1000)
        asked = (self.store.keys, owner, 1, self.name, claims, extra, size, cap, lease)
        try:
            return self.store.run(ordered.claim(*asked, tracked=self.tracked))
        except ordered.QueueTracked:
            return self.store.run(ordered.claim(*asked, tracked=True))

    def take(self, owner: str, **options: Any) -> list[tuple[int, ClaimedId]]:
        """(token, id) of everything that a claim brings."""
        return [(token, one) for token, ids in self.claim(owner, **options).claims for one in ids]

    def settle(self, owner: str, *verdicts: Verdict) -> list[int | bytes]:
        def send(rows: Sequence[Verdict], *, tracked: bool) -> list[int | bytes]:
            call = ordered.settle(
                self.store.keys,
                owner,
                1,
                self.name,
                rows,
                collapse=self.collapse,
                lease_ms=int(LOOK * 1000),
                day=DAY,
                tracked=tracked,
            )
            return self.store.run(call)

        if not self.tracked:
            try:
                return send(verdicts, tracked=False)
            except ordered.QueueTracked:
                pass
        return send([one._replace(error=_told(one)) for one in verdicts], tracked=True)

    def held(self, owner: str) -> dict[bytes, bytes]:
        return self.store.run(ordered.held(self.store.keys.held(owner, 1, self.name)))

    def bury(self, owner: str) -> None:
        self.store.run(leases.entomb(self.store.keys, owner, force=True))

    def free(self, owner: str, *, charge: bool = False, alone: bool = False) -> int:
        """Free all that ``held`` names."""
        key = self.store.keys.held(owner, 1, self.name)
        held = list(self.held(owner).items())
        return self.store.run(ordered.free(self.store.keys, owner, key, self.name, held, charge=charge, alone=alone))

    def leave(self, owner: str) -> None:
        """Gone without a tomb and without freeing: off the books by somebody's mistake."""
        self.store.ask("DEL", self.store.keys.lease(owner))
        self.store.ask("ZREM", self.store.keys.identities, owner)

    def declare(self, limit: int = 0, group_limit: int = 0, separator: str = "") -> None:
        call = ordered.declare(self.store.keys, self.name, limit=limit, group_limit=group_limit, separator=separator)
        self.store.run(call)

    def set_due(self, name: bytes, at: float) -> None:
        """Hold the clock: the id is due at ``at``."""
        self.store.ask("ZADD", self.key("due"), "XX", at, name)

    def overdue(self) -> None:
        """The time to look after everything that is in flight has come."""
        self.store.ask(
            "EVAL",
            "for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do redis.call('ZADD', KEYS[1], 'XX', 1, id) end",
            2,
            self.key("due"),
            self.key("busy"),
        )

    def silence(self) -> bool:
        """Take the marker away; whether it was set."""
        return bool(self.store.ask("DEL", self.key("wake")))

    def scores(self, piece: str) -> dict[bytes, float]:
        flat = self.store.ask("ZRANGE", self.key(piece), 0, -1, "WITHSCORES")
        return {flat[at]: float(flat[at + 1]) for at in range(0, len(flat), 2)}

    def table(self, piece: str) -> dict[bytes, bytes]:
        flat = self.store.ask("HGETALL", self.key(piece))
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def waiting(self, name: bytes) -> list[tuple[float, bytes]]:
        """(score, payload) of an id, lowest first, without what arrived while it was in flight."""
        single = self.store.ask("HGET", self.key("one"), name)
        flat = self.store.ask("ZRANGE", self.base.encode() + b"p:" + name, 0, -1, "WITHSCORES")
        return [ordered.unpacked(single)] if single else ordered.pairs(flat)

    def morgue(self, name: bytes) -> list[tuple[float, bytes]]:
        flat = self.store.ask("ZRANGE", self.base.encode() + b"m:" + name, 0, -1, "WITHSCORES")
        return ordered.pairs(flat)

    def left(self) -> set[str]:
        """What is left of the queue beside its settings and counters."""
        found = [key for key in self.store.ask("KEYS", "*") if key.startswith(self.base.encode())]
        return {key.decode("utf-8", "replace").removeprefix(self.base) for key in found} - {"meta", "stat", "wake"}

    def kept(self) -> Kept:
        """All of it, read in one script."""
        return _kept(self.store.ask("EVAL", _READ, 1, self.base))


def _told(one: Verdict) -> str:
    """A verdict's error as a tracked queue takes it."""
    detail = json.dumps({"ending": one.verdict})
    return json.dumps([one.error, STATUS_OF[one.verdict], detail, "1", "enqueued", detail])


_READ = """
local out, base = {}, KEYS[1]
for _, piece in ipairs({'due', 'next', 'retry', 'open', 'morgue', 'wake'}) do
  out[#out + 1] = redis.call('ZRANGE', base .. piece, 0, -1, 'WITHSCORES')
end
for _, piece in ipairs({'one', 'busy', 'err', 'crash', 'merr'}) do
  out[#out + 1] = redis.call('HGETALL', base .. piece)
end
for _, piece in ipairs({'p:', 'n:', 'm:', 'g:', 'k:'}) do
  local found = {}
  for _, key in ipairs(redis.call('KEYS', string.gsub(base, '[%[%]*?\\\\]', '\\\\%0') .. piece .. '*')) do
    found[#found + 1] = {string.sub(key, #base + 3), redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')}
  end
  out[#out + 1] = found
end
return out
"""


def _pairs(flat: list[bytes]) -> list[tuple[float, bytes]]:
    return [(float(flat[at + 1]), flat[at]) for at in range(0, len(flat), 2)]


def _scores(flat: list[bytes]) -> dict[bytes, float]:
    return {name: score for score, name in _pairs(flat)}


def _table(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _kept(raw: list[Any]) -> Kept:
    due, nexts, retry, opened, _, wake, one, busy, errors, crashes, morgue_errors, many, arrived, dead, inside, off = (
        raw
    )
    singles = {name: [(struct.unpack_from(">d", text)[0], text[8:])] for name, text in _table(one).items()}
    sets = {name: _pairs(flat) for name, flat in many}
    return Kept(
        _scores(due),
        singles | sets,
        {name: _pairs(flat) for name, flat in arrived},
        _scores(nexts),
        _table(busy),
        _scores(retry),
        _table(errors),
        {name: int(count) for name, count in _table(crashes).items()},
        {name: _pairs(flat) for name, flat in dead},
        _table(morgue_errors),
        _scores(opened),
        {name: _scores(flat) for name, flat in inside},
        {name: _scores(flat) for name, flat in off},
        set(sets),
        bool(wake),
        singles.keys() & sets.keys(),
    )
