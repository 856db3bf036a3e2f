"""Fair queues as the pushing side knows them: the tenant of a job, from its arguments, and which queues are fair."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from henchman.client.keyed import KeyRule
from henchman.client.options import JobOptions
from henchman.errors import ServerError
from henchman.store import fair
from henchman.store.call import Procedure
from henchman.store.keys import Keys
from henchman.wire.arguments import Signature

__all__ = ["fair_queues", "is_fair", "settled_in", "tenant_of"]


class _TenantRule(KeyRule):
    """How the tenant of one job follows from its arguments. None and an empty text are no tenant."""

    option, may_lack = "fair_by", True

    def _part(self, whence: str, value: Any) -> str:
        return "" if value is None or value == "" else super()._part(whence, value)

    @property
    def place(self) -> int | None:
        """Which argument, counted from 0, is the tenant, if one is."""
        return self._place


def _rule(name: str, options: JobOptions, signature: Signature) -> _TenantRule:
    return _TenantRule(name, msgspec.structs.replace(options, key=options.fair_by, scope=None), signature)


def is_fair(options: JobOptions) -> bool:
    """Whether a job of these options makes its queue a fair one."""
    return options.fair_by is not None or options.priority is not None


def tenant_of(
    name: str, options: JobOptions, signature: Signature | None
) -> Callable[[bytes, bytes | None], str] | None:
    """How the tenant follows from the arguments (JSON); None of a job without ``fair_by``."""
    return None if options.fair_by is None or signature is None else _rule(name, options, signature).text


def fair_queues(definitions: Iterable[Any]) -> dict[str, dict[str, int]]:
    """The queues that ``definitions`` make fair; for each the jobs whose tenant is an argument, and which one."""
    found: dict[str, dict[str, int]] = {}
    for one in definitions:
        options: JobOptions = one.options
        if not is_fair(options):
            continue
        place = None if options.fair_by is None else _rule(one.name, options, one.signature).place
        for queue in filter(None, (options.queue, options.retry_queue)):
            places = found.setdefault(queue, {})
            if place is not None:
                places |= dict.fromkeys((one.name, *options.aliases), place)
    return found


def settled_in(keys: Keys, queue: str) -> Procedure[None]:
    """Take what a bulk push brought into its lines, so that who is pushed next does not wait until a worker has done
    it. A courtesy: the jobs are pushed, and workers do it too."""
    with contextlib.suppress(ServerError):
        yield fair.take_in(keys, queue)
