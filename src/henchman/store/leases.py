"""Processes as calls: their leases (join, renew, entomb, leave), their duties, their records, and what they are told.

A lease says who holds what, and for how long (PROTOCOL, sections 1 and 2); the records are Sidekiq's heartbeat (wire
format, section 11). A duty that one process at a time has is a key with a short life that holds the identity of its
leader. One script takes, prolongs and gives up a duty (``lead.lua``). Three scripts that a leader runs anyway do the
same in passing (``due``, ``watch`` and ``cron_look``, by ``lib/lead.lua``): their callers note in ``leads`` what the
answer says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from henchman.errors import LeaseLost, ServerError
from henchman.kernel.clock import ServerClock
from henchman.kernel.events import Events
from henchman.store.call import Arg, Call, Procedure, Runner, command, commands, load, script
from henchman.store.keys import Keys
from henchman.store.queues import Kind, raw, read_all

_JOIN = load("join")
_RENEW = load("renew")
_ENTOMB = load("entomb")
_LEAVE = load("leave")
_SIZES = load("sizes")
_WATCH = load("watch")
_BEAT = load("beat")
_HOLDERS = load("holders")
_SERVING = load("serving")
_ADOPT = load("adopt")

AT_ONCE = 1000  # leases in one look
HOLDERS = 250  # processes of which one look asks what they run
TOMB_MS = 3_600_000  # an hour: no frozen process holds bytes back for longer (PROTOCOL, section 2.3)
STANDS_MS = TOMB_MS + 120_000  # its lists are swept a little later: nobody may take the name again before that
_RECORD_LIFE = 60  # seconds at least: a record that nobody renews is gone
_SIGNAL_LIFE = 60  # seconds: a signal that nobody fetched is gone


def host_name() -> str:
    """The name of this host; the variable DYNO where it is set."""
    return os.environ.get("DYNO") or os.uname().nodename


def new_identity() -> str:
    """``<hostname>:<pid>:<12 hex digits>``, as Sidekiq names a process (wire format, section 11.1)."""
    return f"{host_name()}:{os.getpid()}:{os.urandom(6).hex()}"


def _number(reply: Any) -> int:
    if reply == b"LOST":
        raise LeaseLost("this process was declared dead by another one")
    return int(reply)


def _text(one: bytes) -> str:
    return one.decode("utf-8", "replace")


def _texts(reply: Iterable[bytes]) -> list[str]:
    return sorted(map(_text, reply))


def join(keys: Keys, identity: str, flight_lists: Sequence[str], lease_ms: int) -> Call[int]:
    """Take the lease and register the in-flight lists, before anything is fetched into them. Raises LeaseLost."""
    names = [keys.lease(identity), keys.tomb(identity), keys.identities, keys.lists_of(identity)]
    return script(_JOIN, names, [lease_ms, identity, *flight_lists], _number, again=True)


def renew(keys: Keys, identity: str, lease_ms: int) -> Call[int]:
    """1 renewed, 2 it had lapsed and was taken again. Raises LeaseLost."""
    return script(_RENEW, _renewing(keys, identity), [lease_ms, identity], lambda reply: _renewed(reply)[0], again=True)


def renew_known(keys: Keys, identity: str, lease_ms: int) -> Call[tuple[int, bool]]:
    """As ``renew``, and whether the server knows the in-flight lists of the identity: not when it lost its data."""
    return script(_RENEW, _renewing(keys, identity), [lease_ms, identity], _renewed, again=True)


def _renewing(keys: Keys, identity: str) -> list[str]:
    return [keys.lease(identity), keys.tomb(identity), keys.lists_of(identity), keys.tombs]


def _renewed(reply: Any) -> tuple[int, bool]:
    if reply == b"LOST":
        return _number(reply), False
    return int(reply[0]), bool(reply[1])


def renew_all(keys: Keys, identities: Sequence[str], lease_ms: int) -> Call[list[str]]:
    """Renew the leases of several identities (at least one) in one write; those that were declared dead by another
    process. One that is refused does not keep the others from being renewed, but its error is what is raised."""
    parts: list[tuple[Arg, ...]] = [
        ("EVALSHA", _RENEW.sha, 4, *_renewing(keys, one), lease_ms, one) for one in identities
    ]

    def lost(replies: Any) -> list[str]:
        answers = replies if len(parts) > 1 else [replies]
        return [one for one, answer in zip(identities, answers, strict=True) if answer == b"LOST"]

    return Call(_RENEW.name, parts, lost, again=True, script=_RENEW)


class Watch(NamedTuple):
    """What one look at the leases showed. ``turn``: whether it is ours; if not, ``left`` seconds of another's are left.

    ``expires``: by identity, the server's time in milliseconds at which its lease runs out; 0: it has. ``begun``: the
    identities whose rescue was begun. ``buried``: whether there are tombs; ``programs``: whether programs
    hold places of limits outside of jobs.
    """

    turn: bool
    left: float
    begun: list[str]
    expires: dict[str, int]
    buried: bool = False
    programs: bool = False


def watch(keys: Keys, identity: str, turn_ms: int, first: int = 0) -> Call[Watch]:
    """Take the turn to look after the dead, or keep it, and look at ``AT_ONCE`` leases, from the ``first`` on."""

    def read(reply: Any) -> Watch:
        turn, *rest = reply
        if not turn:
            return Watch(False, rest[0] / 1000, [], {})
        begun, buried, programs, *pairs = rest
        expires = {_text(pairs[i]): pairs[i + 1] for i in range(0, len(pairs), 2)}
        return Watch(True, 0.0, _texts(begun), expires, buried == 1, programs == 1)

    names = [keys.lifeline, keys.identities, keys.rescues, keys.leases, keys.tombs, keys.programs]
    return script(_WATCH, names, [identity, turn_ms, first, AT_ONCE], read, again=True)


def entomb(keys: Keys, identity: str, *, force: bool) -> Call[int]:
    """1 the identity is dead from now on; 0 its lease is alive and ``force`` is False."""
    names = [keys.lease(identity), keys.tomb(identity), keys.tombs]
    return script(_ENTOMB, names, [identity, STANDS_MS, int(force)], int, again=True)


def leave(keys: Keys, identity: str, flight_lists: Sequence[str]) -> Call[int]:
    """1 the identity is off the books; 0 one of its lists still holds something."""
    names = [keys.lease(identity), keys.identities, keys.lists_of(identity), *flight_lists]
    return script(_LEAVE, names, [identity], int, again=True)


def in_flight_lists(keys: Keys, identity: str) -> Call[list[str]]:
    """The registered in-flight lists of an identity."""
    return command("SMEMBERS", keys.lists_of(identity), decode=_texts)


def sizes(kinds: Mapping[str, str]) -> Call[list[int]]:
    """How much each in-flight key holds; ``kinds``: key → ``list``, or ``hash`` of an ordered queue."""
    return script(_SIZES, [*map(raw, kinds)], list(kinds.values()), list, again=True)


def unregister(keys: Keys, identity: str, flight: str) -> Call[int]:
    """Forget one in-flight list that nothing can reach any more."""
    return command("SREM", keys.lists_of(identity), flight, decode=int)


# Records of processes.


class Beat(NamedTuple):
    """What a beat brought back: signals that were waiting for us, oldest first."""

    first: bool
    signals: list[bytes]


def beat(
    keys: Keys,
    identity: str,
    facts: Mapping[str, Arg],
    work: Mapping[str, bytes],
    *,
    old_work: bool,
    every: float = 0.0,
) -> Call[Beat]:
    """Write the record and the running jobs of a process, which beats each ``every`` seconds; ``old_work``: also for
    readers up to 6.4.1."""
    work_keys = (keys.work(identity), keys.workers(identity)) if old_work else (keys.work(identity),)
    names = [keys.processes, keys.process(identity), keys.signals(identity), *work_keys]
    args: list[Arg] = [identity, max(_RECORD_LIFE, int(3 * every))]
    for which, table in (("record", facts), ("work", work)):
        for name, value in table.items():
            args += (which, name, value)
    return script(_BEAT, names, args, lambda reply: Beat(not reply[0], list(reversed(reply[1:]))), again=True)


def strike_off(keys: Keys, identity: str, *, holds: bool = False) -> Call[Any]:
    """Take a stopped process off the list. Of one that still ``holds`` something the mark that it was told to stop
    stays: whoever rescues that charges no job."""
    return commands(
        ("SREM", keys.processes, identity),
        *([] if holds else [("ZREM", keys.stopping, identity)]),
        ("UNLINK", keys.work(identity), keys.workers(identity), keys.process(identity)),
    )


def record(keys: Keys, identity: str) -> Call[tuple[dict[str, str], dict[str, bytes]]]:
    """The record of a process and its running jobs by slot; both empty when it is gone."""

    def read(replies: list[Any]) -> tuple[dict[str, str], dict[str, bytes]]:
        facts, work = (_pairs(reply) for reply in replies)
        return {name: value.decode("utf-8", "replace") for name, value in facts.items()}, work

    return commands(("HGETALL", raw(keys.process(identity))), ("HGETALL", raw(keys.work(identity))), decode=read)


_STACKS_LIFE, _STACKS_BYTES = 900, 65_536


def keep_stacks(keys: Keys, identity: str, text: str) -> Call[Any]:
    """Keep where every thread of a process stands, for those who look at it from elsewhere."""
    shown = text.encode("utf-8", "backslashreplace")[:_STACKS_BYTES]
    return command("SET", raw(keys.stacks(identity)), shown, "EX", _STACKS_LIFE)


class Holding(NamedTuple):
    """What the server holds of a process beside its record. ``listed``: it is among the processes; ``lease``: seconds
    that its lease lasts still, None: it has none; ``entombed``: it was declared dead; ``lists``: keys of its in-flight
    lists; ``stacks``: what it said last of its threads."""

    listed: bool
    lease: float | None
    entombed: bool
    lists: list[str]
    stacks: str


def holding(keys: Keys, identity: str) -> Call[Holding]:
    """What the server holds of a process beside its record, in one write."""

    def read(replies: list[Any]) -> Holding:
        listed, left, tomb, lists, stacks = replies
        lease = left / 1000 if left >= 0 else None
        return Holding(bool(listed), lease, bool(tomb), _names(lists), (stacks or b"").decode("utf-8", "replace"))

    return commands(
        ("SISMEMBER", keys.processes, raw(identity)),
        ("PTTL", raw(keys.lease(identity))),
        ("EXISTS", raw(keys.tomb(identity))),
        ("SMEMBERS", raw(keys.lists_of(identity))),
        ("GET", raw(keys.stacks(identity))),
        decode=read,
    )


def lengths(lists: Sequence[str]) -> Call[list[int]]:
    """How many payloads lie in each of these lists (at least one)."""
    return commands(*(("LLEN", raw(one)) for one in lists), decode=lambda replies: [int(one) for one in replies])


def missing(keys: Keys, identities: Sequence[str]) -> Call[list[str]]:
    """Those of ``identities`` (at least one) whose record is gone, asked for in one write."""

    def read(answers: list[int]) -> list[str]:
        return [one for one, there in zip(identities, answers, strict=True) if not there]

    return commands(*(("EXISTS", raw(keys.process(one))) for one in identities), decode=read)


def strike_off_dead(keys: Keys, identities: Iterable[str]) -> Call[Any]:
    """Take dead members off the list."""
    return command("SREM", keys.processes, *map(raw, identities))


def _names(reply: Iterable[bytes]) -> list[str]:
    return sorted(one.decode("utf-8", "surrogateescape") for one in reply)


def identities(keys: Keys) -> Call[list[str]]:
    """The identities on Sidekiq's list of processes, whatever stands there; some may have died since."""
    return command("SMEMBERS", keys.processes, decode=_names)


