"""Gives back the work of processes that are gone, host and all.

A lease that ran out is believed only after it was seen expired for 15 s of unbroken contact with the same server run:
an outage longer than the lease makes nobody steal living work. A rescue begins with a tombstone; lists of the dead are
swept for an hour, because bytes of the dead may still arrive (PROTOCOL, sections 1.5 and 2).
"""

from __future__ import annotations

import time
from typing import Any

from henchman.errors import ServerAway, ServerError
from henchman.store import leases, processes
from henchman.store.call import command, commands
from henchman.worker.flights import give_back_list, held_ids
from henchman.worker.host import Host
from henchman.worker.poison import charge_held

__all__ = ["Lifeline", "bury_and_give_back"]

WATCH = 15.0
LOCK_MS = 20_000
GAP = 12.0  # longer without a look than this is not unbroken contact


def bury_and_give_back(host: Host, identity: str) -> int | None:
    """Declare ``identity`` dead and send its work back; how many payloads, or None when it lives after all."""
    runner, keys = host.connections, host.keys
    try:
        runner.run(command("SADD", keys.rescues, identity))  # who finds it there, and a tomb, goes on from there
    except ServerAway:
        raise
    except ServerError as error:  # a full server: a rescue that is not broken off needs no note
        host.events.emit("part_failed", part="lifeline", error=error)
    if not runner.run(leases.bury(keys, identity, force=False)):
        runner.run(command("SREM", keys.rescues, identity))
        return None
    return _rescue(host, identity)


def _rescue(host: Host, identity: str) -> int:
    """Charge and give back what the buried ``identity`` held; each step may be repeated after any other."""
    runner, keys = host.connections, host.keys
    lists = runner.run(leases.flights(keys, identity))
    ids = held_ids(host, lists)  # freed with the charge, or after it
    if runner.run(command("ZSCORE", keys.stopping, identity)) is None:
        for line in charge_held(host, identity, lists, started=None, cause="its host is gone"):
            host.events.emit("charged", text=line)
    moved = ids
    for flight in lists:
        given_back = give_back_list(host, flight, keys.queue_of_flight(flight))
        moved += 0 if keys.is_held(flight) else given_back
    runner.run(command("SREM", keys.rescues, identity))
    runner.run(processes.remove(keys, identity))
    return moved


class Lifeline:
    """Called at each beat of one process; one process at a time does the work."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._expired: dict[str, float] = {}
        self._run_id = b""
        self._names: set[bytes] = set()
        self._last = 0.0

    def tick(self, identity: str) -> None:
        """Look for the dead; rescue what is certain, sweep what was rescued before."""
        now = time.monotonic()
        if not self._mine(identity):
            self._expired.clear()
            return
        run_id = self._server_run()
        if run_id != self._run_id or now - self._last > GAP:
            self._expired.clear()
        self._run_id, self._last = run_id, now
        self._look(now)
        self._sweep()

    def _mine(self, identity: str) -> bool:
        runner, keys = self._host.connections, self._host.keys
        self._names.add(identity.encode())
        try:
            holder: Any = runner.run(command("GET", keys.lifeline))
            if holder == identity.encode():
                runner.run(command("PEXPIRE", keys.lifeline, LOCK_MS))
                return True
            if holder in self._names:  # ours, under a name that we had before
                runner.run(command("SET", keys.lifeline, identity, "PX", LOCK_MS))
                return True
            return holder is None and bool(runner.run(command("SET", keys.lifeline, identity, "NX", "PX", LOCK_MS)))
        except ServerAway:
            raise  # the heart tells of it, once
        except ServerError as error:
            self._host.events.emit("part_failed", part="lifeline", error=error)
            return False

    def _server_run(self) -> bytes:
        info: bytes = self._host.connections.run(command("INFO", "server"))
        return next((line for line in info.splitlines() if line.startswith(b"run_id:")), b"")

    def _look(self, now: float) -> None:
        runner, keys = self._host.connections, self._host.keys
        names = runner.run(leases.identities(keys))
        if not names:
            return
        leased = (("EXISTS", keys.lease(name)) for name in names)
        answers: list[Any] = runner.run(commands(*leased, ("SMEMBERS", keys.rescues)))
        *alive, begun = answers
        dead = {name for name, lives in zip(names, alive, strict=True) if not lives}
        self._expired = {name: self._expired.get(name, now) for name in dead}
        self._go_on(begun, dead)
        for name, since in self._expired.items():
            if now - since >= WATCH and not runner.run(command("EXISTS", keys.tomb(name))):
                self._told(name, bury_and_give_back(self._host, name))

    def _go_on(self, begun: list[bytes], dead: set[str]) -> None:
        """Rescues that were broken off: by an outage, or by the end of who carried them out."""
        runner, keys = self._host.connections, self._host.keys
        for name in (one.decode("utf-8", "replace") for one in begun):
            if runner.run(command("EXISTS", keys.tomb(name))):
                self._told(name, _rescue(self._host, name))
            elif name not in dead:
                runner.run(command("SREM", keys.rescues, name))  # it was not buried, and lives or has left

    def _told(self, name: str, rescued: int | None) -> None:
        if rescued is not None:
            self._host.events.emit("rescued", identity=name, count=rescued)

    def _sweep(self) -> None:
        """Send back what reached the lists of the dead late; after an hour they are forgotten."""
        runner, keys = self._host.connections, self._host.keys
        tombs: list[Any] = runner.run(command("ZRANGE", keys.tombs, 0, -1, "WITHSCORES"))
        for place in range(0, len(tombs), 2):
            name, buried = tombs[place].decode(), float(tombs[place + 1])
            lists = runner.run(leases.flights(keys, name))
            late = sum(give_back_list(self._host, one, keys.queue_of_flight(one)) for one in lists)
            if late:
                runner.run(leases.bury(keys, name, force=True))  # the hour begins anew
                self._host.events.emit("rescued", identity=name, count=late)
            elif time.time() - buried > leases.TOMB_MS / 1000:
                runner.run(leases.leave(keys, name, lists))
                runner.run(command("ZREM", keys.tombs, name))
