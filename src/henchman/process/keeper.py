"""The supervisor's hand on the server: renews the leases of living children, gives back the work of dead ones.

A thread of its own, because the server may be away for longer than the supervisor may be deaf.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from henchman.config import Config
from henchman.errors import HenchmanError, LeaseLost
from henchman.kernel.service import Ticker
from henchman.process.child import ChildProcess
from henchman.store import leases, processes
from henchman.store.connection import Connections
from henchman.store.embedded import EmbeddedServer
from henchman.store.keys import Keys
from henchman.worker.flights import give_back_list, held_ids
from henchman.worker.poison import charge_held

__all__ = ["Blame", "Keeper"]


class Blame(NamedTuple):
    """Whom a death is charged to: the jids that had started, and whether what ran had the process to itself."""

    started: Sequence[bytes]
    alone: bool
    cause: str


class _Desk:
    """As much of an app as giving back needs."""

    def __init__(self, config: Config, connections: Connections) -> None:
        self.config = config
        self.keys = Keys(config.namespace)
        self.connections = connections


class Keeper(Ticker):
    """``children`` is replaced by the supervisor as they come and go."""

    name = "keeper"
    after_error = 0.5

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(lambda part, error: say(f"{part}: {error}"))
        self.children: Sequence[ChildProcess] = ()
        self.hang_after = 180.0
        self.lease = 30.0
        self._say = say
        self._desk: _Desk | None = None
        self._server: EmbeddedServer | None = None
        self._dead: list[tuple[str, Blame | None]] = []
        self._renewed = 0.0
        self._troubled = False

    def connect(self, text: str) -> Config:
        """Use the server that a child has told of (its configuration as JSON); the configuration."""
        config = Config.from_json(text)
        if self._desk is not None:
            return config
        url = config.redis_url
        if url is None:
            self._server = EmbeddedServer(config.server_folder())
            url = self._server.acquire()
        self.hang_after, self.lease = config.hang_after, config.lease
        self._desk = _Desk(config, Connections(url, revive=self._revive if self._server else None))
        return config

    def _revive(self) -> bool:
        if self._server is not None:
            self._server.ensure()
        return True

    def bury(self, identities: Iterable[str], blame: Blame | None = None) -> None:
        """These are dead: their work goes back as soon as the server can be reached, and ``blame`` is written down."""
        self._dead += [(identity, blame) for identity in identities]
        self.wake()

    def tick(self) -> float:
        """Give back, renew; seconds until the next time."""
        if self._desk is None:
            return 0.2
        try:
            while self._dead:
                self._give_back(self._desk, *self._dead[0])
                self._dead.pop(0)
            if time.monotonic() - self._renewed >= self.lease / 6:
                self._renew_all(self._desk)
                self._renewed = time.monotonic()
        except HenchmanError as error:
            if not self._troubled:
                self._say(f"the server cannot be reached, leases are renewed when it is back: {error}")
            self._troubled = True
            return 0.5
        if self._troubled:
            self._troubled = False
            self._say("the server is back")
        return 1.0

    def _give_back(self, desk: _Desk, identity: str, blame: Blame | None) -> None:
        runner, keys = desk.connections, desk.keys
        lists = runner.run(leases.flights(keys, identity))
        if not lists:
            return  # it left in good order
        runner.run(leases.bury(keys, identity, force=True))
        count = held_ids(desk, lists)  # freed with the charge, or after it
        if blame is not None:
            cause = f"it ended with {blame.cause}"
            for line in charge_held(desk, identity, lists, started=blame.started, alone=blame.alone, cause=cause):
                self._say(line)
        for one in lists:
            given_back = give_back_list(desk, one, keys.queue_of_flight(one))
            count += 0 if keys.is_held(one) else given_back
        runner.run(processes.remove(keys, identity))
        if count:
            self._say(f"gave back {count} unfinished job{'s' if count != 1 else ''} of {identity}")

    def _renew_all(self, desk: _Desk) -> None:
        for child in self.children:
            if child.identities and child.deserves_renewal(self.hang_after, self.lease):
                try:
                    desk.connections.run(leases.renew(desk.keys, child.identities[-1], int(self.lease * 1000)))
                except LeaseLost:
                    continue  # the child hears it too, and goes on under another name

    def finish(self) -> None:
        """Give back what is left, for a few seconds at most, and leave the embedded server."""
        self.stop(2.0)
        deadline = time.monotonic() + 5.0
        while self._dead and self._desk is not None and time.monotonic() < deadline:
            if self.tick() <= 0.5:
                time.sleep(0.2)
        if self._server is not None:
            self._server.release()
