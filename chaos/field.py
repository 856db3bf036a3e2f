"""What is under attack, and the record of what was done to it: attacks that hit, and windows that explain a repeat."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from clocks import Clock
from groups import Filler, Group
from ledger import Ledger, wall
from market import Market
from proxy import Proxy, Route
from redis import RedisError
from server import Server

from henchman import App
from henchman.batch import procedures
from henchman.errors import BatchError, HenchmanError
from henchman.store import pauses
from henchman.store.call import Call, command, run
from henchman.store.connection import Connections
from henchman.store.keys import Keys
from henchman.store.queues import Pause, pause, unpause

__all__ = ["FROZEN", "PARTS", "STRUCK", "Field", "until"]

STRUCK = "kill -9 of a holder of ordered ids"
FROZEN = "relay of the outbox frozen past its lease"
PARTS = (STRUCK, FROZEN)  # attacks that are part of others: of every kill, of all that stops a host
PAUSED = ("tiny", "nap", "anap", "flaky", "capped", "paced", "big")  # classes of which some are paused
AGAIN = 40.0  # seconds for which an attack that missed is tried again, each try in full and told


def until(fact: Callable[[], Any], limit: float, pause: float = 0.02) -> Any:
    """Wait until ``fact()`` is true; what it was last. A server that is away is a fact that is not true yet."""
    end = time.monotonic() + limit
    while True:
        try:
            found = fact()
        except (RedisError, OSError):
            found = None
        if found or time.monotonic() > end:
            return found
        time.sleep(pause)  # between two looks


def _texts(reply: Any) -> list[str]:
    return [one.decode() for one in reply]


class Field:
    """The server, the proxy, the groups; ``hits`` counts by name what really struck."""

    def __init__(
        self, server: Server, proxy: Proxy, groups: Sequence[Group], pushing: Route, ledger: Ledger, seed: int
    ) -> None:
        self.server, self.proxy, self.groups, self.pushing = server, proxy, groups, pushing
        self.redis = server.redis
        self.chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self._choice = random.Random(seed)  # noqa: S311 - of the thread that pauses
        self.hits: Counter[str] = Counter()
        self.tried: Counter[str] = Counter()
        self.minute = 1  # the one that is played
        self.stopping = threading.Event()
        self.filler: Filler | None = None
        self.market: Market | None = None  # the outbox, if there is one
        self.producers: list[subprocess.Popen[bytes]] = []
        self.wrong: tuple[Clock, subprocess.Popen[bytes]] | None = None  # a producer, and its clock
        self.left_out: dict[str, str] = {}  # attacks that this machine cannot make, and why
        self._ledger = ledger
        self._app: App | None = None
        self._connections = Connections(f"redis://127.0.0.1:{server.port}/0")

    def strike_surely(self, name: str, attack: Callable[..., tuple[int, str]], *args: Any) -> None:
        """Carry out an attack until it hits: on a busy machine nobody may be there to be hit just now."""
        end = time.monotonic() + AGAIN
        while not self.strike(name, attack, *args) and time.monotonic() < end and not self.stopping.is_set():
            self.sleep(1.0)

    def strike(self, name: str, attack: Callable[..., tuple[int, str]], *args: Any) -> bool:
        """Carry out one attack and write down whether it hit; one that fails is a miss, and told."""
        self.tried[name] += 1
        try:
            hit, text = attack(self, *args)
        except (RedisError, OSError, RuntimeError, TimeoutError) as error:
            hit, text = 0, f"failed: {type(error).__name__} {error}"
        self.hits[name] += bool(hit)
        self._ledger.write("attack", name, "hit" if hit else "missed", text)
        return bool(hit)

    def window(self, cause: str, since: float, to: float, pids: Iterable[int] = ()) -> None:
        """From ``since`` to ``to`` the runs of these processes (none: of all) may be repeated, because of ``cause``."""
        self._ledger.write("window", cause, f"{since:.6f}", f"{to:.6f}", ",".join(map(str, pids)) or "all")

    def hostile(self, many: int) -> None:
        """So many payloads are pushed that no client should push."""
        self._ledger.write("hostile", many)

    def clock_of_server(self, earliest: float, latest: float, ahead: float) -> None:
        """The server's clock was stepped between the two moments; it is ``ahead`` seconds ahead now."""
        self._ledger.write("stepped", f"{earliest:.6f}", f"{latest:.6f}", ahead)

    def doubt(self, text: str) -> None:
        """Something that must not be, seen while attacking."""
        self._ledger.write("violation", text)

    def in_flight(self, pids: Iterable[int] | None = None) -> int:
        """How many payloads and ordered ids are in flight, in all or in these processes."""
        lists = self._keys("hm:flight", pids)
        return sum(int(self.redis.llen(key)) for key in lists) + self.held(pids)

    def held(self, pids: Iterable[int] | None = None) -> int:
        """How many ids of ordered queues are in flight, in all or in these processes."""
        return sum(int(self.redis.hlen(key)) for key in self._keys("hm:held", pids))

    def hands(self, pids: Sequence[int]) -> tuple[int, int]:
        """(all that is in flight, how much of it are ordered ids) in processes that were stopped for this look; nothing
        when the server is away just now: they must not stay stopped for that."""
        try:
            return self.in_flight(pids), self.held(pids)
        except (RedisError, OSError):
            return 0, 0

    def _keys(self, kind: str, pids: Iterable[int] | None) -> list[str]:
        names = ["*"] if pids is None else [f"*:{pid}:*" for pid in pids]
        return [key for name in names for key in self.redis.scan_iter(match=f"{kind}:{name}", count=1000)]

    def struck(self, ids: int) -> None:
        """A kill found so many ids of ordered queues in the hands of those that it killed."""
        self.strike(STRUCK, lambda _: (ids, f"{ids} ids"))

    def froze(self, relay: int, seconds: float) -> None:
        """The process that relayed is stopped for so long; another one must take over, also where the server is away at
        the end of it."""
        at, other = time.monotonic(), 0
        while not other and time.monotonic() < at + seconds and not self.stopping.wait(0.2):
            now = self.relay()
            other = now if now != relay else 0
        text = f"process {relay} for {seconds:.0f} s, after {time.monotonic() - at:.1f} s process {other} relays"
        self.strike(FROZEN, lambda _: (int(bool(other)), text))

    def relay(self) -> int:
        """The process that relays the outbox; 0 when nobody does, or the server is away."""
        redis: Any = self.redis
        with contextlib.suppress(RedisError, OSError):
            for key in redis.scan_iter(match="hm:outbox:*:relay", count=1000):
                if name := redis.get(key):
                    return int(name.decode().split(":")[1])
        return 0

    def working(self, group: Group, limit: float = 25.0) -> list[int]:
        """Wait until both workers of a group hold a lease; their pids, fewer or none when that did not come about."""

        def leased() -> list[int]:
            held = [key.decode().split(":") for key in self.redis.scan_iter(match="hm:lease:*", count=1000)]
            return [pid for pid in group.workers if any(str(pid) in words for words in held)]

        until(lambda: len(leased()) >= 2, limit)
        return leased()

    def filled(self, pid: int) -> int:
        """How many jobs are in the batches whose block process ``pid`` is in."""
        redis: Any = self.redis
        found = 0
        for name in redis.zrevrange("hm:batches", 0, 40):
            what, state, total = redis.hmget(b"hm:batch:" + name, "description", "state", "total")
            if state == b"open" and (what or b"").endswith(b" of %d" % pid):
                found += int(total)
        return found

    def close_batches(self) -> int:
        """Close every batch that its producer left open, as ``henchman batch close`` does; how many."""
        redis: Any = self.redis
        names = [name.decode() for name in redis.zrange("hm:batches", 0, -1)]
        left = [name for name in names if redis.hget(f"hm:batch:{name}", "state") == b"open"]
        for name in left:
            run(self._connections, procedures.close(Keys(""), name, ""))
        return len(left)

    def revive(self) -> None:
        """Retry by hand the dead jobs that are to rise; those that cannot be reached now are retried later."""
        if self._app is None:
            self._app = App(redis_url=f"redis://127.0.0.1:{self.server.port}/0")
        with contextlib.suppress(HenchmanError):
            self._app.dead.retry(self._app.dead.matching('"class":"riser"'))

    def hush(self, silent: bool) -> None:
        """Stop the producers, so that queues run empty; or let them go on."""
        for producer in [*self.producers, *([self.filler.process] if self.filler else [])]:
            if producer.poll() is None:
                producer.send_signal(signal.SIGSTOP if silent else signal.SIGCONT)

    def sleep(self, seconds: float) -> None:
        """Wait, unless the run is told to end."""
        self.stopping.wait(seconds)

    def _try(self, call: Call[Any]) -> None:
        try:
            self._connections.run(call)
        except BatchError:  # it is complete, or forgotten
            pass
        except Exception as error:
            self._ledger.write("note", f"pausing: {error!r}")

    def _unpause_all(self, keys: Keys) -> bool:
        left = ("SMEMBERS", keys.paused_batches), ("HKEYS", keys.paused_kinds)
        for one in [name for call in left for name in self._connections.run(command(*call, decode=_texts))]:
            self._try(pauses.unpause(keys, one))
        return not self._connections.run(command("EXISTS", keys.paused_batches, keys.paused_kinds))

    def pause_now_and_then(self) -> None:
        """The body of a thread: the queue "held", some batches and classes are paused for 3 of every 7 s."""
        keys = Keys("")
        while not self.stopping.is_set():
            self.revive()
            some: list[str] = []
            with contextlib.suppress(HenchmanError):
                some = self._connections.run(command("ZRANDMEMBER", keys.batches, 5, decode=_texts))
            some += [f"class:{one}" for one in self._choice.sample(PAUSED, 2)]
            begin = pause(keys, "held", Pause()), *(pauses.pause(keys, one, Pause()) for one in some)
            end = unpause(keys, "held"), *(pauses.unpause(keys, one) for one in some)
            for calls, seconds in ((begin, 3.0), (end, 4.0)):
                for call in calls:
                    self._try(call)
                self.stopping.wait(seconds)
        until(lambda: self._connections.run(unpause(keys, "held")) is not None, 30)
        until(lambda: self._unpause_all(keys), 30)
        self._ledger.write("note", "pausing ended", f"{wall():.3f}")