class Record(NamedTuple):
    """What one process wrote down: its facts, and its running jobs by slot."""

    identity: str
    facts: Mapping[str, bytes]
    work: Mapping[str, bytes]


def adopt(
    keys: Keys, identity: str, flight: str, queue: str, units: Sequence[tuple[str, bytes]], lease_ms: int
) -> Call[list[int]]:
    """Take ``units``, (in-flight list, payload), over into ``flight``, a list of ``identity`` for jobs of ``queue``, if
    they are where they were or back in their queue. For each 1, or 0: it is neither. Raises LeaseLost."""
    names = [keys.queues, keys.leases + identity, keys.tombs_of + identity, flight]
    args: list[Arg] = [lease_ms, queue]
    for flight_then, payload in units:
        args += (flight_then, payload)
    return script(_ADOPT, names, args, _adopted, again=True)


def _adopted(reply: Any) -> list[int]:
    if reply == b"LOST":
        raise LeaseLost("this process was declared dead by another one")
    return [int(one) for one in reply]


def server_name(keys: Keys, new: str) -> Call[str]:
    """The name of the data on the server, which has the name ``new`` if it had none: an emptied server gets another."""
    named: Call[str] = commands(
        ("SET", keys.server, new, "NX"), ("GET", keys.server), again=True, decode=lambda replies: replies[1].decode()
    )
    return named


