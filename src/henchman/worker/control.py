"""What other processes tell this one: cancellations, suspects, and verbs of the control channel.

A counter on the server rises with each cancellation; every fetch answers it, every cancellation is also announced on
the control channel. When the counter is not the one we know, ``Cancels`` reads the log of its last steps before
anything else starts; the whole list, when the log does not reach back so far. So it does after a new connection: a
counter proves nothing on another server (a replica that took over, or one that lost its last second, may stand at the
same figure with other names behind it).

What it reads may be older than a mark's end (somebody retried a cancelled job by hand, and a watcher brought it before
any fetch): a run ends as cancelled only if the mark still stands when it is settled (``settle.lua``).

Suspects run with nothing beside them (``Isolation``): when such a process dies again, it is known whose fault it was.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from henchman.kernel.scoreboard import Scoreboard
from henchman.store.call import command
from henchman.store.jobs import cancel_head, cancel_news, cancel_page
from henchman.wire.payload import NAMED, name_of
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit
from henchman.worker.acker import Acker
from henchman.worker.host import Host
from henchman.worker.pool import Pool
from henchman.worker.run import Run

__all__ = ["SIDEKIQ_SIGNALS", "Cancels", "Control", "Isolation"]

NEVER = -1  # no counter stands there: read the list
READ_ON = 900  # steps of the counter that the log is asked for: it keeps 1,000
ENDED = 10_000  # marks more than twice those that we read at last: read them anew, most will have ended
SPARE = 50  # more of them, for those that come while we ask


class Cancels:
    """The cancelled jids (of a batch ``batch:<id>``), and those of suspects; reading them is one look into a set.

    ``on_change()`` follows news.
    """

    def __init__(self, host: Host, on_change: Callable[[], None] = lambda: None) -> None:
        self._host = host
        self._on_change = on_change
        self.seen = NEVER
        self.jids: set[str] = set()
        self.suspects: frozenset[str] = frozenset()
        self._most = ENDED
        self._opened = 0
        self._lock = threading.Lock()
        self._begun = self._read = 0  # several threads read: what an earlier one brings late is old
        self._under_way: dict[int, set[str]] = {}  # what was announced while it was read

    def catch_up(self, counter: int) -> None:
        """Read what is new if ``counter`` is not the one we know, and everything if it may be another server's."""
        if self._host.connections.opened != self._opened or (counter != self.seen and not self._read_on(counter)):
            self.load()

    def _read_on(self, counter: int) -> bool:
        """Read the log from where we stand up to ``counter``; False when it does not tell all of that."""
        before = self.seen
        if before == NEVER or not 0 < counter - before <= READ_ON or len(self.jids) > self._most:
            return False
        news = self._host.connections.run(cancel_news(self._host.keys, before, counter - before + SPARE))
        if news is None:
            return False
        with self._lock:
            if self.seen != before:  # another thread has read meanwhile: what it found is newer, or is read next
                return self.seen >= counter
            for sign, member in news.steps:
                (self.jids.discard if sign == "-" else self.jids.add)(member)
            if news.suspects is not None:
                self.suspects = news.suspects
            self.seen = news.last
        self._on_change()
        return True

    def load(self) -> None:
        """Read everything, page by page; ServerAway when the server is not there."""
        with self._lock:
            self._begun = turn = self._begun + 1
            announced = self._under_way[turn] = set()
        opened = self._host.connections.opened
        try:
            counter, suspects, jids = self._read_all()
        finally:
            with self._lock:
                del self._under_way[turn]
        with self._lock:
            if turn < self._read:
                return
            self._read, self._opened = turn, opened
            self.suspects = suspects
            self.jids = jids | announced
            self._most = 2 * len(jids) + ENDED  # what has ended since stands in no log
            self.seen = counter
        self._on_change()

    def _read_all(self) -> tuple[int, frozenset[str], set[str]]:
        """The counter as it was before the rest: what changes meanwhile is read once more, from the log."""
        runner, keys = self._host.connections, self._host.keys
        counter, suspects = runner.run(cancel_head(keys))
        jids, cursor = set[str](), 0
        while True:
            cursor, some = runner.run(cancel_page(keys, cursor))
            jids.update(some)
            if not cursor:
                return counter, suspects, jids

    def add(self, jid: str) -> None:
        """One was announced."""
        with self._lock:
            self.jids.add(jid)
            for announced in self._under_way.values():
                announced.add(jid)
        self._on_change()

    def has(self, run: Run) -> bool:
        """Whether ``run``, or the batch that it is of, was cancelled."""
        return run.jid in self.jids or (run.batch_id != "" and f"batch:{run.batch_id}" in self.jids)

    def suspected(self, payload: bytes) -> bool:
        """Whether ``payload``, which was not read yet, may be a suspect's: reading it may be what killed."""
        return any(
            name_of(payload) == one if one.startswith(NAMED) else one.encode() in payload for one in self.suspects
        )

    def look(self) -> None:
        """Compare the counter, as each beat does."""
        self.catch_up(int(self._host.connections.run(command("GET", self._host.keys.cancels)) or 0))


