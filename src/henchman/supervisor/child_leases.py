"""Renews the leases of living children and gives back the work of dead ones.

It is a thread of its own: the server may be away for longer than the supervisor may leave its children alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from functools import partial

from henchman.config import Config
from henchman.errors import HenchmanError, ServerAway
from henchman.kernel.clock import awake, capped_backoff
from henchman.kernel.text import described
from henchman.kernel.threads import Ticker
from henchman.store import leases
from henchman.supervisor.child import ChildProcess, Say
from henchman.supervisor.server_link import ServerLink
from henchman.worker.rescue import Death, rescue


class _Dead:
    """One identity whose work is to be given back, and how often that was tried in vain."""

    def __init__(self, identity: str, death: Death | None) -> None:
        self.identity = identity
        self.death = death
        self.failures = 0
        self.next = 0.0
        self.said = ""


class ChildLeases(Ticker):
    """The supervisor replaces ``children`` as they come and go."""

    name = "leases"
    after_error = 0.5

    def __init__(self, say: Say) -> None:
        super().__init__(lambda part, error: say("a part of the supervisor failed", part=part, error=described(error)))
        self.children: Sequence[ChildProcess] = ()
        self.hang_after = 180.0
        self.lease = 15.0
        self._say = say
        self._config: Config | None = None
        self._link: ServerLink | None = None
        self._dead: list[_Dead] = []
        self._renewed = 0.0
        self._away = False
        self._refused = ""
        self._ticking = threading.Lock()

    def connect(self, text: str) -> Config:
        """Use the server that a child has told of (its configuration as JSON); the configuration."""
        config = Config.from_json(text)
        if self._config is None:
            self.hang_after, self.lease = config.hang_after, config.lease
            self._config = config
            self.wake()
        return config

    def server(self) -> ServerLink | None:
        """The way to the server, once it was reached."""
        return self._link

    def give_back(self, identities: Iterable[str], death: Death | None = None) -> None:
        """Give back the work of dead children as soon as the server can be reached, and charge it with ``death``."""
        self._dead += [_Dead(identity, death) for identity in identities]
        self.wake()

    def tick(self) -> float:
        """Renew, give back; seconds until the next time."""
        with self._ticking:
            return self._tick()

    def _tick(self) -> float:
        if self._config is None:
            return 0.2
        try:
            self._link = link = self._link or ServerLink(self._config)
            self._renew_all(link)
            for one in list(self._dead):
                self._try(link, one)
                self._renew_all(link)  # however many are dead: the living come first
        except ServerAway as error:
            if not self._away:
                self._say("the server cannot be reached, leases are renewed when it is back", error=str(error))
            self._away = True
            return 0.5
        if self._away:
            self._away = False
            self._say("the server is back")
        return 1.0 if not self._dead else 0.2

    def _try(self, link: ServerLink, one: _Dead) -> None:
        """Give back what one dead child held. A refusal is said and tried again, and holds up no other child."""
        if time.monotonic() < one.next:
            return
        try:
            error = self._rescue(link, one)
        except ServerAway:
            raise
        except Exception as failure:
            error = failure
        if error is None:
            self._dead.remove(one)
            return
        text = described(error)
        if text != one.said:
            self._say(
                "the work of a process cannot be given back yet, that is tried again", identity=one.identity, error=text
            )
        one.said = text
        one.failures += 1
        one.next = time.monotonic() + capped_backoff(one.failures)

    def _rescue(self, link: ServerLink, one: _Dead) -> Exception | None:
        """Why some of its work could not be given back; None when all was, or the child left in good order."""
        runner, keys = link.connections, link.keys
        lists = runner.run(leases.in_flight_lists(keys, one.identity))
        if not lists:
            return None
        runner.run(leases.entomb(keys, one.identity, force=True))
        moved, error, jobs = rescue(link, one.identity, one.death, partial(self._say, level=logging.ERROR))
        if moved:
            facts = {"count": moved, "identity": one.identity, "jobs": ", ".join(jobs)}
            self._say("gave back the unfinished jobs of a process", **facts)
        return error

    def _renew_all(self, link: ServerLink) -> None:
        """Prolong the leases of all children that deserve it, in one write, when it is time."""
        now = awake()
        if now - self._renewed < self.lease / 6:
            return
        living = [child.identities[-1] for child in self.children if self._is_well(child)]
        self._renewed = now
        try:
            if living:  # one that was declared dead meanwhile hears it too, and goes on under another name
                link.connections.run(leases.renew_all(link.keys, living, int(self.lease * 1000)))
            self._refused = ""
        except ServerAway:
            self._renewed = 0.0
            raise
        except HenchmanError as error:  # the others were renewed all the same
            if self._refused != str(error):
                self._say("a lease could not be renewed, that is tried again", error=str(error))
            self._refused = str(error)

    def _is_well(self, child: ChildProcess) -> bool:
        try:
            return bool(child.identities) and child.deserves_renewal(self.hang_after, self.lease)
        except ValueError:  # it has ended, and its shared memory was closed at this moment
            return False

    def finish(self) -> None:
        """Give back what is left, for a few seconds at most, and leave the embedded server. What a call that hangs
        is about stays: the leases run out, and others rescue it."""
        deadline = time.monotonic() + 5.0
        self.stop(2.0)
        if self._ticking.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            while self._dead and self._config is not None and time.monotonic() < deadline:
                try:
                    pause = self._tick()
                except Exception as error:
                    self._on_error(self.name, error)
                    pause = self.after_error
                if pause <= 0.5:
                    time.sleep(0.2)
            self._ticking.release()
        if self._link is not None:
            self._link.close()
