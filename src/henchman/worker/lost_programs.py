"""Places of limits that programs have outside of jobs (``app.limit``), and that nobody renews any more.

The end of a lease alone says nothing: after an outage of the server, or a step of its clock, all leases may have run
out. A place is free when its program was seen not to renew it for half a lease, in unbroken contact with one run of the
server, and its end has passed: a living program renews three times in half a lease.
"""

from __future__ import annotations

from collections.abc import Callable

from henchman.client.runtime import Runtime
from henchman.store import limits

__all__ = ["LostPrograms"]


class LostPrograms:
    """What the lifeline knows of programs. Its leases are taken to be as long as ours (``lease``)."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._doubt = runtime.config.lease / 2
        self._seen: dict[bytes, tuple[bytes, float]] = {}  # the end of its lease, and since when it has had that

    def forget(self) -> None:
        """What was seen does not count: contact was broken."""
        self._seen.clear()

    def free(self, now: float, is_same_server: Callable[[], bool]) -> None:
        """Look which were not renewed; give away the places of those for which that is certain. ``now``: monotonic."""
        runtime = self._runtime
        found = runtime.connections.run(limits.unrenewed(runtime.keys, runtime.clock.now() + self._doubt))
        before, self._seen = self._seen, {}
        for member, ends in found:
            known = before.get(member)
            self._seen[member] = known if known is not None and known[0] == ends else (ends, now)
        lost = [(member, ends) for member, (ends, since) in self._seen.items() if now - since >= self._doubt]
        if not lost:
            return
        if not is_same_server():
            self.forget()
            return
        for one in runtime.connections.run(limits.leave_lapsed(runtime.keys, lost)):
            runtime.events.emit("rescued", identity=one.jid.removeprefix("~"), count=0)
