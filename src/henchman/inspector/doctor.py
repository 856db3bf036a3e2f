"""What is wrong with the server and with what lies in it, and what to do about it.

Commands that the server forbids (INFO and CONFIG often are, at a hosting service) make a check say so; none fails.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Container, Mapping
from typing import Any, Literal, NamedTuple

from henchman.errors import ServerAway, ServerError
from henchman.inspector.processes import ProcessState, look_at_processes
from henchman.kernel.text import shorten, visible
from henchman.store import leases, ordered_people, queues
from henchman.store.call import Runner, command, commands
from henchman.store.keys import ROLES, UNTRIED, WELCOME, Keys, acl_trial
from henchman.store.procedure import run

__all__ = ["Check", "examine", "rights", "unserved"]

Verdict = Literal["ok", "warn", "bad"]

OLDEST = (6, 2)
_PINGS = 20
_SLOW, _VERY_SLOW = 0.005, 0.05  # seconds of a round trip
_SKEW, _GREAT_SKEW = 1.0, 30.0  # seconds between the clocks
_STEP_SHOWN = 86400.0  # seconds for which a step of the server's clock is told of
_FULL, _VERY_FULL = 0.75, 0.95  # of maxmemory, of maxclients
_WATCHED = 8  # queues that a process waits for with a connection each
_PARTS = (
    8  # connections of a process beside those: fetching, settling, heart, control, stager, cron, history, supervisor
)


class Check(NamedTuple):
    """One finding: what was looked at, how it is, and what to do when it is not ok."""

    name: str
    verdict: Verdict
    text: str
    advice: str = ""

    def to_json(self) -> dict[str, str | None]:
        """Stable names for programs."""
        return {"name": self.name, "verdict": self.verdict, "text": self.text, "advice": self.advice or None}


def examine(runner: Runner, keys: Keys) -> list[Check]:
    """Every check. ServerAway when there is no server to check."""
    info = _info(runner)
    checks: list[Callable[[], Check]] = [
        lambda: _version(info),
        lambda: _eviction(runner, info),
        lambda: _persistence(runner, info),
        lambda: _memory(info),
        lambda: _connections(runner, keys, info),
        lambda: _round_trip(runner),
        lambda: _clock(runner, keys),
        lambda: _broken(runner, keys),
        lambda: _paused(runner, keys),
        lambda: _lost(runner, keys),
        lambda: rights(runner, keys),
    ]
    return [check() for check in checks]


def unserved(runner: Runner, keys: Keys, defined: Container[str]) -> Check:
    """Ordered queues on the server in which ids wait, and which an app that defines ``defined`` does not serve."""
    name = "ordered queues"
    others = [one for one in runner.run(ordered_people.names(keys)) if one not in defined]
    if not others:
        return Check(name, "ok", "all of them are defined in this app")
    counts: list[int] = runner.run(commands(*(("ZCARD", keys.ordered(one) + "due") for one in others)))
    waiting = [(one, many) for one, many in zip(others, counts, strict=True) if many]
    if not waiting:
        return Check(name, "ok", "nothing waits in any that this app does not define")
    shown = ", ".join(f"{one} ({many:,} {'id' if many == 1 else 'ids'})" for one, many in waiting[:10])
    more = f" and {len(waiting) - 10} more" if len(waiting) > 10 else ""
    text = f"no definition of this app serves {shown}{more}"
    return Check(name, "warn", text, "is it another app's? If not: @app.ordered(queue=NAME), or henchman ordered move")


def _info(runner: Runner) -> Mapping[str, str]:
    """What INFO says; empty when it is forbidden."""
    try:
        reply: bytes = runner.run(command("INFO"))
    except ServerAway:
        raise
    except ServerError:
        return {}
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines() if not line.startswith("#"))
    return {name: value for name, _, value in lines if name}


def _setting(runner: Runner, name: str) -> str | None:
    """What CONFIG says; None when it is forbidden."""
    try:
        reply: list[bytes] = runner.run(command("CONFIG", "GET", name))
    except ServerAway:
        raise
    except ServerError:
        return None
    return reply[1].decode("utf-8", "replace") if len(reply) == 2 else None


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:3]
    return tuple(int(part) if part.isascii() and part.isdigit() else 0 for part in parts)


def _version(info: Mapping[str, str]) -> Check:
    name = "server version"
    own = info.get("valkey_version")
    version = own or info.get("redis_version", "")
    if not version:
        return Check(name, "warn", "not known: the server does not allow INFO", "make sure that it is 6.2 or later")
    product = "Valkey" if own else "Dragonfly" if "dragonfly_version" in info else "Redis"
    text = f"{product} {version}"
    if _numbers(version) >= OLDEST:
        return Check(name, "ok", text)
    return Check(name, "bad", f"{text} is too old", "install Redis 6.2 or later, or Valkey")


def _eviction(runner: Runner, info: Mapping[str, str]) -> Check:
    name = "eviction policy"
    policy = info.get("maxmemory_policy") or _setting(runner, "maxmemory-policy")
    if not policy:
        return Check(name, "warn", "not known: the server allows neither INFO nor CONFIG", "make sure: noeviction")
    if policy == "noeviction":
        return Check(name, "ok", policy)
    advice = "set maxmemory-policy noeviction"
    return Check(name, "bad", f"{policy}: a full server throws jobs away", advice)


def _persistence(runner: Runner, info: Mapping[str, str]) -> Check:
    name = "persistence"
    saves = _setting(runner, "save")
    if info.get("aof_enabled") == "1":
        fsync = _setting(runner, "appendfsync")
        if info.get("aof_last_write_status", "ok") != "ok":
            return Check(name, "bad", "the last write of the append-only file failed", "see the server's log and disk")
        if fsync == "no":
            return Check(name, "warn", "append-only file, written when the system likes", "set appendfsync everysec")
        return Check(name, "ok", f"append-only file{f', fsync {fsync}' if fsync else ''}")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        return Check(name, "bad", "the last snapshot failed", "see the server's log, its memory and its disk")
    advice = "set appendonly yes, so that at most a second is lost"
    if saves:
        return Check(name, "warn", "snapshots only: a crash loses everything since the last one", advice)
    if saves is None or not info:
        text = "not known" if not info else "no append-only file; snapshots are not known"
        return Check(name, "warn", f"{text}: the server does not allow to ask", "ask your hosting service")
    return Check(name, "bad", "none: a restart of the server loses every job", advice)


def _memory(info: Mapping[str, str]) -> Check:
    name = "memory"
    used, most = _count(info.get("used_memory")), _count(info.get("maxmemory"))
    if used is None:
        return Check(name, "warn", "not known: the server does not allow INFO", "watch it where the server is hosted")
    if not most:
        return Check(name, "ok", f"{_megabytes(used)} used, no limit set")
    share = used / most
    text = f"{_megabytes(used)} of {_megabytes(most)} used ({share:.0%})"
    if share < _FULL:
        return Check(name, "ok", text)
    advice = "raise maxmemory, or see what grows: henchman status"
    return Check(name, "bad" if share >= _VERY_FULL else "warn", f"{text}: a full server refuses jobs", advice)


def _connections(runner: Runner, keys: Keys, info: Mapping[str, str]) -> Check:
    name = "connections"
    used, said = _count(info.get("connected_clients")), info.get("maxclients") or _setting(runner, "maxclients")
    most = _count(said)
    if used is None or not most:
        return Check(name, "ok", "not known: the server does not allow to ask")
    needs = [_needed(one) for one in _processes(runner, keys)]
    whole = f"{used:,} of {most:,} in use"
    if needs:
        processes = f"{len(needs):,} worker process{'es' if len(needs) > 1 else ''}"
        whole += f"; {processes} may need {sum(needs):,}"
    share = max(used, sum(needs)) / most
    if share < _FULL:
        return Check(name, "ok", whole)
    advice = "raise maxclients (and the limit of open files), or run fewer processes with more slots each"
    return Check(name, "bad" if share >= _VERY_FULL else "warn", f"{whole}: beyond that nobody is let in", advice)


def _processes(runner: Runner, keys: Keys) -> list[ProcessState]:
    """The worker processes that say where they are; none when that cannot be read."""
    try:
        return run(runner, look_at_processes(keys))
    except ServerAway:
        raise
    except ServerError:
        return []


def _needed(process: ProcessState) -> int:
    """Connections that a process opens at most: a slot has one when its job pushes; a queue that it waits for one, for
    up to eight; the parts of the process share the rest, and its supervisor has one."""
    return process.concurrency + min(len(process.queues), _WATCHED) + _PARTS


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _megabytes(count: int) -> str:
    return f"{count / 1024 / 1024:,.1f} MB"


def _round_trip(runner: Runner) -> Check:
    name = "round trip"
    times = []
    for _ in range(_PINGS):
        started = time.perf_counter()
        runner.run(command("PING"))
        times.append(time.perf_counter() - started)
    median = statistics.median(times)
    text = f"{median * 1000:.2f} ms (median of {_PINGS})"
    if median < _SLOW:
        return Check(name, "ok", text)
    advice = "put workers and server nearer to each other, or see what keeps the server busy (SLOWLOG GET)"
    return Check(name, "bad" if median >= _VERY_SLOW else "warn", f"{text} is long", advice)


def _clock(runner: Runner, keys: Keys) -> Check:
    name = "clocks"
    before = time.time()
    reply: list[bytes] = runner.run(command("TIME"))
    after = time.time()
    server = int(reply[0]) + int(reply[1]) / 1e6
    skew = before - server if server < before else server - after if server > after else 0.0
    told: list[bytes | None] = runner.run(command("HMGET", keys.clock, "by", "at"))
    by, at = (float(one or 0) for one in told)
    if by and abs(server - at) < _STEP_SHOWN:
        text = (
            f"the server's clock went {'back' if by < 0 else 'forward'} by {abs(by):,.0f} s, {server - at:,.0f} s ago"
        )
        return Check(name, "warn", text, "see what sets it; delays that were under way may end at another time")
    if skew < _SKEW:
        return Check(name, "ok", f"this machine and the server differ by less than {max(skew, 0.001):.3f} s")
    verdict: Verdict = "bad" if skew >= _GREAT_SKEW else "warn"
    where = "behind" if server < before else "ahead of"
    text = f"the server is {skew:,.1f} s {where} this machine: jobs with at= start at the wrong time"
    return Check(name, verdict, text, "let both follow a time server (NTP)")


def _broken(runner: Runner, keys: Keys) -> Check:
    name = "broken effects"
    try:
        many = int(runner.run(command("LLEN", keys.broken)))
        latest: Any = runner.run(command("LINDEX", keys.broken, 0)) if many else b""
    except ServerAway:
        raise
    except ServerError as error:
        return Check(name, "bad", f"cannot be read: {error}", f"look at the key {keys.broken}")
    if not many:
        return Check(name, "ok", "none")
    shown = shorten((latest or b"").decode("utf-8", "backslashreplace"), 200)
    text = f"{many:,} jobs ended, but something that belongs to their end failed; the latest: {shown}"
    return Check(name, "bad", text, f"repair by hand, then: DEL {keys.broken}")


def _paused(runner: Runner, keys: Keys) -> Check:
    name = "paused queues"
    try:
        names = runner.run(queues.paused(keys))
    except ServerAway:
        raise
    except ServerError as error:
        return Check(name, "bad", f"cannot be read: {error}", f"look at the key {keys.paused}")
    found = sorted(names)
    if not found:
        return Check(name, "ok", "none")
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    text = f"{', '.join(found[:10])}{more}: nothing starts from there"
    return Check(name, "warn", text, "henchman queues unpause NAME")


def _lost(runner: Runner, keys: Keys) -> Check:
    """Processes that neither left nor are alive: their work waits for a rescue."""
    name = "lost processes"
    lost = [
        one
        for one in runner.run(leases.joined(keys))
        if not runner.run(command("EXISTS", keys.lease(one), keys.tomb(one)))  # the buried are cared for
    ]
    if not lost:
        return Check(name, "ok", "none")
    lists = runner.run(leases.lists_of(keys, lost))
    held = sum(len(one) for one in runner.run(leases.in_flight(lists, 1000))) if lists else 0
    text = f"{len(lost):,} died without a word, holding {held:,} jobs"
    if not held:
        return Check(name, "warn", text, "nothing is in danger; a running worker tidies up")
    return Check(name, "warn", text, "a running worker gives them back within a minute: henchman work")


def rights(runner: Runner, keys: Keys) -> Check:
    """For which roles this user of the server has the rights; tried in transactions that are discarded."""
    name = "rights"
    denied = [
        one
        for one in sorted({*WELCOME, *(one for role in ROLES.values() for one in role)})
        if not _may(runner, keys, one)
    ]
    lacks = {role: [one for one in needed if one in denied] for role, needed in ROLES.items()}
    user = _user(runner)
    may = [role for role, missing in lacks.items() if not missing]
    if len(may) == len(ROLES):
        without = [one for one in WELCOME if one in denied]
        more = f"; better with: {', '.join(without)}" if without else ""
        return Check(name, "ok", f"user {user} may push, work and look{more}")
    role, missing = min(((role, some) for role, some in lacks.items() if some), key=lambda pair: len(pair[1]))
    cannot = "; ".join(f"not as a {role}: {', '.join(some)}" for role, some in lacks.items() if some)
    text = f"user {user} may be a {' and a '.join(may)}, but {cannot}" if may else f"user {user} may {cannot}"
    advice = f"for a {role}: ACL SETUSER {user} {' '.join(f'+{one}' for one in missing)}"
    return Check(name, "warn" if may else "bad", text, advice)


def _may(runner: Runner, keys: Keys, name: str) -> bool:
    if name in UNTRIED:
        return True
    try:
        runner.run(acl_trial(keys, name))
    except ServerAway:
        raise
    except ServerError as error:
        return "permission" not in str(error).lower()
    return True


def _user(runner: Runner) -> str:
    """Our name on the server, where it tells."""
    try:
        return visible(runner.run(command("ACL", "WHOAMI")).decode("utf-8", "replace"))
    except ServerAway:
        raise
    except ServerError:
        return "NAME"
