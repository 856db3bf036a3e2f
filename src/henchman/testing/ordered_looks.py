"""What a test asks of the ordered pushes that were collected, and of what waits under their ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from henchman.app import App
from henchman.errors import ArgumentError
from henchman.kernel.text import shorten
from henchman.ordered.claim import shown
from henchman.ordered.definition import OrderedJob
from henchman.testing.clock import Clock, moment
from henchman.testing.ordered_shelf import Entity, OrderedShelf, Row

__all__ = ["AnyOrdered", "CollectedPush", "OrderedLooks"]

AnyOrdered: TypeAlias = OrderedJob[Any] | str
_LISTED = 20
_VALUE_MOST = 200


class _Anything:
    def __repr__(self) -> str:
        return "…"


_ANY: Any = _Anything()


@dataclass(frozen=True)
class CollectedPush:
    """One push to an ordered queue. ``payload`` as its handler gets it; ``score`` as it was said, None: the time;
    ``at``: when the id is due if nothing waits under it, None: at once.
    """

    name: str
    id: str
    payload: Any
    score: float | None
    at: datetime | None
    queue: str

    def __str__(self) -> str:
        said = f"{self.name}.push({self.id!r}, {shorten(repr(self.payload), _VALUE_MOST)}"
        said += "" if self.score is None else f", score={self.score:g}"
        return f"{said})  queue={self.queue!r}" + ("" if self.at is None else f", at {self.at:%Y-%m-%d %H:%M:%S} UTC")


class OrderedLooks:
    """The ordered half of a fake's questions."""

    clock: Clock
    _app: App
    _shelf: OrderedShelf

    def pushes(self, job: AnyOrdered | None = None) -> list[CollectedPush]:
        """Every push to ordered queues since the block began or was cleared, in order; of one definition if asked."""
        found = [self._push(row) for row in list(self._shelf.pushed)]
        return found if job is None else [one for one in found if one.name == self._defined(job).name]

    def waiting(self, job: AnyOrdered) -> dict[str, list[Any]]:
        """id → payloads that wait, as merged and in the order in which the handler would get them."""
        return self._held(job, self._shelf.waiting)

    def morgue(self, job: AnyOrdered) -> dict[str, list[Any]]:
        """id → payloads that were given up."""
        return self._held(job, self._shelf.morgue)

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
            raise AssertionError(self._told(f"expected {often}", job, id, payload, score, hits))

    def assert_not_pushed(
        self, job: AnyOrdered, id: str | int, payload: Any = _ANY, *, score: float | None = _ANY
    ) -> None:
        """AssertionError when there was such a push; the conditions are those of ``assert_pushed``."""
        __tracebackhide__ = True
        hits = self._hits(job, id, payload, score)
        if hits:
            raise AssertionError(self._told("expected no push", job, id, payload, score, hits))

    def _hits(
        self,
        job: AnyOrdered,
        id: str | int,
        payload: Any,
        score: Any,
        at: datetime | timedelta | None = None,
        within: float | timedelta = 1.0,
    ) -> list[CollectedPush]:
        return [
            one
            for one in self.pushes(job)
            if one.id == str(id)
            and (payload is _ANY or payload == one.payload)
            and (score is _ANY or score == one.score)
            and (at is None or self._is_due(one, at, within))
        ]

    def _is_due(self, one: CollectedPush, at: datetime | timedelta, within: float | timedelta) -> bool:
        due = self.clock.now() + at if isinstance(at, timedelta) else at
        limit = within.total_seconds() if isinstance(within, timedelta) else within
        return one.at is not None and abs(one.at.timestamp() - moment("at", due)) <= limit

    def _told(
        self, head: str, job: AnyOrdered, id: str | int, payload: Any, score: Any, hits: list[CollectedPush]
    ) -> str:
        said = f"{head} of {self._defined(job).name} id={str(id)!r} payload={payload!r:.200} score={score!r}"
        everything = self.pushes()
        lines = [f"{said}; found {len(hits) or 'none'}", f"pushed in all: {len(everything)}"]
        lines += [f"  {one}" for one in everything[:_LISTED]]
        more = len(everything) - _LISTED
        return "\n".join([*lines, f"  … and {more} more"] if more > 0 else lines)

    def _push(self, row: Row) -> CollectedPush:
        definition: Any = self._app.registry.ordered()[row.queue]
        [payload] = definition.decode(shown(row.id), [row.payload])
        at = None if row.at is None else datetime.fromtimestamp(row.at, UTC)
        return CollectedPush(definition.name, shown(row.id), payload, row.score, at, row.queue)

    def _held(self, job: AnyOrdered, where: Mapping[tuple[str, bytes], Entity]) -> dict[str, list[Any]]:
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
