"""Pushes are collected instead of sent, and run when the test says so, by a clock of its own.

What it is not: a server. Queues have no order among themselves (oldest push first), nothing pauses, and reading calls
are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from henchman.app import App
from henchman.errors import HenchmanError
from henchman.store.call import Call
from henchman.testing.clock import Clock
from henchman.testing.collected import AnyJob, job_name
from henchman.testing.looks import Looks
from henchman.testing.ordered_shelf import ordered_unit
from henchman.testing.perform import ClockJudge, Drained, GivenClock, Performer, Ran
from henchman.testing.shelf import FakeRunner, Waiting
from henchman.testing.switch import StandIn, View, standing_in
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit
from henchman.worker.stager import Stager

__all__ = ["FakeJobs", "fake"]

LIMIT = 10_000


class FakeJobs(Looks):
    """The jobs of a fake. Length and iteration are those that wait: in a queue, in the schedule or for a retry.

    The assertions speak of every push since the block began, or since ``clear``, whether its job has run or not.
    """

    def __init__(self, app: App, clock: Clock) -> None:
        super().__init__(app, clock)
        self._stager = Stager(View(app, connections=self._runner, clock=GivenClock(clock.time)))
        self._performer = Performer(app, ClockJudge(app, clock.time), clock.time, self._runner.cancelled)

    def drain(self, job: AnyJob, *, advance: bool = False, strict: bool = False, limit: int = LIMIT) -> Drained:
        """Run the jobs of one definition that are due, and those of it that they enqueue; see ``drain_all``."""
        return self._drain(job_name(job), advance, strict, limit)

    def drain_all(self, *, advance: bool = False, strict: bool = False, limit: int = LIMIT) -> Drained:
        """Run what is due by the clock, and what it enqueues, until nothing is; what ran, in order.

        Jobs end as on a worker: an error sends a job to its retry (due when the clock has moved on) or to the dead
        set. ``strict``: the first error is raised as well. ``advance``: also move the clock on to whatever is due next,
        until nothing waits. Jobs that are not registered here go on waiting. HenchmanError after ``limit`` runs.
        """
        return self._drain(None, advance, strict, limit)

    def perform_one(self, job: AnyJob | None = None, *, queue: str | None = None) -> Ran:
        """Run the job that is next, of one definition or queue if asked; LookupError when none is due."""
        one = self._next(None if job is None else job_name(job), False, queue)
        return self._run(self._there(one))[0]

    async def adrain(self, job: AnyJob, *, advance: bool = False, strict: bool = False, limit: int = LIMIT) -> Drained:
        """``drain``, awaited: async jobs run in this event loop."""
        return await self._adrain(job_name(job), advance, strict, limit)

    async def adrain_all(self, *, advance: bool = False, strict: bool = False, limit: int = LIMIT) -> Drained:
        """``drain_all``, awaited: async jobs run in this event loop."""
        return await self._adrain(None, advance, strict, limit)

    async def aperform_one(self, job: AnyJob | None = None, *, queue: str | None = None) -> Ran:
        """``perform_one``, awaited: an async job runs in this event loop."""
        one = self._next(None if job is None else job_name(job), False, queue)
        return (await self._arun(self._there(one)))[0]

    def clear(self) -> None:
        """Forget every push and all that waits."""
        self._runner.clear()

    def _drain(self, name: str | None, advance: bool, strict: bool, limit: int) -> Drained:
        ran: list[Ran] = []
        while (one := self._next(name, advance)) is not None:
            self._check(one, len(ran), limit)
            _add(ran, self._run(one), strict)
        return Drained(tuple(ran))

    async def _adrain(self, name: str | None, advance: bool, strict: bool, limit: int) -> Drained:
        ran: list[Ran] = []
        while (one := self._next(name, advance)) is not None:
            self._check(one, len(ran), limit)
            _add(ran, await self._arun(one), strict)
        return Drained(tuple(ran))

    def _run(self, one: Waiting | Unit) -> tuple[Ran, Outcome]:
        perform = self._performer
        try:
            ran, outcome = (
                perform.perform_unit(one) if isinstance(one, Unit) else perform.perform(one.queue, one.payload)
            )
        except BaseException:
            self._put_back(one)  # the test was meant, not the job
            raise
        self._settle(one, outcome)
        return ran, outcome

    async def _arun(self, one: Waiting | Unit) -> tuple[Ran, Outcome]:
        perform = self._performer
        try:
            if isinstance(one, Unit):
                ran, outcome = await perform.aperform_unit(one)
            else:
                ran, outcome = await perform.aperform(one.queue, one.payload)
        except BaseException:
            self._put_back(one)
            raise
        self._settle(one, outcome)
        return ran, outcome

    def _put_back(self, one: Waiting | Unit) -> None:
        if isinstance(one, Unit):
            self._shelf.put_back(one.flight.queue, one.claim)
        else:
            self._runner.put_back(one)

    def _settle(self, one: Waiting | Unit, outcome: Outcome) -> None:
        if isinstance(one, Unit):
            self._shelf.settle(one.flight.queue, one.claim)
        else:
            self._runner.settle(one, outcome)

    def _claim(self, queues: Collection[str]) -> Unit | None:
        """The next claim of one of these ordered queues."""
        known: dict[str, Any] = self._app.registry.ordered()
        claimed = self._shelf.claim(
            queues, lambda queue: (known[queue].ordered.claim_size, known[queue].ordered.payload_cap)
        )
        return None if claimed is None else ordered_unit(self._app, *claimed)

    def _next(self, name: str | None, advance: bool, queue: str | None = None) -> Waiting | Unit | None:
        """The job that is next, out of the shelf; what is due goes to its queue first.

        Unless it is asked for by name, a job that is not registered here is for workers elsewhere.
        """

        def wanted(one: str) -> bool:
            return one == name if name is not None else not one or self._app.registry.find(one) is not None

        ordered = [
            key for key, one in self._app.registry.ordered().items() if wanted(one.name) and queue in (None, key)
        ]
        while True:
            staged = -1
            while staged != self._stager.staged:
                staged = self._stager.staged
                self._stager.tick()
            one = self._runner.take(wanted, queue) or self._claim(ordered)
            dues = (self._runner.next_at(wanted), self._shelf.next_at(ordered)) if advance and one is None else ()
            due = min((one for one in dues if one is not None), default=None)
            if due is None or due <= self.clock.time():
                return one
            self.clock.reach(due)

    def _there(self, one: Waiting | Unit | None) -> Waiting | Unit:
        if one is None:
            later = self._runner.next_at(bool)
            what = "nothing waits" if later is None else f"the next is due in {later - self.clock.time():.1f} s"
            raise LookupError(f"no such job is due: {len(self)} wait; {what}")
        return one

    def _check(self, one: Waiting | Unit, ran: int, limit: int) -> None:
        if ran >= limit:
            self._put_back(one)
            then = one if isinstance(one, Unit) else self._seen([one])[0]
            raise HenchmanError(
                f"{limit:,} jobs ran and there are still some (next: {then}); "
                "does a job enqueue itself? If not, give drain a higher limit="
            )


def _add(ran: list[Ran], one: tuple[Ran, Outcome], strict: bool) -> None:
    ran.append(one[0])
    if strict and one[0].error is not None and one[0].ending != "failed":
        raise one[0].error


class _Awaited:
    def __init__(self, runner: FakeRunner) -> None:
        self._runner = runner

    async def run(self, call: Call[Any]) -> Any:
        return self._runner.run(call)

    async def close(self) -> None:
        """There is nothing to close."""


@contextmanager
def fake(app: App, *, clock: Clock | None = None) -> Iterator[FakeJobs]:
    """Within the block pushes of ``app``, from any thread or task, are collected instead of sent.

    ``clock`` decides what is due; the default goes with the world's until it is told to move. What needs a real
    server raises NotFaked.
    """
    jobs = FakeJobs(app, clock or Clock())
    with standing_in(app, StandIn(jobs._runner, _Awaited(jobs._runner), jobs.clock.time)):
        yield jobs
