"""Gives back the work of processes that are gone, host and all.

A lease that ran out is believed only after it was seen for 15 s, in unbroken contact with the same run of the server,
not to be renewed: an outage longer than the lease makes nobody steal living work. A rescue begins with a tombstone;
lists of the dead are swept for an hour, because bytes of the dead may still arrive (PROTOCOL, sections 1.5 and 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from henchman.errors import ServerAway, ServerError
from henchman.kernel.clock import awake
from henchman.kernel.service import Ticker
from henchman.store import leases
from henchman.store.call import Runner, command
from henchman.worker.host import Host
from henchman.worker.poison import charge_held
from henchman.worker.rescue import each, give_back, there
from henchman.worker.session import give_back_list

__all__ = ["Lifeline", "bury_and_give_back"]

WATCH = 15.0
LOOK = 1.0  # seconds between two looks
SWEEP = 5.0  # seconds between two looks at the lists of the dead
TURN = 3.0  # seconds at least for which nobody else looks: who died holds up the next one no longer
GAP = 6.0  # longer without a look than this is not unbroken contact
JITTER = 100  # milliseconds by which the end of a lease may seem to move though nobody renewed it


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
    if not runner.run(leases.entomb(keys, identity, force=False)):
        runner.run(command("SREM", keys.rescues, identity))
        return False
    return True


def _rescue(host: Host, identity: str) -> int:
    """Charge and give back what the buried ``identity`` held; each step may be repeated after any other."""
    runner, keys = host.connections, host.keys
    lists = runner.run(leases.in_flight_lists(keys, identity))
    stopping = runner.run(command("ZSCORE", keys.stopping, identity)) is not None

    def charge(filled: list[str]) -> None:
        if not stopping:
            for line in charge_held(host, identity, filled, started=None, cause="its host is gone"):
                host.events.emit("charged", text=line)

    moved = give_back(host, identity, lists, charge)
    runner.run(command("SREM", keys.rescues, identity))
    runner.run(leases.strike_off(keys, identity))
    return moved


class _Seen(NamedTuple):
    """When a lease runs out (0: it has), and since when it has not been seen to be renewed."""

    expires: int
    since: float


class Lifeline(Ticker):
    """Looks each second, whatever the heart does; one process at a time does the work. ``identity()`` is our name."""

    name = "lifeline"

    def __init__(self, host: Host, identity: Callable[[], str] = str) -> None:
        super().__init__(host.events.failed)
        self._host = host
        self._identity = identity
        self._names: set[str] = set()
        self._seen: dict[str, _Seen] = {}
        self._own = host.connections.apart()
        self._leads = False
        self._opened = 0
        self._run = b""
        self._last = self._swept = float("-inf")
        self._turn = TURN

    def tick(self) -> float:
        """Look for the dead, now and then also for what reached them late; the seconds until the next look."""
        sweep = awake() - self._swept >= SWEEP
        try:
            return self.look(self._identity(), sweep=sweep)
        except ServerAway:
            return LOOK  # the heart tells of it, once

    def look(self, identity: str, *, sweep: bool = True) -> float:
        """Look for the dead; rescue those that are certain, sweep what was rescued before. The seconds until our next
        look: at once after the turn of another process has run out."""
        started = awake()
        seen = self._watch(self._own if self._leads else self._host.connections, identity)
        if not seen.turn:
            self._rest()
            return min(max(seen.left, 0.0), self._turn) + 0.05
        if not self._leads:
            self._leads = True
            seen = self._watch(self._own, identity)
        self._stay_in_contact(started)
        failed = self._bury_and_rescue(seen, started)
        if sweep:
            self._swept = started
            self._sweep(failed)
        took = awake() - started
        self._turn = max(TURN, 4 * took)
        return max(0.0, LOOK - took)

    def stop(self, timeout: float = 5.0) -> bool:
        """Look no more."""
        ended = super().stop(timeout)
        if ended:
            self._rest()
        return ended

    def let_go(self) -> None:
        """Let another process look from now on, without waiting for our turn to run out."""
        runner, keys = self._host.connections, self._host.keys
        if runner.run(command("GET", keys.lifeline)) in {one.encode() for one in self._names}:
            runner.run(command("DEL", keys.lifeline))

    def _rest(self) -> None:
        self._seen.clear()
        if self._leads:
            self._leads = False
            self._own.close()

    def _watch(self, runner: Runner, identity: str) -> leases.Watch:
        """Every lease, if it is our turn."""
        keys = self._host.keys
        self._names.add(identity)
        former, turn_ms = self._names - {identity}, int(self._turn * 1000)
        seen = page = runner.run(leases.watch(keys, identity, former, turn_ms))
        while page.turn and len(page.expires) == leases.AT_ONCE:
            page = runner.run(leases.watch(keys, identity, former, turn_ms, len(seen.expires)))
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
            return b"client %d" % own.run(command("CLIENT", "ID"))
        except ServerAway:
            raise
        except ServerError:
            return b"connection %d" % own.opened

    def _bury_and_rescue(self, seen: leases.Watch, now: float) -> set[str]:
        """Bury who is certainly dead, then rescue; the names of those whose rescue failed.

        All are buried before the first is rescued, the longest dead first: what is begun is noted on the server, so it
        goes on at the next look of anybody, and needs no second watching, when the server is lost in between.
        """
        host, keys = self._host, self._host.keys
        begun = self._begun(seen)
        ripe = self._ripe(seen.expires, now)
        buried = there(host, [keys.tomb(name) for name in ripe])
        ripe = [name for name in ripe if keys.tomb(name) not in buried]
        if ripe and self._server_run() != self._run:
            self._seen.clear()  # something between us and the server leads to another one without a word
            ripe = []
        begun += [name for name in ripe if self._safely(partial(_bury, host, name))]
        return {name for name in begun if not self._safely(partial(self._rescued, name))}

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
        """Rescues that were broken off: by an outage, or by the end of who carried them out."""
        if not seen.begun:
            return []
        runner, keys = self._host.connections, self._host.keys
        tombs = there(self._host, [keys.tomb(name) for name in seen.begun])
        for name in seen.begun:
            if keys.tomb(name) not in tombs and seen.expires.get(name, -1):
                runner.run(command("SREM", keys.rescues, name))  # it was not buried, and lives or has left
        return [name for name in seen.begun if keys.tomb(name) in tombs]

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
        found = each(self._host, [("SMEMBERS", keys.flights(name)) for name in names])
        lists = {name: [one.decode() for one in some] for name, some in zip(names, found, strict=True)}
        filled = there(self._host, [one for some in lists.values() for one in some])
        for name in names:
            if name not in failed:
                late = [one for one in lists[name] if one in filled]
                self._safely(partial(self._sweep_one, name, since[name], lists[name], late))

    def _sweep_one(self, name: str, buried: float, lists: list[str], filled: list[str]) -> bool:
        runner, keys = self._host.connections, self._host.keys
        late = sum(give_back_list(self._host, one, keys.queue_of_flight(one)) for one in filled)
        if late:
            runner.run(leases.entomb(keys, name, force=True))  # the hour begins anew
            self._host.events.emit("rescued", identity=name, count=late)
        elif self._host.clock.now() - buried > leases.TOMB_MS / 1000:
            runner.run(leases.leave(keys, name, lists))
            runner.run(command("ZREM", keys.tombs, name))
        return True
