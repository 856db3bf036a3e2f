"""``app.crons``: the periodic jobs of an app, declared in code or added while workers run; and how they stand.

What it does not do: tick. A worker process does that (``cron_ticker``); without one nothing is enqueued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from henchman.client.handle import Handle
from henchman.client.job import Job, Using
from henchman.client.runtime import Runtime
from henchman.cron.cron import Expression, Timing, read_timing, upcoming
from henchman.cron.definition import Cron, check_name, decoded, define, encoded, ticket, unknown
from henchman.errors import DefinitionError, UnknownCron
from henchman.kernel.middleware import in_thread
from henchman.store import batches
from henchman.store import cron as store
from henchman.store.batches import TrackedPush
from henchman.store.call import Runner
from henchman.store.cron import Running, Skipped
from henchman.store.keys import Keys

__all__ = ["CronState", "Crons", "Past", "states", "switch"]

J = TypeVar("J", bound=Using[Any, Any])

_SHOWN = 5


class Past(NamedTuple):
    """One job that a cron enqueued: for when (Unix time), when, and its id."""

    planned: float
    enqueued: float
    jid: str


class CronState(NamedTuple):
    """How a cron stands. ``expression`` or ``every`` (seconds) is set; ``next`` and ``last`` are up to five, the
    nearest first. ``state``: active, paused, retired (from code, and no worker declares it any more), or unreadable
    with the ``problem``. ``origin``: code or live. With ``overlap`` "skip": the job of a tick that has not ended
    (``running``), and the last tick that was passed over for one; such a job counts for ``overlap_for`` seconds."""

    name: str
    job: str
    queue: str
    expression: str | None
    every: float | None
    tz: str | None
    missed: str
    state: str
    origin: str
    next: list[float]
    last: list[Past]
    problem: str = ""
    overlap: str = "allow"
    overlap_for: float | None = None
    running: Running | None = None
    skipped: Skipped | None = None


def states(runner: Runner, keys: Keys) -> list[CronState]:
    """Every cron on the server, by name."""
    stored = runner.run(store.read(keys))
    names = sorted(stored.definitions)
    pasts = runner.run(store.past(keys, names)) if names else []
    running, skipped = runner.run(store.overlaps(keys))
    return [
        _state(stored, name, [Past(*one) for one in past], running.get(name), skipped.get(name))
        for name, past in zip(names, pasts, strict=True)
    ]


def _state(
    stored: store.Stored, name: str, last: list[Past], running: Running | None, skipped: Skipped | None
) -> CronState:
    declared = stored.declared.get(name)
    origin = "live" if declared is None else "code"
    try:
        cron = decoded(stored.definitions[name])
        timing = read_timing(cron.timing)
    except (msgspec.MsgspecError, DefinitionError) as error:
        return CronState(name, "", "", None, None, None, "", "unreadable", origin, [], last, str(error))
    state = "active"
    if name in stored.paused:
        state = "paused"
    elif declared is not None and declared <= stored.now - store.FRESH:
        state = "retired"
    ahead = _ahead(timing, stored.last.get(name, stored.now), stored.now) if state == "active" else []
    fields, every, tz = None, None, None
    if isinstance(timing, Expression):
        fields, tz = timing.fields, timing.tz
    else:
        every = timing.seconds
    shown = CronState(name, cron.name, cron.queue, fields, every, tz, cron.missed, state, origin, ahead, last)
    if not cron.overlap_for:
        return shown
    if running is not None and stored.now - running.since >= cron.overlap_for:
        running = None  # it counts no more
    return shown._replace(overlap="skip", overlap_for=cron.overlap_for, running=running, skipped=skipped)


def _ahead(timing: Timing, last: float, now: float) -> list[float]:
    return upcoming(timing, max(last, now), _SHOWN)


def switch(runner: Runner, keys: Keys, name: str, verb: Literal["pause", "resume"]) -> bool:
    """Pause a cron or let it go on; False: it was so already. UnknownCron when there is none of this name."""
    done = runner.run(store.switch(keys, name, verb))
    if done < 0:
        raise UnknownCron(unknown(name, list(runner.run(store.read(keys)).definitions)))
    return done == 1


class Crons:
    """The crons of an app. Each method that talks to the server has an ``a…`` form that is awaited."""

    def __init__(self, home: Runtime) -> None:
        self._home = home
        self._declared: dict[str, tuple[Cron, Job[Any, Any]]] = {}

    @property
    def declared(self) -> dict[str, Cron]:
        """Those that the code of this app declares, by name."""
        return {name: cron for name, (cron, _) in self._declared.items()}

    def declare(
        self,
        expression: str | None,
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
        """The decorator ``@app.cron``; see there."""

        def decorate(job: J) -> J:
            if not isinstance(job, Job):
                shown = getattr(job, "__qualname__", repr(job))
                raise DefinitionError(f"@app.cron is for a job: put it above @app.job, not below ({shown})")
            cron = define(
                self._home,
                job,
                expression,
                every=every,
                tz=tz,
                missed=missed,
                overlap=overlap,
                overlap_for=overlap_for,
                args=args,
                kwargs=kwargs,
            )
            self._note(check_name(job.name if name is None else name), cron, job)
            return job

        return decorate

    def _note(self, name: str, cron: Cron, job: Job[Any, Any]) -> None:
        present = self._declared.get(name)
        if present is not None and (present[1] is job or present[1].name != job.name):  # else its module was reloaded
            raise DefinitionError(f"two crons are called {name!r}, of {present[1].name} and {job.name}: give one name=")
        self._declared[name] = (cron, job)

    def add(
        self,
        name: str,
        job: Using[Any, Any] | str,
        expression: str | None = None,
        *,
        every: float | timedelta | None = None,
        tz: str | None = None,
        missed: str = "latest",
        overlap: str = "allow",
        overlap_for: float | timedelta | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
    ) -> None:
        """Add a cron while workers run, or change the one of this name; they know within a second.

        ``job`` is one of this app's, also with options (``job.using(queue="low")``), or a name. The rest is as in
        ``@app.cron``. DefinitionError when a worker declares a cron of this name in code.
        """
        cron = define(
            self._home,
            job,
            expression,
            every=every,
            tz=tz,
            missed=missed,
            overlap=overlap,
            overlap_for=overlap_for,
            args=args,
            kwargs=kwargs,
            queue=queue,
        )
        [status] = self._run(store.put(self._home.keys, "live", [(check_name(name), encoded(cron))]))
        if status < 0:
            raise DefinitionError(f"the cron {name!r} is declared in code; change it there, or take another name")

    def remove(self, name: str) -> bool:
        """Forget a cron; False: there was none. DefinitionError when a worker declares it in code: it would return."""
        status = self._run(store.remove(self._home.keys, name))
        if status < 0:
            raise DefinitionError(f"the cron {name!r} is declared in code; remove it there, or pause it")
        return bool(status)

    def pause(self, name: str) -> bool:
        """Enqueue nothing for this cron until ``resume``; False: it was paused. UnknownCron: there is none."""
        return switch(self._home.connections, self._home.keys, name, "pause")

    def resume(self, name: str) -> bool:
        """Let a cron go on from now; what was planned meanwhile is left out. False: it was not paused."""
        return switch(self._home.connections, self._home.keys, name, "resume")

    def run(self, name: str) -> Handle[Any]:
        """Enqueue the job of a cron now, beside its planned times, also while it is paused."""
        home = self._home
        stored = self._run(store.read(home.keys))
        text = stored.definitions.get(name)
        if text is None:
            raise UnknownCron(unknown(name, list(stored.definitions)))
        one = ticket(home, name, decoded(text), stored.now, stored.now)
        if one.detail:
            row, keep = TrackedPush(one.jid, "", one.payload, one.detail), home.config.history_kept()
            self._run(batches.push(home.keys, "", one.queue, [row], keep=keep))
        if one.payload:
            self._run(store.run(home.keys, one))
        return Handle(one.jid, one.queue, "created" if one.payload else "stopped", home)

    def list(self) -> list[CronState]:
        """Every cron on the server with its next and last five times, by name."""
        return states(self._home.connections, self._home.keys)

    def _run(self, call: Any) -> Any:
        return self._home.connections.run(call)

    async def aadd(self, name: str, job: Using[Any, Any] | str, expression: str | None = None, **options: Any) -> None:
        """``add``, awaited."""
        await in_thread(self.add, name, job, expression, **options)

    async def aremove(self, name: str) -> bool:
        """``remove``, awaited."""
        return bool(await in_thread(self.remove, name))

    async def apause(self, name: str) -> bool:
        """``pause``, awaited."""
        return bool(await in_thread(self.pause, name))

    async def aresume(self, name: str) -> bool:
        """``resume``, awaited."""
        return bool(await in_thread(self.resume, name))

    async def arun(self, name: str) -> Handle[Any]:
        """``run``, awaited."""
        handle: Handle[Any] = await in_thread(self.run, name)
        return handle

    async def alist(self) -> Sequence[CronState]:
        """``list``, awaited."""
        found: Sequence[CronState] = await in_thread(self.list)
        return found
