"""The other play: the server is lost for good, and its replica takes over behind the same address.

Replication is asynchronous: what the replica had not confirmed is gone, whatever the old server had answered. So the
judgement asks only for pushes and cancellations that ``WAIT`` has confirmed; the others are counted, and those lost
among them told.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from attacks import kill_worker
from field import Field, until
from ledger import wall
from server import Server

__all__ = ["FAILOVER", "failover"]

CONFIRMED = 60.0  # seconds for the replica to have what there is
BEHIND = 1.0  # seconds of writes that the replica never hears of
NAME = "failover to a replica"
FAILOVER = ["kill -9 of a worker with work in flight", NAME]


def _confirmed(field: Field) -> tuple[float, int]:
    """(a time before which the replica has everything, how many have it); tried again while none has."""
    old: Any = field.redis
    end = time.monotonic() + CONFIRMED
    while True:
        before = wall()
        with old.client() as one:  # WAIT speaks of its own connection's writes, and so of everything before them
            one.incr("chaos:wait")
            confirmed = int(one.wait(1, 5000))
        if confirmed or time.monotonic() > end:
            return before, confirmed


def failover(field: Field, folder: Path) -> tuple[Server, tuple[float, float]]:
    """Play it; the server of the second half, and the time for which nothing was confirmed."""
    replica = Server(folder / "replica", "--replicaof", "127.0.0.1", str(field.server.port))
    replica.start()
    linked: Any = replica.redis
    until(lambda: linked.info("replication")["master_link_status"] == "up", CONFIRMED)
    field.sleep(12.0)
    field.strike_surely("kill -9 of a worker with work in flight", kill_worker, field.groups[0])
    field.sleep(3.0)
    before, confirmed = _confirmed(field)
    linked.replicaof("NO", "ONE")  # from here on it hears nothing more: the worst that replication can do
    pids = [pid for group in field.groups for pid in group.workers]
    field.sleep(BEHIND)
    field.server.kill()
    lost = wall()  # what it answered until it was gone is not confirmed either
    field.sleep(1.0)
    for route in field.proxy.routes:
        field.proxy.call(route.cut)
        route.upstream = replica.port
        field.proxy.call(route.listen)
    field.server, field.redis = replica, replica.redis
    field.window("failover", before, wall() + 5.0, pids)
    text = f"replica {wall() - before:.1f} s behind, nobody there for {wall() - lost:.1f} s"
    field.strike(NAME, lambda _: (confirmed, text))
    field.sleep(5.0)
    field.strike_surely("kill -9 of a worker with work in flight", kill_worker, field.groups[1])
    field.sleep(3.0)
    return replica, (before, lost)
