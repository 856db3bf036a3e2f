"""What is wrong with the server and with what lies in it, and what to do about it.

Commands that the server forbids (INFO and CONFIG often are, at a hosting service) make a check say so; none fails.
"""

from __future__ import annotations

import shlex
import statistics
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from henchman.errors import ServerAway, ServerError
from henchman.inspector.base import Entry, server_facts
from henchman.inspector.blocked import BlockedJob, blocked_jobs, blocked_rows, stuck_since
from henchman.inspector.days import sizes_of_days
from henchman.inspector.ground import duties, memory_by_kind, versions_of
from henchman.inspector.limits import waited_for
from henchman.inspector.processes import ProcessState, list_processes
from henchman.inspector.sets import PAGE
from henchman.kernel.figures import utc
from henchman.kernel.text import count, shorten, visible
from henchman.store import fair, history, leases, ordered_people, queues
from henchman.store.call import (
    Procedure,
    Runner,
    ask,
    command,
    commands,
    next_page,
    run,
    side_by_side,
    unless_refused,
)
from henchman.store.days import DaySizes
from henchman.store.keys import ROLES, UNTRIED, WELCOME, Keys, acl_trial
from henchman.store.needs import Blocked
from henchman.store.pauses import kinds, some_batches
from henchman.wire import times

__all__ = ["Check", "examine", "rights", "unserved"]

T = TypeVar("T")
Verdict = Literal["ok", "warn", "bad"]

OLDEST = (6, 2)
_PINGS = 20
_SLOW, _VERY_SLOW = 0.005, 0.05  # seconds of a round trip
_SKEW, _GREAT_SKEW = 1.0, 30.0  # seconds between the clocks
_STEP_SHOWN = 86400.0  # seconds for which a step of the server's clock is reported
_FULL, _VERY_FULL = 0.75, 0.95  # of maxmemory, of maxclients
_WATCHED = 8  # queues that a process waits for with a connection each
_STUCK = 600.0  # seconds for which a job waits for a dead one until that is told
_OLD = 7 * 86400.0  # seconds after which a job that waits for others is told
_BLOCKED_MOST = 10_000  # of them read
_SETTINGS = ("maxmemory-policy", "save", "appendfsync", "maxclients")
_BEHIND = 60.0  # seconds for which a change of a tracked job waits to be recorded
_PARTS = 8  # other connections of a process: fetch, settle, heart, control, stager, cron, history, supervisor


class Diagnosis(NamedTuple):
    """How something is, and what to do when it is not ok."""

    verdict: Verdict
    text: str
    advice: str = ""


class Check(NamedTuple):
    """One finding: what was looked at, how it is, and what to do when it is not ok."""

    name: str
    verdict: Verdict
    text: str
    advice: str = ""

    def to_json(self) -> dict[str, str | None]:
        """Stable names for programs."""
        return {"name": self.name, "verdict": self.verdict, "text": self.text, "advice": self.advice or None}


def examine(runner: Runner, keys: Keys, pings: int = _PINGS, blocked: int = _BLOCKED_MOST) -> list[Check]:
    """Every check, in three round trips beside ``pings``; one more for each hundred of at most ``blocked`` blocked jobs
    that are looked at, and three for each of at most a hundred limits. ServerAway when there is no server to check."""
    taken = _times(runner, pings)
    try:
        return [*run(runner, _examined(keys, taken, blocked))]
    except ServerAway as error:
        if "READONLY" not in str(error):
            raise
        return [*run(runner, _examined(keys, taken, blocked, replica=True))]


def _times(runner: Runner, pings: int) -> list[float]:
    """Seconds that so many round trips took, one after the other."""
    taken = []
    for _ in range(pings):
        started = time.perf_counter()
        runner.run(command("PING"))
        taken.append(time.perf_counter() - started)
    return taken


