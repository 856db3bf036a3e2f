"""Context that travels with a job: context variables → payload → worker, as Sidekiq's CurrentAttributes do in Ruby.

A value is taken where the job is pushed and set while it runs; a job that is pushed by a job carries it on. What was
once stored is never overwritten: a retry, or a scheduled job that becomes due, runs with the context of its push.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from henchman.errors import ArgumentError, DefinitionError
from henchman.kernel.text import as_shown
from henchman.wire import payload
from henchman.work.current import CurrentJob

__all__ = ["ContextPusher", "ContextSetter", "keep_stored"]

FIELD = "context"


class ContextPusher:
    """The client's half: a link of the client middleware that writes the variables' values into ``hm.context``."""

    def __init__(self, variables: Sequence[ContextVar[Any]]) -> None:
        self._variables = variables

    def __call__(self, job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        """Write what is set here and now, unless the job carries a context already."""
        self._write(job)
        return call_next()

    async def awaited(self, job: dict[str, Any], call_next: Callable[[], Awaitable[Any]]) -> Any:
        """The same under ``aenqueue``: in the caller's own task, where its variables are."""
        self._write(job)
        return await call_next()

    def _write(self, job: dict[str, Any]) -> None:
        ours = job.get("hm")
        ours = dict(ours) if isinstance(ours, dict) else {}
        if FIELD in ours:
            return
        values = {}
        for variable in self._variables:
            value = variable.get(None)
            if value is not None:
                values[variable.name] = value
        if values:
            try:
                payload.encode(values)
            except ArgumentError as error:
                raise ArgumentError(f"a carried context variable cannot be sent: {error}") from None
            job["hm"] = ours | {FIELD: values}


def keep_stored(job: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """``job`` as a link of the client middleware left it, with the id and the ``hm`` that ``before`` has: a link may
    add to ``hm``, but the job's key, batch or cron waits for what stands there."""
    ours, known = job.get("hm"), before.get("hm")
    if isinstance(known, dict):
        job["hm"] = {**(ours if isinstance(ours, dict) else {}), **known}
        job |= {"jid": before["jid"]} if "jid" in before else {}
    return job


class ContextSetter:
    """The worker's half: a link of the server middleware that sets the variables for the length of a run."""

    def __init__(self, variables: Sequence[ContextVar[Any]]) -> None:
        for variable in variables:
            if not isinstance(variable, ContextVar):
                raise DefinitionError(
                    f"carry({as_shown(variable, 200)}): give context variables, as in ContextVar('tenant_id')"
                )
        names = [variable.name for variable in variables]
        if len(set(names)) < len(names) or not names:
            raise DefinitionError(f"carry({', '.join(names)}): give context variables, each of a name of its own")
        self._by_name = {variable.name: variable for variable in variables}

    def __call__(self, run: CurrentJob, call_next: Callable[[], Any]) -> Any:
        """Set, run, reset."""
        with self._set(run):
            return call_next()

    async def awaited(self, run: CurrentJob, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """The same around an async job, in its own task."""
        with self._set(run):
            return await call_next()

    @contextmanager
    def _set(self, run: CurrentJob) -> Iterator[None]:
        ours = run.payload.get("hm")
        values = ours.get(FIELD) if isinstance(ours, dict) else None
        known = values if isinstance(values, dict) else {}
        tokens = [
            (self._by_name[name], self._by_name[name].set(known[name])) for name in known if name in self._by_name
        ]
        try:
            yield
        finally:
            for variable, token in reversed(tokens):
                variable.reset(token)
