"""What a definition, or one push, may say about a job: each option is checked where it is written. And the batch that a
push belongs to, as far as the push must know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from henchman.client.key_options import KEYED, problem_of_key
from henchman.client.needs import policy, predecessors, problem_of_definition, pushed_after
from henchman.errors import DefinitionError
from henchman.isolation.options import Isolated, isolated
from henchman.kernel.text import as_shown, did_you_mean
from henchman.limits.kinds import Limit, checked_limits
from henchman.store.call import Call, command
from henchman.store.keys import Keys

__all__ = [
    "KEYED",
    "OUTSIDE",
    "JobOptions",
    "Membership",
    "PushOptions",
    "checked_name",
    "checked_seconds",
    "definition_options",
    "flag",
    "named_options",
    "push_options",
    "texts",
    "within",
    "wrong",
]

#: what other systems call our options
ELSEWHERE: Final[Mapping[str, str]] = {
    "max_retries": "retry",
    "countdown": "delay",
    "eta": "at",
    "time_limit": "timeout",
    "queue_name": "queue",
    "unique_for": "once_for",
    "lock": "unique",
}

RetryIn = float | Callable[..., Any] | None
Classes = tuple[type[BaseException], ...]
Key = tuple[str, ...] | Callable[..., Any] | None
MOST_ONCE: Final = 180 * 86400.0  # seconds
ONCE_FOR: Final = 7 * 86400.0


class JobOptions(msgspec.Struct, frozen=True):
    """The options of ``@app.job``. Durations are seconds.

    ``retry``: True (the configured number, 25), False (an error is forgotten), N retries; 0 means: dead at the first
    error. ``retry_in``: seconds, or a function of (count) or (count, exception) that returns seconds or None;
    ``retry_for``: give up this long after the first error; ``retry_on``/``no_retry_on``: only / never retry these.
    ``retries_exhausted(job, exception)`` is called when a job gives up. ``dead=False`` keeps it out of the dead set.
    ``timeout``: how long one run may take; ``expires``: not started later than this after it became due; ``deadline``:
    over, with all its attempts, so long after it first became due.
    ``secret``, ``encrypt``: parameters that are masked wherever people look, that travel encrypted (True: all).
    ``ack="each"``: a run is settled in a call of its own before its slot is free, so that a kill can run again at most
    one finished run a slot; "batched", the default, settles many at once, at most 5 ms late.
    ``track=True``: the life of each job is written into history, also outside batches. ``result_ttl``: how long what it
    returned, or raised, is kept for ``handle.result()``.

    ``key``: names of parameters, or a function of the arguments: jobs of one ``scope`` (default: the name of the job)
    with the same key are one piece of work. ``once``: accepted once, remembered for ``once_for`` after its end.
    ``unique``: at most one "until_success", "queued" or "running". ``on_conflict``: what becomes of another one: skip,
    raise, replace, wait. ``debounce``: run so long after the last push, at the latest ``debounce_most`` after the
    first. ``throttle``: at most one push in so long. ``key_options.py`` has which go together.

    ``after``: jobs whose job of the same key must have succeeded first. ``on_failed``: what becomes of this one when
    such a job is over without success: "wait", "run", "fail" or "cancel"; ``on_dead``: when it is dead;
    ``wait_at_most``: and after so long. ``followed=True``: others may wait for jobs of this definition.

    ``limits``: how many may run at once, or start in a time, all of them together: Concurrent, Leaky, Window, Bucket,
    Points. ``max_wait``: a job that would wait longer for them is dead.

    ``aliases``: the names it had before, oldest first: jobs of these names run as this one; its scope is the first.

    ``fair_by``: names of parameters, or a function of the arguments: the tenant. Tenants of a queue are served in turn.
    ``priority``: "high", "normal" or "low", within its queue; either makes the queue a fair one.

    ``isolate``: each run has a process of its own for its time: True, or ``Isolated(memory=…, reuse=…, grace=…)``.
    """

    queue: str = "default"
    retry: bool | int = True
    retry_in: RetryIn = None
    retry_for: float | None = None
    retry_on: Classes = ()
    no_retry_on: Classes = ()
    retries_exhausted: Callable[..., Any] | None = None
    retry_queue: str | None = None
    dead: bool = True
    backtrace: bool | int = False
    timeout: float | None = None
    expires: float | None = None
    deadline: float | None = None
    tags: tuple[str, ...] = ()
    log_level: str | None = None
    secret: tuple[str, ...] = ()
    encrypt: tuple[str, ...] | bool = False
    ack: str = "batched"
    track: bool = False
    result_ttl: float | None = None
    key: Key = None
    once: bool = False
    once_for: float | None = None
    unique: tuple[str, ...] = ()
    on_conflict: str | None = None
    scope: str | None = None
    debounce: float | None = None
    debounce_most: float | None = None
    throttle: float | None = None
    after: tuple[Any, ...] = ()
    followed: bool = False
    on_failed: str | None = None
    on_dead: str | None = None
    wait_at_most: float | None = None
    fair_by: Key = None
    priority: str | None = None
    limits: tuple[Limit, ...] = ()
    max_wait: float | None = None
    isolate: Isolated | None = None
    aliases: tuple[str, ...] = ()
    iterable: bool = False  # by @app.iterable, not by an option: its payloads say so, for whoever ends such a job


class PushOptions(msgspec.Struct, frozen=True):
    """The options of ``using``: what one push says differently. None: as defined; ``batch`` ``OUTSIDE``: in none.

    Of a transactional app: ``now`` pushes at once whatever transaction is open, ``db`` (an alias of Django) and
    ``session`` (of SQLAlchemy) name the transaction whose commit the push waits for.
    ``outbox``: the session or connection whose transaction the job is part of; True: the one that is bound here.
    ``line``: jobs of one line leave the outbox in the order in which their transactions were committed.
    ``after``: jobs, and needs for handles and ids, beside those of the definition. ``limits``: in place of its own.
    ``priority``: before or behind others of its queue, where that is a fair one.
    """

    queue: str | None = None
    retry: bool | int | None = None
    retry_for: float | None = None
    timeout: float | None = None
    expires: float | None = None
    deadline: float | datetime | None = None
    tags: tuple[str, ...] | None = None
    delay: float | None = None
    at: float | None = None
    track: bool | None = None
    result_ttl: float | None = None
    batch: Membership | None = None
    now: bool | None = None
    db: str | None = None
    session: Any = None
    outbox: Any = None
    line: str | None = None
    again: bool | None = None
    after: tuple[Any, ...] | None = None
    followed: bool | None = None
    on_failed: str | None = None
    on_dead: str | None = None
    wait_at_most: float | None = None
    priority: str | None = None
    limits: tuple[Limit, ...] | None = None
    max_wait: float | None = None


def wrong(name: str, value: object, due: str) -> DefinitionError:
    """The error for the option ``name`` that may not be ``value``; ``due`` says what it may be."""
    return DefinitionError(f"{name}={as_shown(value, 200)}: {due}")


def checked_name(value: object, *, option: str = "name", of: str = "a job") -> str:
    """A name as the wire, logs and people take it; DefinitionError when it cannot be one."""
    if not isinstance(value, str) or not 0 < len(value) <= 500 or not value.isprintable():
        raise wrong(option, value, f"{of} is named by a printable text of 1 to 500 characters")
    return value


def checked_seconds(name: str, value: Any, *, zero: bool = False) -> float:
    """A duration in seconds; DefinitionError when it is none."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise wrong(name, value, "give seconds or a timedelta")
    if not (seconds >= 0 if zero else seconds > 0) or not seconds < 1e10:
        raise wrong(name, value, f"give {'zero' if zero else 'more than zero'} up to 10,000,000,000 seconds")
    return float(seconds)


