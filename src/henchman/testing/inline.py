"""Every push runs its job here and now, in the caller.

There is no later here: a scheduled job runs at once, a ``Snooze`` is followed by the next run at once, and an error is
raised to the caller instead of being retried.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from henchman.app import App
from henchman.errors import HenchmanError, JobEnd
from henchman.ordered.claim import Claim
from henchman.store.call import Call
from henchman.store.ordered import ClaimedId
from henchman.testing.clock import Clock
from henchman.testing.iterations import Iterations
from henchman.testing.ordered_shelf import Row, is_ordered_push, ordered_unit, rows_of
from henchman.testing.perform import Candid, Performer, Ran
from henchman.testing.pushes import NotFaked, Push, pushes
from henchman.testing.switch import StandIn, standing_in
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit

__all__ = ["Inline", "inline"]

_AGAIN: Final = 100  # runs of one job that puts itself off


class Inline:
    """What ran inline, in order: ``ran`` tells how each job ended."""

    def __init__(self, app: App, clock: Clock) -> None:
        self.ran: list[Ran] = []
        self._app = app
        self._clock = clock
        self._iterations = Iterations()
        self._tokens = count(1)
        self._performer = Performer(app, Candid(app), clock.time)

    def __repr__(self) -> str:
        return f"<inline: {len(self.ran)} ran>"

    def run(self, call: Call[Any]) -> Any:
        """Run the jobs that ``call`` pushes; NotFaked when only a server could answer it."""
        if self._iterations.knows(call, self._app.keys):
            return call.decode(self._iterations.answer(call))
        if is_ordered_push(call):
            rows = rows_of(call, self._clock.time())[1]
            for unit in self._units(rows):
                self._ordered(*self._performer.perform_unit(unit))
            return call.decode(len(rows))
        for push in self._read(call):
            payload: bytes | None = push.payload
            for _ in range(_AGAIN):
                if payload is None:
                    break
                payload = self._next(payload, *self._performer.perform(push.queue, payload))
            else:
                raise _never_ends(self.ran[-1])
        return None

    async def arun(self, call: Call[Any]) -> Any:
        """``run``, awaited: async jobs run in this event loop."""
        if self._iterations.knows(call, self._app.keys):
            return call.decode(self._iterations.answer(call))
        if is_ordered_push(call):
            rows = rows_of(call, self._clock.time())[1]
            for unit in self._units(rows):
                self._ordered(*await self._performer.aperform_unit(unit))
            return call.decode(len(rows))
        for push in self._read(call):
            payload: bytes | None = push.payload
            for _ in range(_AGAIN):
                if payload is None:
                    break
                payload = self._next(payload, *await self._performer.aperform(push.queue, payload))
            else:
                raise _never_ends(self.ran[-1])
        return None

    def _read(self, call: Call[Any]) -> list[Push]:
        if call.name == "cancel" and call.script is not None:
            self._iterations.cancel(call)  # anything else that was pushed has run
            return []
        found = pushes(call, self._app.keys, self._clock.time())
        if found is None:
            raise NotFaked(call, "inline")
        return found

    def _units(self, rows: list[Row]) -> Iterator[Unit]:
        """What an ordered push asks to be run: each payload by itself, again as long as that puts itself off."""
        for row in rows:
            score = self._clock.time() if row.score is None else row.score
            for _ in range(_AGAIN):
                claim = Claim(next(self._tokens), [ClaimedId(row.id, -1, 0, [(score, row.payload)])])
                yield ordered_unit(self._app, row.queue, claim)
                if self.ran[-1].ending != "snoozed":
                    break
            else:
                raise _never_ends(self.ran[-1])

    def _ordered(self, ran: Ran, outcome: Outcome) -> None:
        self.ran.append(ran)
        if outcome.error is not None and not isinstance(outcome.error, JobEnd):  # its payload does not fit
            raise outcome.error

    def _next(self, payload: bytes, ran: Ran, outcome: Outcome) -> bytes | None:
        """The payload that runs next, where the job put itself off."""
        self.ran.append(ran)
        self._iterations.settle(self._app.keys, payload, outcome.ending)
        if outcome.ending == "invalid" and outcome.error is not None:
            raise outcome.error
        return outcome.stored if outcome.ending in ("snoozed", "interrupted") else None


class _Awaited:
    def __init__(self, jobs: Inline) -> None:
        self.run = jobs.arun

    async def close(self) -> None:
        """There is nothing to close."""


def _never_ends(last: Ran) -> HenchmanError:
    return HenchmanError(
        f"{last.name} put itself off {_AGAIN} times in a row ({last.reason}): inline there is no later; "
        "use testing.fake(app, clock=…) and let the clock pass"
    )


@contextmanager
def inline(app: App, *, clock: Clock | None = None) -> Iterator[Inline]:
    """Within the block a push runs its job at once: encoded, decoded, through both middleware chains.

    What a job raises is raised to whoever pushed it, except ``Failure``, ``Snooze``, ``Discard`` and ``Kill``, which
    say how the job ends; the value of the block tells of them in ``ran``. A job that is not registered here raises
    UnknownJob, and whatever else needs a server NotFaked.
    """
    jobs = Inline(app, clock or Clock())
    with standing_in(app, StandIn(jobs, _Awaited(jobs), jobs._clock.time)):
        yield jobs
