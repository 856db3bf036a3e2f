"""What a test asks of the pushes that were collected: lists, filters, assertions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from henchman.app import App
from henchman.client.job import BoundCall
from henchman.errors import ArgumentError
from henchman.ordered.definition import OrderedJob
from henchman.testing.clock import Clock
from henchman.testing.collected import AnyJob, Collected, Wanted, Where, collected, job_name
from henchman.testing.ordered_looks import OrderedLooks
from henchman.testing.saying import found_unwanted, missed
from henchman.testing.shelf import FakeRunner, Waiting

__all__ = ["Looks"]

Found: TypeAlias = list[Collected]
Compared: TypeAlias = list[tuple[Collected, Mapping[str, tuple[Any, Any]]]]


class Looks(OrderedLooks):
    """The half of a fake that changes nothing."""

    def __init__(self, app: App, clock: Clock) -> None:
        self.clock = clock
        self._app = app
        self._runner = FakeRunner(lambda: app.keys, clock.time)
        self._shelf = self._runner.ordered

    def __repr__(self) -> str:
        return f"<{len(self)} jobs wait, {len(self._runner.pushed)} were pushed>"

    def __len__(self) -> int:
        return len(self._runner.waiting)

    def __iter__(self) -> Iterator[Collected]:
        return iter(self._seen(list(self._runner.waiting)))

    def list(
        self,
        job: AnyJob | None = None,
        *,
        args: Sequence[Any] | BoundCall | None = None,
        queue: str | None = None,
        tags: Collection[str] | None = None,
        at: datetime | timedelta | None = None,
        within: float | timedelta = 1.0,
    ) -> Found:
        """The jobs that wait, oldest push first, of one job and as the filters say.

        ``args``: the positional arguments, or ``job.call(…)``. ``tags``: has all of them. ``at``: due then (a
        timedelta counts from the clock's now), give or take ``within`` seconds.
        """
        if args is not None and job is None:
            raise ArgumentError("list(args=…): arguments are those of a job; give that too")
        wanted = None
        if job is not None:
            given = () if args is None else (args,) if isinstance(args, BoundCall) else tuple(args)
            wanted = Wanted(self._app.registry, job, given, {})
        where, now = Where(queue, tags, at, within), self.clock.now()
        return [
            one
            for one in self
            if (wanted is None or (one.name == wanted.name and not wanted.misfits(one))) and not where.misfits(one, now)
        ]

    def of(self, job: AnyJob) -> Found:
        """The jobs of one definition (or name) that wait, oldest push first."""
        return self.list(job)

    @property
    def pushed(self) -> Found:
        """Every push since the block began or was cleared, in order."""
        return self._seen(
            [Waiting("queue" if one.at is None else "schedule", *one) for one in list(self._runner.pushed)]
        )

    @property
    def retries(self) -> Found:
        """The jobs that wait for their next attempt."""
        return [one for one in self if one.place == "retry"]

    @property
    def dead(self) -> Found:
        """The jobs that were given up."""
        return self._seen(list(self._runner.dead))

    def assert_enqueued(
        self,
        job: AnyJob,
        *args: Any,
        queue: str | None = None,
        count: int | None = None,
        tags: Collection[str] | None = None,
        at: datetime | timedelta | None = None,
        within: float | timedelta = 1.0,
        **kwargs: Any,
    ) -> None:
        """AssertionError unless there was such a push, or (``count``) exactly so many; without arguments: any.

        Arguments are compared as the job's function would get them, defaults filled in; ``mock.ANY`` fits all. Where
        the job has a parameter called queue, tags, at, within or count, give its arguments as ``job.call(…)``.
        ``at``: a datetime, or a timedelta from the clock's now; give or take ``within`` seconds.
        """
        __tracebackhide__ = True
        where = Where(queue, tags, at, within)
        wanted = self._wanted(job, args, kwargs, where.given(count))
        same, everything = self._compared(wanted, where)
        hits = [one for one, misfits in same if not misfits]
        if (not hits) if count is None else len(hits) != count:
            near = [(one, misfits) for one, misfits in same if misfits]
            raise AssertionError(missed(wanted, where, count, hits, near, everything))

    def assert_not_enqueued(
        self,
        job: AnyJob,
        *args: Any,
        queue: str | None = None,
        tags: Collection[str] | None = None,
        at: datetime | timedelta | None = None,
        within: float | timedelta = 1.0,
        **kwargs: Any,
    ) -> None:
        """AssertionError when there was such a push; the conditions are those of ``assert_enqueued``."""
        __tracebackhide__ = True
        where = Where(queue, tags, at, within)
        wanted = self._wanted(job, args, kwargs, where.given())
        same, everything = self._compared(wanted, where)
        hits = [one for one, misfits in same if not misfits]
        if hits:
            raise AssertionError(found_unwanted(wanted, where, hits, everything))

    def _seen(self, many: Sequence[Waiting]) -> Found:
        return [collected(self._app.registry, *one) for one in many]

    def _wanted(self, job: AnyJob, args: tuple[Any, ...], kwargs: dict[str, Any], options: Collection[str]) -> Wanted:
        """What is expected; ArgumentError where a keyword may be meant for us or for the job."""
        known = self._app.registry.find(job_name(job))
        if isinstance(known, OrderedJob):
            raise ArgumentError(f"{known.name} has an ordered queue: ask assert_pushed")
        mixed = [name for name in options if known is not None and name in known.signature.binding.by_name]
        if mixed:
            raise ArgumentError(
                f"{mixed[0]}= is an option of the assertion and a parameter of {job_name(job)}: "
                "give the job's arguments as job.call(…)"
            )
        return Wanted(self._app.registry, job, args, kwargs)

    def _compared(self, wanted: Wanted, where: Where) -> tuple[Compared, Found]:
        """The pushes of the same job, each with how it differs; and all pushes."""
        now, everything = self.clock.now(), self.pushed
        same = [one for one in everything if one.name == wanted.name]
        return [(one, {**wanted.misfits(one), **where.misfits(one, now)}) for one in same], everything