def _retry_for(name: str, value: Any) -> float:
    seconds = checked_seconds(name, value)
    if seconds > 1e9:
        raise wrong(name, value, "give up to 1,000,000,000 seconds (31 years), or leave it out")
    return seconds


def _retry(name: str, value: Any) -> bool | int:
    if isinstance(value, bool) or (isinstance(value, int) and 0 <= value <= 10_000):
        return value
    raise wrong(name, value, "give True, False or a number of retries from 0 to 10,000")


def _backtrace(name: str, value: Any) -> bool | int:
    if isinstance(value, bool) or (isinstance(value, int) and value >= 0):
        return value
    raise wrong(name, value, "give True, False or a number of lines")


def _queue(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or len(value) > 200:
        raise wrong(name, value, "a queue is named by a text of 1 to 200 characters")
    if not all(char.isascii() and (char.isalnum() or char in "_:.-") for char in value):
        raise wrong(name, value, "a queue's name holds only letters, digits and _ : . -")
    return value


def texts(name: str, value: Any) -> tuple[str, ...]:
    """Several texts; DefinitionError also for one text alone, which a loop would take letter by letter."""
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(one, str) for one in value):
        raise wrong(name, value, f"give a list of texts, as in {name}=['vip']")
    return tuple(value)


def _encrypt(name: str, value: Any) -> tuple[str, ...] | bool:
    return value if isinstance(value, bool) else texts(name, value)


