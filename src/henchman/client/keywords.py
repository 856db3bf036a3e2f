"""The options of jobs, pushes and ordered queues as type checkers and editors see them: ``**options: Unpack[…]``.

What an option means, and how it is checked, stands in ``options.py``. None is as if nothing were said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypedDict

from henchman.client.needs import Need, Policy
from henchman.client.options import Membership
from henchman.isolation.options import Isolated
from henchman.limits.kinds import Limit

__all__ = [
    "JobKeywords",
    "LogLevel",
    "NamedKeywords",
    "OrderedKeywords",
    "Priority",
    "PushKeywords",
    "Seconds",
    "Texts",
    "Unique",
]

Seconds = float | timedelta
Texts = list[str] | tuple[str, ...] | set[str] | frozenset[str]  # not one text, which is letters to a loop
Classes = type[BaseException] | Collection[type[BaseException]]
LogLevel = Literal["debug", "info", "warning", "warn", "error", "fatal"]
Priority = Literal["high", "normal", "low"]
Unique = Literal["queued", "running", "until_success"]


class HasMembership(Protocol):
    """A batch, as ``app.batch(…)`` and ``app.get_batch(id)`` give it."""

    @property
    def membership(self) -> Membership: ...


class HasTransaction(Protocol):
    """A Session, AsyncSession or scoped session of SQLAlchemy."""

    def commit(self) -> Any: ...


class IsFollowed(Protocol):
    """The handle of a job, as ``enqueue`` gives it."""

    @property
    def need(self) -> Need | None: ...


class HasJob(Protocol):
    """A job, as ``@app.job`` and ``@app.iterable`` make it."""

    @property
    def job(self) -> Any: ...


Before = IsFollowed | HasJob | str  # a handle, a job, an id


class NeedKeywords(TypedDict, total=False):
    """What becomes of a job that waits for others, and whether others may wait for it."""

    followed: bool | None
    on_failed: Policy | None
    on_dead: Policy | None
    wait_at_most: Seconds | None


class KeyKeywords(TypedDict, total=False):
    """What a business key is good for, as a definition and a push by name say it."""

    once: bool | None
    once_for: Seconds | None
    unique: Unique | tuple[Unique, ...] | None
    on_conflict: Literal["skip", "raise", "replace", "wait"] | None
    scope: str | None
    debounce: Seconds | None
    debounce_most: Seconds | None
    throttle: Seconds | None


class JobKeywords(KeyKeywords, NeedKeywords, total=False):
    """Those of ``@app.job`` and ``@app.iterable``."""

    queue: str | None
    retry: bool | int | None
    retry_in: Seconds | Callable[..., Any] | None
    retry_for: Seconds | None
    retry_on: Classes | None
    no_retry_on: Classes | None
    retries_exhausted: Callable[..., Any] | None
    retry_queue: str | None
    dead: bool | None
    backtrace: bool | int | None
    timeout: Seconds | None
    expires: Seconds | None
    deadline: Seconds | None
    tags: Texts | None
    log_level: LogLevel | None
    secret: Texts | None
    encrypt: Texts | bool | None
    ack: Literal["batched", "each"] | None
    track: bool | None
    result_ttl: Seconds | None
    key: str | tuple[str, ...] | Callable[..., str | int] | None
    after: HasJob | Collection[HasJob] | None
    fair_by: str | tuple[str, ...] | Callable[..., str | int | None] | None
    priority: Priority | None
    limits: Limit | Collection[Limit] | None
    max_wait: Seconds | None
    isolate: bool | Isolated | None
    aliases: list[str] | tuple[str, ...] | None


class PushKeywords(NeedKeywords, total=False):
    """Those of ``using``."""

    queue: str | None
    retry: bool | int | None
    retry_for: Seconds | None
    timeout: Seconds | None
    expires: Seconds | None
    deadline: Seconds | datetime | None
    tags: Texts | None
    delay: Seconds | None
    at: datetime | None
    track: bool | None
    result_ttl: Seconds | None
    batch: HasMembership | None
    now: bool | None
    db: str | None
    session: HasTransaction | None
    outbox: Any  # True, or a session or connection of SQLAlchemy or Django
    line: str | None
    again: bool | None
    limits: Limit | Collection[Limit] | None
    max_wait: Seconds | None
    after: Before | Collection[Before] | None
    priority: Priority | None


class NamedKeywords(PushKeywords, KeyKeywords, total=False):
    """Those of ``app.enqueue``: what can travel with a job that is known only by name.

    ``key`` is the key itself here; it and what belongs to it are for jobs that are ``foreign``.
    """

    retry_queue: str | None
    dead: bool | None
    backtrace: bool | int | None
    log_level: LogLevel | None
    foreign: bool | None
    key: str | int | None


class OrderedKeywords(TypedDict, total=False):
    """Those of ``@app.ordered``."""

    queue: str | None
    timeout: Seconds | None
    log_level: LogLevel | None
    track: bool | None
    claim_size: int | None
    payload_cap: int | None
    max_parallel: int | None
    max_per_group: int | None
    group_separator: str | None
    max_retries: int | None
    retry_in: Seconds | Callable[..., Any] | None
    collapse: Literal["min", "latest", "none"] | None
    retries_exhausted: Callable[..., Any] | None
    partitions: int | None
