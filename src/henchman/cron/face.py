"""What an app offers for periodic jobs. Nothing behind it is loaded until an app uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from henchman.client.job import Job

__all__ = ["Periodic"]

J = TypeVar("J", bound=Job[Any, Any])


class Periodic:
    """The half of ``App`` for periodic jobs."""

    open_door: Callable[[str], Any]
    _crons: Any = None

    def cron(
        self,
        expression: str | None = None,
        *,
        every: float | timedelta | None = None,
        tz: str | None = None,
        name: str | None = None,
        missed: str = "latest",
        overlap: str = "allow",
        overlap_for: float | timedelta | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Callable[[J], J]:
        """Enqueue a job by the clock: ``@app.cron("0 9 * * 1-5", tz="Europe/Paris")`` above ``@app.job``.

        ``expression``: five fields, or six with seconds first, in the time zone ``tz`` (UTC); or ``every`` seconds.
        ``name``: the job's when it has one cron, needed for the second. ``missed``: of the ticks that came while no
        worker ran, enqueue the ``"latest"``, ``"all"`` (at most 1,000) or none (``"skip"``). ``overlap="skip"``: a tick
        is passed over while the job of an earlier one has not ended, unless that was enqueued more than ``overlap_for``
        seconds ago (a day). ``args`` and ``kwargs`` are those of each job. DefinitionError or ArgumentError says what
        is wrong.
        """
        decorator: Callable[[J], J] = self.crons.declare(
            expression,
            every=every,
            tz=tz,
            name=name,
            missed=missed,
            overlap=overlap,
            overlap_for=overlap_for,
            args=args,
            kwargs=kwargs,
        )
        return decorator

    @property
    def crons(self) -> Any:
        """The periodic jobs, to be seen and changed while workers run; see ``henchman.cron.registry.CronRegistry``."""
        return self._crons or self.__dict__.setdefault("_crons", self.open_door("crons")(self))