def joined(keys: Keys) -> Call[list[str]]:
    """The identities that joined and neither left nor were swept: those that may hold work in flight."""
    return command("ZRANGE", keys.identities, 0, -1, decode=_names)


def _pairs(flat: Any) -> dict[str, bytes]:
    return {flat[i].decode("utf-8", "surrogateescape"): flat[i + 1] for i in range(0, len(flat), 2)}


def records(keys: Keys, which: Sequence[str], *, jobs: bool = True) -> Procedure[list[Record]]:
    """The records of the processes ``which``, without those under whose keys stands something else; empty facts: that
    one is gone. ``jobs``: with those that they run."""
    if not jobs:
        flats = yield from read_all([raw(keys.process(one)) for one in which], ["hash"] * len(which))
        told = [(one, flat) for one, flat in zip(which, flats, strict=True) if not isinstance(flat, str)]
        return [Record(name, _pairs(flat[0]), {}) for name, flat in told]
    names = [
        raw(key) for identity in which for key in (keys.process(identity), keys.work(identity), keys.workers(identity))
    ]
    kinds: list[Kind] = ["hash", "hash", "spare"]
    rows = yield from read_all(names, kinds * len(which))
    found: list[Record] = []
    for place, name in enumerate(which):
        parts = rows[3 * place : 3 * place + 3]
        if not any(isinstance(one, str) for one in parts):
            facts, work, old = (_pairs(flat) for [flat] in parts)
            found.append(Record(name, facts, work or old))
    return found


