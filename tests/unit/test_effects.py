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
OF_KEYS = {"unlock", "unrun", "relock", "unlatest", "follow", "step"}  # tests/store/test_locks.py
OF_LIMITS = {"unslot", "spent"}  # below
GOES_ON = {"retry", "snoozed", "deferred", "released", "interrupted"}
JID = "0123456789abcdef01234567"

UNDEBOUNCE = ("undebounce", "s", "17", JID)
UNCANCEL, UNITERATE = ("uncancel", JID), ("uniterate", f"ns:it-{JID}")

PLAIN: dict[str, Any] = {"class": "x", "args": [], "jid": JID}
JOBS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "limited": PLAIN | {"hm": {"timeout": 5.0, "expires": 9.0}},
    "of a cron": PLAIN | {"hm": {"cron": "nightly", "planned": 1.5}},
    "iterable": PLAIN | {"hm": {"iterable": True}},
    "both": PLAIN | {"hm": {"iterable": True, "cron": "nightly"}},
    "debounced": PLAIN | {"hm": {"debounce": ["s", "17"]}},
    "oddly debounced": PLAIN | {"hm": {"debounce": ["s", 17]}},
    "odd": PLAIN | {"hm": ["cron"]},
    "odder": PLAIN | {"hm": {"cron": 7, "iterable": "yes"}},
    "without a jid": {"class": "x", "args": [], "hm": {"iterable": True, "cron": "nightly"}},
}


def cron_done(ending: str) -> tuple[str, ...]:
    return "cron_done", "nightly", JID, ending


#: ending → (effects of any job, of one of a cron, of an iterable one)
TABLE: dict[str, tuple[set[Any], set[Any], set[Any]]] = {
    "done": (set(), {cron_done("done")}, {UNITERATE}),
    "failed": (set(), {cron_done("failed")}, {UNITERATE}),
    "discarded": (set(), {cron_done("discarded")}, {UNITERATE}),
    "gone": (set(), {cron_done("gone")}, {UNITERATE}),
    "expired": (set(), {cron_done("expired")}, {UNITERATE}),
    "deleted": (set(), {cron_done("deleted")}, {UNITERATE}),
    "cancelled": ({UNCANCEL, UNITERATE}, {cron_done("cancelled")}, {UNITERATE}),
    "dead": (set(), {cron_done("dead")}, set()),
    "kept": (set(), {cron_done("kept")}, set()),
    "poisoned": (set(), {cron_done("poisoned")}, set()),
    "invalid": (set(), {cron_done("invalid")}, set()),
    **{ending: (set(), set(), set()) for ending in GOES_ON},
}
ROLES = {"of a cron": (0, 1), "iterable": (0, 2), "both": (0, 1, 2), "without a jid": ()}


def test_the_table_knows_every_ending_and_every_kind() -> None:
    assert set(TABLE) == {*ENDINGS, *BEYOND}
    assert set(TABLE) - GOES_ON == FINAL
    told = {effect[0] for row in TABLE.values() for some in row for effect in some}
    come = {"result", "undebounce", "step_result", "track", "said"}
    assert told | come | OF_KEYS | OF_LIMITS == set(KINDS), "five come with what was told of the end, below"
    assert set(STATUS) == {*TABLE, "rescued", "staged", "started", "revived", "held"}


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


@pytest.mark.parametrize("ending", [*sorted(TABLE), "held", "rescued", "trimmed", "started", "staged", "revived"])
def test_places_are_free_with_every_ending_and_points_are_what_a_run_said(ending: str) -> None:
    limits = [["c", "bank", "x", 2, 0, 1], ["l", "shop", "", 60, 60.0, 1], ["p", "api", "y", 100, 60.0, 10]]
    job = PLAIN | {"hm": {"limits": limits}}
    free, more = ("unslot", "bank", "x", JID), ("spent", "api", "y", "100", "60.0", "-3")
    found, gives = effects(KEYS, job, ending, EndingFacts(spent=7)), ending in {*TABLE, "held"}
    assert [one for one in found if one[0] in OF_LIMITS] == ([free, more] if gives else [])
    assert [one for one in effects(KEYS, job, ending) if one[0] in OF_LIMITS] == ([free] if gives else [])