def _examined(keys: Keys, taken: Sequence[float], most: int, *, replica: bool = False) -> Procedure[Iterator[Check]]:
    server = _Server(keys, replica=replica)
    (ground, lines), clocks, broken, unsent, paused, *others = yield from side_by_side(
        server.ground(),
        server.clocks(),
        server.broken_effects(),
        server.lost_submissions(),
        server.pauses(),
        server.blocked_jobs(most),
        server.limits(),
        server.lost_processes(),
        server.record(),
        server.days(),
        server.duties(),
        server.kinds(),
        server.rights(),
    )
    names = ("server version", "eviction policy", "persistence", "memory", "connections", "round trip", "clocks")
    more = (
        "broken effects",
        "lost submissions",
        "pauses",
        "fair queues",
        "blocked jobs",
        "limits",
        "lost processes",
    )
    last = "record", "days", "duties", "memory by kind", "rights", "versions"
    found = (*ground, _round_trip(taken), clocks, broken, unsent, paused, lines, *others, server.versions())
    every = zip((*names, *more, *last), found, strict=True)
    return (Check(name, *one) for name, one in every)


def rights(runner: Runner, keys: Keys) -> Check:
    """For which roles this user of the server has the rights; tried in transactions that are discarded."""
    return Check("rights", *run(runner, _Server(keys).rights()))


def unserved(runner: Runner, keys: Keys, defined: Container[str]) -> Check:
    """Ordered queues on the server in which ids wait, and which an app that defines ``defined`` does not serve."""
    name = "ordered queues"
    others = [one for one in runner.run(ordered_people.names(keys)) if one not in defined]
    if not others:
        return Check(name, "ok", "all of them are defined in this app")
    counts: list[int] = runner.run(commands(*(("ZCARD", keys.ordered(one) + "due") for one in others)))
    waiting = [f"{one} ({n:,} {'id' if n == 1 else 'ids'})" for one, n in zip(others, counts, strict=True) if n]
    if not waiting:
        return Check(name, "ok", "nothing waits in any that this app does not define")
    text = f"no definition of this app serves {_listed(waiting)}"
    return Check(name, "warn", text, "is it another app's? If not: @app.ordered(queue=NAME), or henchman ordered move")


