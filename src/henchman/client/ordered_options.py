"""What the definition of an ordered queue says. Each option is checked in ``henchman.ordered.definition``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

__all__ = ["Collapse", "OrderedOptions"]

Collapse = Literal["min", "latest", "none"]


class OrderedOptions(msgspec.Struct, frozen=True):
    """The options of ``@app.ordered`` that plain jobs do not have; the rest stands in ``JobOptions``.

    ``claim_size``: ids a call gets at most; ``payload_cap``: payloads an id has in a call at most. ``max_parallel``:
    calls at a time over all processes, None: no limit; ``max_per_group``: ids at a time of one group, which is what
    stands before ``group_separator`` in an id. ``max_retries``: failures after which the lowest payload of an id goes
    to the morgue; ``retry_in``: seconds, or a function of (count) or (count, exception), count 0 at the first failure;
    None: ``count**4 + 15 + rand(30) * (count + 1)``. ``collapse``: "min" (equal payloads of an id are one, the lower
    score stays), "latest" (only the highest score of an id is kept), "none" (all are kept, equal scores in order of
    arrival). ``retries_exhausted(items)`` is called with ``[{"id", "payloads": [[payload, score]], "error"}]``.
    ``partitions``: into how many queues (``<queue>.0`` …) the ids are dealt by CRC32, as Lowkiq's shards; None: one.
    """

    claim_size: int = 1
    payload_cap: int = 1000
    max_parallel: int | None = None
    max_per_group: int | None = None
    group_separator: str = "/"
    max_retries: int = 25
    retry_in: float | Callable[..., Any] | None = None
    collapse: Collapse = "min"
    retries_exhausted: Callable[..., Any] | None = None
    partitions: int | None = None
