"""The recorder: moves the entries that scripts wrote into the stream into SQL, in bulk, exactly once.

Three stages: read and reduce (``stream.py``), write, move the checkpoint (``checkpoint.py``, one transaction). Entries
leave the stream only after that transaction. The recorder never delays a job: while the database is away the stream
grows, up to ``history_bytes``, and the lag is shown. One process records at a time, by a lease of 10 s; the lease saves
work, and the position in SQL is what keeps two recorders apart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from henchman.config import Config
from henchman.errors import HistoryAway, HistoryError, ServerError
from henchman.history.admin import Pruning
from henchman.history.checkpoint import BEGINNING, Checkpoint, Chunk, Overtaken
from henchman.history.database import Database
from henchman.kernel.clock import ServerClock, capped_backoff
from henchman.kernel.events import Events
from henchman.kernel.threads import Ticker
from henchman.store import history as store
from henchman.store.connection import Connections
from henchman.store.keys import Keys
from henchman.store.leases import RECORDER_MS, Leader, ask_time

__all__ = ["Recorder", "companion"]

CONTEND = 4.0  # between two tries to lead, and two renewals
BLOCK_MS = 1000
LINGER = 0.1  # after a chunk that was not full, so that one transaction takes more
MOST, LEAST = 5000, 20  # entries of a chunk; one may hold 500 jobs
CHUNK_BYTES = 2 * 1024 * 1024  # of one transaction: some 10,000 to 20,000 jobs
GIVE_UP_AFTER = 3  # tries in a row without the database, then another process may lead
PRUNE_EVERY, PRUNE_PAUSE = 86400.0, 0.5


def companion(runtime: Any) -> Recorder | None:
    """The recorder of an app's worker; None when history is off. ConfigError when the driver is not installed."""
    url = runtime.config.history_url()
    if url is None:
        return None
    return Recorder(Database(url), runtime.config, runtime.keys, runtime.events, runtime.connections)


class _Taken(NamedTuple):
    """A chunk that was read: its last stream id, the bytes that it counts, and whether more waits behind it."""

    chunk: Chunk
    last: str
    size: int
    full: bool


def _aside(work: Callable[[], None]) -> Callable[[], None]:
    """Start ``work`` in a thread that keeps no process alive; the result waits for its end and raises its error."""
    raised: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as error:  # raised again by the waiting thread
            raised.append(error)

    def ended() -> None:
        thread.join()
        if raised:
            raise raised[0]

    thread = threading.Thread(target=body, name="henchman-history", daemon=True)
    thread.start()
    return ended