def lists_of(keys: Keys, which: Sequence[str]) -> Call[list[str]]:
    """The keys of the in-flight lists of the processes ``which`` (at least one)."""
    parts = [("SMEMBERS", raw(keys.lists_of(identity))) for identity in which]
    return commands(*parts, decode=lambda replies: [name for one in replies for name in _names(one)])


class HolderEntry(NamedTuple):
    """A process, and what holds a text there: an ``entry`` of its in-flight ``list``; of no list: what it says that it
    runs."""

    identity: str
    list: str
    entry: bytes


class Holders(NamedTuple):
    """What holds a text with the processes that were looked at; ``more``: others follow; ``cut``: the look ended
    early."""

    more: bool
    cut: bool
    found: list[HolderEntry]


def holders(keys: Keys, text: str, first: int) -> Call[Holders]:
    """What holds ``text`` with up to ``HOLDERS`` of those that joined, from the place ``first`` on: nothing else that
    they run comes here. The look at place 0 takes those along that never joined, as Ruby's."""
    suffixes = [key("").removeprefix(keys.prefix) for key in (keys.work, keys.workers)]
    held = keys.held("", 0, "").removesuffix(":0:")
    args: list[Arg] = [keys.prefix, *suffixes, keys.lists_of(""), held, raw(text), first, HOLDERS]
    names = [keys.queues, keys.processes, keys.identities]

    def read(reply: Any) -> Holders:
        more, cut, *flat = reply
        names = [one.decode("utf-8", "surrogateescape") for one in flat]
        parts = zip(names[::3], names[1::3], flat[2::3], strict=True)
        return Holders(more == 1, cut == 1, [HolderEntry(*one) for one in parts])

    return script(_HOLDERS, names, args, read, again=True)


class Serving(NamedTuple):
    """Who serves a queue. ``ours``: processes of Henchman that were heard of lately, whatever they serve; ``serving``:
    those that name the queue, ``alive``: those of them that were heard of lately, ``free``: those that take new jobs,
    with ``slots`` of which so many are ``busy``; ``heard``: when one of them was heard of last. Where all are busy,
    ``running`` is the record of the job that runs longest, of process ``identity``."""

    more: bool
    ours: int
    serving: int
    alive: int
    free: int
    slots: int
    busy: int
    heard: float | None
    identity: str
    running: bytes


