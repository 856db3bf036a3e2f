"""Jobs that wait for others, as calls; what they promise stands in ``lua/lib/needs.lua`` and the scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from henchman.store.call import Arg, Call, command, commands, load, script
from henchman.store.keys import Keys
from henchman.store.locks import pieces_of
from henchman.store.queues import raw

__all__ = [
    "Blocked",
    "NeedState",
    "ParkEnd",
    "StepFacts",
    "WaitingJob",
    "blocked",
    "blocked_page",
    "decided",
    "line",
    "need_states",
    "park_end",
    "park_ends",
    "release_page",
    "row_order",
    "step_facts",
    "step_jobs",
    "waiting_on",
    "waits_until",
]

_PARK_END = load("park_end")
_RELEASE_PAGE = load("release_page")
_WAITING_PAGE = load("waiting_page")
_BLOCKED_PAGE = load("blocked_page")
_BLOCKED_LOOK = load("blocked_look")
_NEED_STATES = load("need_states")
_DECIDED = load("decided")


class Blocked(NamedTuple):
    """A parked job: ``due`` is a Unix time or empty; ``reason``: ``running``, ``key <digest>``, ``needs`` or
    ``needs <dead|over> <unix time> <label>``; ``tracked``: effects that are carried out when it goes on; ``missing``:
    (scope, name) that it still waits for, where it has several needs, else empty: the one that its payload tells.
    ``row`` is all of it as it stands, the fence of ``park_end``.
    """

    jid: str
    queue: str
    due: str
    reason: str
    payload: bytes
    missing: list[tuple[str, str]]
    tracked: bytes = b""
    row: bytes = b""

    def with_reason(self, reason: str) -> bytes:
        """The row with another reason, one line."""
        words = raw(" ".join(reason.split()))
        return b"\n".join((raw(self.queue), raw(self.due), words, self.tracked, self.payload))


def _text(found: bytes) -> str:
    return found.decode("utf-8", "surrogateescape")


def _blocked(jid: bytes, row: bytes, lines: Sequence[bytes]) -> Blocked:
    """A row that is not ours has no queue and is all payload: it can be looked at, and ended."""
    queue, due, reason, tracked, payload = pieces_of(row) or (b"", b"", b"", b"", row)
    missing = [tuple(_text(one[1:]).split("\n", 1)) for one in sorted(lines) if one.startswith(b"n") and b"\n" in one]
    return Blocked(_text(jid), _text(queue), _text(due), _text(reason), payload, missing, tracked, row)  # type: ignore[arg-type]


def line(scope: str, name: str) -> str:
    """The line of who waits for this need."""
    return f"n{scope}\n{name}"


class ParkEnd(NamedTuple):
    """What becomes of a parked job, see ``park_end.lua``. ``lines``: where it may stand beside those of its set."""

    jid: str
    where: str
    name: str
    old_row: bytes
    new: bytes
    effects: bytes = b""
    lines: Sequence[str] = ()


def park_ends(keys: Keys, ends: Sequence[ParkEnd], *, dead_max: int, dead_timeout: float) -> Call[list[int | bytes]]:
    """One status for each of ``ends``: 1 done, 2 others are still missing, 0 its row has changed: nothing was done,
    bytes: what the server said that refused it. It may be sent again."""
    args: list[Arg] = [dead_max, dead_timeout]
    for one in ends:
        lines = msgspec.json.encode([_text(raw(each)) for each in one.lines])
        args += (raw(one.jid), one.where, raw(one.name), one.old_row, one.new, one.effects, lines)
    return script(_PARK_END, [keys.queues], args, list, again=True)


def park_end(
    keys: Keys,
    jid: str,
    where: str,
    name: str,
    old_row: bytes,
    new_payload: bytes,
    effects: bytes,
    *,
    lines: Sequence[str] = (),
    dead_max: int = 10_000,
    dead_timeout: float = 180 * 86400,
) -> Call[int | str]:
    """``park_ends`` of one job; a refusal as text. ``where``: "queue" (its wait is over: into its queue or the
    schedule; no effects, those of its row are carried out), "nowhere", "dead" (of the batch ``name``), "stays"
    (``new_payload`` is the whole row)."""
    one = ParkEnd(jid, where, name, old_row, new_payload, effects, lines)
    many = park_ends(keys, [one], dead_max=dead_max, dead_timeout=dead_timeout)
    return Call(many.name, many.parts, _one_status, again=True, script=many.script)


def _one_status(reply: Any) -> int | str:
    status = reply[0]
    return status if isinstance(status, int) else _text(status)


def waits_until(keys: Keys, jids: Sequence[str]) -> Call[list[float | None]]:
    """Until when (Unix seconds) each of these parked jobs, one at least, waits at most; None: for ever."""
    names = [raw(one) for one in jids]
    return command(
        "ZMSCORE",
        keys.parked_until,
        *names,
        decode=lambda reply: [None if one is None else float(one) for one in reply],
    )


def blocked_page(keys: Keys, cursor: int, step: int = 100) -> Call[tuple[int, list[Blocked]]]:
    """One step of a scan over all that is parked: the next cursor, 0 at the end, and about ``step`` jobs, or 4 MB."""

    def read(reply: Any) -> tuple[int, list[Blocked]]:
        return int(reply[0]), [_blocked(*one) for one in reply[1:]]

    return script(_BLOCKED_PAGE, [keys.queues], [cursor, step], read, again=True)


def blocked(keys: Keys, jids: Sequence[str]) -> Call[list[Blocked | None]]:
    """These jobs (at least one) as far as they are parked; fewer answers when they reach 4 MB: ask for the rest."""

    def read(reply: Any) -> list[Blocked | None]:
        return [None if one[1] is None else _blocked(*one) for one in reply]

    return script(_BLOCKED_LOOK, [keys.queues], [raw(one) for one in jids], read, again=True)


class WaitingJob(NamedTuple):
    """A place in the line of a need: ``token`` counts up; ``job`` is None when it is not parked any more."""

    token: int
    jid: str
    job: Blocked | None


def waiting_on(keys: Keys, scope: str, name: str, after_token: int = 0, most: int = 100) -> Call[list[WaitingJob]]:
    """Who waits for a need, in order, behind a token: at most ``most``, or 4 MB; an empty list at the end."""

    def read(reply: Any) -> list[WaitingJob]:
        return [
            WaitingJob(int(float(token)), _text(jid), None if row is None else _blocked(jid, row, lines))
            for token, jid, row, lines in reply
        ]

    return script(_WAITING_PAGE, [keys.queues], [raw(scope), raw(name), after_token, most], read, again=True)


class NeedState(NamedTuple):
    """What became of a need: ``letter`` l its job lives, d is dead, s succeeded, f failed, x is over without success,
    "" nobody knows. ``since``: Unix time from which its job has the key, 0 when that is not told."""

    letter: str
    jid: str
    since: float


def need_states(keys: Keys, needs: Sequence[tuple[str, str, int]]) -> Call[list[NeedState]]:
    """The states of ``needs`` (scope, name, once_for; at least one)."""
    args: list[Arg] = []
    for scope, name, once_for in needs:
        args += (raw(scope), raw(name), once_for)
    return script(_NEED_STATES, [keys.queues], args, lambda reply: [_state(*one) for one in reply], again=True)


def _state(letter: bytes, jid: bytes, since: bytes) -> NeedState:
    try:
        return NeedState(_text(letter), _text(jid), float(since))
    except ValueError:  # a lock that somebody else wrote
        return NeedState(_text(letter), _text(jid), 0.0)


def release_page(keys: Keys, entry: bytes, most: int) -> Call[tuple[int, int, str]]:
    """Let up to ``most`` go of those whose need was met; how many went, how many are left, and a refusal, if any."""

    def read(reply: Any) -> tuple[int, int, str]:
        return int(reply[0]), int(reply[1]), _text(reply[2])

    return script(_RELEASE_PAGE, [keys.queues], [entry, most], read, again=True)


def decided(keys: Keys, entry: bytes, left: Sequence[bytes] = ()) -> Call[bool]:
    """Strike a decision; what is ``left`` of it comes last. False when another process struck it."""
    return script(_DECIDED, [keys.decide], [entry, *left], bool, again=True)


# ---- steps of a workflow


def step_jobs(keys: Keys, batch: str, cursor: int, step: int) -> Call[tuple[int, dict[str, tuple[str, str]]]]:
    """One step of a scan over the steps of a workflow: (next cursor, 0 at the end; step → jid and name of its job)."""

    def read(reply: Any) -> tuple[int, dict[str, tuple[str, str]]]:
        found = reply[1].items() if isinstance(reply[1], dict) else zip(reply[1][::2], reply[1][1::2], strict=True)
        parts = {_text(name): _text(job).partition(" ") for name, job in found}
        return int(reply[0]), {name: (one[0], one[2]) for name, one in parts.items()}

    return command("HSCAN", keys.batch(batch) + ":names", cursor, "COUNT", step, decode=read)


def row_order(keys: Keys, batch: str, most: int) -> Call[list[str]]:
    """The jids of a batch that keeps results, in the order in which they were pushed; at most ``most``."""
    rows = keys.batch(batch) + ":rows"
    return command("LRANGE", rows, 0, most - 1, decode=lambda reply: [_text(one.partition(b" ")[2]) for one in reply])


class StepFacts(NamedTuple):
    """What is known of a step: ``live``, its status while it has not ended; ``letter`` s, f, x or d afterwards;
    ``size``: of what its batch keeps of it, in bytes."""

    live: str
    letter: str
    size: int


def step_facts(keys: Keys, batch: str, names: Sequence[str], jids: Sequence[str]) -> Call[list[StepFacts]]:
    """How these steps (at least one) of a workflow stand."""
    key = keys.batch(batch)

    def read(replies: Any) -> list[StepFacts]:
        live, letters, *sizes = replies
        rows = zip(live, letters, sizes, strict=True)
        return [StepFacts(_text(one or b""), _text(letter or b""), int(size)) for one, letter, size in rows]

    lengths = (("HSTRLEN", key + ":results", jid) for jid in jids)
    return commands(("HMGET", key + ":jobs", *jids), ("HMGET", key + ":steps", *names), *lengths, decode=read)
