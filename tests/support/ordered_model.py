"""A small model of an ordered queue in plain Python: what its scripts are held against.

It predicts all that is stored. Which ids a claim takes is not predicted but judged: each of them must have been free,
none that could be taken may be passed over, and if fewer were taken than could be, somebody must be woken.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

from henchman.store.ordered import Claimed, ClaimedId, Push, Verdict
from support.ordered import LOOK, Kept

__all__ = ["Id", "Model", "Window"]

Payloads = dict[bytes, float]  # stored bytes → score


@dataclass
class Window:
    """The server's time lay between these two while something happened."""

    start: float
    end: float

    def around(self, at: float, later: float = 0.0) -> bool:
        return self.start + later - 1e-5 <= at <= self.end + later + 1e-3


@dataclass
class Id:
    """What waits, or runs, under one id; ``payloads`` is frozen while it runs."""

    due: float | Window
    payloads: Payloads
    arrived: Payloads = field(default_factory=dict)
    arrived_due: float | Window | None = None
    token: int | None = None
    delivered: int = 0
    was_due: float = 0.0
    holder: str = ""
    retry_count: int | None = None
    error: bytes | None = None
    crashes: int = 0

    def lowest_first(self) -> list[tuple[float, bytes]]:
        return sorted((score, body) for body, score in self.payloads.items())


