"""Runs of steps of a workflow: what other steps returned is there before the middleware and the job begin."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

from henchman.errors import ServerAway, Snooze
from henchman.kernel.middleware import in_thread
from henchman.store.call import Procedure, run
from henchman.work.effects import keeps_result
from henchman.work.steps import NO_RESULTS, StepResults, step_of, taken, taken_by
from henchman.work.unit import Unit
from henchman.worker.run import CompiledJob, Run

__all__ = ["StepRun"]

LATER = 1.0  # seconds until a step is tried again whose results cannot be read


class StepRun(Run):
    """A run of a step. It adds steps to its own workflow, and takes the results of others where its job says so."""

    known: StepResults = NO_RESULTS
    workflow: Any = None

    @classmethod
    def of(
        cls, unit: Unit, job: dict[str, Any], compiled: CompiledJob, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Self:
        """The run of ``unit``, of a job that takes results or does not."""
        takes = taken_by(job) and not compiled.isolated
        return super().of(unit, job, _taking(compiled) if takes else compiled, args, kwargs)

    @property
    def results(self) -> StepResults:
        """What the steps returned whose results it takes."""
        return self.known

    @property
    def batch(self) -> Any:
        """The workflow, always the same object: it knows the names of the steps that this run added."""
        if self.workflow is None and self.batch_id:
            expires, stored = self.batch_expires, self.unit.job
            keeps, step = keeps_result(stored), step_of(stored)
            self.workflow = self.compiled.open_batch(self.batch_id, self.jid, expires, keeps, step)
        return self.workflow

    def take(self) -> None:
        """Load the results; Snooze when the server is away: that costs the job no attempt."""
        try:
            self.known = run(self.compiled.runtime.connections, self._taken())
        except ServerAway as error:
            raise Snooze(LATER, f"the results that it takes cannot be read: {error}") from error

    async def atake(self) -> None:
        """``take``, awaited."""
        await in_thread(self.take)

    def _taken(self) -> Procedure[StepResults]:
        runtime = self.compiled.runtime

        def function_of(name: str) -> Any:
            known = runtime.registry.find(name)
            return None if known is None else known.function

        return taken(runtime.keys, self.batch_id, taken_by(self.unit.job), function_of)


def _taking(compiled: CompiledJob) -> CompiledJob:
    """The same job, for runs that first take results of other steps."""
    if compiled.taking is None:
        made, call = copy.copy(compiled), compiled.call

        def take_and_call(run: StepRun) -> Any:
            run.take()
            return call(run)

        async def atake_and_call(run: StepRun) -> Any:
            await run.atake()
            return await call(run)

        made.call = atake_and_call if compiled.is_async else take_and_call
        compiled.taking = made
    return compiled.taking
