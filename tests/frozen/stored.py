"""Everything that a server holds, as lines that are the same every time: ids, tokens and times have placeholders."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from redis import Redis

__all__ = ["stored"]

#: what is drawn anew each time → how it is shown; the longer forms first
CHANGES = (
    (re.compile(r"\b[0-9a-f]{32}\b"), "BATCH"),
    (re.compile(r"\b[0-9a-f]{24}(?=default\{|\b)"), "JID"),  # parked in a batch: jid, queue and payload without a gap
    (re.compile(r"\A[0-9a-f]{12}\Z"), "LANE"),
    (re.compile(r"\b(1[5-9]|2\d)\d{8}(\.\d+)?\b"), "SECONDS"),
    (re.compile(r"\b(1[5-9]|2\d)\d{11}\b"), "MILLISECONDS"),
    (re.compile(r"\b(1[5-9]|2\d)\d{14}\b"), "MICROSECONDS"),
)


def stored(redis: Redis) -> Iterator[str]:
    """``TYPE key``, and below it what stands in it: scores of sorted sets that are times as placeholders."""
    lines = []
    for key in redis.keys("*"):  # type: ignore[union-attr]
        kind = redis.type(key).decode()  # type: ignore[union-attr]
        lines.append((steady(key), [f"{kind} {steady(key)}", *(f"    {one}" for one in _held(redis, kind, key))]))
    for _, told in sorted(lines):
        yield from told


def steady(value: Any) -> str:
    """Bytes as text, with placeholders."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    text = "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
    for pattern, placeholder in CHANGES:
        text = pattern.sub(placeholder, text)
    return text


def _held(redis: Any, kind: str, key: bytes) -> list[str]:
    match kind:
        case "string":
            return [steady(redis.get(key))]
        case "list":
            return [steady(one) for one in redis.lrange(key, 0, -1)]
        case "set":
            return sorted(steady(one) for one in redis.smembers(key))
        case "zset":
            return [
                f"{steady(f'{score:.6f}')} {steady(one)}" for one, score in redis.zrange(key, 0, -1, withscores=True)
            ]
        case "hash":
            return sorted(f"{steady(name)} = {steady(value)}" for name, value in redis.hgetall(key).items())
        case "stream":
            rows = redis.xrange(key)
            return [" ".join(f"{steady(name)}={steady(one)}" for name, one in row.items()) for _, row in rows]
    raise AssertionError(f"{key!r} is a {kind}")
