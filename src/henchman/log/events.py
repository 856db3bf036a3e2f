"""What the core announces, as log records: under "henchman.job" what a job does, under "henchman" the rest."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from henchman.errors import PayloadError, ServerAway
from henchman.kernel.text import described, shorten, words_of
from henchman.wire import payload
from henchman.wire.secret import NO_SECRETS, Secrets, without_secrets
from henchman.work.current import running
from henchman.work.effects import attempt_of

__all__ = ["PER_SECOND", "Announcer", "level_of", "log_text"]

PER_SECOND = 20
_KEYS_MOST = 500

Key = tuple[str, ...]


@dataclass(slots=True)
class _Window:
    """How often a line came in the second that began at ``since``; ``held`` of them were not written."""

    since: float
    count: int = 0
    held: int = 0
    last: tuple[logging.Logger, int, str, Mapping[str, Any]] | None = None

    def sum_up(self) -> None:
        """Write how many were left out."""
        if self.last is not None:
            logger, level, text, facts = self.last
            shown = {name: facts[name] for name in ("class", "part", "error", "hm_secrets") if name in facts}
            logger.log(level, "more lines like this were left out", extra=shown | {"lines": self.held, "line": text})


class RateLimit:
    """Rate limit for repeated log lines: those that are alike share a key. Thread-safe.

    The summary comes with the next such line, or with ``flush``.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._windows: dict[Key, _Window] = {}

    def log(
        self, key: Key, logger: logging.Logger, level: int, text: str, facts: Mapping[str, Any], exc_info: Any = None
    ) -> None:
        """Write the line, or count it when it came too often within this second."""
        if not logger.isEnabledFor(level):
            return
        now = self._monotonic()
        over: list[_Window] = []
        with self._lock:
            window = self._windows.get(key)
            if window is None or now - window.since >= 1.0:
                over += [] if window is None else [window]
                if len(self._windows) >= _KEYS_MOST:
                    over += self._windows.values()
                    self._windows.clear()
                window = self._windows[key] = _Window(now)
            window.count += 1
            held = window.count > PER_SECOND
            if held:
                window.held += 1
                window.last = (logger, level, text, facts)
        for one in over:
            one.sum_up()
        if not held:
            logger.log(level, text, extra=facts, exc_info=exc_info)

    def flush(self, *, all: bool = False) -> None:
        """Sum up every line whose second is over, or all."""
        now = self._monotonic()
        with self._lock:
            over = [key for key, window in self._windows.items() if all or now - window.since >= 1.0]
            windows = [self._windows.pop(key) for key in over]
        for window in windows:
            window.sum_up()