#: what Sidekiq's Web UI pushes into ``<identity>-signals`` → our word for it
SIDEKIQ_SIGNALS: Mapping[bytes, str] = {b"TSTP": "quiet", b"TERM": "stop", b"TTIN": "dump", b"INT": "stop"}


class Control:
    """Dispatches messages ``verb`` or ``verb argument`` to handlers; an unknown verb is announced, not obeyed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._verbs: dict[str, Callable[[str], None]] = {}

    def on(self, verb: str, handler: Callable[[str], None]) -> None:
        """Call ``handler(argument)`` for ``verb``."""
        self._verbs[verb] = handler

    def message(self, text: bytes) -> None:
        """Obey one message from the control channel."""
        verb, _, argument = text.decode("utf-8", "replace").partition(" ")
        self.tell(verb, argument)

    def signal(self, name: bytes) -> None:
        """Obey a signal that came through the server."""
        self.tell(SIDEKIQ_SIGNALS.get(name, name.decode("utf-8", "replace")), "")

    def tell(self, verb: str, argument: str = "") -> None:
        """Obey ``verb``."""
        handler = self._verbs.get(verb)
        if handler is None:
            self._host.events.emit("control_unknown", verb=verb)
        else:
            handler(argument)


ALONE_WITHIN = 30.0  # seconds to wait for the jobs beside it; then the suspect is put off, for another process to try
ALONE_STEP = 0.02


class Guest(Protocol):
    """Who asks for the process: one capsule's fetcher."""

    @property
    def pool(self) -> Pool: ...
    def start_alone(self, unit: Unit) -> None:
        """Read it and start it, or settle what cannot run."""


class Isolation:
    """One a process. ``busy()`` counts the slots in use, over every capsule; ``wake()`` lets every fetcher look;
    ``held``: what is not settled yet. A suspect is read, run and settled before anything else begins.
    """

    def __init__(
        self, board: Scoreboard, acker: Acker, busy: Callable[[], int], wake: Callable[[], None], held: Collection[Unit]
    ) -> None:
        self._held = held
        self._board = board
        self._acker = acker
        self._busy = busy
        self._wake = wake
        self._waiting: deque[tuple[Guest, Unit, float]] = deque()
        self._inside: Unit | None = None
        self._began = 0.0
        self._lock = threading.Lock()

    @property
    def pending(self) -> bool:
        """Whether a suspect waits or runs: nothing else may start then."""
        return bool(self._waiting)

    def add(self, guest: Guest, unit: Unit) -> None:
        """A suspect was fetched."""
        with self._lock:
            self._waiting.append((guest, unit, time.monotonic()))
        self._wake()

    def step(self) -> float:
        """Start the next suspect when nothing else runs, see whether it has ended; seconds until the next step."""
        with self._lock:
            if self._waiting and not self._busy() and not self._settling():
                if self._inside is not None:
                    self._waiting.popleft()
                    self._inside = None
                    self._board.alone(False)
                if self._waiting:
                    guest, self._inside, _ = self._waiting[0]
                    self._began = time.monotonic()
                    self._board.alone(True)
                    guest.start_alone(self._inside)
            elif self._waiting and self._inside is None and time.monotonic() - self._waiting[0][2] > ALONE_WITHIN:
                _, unit, _ = self._waiting.popleft()
                reason = "a suspect: it could not have a process to itself"
                self._acker.submit(unit, Outcome("deferred", unit.payload, ALONE_WITHIN, reason), unit.job)
        if not self._waiting:
            self._wake()
        return ALONE_STEP

    def _settling(self) -> bool:
        """Whether what ran alone waits to be settled, and not for so long that the server must be refusing it."""
        return self._inside in self._held and time.monotonic() - self._began < ALONE_WITHIN

    def give_up(self) -> list[Unit]:
        """The suspects that have not started; they will not start here."""
        with self._lock:
            kept = 1 if self._inside is not None else 0
            units = [unit for _, unit, _ in list(self._waiting)[kept:]]
            self._waiting = deque(list(self._waiting)[:kept])
        return units
