"""Every ending against every effect: what happens in the same breath as a job's end is a function of both."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from henchman.store.keys import Keys
from henchman.wire.payload import encode
from henchman.work.effects import FINAL, KINDS, STATUS, EndingFacts, effects, encoded, of_payload
from henchman.work.outcome import ENDINGS

KEYS = Keys("ns")
BEYOND = ("deleted", "poisoned")  # endings that no run has
OF_KEYS = {"unlock", "unrun", "relock", "unlatest"}  # tests/store/test_locks.py
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
    "kept": (set(), {CRON_DONE}, set()),
    "poisoned": (set(), {CRON_DONE}, set()),
    "invalid": (set(), {CRON_DONE}, set()),
    **{ending: (set(), set(), set()) for ending in GOES_ON},
}
ROLES = {"of a cron": (0, 1), "iterable": (0, 2), "both": (0, 1, 2), "without a jid": ()}


def test_the_table_knows_every_ending_and_every_kind() -> None:
    assert set(TABLE) == {*ENDINGS, *BEYOND}
    assert set(TABLE) - GOES_ON == FINAL
    told = {effect[0] for row in TABLE.values() for some in row for effect in some}
    assert told | {"result", "track", "said"} | OF_KEYS == set(KINDS), "three come with what was told of the end, below"
    assert set(STATUS) == {*TABLE, "rescued", "staged", "started", "revived"}


@pytest.mark.parametrize("ending", sorted(TABLE))
def test_a_tracked_job_changes_its_status_at_every_ending(ending: str) -> None:
    told = EndingFacts("h:1:ab", 2, {"message": "it\n failed", "elapsed": 1.5})
    job = PLAIN | {"hm": {"batch": "b"}}
    *_, track = effects(KEYS, job, ending, told)
    kind, batch, jid, status, attempt, identity, detail, reason = track
    assert (kind, batch, jid, status, attempt, identity) == ("track", "b", JID, STATUS[ending], "2", "h:1:ab")
    assert msgspec.json.decode(detail) == {"ending": ending, "message": "it\n failed", "elapsed": 1.5}
    assert reason == ("it failed" if STATUS[ending] in ("failed", "error") else "")
    alone = effects(KEYS, PLAIN | {"hm": {"track": True}}, ending)
    assert alone[-1][:4] == ("track", "", JID, STATUS[ending])


@pytest.mark.parametrize("ending", sorted(TABLE))
def test_a_result_is_kept_when_the_job_is_over_and_not_before(ending: str) -> None:
    told = EndingFacts(detail={"result": [1], "started": 1.0})
    found = effects(KEYS, PLAIN | {"hm": {"result_ttl": 1.5}}, ending, told)
    kept = [one for one in found if one[0] == "result"]
    if ending not in FINAL:
        assert not kept
    else:
        [(_, key, ttl, text, channel)] = kept
        assert (key, ttl, channel) == (f"ns:hm:result:{JID}", "1500", f"ns:hm:done:{JID}")
        assert msgspec.json.decode(text) == {"status": STATUS[ending], "result": [1]}


def test_what_is_no_json_is_told_as_it_is_shown() -> None:
    told = EndingFacts(detail={"result": object, "message": "half \ud800 a pair"})
    text = encoded(KEYS, PLAIN | {"hm": {"track": True}}, "done", told)
    detail = msgspec.json.decode(msgspec.json.decode(text)[-1][6])
    assert detail == {"ending": "done", "result": "<class 'object'>", "message": "'half \\ud800 a pair'"}


@pytest.mark.parametrize("ending", sorted(TABLE))
@pytest.mark.parametrize("job", JOBS)
def test_every_ending_of_every_job(job: str, ending: str) -> None:
    expected = {effect for column in ROLES.get(job, (0,)) for effect in TABLE[ending][column]}
    found = effects(KEYS, JOBS[job], ending)
    assert set(found) == expected
    assert len(found) == len(expected)
    text = encoded(KEYS, JOBS[job], ending)
    assert bool(text) == bool(expected)
    if ending != "cancelled":
        assert of_payload(KEYS, encode(JOBS[job]), ending) == text


def test_an_unknown_ending_has_none() -> None:
    assert effects(KEYS, JOBS["both"], "vanished") == ()


@pytest.mark.parametrize("payload", [b"", b"{", b'"hm"', b'[{"hm":1}]', b'{"hm":{"cron":"x"}}', b'\xff"hm"'])
def test_a_payload_that_is_no_job_has_none(payload: bytes) -> None:
    assert of_payload(KEYS, payload, "deleted") == b""


def test_half_a_surrogate_pair_has_none() -> None:
    assert encoded(KEYS, PLAIN | {"hm": {"cron": "\ud800"}}, "done") == b""
