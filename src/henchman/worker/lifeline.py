"""Gives back the work of processes that are gone, host and all.

A lease that ran out is believed only after it was seen expired for 15 s of unbroken contact with the same server run:
an outage longer than the lease makes nobody steal living work. A rescue begins with a tombstone; lists of the dead are
swept for an hour, because bytes of the dead may still arrive (PROTOCOL, sections 1.5 and 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from henchman.errors import ServerAway, ServerError
from henchman.kernel.clock import awake
from henchman.store import leases, processes
from henchman.store.call import Arg, command, commands
from henchman.worker.flights import give_back_list, held_ids
from henchman.worker.host import Host
from henchman.worker.poison import charge_held

__all__ = ["Lifeline", "bury_and_give_back"]

WATCH = 15.0
LOCK = 6.0  # seconds at least; two beats if those are longer: who died holds up the next one no longer
AT_ONCE = 500  # questions in one write
GAP = 12.0  # longer without a look than this, and than a beat takes, is not unbroken contact


def bury_and_give_back(host: Host, identity: str) -> int | None:
    """Declare ``identity`` dead and send its work back; how many payloads, or None when it lives after all."""
    return _rescue(host, identity) if _bury(host, identity) else None


def _bury(host: Host, identity: str) -> bool:
    """Declare ``identity`` dead and note that its rescue has begun; False when it lives after all."""
    runner, keys = host.connections, host.keys
    try:
        runner.run(command("SADD", keys.rescues, identity))  # who finds it there, and a tomb, goes on from there
    except ServerAway:
        raise
    except ServerError as error:  # a full server: a rescue that is not broken off needs no note
        host.events.emit("part_failed", part="lifeline", error=error)
    if not runner.run(leases.bury(keys, identity, force=False)):
        runner.run(command("SREM", keys.rescues, identity))
        return False
    return True


def _rescue(host: Host, identity: str) -> int:
    """Charge and give back what the buried ``identity`` held; each step may be repeated after any other."""
    runner, keys = host.connections, host.keys
    lists = runner.run(leases.flights(keys, identity))
    filled = _there(host, lists)  # an empty one of an ordered queue counts too: a wake may be lost with its holder
    lists = [one for one in lists if one in filled or keys.is_held(one)]
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


def _each(host: Host, questions: Sequence[tuple[Arg, ...]]) -> Iterator[Any]:
    """The answer to each, asked many at a time: an hour's dead may have had thousands of lists, and a look at each of
    them alone would take longer than contact may be broken."""
    for start in range(0, len(questions), AT_ONCE):
        some = questions[start : start + AT_ONCE]
        answers: Any = host.connections.run(commands(*some))
        yield from answers if len(some) > 1 else [answers]


def _there(host: Host, names: Sequence[str]) -> set[str]:
    """The keys that exist: the lists that hold something, the tombs that stand."""
    found = _each(host, [("EXISTS", one) for one in names])
    return {one for one, there in zip(names, found, strict=True) if there}


class Lifeline:
    """Called at each beat of one process; one process at a time does the work."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._expired: dict[str, float] = {}
        self._run_id = b""
        self._names: set[bytes] = set()
        self._last = 0.0
        self._lock_ms = int(max(LOCK, 2 * host.config.heartbeat) * 1000)
        self._gap = max(GAP, 1.2 * host.config.heartbeat)

    def tick(self, identity: str) -> None:
        """Look for the dead; rescue what is certain, sweep what was rescued before."""
        now = awake()
        if not self._mine(identity):
            self._expired.clear()
            return
        run_id = self._server_run()
        if run_id != self._run_id or now - self._last > self._gap:
            self._expired.clear()
        self._run_id, self._last = run_id, now
        self._sweep(self._look(now))

    def let_go(self) -> None:
        """Let another process look from now on, without waiting for our lock to run out."""
        runner, keys = self._host.connections, self._host.keys
        if runner.run(command("GET", keys.lifeline)) in self._names:
            runner.run(command("DEL", keys.lifeline))

    def _mine(self, identity: str) -> bool:
        runner, keys = self._host.connections, self._host.keys
        self._names.add(identity.encode())
        try:
            holder: Any = runner.run(command("GET", keys.lifeline))
            if holder == identity.encode():
                runner.run(command("PEXPIRE", keys.lifeline, self._lock_ms))
                return True
            if holder in self._names:  # ours, under a name that we had before
                runner.run(command("SET", keys.lifeline, identity, "PX", self._lock_ms))
                return True
            return holder is None and bool(
                runner.run(command("SET", keys.lifeline, identity, "NX", "PX", self._lock_ms))
            )
        except ServerAway:
            raise  # the heart tells of it, once
        except ServerError as error:
            self._host.events.emit("part_failed", part="lifeline", error=error)
            return False

    def _server_run(self) -> bytes:
        info: bytes = self._host.connections.run(command("INFO", "server"))
        return next((line for line in info.splitlines() if line.startswith(b"run_id:")), b"")

    def _look(self, now: float) -> set[str]:
        """Bury who is certainly dead, then rescue; the names of those whose rescue failed.

        All are buried before the first is rescued, the longest dead first: what is begun is noted on the server, so it
        goes on at the next tick of anybody, and needs no second watching, when the server is lost in between.
        """
        runner, keys = self._host.connections, self._host.keys
        names = runner.run(leases.identities(keys))
        if not names:
            return set()
        leased = (("EXISTS", keys.lease(name)) for name in names)
        answers: list[Any] = runner.run(commands(*leased, ("SMEMBERS", keys.rescues)))
        *alive, noted = answers
        dead = {name for name, lives in zip(names, alive, strict=True) if not lives}
        self._expired = {name: self._expired.get(name, now) for name in dead}
        begun = self._begun(noted, dead)
        ripe = [name for name, since in sorted(self._expired.items(), key=lambda one: one[1]) if now - since >= WATCH]
        buried = _there(self._host, [keys.tomb(name) for name in ripe])
        for name in ripe:
            if keys.tomb(name) not in buried and self._safely(partial(_bury, self._host, name)):
                begun.append(name)
        return {name for name in begun if not self._safely(partial(self._rescued, name))}

    def _begun(self, noted: list[bytes], dead: set[str]) -> list[str]:
        """Rescues that were broken off: by an outage, or by the end of who carried them out."""
        runner, keys = self._host.connections, self._host.keys
        found: list[str] = []
        for name in (one.decode("utf-8", "replace") for one in noted):
            if runner.run(command("EXISTS", keys.tomb(name))):
                found.append(name)
            elif name not in dead:
                runner.run(command("SREM", keys.rescues, name))  # it was not buried, and lives or has left
        return found

    def _rescued(self, name: str) -> bool:
        self._host.events.emit("rescued", identity=name, count=_rescue(self._host, name))
        return True

    def _safely(self, step: Callable[[], bool]) -> bool:
        """What ``step`` answers; False when it failed, for one dead process must not hold up the others."""
        try:
            return step()
        except ServerAway:
            raise
        except Exception as error:  # whatever it is: a payload that cannot be judged, for one
            self._host.events.emit("part_failed", part="lifeline", error=error)
            return False

    def _sweep(self, failed: set[str]) -> None:
        """Send back what reached the lists of the dead late; after an hour they are forgotten. Not of ``failed``, whose
        deaths are not charged yet."""
        runner, keys = self._host.connections, self._host.keys
        tombs: list[Any] = runner.run(command("ZRANGE", keys.tombs, 0, -1, "WITHSCORES"))
        names = [one.decode() for one in tombs[::2]]
        since = dict(zip(names, map(float, tombs[1::2]), strict=True))
        found = _each(self._host, [("SMEMBERS", keys.flights(name)) for name in names])
        lists = {name: [one.decode() for one in some] for name, some in zip(names, found, strict=True)}
        filled = _there(self._host, [one for some in lists.values() for one in some])
        for name in names:
            if name not in failed:
                late = [one for one in lists[name] if one in filled]
                self._safely(partial(self._sweep_one, name, since[name], lists[name], late))

    def _sweep_one(self, name: str, buried: float, lists: list[str], filled: list[str]) -> bool:
        runner, keys = self._host.connections, self._host.keys
        late = sum(give_back_list(self._host, one, keys.queue_of_flight(one)) for one in filled)
        if late:
            runner.run(leases.bury(keys, name, force=True))  # the hour begins anew
            self._host.events.emit("rescued", identity=name, count=late)
        elif self._host.clock.now() - buried > leases.TOMB_MS / 1000:
            runner.run(leases.leave(keys, name, lists))
            runner.run(command("ZREM", keys.tombs, name))
        return True
