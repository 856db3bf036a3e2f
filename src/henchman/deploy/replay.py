"""One job, run once more in this process: nothing of that run is settled, counted or recorded.

The server middleware runs around it, and the startup and shutdown hooks before and after, for a job may need what they
prepare. Time-outs, retries, error and death handlers, locks of keys, metrics and history do not take part.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from henchman.client.registry import Definition, Registry
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, Discard, Failure, JobEnd, Kill, Snooze
from henchman.kernel.events import Events
from henchman.wire.payload import encode
from henchman.wire.secret import ENCRYPTED, MASK
from henchman.work.current import running
from henchman.work.steps import step_of
from henchman.work.unit import InFlightList, Unit
from henchman.worker.run import CompiledJob, Run
from henchman.worker.step_run import StepRun

__all__ = ["Replayed", "Rerun", "prepared", "recorded_job"]


class Replayed(NamedTuple):
    """How a replay ended: what it returned or raised, after how many seconds, and what a worker would make of that."""

    result: Any
    error: BaseException | None
    seconds: float
    meaning: str


class _Apart:
    """What makes a run one that leaves no trace on the server."""

    __slots__ = ()

    @property
    def batch(self) -> Any:
        """None: what it pushes belongs to no batch."""
        return None

    def checkpoint(self: Any, state: Any) -> None:
        """Say it, and keep nothing."""
        self.log(f"checkpoint (not kept): {state!r:.200}")

    def progress(self: Any, done: float, total: float | None = None) -> None:
        """Say it, and keep nothing."""
        self.log(f"progress: {done:g}" + ("" if total is None else f" of {total:g}"))


class _Run(_Apart, Run):
    pass


class _StepRun(_Apart, StepRun):
    pass


class Rerun(NamedTuple):
    """A job that is ready to run here."""

    runtime: Runtime
    run: Run

    def start(self, look: Callable[[BaseException], None] = lambda error: None) -> Replayed:
        """Run it; ``look`` is called with what it raises, as soon as that comes."""
        hooks = self.runtime.hooks
        hooks.startup()
        try:
            return self._timed(look)
        finally:
            hooks.shutdown(5.0)

    def _timed(self, look: Callable[[BaseException], None]) -> Replayed:
        run, result, problem = self.run, None, None
        run.started = time.monotonic()
        token = running.set(run)
        try:
            result = asyncio.run(self._awaited()) if run.compiled.is_async else run.compiled.call(run)
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            problem = error
        finally:
            running.reset(token)
        seconds = run.elapsed
        if problem is not None:
            look(problem)
        return Replayed(result, problem, seconds, _meaning(problem))

    async def _awaited(self) -> Any:
        try:
            return await self.run.compiled.call(self.run)
        finally:
            await self.runtime.aconnections.close()


def prepared(runtime: Runtime, stored: bytes, job: dict[str, Any], tell: Callable[[str], None]) -> Rerun:
    """The run of a stored job. ``tell`` gets what it says by ``log`` and ``progress``.

    UnknownJob and ArgumentError say why it cannot run here.
    """
    definition = runtime.registry.get(job["class"])
    _refuse(definition)
    args, kwargs = definition.signature.decode(job["args"], job.get("kwargs"))
    events = Events()
    events.on("job_log", lambda run, message: tell(message))
    compiled = CompiledJob(definition, runtime.server_middleware, events, runtime=runtime)
    queue = job.get("queue")
    queue = queue if isinstance(queue, str) else "default"
    unit = Unit(stored, InFlightList(queue, runtime.keys.queue(queue), "", "replay", 0), time.monotonic())
    kind = _StepRun if step_of(job) else _Run
    return Rerun(runtime, kind.of(unit, job, compiled, args, kwargs))


def _refuse(definition: Definition) -> None:
    name = definition.name
    if getattr(definition, "queues", ()):
        raise ArgumentError(
            f"{name} has an ordered queue: what runs there is a claim of ids with all their payloads, not one job; "
            "call its function with such a claim, {id: [payload, …]}"
        )
    if definition.options.iterable:
        raise ArgumentError(
            f"{name} is iterable: where it stands is kept on the server, and a replay would begin at the first item; "
            "call it here and now, or let it go on: henchman dead retry JID"
        )


def recorded_job(
    registry: Registry, jid: str, name: str, queue: str, args: Any, kwargs: Any
) -> tuple[bytes, dict[str, Any]]:
    """A stored job made of what history knows; ArgumentError when its arguments are not all there."""
    if not isinstance(args, list) or not isinstance(kwargs or {}, Mapping):
        what = "nothing of its arguments" if args is None else f"its arguments only as {args!r:.80}"
        raise ArgumentError(f"history has {what}: {jid} cannot be replayed; henchman enqueue runs {name} with others")
    hidden = sorted(set(_hidden(registry.get(name), args, kwargs or {})))
    if hidden:
        raise ArgumentError(
            f"history has {', '.join(hidden)} of {name} only masked, for {'they are' if len(hidden) > 1 else 'it is'} "
            f"secret: {jid} cannot be replayed from it; a dead job can, its payload has them"
        )
    job = {"class": name, "args": args, "kwargs": dict(kwargs or {}), "jid": jid, "queue": queue}
    return encode(job), job


def _hidden(definition: Definition, args: list[Any], kwargs: Mapping[str, Any]) -> Iterator[str]:
    signature = definition.signature
    masked, named = signature.mask([None] * len(args), dict.fromkeys(kwargs))
    places = signature.binding.positional
    for index, (value, mask) in enumerate(zip(args, masked, strict=True)):
        if mask is not None and value in (MASK, ENCRYPTED):
            yield places[index] if index < len(places) else signature.binding.tail or "*args"
    yield from (name for name, mask in (named or {}).items() if mask is not None and kwargs[name] in (MASK, ENCRYPTED))


def _meaning(error: BaseException | None) -> str:
    """What a worker would make of it."""
    match error:
        case None:
            return "it ends well"
        case Failure():
            return "a business failure: it is not tried again"
        case Snooze():
            return "it runs again later, and no attempt is spent"
        case Discard():
            return "it is forgotten"
        case Kill():
            return "it goes to the dead set"
        case JobEnd():
            return "it ends"
        case _:
            return "an error: it is retried, as its options say"
