"""What people do to entries of a set: each page of them is one move. Of two who act on one entry, one succeeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from henchman.config import Config
from henchman.errors import ArgumentError, PayloadError
from henchman.inspector.entry import Entry, text_of
from henchman.inspector.set_walk import PAGE, Show
from henchman.kernel.clock import ServerClock
from henchman.kernel.text import described
from henchman.store import jobs, leases, queues
from henchman.store.keys import Keys
from henchman.store.procedure import Procedure
from henchman.wire import payload, times
from henchman.wire.sidekiq import sanitise
from henchman.work.effects import batch_of, of_payload

__all__ = ["Acted", "Acts"]

_DEFAULT_QUEUE = "default"  # where Sidekiq sends a payload that names no queue


class Acted(NamedTuple):
    """What became of an action: entries moved, entries that were gone already, entries that stayed, and why (the
    first hundred reasons). ``stopped``: the server refused, the rest was not tried. ``uncancelled``: so many dead
    jobs that were put into their queues had been cancelled; that is taken back. ``cancelled``: so many others are
    cancelled still, and end without running."""

    done: int = 0
    gone: int = 0
    stayed: int = 0
    reasons: tuple[str, ...] = ()
    stopped: bool = False
    uncancelled: int = 0
    cancelled: int = 0

    def plus(self, other: Acted) -> Acted:
        """Both together."""
        return Acted(
            self.done + other.done,
            self.gone + other.gone,
            self.stayed + other.stayed,
            (*self.reasons, *other.reasons)[:PAGE],
            self.stopped or other.stopped,
            self.uncancelled + other.uncancelled,
            self.cancelled + other.cancelled,
        )


Change = Callable[[Entry], jobs.Move]


class Acts:
    """The actions on one set, as plans."""

    def __init__(self, keys: Keys, config: Config, key: str) -> None:
        self._keys = keys
        self._config = config
        self._key = key
        self._clock = ServerClock()

    def on_all(self, change: Change, show: Show) -> Procedure[Acted]:
        """Act on the first page again and again, lowest score first; what stays is stepped over."""
        left: int = yield queues.set_size(self._key)
        total = Acted()
        while left > 0 and not total.stopped:
            found: queues.Stretch = yield queues.set_stretch(self._key, total.stayed, min(PAGE, left))
            if not found.members:
                break
            left -= len(found.members)
            total = total.plus((yield from self.on(map(show, found.members), change)))
        return total

    def on(self, entries: Iterable[Entry], change: Change) -> Procedure[Acted]:
        """Act on these, a page at a time."""
        yield leases.ask_time(self._clock)  # what is enqueued now expires by the server's clock
        total, moves, size = Acted(), list[tuple[Entry, jobs.Move]](), 0
        for entry in entries:
            try:
                moves.append((entry, change(entry)))
                size += len(entry.payload)
            except Exception as error:  # it stays where it is, and says why; its neighbours go
                said = error if isinstance(error, PayloadError | ArgumentError) else described(error)
                total = total.plus(Acted(stayed=1, reasons=(f"{entry.jid or entry.name}: {said}",)))
            if len(moves) == PAGE or size >= jobs.MOST_BYTES:
                total, moves, size = total.plus((yield from self._carry_out(moves))), [], 0
                if total.stopped:
                    return total
        return total.plus((yield from self._carry_out(moves))) if moves else total

    def _carry_out(self, changes: list[tuple[Entry, jobs.Move]]) -> Procedure[Acted]:
        jids = [entry.jid for entry, move in changes if move.queue is not None and entry.jid]
        dead = self._key == self._keys.dead  # it has ended, and so has what was said of that life
        look = jobs.uncancel if dead else jobs.cancelled
        marked: frozenset[str] = (yield look(self._keys, jids)) if jids else frozenset()
        statuses: list[int | bytes] = yield jobs.move(
            self._keys,
            self._key,
            [move for _, move in changes],
            dead_max=self._config.dead_max,
            dead_timeout=self._config.dead_timeout,
        )
        reasons = tuple(f"the server refused: {text_of(one)}" for one in statuses if isinstance(one, bytes))
        moved = [entry.jid for (entry, _), status in zip(changes, statuses, strict=True) if status == 1]
        told = sum(jid in marked for jid in moved)
        return Acted(
            len(moved),
            statuses.count(0),
            len(reasons),
            reasons[:1],
            bool(reasons),
            uncancelled=told if dead else 0,
            cancelled=0 if dead else told,
        )

    def to_queue(self, entry: Entry) -> jobs.Move:
        """Into its queue, as of now."""
        if entry.problem:
            raise PayloadError(f"{entry.problem}; no worker can run it")
        job = dict(entry.job)
        sanitise(job)
        now = self._clock.now()
        job["enqueued_at"] = (
            round(now * 1000) if self._config.timestamps == "ms" else float(times.write(now, "seconds"))
        )
        effects = of_payload(self._keys, entry.payload, "staged")
        return jobs.Move(entry.payload, payload.encode(job), entry.queue or _DEFAULT_QUEUE, effects=effects)

    def to_dead(self, entry: Entry) -> jobs.Move:
        """Into the dead set; wrapped, when it cannot be read."""
        if not entry.problem:
            job = dict(entry.job)
            stored = payload.encode(job) if sanitise(job) else entry.payload
        else:
            stored = payload.invalid(entry.payload, entry.problem, entry.queue or _DEFAULT_QUEUE, self._clock.now())
        effects = of_payload(self._keys, entry.payload, "dead")
        return jobs.Move(entry.payload, stored, effects=effects, batch=batch_of(entry.job))

    def away(self, entry: Entry) -> jobs.Move:
        """Nowhere."""
        effects = of_payload(self._keys, entry.payload, "deleted")
        return jobs.Move(entry.payload, delete=True, effects=effects)
