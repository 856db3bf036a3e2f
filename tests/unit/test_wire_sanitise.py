"""What breaks pages of Sidekiq is put right; everything else stays as it came."""

from __future__ import annotations

from typing import Any

import pytest

from henchman.wire import payload
from henchman.wire.payload import sanitise

WRAPPER = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"
PACKED = payload.compress_backtrace(["a.py:1:in b"])


@pytest.mark.parametrize(
    ("field", "value", "becomes"),
    [
        ("tags", "vip", ["vip"]),
        ("tags", ["vip", 7, None], ["vip", "7", "None"]),
        ("tags", {"a": 1}, ...),
        ("created_at", "2026-11-21T09:30:48Z", 1795253448.0),
        ("enqueued_at", "1795253448", 1795253448.0),
        ("failed_at", "yesterday", ...),
        ("failed_at", 1e300, ...),
        ("retried_at", True, ...),
        ("retried_at", None, ...),
        ("error_backtrace", "nonsense", ...),
        ("error_backtrace", ["a.py:1:in b"], PACKED),
        ("encrypt", True, ...),
        ("cattr", "text", ...),
        ("cattr_2", "text", ...),
        ("jid", "", "made"),
    ],
)
def test_what_breaks_a_page_is_put_right(field: str, value: Any, becomes: Any) -> None:
    job = {"class": "A", "args": [], "jid": "j", "other": [1.0]} | {field: value}
    assert sanitise(job)
    if becomes == "made":
        assert len(job.pop("jid")) == 24
    elif becomes is ...:
        assert field not in job
    else:
        assert job[field] == becomes
    assert job["other"] == [1.0]


@pytest.mark.parametrize("args", [[], ["text"], [{}], [{"arguments": None}]])
def test_a_wrapper_without_arguments_keeps_the_name_of_its_job(args: list[Any]) -> None:
    job = {"class": WRAPPER, "wrapped": "MailJob", "args": args, "jid": "j"}
    assert sanitise(job)
    assert job == {"class": WRAPPER, "display_class": "MailJob", "args": args, "jid": "j"}


@pytest.mark.parametrize(
    "fields",
    [
        {"tags": ["a", "é"]},
        {"tags": []},
        {"created_at": 1795237919179, "enqueued_at": 1795237919.5, "failed_at": 1795237919},
        {"error_backtrace": PACKED},
        {"error_backtrace": None},
        {"encrypt": True, "args": ["secret"]},
        {"cattr": {"user": 7}, "cattr_1": [["user", 7]]},
        {"class": WRAPPER, "wrapped": "MailJob", "args": [{"arguments": []}]},
        {"wrapped": "MailJob"},
        {"unknown": "2026-11-21T09:30:48Z", "retry_count": "odd"},
    ],
)
def test_what_breaks_nothing_stays_as_it_came(fields: dict[str, Any]) -> None:
    job = {"class": "A", "args": [], "jid": "j"} | fields
    before = dict(job)
    assert not sanitise(job)
    assert job == before
