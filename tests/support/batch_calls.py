"""What batches and keyed pushes do on the server, a call of each script, on one batch: for tests that break off."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from henchman.store import admission, batches, history, leases, pauses
from henchman.store.call import Call
from henchman.store.keys import Keys
from henchman.store.queues import Pause
from support.store import ME, Store

__all__ = ["CALLS", "everything", "there_is_a_batch"]

FACTS = {
    "keep": "60",
    "results": "1",
    "cb:complete:queue": "after",
    "cb:complete:head": '{"class":"tell","args":["b"],"queue":"after","jid":"',
    "cb:complete:jid": "callback",
    "cb:complete:tail": '"',
}


def _job(jid: str, when: str = "") -> batches.TrackedPush:
    return batches.TrackedPush(jid, when, b'{"jid":"%b"}' % jid.encode(), b"{}")


ASK = b'{"scope":"s","phases":"o","conflict":"skip","once_for":60}'


def _keyed(jid: str, due: str = "") -> admission.KeyedPush:
    return admission.KeyedPush(jid, due, b'{"jid":"%b"}' % jid.encode(), "0" * 8, jid)


def _effects(status: str) -> bytes:
    kept = [["step_result", "b", "run", '!{"status":"error"}']] if status == "error" else []
    return json.dumps([*kept, ["track", "b", "run", status, "1", ME, "{}", ""]]).encode()


def _hold(keys: Keys, *jids: str) -> Call[Any]:
    lists = [(keys.in_flight(ME, 1, "work"), keys.queue("work"))]
    stored = {jid: b'{"jid":"%b"}' % jid.encode() for jid in jids}
    effects = {jid: json.dumps([["track", "still", jid, "blocked", "0", "", "{}", ""]]).encode() for jid in jids}
    asked = [pauses.PausedJob(1, "still", "still", jid, text, text, effects[jid]) for jid, text in stored.items()]
    return pauses.hold(keys, ME, lists, asked, 60_000)


CALLS: dict[str, Callable[[Keys], Call[Any]]] = {
    "batch_make": lambda keys: batches.make(keys, "new", {**FACTS, "parent": "b"}, b"{}"),
    "batch_push": lambda keys: batches.push(keys, "b", "q", [_job("p1"), _job("p2", "+60")], lane=("me", 1)),
    "keyed_push": lambda keys: admission.push(keys, "q", ASK, [_keyed("p1"), _keyed("p2", "+60")], ("me", 1)),
    "batch_close": lambda keys: batches.close(keys, "empty"),
    "batch_release": lambda keys: batches.release(keys, "b", 2),
    "batch_retry": lambda keys: batches.retry(keys, "b", [batches.Retried("dead", "q", b"old", b"new")]),
    "pause": lambda keys: pauses.unpause(keys, "still"),
    "hold": lambda keys: _hold(keys, "wait"),
    "note": lambda keys: batches.note(keys, [_effects("scheduled")]),
    "started": lambda keys: batches.started(
        keys, [batches.Started(keys.in_flight(ME, 1, "work"), b'{"jid":"run"}', _effects("working"))]
    ),
}


def there_is_a_batch(store: Store) -> None:
    """``b``: one job in flight, two parked, one that died; ``empty``: nothing but its callback; ``still``: paused, with
    one job in flight and one that waits until it goes on."""
    store.run(history.turn_on(store.keys, "strict", 1_000_000))
    for name in ("b", "empty", "still"):
        store.run(batches.make(store.keys, name, FACTS, b"{}"))
    store.run(batches.push(store.keys, "b", "work", [_job("run")]))
    store.run(leases.join(store.keys, ME, [store.flight("work")], 60_000))
    store.fetch("work", count=1)
    parked = [_job("k1", "parked"), _job("k2", "parked")]
    store.run(batches.push(store.keys, "b", "q", parked))
    store.run(batches.push(store.keys, "b", "elsewhere", [_job("dead")]))
    store.run(batches.note(store.keys, [_effects("error").replace(b'"run"', b'"dead"')]))
    store.ask("ZADD", store.keys.batch("b") + ":dead", 1, b"old")
    store.run(batches.push(store.keys, "still", "work", [_job("wait"), _job("held")]))
    store.fetch("work", count=2)
    store.run(pauses.pause(store.keys, "still", Pause(at=1.0)))
    store.run(_hold(store.keys, "held"))


def everything(store: Store) -> dict[str, Any]:
    """What is stored, times and what is counted in bytes aside."""
    read: dict[str, Callable[[str], Any]] = {
        "list": lambda key: store.ask("LRANGE", key, 0, -1),
        "set": lambda key: sorted(store.ask("SMEMBERS", key)),
        "zset": lambda key: sorted(store.ask("ZRANGE", key, 0, -1)),
        "hash": lambda key: sorted(_pairs(store.ask("HGETALL", key))),
        "stream": lambda key: [fields for _, fields in store.ask("XRANGE", key, "-", "+")],
        "string": lambda key: b"",
    }
    return {key: _timeless(read[store.ask("TYPE", key).decode()](key)) for key in sorted(store.all_keys())}


def _pairs(reply: Any) -> list[tuple[bytes, bytes]]:
    return list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=True))


def _timeless(value: Any) -> str:
    return re.sub(r"\d{10}(\.\d+)?", "T", repr(value))
