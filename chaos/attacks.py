"""Every attack: a function of the field that strikes once and tells whether it hit, and what.

An attack that finds nothing to hit (no work in flight, nobody waiting) waits for it a while and is a miss otherwise:
a run whose attacks missed has proven nothing, and says so.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from batch_attack import kill_producer
from clock_attack import step_producer, step_server_back, step_server_on, step_workers
from field import FROZEN, STRUCK, Field, until
from groups import GRACE, Group
from hostile_attack import push_hostile
from ledger import wall
from outbox_attack import kill_database
from proxy import Route
from recorder_attack import kill_recorder, stop_recorder
from redis import RedisError
from server import alive, ports_of
from settle_attack import lose_cuts
from stop_attack import stop_group, stop_worker, suspend_host
from wire_attack import act_with_least, delay_network

__all__ = ["ATTACKS", "CLOCKS", "OUTBOX"]

MET = 20.0  # seconds for a process that holds work
BETTER = 3.0  # of them, for one that holds ordered ids too; longer while none was struck in this minute
MUCH_BETTER = 12.0
ORPHANED = 60.0  # seconds for an orphan to finish and end, on a busy machine
LONGER = 7.0  # than the lease
Told = tuple[int, str]


def _tries(field: Field) -> Iterator[bool]:
    """Tries to meet work in flight, for so long that an outage of the server passes; whether any work will do by now,
    also without ordered ids."""
    began = time.monotonic()
    better = BETTER if field.hits[STRUCK] >= field.minute else MUCH_BETTER
    while time.monotonic() < began + MET:
        yield time.monotonic() > began + better


def kill_worker(field: Field, group: Group) -> Told:
    """kill -9 of a worker that holds work, ordered ids if it can be so: it is stopped first, to be sure of that."""
    for hurry in _tries(field):
        pids = field.working(group)
        if not pids:
            break
        pid = field.chance.choice(pids)
        at = wall()
        group.signal(signal.SIGSTOP, [pid])
        held, ids = field.hands([pid])
        strikes = ids or (held and hurry)
        group.signal(signal.SIGKILL if strikes else signal.SIGCONT, [pid])
        if strikes:
            field.struck(ids)
            until(lambda: not alive(pid), 5)  # noqa: B023 - called before the next round
            field.window("kill", at, wall(), [pid])
            return held, f"group {group.number}, process {pid}, {held} in flight, {ids} of them ordered ids"
        field.sleep(0.1)
    return 0, f"group {group.number}: nothing in flight"


def kill_supervisor(field: Field, group: Group) -> Told:
    """kill -9 of a supervisor whose children live; another is started at once."""
    pids = field.working(group)
    at = wall()
    group.signal(signal.SIGSTOP, [group.pid])
    left = group.workers  # none can be added to them now, also one that has just been started is among them
    group.signal(signal.SIGKILL, [group.pid])
    orphans = [pid for pid in pids if alive(pid)]
    field.window("orphaned", at, at + float(GRACE) + 10.0, left)
    until(lambda: not group.running, 5)
    group.keep()
    until(lambda: not any(alive(pid) for pid in orphans), ORPHANED)
    for pid in orphans:
        if alive(pid):
            field.doubt(f"orphan {pid} has not ended within {ORPHANED:g} s of its supervisor's death")
    return len(orphans), f"group {group.number}, {len(orphans)} children"


def kill_all_supervisors(field: Field) -> Told:
    """kill -9 of all supervisors at once; others are started at once."""
    at = wall()
    for group in field.groups:
        group.signal(signal.SIGSTOP, [group.pid])
    orphans = [pid for group in field.groups for pid in group.workers]  # none can be added to them now
    for group in field.groups:
        group.signal(signal.SIGKILL, [group.pid])
    field.window("orphaned", at, at + float(GRACE) + 10.0, orphans)
    until(lambda: not any(group.running for group in field.groups), 5)
    for group in field.groups:
        group.keep()
    return len(orphans), f"{len(orphans)} children left behind"


def kill_group(field: Field, group: Group) -> Told:
    """kill -9 of a supervisor and its workers, as when a host is lost: nobody is left to give back."""
    field.working(group)
    for hurry in _tries(field):
        at = wall()
        group.signal(signal.SIGSTOP, [group.pid])
        pids = group.workers  # none can be added to them now, and none be forgotten
        everybody = [group.pid, *pids]
        group.signal(signal.SIGSTOP, pids)
        held, ids = field.hands(pids)
        if ids or (held and hurry):
            break
        group.signal(signal.SIGCONT, everybody)
        field.sleep(0.1)
    else:
        return 0, f"group {group.number}: nothing in flight"
    group.signal(signal.SIGKILL, everybody)
    field.struck(ids)
    until(lambda: not any(alive(pid) for pid in everybody), 5)  # a busy machine takes its time with a signal
    field.window("kill", at, wall(), everybody)
    field.sleep(2.0)
    return held, f"group {group.number}, {len(everybody)} processes, {held} in flight"


def deliver_late(field: Field, group: Group) -> Told:
    """A worker's bytes are kept back, it is killed, and 10 s later the server gets them."""
    pids = field.working(group)
    if not pids:
        return 0, "nobody works"
    pid = field.chance.choice(pids)
    until(lambda: len(ports_of(pid)) > 3, 10)
    at = wall()
    held = field.proxy.call(group.route.hold, ports_of(pid))
    until(lambda: sum(link.late_bytes for link in held) > 200, 4)
    group.signal(signal.SIGKILL, [pid])
    field.window("kill", at, wall(), [pid])
    field.sleep(10.0)
    count = field.proxy.call(group.route.release, held)
    return count, f"group {group.number}, process {pid}, {count} bytes on {len(held)} connections"


