"""Batches on a real server: what each script promises, and what it leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from henchman.errors import BatchClosed, HistoryFull, ServerError, UnknownBatch
from henchman.history.stream import unbundled
from henchman.store import batches, history, jobs
from henchman.work.effects import EndingFacts, encoded, finished
from henchman.work.unit import InFlightList, Unit
from support.store import ME, Store

B, PARENT = "b" * 32, "a" * 32


def callback(which: str) -> dict[str, Any]:
    base = f"cb:{which}:"
    return {
        base + "queue": "calls",
        base + "head": f'{{"class":"{which}","args":["{B}"],"jid":"',
        base + "jid": f"{which}jid",
        base + "tail": '","created_at":1.5',
    }


def make(store: Store, batch: str = B, **fields: Any) -> bool:
    told = {"description": "d", "tags": "[]", "keep": "1000", "open_for": "60", "expires": "", "parent": ""}
    for which in ("success", "complete", "death"):
        told |= callback(which)
    return store.run(batches.make(store.keys, batch, told | fields, b'{"description":"d"}'))


def payload(jid: str, batch: str = B) -> bytes:
    return json.dumps({"class": "j", "args": [], "jid": jid, "queue": "q", "hm": {"batch": batch}}).encode()


def push(store: Store, *jids: str, batch: str = B, when: str = "", lane: tuple[str, int] = ("", 0), **more: Any) -> int:
    rows = [batches.TrackedPush(jid, when, payload(jid, batch), b'{"class":"j"}') for jid in jids]
    return store.run(batches.push(store.keys, batch, "q", rows, lane=lane, **more))


def short(jid: str, batch: str = B) -> bytes:
    """How an acker tells of a run that went well."""
    unit = Unit(payload(jid, batch), InFlightList("q", "queue:q", "flight", ME, 1), 0.0)
    unit.elapsed = 0.25
    return finished(unit, json.loads(payload(jid, batch)))


def end(store: Store, jid: str, ending: str = "done", batch: str = B, reason: str = "") -> None:
    """As an acker does it, of a job that was fetched."""
    told = EndingFacts(ME, 1, {"reason": reason} if reason else {})
    text = encoded(store.keys, json.loads(payload(jid, batch)), ending, told)
    if ending == "done" and not reason:
        text = short(jid, batch)
    store.join("q")
    store.ask("LREM", "queue:q", 1, payload(jid, batch))
    store.ask("LPUSH", store.flight("q"), payload(jid, batch))
    kept: float | str = batch if ending == "kept" else 0.0
    unit = jobs.Settlement(1, payload(jid, batch), ending, payload(jid, batch), kept, text)
    assert store.settle(unit, queues=("q",)) == [1]


def facts(store: Store, batch: str = B) -> dict[str, str]:
    found = store.run(batches.facts(store.keys, batch)).facts
    counts = {name: int(value) for name, value in found.items() if name.startswith("n:")}
    assert sum(counts.values()) == int(found.get("total", 0)), found
    assert all(value >= 0 for value in counts.values())
    live = store.ask("HGETALL", store.keys.batch(batch) + ":jobs")
    kinds = [live[i] for i in range(1, len(live), 2)]
    for status in ("blocked", "scheduled", "enqueued", "working", "retrying"):
        assert kinds.count(status.encode()) == counts.get(f"n:{status}", 0), (status, found)
    return found


def calls(store: Store) -> list[str]:
    """The callbacks that were enqueued, by class and jid, oldest first."""
    found = [json.loads(one) for one in store.queue("calls")]
    assert all(one["args"] == [B] and isinstance(one["enqueued_at"], float) for one in found)
    assert all(one["enqueued_at"] == round(one["enqueued_at"], 3) for one in found), "whole milliseconds"
    assert all(repr(one["enqueued_at"]).encode() in text for one, text in zip(found, store.queue("calls"), strict=True))
    return [f"{one['class']} {one['jid']}" for one in found]


def test_a_batch_goes_its_way(store: Store) -> None:
    assert make(store) is True
    assert make(store) is False, "sent again, it is the same batch"
    assert push(store, "1", "2", "3") == 3
    assert facts(store)["state"] == "open"
    end(store, "1")
    end(store, "2", "failed", reason="no")
    assert store.run(batches.close(store.keys, B)) == "closed"
    assert calls(store) == []
    end(store, "3")
    told = facts(store)
    assert (told["state"], told["n:finished"], told["n:failed"]) == ("complete", "2", "1")
    assert calls(store) == ["complete completejid"], "not all finished: no success"
    assert store.run(batches.facts(store.keys, B)).reasons == {"failed no": 1}
    assert 0 < store.ask("TTL", store.keys.batch(B)) <= 1000
    assert store.ask("EXISTS", store.keys.batch(B) + ":jobs", store.keys.producer(B)) == 0


def test_states_of_one_and_of_several(store: Store) -> None:
    make(store)
    assert store.run(batches.states(store.keys, [B])) == ["open"]
    assert store.run(batches.states(store.keys, [B, "gone"])) == ["open", ""]
    assert store.run(batches.states(store.keys, ["gone"])) == [""]


def test_success_and_death_are_called_once(store: Store) -> None:
    make(store)
    push(store, "1", "2", "3")
    end(store, "1", "gone", reason="boom")
    end(store, "2", "gone", reason="boom")
    assert calls(store) == ["death deathjid"]
    store.run(batches.close(store.keys, B))
    store.run(batches.close(store.keys, B))
    end(store, "3")
    assert calls(store) == ["death deathjid", "complete completejid"]


def test_many_that_end_in_one_call_are_counted_together(store: Store) -> None:
    store.run(history.turn_on(store.keys, "strict", 1_000_000))
    make(store, PARENT)
    make(store, B, parent=PARENT)
    push(store, "1", "2", "3", "3 again")
    push(store, "p", batch=PARENT)
    for one in (B, PARENT):
        store.run(batches.close(store.keys, one))
    store.join("q")
    store.fetch("q")
    units = []
    for jid, batch, ending in (
        ("1", B, "done"),
        ("p", PARENT, "done"),
        ("2", B, "gone"),
        ("3", B, "retry"),
        ("3 again", B, "failed"),
    ):
        text = encoded(store.keys, json.loads(payload(jid, batch)), ending, EndingFacts(ME, 1, {}))
        units.append(jobs.Settlement(1, payload(jid, batch), ending, payload(jid, batch), 60.0, text))
    assert store.settle(*units, queues=("q",)) == [1] * 5
    told = facts(store)
    assert {name: told[f"n:{name}"] for name in ("finished", "error", "failed", "retrying", "enqueued")} == {
        "finished": "1",
        "error": "1",
        "failed": "1",
        "retrying": "1",
        "enqueued": "0",
    }
    assert float(told["first"]) <= store.now()
    assert facts(store, PARENT)["state"] == "closed", "its part has a job left"
    assert calls(store) == ["death deathjid"]
    end(store, "3")
    assert facts(store)["state"] == facts(store, PARENT)["state"] == "complete"
    rows = store.ask("XRANGE", store.keys.history, "-", "+")
    assert int(store.ask("GET", store.keys.history_bytes)) == sum(history.size_of(row) for _, row in rows)


def test_an_empty_batch_is_complete_when_it_is_closed(store: Store) -> None:
    make(store)
    assert store.run(batches.close(store.keys, B)) == "complete"
    assert calls(store) == ["complete completejid", "success successjid"]
    assert store.run(batches.close(store.keys, B)) == "complete"
    assert len(calls(store)) == 2


@pytest.mark.parametrize("why", ["aborted", "cancelled", "expired", "invalidated"])
def test_what_did_not_end_well_is_no_success(store: Store, why: str) -> None:
    make(store)
    store.run(batches.close(store.keys, B, why))
    assert calls(store) == ["complete completejid"]
    assert facts(store)["why"] == why


def test_a_stronger_reason_replaces_a_weaker_one(store: Store) -> None:
    make(store)
    push(store, "1")
    for why, known in (("aborted", "aborted"), ("", "aborted"), ("cancelled", "cancelled"), ("aborted", "cancelled")):
        store.run(batches.close(store.keys, B, why))
        assert facts(store)["why"] == known


def test_a_job_that_ends_twice_counts_once(store: Store) -> None:
    make(store)
    push(store, "1", "2")
    end(store, "1")
    end(store, "1", "gone")
    told = facts(store)
    assert (told["n:finished"], told.get("n:error", "0"), told["n:enqueued"]) == ("1", "0", "1")
    assert calls(store) == []


def test_a_push_whose_answer_was_lost_is_known_again_though_its_job_has_ended(store: Store) -> None:
    make(store)
    assert push(store, "1", "2", lane=("me", 1)) == 2
    end(store, "1")
    assert push(store, "1", "2", lane=("me", 1)) == 2
    assert facts(store)["total"] == "2"
    assert store.queue("q") == [payload("2")]
    store.run(batches.close(store.keys, B))
    assert push(store, "1", "2", lane=("me", 1)) == 2, "also when it was closed in between"
    end(store, "2")
    assert facts(store)["state"] == "complete"
    assert 0 < store.ask("TTL", store.keys.batch(B) + ":lanes") <= 1000


def test_a_push_that_comes_late_beside_the_one_that_was_sent_again_pushes_nothing(store: Store) -> None:
    """Bytes of a connection that was given up may arrive when the next push under that name has been answered."""
    make(store)
    assert push(store, "1", lane=("me", 1)) == 1
    end(store, "1")
    assert push(store, "2", "3", lane=("me", 2)) == 2
    push(store, "1", lane=("me", 1))
    assert facts(store)["total"] == "3"
    assert store.queue("q") == [payload("2"), payload("3")]
    assert push(store, "2", "3", lane=("me", 2)) == 2, "the later one is known still"


@pytest.mark.parametrize("when", ["", "+60"])
def test_a_push_that_is_refused_leaves_no_member(store: Store, when: str) -> None:
    make(store)
    store.ask("SET", "schedule" if when else "queue:q", "something else")
    with pytest.raises(ServerError, match="WRONGTYPE"):
        push(store, "1", "2", when=when)
    assert not store.ask("EXISTS", store.keys.batch(B) + ":jobs")
    assert facts(store)["total"] == "0"
    store.run(batches.close(store.keys, B))
    assert facts(store)["state"] == "complete"


def test_a_member_is_pushed_once(store: Store) -> None:
    make(store)
    assert push(store, "1", "2") == 2
    assert push(store, "2", "3") == 1
    assert [json.loads(one)["jid"] for one in store.queue("q")] == ["1", "2", "3"]
    assert facts(store)["total"] == "3"


def test_nobody_pushes_into_what_is_closed_or_unknown(store: Store) -> None:
    with pytest.raises(UnknownBatch):
        push(store, "1")
    with pytest.raises(UnknownBatch):
        store.run(batches.close(store.keys, B))
    make(store)
    push(store, "1")
    store.run(batches.close(store.keys, B))
    with pytest.raises(BatchClosed):
        push(store, "2")
    with pytest.raises(BatchClosed):
        push(store, "2", member="somebody else")
    assert push(store, "2", member="1") == 1, "a job of the batch that has not ended may"
    end(store, "1")
    with pytest.raises(BatchClosed):
        push(store, "3", member="1")
    store.run(batches.close(store.keys, B, "cancelled"))
    with pytest.raises(BatchClosed):
        push(store, "3", member="2")
    assert facts(store)["total"] == "2"


def test_nobody_pushes_into_what_has_expired(store: Store) -> None:
    make(store, expires=repr(store.now() - 1))
    with pytest.raises(BatchClosed):
        push(store, "1")
    assert store.queue("q") == []


def test_later_jobs_wait_in_the_schedule(store: Store) -> None:
    make(store)
    before = store.now()
    push(store, "1", when="+60.0")
    push(store, "2", when="1234.5")
    scores = dict(zip(*[iter(store.ask("ZRANGE", "schedule", 0, -1, "WITHSCORES"))] * 2, strict=True))
    assert float(scores[payload("2")]) == 1234.5
    assert before + 59.9 < float(scores[payload("1")]) <= store.now() + 60
    assert facts(store)["n:scheduled"] == "2"


def test_parked_jobs_wait_for_the_end_of_their_block(store: Store) -> None:
    make(store, atomic="1")
    push(store, "one of many", "2", when="parked")
    push(store, "3", when="parked+60.0")
    assert facts(store)["n:blocked"] == "3"
    assert store.queue("q") == []
    store.run(batches.close(store.keys, B))
    assert store.run(batches.release(store.keys, B, 1)) == 2
    assert store.run(batches.release(store.keys, B, 10)) == 0
    assert [json.loads(one)["jid"] for one in store.queue("q")] == ["one of many", "2"]
    assert all(isinstance(json.loads(one)["enqueued_at"], float) for one in store.queue("q"))
    assert store.members("schedule") == [payload("3")]
    told = facts(store)
    assert (told["n:enqueued"], told["n:scheduled"], told["n:blocked"]) == ("2", "1", "0")


def test_parked_jobs_of_a_block_that_failed_go_nowhere(store: Store) -> None:
    make(store, atomic="1")
    push(store, "1", "2", when="parked")
    assert store.run(batches.close(store.keys, B, "aborted")) == "closed"
    assert store.run(batches.release(store.keys, B, 10)) == 0
    told = facts(store)
    assert (told["state"], told["n:cancelled"]) == ("complete", "2")
    assert store.queue("q") == []
    assert calls(store) == ["complete completejid"]


def test_a_parked_job_that_its_queue_refuses_stays_parked_and_the_others_go(store: Store) -> None:
    make(store, atomic="1")
    push(store, "1", "2", when="parked")
    other = batches.TrackedPush("3", "parked", payload("3"), b"{}")
    store.run(batches.push(store.keys, B, "other", [other]))
    store.ask("SET", "queue:q", "no list")
    store.run(batches.close(store.keys, B))
    with pytest.raises(ServerError, match="WRONGTYPE"):
        store.run(batches.release(store.keys, B, 10))
    assert [json.loads(one)["jid"] for one in store.queue("other")] == ["3"]
    assert (facts(store)["n:blocked"], facts(store)["n:enqueued"]) == ("2", "1")
    store.ask("DEL", "queue:q")
    assert store.run(batches.release(store.keys, B, 10)) == 0
    assert sorted(json.loads(one)["jid"] for one in store.queue("q")) == ["1", "2"]
    assert facts(store)["n:enqueued"] == "3"


def test_a_parent_waits_for_its_children(store: Store) -> None:
    make(store, PARENT)
    make(store, B, parent=PARENT)
    push(store, "1")
    assert store.run(batches.close(store.keys, PARENT)) == "closed"
    store.run(batches.close(store.keys, B))
    assert facts(store, PARENT)["state"] == "closed"
    end(store, "1", "failed", reason="no")
    assert facts(store, PARENT)["state"] == "complete"
    assert facts(store, PARENT)["bad_children"] == "1"
    assert [one for one in calls(store) if one.startswith("success")] == []


def test_a_callback_that_its_queue_refuses_is_shown_and_holds_up_nobody(store: Store) -> None:
    make(store, PARENT)
    make(store, B, parent=PARENT)
    store.run(batches.close(store.keys, PARENT))
    store.ask("SET", "queue:calls", "no list")
    assert store.run(batches.close(store.keys, B)) == "complete"
    for one in (B, PARENT):
        assert facts(store, one)["state"] == "complete"
        assert 0 < store.ask("TTL", store.keys.batch(one)) <= 1000
    notes = [json.loads(one) for one in store.ask("LRANGE", store.keys.broken, 0, -1)]
    assert [one["effects"] for one in notes] == ["success", "complete"] * 2
    assert all("WRONGTYPE" in one["error"] and json.loads(one["unit"])["args"] == [B] for one in notes)


def test_a_history_that_is_no_stream_stops_no_batch(store: Store) -> None:
    store.run(history.turn_on(store.keys, "strict", 1_000_000))
    store.ask("SET", store.keys.history, "no stream")
    make(store)
    assert push(store, "1", "2", "3") == 3
    end(store, "1")
    end(store, "2", "kept", reason="boom")
    end(store, "3", "failed", reason="no")
    assert store.run(batches.close(store.keys, B)) == "complete"
    told = facts(store)
    assert (told["n:finished"], told["n:error"], told["n:failed"]) == ("1", "1", "1")
    assert calls(store) == ["death deathjid", "complete completejid"]
    notes = [json.loads(one) for one in store.ask("LRANGE", store.keys.broken, 0, -1)]
    assert notes
    assert all("WRONGTYPE" in one["error"] for one in notes)


def test_nothing_becomes_part_of_what_takes_nothing_more(store: Store) -> None:
    with pytest.raises(BatchClosed, match=PARENT):
        make(store, B, parent=PARENT)
    make(store, PARENT)
    store.run(batches.close(store.keys, PARENT))
    with pytest.raises(BatchClosed):
        make(store, B, parent=PARENT)
    assert store.ask("EXISTS", store.keys.batch(B)) == 0


def test_a_dead_job_that_its_queue_refuses_stays_with_its_batch(store: Store) -> None:
    make(store)
    push(store, "1", "2")
    store.run(batches.close(store.keys, B))
    for jid in ("1", "2"):
        end(store, jid, "kept", reason="boom")
    assert store.run(batches.states(store.keys, [B])) == ["complete"]
    store.ask("SET", "queue:q", "no list")
    rows = [batches.Retried("1", "q", payload("1"), b"1"), batches.Retried("2", "other", payload("2"), b"2")]
    with pytest.raises(ServerError, match="WRONGTYPE"):
        store.run(batches.retry(store.keys, B, rows[:1]))
    assert facts(store)["state"] == "complete"
    assert 0 < store.ask("TTL", store.keys.batch(B) + ":dead") <= 1000, "it is forgotten with its batch"
    with pytest.raises(ServerError, match="WRONGTYPE"):
        store.run(batches.retry(store.keys, B, rows))
    assert store.queue("other") == [b"2"]
    assert store.members(store.keys.batch(B) + ":dead") == [payload("1")]
    assert (facts(store)["n:error"], facts(store)["n:enqueued"]) == ("1", "1")
    store.ask("DEL", "queue:q")
    assert store.run(batches.retry(store.keys, B, rows)).count(1) == 1
    assert store.queue("q") == [b"1"]


def test_the_dead_are_kept_with_their_batch_and_tried_again_in_the_next_generation(store: Store) -> None:
    make(store, PARENT)
    make(store, B, parent=PARENT)
    push(store, "1", "2")
    for one in (PARENT, B):
        store.run(batches.close(store.keys, one))
    end(store, "1", "kept", reason="boom")
    end(store, "2")
    assert store.members("dead") == []
    assert facts(store)["state"] == facts(store, PARENT)["state"] == "complete"
    dead = [one.payload for one in store.run(batches.dead(store.keys, B, 0, 10)).members]
    assert dead == [payload("1")]
    again = [batches.Retried("1", "q", dead[0], payload("1"))]
    assert store.run(batches.retry(store.keys, B, again)) == [1]
    assert store.run(batches.retry(store.keys, B, again)) == [0], "sent again, it is pushed once"
    told = facts(store)
    assert (told["state"], told["generation"], told["n:error"], told["n:enqueued"]) == ("closed", "2", "0", "1")
    assert facts(store, PARENT)["state"] == "closed"
    assert facts(store, PARENT)["bad_children"] == "0"
    assert store.ask("TTL", store.keys.batch(B)) == -1
    assert store.run(batches.facts(store.keys, B)).reasons == {}, "what is tried again has no reason any more"
    before = calls(store)
    end(store, "1")
    assert facts(store, PARENT)["state"] == "complete"
    assert calls(store)[len(before) :] == [
        "complete completejid-g2",
        "success successjid-g2",
        "complete completejid-g2",
        "success successjid-g2",
    ]


def test_many_ends_in_one_call_count_each_job_once(store: Store) -> None:
    store.run(history.turn_on(store.keys, "strict", 1_000_000))
    make(store)
    make(store, PARENT)
    mine, theirs = [str(number) for number in range(1200)], ["a", "b"]
    push(store, *mine)
    push(store, *theirs, batch=PARENT)
    store.ask("DEL", store.keys.history)
    store.join("q")
    told = [(one, B, short(one)) for one in [*mine[:600], "7", "stranger"]]
    told += [(one, PARENT, short(one, PARENT)) for one in theirs]
    told += [
        (mine[600], B, encoded(store.keys, json.loads(payload(mine[600])), "done", EndingFacts(ME, 1, {"result": "x"})))
    ]
    told += [
        (
            mine[601],
            B,
            encoded(store.keys, json.loads(payload(mine[601])), "failed", EndingFacts(ME, 1, {"reason": "no"})),
        )
    ]
    told += [(mine[601], B, short(mine[601]))]
    for one, batch, _ in told:
        store.ask("LPUSH", store.flight("q"), payload(one, batch))
    units = [jobs.Settlement(1, payload(one, batch), "done", b"", 0.0, text) for one, batch, text in told]
    assert store.settle(*units, queues=("q",)) == [1] * len(told)
    assert store.ask("LLEN", store.flight("q")) == 0
    status = facts(store)
    assert (status["n:finished"], status["n:failed"], status["n:enqueued"]) == ("601", "1", "598")
    assert facts(store, PARENT)["n:finished"] == "2"
    assert "first" in status
    rows = [(at, list(row)) for at, row in store.ask("XRANGE", store.keys.history, "-", "+")]
    parts = [dict(zip(*[iter(row)] * 2, strict=True)) for _, row in unbundled(rows)]
    assert len(rows) < 11, "what they have in common is written once a call, and a call ends a hundred"
    ended = [(row[b"j"].decode(), row[b"s"].decode()) for row in parts]
    expected = [(one, "finished") for one in [*mine[:601], *theirs]] + [(mine[601], "failed")]
    assert sorted(ended) == sorted(expected)
    assert {json.loads(row[b"d"])["ending"] for row in parts} == {"done", "failed"}
    assert {row[b"w"].decode() for row in parts} == {ME}


def test_a_batch_whose_key_somebody_broke_stops_no_other(store: Store) -> None:
    make(store)
    make(store, PARENT)
    push(store, "1")
    push(store, "2", batch=PARENT)
    store.ask("SET", store.keys.batch(B) + ":jobs", "broken")
    store.join("q")
    units = []
    for one, batch in (("1", B), ("2", PARENT)):
        store.ask("LPUSH", store.flight("q"), payload(one, batch))
        units.append(jobs.Settlement(1, payload(one, batch), "done", b"", 0.0, short(one, batch)))
    assert store.settle(*units, queues=("q",)) == [1, 1]
    assert facts(store, PARENT)["n:finished"] == "1"
    assert "WRONGTYPE" in store.ask("LINDEX", store.keys.broken, 0).decode()


def test_history_is_written_with_the_change_and_only_when_it_is_on(store: Store) -> None:
    make(store)
    push(store, "1")
    assert store.ask("EXISTS", store.keys.history) == 0
    store.run(history.turn_on(store.keys, "strict", 1_000_000))
    push(store, "2")
    end(store, "1", "gone", reason="boom")
    end(store, "1", "gone", reason="boom")
    store.run(batches.close(store.keys, B))
    end(store, "2")
    rows = [dict(zip(*[iter(row)] * 2, strict=True)) for _, row in store.ask("XRANGE", store.keys.history, "-", "+")]
    told = [(row[b"k"].decode(), row.get(b"j", b"").decode(), row[b"s"].decode()) for row in rows]
    assert told == [
        ("job", "2", "enqueued"),
        ("job", "1", "error"),
        ("batch", "", "closed"),
        ("job", "2", "finished"),
        ("batch", "", "complete"),
    ]
    assert json.loads(rows[-1][b"d"])["counts"]["error"] == 1
    assert json.loads(rows[1][b"d"])["reason"] == "boom"
    sizes = [history.size_of([part for pair in row.items() for part in pair]) for row in rows]
    assert int(store.ask("GET", store.keys.history_bytes)) == sum(sizes)


def test_a_full_history_refuses_pushes_or_forgets_words(store: Store) -> None:
    make(store)
    store.run(history.turn_on(store.keys, "strict", 10))
    push(store, "1")
    with pytest.raises(HistoryFull):
        push(store, "2")
    assert facts(store)["total"] == "1"
    said = json.dumps([["said", "log", "1", B, ME, '{"text":"x"}']]).encode()
    store.run(batches.note(store.keys, [said]))
    assert store.ask("GET", store.keys.history_dropped) == b"1"
    store.run(history.turn_on(store.keys, "best_effort", 10))
    assert push(store, "2") == 1
    end(store, "1")
    assert facts(store)["n:finished"] == "1"


def test_a_start_counts_only_of_what_is_in_flight(store: Store) -> None:
    make(store)
    push(store, "1")
    start = encoded(store.keys, json.loads(payload("1")), "started", EndingFacts(ME, 1, {}))
    one = batches.Started(store.flight("q"), payload("1"), start)
    assert store.run(batches.started(store.keys, [one])) == 0
    assert facts(store)["n:enqueued"] == "1"
    store.join("q")
    store.fetch("q")
    assert store.run(batches.started(store.keys, [one])) == 1
    assert facts(store)["n:working"] == "1"


def test_a_cancelled_batch_is_named_until_it_is_complete(store: Store) -> None:
    make(store)
    push(store, "1")
    store.run(jobs.cancel_batch(store.keys, B))
    store.run(batches.close(store.keys, B, "cancelled"))
    assert store.members(store.keys.cancelled) == [f"batch:{B}".encode()]
    end(store, "1", "cancelled")
    assert store.members(store.keys.cancelled) == []
    store.run(jobs.cancel_batch(store.keys, B))
    assert store.run(batches.close(store.keys, B, "cancelled")) == "complete"
    assert store.members(store.keys.cancelled) == []


def test_a_lease_is_renewed_while_the_batch_is_open(store: Store) -> None:
    make(store)
    store.ask("PEXPIRE", store.keys.producer(B), 15_000)
    store.run(batches.renew_producer(store.keys, [B, PARENT]))
    assert store.ask("PTTL", store.keys.producer(B)) > 15_000, "30 s from here on"
    assert store.ask("EXISTS", store.keys.producer(PARENT)) == 0
    assert store.run(batches.facts(store.keys, B)).filled


def test_a_child_that_is_gone_is_settled_as_a_bad_one(store: Store) -> None:
    make(store, PARENT)
    make(store, B, parent=PARENT)
    store.run(batches.close(store.keys, PARENT))
    store.ask("UNLINK", store.keys.batch(B))
    text = encoded(store.keys, {"jid": f"batch:{B}", "hm": {"batch": PARENT}}, "gone")
    store.run(batches.note(store.keys, [text]))
    told = facts(store, PARENT)
    assert (told["state"], told["bad_children"]) == ("complete", "1")
