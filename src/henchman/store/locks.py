"""Locks of business keys as calls; what they promise stands in ``lua/lib/locks.lua`` and the scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from henchman.store.call import Arg, Call, Page, Pages, command, commands, load, script
from henchman.store.jobs import leased
from henchman.store.keys import Keys
from henchman.store.queues import raw

__all__ = [
    "PHASES",
    "ClaimAnswer",
    "Claimant",
    "Doubt",
    "Drawn",
    "HeldKey",
    "Memory",
    "Parked",
    "Queued",
    "claim",
    "counts",
    "distrust",
    "doubts",
    "held",
    "in_doubt",
    "latest",
    "lines",
    "look",
    "look_later",
    "page",
    "parked",
    "pieces_of",
    "scopes",
    "trust",
    "unlock",
    "waiting",
]

_CLAIM = load("claim")
_UNLOCK = load("unlock")
_LOOK = load("key_look")

#: letter → what people call the time for which a key is held
PHASES = {"o": "once", "u": "until_success", "w": "queued", "r": "running", "f": "followed"}


class Claimant(NamedTuple):
    """A job that is about to start. ``pair`` counts the lists it may lie in from 1; ``conflict``: "skip" or "wait";
    ``member``: the batch of a tracked job, "-" when it is of none, "" when it is not tracked; ``limits``: as
    ``work/limits.py`` writes them, "" for none."""

    payload: bytes
    jid: str
    name: str
    pair: int
    scope: str
    phases: str
    conflict: str = "wait"
    member: str = ""
    limits: str = ""


class ClaimAnswer(NamedTuple):
    """An answer: it may start with ``token`` and the arguments of ``latest`` (empty: its own); or ``holder`` runs, and
    it is ``parked`` or is to be skipped; or it is not in flight any more (nothing of this); or ``refused`` says why.
    ``limit`` keeps it out: it waits for a place or for its time; or it does not, for it would be so many seconds,
    ``wait``, which is longer than it wants to wait."""

    token: int = 0
    latest: bytes = b""
    holder: str = ""
    parked: bool = False
    refused: str = ""
    limit: str = ""
    wait: float = 0.0
    behind: bool = False  # it may start with ``token`` when a job of this process ends that has its places


class Drawn(NamedTuple):
    """One that waited longest for a place: it came into the list of ``pair``, to wait behind those of this process."""

    pair: int
    payload: bytes
    token: int


def claim(
    keys: Keys, identity: str, pairs: Sequence[tuple[str, str]], claimants: Sequence[Claimant], lease_ms: int
) -> Call[tuple[list[ClaimAnswer], list[Drawn]]]:
    """Let jobs start, or wait for who runs; and who came from a line to wait behind. ``pairs`` are (in-flight list,
    queue key). LeaseLost, LeaseLapsed."""
    names = [keys.queues, keys.lease(identity), keys.tomb(identity), *chain.from_iterable(pairs)]
    args: list[Arg] = [lease_ms]
    for payload, jid, name, pair, scope, phases, conflict, member, limits in claimants:
        args += (f"{pair}\n{phases}\n{conflict}\n{scope}\n{limits}\n{member}", payload, jid, name)
    return script(_CLAIM, names, args, lambda reply: _answers(reply, len(claimants)), again=True)


def _answers(reply: Any, asked: int) -> tuple[list[ClaimAnswer], list[Drawn]]:
    if type(reply) is int:
        return [ClaimAnswer(token) for token in range(reply, reply + asked)], []
    leased(reply)
    return [_answer(one) for one in reply[:asked]], [Drawn(*one[1:]) for one in reply[asked:]]


def _answer(reply: Any) -> ClaimAnswer:
    if isinstance(reply, bytes):
        return ClaimAnswer(refused=reply.decode("utf-8", "replace"))
    match reply:
        case [1, token, latest]:
            return ClaimAnswer(token, latest)
        case [7, token]:
            return ClaimAnswer(token, behind=True)
        case [2 | 3 as how, holder]:
            return ClaimAnswer(holder=holder.decode("utf-8", "replace"), parked=how == 2)
        case [4 | 5, limit, _]:
            return ClaimAnswer(parked=True, limit=_text(limit))
        case [6, limit, wait]:
            return ClaimAnswer(limit=_text(limit), wait=float(wait))
    return ClaimAnswer()


def unlock(keys: Keys, phase: str, scope: str, name: str, jid: str) -> Call[bool]:
    """Take the key from ``jid``, empty: nobody, and give it to the next in line; False when another holds it. After a
    lost answer always True: that job does not hold it any more."""
    return script(_UNLOCK, [keys.queues], [phase, scope, name, jid], bool, again=True, decode_again=lambda reply: True)


class HeldKey(NamedTuple):
    """Who holds a key in one phase (a letter of ``PHASES``), since when (Unix seconds by the server), and how many
    wait: for the key, or in ``o`` and ``f`` for the success of its job."""

    phase: str
    scope: str
    name: str
    jid: str
    since: float
    waiting: int = 0


class Memory(NamedTuple):
    """How the last job of a ``once`` or followed key ended: ``s`` it succeeded, ``f`` it failed, ``x`` it is over
    without success; ``until`` (Unix seconds), at most."""

    letter: str
    jid: str
    until: float


def look(keys: Keys, scope: str, name: str, once_for: int) -> Call[tuple[list[HeldKey], Memory | None]]:
    """Who holds a key, phase by phase, with how many wait for it, and what is remembered of it."""

    def read(reply: Any) -> tuple[list[HeldKey], Memory | None]:
        held = [
            HeldKey(phase, scope, name, _text(row[0]), float(row[1]), row[2])
            for phase, row in zip(PHASES, reply[:-1], strict=True)
            if row
        ]
        last = reply[-1]
        memory = Memory(_text(last[0]), _text(last[1]), float(last[2])) if last else None
        return held, memory

    return script(_LOOK, [keys.queues], [scope, name, once_for], read, again=True)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _held(phase: str, scope: str, name: bytes, value: bytes) -> HeldKey:
    """A field of a lock: "<jid> <since> <digest>"."""
    jid, _, rest = _text(value).rpartition(" ")[0].rpartition(" ")
    try:
        since = float(rest.removesuffix("d"))  # it is dead
    except ValueError:  # written by somebody else
        jid, since = _text(value), 0.0
    return HeldKey(phase, scope, _text(name), jid, since)


def scopes(keys: Keys) -> Call[list[str]]:
    """Every scope in which a key was ever held, sorted."""
    return command("SMEMBERS", keys.scopes, decode=lambda reply: sorted(_text(one) for one in reply))


def counts(keys: Keys, scopes: Sequence[str]) -> Call[list[dict[str, int]]]:
    """How many keys are held in each of these scopes (at least one), by phase."""

    def read(replies: Any) -> list[dict[str, int]]:
        rows = [replies[at : at + len(PHASES)] for at in range(0, len(replies), len(PHASES))]
        return [{phase: int(one) for phase, one in zip(PHASES, row, strict=True)} for row in rows]

    return commands(*(("HLEN", keys.lock(phase, one)) for one in scopes for phase in PHASES), decode=read)


def page(keys: Keys, phase: str, scope: str, cursor: int, step: int = 500) -> Call[tuple[int, list[HeldKey]]]:
    """One step of a scan over the keys that are held: the next cursor, 0 at the end, and what was found."""

    def read(reply: Any) -> tuple[int, list[HeldKey]]:
        pairs = reply[1].items() if isinstance(reply[1], dict) else zip(reply[1][::2], reply[1][1::2], strict=True)
        return int(reply[0]), [_held(phase, scope, name, value) for name, value in pairs]

    return command("HSCAN", keys.lock(phase, scope), cursor, "COUNT", step, decode=read)


def held(keys: Keys, scope: str) -> Pages[HeldKey]:
    """Every key of a scope that is held, page by page, in no order."""
    for phase in PHASES:
        cursor = -1
        while cursor:
            cursor, found = yield page(keys, phase, scope, max(cursor, 0))
            yield Page(found)


def pieces_of(row: bytes) -> list[bytes] | None:
    """The parts of a parked row: queue, due, reason, tracked, payload; None of a row that is not ours."""
    pieces = row.split(b"\n", 4)
    if len(pieces) > 3 and pieces[3].startswith(b"{"):  # of a version whose rows told nothing to the history
        pieces = [*pieces[:3], b"", b"\n".join(pieces[3:])]
    return pieces if len(pieces) == 5 else None


class Parked(NamedTuple):
    """A job that waits for a key: its queue, why it waits, its payload."""

    queue: str
    reason: str
    payload: bytes


def parked(keys: Keys, jids: Sequence[str]) -> Call[list[Parked | None]]:
    """Those of these jobs (at least one) that wait for a key; None for the others."""

    def read(rows: list[bytes | None]) -> list[Parked | None]:
        found: list[Parked | None] = []
        for row in rows:
            pieces = None if row is None else pieces_of(row)
            found.append(None if pieces is None else Parked(_text(pieces[0]), _text(pieces[2]), pieces[4]))
        return found

    return command("HMGET", keys.parked, *map(raw, jids), decode=read)


def latest(keys: Keys, jid: str) -> Call[bytes | None]:
    """The payload with newer arguments that a job will start with."""
    return command("HGET", keys.latest, raw(jid))


class Doubt(NamedTuple):
    """A key that keeps somebody out, who holds it (empty: nobody), since when, and how many wait for it."""

    member: bytes
    phase: str
    scope: str
    name: str
    jid: str
    since: float
    waiting: int


def line_of(phase: str, scope: str, name: str) -> str:
    """The line of who waits for a key that is held in ``phase``."""
    return f"{'n' if phase in 'of' else phase}{scope}\n{name}"


def doubts(keys: Keys, most: int) -> Call[list[bytes]]:
    """The keys that keep somebody out, those first that are to be looked at first: "<phase> <scope>\\n<key>"."""
    return command("ZRANGE", keys.doubt, 0, most - 1, decode=list)


def in_doubt(keys: Keys, members: Sequence[bytes]) -> Call[tuple[float, list[Doubt]]]:
    """The server's time, and what is known of these keys (at least one)."""
    parts: list[tuple[Arg, ...]] = [("TIME",)]
    named = []
    for member in members:
        phase, _, rest = _text(member).partition(" ")
        scope, _, name = rest.partition("\n")
        named.append((member, phase, scope, name))
        parts += [("HGET", keys.lock(phase, scope), name), ("ZCARD", keys.awaits(line_of(phase, scope, name)))]

    def read(replies: Any) -> tuple[float, list[Doubt]]:
        (seconds, micro), found = replies[0], list[Doubt]()
        for (member, phase, scope, name), value, waiting in zip(named, replies[1::2], replies[2::2], strict=True):
            held = HeldKey(phase, scope, name, "", 0.0) if value is None else _held(phase, scope, name.encode(), value)
            found.append(Doubt(member, phase, scope, name, held.jid, held.since, int(waiting)))
        return int(seconds) + int(micro) / 1e6, found

    return commands(*parts, decode=read)


