"""What the options of a definition and of a push say, as payload fields: made once, used for every push."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from henchman.client.options import JobOptions, PushOptions
from henchman.wire.payload import Template

__all__ = ["Draft", "draft"]


class Draft(NamedTuple):
    """A payload as far as it is the same for every push of one job with one set of options."""

    template: Template
    queue: str
    delay: float
    at: float | None

    def scheduled(self, now: float) -> bool:
        """Whether it goes to the schedule: due later than now. A past ``at`` is due now."""
        return self.delay > 0 or (self.at is not None and self.at > now)


def draft(name: str, options: JobOptions, push: PushOptions) -> Draft:
    """What ``options`` of the definition and of the push say, as payload fields."""
    retry = options.retry if push.retry is None else push.retry
    retry_for = options.retry_for if push.retry_for is None else push.retry_for
    queue = push.queue or options.queue
    fields: dict[str, Any] = {"retry": retry, "queue": queue, "class": name}
    tags = options.tags if push.tags is None else push.tags
    ours = {"timeout": push.timeout, "expires": push.expires, "iterable": options.iterable or None}
    optional = {
        "retry_for": math.ceil(retry_for) if retry_for else None,
        "retry_queue": options.retry_queue,
        "dead": None if options.dead else False,
        "backtrace": options.backtrace or None,
        "tags": list(tags) or None,
        "log_level": options.log_level,
        "hm": {key: value for key, value in ours.items() if value is not None} or None,
    }
    fields |= {key: value for key, value in optional.items() if value is not None}
    return Draft(Template(fields), queue, push.delay or 0.0, push.at)