class Model:
    """One queue. Identities in ``gone`` were buried or have left; ``acked`` holds what must never be seen again."""

    def __init__(self, collapse: str, group_limit: int, limit: int) -> None:
        self.collapse = collapse
        self.group_limit = group_limit
        self.limit = limit
        self.ids: dict[bytes, Id] = {}
        self.morgue: dict[bytes, Payloads] = {}
        self.morgue_errors: dict[bytes, bytes] = {}
        self.open: dict[bytes, float] = {}
        self.gone: set[str] = set()
        self.arrivals = 0
        self.token = 0

    # Pushing

    def stored(self, body: bytes) -> bytes:
        if self.collapse == "none":
            self.arrivals += 1
            return b"\0" + _double(self.arrivals) + body
        return b"\0" + _double(0) + body if body.startswith(b"\0") else body

    def join(self, payloads: Payloads, body: bytes, score: float) -> None:
        if self.collapse == "latest":
            if all(score >= other for other in payloads.values()):
                payloads.clear()
                payloads[body] = score
        else:
            payloads[body] = min(score, payloads.get(body, math.inf))

    def push(self, rows: list[Push], window: Window) -> int:
        created = 0
        for row in rows:
            body, score = self.stored(row.payload), float(row.score)
            due: float | Window = window
            if row.when.startswith("+"):
                due = Window(window.start + float(row.when), window.end + float(row.when))
            elif row.when:
                due = float(row.when)
            known = self.ids.get(row.id)
            if known is None:
                self.ids[row.id] = Id(due, {body: score})
                created += 1
            elif known.token is None:
                self.join(known.payloads, body, score)
            else:
                self.join(known.arrived, body, score)
                known.arrived_due = due if known.arrived_due is None else known.arrived_due
        return created

    def thaw(self, one: Id) -> float | Window | None:
        """What arrived joins; its due time, if anything did."""
        at = one.arrived_due
        for body, score in one.arrived.items():
            self.join(one.payloads, body, score)
        one.arrived, one.arrived_due = {}, None
        return at

    # Claiming

    def group(self, name: bytes) -> bytes | None:
        return name.partition(b"/")[0] if b"/" in name and self.group_limit else None

    def lives(self, holder: str) -> bool:
        return holder not in self.gone

    def running(self, group: bytes) -> int:
        """Ids of a group in flight, the dead ones' too."""
        return sum(one.token is not None and self.group(name) == group for name, one in self.ids.items())

    def claimed(self, owner: str, asked: tuple[int, int, int, int], reply: Claimed, kept: Kept, window: Window) -> None:
        """RetryPolicy a claim, and take over what it did. ``asked``: claims, extra, size, cap."""
        claims, extra, size, cap = asked
        before = {name: (one.due, one.token is not None, one.holder) for name, one in self.ids.items()}
        self._close_overdue_claims(kept, window)
        assert len(reply.claims) <= claims + (0 if self.limit else extra)
        taken: dict[bytes, int] = {}
        for token, ids in reply.claims:
            assert token > self.token, "tokens rise"
            self.token = token
            assert 1 <= len(ids) <= size
            assert len(ids) == 1 or all(self._is_fresh(self.ids[one.id]) for one in ids), "who failed runs alone"
            for one in ids:
                assert one.id not in taken
                taken[one.id] = token
        self._healed(kept, window)
        for token, ids in reply.claims:
            for told in ids:
                self._take(owner, token, told, cap, before, kept)
            if self.limit:
                self.open[b"%d|%s" % (token, owner.encode())] = kept.open[b"%d|%s" % (token, owner.encode())]
        if self.limit and reply.claims:
            assert len(self.open) <= self.limit, "the ceiling"
        for group in {self.group(name) for name in taken} - {None}:
            assert self.running(group or b"") <= self.group_limit, "the limit of a group"
        self._looked_at(kept, before, taken, window)
        self._passed_over(taken, before, claims + (0 if self.limit else extra), size, kept, window)

    def _is_fresh(self, one: Id) -> bool:
        return one.retry_count is None and one.crashes == 0 and one.token is None

    def _take(
        self,
        owner: str,
        token: int,
        told: ClaimedId,
        cap: int,
        before: dict[bytes, tuple[float, bool, str]],
        kept: Kept,
    ) -> None:
        one = self.ids[told.id]
        due, held, holder = before[told.id]
        assert one.token is None, f"{told.id!r} has two holders"
        assert not held or not self.lives(holder)
        assert isinstance(due, float)
        lowest = one.lowest_first()
        assert told.payloads == [(score, _plain(body)) for score, body in lowest[:cap]]
        assert told.retry_count == (-1 if one.retry_count is None else one.retry_count)
        assert told.crashes == one.crashes
        one.token, one.holder = token, owner
        one.delivered = min(cap, len(lowest)) if told.id in kept.sets else 0
        recorded = kept.busy[told.id].split(b"|")
        assert recorded[:2] == [b"%d" % token, b"%d" % one.delivered]
        one.was_due = float(recorded[2])
        assert one.was_due == due or self.group(told.id), "it was due when it was due"
        one.due = Window(0, math.inf)

    def _close_overdue_claims(self, kept: Kept, window: Window) -> None:
        """Claims under the ceiling whose time to look has come: the dead ones' close, the others are put off."""
        for name, at in list(self.open.items()):
            if at <= window.end and self.limit:
                holder = name.partition(b"|")[2].decode()
                if not self.lives(holder):
                    del self.open[name]
                elif name in kept.open and kept.open[name] != at:
                    assert window.around(kept.open[name], LOOK)
                    self.open[name] = kept.open[name]

    def _healed(self, kept: Kept, window: Window) -> None:
        """Ids that the claim took away from holders that are gone: overdue ones only."""
        for name, one in self.ids.items():
            if one.token is not None and kept.busy.get(name, b"").split(b"|")[0] != b"%d" % one.token:
                assert not self.lives(one.holder), f"{name!r} was taken from a living holder"
                assert isinstance(one.due, float)
                assert one.due <= window.end, f"{name!r} was not overdue"
                self.open.pop(b"%d|%s" % (one.token, one.holder.encode()), None)
                one.crashes += one.crashes < 2
                one.token = None
                self.thaw(one)

    def _looked_at(
        self, kept: Kept, before: dict[bytes, tuple[float, bool, str]], taken: dict[bytes, int], window: Window
    ) -> None:
        """Times that the claim moved: of what it took, of what still runs, of what its group put off or let in."""
        for name, one in self.ids.items():
            now, was = kept.due[name], before[name][0]
            if name in taken:
                assert window.around(now, LOOK)
            elif now != was:
                group = self.group(name)
                if one.token is not None:
                    assert was <= window.end
                    assert window.around(now, LOOK), f"{name!r} is looked at again"
                else:
                    assert group is not None, f"{name!r} has no reason to wait"
                    assert name not in kept.put_off.get(group, {}) or now > window.start
            one.due = now

    def _passed_over(
        self,
        taken: dict[bytes, int],
        before: dict[bytes, tuple[float, bool, str]],
        most: int,
        size: int,
        kept: Kept,
        window: Window,
    ) -> None:
        """Nothing that could be taken stands before something taken, nor was left without waking somebody."""
        last = max((before[name][0] for name in taken), default=-math.inf)
        for name, one in self.ids.items():
            due = before[name][0]
            if name in taken or one.token is not None or due > window.start or kept.due[name] > window.end:
                continue
            group = self.group(name)
            assert due >= last or group, f"{name!r} was passed over"
            full = bool(self.limit) and len(self.open) >= self.limit
            assert kept.rung or full, f"{name!r} can run and nobody knows"

    # Ending

    def settle(self, owner: str, one_verdict: Verdict, window: Window) -> int:
        """What the status must be; the change."""
        one = self.ids.get(one_verdict.id)
        if one is None or one.token != one_verdict.token:
            return 0
        self.open.pop(b"%d|%s" % (one.token, one.holder.encode()), None)
        verdict, left = one_verdict.verdict, True
        at: float | Window = window
        if verdict == "done":
            for _, body in one.lowest_first()[: one.delivered or len(one.payloads)]:
                del one.payloads[body]
            left = bool(one.payloads)
        elif verdict == "to_morgue":
            score, body = one.lowest_first()[0]
            del one.payloads[body]
            dead = self.morgue.setdefault(one_verdict.id, {})
            dead[body] = min(score, dead.get(body, math.inf))
            self.morgue_errors[one_verdict.id] = one_verdict.error.encode()
            left = bool(one.payloads)
        elif verdict == "release":
            at = one.was_due
        else:
            at = Window(window.start + one_verdict.delay, window.end + one_verdict.delay)
        arrived = self.thaw(one)
        one.due = at if left or arrived is None else arrived
        one.token = None
        if verdict in ("done", "to_morgue"):
            one.retry_count, one.error, one.crashes = None, None, 0
        elif verdict == "retry":
            one.retry_count, one.error, one.crashes = one_verdict.retry_count, one_verdict.error.encode(), 0
        if not one.payloads:
            del self.ids[one_verdict.id]
        return 1

    def free(self, owner: str, *, charge: bool, alone: bool) -> int:
        freed = 0
        for one in self.ids.values():
            if one.token is not None and one.holder == owner:
                self.open.pop(b"%d|%s" % (one.token, owner.encode()), None)
                one.token = None
                one.due = one.was_due
                self.thaw(one)
                one.crashes += charge and (alone or one.crashes < 2)
                freed += 1
        return freed

    # Moving

    def move(self, target: Model, names: list[bytes], kept: Kept, there_kept: Kept) -> tuple[int, int, list[bytes]]:
        """What ``ordered.move`` must answer; the change. ``kept``, ``there_kept``: what the two were before."""
        in_flight, moved = [], 0
        for name in names:
            one, there = self.ids.get(name), target.ids.get(name)
            if one is None:
                continue
            if one.token is not None or (there and there.token is not None):
                in_flight.append(name)
                continue
            at = kept.put_off.get(self.group(name) or b"", {}).get(name, one.due)
            if there is not None:
                there.due = there_kept.put_off.get(target.group(name) or b"", {}).get(name, there.due)
            if there is None:
                there = target.ids[name] = Id(at, {}, retry_count=one.retry_count, error=one.error)
            elif one.retry_count is not None and (there.retry_count is None or one.retry_count > there.retry_count):
                there.due, there.retry_count, there.error = at, one.retry_count, one.error
            elif there.retry_count is None:
                assert isinstance(at, float)
                assert isinstance(there.due, float)
                there.due = min(at, there.due)
            there.crashes = max(there.crashes, one.crashes)
            for score, body in one.lowest_first():
                target.join(there.payloads, target.stored(_plain(body)), score)
            del self.ids[name]
            moved += 1
        return moved, sum(one.token is None for one in self.ids.values()), in_flight

    # Comparing

    def check(self, kept: Kept) -> None:
        """All that is stored is what the model holds; times that were not known exactly are taken over."""
        ids = self.ids
        assert not kept.both, "a single payload beside a set"
        assert kept.due.keys() == ids.keys() == kept.payloads.keys(), "an id has payloads if, and only if, it is due"
        busy = {name: one for name, one in ids.items() if one.token is not None}
        assert {
            name: (int(row.split(b"|")[0]), row.rstrip().split(b"|", 3)[3].decode()) for name, row in kept.busy.items()
        } == {name: (one.token, one.holder) for name, one in busy.items()}
        for name, one in ids.items():
            assert kept.payloads[name] == one.lowest_first(), name
            assert kept.arrived.get(name, []) == sorted((score, body) for body, score in one.arrived.items()), name
            self._let_in(name, kept.due[name])
            one.due = _known(one.due, kept.due[name], name)
            assert (name in kept.arrived_due) == bool(one.arrived), name
            if one.arrived_due is not None:
                one.arrived_due = _known(one.arrived_due, kept.arrived_due[name], name)
        assert kept.arrived.keys() == kept.arrived_due.keys() <= busy.keys()
        assert kept.retry == {name: one.retry_count for name, one in ids.items() if one.retry_count is not None}
        assert kept.errors == {name: one.error for name, one in ids.items() if one.error is not None}
        assert kept.crashes == {name: one.crashes for name, one in ids.items() if one.crashes}
        assert {name: {body: score for score, body in dead} for name, dead in kept.morgue.items()} == self.morgue
        assert kept.morgue_errors == self.morgue_errors
        assert kept.open == self.open
        for group, inside in kept.inside.items():
            assert inside.keys() <= busy.keys(), "only what runs holds a place in its group"
            assert all(self.group(name) == group for name in inside)
        for group, off in kept.put_off.items():
            assert off.keys() <= ids.keys() - busy.keys(), "only what waits is put off"
            assert all(self.group(name) == group for name in off)

    def _let_in(self, name: bytes, now: float) -> None:
        """An id that its group had put off is due at its time of before, when another has left."""
        one = self.ids[name]
        if self.group(name) and one.token is None and isinstance(one.due, float) and now < one.due:
            one.due = now


def _known(expected: float | Window, actual: float, name: bytes) -> float:
    if isinstance(expected, Window):
        assert expected.around(actual), f"{name!r} is due at {actual}, not {expected}"
    else:
        assert abs(actual - expected) < 1e-5, f"{name!r} is due at {actual}, not {expected}"
    return actual


def _double(number: int) -> bytes:
    return struct.pack(">d", number)


def _plain(body: bytes) -> bytes:
    return body[9:] if body.startswith(b"\0") else body