def look_later(keys: Keys, times: Mapping[bytes, float]) -> Call[int]:
    """When to look at these keys (at least one) again (Unix seconds), as far as they are in doubt still."""
    pairs = [part for member, at in times.items() for part in (f"{at:.6f}", member)]
    return command("ZADD", keys.doubt, "XX", *pairs, decode=int)


def distrust(keys: Keys, member: bytes, at: float) -> Call[int]:
    """A key keeps somebody out: look at it from then on (Unix seconds)."""
    return command("ZADD", keys.doubt, "NX", f"{at:.6f}", member, decode=int)


def trust(keys: Keys, members: Sequence[bytes]) -> Call[int]:
    """These keys (at least one) are in doubt no longer."""
    return command("ZREM", keys.doubt, *members, decode=int)


class Queued(NamedTuple):
    """Who waits in a line: the first of them, and how many there are. ``phase``: ``u`` or ``r`` for the key, ``n`` for
    the success of its job."""

    phase: str
    jids: list[str]
    many: int


def lines(keys: Keys, scope: str, name: str, most: int) -> Call[list[Queued]]:
    """Who waits for a key, and for its job: at most so many of each line, in their order."""
    parts: list[tuple[Arg, ...]] = []
    for phase in "urn":
        line = keys.awaits(f"{phase}{scope}\n{name}")
        parts += [("ZRANGE", line, 0, most - 1), ("ZCARD", line)]

    def read(replies: Any) -> list[Queued]:
        pairs = zip("urn", replies[::2], replies[1::2], strict=True)
        return [
            Queued(one, [jid.decode("utf-8", "surrogateescape") for jid in jids], many) for one, jids, many in pairs
        ]

    return commands(*parts, decode=read)


def waiting(keys: Keys, phase: str, scope: str, name: str, after: float, most: int) -> Call[list[tuple[str, float]]]:
    """Who waits for a key in ``phase`` (``n``: for the success of its job), in their order behind the place ``after``:
    jid and place of at most so many."""

    def read(reply: Any) -> list[tuple[str, float]]:
        pairs = zip(reply[::2], reply[1::2], strict=True)
        return [(one.decode("utf-8", "surrogateescape"), float(place)) for one, place in pairs]

    line = keys.awaits(f"{phase}{scope}\n{name}")
    return command("ZRANGE", line, f"({after!r}", "+inf", "BYSCORE", "LIMIT", 0, most, "WITHSCORES", decode=read)
