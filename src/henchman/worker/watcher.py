"""What reaches a waiting process: pushes, cancellations, and verbs of the control channel.

Waiting for work costs nothing: one blocked ``BLMOVE`` a queue, woken by the push itself, all on one thread. Each wait
ends on the server after at most 5 s and is armed only while the lease is fresh, so that a process that was frozen does
not go on receiving (PROTOCOL, section 2.1). The control channel is read on the same thread, first: what was said before
a payload was moved is known before it starts.

A counter on the server rises with each cancellation; every fetch answers it, every cancellation is also announced on
the control channel. When the counter is not the one we know, ``Cancels`` reads the log of its last steps before
anything else starts; the whole list, when the log does not reach back so far. So it does after a new connection: a
counter proves nothing on another server (a replica that took over, or one that lost its last second, may stand at the
same figure with other names behind it).

What it reads may be older than a mark's end (somebody retried a cancelled job by hand, and a watcher brought it before
any fetch): a run ends as cancelled only if the mark still stands when it is settled (``settle.lua``).
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from henchman.client.runtime import Runtime
from henchman.errors import ServerAway, ServerError
from henchman.kernel.clock import awake, capped_backoff
from henchman.kernel.events import Events
from henchman.kernel.threads import Service
from henchman.store.call import command
from henchman.store.jobs import CancelNews, cancel_head, cancel_news, cancel_page
from henchman.wire.payload import NAMED, name_of
from henchman.work.effects import subjects_of
from henchman.work.source import Source
from henchman.work.unit import InFlightList, Unit
from henchman.worker.run import Run
from henchman.worker.session import LeaseSession

__all__ = ["MOST_WATCHED", "SIDEKIQ_SIGNALS", "Cancels", "Control", "Watcher"]

MOST_WATCHED = 8
BLOCK = 5.0
GRACE = 5.0  # what was not answered so long (a wait: after BLOCK) never will be: the server's host is gone
QUIET = 15.0  # seconds without a word on the control channel until it is asked for one
TURN = 1.0  # seconds between two looks whether what is not waited for can be
BACKLOG = 0.002  # a wait that ends sooner than this found a queue that was not empty

NEVER = -1  # no counter stands there: read the list
READ_ON = 900  # steps of the counter that the log is asked for: it keeps 1,000
ENDED = 10_000  # marks more than twice those that we read at last: read them anew, most will have ended
SPARE = 50  # more of them, for those that come while we ask


class Cancels:
    """The cancelled jids (of a batch ``batch:<id>``), those of suspects, and what is ``paused``; reading them is
    one look into a set.

    ``on_change()`` follows news. ``seen``: the counter as we know it; ``opened``: the number of the connection
    that told it.
    """

    def __init__(self, runtime: Runtime, on_change: Callable[[], None] = lambda: None) -> None:
        self._runtime = runtime
        self._on_change = on_change
        self.seen = NEVER
        self.jids: set[str] = set()
        self.suspects: frozenset[str] = frozenset()
        self.paused: frozenset[str] = frozenset()
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
            self._note(news)
        self._on_change()
        return True

    def _note(self, news: CancelNews) -> None:
        """What of the rest was read, and the counter last: whoever finds it as it is reads no more."""
        self.suspects = self.suspects if news.suspects is None else news.suspects
        self.paused = self.paused if news.paused is None else news.paused
        self.seen = news.last

    def load(self) -> None:
        """Read everything, page by page; ServerAway when the server is not there."""
        with self._lock:
            self._begun = turn = self._begun + 1
            announced = self._under_way[turn] = set()
        opened = self._runtime.connections.opened
        try:
            head, jids = self._read_all()
        finally:
            with self._lock:
                del self._under_way[turn]
        with self._lock:
            if turn < self._read:
                return
            self._read, self.opened = turn, opened
            self.jids = jids | announced
            self._most = 2 * len(jids) + ENDED  # what has ended since stands in no log
            self._note(head)
        self._on_change()

    def _read_all(self) -> tuple[CancelNews, set[str]]:
        """The counter as it was before the rest: what changes meanwhile is read once more, from the log."""
        runner, keys = self._runtime.connections, self._runtime.keys
        head = runner.run(cancel_head(keys))
        jids, cursor = set[str](), 0
        while True:
            cursor, some = runner.run(cancel_page(keys, cursor))
            jids.update(some)
            if not cursor:
                return head, jids

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

    def holds(self, run: Run) -> str:
        """What of ``run`` is paused, as ``store/pauses.py`` calls it; empty: nothing. One that was cancelled ends
        instead; one without an id nobody could find again."""
        if not run.jid or run.unit.source is not None or self.has(run):
            return ""
        return next((one for one in subjects_of(run.unit.job) if one in self.paused), "")

    def resumed(self, subject: str) -> None:
        """The server says that this is not paused."""
        with self._lock:
            self.paused -= {subject}

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


# --- pushes -----------------------------------------------------------------------------------------------------------


class _Post:
    """One queue's blocked connection."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.conn: Any = None
        self.client_id = 0
        self.armed: InFlightList | None = None
        self.armed_at = 0.0


