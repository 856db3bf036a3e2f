"""Payloads in and out: what Sidekiq writes, what others write, and what nobody can run."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from henchman.errors import ArgumentError, PayloadError
from henchman.wire import payload, times

RUBY_6 = (
    b'{"retry":true,"queue":"default","tags":["alpha","b"],"args":[1,"two",{"three":3.0},null,[true]],"class":"OkJob",'
    b'"jid":"04a70de3aef9f2b882053b40","created_at":1795237848.964924,"enqueued_at":1795237848.9650629}'
)
RUBY_8 = (
    b'{"retry":true,"queue":"default","tags":["alpha","b"],"args":[1,"two",{"three":3.0},null,[true]],"class":"OkJob",'
    b'"jid":"a484feba423c1ea67b3d321e","created_at":1795237919179,"enqueued_at":1795237919179}'
)


@pytest.mark.parametrize("text", [RUBY_6, RUBY_8])
def test_rubys_payloads_are_read_and_written_back_byte_for_byte(text: bytes) -> None:
    assert payload.encode(payload.decode(text)) == text


T = b"1795237919.179"


@pytest.mark.parametrize(
    ("stored", "then"),
    [
        (b'{"class":"A"}', b'{"class":"A","enqueued_at":%b}'),
        (b' {"class" : "A" } \n', b' {"class" : "A" ,"enqueued_at":%b}'),
        (b'{"class":"A","enqueued_at":1.5}', b'{"class":"A","enqueued_at":%b}'),
        (b'{ "enqueued_at" :\t1.5 , "class":"A"}', b'{ "enqueued_at" :\t%b , "class":"A"}'),
        (b'{"enqueued_at":{"enqueued_at":[1]},"class":"A"}', b'{"enqueued_at":%b,"class":"A"}'),
        (b'{"class":"A","args":[{"enqueued_at":1}]}', b'{"class":"A","args":[{"enqueued_at":1}],"enqueued_at":%b}'),
        (
            rb'{"class":"A","x":",\"enqueued_at\":7}","enqueued_at":null,"y":"enqueued_at"}',
            rb'{"class":"A","x":",\"enqueued_at\":7}","enqueued_at":%b,"y":"enqueued_at"}',
        ),
        (rb'{"class":"A","enqueued\u005fat":3,"z":[]}', rb'{"class":"A","enqueued\u005fat":%b,"z":[]}'),
        (rb'{"class":"A","\u005f":3}', rb'{"class":"A","\u005f":3,"enqueued_at":%b}'),
        (
            '{"é😀":"\\ud83d\\ude00","enqueued_at":"x","class":"A"}'.encode(),
            '{"é😀":"\\ud83d\\ude00","enqueued_at":%b,"class":"A"}'.encode(),
        ),
        (b'{"enqueued_at":1,"class":"A","enqueued_at":2,"enqueued_at":3}', b'{"class":"A","enqueued_at":%b}'),
        (b'{"class":"A","n":-%d,"enqueued_at":3}' % 10**4200, b'{"class":"A","n":-%d,"enqueued_at":%%b}' % 10**4200),
    ],
)  # fmt: skip
def test_a_field_is_replaced_where_it_is_and_all_else_stays(stored: bytes, then: bytes) -> None:
    found = payload.with_field(stored, "enqueued_at", T)
    assert found == then.replace(b"%b", T)
    assert payload.decode(found) == payload.decode(stored) | {"enqueued_at": float(T)}
    pairs: list[list[tuple[str, Any]]] = []
    json.loads(found, object_pairs_hook=pairs.append)
    assert [key for key, _ in pairs[-1]].count("enqueued_at") == 1
    assert payload.with_field(found, "enqueued_at", T) == found


def test_a_field_of_a_payload_that_is_made_to_cost_is_replaced_at_the_speed_of_reading_it() -> None:
    """A hundred thousand brackets, quotes and escapes: no look is repeated."""
    for costly in (b"[" + b"[],{}," * 200_000 + b"1]", b'"' + rb"\"\\" * 400_000 + b'"', b" " * 1_000_000 + b"1"):
        stored = b'{"class":"A","args":[%b],"enqueued_at":1}' % costly
        began = time.process_time()
        assert payload.with_field(stored, "enqueued_at", T) == stored[:-2] + T + b"}"
        assert time.process_time() - began < 5


def test_numbers_of_a_payload_stay_exact() -> None:
    big = 10**30
    text = b'{"class":"A","args":[%d,-%d,1.0]}' % (big, 10**4300 - 1)

    job = payload.decode(text)

    assert job["args"] == [big, -(10**4300) + 1, 1.0]
    assert payload.encode(job) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"class":"A"}', {"class": "A", "args": []}),
        (b'{"class":"A","args":null}', {"class": "A", "args": []}),
        (b'{"class":"A","args":[],"jid":null}', {"class": "A", "args": []}),
        (b'{"class":"A","args":[],"jid":7}', {"class": "A", "args": [], "jid": "7"}),
        (b'{"class":"A","args":[],"retry":"x","at":[]}', {"class": "A", "args": [], "retry": "x", "at": []}),
        (b' {"class":"A", "class":"B","args":[],"kwargs":null}\n', {"class": "B", "args": [], "kwargs": None}),
        (b'{"class":"pkg.mod.job","args":["\\u0000"],"kwargs":{"a":1}}', None),
    ],
)
def test_what_sidekiq_tolerates_is_tolerated(text: bytes, expected: dict[str, Any] | None) -> None:
    assert payload.decode(text) == (json.loads(text) if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "payload is empty"),
        (b"  \n", "payload is empty"),
        (b"garbage", "payload is not JSON: "),
        (b'{"class":"A"', "payload is not JSON: "),
        (b'{"class":"A","args":[NaN]}', "payload is not JSON: "),
        (b'{"class":"A","args":["\\ud800"]}', "payload is not JSON: "),
        (b'{"class":"A","args":["\xff"]}', "payload is not UTF-8: "),
        (b'{"class":"A","args":[1e400]}', "payload holds a number that cannot be read"),
        (b'{"class":"A","args":[' + b"1" * 4301 + b"]}", "payload holds a number that cannot be read"),
        (b"[1,2]", "payload is JSON, but a list and not an object"),
        (b"5", "payload is JSON, but an int and not an object"),
        (b"null", "payload is JSON, but None and not an object"),
        (b"{}", "payload has no class"),
        (b'{"class":null}', "payload has no class"),
        (b'{"class":""}', "payload has no class"),
        (b'{"class":5}', "class is an int, not text"),
        (b'{"class":"A","args":{"a":1}}', "args is a dict, not a list"),
        (b'{"class":"A","args":"x"}', "args is a str, not a list"),
        (b'{"class":"A","args":[],"jid":[]}', "jid is a list, not text"),
        (b'{"class":"A","args":[],"jid":true}', "jid is a bool, not text"),
        (b'{"class":"A","args":[],"kwargs":[]}', "kwargs is a list, not an object"),
        (b'{"class":"A","args":' + b"[" * 100 + b"]" * 100 + b"}", "payload is nested deeper than 100 levels"),
        (b'{"class":"A","args":' + b"[" * 9000 + b"]" * 9000 + b"}", "payload is nested deeper than 100 levels"),
        (b"[" * 2_000_000, "payload is nested deeper than 100 levels"),
    ],
    ids=lambda value: value[:30] if isinstance(value, bytes) else None,
)
def test_an_unusable_payload_is_refused_with_its_reason(text: bytes, reason: str) -> None:
    with pytest.raises(PayloadError) as caught:
        payload.decode(text)

    assert str(caught.value).startswith(reason)


def test_a_hundred_levels_and_many_brackets_are_no_problem() -> None:
    deep = b'{"class":"A","args":' + b"[" * 99 + b"]" * 99 + b"}"
    assert payload.encode(payload.decode(deep)) == deep
    assert len(payload.decode(b'{"class":"A","args":[' + b",".join([b"[]"] * 500) + b"]}")["args"]) == 500


def test_a_field_that_json_cannot_hold_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"^payload\.tags is a set"):
        payload.encode({"class": "A", "tags": {"x"}})


@pytest.mark.parametrize(
    "original",
    [b"garbage", b"[1,2]", b"5", b"null", b"", b"\xff\xfe", b"\x00", b'{"jid":"","class":5}', b"x" * 3_000_000],
)
def test_an_unusable_payload_is_wrapped_into_what_every_page_can_show(original: bytes) -> None:
    wrapped = payload.decode(payload.invalid(original, "payload is not JSON", "mail", 1795237848.5))

    assert wrapped["class"] == "InvalidPayload"
    assert wrapped["queue"] == "mail"
    assert wrapped["retry"] is False
    assert wrapped["failed_at"] == 1795237848.5
    assert wrapped["error_class"] == "PayloadError"
    assert wrapped["error_message"] == "payload is not JSON"
    assert wrapped["original_bytes"] == len(original)
    assert len(wrapped["jid"]) == 24
    (kept,) = wrapped["args"]
    raw = base64.b64decode(kept) if wrapped["original"] == "base64" else kept.encode()
    assert raw == original[: 1024 * 1024]


def test_a_long_text_is_cut_between_characters_and_a_known_jid_is_kept() -> None:
    original = b'{"jid":"abc","class":"' + b"x" + "é".encode() * 600_000 + b'"'
    wrapped = payload.decode(payload.invalid(original, "x" * 20_000, "q", 1.0))
    assert wrapped["original"] == "text"
    assert original.startswith(wrapped["args"][0].encode())
    assert len(wrapped["error_message"]) == 10_000
    assert payload.decode(payload.invalid(b'{"jid":"abc"}', "no class", "q", 1.0))["jid"] == "abc"
    assert payload.decode(payload.invalid(b"x", "\udcff", "\udcff", 1.0))["queue"] == "?"


def test_a_template_renders_what_encode_would_write() -> None:
    fixed = {"retry": True, "queue": "defäult", "class": "shop.jobs.send"}
    template = payload.Template(fixed)
    moment = times.write(1795237848.964924, "seconds")

    now = template.render(b'[1,"x"]', None, "04a70de3aef9f2b882053b40", moment, moment)
    later = template.render(b"[]", b'{"lang":"de"}', 'odd"jid', moment, None, payload.members({"tags": ["vip"]}))

    assert now == payload.encode(
        fixed
        | {"args": [1, "x"], "jid": "04a70de3aef9f2b882053b40"}
        | {"created_at": 1795237848.965, "enqueued_at": 1795237848.965}
    )
    assert later == payload.encode(
        fixed | {"args": [], "kwargs": {"lang": "de"}, "tags": ["vip"], "jid": 'odd"jid', "created_at": 1795237848.965}
    )
    assert payload.members({}) == b""


def test_a_template_refuses_what_it_leaves_open() -> None:
    with pytest.raises(ValueError, match=r"\['jid'\]"):
        payload.Template({"class": "A", "jid": "x"})
