"""Attacks that stop: one worker, past its lease; a whole group, with the recorder of history, until it is buried; and a
host that is suspended, whose processes cannot tell by their monotonic clock."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from typing import Any

from field import Field, until
from groups import Group
from ledger import wall
from redis import RedisError
from server import alive, state_of

__all__ = ["stop_group", "stop_worker", "suspend_host"]

LEASE = 5.0
KILLED = 25.0  # seconds more than the lease for a supervisor to kill a child that is stopped, on a busy machine
MET = 30.0  # seconds for a group that waits for pushes
BUSY = 5.0  # of them; then nobody pushes: a busy group waits for nothing
MANY = 12  # units: all slots of the group
BETTER = 1.5  # of them, for one that holds ordered ids too
Told = tuple[int, str]


def stop_worker(field: Field, group: Group) -> Told:
    """SIGSTOP of one worker past its lease: its supervisor must kill it; SIGCONT comes too late, or to nobody."""
    pids = field.working(group)
    if not pids:
        return 0, "nobody works"
    pid = field.chance.choice(pids)
    at = wall()
    group.signal(signal.SIGSTOP, [pid])
    killed = until(lambda: not alive(pid), LEASE + KILLED)
    group.signal(signal.SIGCONT, [pid])
    field.window("stopped", at, wall(), [pid])
    if not killed:
        field.doubt(f"process {pid} was stopped for {LEASE + KILLED:g} s and its supervisor let it live")
    return int(bool(killed)), f"group {group.number}, process {pid}, killed after {wall() - at:.1f} s"


def _stopped_waiting(field: Field, group: Group, pids: list[int], everybody: list[int]) -> tuple[int, int, float]:
    """Stop a group while it waits for pushes: (how many waits, ordered ids that it holds, when); no waits, and it goes
    on, when it was not met like that."""

    def armed() -> int:
        ours = {link.server_port for link in list(group.route.links)}
        return len(ours & field.server.waiting_ports())

    began = time.monotonic()
    try:
        while time.monotonic() < began + MET:
            if time.monotonic() > began + BUSY:
                field.hush(True)
            until(armed, 2, 0.005)
            at = wall()
            group.signal(signal.SIGSTOP, everybody)
            waiting, ids = until(armed, 0) or 0, field.hands(pids)[1]
            if waiting and (ids or time.monotonic() > began + BETTER):
                return waiting, ids, at
            group.signal(signal.SIGCONT, everybody[::-1])
            field.sleep(0.05)
    finally:
        field.hush(False)
    return 0, 0, 0.0


def _stopped_at_work(field: Field, group: Group, pids: list[int], everybody: list[int]) -> tuple[int, int, float]:
    """Stop a group while it holds work, more than it has slots if it can be so: (how much, ordered ids of it, when)."""
    began = time.monotonic()
    while time.monotonic() < began + MET:
        at = wall()
        group.signal(signal.SIGSTOP, everybody)
        held, ids = field.hands(pids)
        if held > MANY or (held and time.monotonic() > began + BUSY):
            return held, ids, at
        group.signal(signal.SIGCONT, everybody[::-1])
        field.sleep(0.05)
    return 0, 0, 0.0


def suspend_host(field: Field, group: Group, seconds: float) -> Told:
    """SIGSTOP of a whole group that holds work, long enough to be buried by others; then SIGCONT. Meanwhile the
    monotonic clock of its processes stands still, as on a suspended machine: by that they still have their lease."""
    return _stopped(field, group, seconds, _stopped_at_work, "in flight", suspended=True)


def stop_group(field: Field, group: Group, seconds: float) -> Told:
    """SIGSTOP of a whole group while it waits for pushes, long enough to be buried by others; then SIGCONT."""
    return _stopped(field, group, seconds, _stopped_waiting, "watchers armed", suspended=False)


def _stopped(
    field: Field, group: Group, seconds: float, stop: Callable[..., Any], what: str, *, suspended: bool
) -> Told:
    pids = field.working(group)
    everybody = [group.pid, *group.workers]  # with the recorder of history
    found, ids, at = stop(field, group, pids, everybody)
    if not found:
        return 0, f"group {group.number}: no {what}"
    tombs: list[list[str]] = []
    relay = field.relay()
    if suspended:
        until(lambda: all(state_of(pid) in ("T", "Z", "") for pid in everybody), 5)
        group.suspension.begin()
    try:
        ends = time.monotonic() + seconds
        if relay in pids:
            field.froze(relay, seconds)
        field.sleep(max(ends - time.monotonic(), 0.0))
        with contextlib.suppress(RedisError):
            names: Any = field.redis.zrange("hm:tombs", 0, -1)
            tombs = [name.decode().split(":") for name in names]
    finally:
        if suspended:
            group.suspension.end()
        to = wall()
        group.signal(signal.SIGCONT, everybody[::-1])
        field.window("stopped", at, to, pids)
    buried = sum(any(str(pid) in words for words in tombs) for pid in pids)
    text = (
        f"group {group.number} for {wall() - at:.0f} s, {found} {what}, {ids} ordered ids held, "
        f"{buried} of {len(pids)} buried"
    )
    return found if wall() - at > LEASE else 0, text
