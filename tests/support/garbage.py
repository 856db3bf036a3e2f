"""What anybody may have written into the server: payloads, names and records that no page may stumble over."""

from __future__ import annotations

import json
from typing import Any

from support.store import Store

__all__ = ["GARBAGE", "HOSTILE", "NOW", "READABLE", "fill", "payload"]

NOW = 1_795_237_919.5
HOSTILE = "[bold]x[/bold]\u202e\x1b[31mred\x00"


def payload(jid: object = "1" * 24, **fields: Any) -> bytes:
    """A job of the queue ``mail`` with some fields replaced."""
    job = {"class": "mail.send", "args": [42, "de"], "jid": jid, "queue": "mail", "retry": True, "created_at": NOW - 9}
    return json.dumps(job | fields, separators=(",", ":"), ensure_ascii=False).encode()


#: odd, but a worker would take them
READABLE = [
    payload("a" * 24, **{"class": HOSTILE}),
    payload("c" * 24, args=["y" * 1_000_000]),
    payload("d" * 24, error_class="E[red]", error_message="two\nlines \x1b[2J" + "z" * 5000, retry_count=3),
    payload("e" * 24, tags="text", retry_count="x", created_at="2026-11-21T09:30:48Z", enqueued_at={"a": 1}),
    payload(None, error_backtrace="no backtrace"),
    payload("f" * 24, queue=5),
    payload("g" * 24, queue=None),
    payload(17, created_at=1e300, failed_at=-5),
    payload("h" * 24, args=[12345678901234567890123, 1e300, HOSTILE], kwargs={"k[i]": None}),
]
#: no worker can run these
GARBAGE = [
    b"",
    b"[1,2]",
    b"\xff\xfe nope",
    b"null",
    b"42",
    b'"text"',
    b'{"class":',
    b"{}",
    b'{"class":7}',
    b"[" * 500 + b"]" * 500,
    payload("b" * 24, args={"a": 1}),
    HOSTILE.encode(),
]


def fill(store: Store, now: float) -> None:
    """Garbage everywhere: sets, queues with odd names, process records, counters."""
    keys, everything = store.keys, GARBAGE + READABLE
    for key, base in ((keys.schedule, now + 3600), (keys.retry, now - 200), (keys.dead, now - 86_400)):
        for index, one in enumerate(everything):
            store.ask("ZADD", key, base + index, one)
        store.ask("ZADD", key, "inf", b"at the end of time")
        store.ask("ZADD", key, "-inf", b"before all time")
    for name in (b"default", b"mail", HOSTILE.encode(), b"\xff\xfe", b"q" * 300):
        store.ask("SADD", keys.queues, name)
        store.ask("LPUSH", keys.queue("").encode() + name, *everything)
    store.ask("SADD", keys.queues, "wrong")
    store.ask("SET", keys.queue("wrong"), "no list")
    store.ask("SADD", keys.paused, "mail", b"\xff", "ghost")
    _blocked(store)
    _processes(store, now)
    store.ask("SET", keys.stat_processed, "12345")
    store.ask("SET", keys.stat_failed, "many")


def _blocked(store: Store) -> None:
    """Rows of jobs that wait for others, of every reason and of none."""
    reasons = ["running", "key 0a1b2c3d", "needs", "needs dead soon x", "needs over 1e999 x", HOSTILE, ""]
    key = {"key": [HOSTILE.replace("\0", ""), HOSTILE, "ru"], "needs": [["a"], 7, ["a", "b", "c", "d"]]}
    odd = [payload("k" * 24, hm=key), payload("l" * 24, hm={"key": 7, "needs": {}})]
    for index, one in enumerate([*GARBAGE, *READABLE, *odd]):
        for place, reason in enumerate(reasons):
            head = f"mail\n{'x' if place else ''}\n{reason}\n".encode()
            store.ask("HSET", store.keys.parked, f"{index:02}{place:022}", head + one)
    for name, row in (
        (f"{HOSTILE}!", b""),
        ("\xff", b"\xff\n\xff\n\xff\n\xff"),
        ("", b"\n\n\n"),
        ("y" * 5000, b"nope"),
    ):
        store.ask("HSET", store.keys.parked, name, row)


def _processes(store: Store, now: float) -> None:
    keys = store.keys
    info = {
        "hostname": "host",
        "pid": 1,
        "started_at": now - 100,
        "queues": ["mail"],
        "tag": HOSTILE,
        "version": "henchman",
    }
    ruby = {"started_at": None, "capsules": {"a": {"weights": {"low": 1}}, "b": {}}, "labels": "text", "version": "8.1"}
    records: list[tuple[bytes, dict[str, Any]]] = [
        (b"host:1:abc", {"info": json.dumps(info), "busy": 2, "beat": now - 3, "rss": 43210, "concurrency": 10}),
        (b"host:2:def", {"info": "not json", "busy": "x", "beat": "nan", "rss": "", "quiet": "maybe"}),
        (b"ruby:9:r", {"info": json.dumps(ruby), "busy": 1, "beat": now - 40, "concurrency": 5, "quiet": "true"}),
        (HOSTILE.encode(), {"info": "[]"}),
        (b"\xff:1:z", {"info": b"\xff", "beat": b"\xff"}),
    ]
    for name, facts in records:
        store.ask("SADD", keys.processes, name)
        store.ask("HSET", keys.process("").encode() + name, *[part for pair in facts.items() for part in pair])
    store.ask("SADD", keys.processes, "no:hash:1", "dead:3:x")
    store.ask("SET", keys.process("no:hash:1"), "text")
    work = {"queue": "mail", "payload": payload("w" * 24).decode(), "run_at": int(now - 20)}
    rows = [
        *("t1", json.dumps(work), "t2", "", "t3", "nope"),
        *("t4", json.dumps({"payload": {"class": "Old", "jid": "o" * 24}}), "t5", "[1]", b"\xff", b"\xff"),
    ]
    store.ask("HSET", keys.work("host:1:abc"), *rows)
