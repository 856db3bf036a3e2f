"""The relay: brings the rows of the outbox to the server, each exactly once.

One process relays at a time, by a lease of 10 s that is drawn anew each time; its token fences every change on the
server, so a relay that was frozen past its lease changes nothing. A round has these steps, each of them safe to be the
last one:

1. *look*: rows with an id above the highest one that was seen, and those whose ids were passed over: ids are given
   before the commit, so a transaction may come late. All rows from the first on: at the start, and each minute.
2. *push*: one script adds each jid to the set ``sent`` and pushes its job; what stands there is not pushed again.
3. *confirm*, 2 s later: what the server has forgotten meanwhile (its last second, a failover) is looked at again.
4. *delete* the rows of the others, 5. *forget* their jids. What is left of them is swept each minute.

No row is locked and nothing waits for the application. Nothing that was read is held from one round to the next: what
is pushed was read in the same round, after everything that this process forgot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, update
from sqlalchemy import select as sql_select

from henchman.client.admission import read_answer
from henchman.client.runtime import Runtime
from henchman.errors import OutboxAway, OutboxError, ServerAway, ServerError
from henchman.kernel import failpoints
from henchman.kernel.clock import capped_backoff
from henchman.kernel.text import shorten
from henchman.kernel.threads import Ticker
from henchman.outbox.bell import Bell
from henchman.outbox.database import OutboxDatabase
from henchman.outbox.rows import StoredRow, push_of
from henchman.outbox.schema import outbox
from henchman.outbox.status import look
from henchman.store import outbox as store
from henchman.store.leases import RELAY_MS, Leader

__all__ = ["Relay"]

CONTEND = 3.0  # seconds between two tries to lead, and two renewals
CONFIRM_AFTER = 2.0  # seconds: what a server that syncs each second, or its successor, may have forgotten
TOGETHER = 0.5  # seconds for which confirmations wait for others, unless a page is full
LINGER, BUSY, IDLE = 0.01, 0.25, 1.0  # seconds between two looks: after a wake, after work, without any
BUSY_FOR = 10.0
MOST, LEAST = 500, 20  # rows of a page
PAGES = 20  # of rows that one round deletes, at most
PUSH_BYTES = 4 * 1024 * 1024
ON_THE_WAY = 100_000  # rows that were pushed and are not deleted yet; with more it does not look
GAPS, GAPS_FOR, YOUNG = 10_000, 600.0, 1.0  # ids passed over: how many, for how long; in each round for how long
BEFORE_A_ROW = 1000  # ids in front of one row that may belong to open transactions
EARLY_LOOKS, EVERY = (1.0, 5.0, 15.0), 60.0  # seconds until the next look at all rows
SHARE = 20  # it takes at most a twentieth of the time
NOTE_EVERY = 10.0  # seconds between two notes for Prometheus, at least
ATTEMPTS = 10  # refusals in a row, then a row is stepped over
_COLUMNS = [outbox.c[name] for name in StoredRow._fields]


class Relay(Ticker):
    """A companion of a worker process. It announces ``outbox_away`` and ``outbox_back`` at the edges of an outage,
    ``outbox_refused`` for a row that is stepped over, and ``outbox_duplicate`` for one whose key another job has.
    ``monotonic``: tests put a clock of their own here."""

    name = "relay"

    def __init__(
        self, runtime: Runtime, database: OutboxDatabase, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(runtime.events.failed)
        self.database = database
        self._runtime = runtime
        self._now = monotonic
        self._outbox = ""  # the name in its marker; unknown until the database was asked
        self._leader: Leader | None = None
        self._renew_at = self._hold_until = 0.0
        self._failures = 0
        self._away = False
        self._bell = Bell(runtime)
        self._most = LEAST
        self._reset()

    def _reset(self) -> None:
        """Know nothing: another process may have moved everything."""
        self._high = 0  # the highest id that was seen
        self._open: dict[int, float] = {}  # ids that may still be pushed, and since when we know of them
        self._pushed: dict[int, tuple[str, float]] = {}  # jid and time, by id, in the order of their pushes
        self._refusals: dict[int, int] = {}
        self._all_after: int | None = 0  # where the look at all rows has come to; None: there is none now
        self._all_first = True
        self._all_spent = 0.0
        self._all_at = 0.0
        self._early = iter(EARLY_LOOKS)
        self._old_at = 0.0
        self._sweep: int | None = None
        self._sweep_at = self._now() + EVERY
        self._busy_at = self._now()
        self._note_at = 0.0

    @property
    def verbs(self) -> Mapping[str, Callable[[str], None]]:
        """No message of the control channel is for the relay."""
        return {}

    @property
    def leads(self) -> bool:
        """Whether this process relays."""
        return self._leader is not None and self._leader.leads

    @property
    def on_the_way(self) -> int:
        """Rows that were pushed and are not deleted yet."""
        return len(self._pushed)

    def stop(self, timeout: float = 5.0) -> bool:
        """Finish the round, and let another process relay at once."""
        ended = super().stop(timeout)
        if self._leader is not None and self._leader.leads:
            self._leader.resign(self._runtime.connections, self._runtime.events, self.name)
        self._bell.close()
        self.database.close()
        return ended

    # --- the turn -----------------------------------------------------------------------------------------------------

    def tick(self) -> float:
        """One round when this process leads; seconds until the next."""
        now = self._now()
        if now < self._hold_until:
            return self._hold_until - now
        try:
            if not self._lead():
                return CONTEND
            for _ in self.steps():
                pass
            self._is_back()
            self._note()
        except store.RelayFenced:
            self._dethroned()
            return LINGER
        except OutboxError as error:
            return self._is_away(error)
        except ServerError:
            self._bell.close()
            raise
        return 0.0 if self._more else self._listen()

    def _note(self) -> None:
        """Write down how the outbox stands, for the figures of Prometheus: seldom, and less often when that is dear."""
        began = self._now()
        if began >= self._note_at:
            runner, keys = self._runtime.connections, self._runtime.keys
            found = look(self.database, runner, keys).figures(self._runtime.clock)
            runner.run(store.note(keys, self._outbox, found))
            self._note_at = self._now() + max(NOTE_EVERY, SHARE * (self._now() - began))

    def _lead(self) -> bool:
        """Take the lease or renew it; whether we have it. Each time it is taken it has another token, so that nothing
        counts any more that was sent under an earlier one."""
        if not self._outbox:
            self.database.require_schema()
            self._outbox = self.database.claim(self._runtime.config.namespace).name
        leader = self._leader
        if leader is not None and leader.leads:
            if self._now() < self._renew_at:
                return True
            if leader.contend(self._runtime.connections) and leader.leads:  # it had run out
                leader.resign(self._runtime.connections, self._runtime.events, self.name)
        if leader is None or not leader.leads:
            leader = self._leader = Leader(self._runtime.keys.outbox_relay(self._outbox), RELAY_MS)
            self._reset()
            leader.contend(self._runtime.connections)
        self._renew_at = self._now() + CONTEND
        if not leader.leads:
            self.database.close()  # who only waits for its turn needs no connection
        return leader.leads

    def _dethroned(self) -> None:
        """Another process relays, or the tables are new ones: begin anew."""
        self._leader, self._outbox = None, ""
        self._reset()

    @property
    def _token(self) -> str:
        return "" if self._leader is None else self._leader.identity

    def steps(self) -> Iterator[str]:
        """One round: yields the name of each step before it is taken, so that a test can let anything happen there."""
        self._more = False
        if len(self._pushed) < ON_THE_WAY:
            yield "look"
            rows = self._look()
            yield from self._push_all(rows)
            if self._looks_at_all():
                yield "look at all"
                yield from self._push_all(self._look_at_all())
        for _ in range(PAGES):
            due = self._to_confirm()
            if not due:
                break
            yield "confirm"
            confirmed = self._still_known(due)
            if confirmed:
                yield "delete"
                self._delete(confirmed)
                yield "forget"
                self._forget([self._pushed.pop(one)[0] for one in confirmed])
        if self._sweep is not None or self._now() >= self._sweep_at:
            yield "sweep"
            self._sweep_page()

    # --- look ---------------------------------------------------------------------------------------------------------

    def _look(self) -> list[StoredRow]:
        """New rows, and those of ids that were passed over; in the order of their ids. Rows on a line come with all
        that stand before them there: the order of a line is that of the ids, and so is that of its commits."""
        first = self._all_after is not None and self._all_first  # until that one has come to the end
        query = sql_select(*_COLUMNS).where(outbox.c.id > self._high).order_by(outbox.c.id)
        with self._sql("look") as connection:
            new = [] if first else _read(connection, query.limit(self._most))
            self._page(new)
            self._passed_over(new, self._high)
            found = {row.id: row for row in new}
            for ids in _pages(self._ids_to_look_for(), 1000):
                found |= {row.id: row for row in _read(connection, sql_select(*_COLUMNS).where(outbox.c.id.in_(ids)))}
            self._before_on_their_lines(connection, found)
        if new:
            self._high = new[-1].id
        return self._to_push(found.values())

    def _page(self, rows: Sequence[StoredRow]) -> None:
        """A page was read: how many rows the next one may have, and whether there is a next one."""
        self._more = self._more or len(rows) >= self._most
        size = sum(len(row.payload) for row in rows)
        if size:
            self._most = max(LEAST, min(MOST, PUSH_BYTES * len(rows) // size))

    def _passed_over(self, rows: Sequence[StoredRow], before: int) -> None:
        """Remember the ids between those that were seen, and the rows themselves until they are pushed."""
        now = self._now()
        for row in rows:
            for one in range(max(before + 1, row.id - BEFORE_A_ROW), row.id + 1):
                if one not in self._pushed:
                    self._open.setdefault(one, now)
            before = row.id
        for one in list(islice(self._open, max(0, len(self._open) - GAPS))):
            del self._open[one]

    def _ids_to_look_for(self) -> list[int]:
        """The young ones in each round, the others once a second; too old ones no more."""
        now = self._now()
        every = now >= self._old_at
        if every:
            self._old_at = now + YOUNG
            for one in [one for one, since in self._open.items() if now - since > GAPS_FOR]:
                del self._open[one]
        return [one for one, since in self._open.items() if one <= self._high and (every or now - since < YOUNG)]

    def _before_on_their_lines(self, connection: Connection, found: dict[int, StoredRow]) -> None:
        """Add the rows that stand before those of ``found`` on their lines, and are not pushed."""
        before: set[int] = set()
        for lines in _pages(sorted({row.line for row in found.values() if row.line is not None}), 500):
            query = sql_select(outbox.c.id).where(outbox.c.line.in_(lines), outbox.c.id < max(found))
            before.update(connection.execute(query).scalars())
        for ids in _pages(sorted(before - found.keys() - self._pushed.keys()), MOST):
            rows = _read(connection, sql_select(*_COLUMNS).where(outbox.c.id.in_(ids)))
            found |= {row.id: row for row in rows if row.problem is None}

    def _looks_at_all(self) -> bool:
        if self._all_after is None and self._now() >= self._all_at:
            self._all_after, self._all_spent = 0, 0.0
        return self._all_after is not None

    def _look_at_all(self) -> list[StoredRow]:
        """One page of the look at all rows, those that are stepped over among them."""
        after, began = self._all_after or 0, time.monotonic()
        query = sql_select(*_COLUMNS).where(outbox.c.id > after).order_by(outbox.c.id).limit(self._most)
        if not self._all_first:
            query = query.where(outbox.c.id <= self._high)
        if not after and self.database.claim(self._runtime.config.namespace).name != self._outbox:
            raise store.RelayFenced("the tables of this outbox were made anew")
        with self._sql("look") as connection:
            rows = _read(connection, query)
            found = {row.id: row for row in rows}
            self._before_on_their_lines(connection, found)
        full = len(rows) >= self._most
        self._page(rows)
        if self._all_first:
            self._passed_over(rows, after)
            self._high = max(self._high, rows[-1].id if rows else 0)
        self._all_after = rows[-1].id if full else None
        self._all_spent += time.monotonic() - began
        if not full:
            self._all_first = False
            self._all_at = self._now() + max(next(self._early, EVERY), SHARE * self._all_spent)
        return self._to_push(found.values(), again=True)

    def _to_push(self, rows: Iterable[StoredRow], *, again: bool = False) -> list[StoredRow]:
        """Rows that are not pushed, by id; those that are stepped over only ``again``."""
        wanted = [row for row in rows if row.id not in self._pushed and (again or row.problem is None)]
        return sorted(wanted, key=lambda row: row.id)

    # --- push ---------------------------------------------------------------------------------------------------------

    def _push_all(self, rows: Sequence[StoredRow]) -> Iterator[str]:
        held: set[str] = set()  # lines on which a row was refused: those behind it wait
        ahead = list(rows)
        while ahead:
            together, size = 0, 0
            while together < min(len(ahead), MOST) and (not together or size < PUSH_BYTES):
                size += len(ahead[together].payload)
                together += 1
            part, ahead = ahead[:together], ahead[together:]
            yield "push"
            self._push(part, held)

    def _push(self, rows: Sequence[StoredRow], held: set[str]) -> None:
        """Push rows that were read in this round, and take note of what became of each."""
        readable: list[tuple[StoredRow, store.OutboxPush]] = []
        for row in rows:
            if row.line in held:
                continue
            try:
                readable.append((row, push_of(row, self._runtime)))
            except (msgspec.DecodeError, ValueError, TypeError) as error:
                self._refused(row, f"cannot be read: {error}", held)
        if not readable:
            return
        keep = self._runtime.config.history_kept()
        call = store.push(self._runtime.keys, self._outbox, self._token, [push for _, push in readable], keep)
        confirmed = self._runtime.client.confirmed(call, lambda: [row.jid for row, _ in readable])
        answers = self._runtime.connections.run(confirmed)
        now = self._busy_at = self._now()
        for (row, push), answer in zip(readable, answers, strict=True):
            if isinstance(answer, str):
                self._refused(row, answer, held)
                continue
            self._pushed[row.id] = row.jid, now
            self._open.pop(row.id, None)
            self._refusals.pop(row.id, None)
            if isinstance(answer, list):
                self._duplicate(row, push.ask, answer)

    def _duplicate(self, row: StoredRow, ask: bytes, words: Sequence[str]) -> None:
        """The row is done with: another job has its key."""
        asked, first = msgspec.json.decode(ask), read_answer(words, row.jid, row.queue)
        self._runtime.events.emit(
            "outbox_duplicate",
            jid=row.jid,
            queue=row.queue,
            scope=asked["scope"],
            key=asked["key"],
            duplicate_of=first.jid,
            differs=first.differs,
        )

    def _refused(self, row: StoredRow, why: str, held: set[str]) -> None:
        """Not pushed: it is tried again, and after ``ATTEMPTS`` refusals stepped over by all but the look at all."""
        if row.line is not None:
            held.add(row.line)
        if why in store.NOT_NOW or row.problem is not None:
            return
        self._refusals[row.id] = many = self._refusals.get(row.id, 0) + 1
        if many < ATTEMPTS:
            return
        text = shorten(" ".join(why.split()), 500)
        with self._sql("mark", writes=True) as connection:
            connection.execute(update(outbox).where(outbox.c.id == row.id).values(problem=text))
        self._refusals.pop(row.id)
        self._open.pop(row.id, None)
        self._runtime.events.emit("outbox_refused", jid=row.jid, queue=row.queue, reason=text)

    # --- confirm, delete, forget --------------------------------------------------------------------------------------

    def _to_confirm(self) -> list[int]:
        """The ids whose pushes are old enough, a page at most; none while others may soon go with them."""
        now = self._now()
        due = []
        for one, (_, pushed) in islice(self._pushed.items(), MOST):
            if now - pushed < CONFIRM_AFTER:
                break
            due.append(one)
        if not due or len(due) == MOST or now - self._pushed[due[0]][1] >= CONFIRM_AFTER + TOGETHER:
            return due
        return []

    def _still_known(self, ids: Sequence[int]) -> list[int]:
        """Those that the server still knows; the others are looked at again, for a row that is gone is not pushed."""
        jids = [self._pushed[one][0] for one in ids]
        known = self._runtime.connections.run(store.known(self._runtime.keys, self._outbox, self._token, jids))
        now, confirmed = self._now(), []
        for one, is_known in zip(ids, known, strict=True):
            if is_known:
                confirmed.append(one)
            else:
                del self._pushed[one]
                self._open[one] = now
        return confirmed

    def _delete(self, ids: Sequence[int]) -> None:
        """In a transaction of its own. When its end is unknown everything stays as it is, and is done again."""
        jids = [self._pushed[one][0] for one in ids]  # an id may have been given out again, a jid never is
        with self._sql("delete", writes=True) as connection:
            connection.execute(delete(outbox).where(outbox.c.id.in_(ids), outbox.c.jid.in_(jids)))

    def _forget(self, jids: Sequence[str]) -> None:
        self._runtime.connections.run(store.forget(self._runtime.keys, self._outbox, self._token, jids))

    def _sweep_page(self) -> None:
        """Forget jids that a killed relay had left behind: those whose rows are gone."""
        keys = self._runtime.keys
        page = self._runtime.connections.run(store.sent_page(keys, self._outbox, self._sweep or 0))
        cursor, jids = page
        left: set[str] = set(jids)
        for part in _pages(jids, 500):
            with self._sql("sweep") as connection:
                left -= set(connection.execute(sql_select(outbox.c.jid).where(outbox.c.jid.in_(part))).scalars())
        if left:
            self._forget(sorted(left))
        self._sweep = cursor or None
        if not cursor:
            self._sweep_at = self._now() + EVERY

    # --- trouble, and the wait ----------------------------------------------------------------------------------------

    @contextmanager
    def _sql(self, step: str, *, writes: bool = False) -> Iterator[Connection]:
        try:
            if failpoints.armed:
                failpoints.point(f"outbox {step}:before")
            with self.database.writing() if writes else self.database.reading() as connection:
                yield connection
            if failpoints.armed:
                failpoints.point(f"outbox {step}:after")
        except ConnectionResetError as error:  # dropped by a test
            raise OutboxAway(f"{self.database.shown}: {error}") from error

    def _is_away(self, error: OutboxError) -> float:
        """What we know may be old when the database is back: begin anew, and let another process try."""
        self._failures += 1
        if not self._away:
            self._away = True
            self._runtime.events.emit("outbox_away", error=error)
        if self._leader is not None and self._leader.leads and self._failures > 2:
            self._leader.resign(self._runtime.connections, self._runtime.events, self.name)
            self._dethroned()
        pause = capped_backoff(self._failures, first=0.1, most=10.0)
        self._hold_until = self._now() + pause
        return pause

    def _is_back(self) -> None:
        self._failures = 0
        if self._away:
            self._away = False
            self._runtime.events.emit("outbox_back", waiting=len(self._open))

    def _listen(self) -> float:
        """Wait until somebody says that there is something, or it is time to look; seconds until the next look."""
        wait = BUSY if self._pushed or self._now() - self._busy_at < BUSY_FOR else IDLE
        try:
            return LINGER if self._bell.heard(wait, self.stopping) else 0.0
        except ServerAway:
            return wait


def _read(connection: Connection, query: Any) -> list[StoredRow]:
    return [StoredRow(*row) for row in connection.execute(query)]


def _pages(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[at : at + size] for at in range(0, len(items), size))