class _Server:
    """The server under examination."""

    def __init__(self, keys: Keys, *, replica: bool = False) -> None:
        self._keys, self._replica = keys, replica
        self._info: Mapping[str, str] = {}  #: what INFO says; empty when it is forbidden
        self._processes: Sequence[ProcessState] = []
        self._settings: Mapping[str, str] = {}  #: what CONFIG says of those that count; empty when it is forbidden

    def ground(self) -> Procedure[tuple[list[Diagnosis], Diagnosis]]:
        """What the server says of itself and its settings, and who uses it; and whether they know lines of tenants."""
        asked = commands(*(("CONFIG", "GET", name) for name in _SETTINGS), decode=list)
        self._info, replies, self._processes, lines = yield from side_by_side(
            server_facts(),
            unless_refused(ask(asked), []),
            unless_refused(list_processes(self._keys), []),
            ask(fair.names(self._keys)),
        )
        self._settings = {_text(one[0]): _text(one[1]) for one in replies if len(one) == 2}
        ground = [self.version(), self.eviction(), self.persistence(), self.memory(), self.connections(self._processes)]
        return ground, _fair_queues(lines, self._processes)

    def version(self) -> Diagnosis:
        own = self._info.get("valkey_version")
        version = own or self._info.get("redis_version", "")
        if not version:
            return Diagnosis("warn", "not known: the server does not allow INFO", "make sure that it is 6.2 or later")
        text = f"{'Valkey' if own else 'Dragonfly' if 'dragonfly_version' in self._info else 'Redis'} {version}"
        numbers = tuple(_count(part) or 0 for part in version.split(".")[:3])
        if numbers >= OLDEST:
            return Diagnosis("ok", text)
        return Diagnosis("bad", f"{text} is too old", "install Redis 6.2 or later, or Valkey")

    def eviction(self) -> Diagnosis:
        policy = self._info.get("maxmemory_policy") or self._settings.get("maxmemory-policy")
        if not policy:
            return Diagnosis("warn", "not known: the server allows neither INFO nor CONFIG", "make sure: noeviction")
        if policy == "noeviction":
            return Diagnosis("ok", policy)
        return Diagnosis("bad", f"{policy}: a full server throws jobs away", "set maxmemory-policy noeviction")

    def persistence(self) -> Diagnosis:
        saves = self._settings.get("save")
        if self._info.get("aof_enabled") == "1":
            fsync = self._settings.get("appendfsync")
            if self._info.get("aof_last_write_status", "ok") != "ok":
                text = "the last write of the append-only file failed"
                return Diagnosis("bad", text, "see the server's log and disk")
            if fsync == "no":
                text = "append-only file, written when the system likes"
                return Diagnosis("warn", text, "set appendfsync everysec")
            return Diagnosis("ok", f"append-only file{f', fsync {fsync}' if fsync else ''}")
        if self._info.get("rdb_last_bgsave_status", "ok") != "ok":
            return Diagnosis("bad", "the last snapshot failed", "see the server's log, its memory and its disk")
        advice = "set appendonly yes, so that at most a second is lost"
        if saves:
            return Diagnosis("warn", "snapshots only: a crash loses everything since the last one", advice)
        if saves is None or not self._info:
            text = "not known" if not self._info else "no append-only file; snapshots are not known"
            return Diagnosis("warn", f"{text}: the server does not allow to ask", "ask your hosting service")
        return Diagnosis("bad", "none: a restart of the server loses every job", advice)

    def memory(self) -> Diagnosis:
        used, most = _count(self._info.get("used_memory")), _count(self._info.get("maxmemory"))
        if used is None:
            text = "not known: the server does not allow INFO"
            return Diagnosis("warn", text, "watch it where the server is hosted")
        if not most:
            return Diagnosis("ok", f"{_megabytes(used)} used, no limit set")
        text = f"{_megabytes(used)} of {_megabytes(most)} used ({used / most:.0%})"
        advice = "raise maxmemory, or see what grows: henchman status"
        return _fullness(used / most, text, "a full server refuses jobs", advice)

    def connections(self, processes: Sequence[ProcessState]) -> Diagnosis:
        used = _count(self._info.get("connected_clients"))
        most = _count(self._info.get("maxclients") or self._settings.get("maxclients"))
        if used is None or not most:
            return Diagnosis("ok", "not known: the server does not allow to ask")
        needs = [_needed(one) for one in processes]
        text = f"{used:,} of {most:,} in use"
        if needs:
            workers = f"{len(needs):,} worker process{'es' if len(needs) > 1 else ''}"
            text += f"; {workers} may need {sum(needs):,}"
        advice = "raise maxclients (and the limit of open files), or run fewer processes with more slots each"
        return _fullness(max(used, sum(needs)) / most, text, "beyond that nobody is let in", advice)

    def clocks(self) -> Procedure[Diagnosis]:
        before = time.time()
        server, step = yield from side_by_side(
            ask(ordered_people.now()), ask(command("HMGET", self._keys.clock, "by", "at"))
        )
        after = time.time()
        skew = before - server if server < before else server - after if server > after else 0.0
        by, at = (float(one or 0) for one in step)
        if by and abs(server - at) < _STEP_SHOWN:
            way = "back" if by < 0 else "forward"
            text = f"the server's clock went {way} by {abs(by):,.0f} s, {server - at:,.0f} s ago"
            return Diagnosis("warn", text, "see what sets it; jobs with at= start by the time that it is now")
        if skew < _SKEW:
            return Diagnosis("ok", f"this machine and the server differ by less than {max(skew, 0.001):.3f} s")
        where = "behind" if server < before else "ahead of"
        text = f"the server is {skew:,.1f} s {where} this machine: jobs with at= start at the wrong time"
        return Diagnosis("bad" if skew >= _GREAT_SKEW else "warn", text, "let both follow a time server (NTP)")

    def broken_effects(self) -> Procedure[Diagnosis]:
        key = self._keys.broken
        try:
            asked = side_by_side(ask(command("LLEN", key)), ask(command("LINDEX", key, 0)))
            many, latest = yield from asked
        except ServerAway:
            raise
        except ServerError as error:
            return _unreadable(error, key)
        if not many:
            return Diagnosis("ok", "none")
        shown = shorten((latest or b"").decode("utf-8", "backslashreplace"), 200)
        text = f"{count(many, 'job')} ended, but something that belongs to their end failed; the latest: {shown}"
        return Diagnosis("bad", text, f"repair by hand, then: DEL {key}")

    def lost_submissions(self) -> Procedure[Diagnosis]:
        key = self._keys.submissions_lost
        try:
            facts: list[bytes | None] = yield command("HMGET", key, "count", "latest")
        except ServerAway:
            raise
        except ServerError as error:
            return _unreadable(error, key)
        count, latest = facts
        if count is None:
            return Diagnosis("ok", "none")
        shown = shorten((latest or b"").decode("utf-8", "backslashreplace"), 200)
        text = f"{int(count):,} jobs were not pushed after the commit that they waited for; the latest: {shown}"
        return Diagnosis("bad", text, f"push by hand what is missing, then: DEL {key}")

    def pauses(self) -> Procedure[Diagnosis]:
        """Queues, batches, classes and tags of which nothing starts."""
        try:
            asked = ask(queues.pauses(self._keys)), ask(some_batches(self._keys, 5)), ask(kinds(self._keys))
            found, batches, others = yield from side_by_side(*asked)
        except ServerAway:
            raise
        except ServerError as error:
            return _unreadable(error, self._keys.paused)
        if not (found or batches or others):
            return Diagnosis("ok", "none")
        names = [f"{name} (until {utc(found[name].until)})" if found[name].until else name for name in sorted(found)]
        names += [*(f"batch {one}" for one in sorted(batches)), *sorted(others)]
        return Diagnosis("warn", f"{_listed(names)}: nothing starts from there", "henchman pauses says who and why")

    def blocked_jobs(self, most: int) -> Procedure[Diagnosis]:
        """Jobs that wait for one that will not succeed by itself, or for very long."""
        key = self._keys.parked
        try:
            asked = side_by_side(ask(command("HLEN", key)), ask(ordered_people.now()), _blocked_rows(self._keys, most))
            many, now, seen = yield from asked
        except ServerAway:
            raise
        except ServerError as error:
            return _unreadable(error, key)
        bound = "" if many <= len(seen) else f" of {len(seen):,} that were looked at"
        waiting = yield from self._looked_into([one for one in seen if now - (_pushed(one) or now) > _STUCK])
        stuck = sorted(
            (since, one.jid)
            for one in waiting
            if one.row and (since := stuck_since(one.row)) and now - since > _STUCK and not one.is_alive
        )
        if stuck:
            since, jid = stuck[0]
            text = (
                f"{count(len(stuck), 'job')}{bound}: what they wait for is dead or over; {jid} since {times.iso(since)}"
            )
            return Diagnosis("warn", text, "henchman blocked; retry what died, or henchman release JID")
        lost = sorted((one.jid, need.key) for one in waiting for need in one.waits_for if need.is_nobody)
        if lost:
            jid, other = lost[0]
            text = (
                f"{count(len(lost), 'job')}{bound}: what they wait for was never pushed, or is forgotten; {jid} waits "
                f"for job {visible(shorten(other, 80))}"
            )
            advice = "is the id right? henchman release JID lets it go, henchman cancel JID ends it"
            return Diagnosis("warn", text, advice)
        old = [one.jid for one in seen if now - (_pushed(one) or now) > _OLD]
        if old:
            text = f"{count(len(old), 'job')}{bound}: pushed more than a week ago, such as {old[0]}"
            return Diagnosis("warn", text, "henchman why JID says for what it waits; henchman release JID lets it go")
        fresh = sum(1 for one in seen if (since := stuck_since(one)) and now - since <= _STUCK)  # somebody may be at it
        return _only_waiting(many, fresh, bound)

    def _looked_into(self, rows: Sequence[Blocked]) -> Procedure[list[BlockedJob]]:
        """What these jobs wait for, and how that is."""
        pages = [rows[start : start + PAGE] for start in range(0, len(rows), PAGE)]
        found = yield from side_by_side(*(blocked_jobs(self._keys, page) for page in pages))
        return [one for page in found for one in page]

    def limits(self) -> Procedure[Diagnosis]:
        """Limits whose free places nobody takes, though jobs wait for them: an older state of the server, or a hand."""
        try:
            found, many = yield from waited_for(self._keys)
        except ServerAway:
            raise
        except ServerError as error:
            return _unreadable(error, self._keys.limits)
        if idle := [one for one in found if one.room]:
            one = idle[0]
            text = f"{count(one.waiting, 'job')} waiting for {one.name} beside free places"
            more = f", and so it is with {count(len(idle) - 1, 'other limit')}" if idle[1:] else ""
            return Diagnosis(
                "warn", text + more, f"henchman limits set {shlex.quote(one.name)} {one.n} lets them go on"
            )
        waiting = sum(one.waiting for one in found)
        return Diagnosis(
            "ok", f"{count(many, 'limit')}, for which {count(waiting, 'job', does='wait')}" if many else "none"
        )

    def lost_processes(self) -> Procedure[Diagnosis]:
        """Processes that neither left nor are alive: their work waits for a rescue."""
        keys = self._keys
        joined: list[str] = yield leases.joined(keys)
        asked = [("EXISTS", keys.lease(one), keys.tomb(one)) for one in joined]
        there: list[int] = (yield commands(*asked)) if joined else []
        lost = [one for one, many in zip(joined, there, strict=True) if not many]
        if not lost:
            return Diagnosis("ok", "none")
        lists: list[str] = yield leases.lists_of(keys, lost)
        kinds = {one: "hash" if keys.is_held(one) else "list" for one in lists}
        sizes: list[int] = (yield leases.sizes(kinds)) if kinds else []
        held = sum(sizes)
        text = f"{len(lost):,} died without a word, holding {count(held, 'job')}"
        if not held:
            return Diagnosis("warn", text, "nothing is in danger; a running worker tidies up")
        return Diagnosis("warn", text, "a running worker gives them back within a minute: henchman work")

    def record(self) -> Procedure[Diagnosis]:
        """How far history is behind."""
        try:
            late: history.Backlog = yield history.backlog(self._keys)
        except ServerAway:
            raise
        except ServerError as error:
            return _unreadable(error, self._keys.history)
        if late.lag < _BEHIND:
            dropped = f"; {late.dropped:,} messages had no room" if late.dropped else ""
            return Diagnosis("ok", f"{count(late.entries, 'change')} to be recorded{dropped}")
        who = f"its recorder is {visible(late.recorder)}" if late.recorder else "nobody records"
        text = f"history is {late.lag:,.0f} s behind: {count(late.entries, 'change')} to be recorded, {who}"
        return Diagnosis(
            "warn", text, "does its database answer? Is a worker with history alive? henchman history status"
        )

    def days(self) -> Procedure[Diagnosis]:
        """How much stands on the server of what ended on the last days."""
        try:
            found: DaySizes = yield from sizes_of_days(self._keys)
        except ServerAway:
            raise
        except ServerError as error:
            return _unreadable(error, self._keys.day("YYYYMMDD"))
        size = f"{count(found.counts, 'figure')} and {count(found.jobs, 'job')}"
        return Diagnosis("ok", f"{count(found.days, 'day')}, {size}: at most about {_megabytes(found.most_bytes)}")

    def versions(self) -> Diagnosis:
        """What runs, once ``ground`` has looked; a finding says when one of them is too old."""
        found = versions_of(self._processes)
        return Diagnosis("ok", _listed([f"{one} on {many:,}" for one, many in found.most_common()]) or "no worker")

    def duties(self) -> Procedure[Diagnosis]:
        """Who has those duties that one process at a time has."""
        try:
            found = yield from duties(self._keys)
        except ServerAway:
            raise
        except ServerError as error:
            return _unreadable(error, self._keys.staging)
        told = [f"{duty}: {visible(shorten(who, 60))}" for duty, who in found if who]
        return Diagnosis("ok", _listed(told) or "nobody has one: no worker lives")

    def kinds(self) -> Procedure[Diagnosis]:
        """How much memory each kind of key takes."""
        found = yield from memory_by_kind(self._keys)
        return Diagnosis("ok", f"about {found}" if found else "nothing, or the server does not allow MEMORY USAGE")

    def rights(self) -> Procedure[Diagnosis]:
        """For which roles this user of the server has the rights."""
        said: str = yield from unless_refused(ask(command("ACL", "WHOAMI", decode=_text)), "NAME")
        if self._replica or self._info.get("role") == "slave":  # it refuses each trial, and again for seconds
            advice = "name its master in redis_url, or the sentinels, which know the master"
            return Diagnosis("bad", "nobody may write: this server is a replica", advice)
        tried = {*WELCOME, *(one for role in ROLES.values() for one in role)}
        may_each: list[bool] = yield from side_by_side(*(self._may(one) for one in sorted(tried)))
        denied = {one for one, may in zip(sorted(tried), may_each, strict=True) if not may}
        lacks = {role: [one for one in needed if one in denied] for role, needed in ROLES.items()}
        user = visible(said)
        may = [role for role, missing in lacks.items() if not missing]
        if len(may) == len(ROLES):
            without = [one for one in WELCOME if one in denied]
            more = f"; better with: {', '.join(without)}" if without else ""
            return Diagnosis("ok", f"user {user} may push, work and look{more}")
        role, missing = min(((role, some) for role, some in lacks.items() if some), key=lambda pair: len(pair[1]))
        cannot = "; ".join(f"not as a {role}: {', '.join(some)}" for role, some in lacks.items() if some)
        text = f"user {user} may be a {' and a '.join(may)}, but {cannot}" if may else f"user {user} may {cannot}"
        advice = f"for a {role}: ACL SETUSER {user} {' '.join(f'+{one}' for one in missing)}"
        return Diagnosis("warn" if may else "bad", text, advice)

    def _may(self, name: str) -> Procedure[bool]:
        """Whether the command ``name`` is allowed; tried in a transaction that is discarded."""
        if name in UNTRIED:
            return True
        try:
            yield acl_trial(self._keys, name)
        except ServerAway:
            raise
        except ServerError as error:
            return "permission" not in str(error).lower()
        return True


