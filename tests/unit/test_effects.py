"""Every ending against every effect: what happens in the same breath as a job's end is a function of both."""

from __future__ import annotations

from typing import Any

import pytest

from henchman.store.effects import own_keys
from henchman.store.keys import Keys
from henchman.wire.payload import encode
from henchman.work.effects import FINAL, KINDS, effects, encoded, of_payload
from henchman.work.outcome import ENDINGS

KEYS = Keys("ns")
BEYOND = ("deleted", "poisoned")  # endings that no run has
GOES_ON = {"retry", "snoozed", "deferred", "released", "interrupted"}
JID = "0123456789abcdef01234567"

UNCANCEL, CRON_DONE, UNITERATE = ("uncancel", JID), ("cron_done", "nightly", JID), ("uniterate", f"ns:it-{JID}")

PLAIN: dict[str, Any] = {"class": "x", "args": [], "jid": JID}
JOBS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "limited": PLAIN | {"hm": {"timeout": 5.0, "expires": 9.0}},
    "of a cron": PLAIN | {"hm": {"cron": "nightly", "planned": 1.5}},
    "iterable": PLAIN | {"hm": {"iterable": True}},
    "both": PLAIN | {"hm": {"iterable": True, "cron": "nightly"}},
    "odd": PLAIN | {"hm": ["cron"]},
    "odder": PLAIN | {"hm": {"cron": 7, "iterable": "yes"}},
    "without a jid": {"class": "x", "args": [], "hm": {"iterable": True, "cron": "nightly"}},
}

#: ending → (effects of any job, of one of a cron, of an iterable one)
TABLE: dict[str, tuple[set[Any], set[Any], set[Any]]] = {
    "done": (set(), {CRON_DONE}, {UNITERATE}),
    "failed": (set(), {CRON_DONE}, {UNITERATE}),
    "discarded": (set(), {CRON_DONE}, {UNITERATE}),
    "gone": (set(), {CRON_DONE}, {UNITERATE}),
    "expired": (set(), {CRON_DONE}, {UNITERATE}),
    "deleted": (set(), {CRON_DONE}, {UNITERATE}),
    "cancelled": ({UNCANCEL, UNITERATE}, {CRON_DONE}, {UNITERATE}),
    "dead": (set(), {CRON_DONE}, set()),
    "poisoned": (set(), {CRON_DONE}, set()),
    "invalid": (set(), {CRON_DONE}, set()),
    **{ending: (set(), set(), set()) for ending in GOES_ON},
}
ROLES = {"of a cron": (0, 1), "iterable": (0, 2), "both": (0, 1, 2), "without a jid": ()}


def test_the_table_knows_every_ending_and_every_kind() -> None:
    assert set(TABLE) == {*ENDINGS, *BEYOND}
    assert set(TABLE) - GOES_ON == FINAL
    assert {effect[0] for row in TABLE.values() for some in row for effect in some} == set(KINDS)


@pytest.mark.parametrize("ending", TABLE)
@pytest.mark.parametrize("job", JOBS)
def test_every_ending_of_every_job(job: str, ending: str) -> None:
    expected = {effect for column in ROLES.get(job, (0,)) for effect in TABLE[ending][column]}
    found = effects(KEYS, JOBS[job], ending)
    assert set(found) == expected
    assert len(found) == len(expected)
    text = encoded(KEYS, JOBS[job], ending)
    assert bool(text) == bool(expected)
    assert own_keys([text, text]) == [key for kind, key in (one[:2] for one in found) if kind == "uniterate"]
    if ending != "cancelled":
        assert of_payload(KEYS, encode(JOBS[job]), ending) == text


def test_an_unknown_ending_has_none() -> None:
    assert effects(KEYS, JOBS["both"], "vanished") == ()


@pytest.mark.parametrize("payload", [b"", b"{", b'"hm"', b'[{"hm":1}]', b'{"hm":{"cron":"x"}}', b'\xff"hm"'])
def test_a_payload_that_is_no_job_has_none(payload: bytes) -> None:
    assert of_payload(KEYS, payload, "deleted") == b""


def test_half_a_surrogate_pair_has_none() -> None:
    assert encoded(KEYS, PLAIN | {"hm": {"cron": "\ud800"}}, "done") == b""


@pytest.mark.parametrize("text", [b"", b"{}", b"no json", b"[7]", b"[[]]", b'[["uniterate"]]', b'[["uniterate",7]]'])
def test_what_cannot_be_read_names_no_key(text: bytes) -> None:
    assert own_keys([text]) == []
