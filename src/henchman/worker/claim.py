"""The start of jobs with a key or limits: one call for all that were fetched together asks whether they may start.

A job whose key another one runs with is parked, and comes back into its queue when that one ends; so is one for which a
limit has no place; one that is over a rate comes back at the time that it is given. Jobs with neither ask nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import NamedTuple

from henchman.client.runtime import Runtime
from henchman.errors import HenchmanError, LimitReached, PayloadError, PoisonPill, ServerAway
from henchman.kernel.text import described
from henchman.store import jobs, limits, pauses
from henchman.store.locks import ClaimAnswer, Claimant, Drawn, claim
from henchman.wire import times
from henchman.wire.payload import decode, encode
from henchman.work.effects import EndingFacts, encoded
from henchman.work.limits import TIME, limits_asked, limits_of, limits_text, max_wait, places_end, without_time
from henchman.work.locks import JobKey, is_exclusive, key_of
from henchman.work.outcome import Outcome
from henchman.work.unit import InFlightList, Unit
from henchman.worker.acker import Acker
from henchman.worker.retry import RetryPolicy
from henchman.worker.run import Run
from henchman.worker.session import LeaseSession
from henchman.worker.watcher import Cancels

__all__ = ["Claims", "Room", "Start", "declare_limits"]

IGNORED = "it ignored its time-out"  # the cause of a death that a job with a key is charged with
MOST_IGNORED = 3  # of such deaths; then it is dead, as after three crashes
SHORT = 0.01  # seconds that a job takes: then others wait for its places here
REFUSED = 30.0  # seconds until a job is tried again whose key the server refused


class Start(NamedTuple):
    """What a unit was given at its start. ``payload``: its own, with the newest arguments; ``records``: of a claim.
    ``limits``: those of a job that needs places alone; ``ends``: how its plain end says so."""

    token: int
    payload: bytes
    records: list[str]
    limits: str = ""
    ends: bytes = b""


class Room(NamedTuple):
    """Where ``most`` runs may wait for places of limits: who keeps them, and reads what comes for that from a line."""

    keep: Callable[[Sequence[Run]], Sequence[Run]]
    most: int
    read: Callable[[Sequence[Unit]], list[Run]]


class _Asking(NamedTuple):
    """A run that asks for its start: its key, its limits as the server is told of them, how its plain end begins."""

    run: Run
    key: JobKey
    limits: str
    ends: bytes

    @property
    def places(self) -> str:
        """Its limits, where it needs places alone."""
        return self.limits if self.ends else ""


class Claims:
    """One a process; fetchers and the watcher call it. ``read(unit)`` makes the run of a unit anew."""

    def __init__(
        self,
        runtime: Runtime,
        session: LeaseSession,
        acker: Acker,
        policy: RetryPolicy,
        read: Callable[[Unit], Run | Outcome],
        cancels: Cancels,
    ) -> None:
        self._runtime = runtime
        self._session = session
        self._acker = acker
        self._policy = policy
        self._read = read
        self._cancels = cancels

    def claimed(self, runs: Sequence[Run], room: Room | None = None) -> list[Run]:
        """Those of ``runs`` that may start now, in their order. The others wait for their key, or have ended; some wait
        here, as far as there is ``room``, for the places of jobs that run here."""
        asking = [one for run in runs if "hm" in run.unit.job and (one := self._asked(run)) is not None]
        if not asking:
            return list(runs)
        try:
            answers, drawn = self._ask(asking, 0 if room is None else room.most)
        except HenchmanError as error:
            if not isinstance(error, ServerAway):  # which the acker says, who waits for the server
                self._runtime.events.failed("claims", error)
            for run, *_ in reversed(asking):
                outcome = Outcome("released", reason=f"its start could not be claimed: {described(error)}")
                self._acker.submit(run.unit, outcome, run.unit.job)
            refused = {id(one.run) for one in asking}
            return [run for run in runs if id(run) not in refused]
        told = {id(one.run): (one, answer) for one, answer in zip(asking, answers, strict=True)}
        starting = [run if id(run) not in told else self._started(*told[id(run)]) for run in runs]
        if room is not None:
            self._line_up(asking, answers, drawn, room)
        return [run for run in starting if run is not None]

    def not_paused(self, runs: Sequence[Run]) -> list[Run]:
        """Those of ``runs`` of which nothing is paused: batch, class, tags. The others wait until that goes on, and are
        not in flight."""
        subjects = {id(run): subject for run in runs if (subject := self._cancels.holds(run))}
        held = [run for run in runs if id(run) in subjects]
        if not held:
            return list(runs)
        places: dict[InFlightList, int] = {}
        for run in held:
            places.setdefault(run.unit.flight, len(places) + 1)
        asked = [self._paused_job(run, places[run.unit.flight], subjects[id(run)]) for run in held]
        lists, identity = [(one.key, one.queue_key) for one in places], held[0].unit.flight.identity
        try:
            call = pauses.hold(self._runtime.keys, identity, lists, asked, self._session.lease_ms)
            statuses = self._runtime.connections.run(call)
        except HenchmanError as error:
            statuses = [*[described(error)] * len(held)]
            if not isinstance(error, ServerAway):  # which the acker says, who waits for the server
                self._runtime.events.failed("claims", error)
        told = {id(run): status for run, status in zip(held, statuses, strict=True)}
        return [run for run in runs if id(run) not in told or self._goes_on(run, subjects[id(run)], told[id(run)])]

    def _paused_job(self, run: Run, pair: int, subject: str) -> pauses.PausedJob:
        stored = run.unit.payload
        job = decode(without_time(stored) if TIME in run.unit.job else stored)  # its time under a rate will be past
        job.pop("enqueued_at", None)  # it is pushed once more when its batch goes on
        what = subject.replace(":", " ", 1) if ":" in subject else "its batch"
        effects = encoded(self._runtime.keys, job, "held", EndingFacts(detail={"reason": f"{what} is paused"}))
        member = run.batch_id or ("-" if run.tracked else "")
        return pauses.PausedJob(pair, subject, member, run.jid, stored, encode(job), effects)

    def _goes_on(self, run: Run, subject: str, status: int | str) -> bool:
        """Whether a run that was to be held may start after all."""
        if status == pauses.NOT_PAUSED:
            self._cancels.resumed(subject)
            return True
        if isinstance(status, str):
            reason = f"it is paused, and could not be held: {status}"
            self._acker.submit(run.unit, Outcome("deferred", run.unit.payload, REFUSED, reason), run.unit.job)
        else:
            self._session.held.discard(run.unit)
        return False

    def _line_up(
        self, asking: Sequence[_Asking], answers: Sequence[ClaimAnswer], drawn: Sequence[tuple[Unit, int]], room: Room
    ) -> None:
        """Let those wait here whom the server left to us: of those claimed or, where a line is, who stood there."""
        tokens = dict(drawn)
        lines: dict[str, tuple[list[Run], list[Run]]] = {}
        for run in room.read(list(tokens)):  # first: they have waited longer
            if (came := self._asked(run)) is not None:
                run.unit.claim = Start(tokens[run.unit], run.unit.payload, [], came.limits, came.ends)
                lines.setdefault(came.places, ([], []))[1].append(run)
        for one, answer in zip(asking, answers, strict=True):
            if one.places and answer.token:
                lines.setdefault(one.places, ([], []))[answer.behind].append(one.run)
        for said, (having, behind) in lines.items():
            refused = room.keep(behind)
            alone = [
                run for run in self._acker.places.took(said, having, behind) if run.pool and run.pool.take_late(run)
            ]
            for run in reversed([*refused, *alone]):
                self._acker.submit(run.unit, Outcome("released"), run.unit.job)

    def abandoned(self, run: Run) -> None:
        """A run with a key ignores its time-out: that is a death, and its process is about to end."""
        if not run.jid:
            return
        host, flight = self._runtime, run.unit.flight
        line = f"{times.iso(host.clock.now())} {flight.identity} {IGNORED}"
        charge = jobs.charge(
            host.keys,
            flight.key,
            run.jid,
            line.encode("utf-8", "replace"),
            run.unit.payload,
            b"",
            alone=False,
            dead_max=host.config.dead_max,
            dead_timeout=host.config.dead_timeout,
        )
        try:
            host.connections.run(charge)
        except HenchmanError as error:
            host.events.failed("claims", error)

    def alone(self, run: Run) -> list[Run]:
        """``claimed`` for a suspect. It is dead when processes ended often enough because it ignored its time-out."""
        if (outcome := self._worn_out(run)) is None:
            return self.claimed(self.not_paused([run]))
        self._runtime.events.emit("job_refused", unit=run.unit, outcome=outcome, secrets=run.secrets)
        self._acker.submit(run.unit, outcome, run.unit.job)
        return []

    def _worn_out(self, run: Run) -> Outcome | None:
        if run.unit.source is not None or not is_exclusive(run.unit):
            return None
        host = self._runtime
        try:
            lines = host.connections.run(jobs.deaths(host.keys, run.jid))
            if sum(one.endswith(IGNORED) for one in lines) < MOST_IGNORED:
                return None
            host.connections.run(jobs.forget_deaths(host.keys, run.jid))
        except HenchmanError as error:  # it may run once more
            host.events.failed("claims", error)
            return None
        return self._policy.defect(run.unit, PoisonPill("; ".join(lines)), "processes ended because of it", run.secrets)

    def _ask(self, asking: Sequence[_Asking], behind: int) -> tuple[list[ClaimAnswer], list[tuple[Unit, int]]]:
        """The answers, and those that came from a line, with their tokens: they are held."""
        pairs: dict[InFlightList, int] = {}
        held, claimants = self._acker.places.held, []
        for one in asking:
            run, key = one.run, one.key
            unit = run.unit
            pair = pairs.setdefault(unit.flight, len(pairs) + 1)
            conflict = "skip" if unit.job["hm"].get("conflict") == "skip" else "wait"
            member = run.batch_id or ("-" if run.tracked else "")
            most = behind if run.compiled.cost is not None and run.compiled.cost < SHORT else 0
            limited = limits_asked(unit.job, one.limits, most, holds=held(one.limits)) if one.limits else ""
            claimants.append(
                Claimant(unit.payload, run.jid, key.name, pair, key.scope, key.phases, conflict, member, limited)
            )
        lists = [(flight.key, flight.queue_key) for flight in pairs]
        identity = asking[0].run.unit.flight.identity
        answers, drawn = self._runtime.connections.run(
            claim(self._runtime.keys, identity, lists, claimants, self._session.lease_ms)
        )
        return answers, list(self._held(drawn, list(pairs)))

    def _held(self, drawn: Sequence[Drawn], flights: Sequence[InFlightList]) -> Iterator[tuple[Unit, int]]:
        now = monotonic()
        for place, one in enumerate(drawn):
            flight = flights[one.pair - 1]
            unit = Unit(one.payload, flight, now + place * 1e-7)
            self._session.held.add(unit)
            if (order := self._session.orders.get(flight.key)) is not None:
                order.fetched([unit])
            yield unit, one.token

    def _started(self, asked: _Asking, answer: ClaimAnswer) -> Run | None:
        """The run that asked, if it may start, with the newest arguments."""
        run, unit = asked.run, asked.run.unit
        if answer.token:
            own = without_time(unit.payload) if TIME in unit.job else unit.payload
            newest = own if not answer.latest else _with_latest(own, answer.latest)
            unit.claim = Start(answer.token, newest, [run.jid] if run.tracked else [], asked.places, asked.ends)
            if answer.behind:
                return None
            return run if newest is unit.payload else self._read_anew(run)
        if answer.wait:
            self._waits_too_long(run, answer)
        elif answer.refused:
            reason = f"its start could not be claimed: {answer.refused}"
            self._runtime.events.emit("refused", unit=unit, ending="claimed", reason=answer.refused)
            self._acker.submit(unit, Outcome("deferred", unit.payload, REFUSED, reason), run.unit.job)
        elif answer.holder and not answer.parked:
            skipped = Outcome("discarded", reason=f"job {answer.holder} runs with the same key")
            self._runtime.events.emit("job_refused", unit=unit, outcome=skipped, secrets=run.secrets)
            self._acker.submit(unit, skipped, run.unit.job)
        else:  # parked, or lost
            self._session.held.discard(unit)
        return None

    def _waits_too_long(self, run: Run, answer: ClaimAnswer) -> None:
        """It is dead at once: its limit has no time for it as long as it wants to wait."""
        most = max_wait(run.unit.job)
        error = LimitReached(
            f"its turn under the limit {answer.limit} would come in {answer.wait:.1f} s, and max_wait is {most:g} s"
        )
        outcome = self._policy.defect(run.unit, error, "it was not started", run.secrets)
        self._runtime.events.emit("job_refused", unit=run.unit, outcome=outcome, secrets=run.secrets)
        self._acker.submit(run.unit, outcome, run.unit.job)

    def _asked(self, run: Run) -> _Asking | None:
        """What a run asks for at its start that has a key or limits; what is not a plain queue has neither."""
        ours, unit = run.unit.job["hm"], run.unit
        if not isinstance(ours, dict) or unit.source is not None or "\n" in unit.flight.queue:
            return None
        limited = limits_of(unit.job) if "limits" in ours and run.jid else []
        said = ours.get("key")
        phases = said[-1] if isinstance(said, list) and said else ""
        asks = isinstance(phases, str) and ("r" in phases or "w" in phases)
        key = key_of(unit.job) if asks else None
        if key is None and not limited:
            return None
        runs = (key.scope, key.name) if key is not None and "r" in key.phases else None
        ends = places_end(limited) if key is None and limited else b""
        return _Asking(run, key or _NO_KEY, limits_text(limited, runs) if limited else "", ends)

    def _read_anew(self, run: Run) -> Run | None:
        """The run with the newest arguments, if it can run with them."""
        read = self._read(run.unit)
        if isinstance(read, Outcome):
            self._acker.submit(run.unit, read, run.unit.job)
            return None
        return read


_NO_KEY = JobKey("", "", "-")


def declare_limits(runtime: Runtime) -> None:
    """What our code says of limits; where one is larger than it was, those go on who wait for it."""
    runner, keys = runtime.connections, runtime.keys
    said = [(one.kind, one.name, one.n, one.seconds) for one in runtime.registry.limits()]
    for name in runner.run(limits.declare(keys, said)) if said else ():
        cursor = -1
        while cursor:
            cursor, parts = runner.run(limits.waiting_parts(keys, name, max(cursor, 0)))
            for by in parts:
                while runner.run(limits.hand(keys, name, by)):
                    pass


def _with_latest(stored: bytes, latest: bytes) -> bytes:
    """``stored`` with the arguments of ``latest``, and what is secret of them."""
    try:
        job, newer = decode(stored), decode(latest)
    except PayloadError:  # written by somebody else: the job runs with what it was pushed with
        return stored
    for name in ("args", "kwargs"):
        job.pop(name, None)
        if name in newer:
            job[name] = newer[name]
    ours, theirs = job.get("hm"), newer.get("hm")
    if isinstance(ours, dict):
        ours.pop("secret", None)
        if isinstance(theirs, dict) and "secret" in theirs:
            ours["secret"] = theirs["secret"]
    return encode(job)