def _classes(name: str, value: Any) -> Classes:
    many = value if isinstance(value, (tuple, list, set, frozenset)) else (value,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in many):
        raise wrong(name, value, "give one exception class or several")
    return tuple(many)


def _retry_in(name: str, value: Any) -> RetryIn:
    return value if callable(value) else checked_seconds(name, value, zero=True)


def _callable(name: str, value: Any) -> Callable[..., Any]:
    if not callable(value):
        raise wrong(name, value, "give a function")
    return value  # type: ignore[no-any-return]  # callable() narrows to a function of unknown result


def flag(name: str, value: Any) -> bool:
    """True or False; DefinitionError for anything else."""
    if not isinstance(value, bool):
        raise wrong(name, value, "give True or False")
    return value


def _level(name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in {"debug", "info", "warning", "warn", "error", "fatal"}:
        raise wrong(name, value, "give debug, info, warning or error")
    return value


def _ack(name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in {"batched", "each"}:
        raise wrong(name, value, "give batched or each")
    return value


def _at(name: str, value: Any) -> float:
    if not isinstance(value, datetime):
        raise wrong(name, value, "give a datetime with a time zone (or delay= for seconds)")
    if value.utcoffset() is None:
        raise wrong(name, value, "this datetime has no time zone; add one, as in datetime.now(UTC)")
    return value.timestamp()


def _or_none(name: str, value: Any) -> float:
    return checked_seconds(name, value, zero=True)


def _deadline(name: str, value: Any) -> float | datetime:
    return value if isinstance(value, datetime) and _at(name, value) else _or_none(name, value)


def _batch(name: str, value: Any) -> Membership:
    if value is None:
        return OUTSIDE
    membership = getattr(value, "membership", None)
    if not isinstance(membership, Membership):
        raise wrong(name, value, "give a batch, as app.batch(…) or app.get_batch(id) makes it, or None")
    return membership


def _db(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise wrong(name, value, "give the alias of a database, as in Django's DATABASES")
    return value


def _session(name: str, value: Any) -> Any:
    if isinstance(value, type) or not callable(getattr(value, "commit", None)):
        raise wrong(name, value, "give a Session or an AsyncSession of SQLAlchemy")
    return value


def _outbox(name: str, value: Any) -> Any:
    if isinstance(value, bool) or hasattr(value, "cursor") or hasattr(value, "execute"):
        return value
    raise wrong(name, value, "give True, or a session or connection of SQLAlchemy or Django")


def _line(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 64 or not value.isprintable():
        raise wrong(name, value, "a line is named by a printable text of 1 to 64 characters")
    return value


def _key(name: str, value: Any) -> Key:
    if callable(value):
        return value  # type: ignore[no-any-return]  # a function of unknown result: judged when it is called
    many = (value,) if isinstance(value, str) else value
    if not isinstance(many, (tuple, list)) or not many or not all(isinstance(one, str) and one for one in many):
        raise wrong(name, value, "give the name of a parameter, a tuple of names, or a function of the arguments")
    return tuple(many)


def _once_for(name: str, value: Any) -> float:
    seconds = checked_seconds(name, value)
    if not 1 <= seconds <= MOST_ONCE:
        raise wrong(name, value, "give 1 second up to 180 days")
    return seconds


_UNIQUE: Final = ("queued", "running", "until_success")


def _unique(name: str, value: Any) -> tuple[str, ...]:
    many = (value,) if isinstance(value, str) else value
    known = isinstance(many, (tuple, list, set, frozenset)) and all(one in _UNIQUE for one in many)
    if not known or not many:
        raise wrong(name, value, "give 'queued', 'running' or 'until_success', or a tuple of them")
    return tuple(sorted(set(many)))


def _on_conflict(name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in {"skip", "raise", "replace", "wait"}:
        raise wrong(name, value, "give 'skip', 'raise', 'replace' or 'wait'")
    return value


def _priority(name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in {"high", "normal", "low"}:
        raise wrong(name, value, "give 'high', 'normal' or 'low'")
    return value


def _aliases(name: str, value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(checked_name(one, option=name) for one in texts(name, value)))


def _scope(name: str, value: Any) -> str:
    return checked_name(value, option=name, of="a scope")


_CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "queue": _queue,
    "retry": _retry,
    "retry_in": _retry_in,
    "retry_for": _retry_for,
    "retry_on": _classes,
    "no_retry_on": _classes,
    "retries_exhausted": _callable,
    "retry_queue": _queue,
    "dead": flag,
    "backtrace": _backtrace,
    "timeout": _or_none,
    "expires": checked_seconds,
    "deadline": _deadline,
    "tags": texts,
    "log_level": _level,
    "secret": texts,
    "encrypt": _encrypt,
    "ack": _ack,
    "delay": _or_none,
    "at": _at,
    "track": flag,
    "result_ttl": checked_seconds,
    "batch": _batch,
    "now": flag,
    "db": _db,
    "session": _session,
    "outbox": _outbox,
    "line": _line,
    "key": _key,
    "once": flag,
    "once_for": _once_for,
    "unique": _unique,
    "on_conflict": _on_conflict,
    "scope": _scope,
    "debounce": checked_seconds,
    "debounce_most": checked_seconds,
    "throttle": checked_seconds,
    "again": flag,
    "after": predecessors,
    "followed": flag,
    "on_failed": policy,
    "on_dead": policy,
    "wait_at_most": checked_seconds,
    "limits": checked_limits,
    "max_wait": checked_seconds,
    "isolate": isolated,
    "fair_by": _key,
    "priority": _priority,
    "aliases": _aliases,
}
_DEFINED = tuple(name for name in JobOptions.__struct_fields__ if name != "iterable")
_PUSHED = PushOptions.__struct_fields__
_TRAVELLING = (*_PUSHED, "retry_queue", "dead", "backtrace", "log_level")  # what a payload says by itself


def _checked(where: str, given: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    checked = {}
    for name, value in given.items():
        if name == "cron":
            raise DefinitionError(f"{where}: write @app.cron({as_shown(value, 200)}) above @app.job")
        if name not in known:
            near = f"; it is called {ELSEWHERE[name]}=" if ELSEWHERE.get(name) in known else did_you_mean(name, known)
            raise DefinitionError(f"{where}: there is no option {name}={near}")
        check = pushed_after if name == "after" and known is not _DEFINED else _CHECKS[name]
        checked[name] = check(name, value) if value is not None or name == "batch" else None
    return checked


def definition_options(where: str, given: Mapping[str, Any]) -> JobOptions:
    """The options of a definition, checked; DefinitionError names ``where`` and what is wrong."""
    checked = _checked(where, given, _DEFINED)
    if isinstance(checked.get("deadline"), datetime):
        raise DefinitionError(
            f"{where}: deadline= of a definition is seconds after its job is due; a moment is that of a push"
        )
    made = JobOptions(**{name: value for name, value in checked.items() if value is not None})
    if (
        made.aliases and made.key is not None and made.scope is None
    ):  # its keys go on: what is held and remembered there
        made = msgspec.structs.replace(made, scope=made.aliases[0])
    if problem := problem_of_key(made) or problem_of_definition(made):
        raise DefinitionError(f"{where}: {problem}")
    if made.max_wait is not None and not made.limits:
        raise DefinitionError(f"{where}: max_wait= says how long a job waits for its limits=, and there are none")
    return made


def push_options(where: str, given: Mapping[str, Any], base: PushOptions) -> PushOptions:
    """``base`` with what ``given`` says differently, checked; ``delay`` and ``at`` exclude each other."""
    checked = _checked(where, given, _PUSHED)
    made = msgspec.structs.replace(base, **checked)
    if made.delay is not None and made.at is not None:
        raise DefinitionError(f"{where}: give delay= or at=, not both")
    if made.at is not None and isinstance(made.deadline, datetime) and made.deadline.timestamp() < made.at:
        raise DefinitionError(f"{where}: at= is after deadline=, so that it would never run")
    if made.db is not None and made.session is not None:
        raise DefinitionError(f"{where}: give db= or session=, not both")
    return made


def named_options(name: str, given: Mapping[str, Any], defined: JobOptions | None) -> tuple[JobOptions, PushOptions]:
    """The options of a push by name; ``defined`` None: the job is not defined here, so only what travels is taken."""
    if defined is not None:
        return defined, push_options(name, given, PushOptions())
    rest, travelling = dict(given), _TRAVELLING
    keyed = [option for option in (*KEYED, "followed") if given.get(option) is not None]
    if flag("foreign", rest.pop("foreign", False)):
        travelling += KEYED
    elif keyed:
        raise DefinitionError(
            f"{name}: {keyed[0]}= of a job that is not defined in this app: where another program ends it, its key is "
            "not given back. Define the job here, or say foreign=True and give the key back with app.keys.unlock"
        )
    for option in rest:
        if option in _DEFINED and option not in travelling:
            raise DefinitionError(f"{name}: {option}= cannot travel with a job; say it where the job is defined")
    if rest.get("key") is not None:
        rest["key"] = _key_itself(rest["key"])
    _checked(name, rest, travelling)
    at_push = {option: value for option, value in rest.items() if option in _PUSHED}
    defines = {option: value for option, value in rest.items() if option not in _PUSHED}
    return definition_options(name, defines), push_options(name, at_push, PushOptions())


def _key_itself(value: Any) -> Callable[..., Any]:
    """A push by name says the key, and not where it stands among the arguments."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise wrong("key", value, "give the key itself, a text or an integer")
    return lambda *_, **__: value


class Membership:
    """A batch as its pushes see it. ``expires`` is a Unix time; those of an ``atomic`` one are parked till its end.
    ``results``: it keeps what its jobs return.

    ``member``: the running job that adds to its own batch. ``known``: False for a batch that was made elsewhere, until
    ``learn`` was carried out.
    """

    __slots__ = ("atomic", "expires", "id", "known", "member", "results")

    def __init__(
        self,
        batch: str,
        *,
        member: str = "",
        expires: float | None = None,
        atomic: bool = False,
        results: bool = False,
        known: bool = True,
    ) -> None:
        self.id = batch
        self.member = member
        self.expires = expires
        self.atomic = atomic
        self.results = results
        self.known = known

    def learn(self, keys: Keys) -> Call[None]:
        """Ask the server for what pushes must know."""

        def read(reply: Any) -> None:
            self.expires = float(reply[0]) if reply[0] else None
            self.atomic = reply[1] == b"1" and reply[2] in (b"open", None)
            self.results = reply[3] == b"1"
            self.known = True

        return command("HMGET", keys.batch(self.id), "expires", "atomic", "state", "results", decode=read)


#: in place of a batch: the push belongs to none, whatever block it is in
OUTSIDE = Membership("")
#: the batch whose block this thread or task is in
within: ContextVar[Membership | None] = ContextVar("henchman_batch", default=None)
