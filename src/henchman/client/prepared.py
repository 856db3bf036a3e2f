"""The payload fields that options of a definition and of a push give: prepared once, used for every push."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from henchman.client.membership import Membership
from henchman.client.options import JobOptions, PushOptions
from henchman.wire.arguments import Signature
from henchman.wire.payload import Template

__all__ = ["Admission", "PreparedPush", "prepare"]

Admission = Literal["created", "duplicate", "blocked", "deferred", "buffered", "stopped"]


class PreparedPush(NamedTuple):
    """A payload as far as it is the same for every push of one job with one set of options.

    ``group``: the batch of the jobs. ``result_ttl``: seconds that a result is kept, None when none is. ``function``:
    the job's own, where it is known. ``timed``: workers compare times of its payloads with the server's clock, so take
    them from there too. ``is_plain``: its jobs are only pushed, without a record in history. ``may_wait``: they have a
    delay or a time. ``parked``: they wait until their batch is released. ``admission``: how the server receives them.
    """

    template: Template
    queue: str
    delay: float
    at: float | None
    group: Membership | None = None
    result_ttl: float | None = None
    function: Any = None
    timed: bool = False
    is_plain: bool = True
    may_wait: bool = False
    parked: bool = False
    admission: Admission = "created"

    def scheduled(self, now: float) -> bool:
        """Whether it goes to the schedule: due later than now. A past ``at`` is due now."""
        return self.delay > 0 or (self.at is not None and self.at > now)

    def when(self, scheduled: bool) -> str:
        """When its jobs are due, as a tracked push says it."""
        due = "" if not scheduled else repr(float(self.at)) if self.at is not None else f"+{float(self.delay)!r}"
        return "parked" + due if self.parked else due


def prepare(
    name: str,
    options: JobOptions,
    push: PushOptions,
    group: Membership | None = None,
    function: Any = None,
    signature: Signature | None = None,
) -> PreparedPush:
    """The payload fields that ``options`` of the definition and ``push`` give to jobs of ``group``, or of no batch."""
    retry_for = options.retry_for if push.retry_for is None else push.retry_for
    queue = push.queue or options.queue
    retry = options.retry if push.retry is None else push.retry
    fields: dict[str, Any] = {"retry": retry, "queue": queue, "class": name}
    tracked = options.track if push.track is None else push.track
    result_ttl = options.result_ttl if push.result_ttl is None else push.result_ttl
    optional = {
        "retry_for": math.ceil(retry_for) if retry_for else None,
        "retry_queue": options.retry_queue,
        "dead": None if options.dead else False,
        "backtrace": options.backtrace or None,
        "tags": list(options.tags if push.tags is None else push.tags) or None,
        "log_level": options.log_level,
        "hm": _own_fields(options, push, group, tracked, result_ttl, signature) or None,
    }
    fields |= {key: value for key, value in optional.items() if value is not None}
    parked = group is not None and group.atomic
    return PreparedPush(
        Template(fields),
        queue,
        push.delay or 0.0,
        push.at,
        group,
        result_ttl,
        function,
        push.at is not None or push.expires is not None or options.expires is not None,
        is_plain=group is None and not tracked,
        may_wait=bool(push.delay) or push.at is not None,
        parked=parked,
        admission="blocked" if parked else "created",
    )


def _own_fields(
    options: JobOptions,
    push: PushOptions,
    group: Membership | None,
    tracked: bool | None,
    result_ttl: float | None,
    signature: Signature | None,
) -> dict[str, Any]:
    """What stands under ``hm``."""
    fields = {
        "timeout": push.timeout,
        "expires": push.expires,
        "iterable": options.iterable or None,
        "batch": group.id if group else None,
        "batch_expires": group.expires if group else None,
        "track": tracked or None,
        "result_ttl": result_ttl,
        "secret": signature.secret_places if signature is not None else None,
    }
    return {key: value for key, value in fields.items() if value is not None}
