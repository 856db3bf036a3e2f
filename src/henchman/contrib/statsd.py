"""StatsD and DogStatsD: counts and times of jobs, and how queues stand, as datagrams.

A datagram is sent without waiting and without an answer: what the agent does not take is lost, and no job notices.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from random import random
from typing import Any, Literal

from henchman.errors import ConfigError, HenchmanError
from henchman.kernel.text import as_shown
from henchman.store.leases import Leader

__all__ = ["instrument"]

NAMES_MOST = 500  #: names of jobs, and of queues, that one process tells; others are told as "other"
_PACKET = 1400  # bytes of a datagram: what a network carries in one piece
_AGAIN = 5.0  # seconds until an address is looked up, or a socket opened, again
_TURN_MS = 15_000  # three signs of life
_DEAD = frozenset({"dead", "kept", "gone", "invalid"})


def instrument(
    app: Any,
    address: str = "127.0.0.1:8125",
    *,
    dialect: Literal["statsd", "dogstatsd"] = "statsd",
    prefix: str = "henchman",
    tags: Mapping[str, str] | None = None,
    sample_rate: float = 1.0,
    gauges: bool = True,
) -> None:
    """Send figures of ``app`` to an agent: ``host:port`` (UDP), or ``unix:///path`` of a datagram socket. Call it once,
    where the app is made, before a worker starts.

    ``dialect``: "dogstatsd" has jobs and queues as tags, and ``tags`` beside them; "statsd" has them in the names.
    ``sample_rate``: the share, above 0 and at most 1, of pushes and runs that are told. ``gauges``: queues and totals
    too, every 5 s from one of the workers. ConfigError says what is wrong; nothing raises later.
    """
    if _CountedPushes in app.client_middleware:
        raise ConfigError("instrument(app): StatsD is turned on for this app already")
    if not isinstance(sample_rate, int | float) or isinstance(sample_rate, bool) or not 0 < sample_rate <= 1:
        raise ConfigError(f"sample_rate={as_shown(sample_rate, 80)}: give a number above 0, and at most 1")
    if dialect not in ("statsd", "dogstatsd"):
        raise ConfigError(f"dialect={as_shown(dialect, 80)}: give 'statsd' or 'dogstatsd'")
    if tags and dialect == "statsd":
        raise ConfigError("tags=: StatsD knows none; give dialect='dogstatsd'")
    lines = _Lines(_Socket(address), dialect == "dogstatsd", prefix, tags or {}, float(sample_rate))
    app.client_middleware.add(_CountedPushes(lines))
    runs = _Ends(lines)
    app.events.on("job_end", runs.ended)
    app.events.on("job_failed", runs.ended)
    app.events.on("job_refused", runs.refused)
    app.events.on("process_killed", partial(runs.process_ended, "isolated.killed"))
    app.events.on("process_crashed", partial(runs.process_ended, "isolated.crashed"))
    if gauges:
        told = _Gauges(app, lines)
        app.on("beat")(told.tell)
        app.on("quiet")(told.resign)


class _Socket:
    """Where datagrams go. What cannot be sent is dropped."""

    def __init__(self, address: str) -> None:
        self._target: Any = None
        self._family = socket.AF_INET
        self._socket: socket.socket | None = None
        self._not_before = 0.0
        self._lock = threading.Lock()
        path = address.removeprefix("unix://") if isinstance(address, str) else ""
        host, _, port = path.rpartition(":")
        if path and path != address:
            self._family, self._target = socket.AF_UNIX, path
        elif host and port.isdecimal() and 0 < int(port) < 65536:
            self._name = host.strip("[]"), int(port)
        else:
            raise ConfigError(f"address={as_shown(address, 200)}: give 'host:port', or 'unix:///path/of/a.sock'")
        if self._target is None and re.fullmatch(r"[0-9.]+|[0-9a-fA-F:]*:[0-9a-fA-F:.]*", self._name[0]):
            self._resolve()  # of a number nobody has to be asked

    def send(self, packet: bytes) -> None:
        """Send, or drop."""
        open_socket = self._socket or self._opened()
        if open_socket is None:
            return
        try:
            open_socket.send(packet)
        except BlockingIOError:
            return
        except OSError:  # nobody listens: for UDP the answer to an earlier datagram, and the next may arrive
            if self._family == socket.AF_UNIX:
                self._socket = None
                open_socket.close()

    def _opened(self) -> socket.socket | None:
        with self._lock:
            now = time.monotonic()
            if self._socket is not None or now < self._not_before:
                return self._socket
            self._not_before = now + _AGAIN
            if self._target is None:
                with contextlib.suppress(RuntimeError):  # no thread to be had
                    threading.Thread(target=self._resolve, name="henchman-statsd", daemon=True).start()
                return None
            made = socket.socket(self._family, socket.SOCK_DGRAM)
            made.setblocking(False)
            try:
                made.connect(self._target)
            except OSError:
                made.close()
                return None
            self._socket = made
            weakref.finalize(self, made.close)
            return made

    def _resolve(self) -> None:
        """Look the host up: that may take long."""
        with contextlib.suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(*self._name, type=socket.SOCK_DGRAM)[0]
            self._family, self._target = found[0], found[4]
            self._not_before = 0.0


class _Lines:
    """Figures as lines of the protocol."""

    def __init__(self, out: _Socket, tagged: bool, prefix: str, tags: Mapping[str, str], rate: float) -> None:
        self._out = out
        self._tagged = tagged
        self._prefix = f"{prefix.rstrip('.')}." if prefix else ""
        self._tags = [f"{_word(name)}:{_value(value)}" for name, value in tags.items()]
        self._rate = rate
        self._sampled = f"|@{rate:g}" if rate < 1 else ""
        self._known: dict[str, set[str]] = {"job": set(), "queue": set(), "cause": set()}

    @property
    def chosen(self) -> bool:
        """Whether what happens now is told."""
        return self._rate >= 1 or random() < self._rate  # noqa: S311 - a sample, no secret

    def count(self, name: str, value: int, **about: str) -> str:
        """A counter that has risen by ``value``, of what is told by a share."""
        return self._line(name, f"{value}|c{self._sampled}", about)

    def happened(self, name: str, **about: str) -> str:
        """A counter that has risen by one, of what is always told."""
        return self._line(name, "1|c", about)

    def took(self, name: str, seconds: float, **about: str) -> str:
        """A time, which the protocol has in milliseconds."""
        return self._line(name, f"{seconds * 1000:.3f}|ms{self._sampled}", about)

    def gauge(self, name: str, value: float, **about: str) -> str:
        """A figure as it is now."""
        return self._line(name, f"{max(value, 0):g}|g", about)

    def send(self, lines: Iterable[str]) -> None:
        """Send lines, as many in a datagram as go in."""
        packet = b""
        for line in lines:
            text = line.encode("utf-8", "replace")
            if packet and len(packet) + len(text) >= _PACKET:
                self._out.send(packet)
                packet = b""
            packet = b"%b\n%b" % (packet, text) if packet else text
        if packet:
            self._out.send(packet)

    def _line(self, name: str, figure: str, about: Mapping[str, str]) -> str:
        known = {kind: self._bounded(kind, value) for kind, value in about.items()}
        if not self._tagged:
            path = "".join(f".{_word(value)}" for value in known.values())
            return f"{self._prefix}{name}{path}:{figure}"
        tags = ",".join([*self._tags, *(f"{kind}:{_value(value)}" for kind, value in known.items())])
        return f"{self._prefix}{name}:{figure}" + (f"|#{tags}" if tags else "")

    def _bounded(self, kind: str, value: str) -> str:
        """``value``, or "other" when this process has told of too many."""
        known = self._known[kind]
        if value not in known:
            if len(known) >= NAMES_MOST:
                return "other"
            known.add(value)
        return value


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)[:150] or "_"


def _value(text: str) -> str:
    return re.sub(r"[|#,:@\s\x00-\x1f]", "_", text)[:150] or "_"


_push: ContextVar[Counter[tuple[str, str]] | None] = ContextVar("henchman_statsd", default=None)


class _CountedPushes:
    """A link of the client middleware: what was pushed is told when the server has it."""

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines

    def __call__(self, job: dict[str, Any], call_next: Callable[[], Any]) -> Any:
        """Count a job; one that becomes due, or that a cron pushes, is nobody's push."""
        _count(job)
        return call_next()

    async def awaited(self, job: dict[str, Any], call_next: Callable[[], Awaitable[Any]]) -> Any:
        """The same, awaited."""
        _count(job)
        return await call_next()

    @contextmanager
    def pushing(self) -> Iterator[None]:
        """Around a push."""
        counted: Counter[tuple[str, str]] = Counter()
        token = _push.set(counted)
        try:
            yield
        finally:
            _push.reset(token)
        if self._lines.chosen:
            lines = self._lines
            lines.send(lines.count("jobs.pushed", many, job=job, queue=queue) for (job, queue), many in counted.items())


