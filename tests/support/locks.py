"""Business keys on a server: locks, who waits for them, and what is left."""

from __future__ import annotations

import json
from typing import Any

from support.store import Store

__all__ = [
    "DIGEST",
    "FREED",
    "KEY",
    "OTHER",
    "OURS",
    "SCOPE",
    "holder",
    "job",
    "left_of_keys",
    "lock",
    "park",
    "waiting",
]

#: ending → the locks that it gives back, as the page of the design has it; f as o
FREED = {
    "done": "wuorf",
    "failed": "wuorf",
    "retry": "r",
    "snoozed": "r",
    "deferred": "r",
    "released": "r",
    "interrupted": "r",
    "rescued": "",
    "dead": "wur",
    "kept": "wur",
    "invalid": "wur",
    "poisoned": "wur",
    "gone": "wuorf",
    "discarded": "wuorf",
    "expired": "wuorf",
    "cancelled": "wuorf",
    "deleted": "wuorf",
    "trimmed": "of",
    "staged": "",
    "started": "",
}

SCOPE, KEY, DIGEST = "shop: ü", "order\n17 }", "0a1b2c3d"
OURS, OTHER = "0123456789abcdef01234567", "fedcba9876543210fedcba98"


def job(
    jid: str = OURS, phases: str = "r", *, key: str = KEY, scope: str = SCOPE, queue: str = "a", **more: Any
) -> bytes:
    """The payload of a job with a key; ``hm`` in ``more`` is said beside it."""
    said = {"key": [scope, key, phases], **more.pop("hm", {})}
    fields = {"class": "m.f", "args": [], "jid": jid, "queue": "a", "retry": True, "created_at": 1.5, **more}
    return json.dumps({**fields, "hm": said}, separators=(",", ":"), ensure_ascii=False).encode()


def lock(store: Store, phase: str, jid: str = OURS, *, key: str = KEY, scope: str = SCOPE, since: float = 1.5) -> None:
    store.ask("HSET", store.keys.lock(phase, scope), key, f"{jid} {since:.6f} {DIGEST}")
    store.ask("SADD", store.keys.scopes, scope)


def holder(store: Store, phase: str, *, key: str = KEY, scope: str = SCOPE) -> str | None:
    """The jid that holds the key."""
    value = store.ask("HGET", store.keys.lock(phase, scope), key)
    return None if value is None else value.decode().rsplit(" ", 2)[0]


def park(
    store: Store,
    payload: bytes,
    phase: str = "r",
    *,
    key: str = KEY,
    scope: str = SCOPE,
    queue: str = "a",
    due: str = "",
) -> None:
    """As ``lib/locks.lua`` parks a job at the end of the line."""
    jid, reason = json.loads(payload)["jid"], "running" if phase == "r" else f"key {DIGEST}"
    store.ask("HSET", store.keys.parked, jid, f"a\n{due}\n{reason}\n\n".encode() + payload)
    store.ask("ZADD", store.keys.awaits(f"{phase}{scope}\n{key}"), store.ask("INCR", store.keys.token), jid)
    store.ask("ZADD", store.keys.doubt, store.now(), f"{phase} {scope}\n{key}")


def waiting(store: Store, phase: str = "r", *, key: str = KEY, scope: str = SCOPE) -> list[str]:
    """Who waits for the key, in their order."""
    return [one.decode() for one in store.ask("ZRANGE", store.keys.awaits(f"{phase}{scope}\n{key}"), 0, -1)]


def left_of_keys(store: Store) -> set[str]:
    """The keys that must not be there when every job has ended; the memory of ``once`` is another thing."""
    beginnings = tuple(
        store.keys.prefix + one
        for one in (
            *("hm:lock", "hm:parked", "hm:await", "hm:doubt", "hm:latest", "hm:needs", "hm:decide"),
            *("hm:releases", "hm:ready"),
        )
    )
    return {one for one in store.all_keys() if one.startswith(beginnings)}
