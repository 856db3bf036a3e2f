"""A workflow: a batch of which nothing starts before it is whole, and whose jobs, its steps, wait for each other."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar, Unpack, overload

from henchman.batch import options as batch_options
from henchman.batch import steps
from henchman.batch.batch import Batch, find_batch
from henchman.batch.options import BatchOptions, WorkflowKeywords
from henchman.batch.steps import After, NewStep, StepJob
from henchman.client.job import AnyRows, Pushable, Row
from henchman.client.needs import Policy
from henchman.client.options import Membership
from henchman.client.push import Pushed
from henchman.client.rows import BoundCall
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, BatchClosed, BatchError, DefinitionError
from henchman.kernel.text import as_shown
from henchman.store import batches
from henchman.store.call import Procedure
from henchman.work.steps import Step

__all__ = ["JobChain", "JobGroup", "Workflow", "batch_of_running", "chain", "group", "new_workflow"]

P = ParamSpec("P")
R = TypeVar("R")
_SHOWN: Final = 200  # characters of the description of a chain


class Workflow(Batch):
    """A workflow, as ``app.workflow(…)`` makes it, and as ``current_job().batch`` finds it in a step: a batch with
    steps. Everything of a batch is there too: id, status, cancel, retry, events, results.

    Steps that are added within the block are sent at its end, and nothing of them before: an exception, a step that is
    not there, a ring of steps leave a batch that was aborted, and none of its jobs ever runs. A step that runs adds
    others at once; they may wait for each step that is there already.
    """

    def __init__(
        self, runtime: Runtime, membership: Membership, options: BatchOptions | None = None, adder: str = ""
    ) -> None:
        super().__init__(runtime, membership, options)
        self._adder = adder  # the step that adds to its own workflow
        self._steps: dict[str, Step[Any]] = {}
        self._new: list[NewStep] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<workflow {self.id}>"

    @overload
    def add(
        self,
        job: BoundCall[..., R],
        rows: None = None,
        *,
        name: str | None = None,
        after: After = (),
        results: bool = False,
        on_failed: Policy | None = None,
        on_dead: Policy | None = None,
    ) -> Step[R]: ...
    @overload
    def add(
        self, job: JobChain | JobGroup, rows: None = None, *, after: After = (), results: bool = False
    ) -> list[Step[Any]]: ...
    @overload
    def add(self, job: Pushable[P], rows: Iterable[Row[P]]) -> Pushed: ...
    def add(self, job: Any, rows: Any = None, **said: Any) -> Any:
        """Add a step: ``pay = flow.add(charge.call("17", 990))``, then ``flow.add(ship.call("17"), after=[pay])``.

        ``name``: unique in the workflow, else that of the function. ``after``: the steps, or their names, that must
        have succeeded before it starts. ``results``: it finds what they returned in ``current_job().results``.
        ``on_failed``: what becomes of it when one of them is over without success (failed, cancelled, expired…):
        "cancel" (the default), "run", "fail", "wait"; ``on_dead``: when one has used up its retries; the default is
        to wait, because ``retry`` brings it back, and ``on_failed`` where that is said.

        A chain or a group adds all of its steps, and gives the last ones. With ``rows`` it is ``Batch.add``: one job a
        row, which is no step and waits for none. DefinitionError or ArgumentError names what is wrong.
        """
        if rows is not None:
            return super().add(job, rows)
        new, given = self._note(job, **said)
        if self._adder:
            try:
                self._push(steps.jobs_of(self._runtime, new, self._run(self._look(new))))
            except BaseException:
                self._forget(len(self._steps) - len(new))
                raise
        return given

    @overload
    async def aadd(
        self,
        job: BoundCall[..., R],
        rows: None = None,
        *,
        name: str | None = None,
        after: After = (),
        results: bool = False,
        on_failed: Policy | None = None,
        on_dead: Policy | None = None,
    ) -> Step[R]: ...
    @overload
    async def aadd(
        self, job: JobChain | JobGroup, rows: None = None, *, after: After = (), results: bool = False
    ) -> list[Step[Any]]: ...
    @overload
    async def aadd(self, job: Pushable[P], rows: AnyRows[Row[P]]) -> Pushed: ...
    async def aadd(self, job: Any, rows: Any = None, **said: Any) -> Any:
        """``add``, awaited."""
        if rows is not None:
            return await super().aadd(job, rows)
        new, given = self._note(job, **said)
        if self._adder:
            try:
                await self._apush(steps.jobs_of(self._runtime, new, await self._arun(self._look(new))))
            except BaseException:
                self._forget(len(self._steps) - len(new))
                raise
        return given

    def close(self) -> None:
        """Send the steps and let them start; DefinitionError when one waits for a step that is not there, or for
        itself: then nothing of the workflow ever runs."""
        try:
            self._push(self._whole())
        except BaseException as problem:
            self._run(self._given_up(problem))
            raise
        super().close()

    async def aclose(self) -> None:
        """``close``, awaited."""
        try:
            await self._apush(self._whole())
        except BaseException as problem:
            await self._arun(self._given_up(problem))
            raise
        await super().aclose()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._push(self._whole())
        except BaseException as problem:
            super().__exit__(type(problem), problem, None)
            raise
        super().__exit__(kind, error, trace)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._apush(self._whole())
        except BaseException as problem:
            await super().__aexit__(type(problem), problem, None)
            raise
        await super().__aexit__(kind, error, trace)

    # --- new steps: noted, then sent ----------------------------------------------------------------------------------

    def _note(self, job: Any, **said: Any) -> tuple[list[NewStep], Any]:
        """The new steps, and what ``add`` gives for them; none is noted when one of them is wrong."""
        if self._closed:
            raise BatchClosed(f"workflow {self.id} takes no more steps: it was closed")
        if self._options is not None:
            raise BatchError(f"workflow {self.id} is not open yet: add steps within its block, or call open() first")
        count, new = len(self._steps), list[NewStep]()
        try:
            given = self._links(job, new, **said) if isinstance(job, StepLinks) else self._one(job, new, **said)
        except BaseException:
            self._forget(count)
            raise
        if not self._adder:
            self._new += new
        return new, given

    def _forget(self, count: int) -> None:
        """Keep the first ``count`` steps."""
        while len(self._steps) > count:
            self._steps.popitem()

    def _one(
        self,
        call: Any,
        new: list[NewStep],
        *,
        name: str | None = None,
        after: Any = (),
        results: bool = False,
        on_failed: Any = None,
        on_dead: Any = None,
    ) -> Step[Any]:
        chosen, needs = steps.named(call, name, self._steps, self._adder), steps.needs_of(self.id, after)
        made = steps.new_step(
            self._runtime, self.membership, call, chosen, needs, results=results, on_failed=on_failed, on_dead=on_dead
        )
        self._steps[chosen] = made.step
        new.append(made)
        return made.step

    def _links(
        self, links: StepLinks, new: list[NewStep], *, after: Any = (), results: bool = False
    ) -> list[Step[Any]]:
        """The steps of a chain or a group; the last of them, which others can wait for."""
        last = list[Step[Any]]()
        for link in links.links:
            made = (
                self._links(link, new, after=after, results=results)
                if isinstance(link, StepLinks)
                else [self._one(link, new, after=after, results=results)]
            )
            if isinstance(links, JobChain):
                last, after, results = made, made, True
            else:
                last += made
        return last

    def _whole(self) -> list[StepJob]:
        """The jobs of all steps that were noted; DefinitionError when they could never run."""
        self._closed = not self._adder
        new, self._new = self._new, []
        steps.check_order({one.step.name: one for one in new})
        return steps.jobs_of(self._runtime, new, self._ids())

    def _ids(self) -> dict[str, tuple[str, str]]:
        return {name: (one.jid, one.job) for name, one in self._steps.items()}

    def _look(self, new: Sequence[NewStep]) -> Procedure[dict[str, tuple[str, str]]]:
        """The jid and the job of every step that new ones of a running step wait for; DefinitionError when one is not
        there: it may wait for those that are there already alone, so that no ring can come about."""
        known = self._ids()
        missing = sorted({name for one in new for name in one.after}.difference(known))
        if missing:
            found = yield batches.steps(self._runtime.keys, self.id, missing)
            known |= {name: one for name, one in zip(missing, found, strict=True) if one is not None}
        for one in new:
            steps.check_known(one.step.name, one.after, known.keys() - {one.step.name})
        return known

    def _push(self, jobs: Sequence[StepJob]) -> None:
        if jobs:
            reached = self._runtime.client.through([one.job for one in jobs])
            self._run(steps.pushed(self._runtime, self.membership, jobs, reached))

    async def _apush(self, jobs: Sequence[StepJob]) -> None:
        if jobs:
            reached = await self._runtime.client.athrough([one.job for one in jobs])
            await self._arun(steps.pushed(self._runtime, self.membership, jobs, reached))

    def _given_up(self, problem: BaseException) -> Procedure[None]:
        """Close it as aborted; ``problem``, which is why, goes before an error of that."""
        try:
            yield from self._close("aborted")
        except Exception as error:
            problem.add_note(f"workflow {self.id} could not be closed as aborted: {error!r}")


def new_workflow(runtime: Runtime, description: str, options: WorkflowKeywords) -> Workflow:
    """A workflow that is not open yet; DefinitionError says what is wrong with ``options``."""
    checked = batch_options.checked_workflow(description, options)
    membership = Membership(secrets.token_hex(16), atomic=True, results=True)
    batch_options.callbacks(runtime, checked, membership.id)
    return Workflow(runtime, membership, checked)


def batch_of_running(
    runtime: Runtime, batch: str, member: str, expires: float | None, results: bool, step: str
) -> Batch:
    """The batch of a running job, ``member`` by its jid, as that job sees it; of a ``step`` its workflow."""
    if not step:
        return find_batch(runtime, batch, member, expires, results)
    return Workflow(runtime, Membership(batch, member=member, expires=expires, results=True), adder=step)


# --- chains and groups ------------------------------------------------------------------------------------------------


class StepLinks:
    """Calls in a row or beside each other; what ``chain`` and ``group`` give. ``links``: a call, a chain, a group."""

    _word = ""

    def __init__(self, links: Sequence[Any]) -> None:
        what = self._word
        if not links:
            raise DefinitionError(f"{what}() is empty: give calls, as in {what}(extract.call(17), load.call())")
        for one in links:
            if not isinstance(one, StepLinks) and (not isinstance(one, BoundCall) or one.using is None):
                raise ArgumentError(f"{what}({as_shown(one, 80)}): give job.call(…), a chain or a group")
        self.links = tuple(links)

    def __repr__(self) -> str:
        return f"{self._word}({', '.join(map(_shown, self.links))})"

    def enqueue(self, description: str = "", **options: Unpack[WorkflowKeywords]) -> Workflow:
        """Make a workflow of these steps alone, and let it start; description and options are those of
        ``app.workflow``."""
        with self._workflow(description, options) as flow:
            flow.add(self)  # type: ignore[call-overload]  # a chain or a group, there is nothing else
        return flow

    async def aenqueue(self, description: str = "", **options: Unpack[WorkflowKeywords]) -> Workflow:
        """``enqueue``, awaited."""
        async with self._workflow(description, options) as flow:
            await flow.aadd(self)  # type: ignore[call-overload]  # as above
        return flow

    def _workflow(self, description: str, options: WorkflowKeywords) -> Workflow:
        return new_workflow(self._runtime, description or repr(self)[:_SHOWN], options)

    @property
    def _runtime(self) -> Runtime:
        first = self.links[0]
        runtime: Runtime = first._runtime if isinstance(first, StepLinks) else first.using._client._runtime
        return runtime


class JobChain(StepLinks):
    """Each link starts when the one before has succeeded, and finds what that returned in ``current_job().results``."""

    _word = "chain"


class JobGroup(StepLinks):
    """The links start together; what comes after a group waits for all of them."""

    _word = "group"


Link = BoundCall[..., Any] | JobChain | JobGroup


def chain(*links: Link) -> JobChain:
    """Jobs one after another: ``chain(a.call(1), group(b.call(), c.call()), d.call()).enqueue()``.

    Each starts when the one before has succeeded, and finds what that returned in ``current_job().results``; nothing is
    passed as an argument.
    """
    return JobChain(links)


def group(*links: Link) -> JobGroup:
    """Jobs beside each other, as one link of a chain: what comes after waits until all have succeeded."""
    return JobGroup(links)


def _shown(link: Any) -> str:
    return repr(link) if isinstance(link, StepLinks) else str(link.using.job.name).rpartition(".")[2]
