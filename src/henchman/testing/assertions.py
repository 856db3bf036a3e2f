"""Lists, filters and assertions of the pushes that a fake collected, and the texts of failed assertions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from henchman.app import App
from henchman.client.job import BoundCall
from henchman.errors import ArgumentError
from henchman.kernel.text import shorten
from henchman.ordered.claim import shown
from henchman.ordered.definition import OrderedJob
from henchman.testing.fake_server import Entity, EntityKey, FakeServer, Waiting
from henchman.testing.install import Clock
from henchman.testing.pushed import (
    COMMIT,
    AnyJob,
    Collected,
    CollectedPush,
    Wanted,
    Where,
    Word,
    collected_push,
    deferred_jobs,
    job_name,
    seen,
)

__all__ = ["Assertions"]

AnyOrdered: TypeAlias = OrderedJob[Any] | str
Found: TypeAlias = list[Collected]
Differences: TypeAlias = Mapping[str, tuple[Any, Any]]
Compared: TypeAlias = list[tuple[Collected, Differences]]

_NEAREST = 3
_LISTED = 20
_VALUE_MOST = 200


_ANY: Any = Word("…")


class OrderedAssertions:
    """Lists and assertions of pushes to ordered queues, and of the payloads that wait under their ids."""

    clock: Clock
    _app: App
    _server: FakeServer

    def pushes(self, job: AnyOrdered | None = None) -> list[CollectedPush]:
        """Every push to ordered queues since the block began or was cleared, in order; of one definition if asked."""
        found = [collected_push(self._app.registry, row) for row in list(self._server.ordered.pushed)]
        return found if job is None else [one for one in found if one.name == self._defined(job).name]

    def waiting(self, job: AnyOrdered) -> dict[str, list[Any]]:
        """id → payloads that wait, as merged and in the order in which the handler would get them."""
        return self._held(job, self._server.ordered.waiting)

    def morgue(self, job: AnyOrdered) -> dict[str, list[Any]]:
        """id → payloads that were given up."""
        return self._held(job, self._server.ordered.morgue)

    def assert_pushed(
        self,
        job: AnyOrdered,
        id: str | int,
        payload: Any = _ANY,
        *,
        score: float | None = _ANY,
        count: int | None = None,
        at: datetime | timedelta | None = None,
        within: float | timedelta = 1.0,
    ) -> None:
        """AssertionError unless there was such a push to an ordered queue, or (``count``) exactly so many.

        What is left out may be anything. ``at``: a datetime, or a timedelta from the clock's now, give or take
        ``within`` seconds.
        """
        __tracebackhide__ = True
        hits = self._hits(job, id, payload, score, at, within)
        if (not hits) if count is None else len(hits) != count:
            often = "a push" if count is None else f"{count} pushes"
            raise AssertionError(self._ordered_text(f"expected {often}", job, id, payload, score, hits))

    def assert_not_pushed(
        self, job: AnyOrdered, id: str | int, payload: Any = _ANY, *, score: float | None = _ANY
    ) -> None:
        """AssertionError when there was such a push; the conditions are those of ``assert_pushed``."""
        __tracebackhide__ = True
        hits = self._hits(job, id, payload, score)
        if hits:
            raise AssertionError(self._ordered_text("expected no push", job, id, payload, score, hits))

    def _hits(
        self,
        job: AnyOrdered,
        id: str | int,
        payload: Any,
        score: Any,
        at: datetime | timedelta | None = None,
        within: float | timedelta = 1.0,
    ) -> list[CollectedPush]:
        where, now = Where(at=at, within=within), self.clock.now()
        return [
            one
            for one in self.pushes(job)
            if one.id == str(id)
            and (payload is _ANY or payload == one.payload)
            and (score is _ANY or score == one.score)
            and where.is_due(one.at, now)
        ]

    def _ordered_text(
        self, head: str, job: AnyOrdered, id: str | int, payload: Any, score: Any, hits: list[CollectedPush]
    ) -> str:
        words = f"{head} of {self._defined(job).name} id={str(id)!r} payload={payload!r:.200} score={score!r}"
        everything = self.pushes()
        lines = [f"{words}; found {len(hits) or 'none'}", f"pushed in all: {len(everything)}"]
        return "\n".join([*lines, *_listed(everything)])

    def _held(self, job: AnyOrdered, where: Mapping[EntityKey, Entity]) -> dict[str, list[Any]]:
        definition = self._defined(job)
        return {
            shown(id): definition.decode(shown(id), [raw for _, _, raw in entity.waiting])
            for (queue, id), entity in list(where.items())
            if queue in definition.queues
        }

    def _defined(self, job: AnyOrdered) -> Any:
        if isinstance(job, str):
            found: Any = self._app.registry.get(job)
        else:
            found = getattr(job, "job", job)
        if not isinstance(found, OrderedJob):
            raise ArgumentError(f"{job!r} has no ordered queue; of a plain job ask assert_enqueued")
        return found


class Assertions(OrderedAssertions):
    """The half of a fake that changes nothing."""

    def __init__(self, app: App, clock: Clock) -> None:
        self.clock = clock
        self._app = app
        self._server = FakeServer(app, clock.time)

    def __repr__(self) -> str:
        return f"<{len(self)} jobs wait, {len(self._server.pushed)} were pushed>"

    def __len__(self) -> int:
        return len(self._server.waiting)

    def __iter__(self) -> Iterator[Collected]:
        return iter(self._seen(list(self._server.waiting)))

    def list(
        self,
        job: AnyJob | None = None,
        *,
        args: Sequence[Any] | BoundCall[..., Any] | None = None,
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
            if (wanted is None or (one.name == wanted.name and not wanted.differences(one)))
            and not where.differences(one, now)
        ]

    def of(self, job: AnyJob) -> Found:
        """The jobs of one definition (or name) that wait, oldest push first."""
        return self.list(job)

    @property
    def pushed(self) -> Found:
        """Every push since the block began or was cleared, in order."""
        return self._seen(
            [Waiting("queue" if one.at is None else "schedule", *one) for one in list(self._server.pushed)]
        )

    @property
    def retries(self) -> Found:
        """The jobs that wait for their next attempt."""
        return [one for one in self if one.place == "retry"]

    @property
    def deferred(self) -> Found:
        """The jobs that wait for the commit of a transaction, in order: not pushed yet, and gone with a rollback."""
        return self._seen([Waiting("deferred", job.queue, job.payload, None) for job in deferred_jobs(self._app)])

    @property
    def blocked(self) -> Found:
        """The jobs that wait for others (``after=``)."""
        return self._seen([Waiting("blocked", *one) for one in self._server.blocked()])

    @property
    def dead(self) -> Found:
        """The jobs that were given up."""
        return self._seen(list(self._server.dead))

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
        wanted = self._wanted(job, args, kwargs, where.options(count))
        same, everything = self._compared(wanted, where)
        hits = [one for one, differences in same if not differences]
        if (not hits) if count is None else len(hits) != count:
            near = [(one, differences) for one, differences in same if differences]
            waiting = [one for one in self.deferred if one.name == wanted.name]
            raise AssertionError(_missed(wanted, where, count, hits, near, everything, waiting))

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
        wanted = self._wanted(job, args, kwargs, where.options())
        same, everything = self._compared(wanted, where)
        hits = [one for one, differences in same if not differences]
        if hits:
            raise AssertionError(_unwanted(wanted, where, hits, everything))

    def _seen(self, many: Sequence[Waiting]) -> Found:
        return [seen(self._app.registry, *one) for one in many]

    def _wanted(self, job: AnyJob, args: tuple[Any, ...], kwargs: dict[str, Any], options: Collection[str]) -> Wanted:
        """The expected push; ArgumentError where a keyword may be a condition or an argument of the job."""
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
        return [(one, {**wanted.differences(one), **where.differences(one, now)}) for one in same], everything


# --- texts of failed assertions --------------------------------------------------------------------------------------


def _missed(
    wanted: Wanted,
    where: Where,
    count: int | None,
    hits: Sequence[Collected],
    near: Compared,
    everything: Sequence[Collected],
    waiting: Sequence[Collected],
) -> str:
    """Why an expected push was not found, or not so often. ``near``: pushes of the same job and their differences;
    ``waiting``: those that wait for a commit."""
    often = "a push" if count is None else "1 push" if count == 1 else f"{count} pushes"
    lines = [f"expected {often} of {wanted.shown}{_conditions(where)}; found {len(hits) or 'none'}"]
    if hits:
        lines += ["these fit:", *_listed(hits)]
    closest = sorted(near, key=lambda pair: len(pair[1]))[:_NEAREST]
    if closest and (count is None or len(hits) < count):
        lines.append("nearest:")
        for one, differences in closest:
            lines.append(f"  {one}")
            lines += [
                f"      {name}: expected {_short(e)}, was {_short(was)}" for name, (e, was) in differences.items()
            ]
    if waiting and (count is None or len(hits) < count):
        lines += [f"these wait for the commit of a transaction; {COMMIT}:", *_listed(waiting)]
    return "\n".join([*lines, *_everything(everything)])


def _unwanted(wanted: Wanted, where: Where, hits: Sequence[Collected], everything: Sequence[Collected]) -> str:
    """The pushes that should not have been."""
    head = f"expected no push of {wanted.shown}{_conditions(where)}; found {len(hits)}"
    return "\n".join([f"{head}:", *_listed(hits), *_everything(everything)])


def _conditions(where: Where) -> str:
    words = []
    if where.queue is not None:
        words.append(f"queue={where.queue!r}")
    if where.tags is not None:
        words.append(f"tags={sorted(where.tags)!r}")
    if where.at is not None:
        words.append(f"at={where.at} within={where.within} s")
    return f" with {', '.join(words)}" if words else ""


def _everything(pushed: Sequence[Collected]) -> list[str]:
    if not pushed:
        return ["nothing was enqueued"]
    return [f"enqueued in all: {len(pushed)}", *_listed(pushed)]


def _listed(pushed: Sequence[Collected | CollectedPush]) -> list[str]:
    lines = [f"  {one}" for one in pushed[:_LISTED]]
    return [*lines, f"  … and {len(pushed) - _LISTED} more"] if len(pushed) > _LISTED else lines


def _short(value: Any) -> str:
    return shorten(repr(value), _VALUE_MOST)
