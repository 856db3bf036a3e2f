"""Watches every lease and rescues the processes whose lease ran out, host and all. One process at a time does it.

A lease that ran out is believed only after it was seen for 15 s, in unbroken contact with the same run of the server,
not to be renewed: an outage longer than the lease makes nobody steal living work. A rescue begins with a tombstone;
lists of the dead are swept for an hour, because bytes of the dead may still arrive (PROTOCOL, sections 1.5 and 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from henchman.client.runtime import Runtime
from henchman.errors import ServerAway, ServerError
from henchman.kernel.clock import awake
from henchman.kernel.threads import Ticker
from henchman.store import leases
from henchman.store.call import Runner, command
from henchman.store.leases import LIFELINE_MS, Leader
from henchman.worker.rescue import Death, Rescued, apart, each, give_back_list, rescue, there

WATCH = 15.0
LOOK = 1.0  # seconds between two looks
SWEEP = 5.0  # seconds between two looks at the lists of the dead
GAP = 6.0  # longer without a look than this is not unbroken contact
JITTER = 100  # milliseconds by which the end of a lease may seem to move though nobody renewed it


def entomb(runtime: Runtime, identity: str) -> bool:
    """Declare ``identity`` dead and note that its rescue has begun; False when it lives after all."""
    runner, keys = runtime.connections, runtime.keys
    try:
        runner.run(command("SADD", keys.rescues, identity))  # any lifeline that finds it there, and a tomb, goes on
    except ServerAway:
        raise
    except ServerError as error:  # a full server: a rescue that is not broken off needs no note
        runtime.events.emit("part_failed", part="lifeline", error=error)
    if not runner.run(leases.entomb(keys, identity, force=False)):
        runner.run(command("SREM", keys.rescues, identity))
        return False
    return True


def rescue_lost(runtime: Runtime, identity: str) -> Rescued:
    """Charge and give back what the entombed ``identity`` held, unless it was stopping: then no job is to blame."""
    stopping = runtime.connections.run(command("ZSCORE", runtime.keys.stopping, identity)) is not None
    death = None if stopping else Death("its host is gone")
    return rescue(runtime, identity, death, lambda line: runtime.events.emit("charged", text=line))


class _Seen(NamedTuple):
    """When a lease runs out (0: it has), and since when it has not been seen to be renewed."""

    expires: int
    since: float


class Lifeline(Ticker):
    """Looks each second, whatever the heart does."""

    name = "lifeline"

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self.leader = Leader(runtime.keys.lifeline, LIFELINE_MS)
        self._seen: dict[str, _Seen] = {}
        self._own = runtime.connections.apart()
        self._opened = 0
        self._run = b""
        self._last = self._swept = float("-inf")

    def tick(self) -> float:
        """Look for the dead, now and then also for what reached them late; the seconds until the next look."""
        sweep = awake() - self._swept >= SWEEP
        try:
            return self.look(sweep=sweep)
        except ServerAway:
            return LOOK  # the heart says so, once

    def look(self, *, sweep: bool = True) -> float:
        """Look for the dead; rescue those that are certain, sweep what was rescued before. The seconds until our next
        look: at once after the turn of another process has run out."""
        started = awake()
        seen = self._watch(self._own if self.leader.leads else self._runtime.connections)
        if not seen.turn:
            self._rest()
            return min(max(seen.left, 0.0), self.leader.lease_ms / 1000) + 0.05
        if not self.leader.leads:
            self.leader.leads = True
            seen = self._watch(self._own)
        self._stay_in_contact(started)
        failed = self._entomb_and_rescue(seen, started)
        if sweep:
            self._swept = started
            self._sweep(failed)
        took = awake() - started
        self.leader.lease_ms = max(LIFELINE_MS, int(4000 * took))  # a look that takes long keeps its turn
        return max(0.0, LOOK - took)

    def stop(self, timeout: float = 5.0) -> bool:
        """Look no more, and let another process look without waiting for our turn to run out."""
        ended = super().stop(timeout)
        if ended:
            self._rest()
        self.leader.resign(self._runtime.connections, self._runtime.events, self.name)
        return ended

    def _rest(self) -> None:
        self._seen.clear()
        if self.leader.leads:
            self.leader.leads = False
            self._own.close()

    def _watch(self, runner: Runner) -> leases.Watch:
        """Every lease, if it is our turn."""
        keys, leader = self._runtime.keys, self.leader
        seen = page = runner.run(leases.watch(keys, leader.identity, leader.lease_ms))
        while page.turn and len(page.expires) == leases.AT_ONCE:
            page = runner.run(leases.watch(keys, leader.identity, leader.lease_ms, len(seen.expires)))
            seen.expires.update(page.expires)
        return seen

    def _stay_in_contact(self, now: float) -> None:
        """What was seen counts only as long as contact with one run of the server is unbroken.

        The connection is our own, and the same: then so is the server. On another one the server is asked who it is.
        """
        own = self._own
        if own.opened != self._opened or now - self._last > GAP:
            run = self._server_run()
            if run != self._run or now - self._last > GAP:
                self._seen.clear()
            self._run, self._opened = run, own.opened
        self._last = now

    def _server_run(self) -> bytes:
        """Something that is another one when the server is, or was started anew."""
        own = self._own
        try:
            info: bytes = own.run(command("INFO", "server"))
            found = next((line for line in info.splitlines() if line.startswith(b"run_id:")), b"")
            if found:
                return found
        except ServerAway:
            raise
        except ServerError:  # forbidden, as hardened servers do: then a connection stands for its server
            pass
        try:
            client: int = own.run(command("CLIENT", "ID"))
            return b"connection %d, client %d" % (own.opened, client)  # a server counts from 1 again when it starts
        except ServerAway:
            raise
        except ServerError:
            return b"connection %d" % own.opened

    def _entomb_and_rescue(self, seen: leases.Watch, now: float) -> set[str]:
        """Entomb who is certainly dead, then rescue; the names of those whose rescue failed.

        All are entombed before the first is rescued, the longest dead first: what is begun is noted on the server, so
        any lifeline goes on with it at its next look, without a second watching, when the server is lost in between.
        """
        runtime, keys = self._runtime, self._runtime.keys
        begun = self._begun(seen)
        ripe = self._ripe(seen.expires, now)
        entombed = there(runtime, [keys.tomb(name) for name in ripe])
        ripe = [name for name in ripe if keys.tomb(name) not in entombed]
        if ripe and self._server_run() != self._run:
            self._seen.clear()  # something between us and the server leads to another one without a word
            ripe = []
        dead, alive = apart(partial(entomb, runtime), ripe)
        rescued, failed = apart(self._rescue_one, [*begun, *(name for name in dead if dead[name])])
        failed |= {name: one.error for name, one in rescued.items() if one.error is not None}
        self._announce_failures(alive | failed)
        return set(failed)

    def _rescue_one(self, name: str) -> Rescued:
        rescued = rescue_lost(self._runtime, name)
        if rescued.moved or rescued.error is None:
            self._runtime.events.emit("rescued", identity=name, count=rescued.moved)
        return rescued

    def _announce_failures(self, failed: Mapping[str, Exception]) -> None:
        for error in failed.values():
            self._runtime.events.emit("part_failed", part=self.name, error=error)

    def _ripe(self, expires: Mapping[str, int], now: float) -> list[str]:
        """Whose lease has run out, and was not seen to be renewed for so long that it is certain; the longest first."""
        seen = {}
        for name, until in expires.items():
            known = self._seen.get(name)
            renewed = known is None or (until and abs(until - known.expires) > JITTER)
            seen[name] = _Seen(until, now) if known is None or renewed else _Seen(until or known.expires, known.since)
        self._seen = seen
        dead = [name for name, until in expires.items() if not until and now - seen[name].since >= WATCH]
        return sorted(dead, key=lambda name: seen[name].since)

    def _begun(self, seen: leases.Watch) -> list[str]:
        """Rescues that were broken off: by an outage, or by the end of the process that carried them out."""
        if not seen.begun:
            return []
        runner, keys = self._runtime.connections, self._runtime.keys
        tombs = there(self._runtime, [keys.tomb(name) for name in seen.begun])
        for name in seen.begun:
            if keys.tomb(name) not in tombs and seen.expires.get(name, -1):
                runner.run(command("SREM", keys.rescues, name))  # it was not entombed, and lives or has left
        return [name for name in seen.begun if keys.tomb(name) in tombs]

    def _sweep(self, failed: set[str]) -> None:
        """Send back what reached the lists of the dead late; after an hour they are forgotten. Not of ``failed``, whose
        deaths are not charged yet."""
        runner, keys = self._runtime.connections, self._runtime.keys
        tombs: list[Any] = runner.run(command("ZRANGE", keys.tombs, 0, -1, "WITHSCORES"))
        names = [one.decode() for one in tombs[::2]]
        since = dict(zip(names, map(float, tombs[1::2]), strict=True))
        found = each(self._runtime, [("SMEMBERS", keys.lists_of(name)) for name in names])
        lists = {name: [one.decode() for one in some] for name, some in zip(names, found, strict=True)}
        filled = there(self._runtime, [one for some in lists.values() for one in some])

        def sweep(name: str) -> None:
            self._sweep_one(name, since[name], lists[name], [one for one in lists[name] if one in filled])

        self._announce_failures(apart(sweep, [name for name in names if name not in failed])[1])

    def _sweep_one(self, name: str, buried: float, lists: list[str], filled: list[str]) -> None:
        runner, keys = self._runtime.connections, self._runtime.keys
        swept, failed = apart(lambda one: give_back_list(self._runtime, one, keys.queue_of_flight(one)), filled)
        late = sum(swept.values())
        if late:
            runner.run(leases.entomb(keys, name, force=True))  # the hour begins anew
            self._runtime.events.emit("rescued", identity=name, count=late)
        elif not failed and self._runtime.clock.now() - buried > leases.TOMB_MS / 1000:
            runner.run(leases.leave(keys, name, lists))
            runner.run(command("ZREM", keys.tombs, name))
        self._announce_failures(failed)