def drop_answers(field: Field, route: Route) -> Told:
    """The server executes, its answer is swallowed, the connection cut; six times. Meanwhile nothing can be told it."""
    before, at = route.dropped, wall()
    pids = [pid for group in field.groups if group.route is route for pid in group.workers]
    route.drop = 6
    until(lambda: route.drop <= 0, 6)
    route.drop = 0
    if pids and route.dropped > before:
        field.window("away", at, wall(), pids)
    return route.dropped - before, f"{route.dropped - before} answers"


def cut_network(field: Field, group: Group) -> Told:
    """No way between a group and the server for longer than the lease: connections broken, or bytes standing still."""
    silent = field.chance.random() < 0.5
    pids = field.working(group)
    links = len(group.route.links)
    at = wall()
    if silent:
        field.proxy.call(group.route.silence, True)
    else:
        field.proxy.call(group.route.cut)
    field.sleep(LONGER)
    if silent:
        field.proxy.call(group.route.silence, False)
    else:
        field.proxy.call(group.route.listen)
    field.window("away", at, wall(), pids)
    return links, f"group {group.number}, {'silence' if silent else 'refusal'} on {links} connections"


def flush_scripts(field: Field) -> Told:
    """SCRIPT FLUSH: every script is unknown."""
    before = field.server.errors("NOSCRIPT")
    field.redis.script_flush()
    until(lambda: field.server.errors("NOSCRIPT") > before, 4)
    count = field.server.errors("NOSCRIPT") - before
    return count, f"{count} calls found their script gone"


def kill_clients(field: Field) -> Told:
    """CLIENT KILL of everybody."""
    redis: Any = field.redis
    count = int(redis.execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES"))
    return count, f"{count} connections"


def slow_server(field: Field) -> Told:
    """CLIENT PAUSE: the server answers nobody for 1.5 s."""
    redis: Any = field.redis
    at = wall()
    redis.execute_command("CLIENT", "PAUSE", 1500, "ALL")
    field.redis.ping()
    field.window("away", at, wall())
    return int(wall() - at > 1), f"{wall() - at:.1f} s"


def fill_memory(field: Field) -> Told:
    """The memory limit is reached for longer than the lease, and lifted."""
    before, at = field.server.errors("OOM"), wall()
    field.redis.config_set("maxmemory", "1mb")
    try:
        field.sleep(LONGER)
        refused = field.server.errors("OOM") - before
    finally:
        field.redis.config_set("maxmemory", "0")
        field.window("away", at, wall())
    return refused, f"{wall() - at:.1f} s, {refused} writes refused"


def fill_disk(field: Field) -> Told:
    """The append-only file can grow no further for 4 s (synced each second: with "always" the server would exit)."""
    before, at = field.server.errors("MISCONF"), wall()
    field.redis.config_set("appendfsync", "everysec")
    field.server.limit_files(True)
    try:
        field.sleep(4.0)
        refused = field.server.errors("MISCONF") - before
    finally:
        field.server.limit_files(False)

    def written() -> bool:
        return bool(field.redis.set("chaos:written", "1"))

    until(written, 10)
    field.sleep(0.5)
    field.redis.config_set("appendfsync", "always")
    field.redis.delete("chaos:written")
    field.window("away", at, wall())
    return refused, f"{refused} writes refused"


def kill_server(field: Field, down: float) -> Told:
    """kill -9 of the server; it starts again on its append-only file after ``down`` seconds."""
    at = wall()
    with contextlib.suppress(RedisError, OSError):
        field.redis.client_list()
    field.server.kill()
    began = time.monotonic()
    field.sleep(down)
    lasted = time.monotonic() - began
    field.server.start()
    field.window("away", at, wall())
    return int(lasted >= down), f"down for {wall() - at:.1f} s"


ATTACKS: dict[str, Callable[..., Told]] = {
    "kill -9 of a worker with work in flight": kill_worker,
    "kill -9 of a supervisor with children alive": kill_supervisor,
    "kill -9 of all supervisors at once": kill_all_supervisors,
    "kill -9 of a whole group": kill_group,
    "worker stopped past its lease": stop_worker,
    "group stopped past the lease, watchers armed": stop_group,
    "host suspended past the lease with work in flight": suspend_host,
    "bytes delivered 10 s after the sender's death": deliver_late,
    "answers to workers lost after execution": drop_answers,
    "answers to producers lost after execution": drop_answers,
    "answers to ends that are settled together lost after execution": lose_cuts,
    "network cut for longer than the lease": cut_network,
    "100 ms of network delay": delay_network,
    "workers of a user with the smallest rights": act_with_least,
    "hostile payloads among honest ones": push_hostile,
    "clock of workers stepped": step_workers,
    "clock of a producer stepped": step_producer,
    "clock of the server stepped on, and back": step_server_on,
    "clock of the server stepped back, and on": step_server_back,
    "kill -9 of a producer inside a batch": kill_producer,
    "recorder of history stopped past its lease": stop_recorder,
    "kill -9 of the recorder of history": kill_recorder,
    "kill -9 of PostgreSQL with rows in the outbox": kill_database,
    "SCRIPT FLUSH": flush_scripts,
    "CLIENT KILL of everybody": kill_clients,
    "server silent (CLIENT PAUSE)": slow_server,
    "memory full for longer than the lease": fill_memory,
    "disk of the append-only file full": fill_disk,
    "server down for longer than the lease": kill_server,
    "kill -9 of the server": kill_server,
}
OUTBOX = ("kill -9 of PostgreSQL with rows in the outbox", FROZEN)
CLOCKS = [name for name in ATTACKS if name.startswith("clock ")]