def serving(keys: Keys, queue: str, within: float, first: int) -> Call[Serving]:
    """Who serves ``queue`` ("": nobody does), of ``HOLDERS`` processes from the place ``first`` on: what they tell of
    themselves is read by the server. ``within``: who was heard of in so many seconds is alive."""
    suffixes = [key("").removeprefix(keys.prefix) for key in (keys.work, keys.workers)]
    texts = (json.dumps(queue), json.dumps(queue, ensure_ascii=False), json.dumps(queue).replace("/", "\\/"))
    words = [raw(one) for one in dict.fromkeys(texts) if queue]
    args: list[Arg] = [keys.prefix, *suffixes, repr(within), first, HOLDERS, *words]

    def read(reply: Any) -> Serving:
        more, ours, serving, alive, free, slots, busy, heard, identity, running = reply
        last, whose = float(heard) if heard else None, identity.decode("utf-8", "surrogateescape")
        return Serving(more == 1, ours, serving, alive, free, slots, busy, last, whose, running)

    return script(_SERVING, [keys.queues, keys.processes], args, read, again=True)


def signal(keys: Keys, identity: str, name: str) -> Call[Any]:
    """Leave a signal (TSTP, TERM, TTIN) for a process that fetches such at its next heartbeat, as Sidekiq's do."""
    key = raw(keys.signals(identity))
    parts: list[tuple[Arg, ...]] = [("MULTI",), ("LPUSH", key, name), ("EXPIRE", key, _SIGNAL_LIFE), ("EXEC",)]
    return commands(*parts, again=False)


def tell(keys: Keys, identity: str, verb: str) -> Call[Any]:
    """Tell one process to ``quiet``, ``stop`` or ``dump``; how many heard it."""
    return command("PUBLISH", keys.control(identity), verb)


def stopping(keys: Keys, identity: str) -> Call[Any]:
    """This process was told to stop: if it is killed now, that is a deploy's haste, and no job's fault."""
    return command("ZADD", keys.stopping, "NX", 0, identity)


def ask_time(clock: ServerClock) -> Call[float]:
    """The server's Unix time, which ``clock`` knows from then on. Build the call when you send it."""
    sent = clock.sent()

    def read(reply: Any) -> float:
        clock.heard(int(reply[0]) + int(reply[1]) / 1e6, sent)
        return clock.now()

    return command("TIME", decode=read)


_LEAD = load("lead")

# How long each duty stays with a process that does not prolong it.
STAGING_MS = 2_000  # move due jobs into their queues
LIFELINE_MS = 3_000  # look after the dead; at least: a look that takes long keeps its turn for longer
CRON_MS = 2_000  # enqueue the ticks of crons
AUDITOR_MS = 120_000  # settle what left our hands in batches
RECORDER_MS = 10_000  # write history into SQL, and prune it
RELAY_MS = 10_000  # bring the rows of an outbox to the server
PRUNING_S = 60  # take dead processes off Sidekiq's list: no duty, but a turn that nobody prolongs


class Leader:
    """One process's candidacy for one ``duty`` (a key). ``leads``: whether it had the duty when it asked last."""

    def __init__(self, duty: str, lease_ms: int) -> None:
        self.duty = duty
        self.lease_ms = lease_ms
        self.identity = new_identity()
        self.leads = False

    def contend(self, runner: Runner, announced: str = "", text: str = "") -> bool:
        """Take the duty where nobody has it, or prolong it; True when we lead anew: what we know may be old. With
        ``text`` the key ``announced`` holds it from then on, whoever leads."""
        answer = runner.run(lead(self.duty, self.identity, self.lease_ms, announced, text))
        anew = answer == 2 or not self.leads
        self.leads = answer > 0
        return self.leads and anew

    def resign(self, runner: Runner, events: Events, part: str) -> None:
        """Let another process have the duty at once; a server that is away is an event of ``part``."""
        self.leads = False
        try:
            runner.run(lead(self.duty, self.identity, 0))
        except ServerError as error:
            events.failed(part, error)


def lead(duty: str, identity: str, lease_ms: int, announced: str = "", text: str = "") -> Call[int]:
    """2: ``identity`` has the ``duty`` (a key) from now on; 1: it goes on having it; 0: another has it, or, with a
    lease of 0, the identity has given it up."""
    return script(_LEAD, [duty, announced or duty], [identity, lease_ms, text], int, again=True)


def turn_to_prune(keys: Keys) -> Call[bool]:
    """Whether it is our turn to prune dead processes: once a minute for all, Sidekiq's own processes among them."""
    return command("SET", keys.process_cleanup, "1", "NX", "EX", PRUNING_S, decode=bool, again=False)
