"""Names in payloads: what people are shown as the job's class, and what a queue may be called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from henchman.errors import ArgumentError

__all__ = ["QUEUE_NAME", "check_queue", "display_class", "is_wrapper"]

QUEUE_NAME = re.compile(r"[A-Za-z0-9_:.\-]+")
"""Sidekiq's Web UI answers 404 for the page of any other queue."""

_WRAPPERS = frozenset({"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", "Sidekiq::ActiveJob::Wrapper"})
_MAILERS = frozenset({"ActionMailer::DeliveryJob", "ActionMailer::MailDeliveryJob"})


def is_wrapper(name: object) -> bool:
    """Whether ``name`` is one of the classes in which Rails wraps its own jobs."""
    return isinstance(name, str) and name in _WRAPPERS


def display_class(job: Mapping[str, Any]) -> str:
    """The name to show for ``job``, as Sidekiq finds it; never fails, whatever the payload holds."""
    shown = job.get("display_class")
    if isinstance(shown, str) and shown:
        return shown
    name = job.get("class")
    if not is_wrapper(name):
        return _text(name)
    args = job.get("args")
    first = args[0] if isinstance(args, list) and args else None
    inner: Mapping[str, Any] = first if isinstance(first, dict) else {}
    wrapped = job.get("wrapped") or inner.get("job_class") or first
    if wrapped in _MAILERS if isinstance(wrapped, str) else False:
        arguments = inner.get("arguments")
        if isinstance(arguments, list) and arguments:
            return "#".join(_text(one) for one in arguments[:2])
    return wrapped if isinstance(wrapped, str) else _text(name)


def check_queue(name: object) -> str:
    """``name`` itself when a queue may be called so; ArgumentError otherwise."""
    if not isinstance(name, str):
        raise ArgumentError(f"{name!r} is not a queue name: it must be text")
    if not QUEUE_NAME.fullmatch(name):
        raise ArgumentError(f"{name[:100]!r} is not a queue name: letters, digits and _ : . - only, at least one")
    return name


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:200]
