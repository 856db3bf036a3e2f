"""What is known of a run, a stored job, an error: as fields and words of a log line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from henchman.errors import PayloadError
from henchman.kernel.text import described
from henchman.wire import payload

__all__ = ["brief", "floor_of", "of_fact", "of_job", "of_run", "trimmed"]

_OWN_FRAMES = ("/henchman/worker/", "/henchman/kernel/")
_TAKEN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime"}


def of_run(run: Any) -> dict[str, Any]:
    """A run; its secrets go with it, for the formatter."""
    facts = {"jid": run.jid, "class": run.name, "queue": run.queue}
    return facts | {"hm_secrets": run.secrets} if run.secrets else facts


def of_job(job: Mapping[str, Any], queue: Any = None) -> dict[str, Any]:
    """A job as stored."""
    facts = {"jid": job.get("jid"), "class": job.get("class"), "queue": queue or job.get("queue")}
    return {name: value for name, value in facts.items() if value is not None}


def of_fact(name: str, value: Any) -> dict[str, Any]:
    """One fact of an event as fields of a line."""
    if name == "run":
        return of_run(value)
    if name == "unit":
        if isinstance(value, bytes):
            try:
                return of_job(payload.decode(value))
            except PayloadError:
                return {"payload": brief(value)}
        return of_job(value.job, value.flight.queue)
    if isinstance(value, BaseException):
        return {name: described(value)}
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, value[:20]))
    return {f"{name}_" if name in _TAKEN else name: value}  # a record has fields of its own under these names


def brief(value: Any) -> str:
    """``repr``, cut."""
    text = repr(value)
    return text if len(text) <= 300 else text[:299] + "…"


def trimmed(error: BaseException | None) -> Any:
    """``exc_info`` for ``error``, beginning where the user's code does."""
    if error is None:
        return None
    tb = error.__traceback__
    while tb is not None and any(part in tb.tb_frame.f_code.co_filename for part in _OWN_FRAMES):
        tb = tb.tb_next
    return type(error), error, tb if tb is not None else error.__traceback__


def floor_of(run: Any) -> int:
    """The least level at which the job of ``run`` wants to be written of: its ``log_level``; 0 without one."""
    job = getattr(run, "job", None)
    return _FLOORS.get(job.get("log_level"), 0) if isinstance(job, Mapping) else 0


_FLOORS: Mapping[object, int] = {"debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40, "fatal": 50}