class Outage:
    """The server, gone and back: one line at each edge for the process, however many parts notice. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._log = logging.getLogger("henchman")
        self._lock = threading.Lock()
        self._silent: dict[str, bool] = {}  # part that cannot work → whether it got no answer (else it was refused)
        self._since = 0.0

    def away(self, part: str = "", error: BaseException | None = None, **_: Any) -> None:
        """``part`` could not work; the first one is written."""
        silent = isinstance(error, ServerAway)
        with self._lock:
            first = not self._silent
            if first:
                self._since = self._monotonic()
            self._silent[part] = silent
        if first:
            words = "the server is away" if silent else "the server refuses"
            why = {} if error is None else {"error": described(error)}
            self._log.error(words, extra={"part": part} | why)

    def back(self, part: str = "", **_: Any) -> None:
        """``part`` works again; written when it was the last."""
        self._over({part})

    def answered(self) -> None:
        """The server answers, whatever each part has noticed yet; those that it refused still wait."""
        if self._silent:
            with self._lock:
                silent = {part for part, silent in self._silent.items() if silent}
            self._over(silent)

    def _over(self, parts: set[str]) -> None:
        with self._lock:
            before = bool(self._silent)
            for part in parts:
                self._silent.pop(part, None)
            over = before and not self._silent
            downtime = self._monotonic() - self._since
        if over:
            self._log.warning("the server is back", extra={"downtime": round(downtime, 3)})


_DEBUG, _INFO, _WARNING, _ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
_LEVELS: Mapping[object, int] = {"debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40, "fatal": 50}
_OWN_FRAMES = ("/henchman/worker/", "/henchman/kernel/")
_TAKEN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}

#: Events that become a line as they are: level and words. What they carry is shown beside it.
PLAIN: Mapping[str, tuple[int, str]] = {
    "startup": (_INFO, "the worker process starts"),
    "heartbeat": (_INFO, "the worker process is ready"),
    "quiet": (_INFO, "quiet: nothing new is fetched"),
    "shutdown": (_INFO, "the worker process stops"),
    "swept": (_DEBUG, "given back: payloads that were left in flight"),
    "late": (_WARNING, "a job ended whose unit was not ours any more; its outcome was not stored"),
    "journal_told": (_WARNING, "told: how jobs of an earlier worker ended; of those that are late the job runs again"),
    "journal_foreign": (_WARNING, "a journal of other data than the server has is not told; delete it, or keep it"),
    "journal_full": (_ERROR, "the journal takes no more; what else ends while the server is away may run again"),
    "refused": (_ERROR, "the server refused to store an outcome; the job is kept in flight and tried again"),
    "lease_lapsed": (_WARNING, "the lease had run out and was taken again; was this process, or the server, frozen?"),
    "lease_lost": (_ERROR, "declared dead by another process; going on under a new name"),
    "rescued": (_WARNING, "given back: the work of a process that died"),
    "clock_stepped": (_WARNING, "the server's clock went forward, or (seconds < 0) back; what was computed is moved"),
    "drift": (_WARNING, "payloads are in flight that nobody here knows of; they are given back"),
    "loop_blocked": (_ERROR, "the event loop is blocked by a job that does not await; it gets no more jobs"),
    "unwatched": (_INFO, "more queues than can be waited for: these are looked at every 0.5 s"),
    "charged": (_ERROR, "a job has cost a process its life"),
    "cut_off": (_WARNING, "the stop cut off jobs that had not ended; they are given back"),
    "standstill": (_ERROR, "every job waits for a lock that nobody gives back; the process will be replaced"),
    "loop_ended": (_ERROR, "a job stopped the event loop, or called sys.exit() in a task of its own; the loop goes on"),
    "loop_back": (_WARNING, "the event loop turns again"),
    "control_unknown": (_WARNING, "an order that this version does not know was ignored"),
    "middleware_failing": (
        _ERROR,
        "a client middleware fails for jobs that became due; they stay due and are tried again",
    ),
    "middleware_back": (_WARNING, "no client middleware fails any more for jobs that became due"),
    "cron_enqueued": (_DEBUG, "a periodic job was enqueued"),
    "cron_back": (_WARNING, "no client middleware fails any more for the job of this periodic job's tick"),
    "cron_missed": (_WARNING, "ticks of a periodic job were missed while no worker ran, and are not made up for"),
    "cron_stopped": (_WARNING, "a client middleware stopped a periodic job; this tick is passed over"),
    "cron_overlap": (_WARNING, "the job of an earlier tick has not ended; this tick of a periodic job is passed over"),
    "cron_unreadable": (_ERROR, "a periodic job is stored in a form that this process cannot use"),
    "key_unlocked": (_WARNING, "a business key was taken from its job by hand"),
    "limit_changed": (_WARNING, "a limit has another size, by hand"),
    "job_let_go": (_WARNING, "a job was let go by hand before what it waits for had succeeded"),
    "key_freed": (_WARNING, "the job that held a business key had left our hands; the key is free"),
    "batch_settled": (_WARNING, "jobs of a batch had left our hands; they are counted as errors, with the reason"),
    "history_away": (_ERROR, "the database of history does not take anything; jobs run on, and what is told waits"),
    "history_back": (_WARNING, "the database of history is back; what waited is recorded now"),
    "history_refused": (_ERROR, "the database of history refused one entry; the change is kept without its detail"),
    "history_rewound": (_WARNING, "the server went back to an older state: its stream has entries of a time before"),
    "history_lost": (_WARNING, "the server has no history stream any more: it was emptied, or is another one"),
    "outbox_away": (_ERROR, "the database of the outbox does not answer as it should; what waits there stays"),
    "outbox_back": (_WARNING, "the database of the outbox is back; what waited goes to the server now"),
    "outbox_refused": (_ERROR, "the server refuses a row of the outbox; it is stepped over and tried each minute"),
    "outbox_duplicate": (_INFO, "another job has the key of a row of the outbox, which is its duplicate"),
    "process_killed": (_WARNING, "the process of an isolated run was killed"),
    "process_crashed": (_WARNING, "the process of an isolated run crashed; no other job is touched"),
    "job_abandoned": (_ERROR, "a job ignores its time-out and was given up; the process will be replaced"),
}
#: How the line of a run that did not simply succeed reads, and its level.
ENDINGS: Mapping[str, tuple[int, str]] = {
    "done": (_INFO, "done"),
    "failed": (_WARNING, "failed"),
    "retry": (_WARNING, "will be retried"),
    "dead": (_ERROR, "dead"),
    "kept": (_ERROR, "dead, kept with its batch"),
    "invalid": (_ERROR, "dead: a payload that no worker can read"),
    "gone": (_ERROR, "failed for good and is not kept"),
    "snoozed": (_INFO, "snoozed"),
    "discarded": (_INFO, "discarded"),
    "deferred": (_INFO, "put off: a suspect, it waits for a process of its own"),
    "released": (_INFO, "given back"),
    "interrupted": (_INFO, "interrupted, goes on later"),
    "cancelled": (_INFO, "cancelled"),
    "expired": (_INFO, "expired"),
}

Listener = Callable[..., None]
Facts = dict[str, Any]


class Announcer:
    """Listeners that write lines. Thread-safe."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = logging.getLogger("henchman")
        self._job_log = logging.getLogger("henchman.job")
        self._limit = RateLimit(monotonic)
        self._outage = Outage(monotonic)
        self._ended = threading.local()

    def listeners(self, level: int) -> Iterator[tuple[str, Listener]]:
        """(event, listener) for every event that can give a line at ``level`` or above."""
        # These know when a trouble begins and ends, whatever is written; none of them comes with a job.
        yield from (("server_away", self._outage.away), ("server_back", self._outage.back), ("beat", self._beat))
        own: tuple[tuple[str, int, Listener], ...] = (
            ("error", _ERROR, self._error),
            ("part_failed", _ERROR, self._part_failed),
            ("handler_broken", _ERROR, self._handler_broken),
            ("dump", _WARNING, self._dump),
            ("job_failed", _ERROR, self._job_end),
            ("job_refused", _ERROR, self._job_refused),
            ("job_start", _DEBUG, self._job_start),
            ("job_end", _INFO, self._job_end),
            ("job_log", _INFO, self._job_says),
        )
        yield from ((name, listener) for name, most, listener in own if most >= level)
        yield from ((name, self._plain(name)) for name, (at, _) in PLAIN.items() if at >= level)

    def flush(self) -> None:
        """Write the summaries that are still held: at the end of the process."""
        self._limit.flush(all=True)

    def _beat(self, **_: Any) -> None:
        self._outage.answered()
        self._limit.flush()

    # -- jobs

    def _job_start(self, run: Any, **_: Any) -> None:
        if level_of(run) > _DEBUG or not self._job_log.isEnabledFor(_DEBUG):
            return
        args, kwargs = run.compiled.signature.mask(list(run.unit.job.get("args") or []), run.unit.job.get("kwargs"))
        facts = _of_run(run) | {"arguments": _brief(args)} | ({"keywords": _brief(kwargs)} if kwargs else {})
        if run.attempt > 1:
            facts["attempt"] = run.attempt
        self._job_log.debug("start", extra=facts)

    def _job_end(self, run: Any, outcome: Any, **_: Any) -> None:
        """``job_failed`` and ``job_end`` may both tell of one outcome: the second is not written."""
        ending = outcome.ending
        if ending != "done":
            this = (run.jid, run.started, ending)
            if getattr(self._ended, "last", None) == this:
                return
            self._ended.last = this
        level, words = ENDINGS.get(ending, (_WARNING, ending))
        if not self._job_log.isEnabledFor(level) or level < level_of(run):
            return
        facts = _of_run(run) | {"elapsed": round(run.elapsed, 3)} | _of_outcome(outcome, run.attempt)
        if ending == "done":
            self._job_log.info(words, extra=facts)
        else:
            self._limit.log((ending, run.name, type(outcome.error).__name__), self._job_log, level, words, facts)

    def _job_refused(self, unit: Any, outcome: Any, secrets: Secrets = NO_SECRETS, **_: Any) -> None:
        """A job that ended without a run: its class is unknown, its arguments do not fit."""
        level, words = ENDINGS.get(outcome.ending, (_WARNING, outcome.ending))
        if level < level_of(unit):
            return
        facts = _of_job(unit.job, unit.flight.queue) | _of_outcome(outcome, attempt_of(unit.job))
        facts |= {"hm_secrets": secrets} if secrets else {}
        key = (outcome.ending, str(facts.get("class")), type(outcome.error).__name__)
        self._limit.log(key, self._job_log, level, words, facts)

    def _job_says(self, run: Any, message: Any, **_: Any) -> None:
        self._job_log.info(words_of(message), extra=_of_run(run))

    def _error(self, error: BaseException, facts: Mapping[str, Any] | None = None, **more: Any) -> None:
        known = dict(facts or {}) | more
        job = known.get("job") if isinstance(known.get("job"), Mapping) else {}
        shown = _of_job(job or {}, known.get("queue"))
        secrets: Secrets = known.get("secrets") or NO_SECRETS
        run: Any = known.get("run") or running.get(None)
        if run is not None and run.jid == shown.get("jid"):
            secrets |= run.secrets
        if secrets:
            shown["hm_secrets"] = secrets
            error = without_secrets(error, secrets)
        context = str(known.get("context") or "error")
        level = _WARNING if context == "job raised" else _ERROR
        shown["error"] = secrets.hide(described(error, known.get("message")))
        key = (context, str(shown.get("class", "")), type(error).__name__)
        self._limit.log(key, self._job_log if job else self._log, level, context, shown, _trimmed(error))

    # -- parts of the process

    def _part_failed(self, part: str, error: BaseException, secrets: Secrets = NO_SECRETS, **_: Any) -> None:
        self._trouble("a part of the process failed and goes on", {"part": part}, error, secrets)

    def _handler_broken(self, handler: Any, error: BaseException, secrets: Secrets = NO_SECRETS, **_: Any) -> None:
        name = f"{getattr(handler, '__module__', '')}.{getattr(handler, '__qualname__', repr(handler))}".lstrip(".")
        self._trouble("a handler raised and was passed over", {"handler": name}, error, secrets)

    def _trouble(self, words: str, facts: Facts, error: BaseException, secrets: Secrets) -> None:
        """An error of a part, without ``secrets`` and those of the job that runs here, of which it may speak."""
        run: Any = running.get(None)
        secrets = secrets if run is None else secrets | run.secrets
        error = without_secrets(error, secrets) if secrets else error
        key = (words, *facts.values(), type(error).__name__)
        self._limit.log(key, self._log, _ERROR, words, facts | {"error": described(error)}, _trimmed(error))

    def _dump(
        self, threads: Mapping[str, list[str]], tasks: Mapping[str, list[str]], file: str | None = None, **_: Any
    ) -> None:
        """The stack of every thread and task, at every level below error: it was asked for."""
        for kind, stacks in (("thread", threads), ("task", tasks)):
            for one, frames in stacks.items():
                log_text(self._log, _WARNING, "stack", "\n".join(frames), of=f"{kind} {one}")
        if file is not None:
            self._log.warning("every stack, and what runs there, was written down", extra={"file": file})

    def _plain(self, name: str) -> Listener:
        level, words = PLAIN[name]

        def write(**facts: Any) -> None:
            shown: Facts = {}
            for key, value in facts.items():
                shown |= _of_fact(key, value)
            self._limit.log((name, str(shown.get("class", ""))), self._log, level, words, shown)

        return write