class Recorder(Ticker):
    """A companion of a worker process. It announces ``history_away`` and ``history_back`` at the edges of an outage,
    and ``history_lost`` when the server was emptied; its checkpoint announces the rest."""

    name = "recorder"

    def __init__(
        self, database: Database, config: Config, keys: Keys, events: Events, connections: Connections
    ) -> None:
        super().__init__(events.failed)
        self.database = database
        self._config = config
        self._keys = keys
        self._events = events
        self._connections = connections
        self._leader = Leader(keys.recorder, RECORDER_MS)
        self.identity = self._leader.identity
        self._checkpoint = Checkpoint(database, keys.history, events)
        self._line: Any = None
        self._ready = self._announced = False
        self._renew_at = 0.0
        self._after = BEGINNING
        self._ahead: _Taken | None = None  # read and not yet written
        self._most = 50
        self._owed = 0  # bytes that are written and still counted on the server
        self._failures = 0
        self._away = False
        self._hold_until = 0.0
        self._pruning: Pruning | None = None
        self._prune_at = time.monotonic() + 60.0

    @property
    def verbs(self) -> Mapping[str, Callable[[str], None]]:
        """No message of the control channel is for the recorder."""
        return {}

    @property
    def leads(self) -> bool:
        """Whether this process records."""
        return self._leader.leads

    def backlog(self) -> store.Backlog:
        """The entries that are not recorded yet."""
        return self._connections.run(store.backlog(self._keys))

    def lag(self) -> float:
        """Age of the oldest entry that is not recorded, in seconds; 0.0 when everything is."""
        return self.backlog().lag

    def stop(self, timeout: float = 5.0) -> bool:
        """Finish the chunk, and let another process record at once."""
        ended = super().stop(timeout)
        self._let_go()
        self._hang_up()
        self.database.close()
        return ended

    def tick(self) -> float:
        """Record one chunk when this process leads; seconds until the next."""
        now = time.monotonic()
        if now < self._hold_until:
            return self._hold_until - now
        if not self._lead(now):
            return CONTEND
        try:
            if not self._ready:
                self._prepare()
            pause = self._step()
        except Overtaken:
            self._ready = False
            return LINGER
        except HistoryError as error:
            return self._is_away(error)
        except ServerError:
            self._hang_up()
            raise
        self._is_back()
        return pause

    def drain(self, timeout: float) -> bool:
        """Record here and now, without the thread, until the stream is empty; False when it is not in time."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            pause = self.tick()
            if not self.backlog().entries:
                return True
            self.stopping.wait(min(pause, 0.05))
        return False

    def _lead(self, now: float) -> bool:
        if now < self._renew_at and self._leader.leads:
            return True
        kept = "" if self._announced else self._config.history_kept()
        if self._leader.contend(self._connections, self._keys.history_on, kept):
            self._ready = False  # another process may have moved the position
        self._announced = True
        self._renew_at = now + CONTEND
        return self._leader.leads

    def _prepare(self) -> None:
        self.database.require_schema()
        position = self._checkpoint.load()
        self._after = BEGINNING  # also entries that are written and were not trimmed
        self._owed = 0
        self._ahead = None
        self._ready = True
        if position.at != BEGINNING and not self._connections.run(store.exists(self._keys)):
            self._events.emit("history_lost", position=position.at)

    def _step(self) -> float:
        taken, self._ahead = self._ahead or self._take(self._after, BLOCK_MS), None
        if taken is None:
            return self._prune()
        self._write(taken)
        self._after = taken.last
        self._owed += taken.size
        trimmed = self._connections.run(store.trim(self._keys, taken.last, self._owed))
        self._owed = 0
        if not trimmed.entries and trimmed.bytes:  # a recorder died between writing and trimming
            self._connections.run(store.correct(self._keys, trimmed.bytes))
        return 0.0 if taken.full else max(LINGER, self._prune())

    def _take(self, after: str, block_ms: int, behind: Chunk | None = None) -> _Taken | None:
        entries = self._read(after, block_ms)
        if not entries:
            return None
        size = sum(store.size_of(fields) for _, fields in entries)
        full = len(entries) >= self._most
        self._most = max(LEAST, min(MOST, CHUNK_BYTES * len(entries) // size))
        return _Taken(self._checkpoint.prepare(entries, behind), entries[-1][0].decode(), size, full)

    def _write(self, taken: _Taken) -> None:
        """Write it; where a database server has the work, read the next chunk meanwhile."""
        if self.database.kind == "sqlite" or not taken.full:
            self._checkpoint.write(taken.chunk)
            return
        ended = _aside(lambda: self._checkpoint.write(taken.chunk))
        try:
            self._ahead = self._take(taken.last, 1, taken.chunk)
        finally:
            ended()

    def _read(self, after: str, block_ms: int) -> list[tuple[bytes, list[bytes]]]:
        if self._line is None:
            self._line = self._connections.open(BLOCK_MS / 1000 + 5.0)
        self._line.send(*store.read(self._keys, after, self._most, block_ms))
        reply = self._line.read()
        return [(one, fields or []) for one, fields in reply[0][1]] if reply else []

    def _prune(self) -> float:
        """Remove a slice of old jobs, when it is time; seconds until the next one, 0.0 when there is none."""
        now = time.monotonic()
        if self._pruning is None:
            if now < self._prune_at:
                return 0.0
            server_now = self._connections.run(ask_time(ServerClock()))
            self._pruning = Pruning(self.database, self._config, now=server_now)
            self._prune_at = now + PRUNE_EVERY
        if self._pruning.slice():
            return PRUNE_PAUSE
        self._pruning = None
        return 0.0

    def _is_away(self, error: HistoryError) -> float:
        self._ready = False
        self._failures += 1
        if not self._away:
            self._away = True
            self._events.emit("history_away", error=error, busy=isinstance(error, HistoryAway))
        pause = capped_backoff(self._failures, first=0.1, most=10.0)
        self._hold_until = time.monotonic() + pause
        if self._failures >= GIVE_UP_AFTER:
            self._let_go()  # another process may reach the database
        return pause

    def _is_back(self) -> None:
        self._failures = 0
        if self._away:
            self._away = False
            self._events.emit("history_back", lag=self.lag())

    def _let_go(self) -> None:
        if self._leader.leads:
            self._ready = False
            self._leader.resign(self._connections, self._events, self.name)

    def _hang_up(self) -> None:
        self._ahead = None
        line, self._line = self._line, None
        if line is not None:
            line.close()