def _fair_queues(names: set[str], processes: Sequence[ProcessState]) -> Diagnosis:
    """Ruby's workers know no lines: they take what stands in a queue's list, whosever it is."""
    others = {one.identity: names.intersection(one.queues) for one in processes if not one.ours}
    served = [f"{one} serves {_listed(sorted(theirs))}" for one, theirs in others.items() if theirs]
    if served:
        text = f"not by turns, for it is no worker of Henchman: {_listed(served)}"
        return Diagnosis("warn", text, "take the queue from its -q, or fair_by= and priority= from the jobs")
    return Diagnosis("ok", f"{count(len(names), 'queue')}, served by turns" if names else "none")


def _round_trip(taken: Sequence[float]) -> Diagnosis:
    median = statistics.median(taken)
    text = f"{median * 1000:.2f} ms ({f'median of {len(taken)}' if len(taken) > 1 else 'measured once'})"
    if median < _SLOW:
        return Diagnosis("ok", text)
    advice = "put workers and server nearer to each other, or see what keeps the server busy (SLOWLOG GET)"
    return Diagnosis("bad" if median >= _VERY_SLOW else "warn", f"{text} is long", advice)


def _blocked_rows(keys: Keys, most: int) -> Procedure[list[Blocked]]:
    """Of blocked jobs so many, in no order."""
    rows: list[Blocked] = []
    pages = blocked_rows(keys)
    while len(rows) < most and (page := (yield from next_page(pages))) is not None:
        rows += page
    return rows[:most]


