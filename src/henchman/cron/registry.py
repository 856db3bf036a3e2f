"""``app.crons``: the periodic jobs of an app, declared in code or added while workers run; and how they stand.

The registry does not tick. A worker process does (``cron/ticker.py``); without one nothing is enqueued.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from henchman.client.admission import read_answer
from henchman.client.job import Job, Using
from henchman.client.push import Handle, handle_of
from henchman.client.runtime import Runtime
from henchman.cron.definition import Cron, build_tick, check_name, decoded, define, encoded
from henchman.cron.timing import Expression, in_words, read_timing, upcoming
from henchman.errors import DefinitionError, UnknownCron
from henchman.kernel.middleware import in_thread
from henchman.kernel.text import as_shown, did_you_mean
from henchman.store import admission, batches
from henchman.store import cron as store
from henchman.store.admission import KeyedPush
from henchman.store.batches import TrackedPush
from henchman.store.call import Procedure, arun, ask, run, side_by_side
from henchman.store.cron import Past, RunningTick, Skipped
from henchman.store.keys import Keys
from henchman.store.pauses import beginning
from henchman.store.queues import Pause
from henchman.wire.payload import new_jid

__all__ = ["CronRegistry", "CronState", "MissedTick", "Past", "missed_ticks", "one_state", "set_paused", "states"]

J = TypeVar("J", bound=Using[Any, Any])

_SHOWN = 5


class CronState(NamedTuple):
    """How a cron stands. ``expression`` or ``every`` (seconds) is set; ``next`` and ``last`` are up to five each, the
    nearest first (of one cron alone: ten and 50). ``state``: active, paused, retired (from code, and no worker declares
    it any more), or unreadable with the ``problem``. ``origin``: code or live. With ``overlap`` "skip": the job of a
    tick that has not ended (``running``), and the last tick that was passed over for one; such a job counts for
    ``overlap_for`` seconds. ``pause``: of one that is paused since when, by whom and why, as far as that is known."""

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
    running: RunningTick | None = None
    skipped: Skipped | None = None
    pause: Pause | None = None

    @property
    def words(self) -> str:
        """When it runs, in plain English."""
        return in_words(self.expression, self.every)

    def endings(self) -> dict[str, int]:
        """How many of the last ended how, the most frequent first; empty: it has not, or nobody told."""
        return dict(Counter(one.ending for one in self.last).most_common())


def states(keys: Keys) -> Procedure[list[CronState]]:
    """Every cron on the server, by name."""
    return (yield from some_states(keys, 0, None))[0]


def some_states(keys: Keys, first: int, most: int | None) -> Procedure[tuple[list[CronState], int]]:
    """The crons by name from place ``first`` on, at most ``most`` (None: all), and how many there are: two round
    trips."""
    stored, (running, skipped) = yield from side_by_side(ask(store.read(keys)), ask(store.overlaps(keys)))
    names = sorted(stored.definitions)[first : None if most is None else first + most]
    pasts = (yield store.past(keys, names, _SHOWN)) if names else []
    states = [
        _state(stored, name, past, running.get(name), skipped.get(name))
        for name, past in zip(names, pasts, strict=True)
    ]
    return states, len(stored.definitions)


def one_state(keys: Keys, name: str, ahead: int) -> Procedure[CronState]:
    """One cron, with ``ahead`` of its next times and all that is kept of its last ones: two round trips. UnknownCron
    when there is none of this name."""
    stored, (running, skipped) = yield from side_by_side(ask(store.read(keys)), ask(store.overlaps(keys)))
    if name not in stored.definitions:
        raise _unknown(name, stored)
    [past] = yield store.past(keys, [name], store.KEPT)
    return _state(stored, name, past, running.get(name), skipped.get(name), ahead)


def _state(
    stored: store.Stored,
    name: str,
    last: list[Past],
    running: RunningTick | None,
    skipped: Skipped | None,
    shown: int = _SHOWN,
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
    ahead = upcoming(timing, max(stored.last.get(name, stored.now), stored.now), shown) if state == "active" else []
    fields, every, tz = (timing.fields, None, timing.tz) if isinstance(timing, Expression) else (None, timing[0], None)
    found = CronState(name, cron.name, cron.queue, fields, every, tz, cron.missed, state, origin, ahead, last)
    found = found._replace(pause=stored.pauses.get(name))
    if not cron.overlap_for:
        return found
    if running is not None and stored.now - running.since >= cron.overlap_for:
        running = None  # it counts no more
    return found._replace(overlap="skip", overlap_for=cron.overlap_for, running=running, skipped=skipped)


class MissedTick(NamedTuple):
    """A planned time (Unix seconds) of a cron that has passed, and nothing was enqueued for it."""

    name: str
    planned: float


def missed_ticks(keys: Keys, late: float) -> Procedure[list[MissedTick]]:
    """The crons whose next tick is more than ``late`` seconds overdue, the longest first; neither paused ones nor those
    that no worker declares any more while others do declare theirs."""
    stored: store.Stored = yield store.read(keys)
    fresh = any(at > stored.now - store.FRESH for at in stored.declared.values())
    found = []
    for name, text in stored.definitions.items():
        last, declared = stored.last.get(name), stored.declared.get(name)
        retired = fresh and declared is not None and declared <= stored.now - store.FRESH
        planned = None if last is None or retired or name in stored.paused else _next(text, last)
        if planned is not None and planned < stored.now - late:
            found.append(MissedTick(name, planned))
    return sorted(found, key=lambda one: one.planned)


@lru_cache(4096)
def _next(definition: bytes, last: float) -> float | None:
    """The first planned time after ``last``; None: there is none, or the definition cannot be read."""
    try:
        return next(iter(upcoming(read_timing(decoded(definition).timing), last, 1)), None)
    except (msgspec.MsgspecError, DefinitionError):
        return None


def set_paused(
    keys: Keys, name: str, verb: Literal["pause", "resume"], reason: str = "", by: str = ""
) -> Procedure[bool]:
    """Pause a cron or let it go on; False: it was so already. UnknownCron when there is none of this name;
    ArgumentError when the reason is longer than 200 characters."""
    why = (yield from beginning(reason, by)) if verb == "pause" else None
    done: int = yield store.pause_or_resume(keys, name, verb, why)
    if done < 0:
        raise _unknown(name, (yield store.read(keys)))
    return done == 1


def _unknown(name: str, stored: store.Stored) -> UnknownCron:
    near = did_you_mean(name, list(stored.definitions))
    return UnknownCron(
        f"there is no cron {name!r}{near} (one from code is there once a worker that declares it has started)"
    )


class CronRegistry:
    """The crons of an app. Each method that talks to the server also exists awaited, with an ``a`` before its name."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
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
        missed: Literal["latest", "all", "skip"] = "latest",
        overlap: Literal["allow", "skip"] = "allow",
        overlap_for: float | timedelta | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Callable[[J], J]:
        """The decorator ``@app.cron``; see there."""

        def decorate(job: J) -> J:
            if not isinstance(job, Job):
                shown = getattr(job, "__qualname__", None) or as_shown(job, 200)
                raise DefinitionError(f"@app.cron is for a job: put it above @app.job, not below ({shown})")
            when = (expression, every, tz)
            cron = define(self._runtime, job, when, missed, (overlap, overlap_for), args, kwargs)
            own = check_name(job.name if name is None else name)
            present = self._declared.get(own)
            if present is not None and (present[1] is job or present[1].name != job.name):  # else a reloaded module
                other = present[1].name
                raise DefinitionError(f"two crons are called {own!r}, of {other} and {job.name}: give one name=")
            self._declared[own] = (cron, job)
            return job

        return decorate

    def add(
        self,
        name: str,
        job: Using[..., Any] | str,
        expression: str | None = None,
        *,
        every: float | timedelta | None = None,
        tz: str | None = None,
        missed: Literal["latest", "all", "skip"] = "latest",
        overlap: Literal["allow", "skip"] = "allow",
        overlap_for: float | timedelta | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
    ) -> None:
        """Add a cron while workers run, or change the one of this name; they know within a second.

        ``job`` is one of this app's, also with options (``job.using(queue="low")``), or a name. The rest is as in
        ``@app.cron``. DefinitionError when a worker declares a cron of this name in code.
        """
        when = (expression, every, tz)
        cron = define(self._runtime, job, when, missed, (overlap, overlap_for), args, kwargs, queue)
        call = store.put(self._runtime.keys, "live", [(check_name(name), encoded(cron))])
        [status] = self._runtime.connections.run(call)
        if status < 0:
            raise DefinitionError(f"the cron {name!r} is declared in code; change it there, or take another name")

    async def aadd(
        self,
        name: str,
        job: Using[..., Any] | str,
        expression: str | None = None,
        *,
        every: float | timedelta | None = None,
        tz: str | None = None,
        missed: Literal["latest", "all", "skip"] = "latest",
        overlap: Literal["allow", "skip"] = "allow",
        overlap_for: float | timedelta | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
    ) -> None:
        """``add``, awaited."""
        rest = {"args": args, "kwargs": kwargs, "queue": queue}
        how = {"every": every, "tz": tz, "missed": missed, "overlap": overlap, "overlap_for": overlap_for, **rest}
        await in_thread(self.add, name, job, expression, **how)

    def remove(self, name: str) -> bool:
        """Forget a cron; False: there was none. DefinitionError when a worker declares it in code: it would return."""
        return run(self._runtime.connections, self._remove(name))

    async def aremove(self, name: str) -> bool:
        """``remove``, awaited."""
        return await arun(self._runtime.aconnections, self._remove(name))

    def _remove(self, name: str) -> Procedure[bool]:
        status = yield store.remove(self._runtime.keys, name)
        if status < 0:
            raise DefinitionError(f"the cron {name!r} is declared in code; remove it there, or pause it")
        return bool(status)

    def pause(self, name: str, reason: str = "", *, by: str = "") -> bool:
        """Enqueue nothing for this cron until ``resume``; False: it was paused. UnknownCron: there is none. ``reason``
        (up to 200 characters) and ``by`` are shown to whoever asks; the newest stand."""
        return run(self._runtime.connections, set_paused(self._runtime.keys, name, "pause", reason, by))

    async def apause(self, name: str, reason: str = "", *, by: str = "") -> bool:
        """``pause``, awaited."""
        return await arun(self._runtime.aconnections, set_paused(self._runtime.keys, name, "pause", reason, by))

    def resume(self, name: str) -> bool:
        """Let a cron go on from now; what was planned meanwhile is left out. False: it was not paused."""
        return run(self._runtime.connections, set_paused(self._runtime.keys, name, "resume"))

    async def aresume(self, name: str) -> bool:
        """``resume``, awaited."""
        return await arun(self._runtime.aconnections, set_paused(self._runtime.keys, name, "resume"))

    def run(self, name: str) -> Handle[Any]:
        """Enqueue the job of a cron now, beside its planned times, also while it is paused."""
        runtime, send = self._runtime, self._runtime.connections.run
        stored = send(store.read(runtime.keys))
        text = stored.definitions.get(name)
        if text is None:
            raise _unknown(name, stored)
        tick = build_tick(runtime, name, decoded(text), stored.now, stored.now)
        if tick.ask and tick.payload:
            return self._run_keyed(tick)
        if tick.detail:
            row, keep = TrackedPush(tick.jid, "", tick.payload, tick.detail), runtime.config.history_kept()
            send(batches.push(runtime.keys, "", tick.queue, [row], keep=keep))
            send(store.note_run(runtime.keys, tick))
        elif tick.payload:
            send(store.run(runtime.keys, tick))
        return Handle(tick.jid, tick.queue, "created" if tick.payload else "stopped", runtime)

    def _run_keyed(self, tick: store.Tick) -> Handle[Any]:
        """``run`` for a job with a key, which may be another's."""
        runtime, lane = self._runtime, (new_jid(), 1)
        row, keep = TrackedPush(tick.jid, "", tick.payload, tick.detail, tick.ask), runtime.config.history_kept()
        asked = msgspec.json.decode(tick.ask)
        job = KeyedPush(tick.jid, "", tick.payload, asked["mark"], asked["key"])
        tracked = batches.push_keyed(runtime.keys, "", tick.queue, [row], lane=lane, keep=keep)
        plain = admission.push(runtime.keys, tick.queue, tick.ask, [job], lane)
        [answer] = runtime.connections.run(tracked if tick.detail else plain)
        found = read_answer(answer, tick.jid, tick.queue)
        if found.admission != "duplicate":
            runtime.connections.run(store.note_run(runtime.keys, tick))
        return handle_of(found, runtime)

    async def arun(self, name: str) -> Handle[Any]:
        """``run``, awaited; in a thread, for client middleware that blocks."""
        handle: Handle[Any] = await in_thread(self.run, name)
        return handle

    def list(self) -> list[CronState]:
        """Every cron on the server with its next and last five times, by name."""
        return run(self._runtime.connections, states(self._runtime.keys))

    async def alist(self) -> Sequence[CronState]:
        """``list``, awaited."""
        return await arun(self._runtime.aconnections, states(self._runtime.keys))