def _count(job: dict[str, Any]) -> None:
    counted = _push.get()
    if counted is not None:
        counted[str(job.get("wrapped") or job.get("class")), str(job.get("queue"))] += 1


class _Ends:
    """Listens to how runs end."""

    def __init__(self, lines: _Lines) -> None:
        self._lines = lines

    def ended(self, run: Any, outcome: Any, **_: Any) -> None:
        """A run has ended, or was refused before it started."""
        if self._lines.chosen:
            self._lines.send(self._lines_of(run.name, run.queue, outcome, run.unit.elapsed if run.started else None))

    def refused(self, unit: Any, outcome: Any, **_: Any) -> None:
        """A payload that could not be run."""
        if self._lines.chosen:
            self._lines.send(self._lines_of(str(unit.job.get("class", "")), unit.flight.queue, outcome, None))

    def process_ended(self, figure: str, run: Any, **_: Any) -> None:
        """The process of an isolated run was killed, or crashed: each is told of, whatever the share of runs is."""
        self._lines.send([self._lines.happened(figure, job=run.name, queue=run.queue)])

    def _lines_of(self, job: str, queue: str, outcome: Any, seconds: float | None) -> Iterator[str]:
        lines, about = self._lines, {"job": job, "queue": queue}
        if seconds is not None:
            yield lines.count("jobs.run", 1, **about)
            yield lines.took("jobs.duration", seconds, **about)
        if outcome.error is not None:
            yield lines.count("jobs.failed", 1, **about)
        if outcome.ending in _DEAD:
            yield lines.count("jobs.dead", 1, **about)
        if outcome.cause:
            yield lines.count("jobs.ended_by", 1, **about, cause=outcome.cause)


