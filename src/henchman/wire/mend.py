"""Fields that break a page of Sidekiq's Web UI, put right before a job is stored where those pages look.

A page shows 25 jobs; one with text where it expects a list answers 500 for all of them (wire format, section 12.2).
Jobs are stored by us after a failure, and by hand; what they say otherwise is kept as it came.
"""

from __future__ import annotations

from typing import Any

from henchman.kernel.ids import new_jid
from henchman.wire import backtrace, names, times

__all__ = ["mend"]

_TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")


def mend(job: dict[str, Any]) -> bool:
    """Put right, in ``job`` itself, what breaks pages; whether anything had to be."""
    before = dict(job)
    for field in _TIMES:
        if field in job:
            _mend_time(job, field)
    if "tags" in job:
        _mend_tags(job)
    if job.get("error_backtrace") is not None:
        _mend_backtrace(job)
    if job.get("encrypt") and not job.get("args"):
        del job["encrypt"]  # they replace the last argument
    for field in [one for one in job if one.startswith("cattr") and isinstance(job[one], str)]:
        del job[field]
    if not job.get("jid"):
        job["jid"] = new_jid()
    if names.is_wrapper(job.get("class")) and job.get("wrapped"):
        _mend_wrapped(job)
    return job != before


def _mend_time(job: dict[str, Any], field: str) -> None:
    seconds = times.read(job[field])
    if seconds is None:
        del job[field]
    elif isinstance(job[field], str):
        job[field] = times.rounded(seconds)


def _mend_tags(job: dict[str, Any]) -> None:
    tags = job["tags"]
    if isinstance(tags, str):
        job["tags"] = [tags]
    elif not isinstance(tags, list):
        del job["tags"]
    else:
        job["tags"] = [one if isinstance(one, str) else str(one) for one in tags]


def _mend_backtrace(job: dict[str, Any]) -> None:
    text = job["error_backtrace"]
    lines = backtrace.expand(text)
    if lines is None:
        del job["error_backtrace"]
    elif not isinstance(text, str):
        job["error_backtrace"] = backtrace.compress(lines)


def _mend_wrapped(job: dict[str, Any]) -> None:
    """They look for the arguments of an ActiveJob in the first one; where there are none, only its name is kept."""
    args = job.get("args")
    first = args[0] if args else None
    inner = first.get("arguments") if isinstance(first, dict) else None
    mail = job["wrapped"] == "ActionMailer::MailDeliveryJob"
    if isinstance(inner, list) and (not mail or (len(inner) > 3 and isinstance(inner[3], dict))):
        return
    name = job.pop("wrapped")
    if isinstance(name, str):
        job.setdefault("display_class", name)
