"""What the history was told of the payloads of ordered queues, and whether that is what the server holds of them."""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

from henchman.history.stream import unbundled
from support.ordered import OrderedQueue
from support.store import Store

__all__ = ["Records", "Step"]

WAITING = ("enqueued", "scheduled", "retrying")
OVER = ("finished", "failed", "error", "cancelled")


class Step(NamedTuple):
    """A change of a record."""

    status: str
    attempt: str
    identity: str
    detail: dict[str, Any]


class Records:
    """Every record by jid, each a list of its changes."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.lives: dict[str, list[Step]] = {}
        self._after = "-"

    def read(self) -> dict[str, list[Step]]:
        """Take in what the stream has got since."""
        entries = self.store.ask("XRANGE", self.store.keys.history, self._after, "+")
        for _, flat in unbundled(entries):
            told = dict(zip(flat[::2], flat[1::2], strict=True))
            if told[b"k"] == b"job":
                step = Step(told[b"s"].decode(), told[b"a"].decode(), told[b"w"].decode(), _read(told[b"d"]))
                self.lives.setdefault(told[b"j"].decode(), []).append(step)
        if entries:
            self._after = "(" + entries[-1][0].decode()
        return self.lives

    def of(self, queue: OrderedQueue, payload: Any, name: str = "a") -> list[Step]:
        """The life of the one push of this payload."""
        [life] = [life for life in self.read().values() if life[0].detail.get("args") == [name, payload]]
        return life

    def words(self, queue: OrderedQueue, payload: Any, name: str = "a") -> list[str]:
        """Its statuses, in order."""
        return [step.status for step in self.of(queue, payload, name)]

    def agree(self, queues: list[OrderedQueue]) -> None:
        """Each payload that was pushed with a record has one, which says where it is; every other record is over."""
        lives, alive = self.read(), {}
        for queue in queues:
            alive |= self._alive(queue)
        for jid, life in lives.items():
            assert life[0].detail.get("args"), f"{jid} has no beginning: {life}"
            assert life[-1].status in alive.get(jid, OVER), f"{jid} is {alive.get(jid, 'gone')}, its life: {life}"
        assert alive.keys() <= lives.keys()
        assert not self.store.ask("EXISTS", self.store.keys.broken)

    def _alive(self, queue: OrderedQueue) -> dict[str, tuple[str, ...]]:
        """jid → what its status may be."""
        found: dict[str, tuple[str, ...]] = {}
        base, kept = queue.base.encode(), queue.kept()
        piles = {"jp:": kept.payloads, "jn:": kept.arrived, "jm:": kept.morgue}
        hashes = [key for key in self.store.ask("KEYS", "*") if key.startswith(base + b"j")]
        for key in hashes:
            kind, name = key[len(base) : len(base) + 3].decode(), key[len(base) + 3 :]
            flat = self.store.ask("HGETALL", key)
            jids = dict(zip(flat[::2], flat[1::2], strict=True))
            bodies = [body for _, body in piles[kind].get(name, [])]
            assert jids.keys() <= {_field(one) for one in bodies}, f"{key!r} names what is gone"
            if queue.tracked_from_birth:
                assert len(jids) == len(bodies), f"a payload of {key!r} has no record"
            record = kept.busy.get(name, b"||").split(b"|") if kind == "jp:" else [b"", b""]
            many = max(int(record[1] or 0), 1) if record[0] else 0
            for place, body in enumerate(bodies):
                jid = jids.get(_field(body))
                if jid is not None:
                    assert jid.decode() not in found, "two payloads under one record"
                    here = ("working",) if place < many else ("error",) if kind == "jm:" else WAITING
                    found[jid.decode()] = here
        if queue.tracked_from_birth:
            for kind, pile in piles.items():
                assert {base + kind.encode() + name for name, bodies in pile.items() if bodies} <= set(hashes)
        return found


def _field(body: bytes) -> bytes:
    return hashlib.sha1(body).hexdigest().encode() if len(body) > 40 else body  # noqa: S324 - as the script does


def _read(detail: bytes) -> dict[str, Any]:
    """A payload that is no JSON makes its detail none."""
    try:
        found: dict[str, Any] = json.loads(detail)
    except ValueError:
        return {"args": detail}
    return found
