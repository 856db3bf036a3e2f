"""``fake`` collects pushes instead of sending them, and runs them when the test says so, by a clock of its own.
``inline`` runs the job of every push here and now, in the caller.

A fake is no server: queues have no order among themselves (oldest push first), nothing pauses, and reading calls are
refused. Inline there is no later: a scheduled job runs at once, a ``Snooze`` is followed by the next run at once, and
an error is raised to the caller instead of being retried.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

from henchman.app import App
from henchman.errors import HenchmanError
from henchman.ordered.claim import Claim
from henchman.store.call import Call, adrive, drive
from henchman.store.ordered import ClaimedId
from henchman.testing.assertions import Assertions
from henchman.testing.batches import FakeBatches
from henchman.testing.calls import NotFaked, PlainPush, is_script, ordered_rows, pushes, script_arguments
from henchman.testing.fake_server import FakeServer, Iterations, Waiting, ordered_unit, plain_unit
from henchman.testing.install import AppView, Clock, GivenClock, StandIn, standing_in
from henchman.testing.perform import Drained, InlinePolicy, Performed, Performer, Ran, TestPolicy
from henchman.testing.pushed import AnyJob, job_name, note_deferred
from henchman.work.unit import Unit
from henchman.worker.stager import Stager

__all__ = ["FakeJobs", "Inline", "fake", "inline"]

LIMIT = 10_000
_AGAIN: Final = 100  # runs of one job that puts itself off


class FakeJobs(Assertions):
    """The jobs of a fake. Length and iteration are those that wait: in a queue, in the schedule or for a retry.

    The assertions speak of every push since the block began, or since ``clear``, whether its job has run or not.
    """

    def __init__(self, app: App, clock: Clock) -> None:
        super().__init__(app, clock)
        view = AppView(app, connections=self._server, clock=GivenClock(clock.time))
        self._stager = Stager(view)
        self._performer = Performer(view, TestPolicy, self._server.cancelled)

    def drain(self, job: AnyJob, *, advance: bool = False, strict: bool = False, limit: int = LIMIT) -> Drained:
        """Run the jobs of one definition that are due, and those of it that they enqueue; see ``drain_all``."""
        return drive(self._performer.perform, self._draining(job_name(job), advance, strict, limit))

    def drain_all(self, *, advance: bool = False, strict: bool = False, limit: int = LIMIT) -> Drained:
        """Run what is due by the clock, and what it enqueues, until nothing is; what ran, in order.

        Jobs end as on a worker: an error sends a job to its retry (due when the clock has moved on) or to the dead
        set. ``strict``: the first error is raised as well. ``advance``: also move the clock on to whatever is due next,
        until nothing waits. Jobs that are not registered here go on waiting. HenchmanError after ``limit`` runs.
        """
        return drive(self._performer.perform, self._draining(None, advance, strict, limit))

    def perform_one(self, job: AnyJob | None = None, *, queue: str | None = None) -> Ran:
        """Run the job that is next, of one definition or queue if asked; LookupError when none is due."""
        return drive(self._performer.perform, self._performing(self._due(job, queue)))

    async def adrain(self, job: AnyJob, *, advance: bool = False, strict: bool = False, limit: int = LIMIT) -> Drained:
        """``drain``, awaited: async jobs run in this event loop."""
        return await adrive(self._performer.aperform, self._draining(job_name(job), advance, strict, limit))

    async def adrain_all(self, *, advance: bool = False, strict: bool = False, limit: int = LIMIT) -> Drained:
        """``drain_all``, awaited: async jobs run in this event loop."""
        return await adrive(self._performer.aperform, self._draining(None, advance, strict, limit))

    async def aperform_one(self, job: AnyJob | None = None, *, queue: str | None = None) -> Ran:
        """``perform_one``, awaited: an async job runs in this event loop."""
        return await adrive(self._performer.aperform, self._performing(self._due(job, queue)))

    def clear(self) -> None:
        """Forget every push and all that waits."""
        self._server.clear()

    def _draining(
        self, name: str | None, advance: bool, strict: bool, limit: int
    ) -> Generator[Unit, Performed, Drained]:
        ran: list[Ran] = []
        while (unit := self._next(name, advance)) is not None:
            if len(ran) >= limit:
                self._server.put_back(unit)
                raise self._endless(unit, limit)
            one = yield from self._performing(unit)
            ran.append(one)
            if strict and one.error is not None and one.ending != "failed":
                raise one.error
        note_deferred(self._app)
        return Drained(tuple(ran))

    def _performing(self, unit: Unit) -> Generator[Unit, Performed, Ran]:
        """Yields ``unit`` to be run, and settles it."""
        try:
            ran, outcome = yield unit
        except BaseException:
            self._server.put_back(unit)  # the error is meant for the test, not for the job
            raise
        self._server.settle(unit, outcome)
        return ran

    def _next(self, name: str | None, advance: bool, queue: str | None = None) -> Unit | None:
        """The unit that is next, taken from the server; what is due goes to its queue first.

        Unless it is asked for by name, a job that is not registered here is for workers elsewhere.
        """

        def wanted(one: str) -> bool:
            return one == name if name is not None else not one or self._app.registry.find(one) is not None

        definitions: dict[str, Any] = self._app.registry.ordered()
        ordered = {key: one for key, one in definitions.items() if wanted(one.name) and queue in (None, key)}
        while True:
            staged = -1
            while staged != self._stager.staged:
                staged = self._stager.staged
                self._stager.tick()
            unit = self._server.take(wanted, queue, ordered)
            due = self._server.next_at(wanted, ordered) if advance and unit is None else None
            if due is None or due <= self.clock.time():
                return unit
            self.clock.reach(due)

    def _due(self, job: AnyJob | None, queue: str | None) -> Unit:
        unit = self._next(None if job is None else job_name(job), False, queue)
        if unit is None:
            later = self._server.next_at(bool)
            what = "nothing waits" if later is None else f"the next is due in {later - self.clock.time():.1f} s"
            raise LookupError(f"no such job is due: {len(self)} wait; {what}")
        return unit

    def _endless(self, unit: Unit, limit: int) -> HenchmanError:
        queue = unit.flight.queue
        then = unit if unit.source is not None else self._seen([Waiting("queue", queue, unit.payload, None)])[0]
        return HenchmanError(
            f"{limit:,} jobs ran and there are still some (next: {then}); "
            "does a job enqueue itself? If not, give drain a higher limit="
        )


class Inline:
    """What ran inline, in order: ``ran`` tells how each job ended."""

    def __init__(self, app: App, clock: Clock) -> None:
        self.ran: list[Ran] = []
        self._app = app
        self._clock = clock
        self._iterations = Iterations()
        self._batches = FakeBatches(app, clock.time)
        self._tokens = count(1)
        self._performer = Performer(AppView(app, clock=GivenClock(clock.time)), InlinePolicy)

    def __repr__(self) -> str:
        return f"<inline: {len(self.ran)} ran>"

    def run(self, call: Call[Any]) -> Any:
        """Run the jobs that ``call`` pushes; NotFaked when only a server could answer it."""
        return drive(self._performer.perform, self._answer(call))

    async def arun(self, call: Call[Any]) -> Any:
        """``run``, awaited: async jobs run in this loop."""
        return await adrive(self._performer.aperform, self._answer(call))

    def _answer(self, call: Call[Any]) -> Generator[Unit, Performed, Any]:
        """Yields the units to run; returns the answer."""
        keys, now = self._app.keys, self._clock.time()
        if self._iterations.knows(call, keys):
            return call.decode(self._iterations.answer(call))
        if is_script(call, "cancel") and script_arguments(call)[1][-1]:
            self._iterations.cancel(call, keys)  # all other jobs that were pushed have run
            return None
        if (ordered := ordered_rows(call, now)) is not None:
            for row in ordered[1]:
                score = now if row.score is None else row.score
                yield from self._until_it_ends(row.queue, row.id, score, row.payload)
            return call.decode(len(ordered[1]))
        found, answer = pushes(call, keys, now), None
        if found is None:
            answered = self._batches.answer(call)
            if answered is None:
                raise NotFaked(call, "inline")
            answer, found = call.decode(answered[0]), answered[1]
        for push in found:
            yield from self._plain(push)
        return answer

    def open(self, io_timeout: float | None = None) -> Any:
        """What waits for a result listens on a connection of its own."""
        raise HenchmanError("inline a job has ended when its push returns: this one kept no result")

    def _plain(self, push: PlainPush) -> Generator[Unit, Performed, None]:
        """Run a job, again as long as it puts itself off."""
        payload = push.payload
        for _ in range(_AGAIN):
            unit = plain_unit(self._app, push.queue, self._batches.keys.started(payload))
            try:
                ran, outcome = yield unit
            except BaseException:
                self._batches.keys.settle(payload, "gone")  # the error is the caller's: nothing is left of the job
                raise
            self.ran.append(ran)
            self._iterations.settle(self._app.keys, payload, ran.ending)
            if ran.ending == "invalid" and ran.error is not None:
                raise ran.error
            called = self._batches.settle(unit, outcome)
            if ran.ending not in ("snoozed", "interrupted"):
                for callback in called:
                    yield from self._plain(callback)
                return
            payload = outcome.stored
        raise _never_ends(self.ran[-1])

    def _until_it_ends(self, queue: str, id: bytes, score: float, payload: bytes) -> Generator[Unit, Performed, None]:
        """Run an ordered payload by itself, again as long as it puts itself off."""
        for _ in range(_AGAIN):
            claim = Claim(next(self._tokens), [ClaimedId(id, -1, 0, [(score, payload)])])
            ran, outcome = yield ordered_unit(self._app, queue, claim)
            self.ran.append(ran)
            if outcome.error is not None and not isinstance(outcome.error, InlinePolicy.ends):
                raise outcome.error  # the payload does not fit
            if ran.ending != "snoozed":
                return
        raise _never_ends(self.ran[-1])


def _never_ends(last: Ran) -> HenchmanError:
    return HenchmanError(
        f"{last.name} put itself off {_AGAIN} times in a row ({last.reason}): inline there is no later; "
        "use testing.fake(app, clock=…) and let the clock pass"
    )


class _Awaited:
    """The awaited form of a fake server."""

    def __init__(self, run: Callable[[Call[Any]], Awaitable[Any]]) -> None:
        self.run = run

    async def close(self) -> None:
        """There is nothing to close."""


def _arun(server: FakeServer) -> Callable[[Call[Any]], Awaitable[Any]]:
    async def run(call: Call[Any]) -> Any:
        return server.run(call)

    return run


@contextmanager
def fake(app: App, *, clock: Clock | None = None) -> Iterator[FakeJobs]:
    """Within the block pushes of ``app``, from any thread or task, are collected instead of sent.

    ``clock`` decides what is due; the default goes with the world's until it is told to move. What needs a real
    server raises NotFaked.
    """
    jobs = FakeJobs(app, clock or Clock())
    with standing_in(app, StandIn(jobs._server, _Awaited(_arun(jobs._server)), jobs.clock.time)):
        yield jobs


@contextmanager
def inline(app: App, *, clock: Clock | None = None) -> Iterator[Inline]:
    """Within the block a push runs its job at once: encoded, decoded, through both middleware chains.

    What a job raises is raised to whoever pushed it, except ``Failure``, ``Snooze``, ``Discard`` and ``Kill``, which
    say how the job ends; the value of the block tells of them in ``ran``. A job that is not registered here raises
    UnknownJob, and whatever else needs a server NotFaked.
    """
    jobs = Inline(app, clock or Clock())
    with standing_in(app, StandIn(jobs, _Awaited(jobs.arun), jobs._clock.time)):
        yield jobs
