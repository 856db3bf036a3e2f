"""What people see of an ordered queue: its figures, and one id with all that belongs to it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from henchman.inspector.entry import text_of
from henchman.store.ordered_people import Figures, Held, IdLook, Pile
from henchman.wire import jsontext, times

__all__ = ["Holder", "OrderedId", "OrderedPayload", "OrderedStats", "State", "id_of", "stats_of"]

State = Literal["waiting", "retrying", "in flight", "dead", "absent"]


class OrderedStats(NamedTuple):
    """The figures of an ordered queue at one moment. ``length``: ids that wait, those in flight (``busy``) not counted;
    of these ``fresh`` never failed and ``retries`` did. ``lag``: seconds since the first of them was due, 0 when none
    is. ``processed``: ids that ended well; ``failed``: runs of an id that did not. ``max_parallel``: claims at a time,
    None: no limit; ``max_parallel_from``: "set" by hand, "code", or "" where nobody said. ``max_per_group`` as well.
    """

    name: str
    length: int
    morgue_length: int
    lag: float
    busy: int
    fresh: int
    retries: int
    processed: int
    failed: int
    paused: bool
    max_parallel: int | None
    max_parallel_from: str
    max_per_group: int | None

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs."""
        return self._asdict()


def stats_of(name: str, seen: Figures) -> OrderedStats:
    """The figures as people count."""
    length, retries = seen.known - seen.busy, seen.failed - seen.failed_busy
    limit = seen.defined if seen.limit is None else seen.limit
    return OrderedStats(
        name=name,
        length=length,
        morgue_length=seen.morgue,
        lag=seen.lag,
        busy=seen.busy,
        fresh=length - retries,
        retries=retries,
        processed=seen.processed,
        failed=seen.failures,
        paused=seen.paused,
        max_parallel=limit or None,
        max_parallel_from="set" if seen.limit is not None else "code" if limit else "",
        max_per_group=seen.group_limit or None,
    )


class OrderedPayload(NamedTuple):
    """One payload with its score, as it is stored."""

    score: float
    payload: bytes

    @property
    def value(self) -> Any:
        """What was pushed, read as JSON; its text when it is none."""
        try:
            return jsontext.loads(self.payload)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return text_of(self.payload)

    @property
    def text(self) -> str:
        """The stored text."""
        return text_of(self.payload)

    def to_json(self) -> dict[str, Any]:
        """``score`` and ``payload``."""
        return {"score": self.score, "payload": self.value}


class Holder(NamedTuple):
    """Who has an id in flight: the process, the token of its claim, since when (Unix seconds), how many payloads it was
    given. ``lease_left``: seconds for which its lease still lives, None: it has none. ``alive``: it has one and was not
    declared dead; else its ids come back when the next lifeline looks.
    """

    identity: str
    token: int
    since: float
    delivered: int
    lease_left: float | None
    alive: bool

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs; ``token`` as text, because it passes what JavaScript counts exactly."""
        return self._asdict() | {"token": str(self.token), "since": times.iso(self.since)}


class OrderedId(NamedTuple):
    """One id of an ordered queue, at the time ``at`` (Unix seconds, the server's).

    ``payloads`` wait, or are in flight with ``holder``; ``arrivals`` came while it was; ``dead`` lie in the morgue.
    Each lowest score first, and only the first of many: ``…_count`` says how many there are. ``due``: when it may be
    taken (in flight: when it was due), None: nothing waits; ``put_off``: it waits until its group has room.
    ``retry_count``: -1 it never failed, 0 it failed once. ``crashes``: processes that died with it, in a row.
    ``arrivals_due``: when those are due if nothing else is left; ``died_at``: when the last of ``dead`` was buried,
    with ``dead_error``.
    """

    id: str
    at: float
    state: State
    due: float | None
    put_off: bool
    retry_count: int
    error: str | None
    crashes: int
    payloads: list[OrderedPayload]
    payload_count: int
    holder: Holder | None
    arrivals: list[OrderedPayload]
    arrival_count: int
    arrivals_due: float | None
    dead: list[OrderedPayload]
    dead_count: int
    died_at: float | None
    dead_error: str | None

    def to_json(self) -> dict[str, Any]:
        """Stable names for programs; times as ISO 8601 in UTC or null."""
        facts = self._asdict()
        for name in ("at", "due", "arrivals_due", "died_at"):
            facts[name] = times.iso(facts[name]) or None
        for name in ("payloads", "arrivals", "dead"):
            facts[name] = [one.to_json() for one in facts[name]]
        facts["holder"] = self.holder.to_json() if self.holder else None
        return facts


def id_of(at: float, seen: IdLook) -> OrderedId:
    """An id as people see it."""
    held = seen.held
    put_off = held is None and seen.put_off is not None
    return OrderedId(
        id=seen.id.decode("utf-8", "surrogateescape"),
        at=at,
        state=_state(seen),
        due=held.due if held else seen.put_off if put_off else seen.due,
        put_off=put_off,
        retry_count=seen.retry_count,
        error=None if seen.error is None else text_of(seen.error),
        crashes=seen.crashes,
        payloads=_payloads(seen.waiting),
        payload_count=seen.waiting.many,
        holder=_holder(held) if held else None,
        arrivals=_payloads(seen.arrivals),
        arrival_count=seen.arrivals.many,
        arrivals_due=seen.next_due,
        dead=_payloads(seen.dead),
        dead_count=seen.dead.many,
        died_at=seen.died_at,
        dead_error=None if seen.dead_error is None else text_of(seen.dead_error),
    )


def _state(seen: IdLook) -> State:
    if seen.held is not None:
        return "in flight"
    if seen.due is not None:
        return "retrying" if seen.retry_count >= 0 else "waiting"
    return "dead" if seen.dead.many else "absent"


def _holder(held: Held) -> Holder:
    left = None if held.lease_ms is None else held.lease_ms / 1000
    alive = left is not None and not held.buried
    return Holder(held.identity, held.token, held.token / 1e6, max(held.delivered, 1), left, alive)


def _payloads(pile: Pile) -> list[OrderedPayload]:
    return [OrderedPayload(*one) for one in pile.some]