@pytest.mark.parametrize(
    "said", ["bank", [["c", "bank"]], [["c", "a", "x", -1, 0, 1]], [["x", "a", "", 1, 0, 1]], [7], None]
)
def test_limits_that_nobody_can_read_count_as_not_said(said: object) -> None:
    assert effects(KEYS, PLAIN | {"hm": {"limits": said}}, "done") == ()


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


@pytest.mark.parametrize("ending", sorted(TABLE))
def test_a_batch_that_keeps_results_keeps_something_of_every_ending(ending: str) -> None:
    """Ahead of ``track``, which ends the membership."""
    job = PLAIN | {"hm": {"batch": "b", "results": True}}
    found = effects(KEYS, job, ending, EndingFacts(detail={"message": "no", "error_class": "E", "result": 7}))
    kinds = [one[0] for one in found]
    assert kinds[-1] == "track"
    assert ("step_result" in kinds) is (ending in FINAL)
    if ending in FINAL:
        kind, batch, jid, text = found[-2]
        assert (kind, batch, jid, text[:1]) == ("step_result", "b", JID, "!")
        assert msgspec.json.decode(text[1:]) == {"status": STATUS[ending], "message": "no", "error_class": "E"}


def kept(result: Any) -> str:
    job = PLAIN | {"hm": {"batch": "b", "results": True}}
    [(kind, _, _, text), _] = effects(KEYS, job, "done", EndingFacts(detail={"result": result, "elapsed": 1.5}))
    assert kind == "step_result"
    return text


def test_what_a_batch_keeps_of_a_job_that_finished() -> None:
    assert kept({"a": [1, "é"], "b": None}) == '={"a":[1,"é"],"b":null}'
    assert kept(None) == "=null"
    assert kept("x" * 65_534) == f'="{"x" * 65_534}"'
    large = msgspec.json.decode(kept("é" * 40_000)[1:])
    assert large["status"] == "finished"
    assert "80,002 bytes" in large["message"]
    job = PLAIN | {"hm": {"batch": "b", "results": True}}
    reason = effects(KEYS, job, "done", EndingFacts(detail={"reason": "its result cannot be kept: no JSON"}))[0]
    assert reason[3] == '!{"status":"finished","message":"its result cannot be kept: no JSON"}'


def test_of_an_end_that_cannot_be_written_down_the_batch_keeps_that() -> None:
    job = PLAIN | {"hm": {"batch": "b", "results": True, "cron": "half \ud800 a pair"}}
    kept, track = msgspec.json.decode(encoded(KEYS, job, "done", EndingFacts(detail={"result": 1})))
    assert (kept[:3], track[3]) == (["step_result", "b", JID], "finished")
    assert kept[3].startswith('!{"status":"finished","message":"its end could not be written down: ')
    [only] = msgspec.json.decode(encoded(KEYS, job, "retry"))
    assert only[0] == "track"


@pytest.mark.parametrize("hm", [{"batch": "b"}, {"results": True}, {"results": 1, "batch": "b"}, {"track": True}])
def test_only_members_of_a_batch_that_keeps_results_pay_for_them(hm: dict[str, Any]) -> None:
    assert "step_result" not in {one[0] for one in effects(KEYS, PLAIN | {"hm": hm}, "done")}
    odd = PLAIN | {"hm": {"results": True, "batch": "it:self"}}
    assert "step_result" not in {one[0] for one in effects(KEYS, odd, "done")}


def test_what_is_no_json_is_told_as_it_is_shown() -> None:
    told = EndingFacts(detail={"result": object, "message": "half \ud800 a pair"})
    text = encoded(KEYS, PLAIN | {"hm": {"track": True}}, "done", told)
    detail = msgspec.json.decode(msgspec.json.decode(text)[-1][6])
    assert detail == {"ending": "done", "result": "<class 'object'>", "message": "'half \\ud800 a pair'"}


@pytest.mark.parametrize("ending", sorted(TABLE))
@pytest.mark.parametrize("job", JOBS)
def test_every_ending_of_every_job(job: str, ending: str) -> None:
    expected = {effect for column in ROLES.get(job, (0,)) for effect in TABLE[ending][column]}
    if job == "debounced" and ending in FINAL:
        expected.add(UNDEBOUNCE)
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