class _Gauges:
    """How everything stands, from one of the worker processes that tell it."""

    def __init__(self, app: Any, lines: _Lines) -> None:
        self._app = app
        self._lines = lines
        self._leader: Leader | None = None

    def tell(self) -> None:
        """Look and send, when it is our turn; in a thread of its own."""
        app = self._app
        if self._leader is None:  # in this process: it may be a fork of the one that made the app
            self._leader = Leader(app.keys.gauges, _TURN_MS)
        with contextlib.suppress(HenchmanError):  # the server is away: the log says so
            self._leader.contend(app.connections)
            if self._leader.leads:
                self._lines.send(self._figures())

    def resign(self) -> None:
        """Another process may have its turn at once."""
        if self._leader is not None and self._leader.leads:
            self._leader.resign(self._app.connections, self._app.events, "statsd")

    def _figures(self) -> Iterator[str]:
        lines, stats = self._lines, self._app.stats()
        for name in ("scheduled", "retries", "dead", "blocked", "overdue", "processes", "busy"):
            yield lines.gauge(name, getattr(stats, name))
        states = sorted(self._app.queues.states(), key=lambda one: -(one.size or 0))[:NAMES_MOST]
        for one in states:
            yield lines.gauge("queue.size", one.size or 0, queue=one.name)
            yield lines.gauge("queue.latency_seconds", one.latency or 0.0, queue=one.name)
