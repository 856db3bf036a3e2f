"""What other processes tell this one: cancellations, suspects, and verbs of the control channel.

A counter on the server rises with each cancellation; every fetch answers it, every cancellation is also announced on
the control channel. When the counter is not the one we know, ``Cancels`` reads the log of its last steps before
anything else starts; the whole list, when the log does not reach back so far. So it does after a new connection: a
counter proves nothing on another server (a replica that took over, or one that lost its last second, may stand at the
same figure with other names behind it).

What it reads may be older than a mark's end (somebody retried a cancelled job by hand, and a watcher brought it before
any fetch): a run ends as cancelled only if the mark still stands when it is settled (``settle.lua``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from henchman.client.runtime import Runtime
from henchman.kernel.events import Events
from henchman.store.call import command
from henchman.store.jobs import cancel_head, cancel_news, cancel_page
from henchman.wire.payload import NAMED, name_of
from henchman.worker.run import Run

__all__ = ["SIDEKIQ_SIGNALS", "Cancels", "Control"]

NEVER = -1  # no counter stands there: read the list
READ_ON = 900  # steps of the counter that the log is asked for: it keeps 1,000
ENDED = 10_000  # marks more than twice those that we read at last: read them anew, most will have ended
SPARE = 50  # more of them, for those that come while we ask


class Cancels:
    """The cancelled jids (of a batch ``batch:<id>``), and those of suspects; reading them is one look into a set.

    ``on_change()`` follows news. ``seen``: the counter as we know it; ``opened``: the number of the connection
    that told it.
    """

    def __init__(self, runtime: Runtime, on_change: Callable[[], None] = lambda: None) -> None:
        self._runtime = runtime
        self._on_change = on_change
        self.seen = NEVER
        self.jids: set[str] = set()
        self.suspects: frozenset[str] = frozenset()
        self._most = ENDED
        self.opened = 0
        self._lock = threading.Lock()
        self._begun = self._read = 0  # several threads read: what an earlier one brings late is old
        self._under_way: dict[int, set[str]] = {}  # what was announced while it was read

    def catch_up(self, counter: int) -> None:
        """Read what is new if ``counter`` is not the one we know, and everything if it may be another server's."""
        if self._runtime.connections.opened != self.opened or (counter != self.seen and not self._read_on(counter)):
            self.load()

    def _read_on(self, counter: int) -> bool:
        """Read the log from where we stand up to ``counter``; False when it does not tell all of that."""
        before = self.seen
        if before == NEVER or not 0 < counter - before <= READ_ON or len(self.jids) > self._most:
            return False
        news = self._runtime.connections.run(cancel_news(self._runtime.keys, before, counter - before + SPARE))
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
        opened = self._runtime.connections.opened
        try:
            counter, suspects, jids = self._read_all()
        finally:
            with self._lock:
                del self._under_way[turn]
        with self._lock:
            if turn < self._read:
                return
            self._read, self.opened = turn, opened
            self.suspects = suspects
            self.jids = jids | announced
            self._most = 2 * len(jids) + ENDED  # what has ended since stands in no log
            self.seen = counter
        self._on_change()

    def _read_all(self) -> tuple[int, frozenset[str], set[str]]:
        """The counter as it was before the rest: what changes meanwhile is read once more, from the log."""
        runner, keys = self._runtime.connections, self._runtime.keys
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
        self.catch_up(int(self._runtime.connections.run(command("GET", self._runtime.keys.cancels)) or 0))


#: what Sidekiq's Web UI pushes into ``<identity>-signals`` → our word for it
SIDEKIQ_SIGNALS: Mapping[bytes, str] = {b"TSTP": "quiet", b"TERM": "stop", b"TTIN": "dump", b"INT": "stop"}


class Control:
    """Dispatches messages ``verb`` or ``verb argument`` to ``verbs``; announces an unknown verb, and does not obey."""

    def __init__(self, events: Events, verbs: dict[str, Callable[[str], object]]) -> None:
        self._events = events
        self._verbs = verbs

    def on(self, verb: str, handler: Callable[[str], object]) -> None:
        """Call ``handler(argument)`` for ``verb``, too."""
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
            self._events.emit("control_unknown", verb=verb)
        else:
            handler(argument)