class Receiver(Protocol):
    """The fetcher of a queue, as the watcher knows it."""

    def may_arm(self, queue: str) -> bool:
        """Whether to wait for ``queue`` now."""
        ...

    def delivered(self, units: list[Unit], backlog: bool) -> None:
        """Take what arrived; ``backlog``: the queue was not empty."""

    def rang(self, queue: str) -> None:
        """The source of ``queue`` may have something."""

    def unwatched(self) -> None:
        """Nobody waits for a queue though nothing forbids it: look into the queues."""


class Watcher(Service):
    """Waits for pushes into ``queues``, and listens to the control channel."""

    name = "watcher"

    def __init__(
        self,
        runtime: Runtime,
        session: LeaseSession,
        queues: Sequence[str],
        sources: Mapping[str, Source],
        control: Control,
        cancels: Cancels,
    ) -> None:
        super().__init__()
        self._runtime = runtime
        self._session = session
        self._posts = [_Post(name) for name in queues[:MOST_WATCHED]]
        self._unwatched = queues[MOST_WATCHED:]
        self._sources = sources
        self._verbs = control
        self._cancels = cancels
        self._receivers: dict[str, Receiver] = {}
        self._selector = selectors.DefaultSelector()
        self._bell, self._ring = socket.socketpair()
        for end in (self._bell, self._ring):
            end.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ, "bell")
        self._control: Any = None
        self._heard_at = 0.0
        self._asked_at: float | None = None  # when the control channel was asked for a word that it still owes
        self._wanted = False
        self._renamed = False
        self._failures = 0
        self._retry_at = 0.0

    def serve(self, queues: Iterable[str], receiver: Receiver) -> None:
        """Tell ``receiver`` what happens in ``queues``; before the start."""
        self._receivers.update(dict.fromkeys(queues, receiver))

    def arm(self) -> None:
        """Wait for every queue that may be waited for (from any thread)."""
        self._wanted = True
        self.interrupt()

    def disarm(self, only: str | None = None) -> bool:
        """Wait no longer, for one queue or all; what arrives meanwhile is still delivered. False when the server does
        not let us (CLIENT UNBLOCK is often forbidden): then a wait ends by itself, within 5 s."""
        if only is None:
            self._wanted = False
        allowed = True
        for post in self._posts:
            if post.armed is not None and only in (None, post.queue):
                try:
                    self._runtime.connections.run(command("CLIENT", "UNBLOCK", post.client_id))
                except ServerAway:
                    pass  # its wait has ended with its connection, or will
                except ServerError:
                    allowed = False
        return allowed

    @property
    def armed(self) -> int:
        """How many waits are open."""
        return sum(post.armed is not None for post in self._posts)

    def watches(self, queues: Sequence[str]) -> bool:
        """Whether a push into any of ``queues`` rings: all of them can be watched, and a wait is open."""
        mine = [post for post in self._posts if post.queue in queues]
        return len(mine) == len(queues) and any(post.armed is not None for post in mine)

    def interrupt(self) -> None:
        with contextlib.suppress(OSError):  # full: the bell rings already; closed: nobody is there to hear it
            self._ring.send(b"!")

    def run(self) -> None:
        if self._unwatched:
            self._runtime.events.emit("unwatched", queues=", ".join(self._unwatched))
        try:
            while not self.stopping.is_set():
                try:
                    self._arm_all()
                    self._wait()
                except (ServerError, OSError) as error:
                    self._lost(error)
                except Exception as error:  # a defect of ours must not end the waiting for ever
                    self._runtime.events.emit("part_failed", part=self.name, error=error)
                    self._lost(error)
        finally:
            self._drop_all()
            self._close_bell()

    def stop(self, timeout: float = 5.0) -> bool:
        """As every service; the bell of one that never started is closed here."""
        ended = super().stop(timeout)
        if self._thread is None:
            self._close_bell()
        return ended

    def _close_bell(self) -> None:
        for one in (self._selector, self._bell, self._ring):
            one.close()

    def _wait(self) -> None:
        events = self._selector.select(TURN)
        ready = {key.data for key, _ in events}
        if "bell" in ready:
            with contextlib.suppress(BlockingIOError):
                self._bell.recv(4096)
        if "control" in ready:
            self._read_control()
        for post in self._posts:
            if post in ready:
                self._read(post)
        overdue = time.monotonic() - BLOCK - GRACE
        if any(post.armed is not None and post.armed_at < overdue for post in self._posts):
            raise ServerAway(f"a wait of {BLOCK:g} s did not end within {BLOCK + GRACE:g} s")
        if self._control is not None:
            self._ask_control()

    def _ask_control(self) -> None:
        """Nobody says anything for hours, or nothing arrives any more: the waits of the queues may be younger
        connections, to another host. What is asked once more is what we may ask (``PING`` is another right)."""
        now = time.monotonic()
        if self._asked_at is None and now > self._heard_at + QUIET:
            self._control.send("SUBSCRIBE", self._runtime.keys.control_all)
            self._asked_at = now
        elif self._asked_at is not None and now > self._asked_at + GRACE:
            self._read_control()  # a process that was suspended has the answer, and did not read it
            if self._asked_at is not None:
                raise ServerAway(f"the control channel did not answer within {GRACE:g} s")

    def _arm_all(self) -> None:
        if (self._control is None or self._renamed) and not self._listen():
            return
        fresh = self._session.valid_until - awake() > self._session.lease / 1.5
        for post in [post for post in self._posts if post.armed is None]:
            receiver = self._receivers[post.queue]
            if not receiver.may_arm(post.queue):
                continue
            if self._wanted and fresh:
                self._arm(post)
            else:
                receiver.unwatched()  # a fetch renews the lease, and asks for waits when it finds nothing
        if self._failures:
            self._failures = 0
            self._runtime.events.emit("server_back", part="watcher")

    def _listen(self) -> bool:
        """Listen to the control channel under the name that we have now; False when it is too early to try again."""
        if time.monotonic() < self._retry_at:
            self.stopping.wait(min(0.5, self._retry_at - time.monotonic()))
            return False
        self._close(self._control)
        self._control, self._renamed = None, False
        self._subscribe()
        return True

    def _open(self, post: _Post) -> None:
        post.conn = self._runtime.connections.open(BLOCK + GRACE)
        post.conn.send("CLIENT", "ID")
        post.client_id = post.conn.read()
        self._selector.register(post.conn, selectors.EVENT_READ, post)

    def _arm(self, post: _Post) -> None:
        if post.conn is None:
            self._open(post)
        flight = self._session.current[post.queue]
        post.armed, post.armed_at = flight, time.monotonic()
        source = self._sources.get(post.queue)
        if source is not None:
            post.conn.send(*source.wait(flight, BLOCK))
        else:
            if (order := self._session.orders.get(flight.key)) is not None:
                order.waits(post)
            post.conn.send("BLMOVE", flight.queue_key, flight.key, "RIGHT", "LEFT", BLOCK)

    def _read(self, post: _Post) -> None:
        payload = post.conn.read()
        flight, post.armed = post.armed, None
        order = None if flight is None else self._session.orders.get(flight.key)
        if payload is None or flight is None:
            if order is not None:
                order.waited(post, None)
            return
        if post.queue in self._sources:
            self._receivers[post.queue].rang(post.queue)
            return
        if flight.identity != self._session.identity:
            return  # brought under a name that was buried: it is swept back, nothing that we say of it would count
        waited = time.monotonic() - post.armed_at
        if waited > BLOCK and flight.epoch != self._session.epoch:
            return  # an answer that stood still on its way, from a list that is swept by now, perhaps at this moment
        unit = Unit(payload, flight, time.monotonic())
        self._receivers[post.queue].delivered([unit], waited < BACKLOG)
        if order is not None:
            order.waited(post, unit)

    def _subscribe(self) -> None:
        keys = self._runtime.keys
        self._control = self._runtime.connections.open(5.0)
        self._control.send("SUBSCRIBE", keys.control_all, keys.control(self._session.identity))
        for _ in range(2):
            self._control.read()
        self._heard_at, self._asked_at = time.monotonic(), None
        self._selector.register(self._control, selectors.EVENT_READ, "control")
        self._cancels.load()  # what was said while nobody listened

    def _read_control(self) -> None:
        while self._control.readable():
            message = self._control.read()
            self._heard_at, self._asked_at = time.monotonic(), None
            if isinstance(message, list) and message[0] == b"message":
                self._verbs.message(message[2])

    def _lost(self, error: BaseException) -> None:
        """A connection broke: what the open waits brought is unknown."""
        unknown = any(post.armed is not None for post in self._posts)
        self._drop_all()
        self._failures += 1
        self._runtime.events.emit("server_away", part="watcher", error=error, failures=self._failures)
        self._retry_at = time.monotonic() + capped_backoff(self._failures, most=2.0)
        if unknown or not isinstance(error, ServerAway):
            self._session.doubt()

    def renew_identity(self) -> None:
        """Listen under the name that the process has now; waits under the old one end."""
        self.disarm()
        self._renamed = True
        self.interrupt()

    def _forget(self, conn: Any) -> None:
        """Take a connection out of the selector, also one that has lost its socket already."""
        for key in list(self._selector.get_map().values()):
            if key.fileobj is conn:
                with contextlib.suppress(KeyError, ValueError, OSError):
                    self._selector.unregister(key.fd)

    def _close(self, conn: Any) -> None:
        if conn is not None:
            self._forget(conn)
            conn.close()

    def _drop_all(self) -> None:
        for conn in (self._control, *(post.conn for post in self._posts)):
            self._close(conn)
        self._control = None
        for post in self._posts:
            post.conn = post.armed = None
