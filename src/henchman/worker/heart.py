"""What keeps a worker process alive in the eyes of others: its lease, renewed, and its record, written at each beat.

Each has a thread of its own. The one that renews also shows the supervisor a sign of life, and waits for no beat, which
takes long where the server is far away or there are many queues. The hot path tells the heart nothing: it looks.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import LeaseLost, ServerAway, ServerError
from henchman.isolation.processes import RunProcesses
from henchman.kernel.clock import awake
from henchman.kernel.text import described
from henchman.kernel.threads import Ticker
from henchman.kernel.version import __version__
from henchman.store import leases
from henchman.store.call import run
from henchman.store.leases import PRUNING_S, turn_to_prune
from henchman.store.queues import note_levels
from henchman.wire import payload
from henchman.wire.payload import sanitise
from henchman.work.failures import Failures
from henchman.worker.manager import Manager
from henchman.worker.metrics import ExecutionMetrics
from henchman.worker.run import Run
from henchman.worker.session import LeaseSession
from henchman.worker.watcher import Cancels, Control

__all__ = ["Heart", "Renewal", "resident_kb"]

PULSE = 1.0
SHOWN_BYTES = 1 << 20  # of the payloads that run, in one record: arguments of the larger ones are left out beyond that
_MINUTE, _MINUTES = 60.0, 60  # between two figures of memory, and how many of them are told
_PYTHON = ".".join(map(str, sys.version_info[:3]))
#: of the package itself: importlib.metadata would cost every worker its memory
_SOFTWARE = f"Henchman {__version__}, Python {_PYTHON}"
_LEAST_SHOWN = 4096  # bytes of a payload that are always shown


class Renewal(Ticker):
    """Ticks each second, and calls ``pulse()`` then; renews the lease six times within its length, at each beat at
    least. Says when the server goes and when it is back."""

    name = "heart"

    def __init__(self, runtime: Runtime, manager: Manager, session: LeaseSession, pulse: Callable[[], None]) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self._manager = manager
        self._session = session
        self._pulse = pulse
        self._every = min(runtime.config.heartbeat, runtime.config.lease / 6)
        self._next = 0.0
        self._failures = 0
        self._away_since: float | None = None
        self.round_trip = 0.0  # seconds that the last renewal took

    @property
    def away(self) -> bool:
        """Whether the server could not be reached at the last renewal."""
        return self._away_since is not None

    def tick(self) -> float:
        """Show that we live; renew when it is time."""
        try:
            self._pulse()
        except Exception as error:  # a defect of ours must not cost us the lease
            self._on_error(self.name, error)
        now = awake()
        if now >= self._next:
            self._next = now + self._every
            asked_as = self._session.identity  # before asking: a fetcher that is told too takes a new name meanwhile
            try:
                self._renew(now)
            except LeaseLost:
                for fetcher in self._manager:
                    fetcher.buried(asked_as)
            except ServerAway as error:
                self._away(error, now)
            else:
                self._back(now)
        return min(PULSE, max(0.0, self._next - awake()))

    def _renew(self, now: float) -> None:
        self._session.renew()
        self.round_trip = awake() - now

    def _away(self, error: ServerAway, now: float) -> None:
        self._failures += 1
        if self._away_since is None:
            self._away_since = now
        self._next = now + min(PULSE, self._every)
        self._runtime.events.emit("server_away", part="heart", error=error, failures=self._failures)

    def _back(self, now: float) -> None:
        if self._away_since is not None:
            self._runtime.events.emit("server_back", part="heart", downtime=now - self._away_since)
            self._away_since, self._failures = None, 0


class Heart(Ticker):
    """Beats each ``heartbeat`` seconds. ``round_trip()`` is how many seconds the server took lately."""

    name = "heart"

    def __init__(
        self,
        runtime: Runtime,
        manager: Manager,
        session: LeaseSession,
        cancels: Cancels,
        control: Control,
        tally: ExecutionMetrics,
        failures: Failures,
        isolation: RunProcesses,
        round_trip: Callable[[], float],
        embedded: bool,
    ) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self._manager = manager
        self._session = session
        self._cancels = cancels
        self._control = control
        self._figures = (tally, failures, isolation)
        self._isolation = isolation
        self._round_trip = round_trip
        self._embedded = embedded
        self._started_at = runtime.clock.now()
        self._strays: set[int] = set()
        self._memory = deque[int](maxlen=_MINUTES)  # KB at the last whole minutes
        self._measured = self._prune_at = float("-inf")

    def tick(self) -> float:
        """Beat; seconds until the next beat."""
        started, every = awake(), self._runtime.config.heartbeat
        try:
            self.beat()
        except ServerAway:
            return min(PULSE, every)  # the renewal tells of it, once
        except LeaseLost:
            return min(PULSE, every)  # and who is told so goes on under another name
        return max(min(PULSE, every), started + every - awake())

    def beat(self) -> None:
        """Write the record, and hear what was said, once. A step that the server refuses holds up no other."""
        for step in (self._hear_paused, self._cancels.look, self._record, self._write_metrics, self._reconcile):
            if self.stopping.is_set():  # our record is taken off the list next: a beat that hung must not bring it back
                return
            try:
                step()
            except ServerAway:
                raise
            except ServerError as error:
                self._runtime.events.emit("part_failed", part=self.name, error=error)
        self._runtime.events.emit("beat", identity=self._session.identity)

    def _hear_paused(self) -> None:
        self._manager.hear(self._runtime)

    def _record(self) -> None:
        mixed = self._runtime.config.sidekiq in ("mixed", "6")
        answer = self._runtime.connections.run(
            leases.beat(
                *(self._runtime.keys, self._session.identity, self._facts(), dict(self._work())),
                old_work=mixed,
                every=self._runtime.config.heartbeat,
            )
        )
        if answer.first:
            self._runtime.events.emit("heartbeat", identity=self._session.identity)
        for name in answer.signals:
            self._control.signal(name)
        self._prune()

    def _write_metrics(self) -> None:
        for one in self._figures:
            try:
                one.flush(self._runtime, self._runtime.clock.now())
            except ServerAway:
                raise
            except ServerError as error:  # metrics are worth less than the beat
                self._runtime.events.emit("part_failed", part="metrics", error=error)

    def stop(self, timeout: float = 5.0) -> bool:
        """Beat no more; what ran since the last beat is written down."""
        ended = super().stop(timeout)
        try:
            self._write_metrics()
        except ServerAway as error:
            self._runtime.events.failed("metrics", error)
        return ended

    def _facts(self) -> dict[str, bytes | str | int | float]:
        memory = resident_kb()
        if awake() - self._measured >= _MINUTE:
            self._measured = awake()
            self._memory.append(memory)
        isolated: dict[str, bytes | str | int | float] = {}
        if self._isolation.used:
            pids = self._isolation.pids
            isolated["isolated"] = f"{len(pids)} {sum(map(resident_kb, pids))}"
        return isolated | {
            "info": self._info(),
            "concurrency": sum(fetcher.pool.size for fetcher in self._manager),
            "busy": self._manager.busy(),
            "beat": repr(self._runtime.clock.now()),
            "quiet": "true" if self._manager[0].quieted.is_set() else "false",
            "rss": memory,
            "rss_past": " ".join(map(str, self._memory)),
            "rtt_us": int(self._round_trip() * 1_000_000),
            "skew": f"{time.time() - self._runtime.clock.now():.3f}",
        }

    def _info(self) -> bytes:
        config = self._runtime.config
        capsules = [fetcher.capsule for fetcher in self._manager]
        return msgspec.json.encode(
            {
                "hostname": leases.host_name(),
                "started_at": self._started_at,
                "pid": os.getpid(),
                "tag": config.process_tag,
                "concurrency": sum(one.concurrency for one in capsules),
                "queues": [queue for one in capsules for queue in one.queues],
                "weights": [one.weights for one in capsules],
                "labels": list(config.labels),
                "identity": self._session.identity,
                "version": f"henchman {__version__}",
                "software": _SOFTWARE,
                "embedded": self._embedded,
                "capsules": {
                    one.name: {"concurrency": one.concurrency, "mode": one.mode, "weights": one.weights}
                    for one in capsules
                },
            }
        )

    def _work(self) -> list[tuple[str, bytes]]:
        runs = [pair for fetcher in self._manager for pair in fetcher.pool.running()]
        most = max(SHOWN_BYTES // max(len(runs), 1), _LEAST_SHOWN)
        return [(slot, _row(run, most)) for slot, run in runs]

    def _reconcile(self) -> None:
        """A payload that our lists hold and we do not, at two beats in a row, is one that we never heard of."""
        strays = self._session.strays()
        lasting = strays & self._strays
        if lasting:
            self._runtime.events.emit("drift", count=len(lasting))
            self._session.doubt()
        self._strays = strays
        sent = self._session.sweep()
        if sent:
            self._runtime.events.emit("swept", count=sent)

    def _prune(self) -> None:
        """Strike off dead processes, if it is our turn; asked for half a minute later where it is not."""
        runner, keys = self._runtime.connections, self._runtime.keys
        if awake() < self._prune_at:
            return
        self._prune_at = awake() + PRUNING_S / 2
        if runner.run(turn_to_prune(keys)):
            known = runner.run(leases.identities(keys))
            gone = runner.run(leases.missing(keys, known)) if known else []
            if gone:
                runner.run(leases.strike_off_dead(keys, gone))
            run(runner, note_levels(keys, self._runtime.clock.now()))


def _shown(run: Run, most: int) -> bytes:
    """The payload of a running job as pages can show it: the same, if it breaks none of them and has at most ``most``
    bytes; else without what is large in it, first of all the arguments."""
    stored = run.unit.payload
    if run.unit.source is not None:
        stored = payload.encode(run.unit.job)
    if len(stored) > most:
        small = {
            name: one for name, one in run.unit.job.items() if len(payload.encode({name: one})) < _LEAST_SHOWN // 8
        }
        small.pop("kwargs", None)
        return payload.encode(small | {"args": [f"({len(stored):,} bytes)"]})
    if run.unit.source is not None:
        return stored
    job = payload.decode(stored)
    return payload.encode(job) if sanitise(job) else stored


def _row(run: Run, most: int) -> bytes:
    """What pages are told of a running job. One that cannot be shown must not keep us from showing that we live."""
    try:
        shown = _shown(run, most)
    except Exception as error:
        reason = f"it cannot be shown: {described(error)}"
        shown = payload.invalid(run.unit.payload[:most], reason, run.queue, run.started_at)
    text = shown.decode("utf-8", "replace")
    row = {"queue": run.queue, "payload": text, "run_at": int(run.started_at)}
    process = run.task if run.compiled.isolated else None
    return msgspec.json.encode(row if process is None else row | {"pid": process.pid})


def resident_kb(pid: int | None = None) -> int:
    """The resident memory of this process in KB; its peak where the kernel does not tell the present figure. Of another
    process, with ``pid``: 0 there."""
    try:
        return (
            int(Path(f"/proc/{pid or 'self'}/statm").read_text(encoding="ascii").split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            // 1024
        )
    except (OSError, IndexError, ValueError):
        if pid is not None:
            return 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 1024 if sys.platform == "darwin" else peak