def _only_waiting(many: int, fresh: int, bound: str) -> Diagnosis:
    """Of blocked jobs, ``fresh`` of which wait behind one that has just died."""
    if fresh:
        text = f"{count(many, 'job')}; {fresh:,}{bound} for less than ten minutes behind one that is dead or over"
        return Diagnosis("ok", f"{text}: henchman blocked --stuck")
    return Diagnosis("ok", f"{count(many, 'job')}, none{bound} behind one that is dead or over" if many else "none")


def _text(reply: bytes) -> str:
    return reply.decode("utf-8", "replace")


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _megabytes(count: int) -> str:
    return f"{count / 1024 / 1024:,.1f} MB"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _fullness(share: float, text: str, danger: str, advice: str) -> Diagnosis:
    if share < _FULL:
        return Diagnosis("ok", text)
    return Diagnosis("bad" if share >= _VERY_FULL else "warn", f"{text}: {danger}", advice)


def _unreadable(error: ServerError, key: str) -> Diagnosis:
    return Diagnosis("bad", f"cannot be read: {error}", f"look at the key {key}")


def _needed(process: ProcessState) -> int:
    """Connections that a process opens at most: a slot has one when its job pushes; a queue that it waits for one, for
    up to eight; the parts of the process share the rest, and its supervisor has one."""
    return process.concurrency + min(len(process.queues), _WATCHED) + _PARTS


def _pushed(row: Blocked) -> float | None:
    """When (Unix seconds) a blocked job was pushed."""
    return Entry(row.payload).time("created_at")
