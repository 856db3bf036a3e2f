"""The hostile corpus: payloads that somebody may push, each with what it did, or is to be kept from doing.

``corpus(batch)`` gives them as jobs of three kinds: of a name that nobody knows and that is not retried, of one that
raises, and of one that is well. Those that can be read are members of ``batch``.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any, NamedTuple

__all__ = ["FIELDS", "NO_JOB", "Hostile", "corpus"]

BIG = 10**4000  # as many digits as Python reads at once, nearly
WIDE = "\x00\n \u202e\x1b[31m"


class Hostile(NamedTuple):
    """One payload and its story. ``jid``: the id of the job that can be read in it; empty when none can."""

    story: str
    payload: bytes
    jid: str


#: story → fields that replace those of a job; "hm" is laid over what a member of a batch says there
FIELDS: dict[str, dict[str, Any]] = {
    "S1: a retry delay of 16,000 digits ended the process in hiredis": {"retry": 10**4250, "retry_count": 10**4000},
    "a count of as many digits as can be read: one more cannot be written": {"retry_count": int("9" * 4300)},
    "a negative count of 4,000 digits is read by the slow reader": {"retry_count": -BIG},
    "a negative count: the attempt in an effect was no number": {"retry_count": -5},
    "a count beyond 32 bits, which SQL refuses": {"retry_count": 2**31},
    "a count beyond 64 bits": {"retry_count": 2**63, "retry": 2**64},
    "a count that is true": {"retry_count": True},
    "a count that is text": {"retry_count": "3"},
    "a count with a point": {"retry_count": 1.5, "retry": 2.5},
    "a negative number of retries": {"retry": -BIG},
    "retries that are an object": {"retry": {}},
    "S3: a result kept for 1e308 seconds: int(inf) in the fetcher": {"hm": {"result_ttl": 1e308}},
    "a result kept for 10**4000 seconds": {"hm": {"result_ttl": BIG}},
    "a result kept for less than nothing": {"hm": {"result_ttl": -1e308}},
    "a result kept for true": {"hm": {"result_ttl": True}},
    "a result kept for a text": {"hm": {"result_ttl": "5"}},
    "S3: a tracked job with 4,300 digits of failures": {"retry_count": BIG, "hm": {"track": True}},
    "given up after 1e308 seconds": {"retry_for": 1e308},
    "given up after 10**4000 seconds": {"retry_for": BIG, "failed_at": 1.5},
    "given up before it failed": {"retry_for": -BIG, "failed_at": 1e308},
    "a time-out of 9.5e9 seconds: no thread can wait so long, and the watchdog died": {"hm": {"timeout": 9.5e9}},
    "a time-out of 10**4000 seconds": {"hm": {"timeout": BIG}},
    "a time-out of no time": {"hm": {"timeout": -1}},
    "expires in 10**4000 seconds": {"hm": {"expires": BIG}},
    "expires in 1e308 seconds, pushed at 1e308": {"hm": {"expires": 1e308}, "enqueued_at": 1e308},
    "its batch expires at -10**4000: float() overflows": {"hm": {"batch_expires": -BIG}},
    "its batch expires at 10**4000": {"hm": {"batch_expires": BIG}},
    "its batch expires at a text": {"hm": {"batch_expires": "now"}},
    "times of 10**4000": dict.fromkeys(("created_at", "enqueued_at", "failed_at", "retried_at"), BIG),
    "times of -1e308": dict.fromkeys(("created_at", "enqueued_at", "failed_at", "retried_at"), -1e308),
    "times that are texts of infinity": {"created_at": "inf", "enqueued_at": "nan", "failed_at": "1e400"},
    "times that are texts of dates": {"created_at": "9999-12-31T23:59:59+00:00", "failed_at": "0001-01-01"},
    "times that are objects": {one: {"a": 1} for one in ("created_at", "enqueued_at", "failed_at", "at")},
    "what is ours is a list": {"hm": [1]},
    "what is ours is a number": {"hm": BIG},
    "what is ours is null": {"hm": None},
    "a batch that is a list": {"hm": {"batch": [1]}},
    "a batch of no name": {"hm": {"batch": ""}},
    "a batch that is the table of another's jobs: the dead were put where nobody looks": {"hm": {"batch": "b:jobs"}},
    "a batch of a name as long as a book": {"hm": {"batch": "b" * 100_000}},
    "a batch of wide characters": {"hm": {"batch": WIDE}},
    "a cron that is a list, an iterable that is a text": {"hm": {"cron": [1], "iterable": "yes"}},
    "a cron of wide characters, and an iterable": {"hm": {"cron": WIDE, "iterable": True}},
    "tracked by a text": {"hm": {"track": "yes"}},
    "carried context that is a list": {"hm": {"context": [1], "planned": BIG}},
    "a retry queue that is a list": {"retry_queue": [1]},
    "a retry queue of wide characters": {"retry_queue": WIDE},
    "a queue that is a number": {"queue": BIG},
    "no queue": {"queue": None},
    "a backtrace of 10**4000 lines": {"backtrace": BIG},
    "a backtrace that unpacks to a gigabyte": {
        "error_backtrace": base64.b64encode(zlib.compress(b'["' + b"x" * 20_000_000 + b'"]')).decode()
    },
    "a backtrace of numbers": {"error_backtrace": [BIG, -BIG, 1e308]},
    "an error of numbers": {"error_class": BIG, "error_message": -BIG},
    "tags of numbers": {"tags": [BIG, -BIG, None, {"a": [1e308]}]},
    "tags that are a text": {"tags": WIDE},
    "a level that cannot be looked up": {"log_level": [1]},
    "a name that is wrapped in a list": {"wrapped": [1], "display_class": BIG},
    "an ActiveJob that wraps nothing": {"wrapped": "Mail", "encrypt": True},
    "a text where Rails keeps its attributes": {"cattr": "text", "cattr_1": "text"},
    "a Ruby batch's id, a lock's time, another's fields": {"bid": BIG, "lock_ttl": 1e308, "at": BIG, "dead": "no"},
    "keyword arguments that are null": {"kwargs": None},
    "a word between its fields that is nobody's": {WIDE: BIG, "": -BIG},
    "95 levels of lists beside its arguments": {"deep": json.loads("[" * 95 + "]" * 95)},
}

#: story → payload: no worker can run these
NO_JOB: dict[str, bytes] = {
    "nothing": b"",
    "bytes": b"\x00\x01\xff\xfe",
    "null": b"null",
    "a list": b"[1,2]",
    "a number of 5,000 digits": b"9" * 5000,
    "5,000 levels": b"[" * 5000 + b"]" * 5000,
    "cut off": b'{"class":"fine","args":[1',
    "not UTF-8": b'{"class":"fine","args":["\xff"],"jid":"j"}',
    "infinity": b'{"class":"fine","args":[],"jid":"j","retry":1e400}',
    "half a surrogate pair": b'{"class":"fine","args":["\\ud800"],"jid":"j"}',
    "half a surrogate pair behind a number for the slow reader, which let it pass: it could not be stored again":
        b'{"class":"fine","x":-' + b"9" * 4300 + b',"args":[],"jid":"\\ud800","hm":{"batch":"\\udfff"}}',
    "bytes that are half a surrogate pair behind such a number":
        b'{"class":"fine","x":-' + b"9" * 4300 + b',"args":["\xed\xa0\x80"],"jid":"j"}',
    "4,301 digits": b'{"class":"fine","args":[],"jid":"j","retry":' + b"9" * 4301 + b"}",
    "an id that is a list": b'{"class":"fine","args":[],"jid":[1],"hm":{"result_ttl":1e308}}',
    "no class": b'{"args":[],"jid":"j","hm":{"result_ttl":1e308}}',
}  # fmt: skip

#: story → id: beside those of the corpus
IDS: dict[str, Any] = {
    "an id of wide characters": WIDE + "id",
    "an id of 100,000 characters": "i" * 100_000,
    "an id that is a number of 4,000 digits": BIG,
    "an id that looks like an effect": '"],["track","b","j","error"',
}


def corpus(batch: str) -> list[Hostile]:
    """Everything, in an order that does not change."""
    found = [Hostile(story, payload, "") for story, payload in NO_JOB.items()]
    kinds: tuple[tuple[str, Any], ...] = (("nobody.knows", False), ("raises", True), ("fine", True))
    for place, (story, fields) in enumerate(FIELDS.items()):
        for name, retry in kinds:
            found.append(_hostile(story, batch, name, f"{name[:2]}{place:022d}", {"retry": retry} | fields))
    for place, (story, jid) in enumerate(IDS.items()):
        for name, retry in kinds:
            unlike = jid if isinstance(jid, int) else f"{jid}{name}{place}"
            found.append(_hostile(story, batch, name, unlike, {"retry": retry}))
    return found


def _hostile(story: str, batch: str, name: str, jid: Any, fields: dict[str, Any]) -> Hostile:
    ours = fields.get("hm", {})
    job = {"class": name, "args": [1], "jid": jid, "queue": "default", "created_at": 1.5, "enqueued_at": 1.5, **fields}
    job["hm"] = {"batch": batch, **ours} if isinstance(ours, dict) else ours
    if name != "fine":
        job["args"] = []
    member = isinstance(job["hm"], dict) and job["hm"]["batch"] == batch
    return Hostile(story, json.dumps(job).encode(), str(jid) if member else "")