def log_text(logger: logging.Logger, level: int, message: str, text: str, **facts: Any) -> None:
    """A line with ``text``, such as a stack of another thread or process, where a traceback would stand."""
    if logger.isEnabledFor(level):
        record = logger.makeRecord(logger.name, level, __file__, 0, message, (), None, extra=facts, sinfo=text or None)
        logger.handle(record)


# ---- runs, stored jobs and errors as fields and words of a line


def level_of(run: Any) -> int:
    """The least level at which the job of ``run`` wants to be written of: its ``log_level``; 0 without one."""
    job = getattr(getattr(run, "unit", run), "job", None)
    level = job.get("log_level") if isinstance(job, Mapping) else None
    return _LEVELS.get(level, 0) if isinstance(level, str) else 0


def _of_run(run: Any) -> Facts:
    """A run; its secrets go with it, for the formatter."""
    facts = {"jid": run.jid, "class": run.name, "queue": run.queue}
    pushed = run.unit.job.get("class")
    if pushed != run.name and run.unit.source is None:  # under an alias
        facts["pushed_as"] = pushed
    return facts | {"hm_secrets": run.secrets} if run.secrets else facts


def _of_outcome(outcome: Any, attempt: int) -> Facts:
    facts: Facts = {"attempt": attempt} if attempt > 1 else {}
    facts |= {"in": round(outcome.delay, 1)} if outcome.delay else {}
    facts |= {"cause": outcome.cause} if outcome.cause else {}
    return facts | {"reason": outcome.reason} if outcome.reason else facts


def _of_job(job: Mapping[str, Any], queue: Any = None) -> Facts:
    facts = {"jid": job.get("jid"), "class": job.get("class"), "queue": queue or job.get("queue")}
    return {name: value for name, value in facts.items() if value is not None}


def _of_fact(name: str, value: Any) -> Facts:
    """One fact of an event as fields of a line."""
    if name == "run":
        return _of_run(value)
    if name == "unit":
        if not isinstance(value, bytes):
            return _of_job(value.job, value.flight.queue)
        try:
            return _of_job(payload.decode(value))
        except PayloadError:
            return {"payload": _brief(value)}
    if isinstance(value, BaseException):
        return {name: described(value)}
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value[:20]))
    return {f"{name}_" if name in _TAKEN else name: value}  # a record has fields of its own under these names


def _brief(value: Any) -> str:
    return shorten(repr(value), 300)


def _trimmed(error: BaseException) -> Any:
    """``exc_info`` for ``error``, beginning where the user's code does."""
    tb = error.__traceback__
    while tb is not None and any(part in tb.tb_frame.f_code.co_filename for part in _OWN_FRAMES):
        tb = tb.tb_next
    return type(error), error, tb if tb is not None else error.__traceback__
