"""The three sets for people: order, pages, searches, and actions whose effect is seen in the server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from henchman.errors import ArgumentError
from henchman.inspector.sets import PAGE, Acted, JobSet, SetName
from support.garbage import GARBAGE, READABLE, fill, payload
from support.store import Store


def held(store: Store, which: SetName = "retries", **settings: object) -> JobSet:
    return JobSet(store.with_settings(**settings), which)  # type: ignore[arg-type]


def add(store: Store, key: str, *entries: tuple[float, bytes]) -> None:
    store.ask("ZADD", key, *[part for entry in entries for part in entry])


def walk(which: JobSet) -> Iterator[bytes]:
    return (entry.payload for entry in which)


def test_an_empty_set(store: Store) -> None:
    retries = held(store)
    assert (retries.size(), retries.page(), list(retries), retries.find("x"), list(retries.matching("x"))) == (
        *(0, [], [], None),
        [],
    )
    assert retries.retry_all() == retries.kill_all() == retries.clear() == Acted()


def test_order_and_pages(store: Store) -> None:
    for key in (store.keys.retry, store.keys.dead):
        add(store, key, *[(float(n), b"%d" % n) for n in range(7)])
    assert [one.score for one in held(store).page(0, 3)] == [0, 1, 2]
    assert [one.score for one in held(store).page(5, 3)] == [5, 6]
    assert [one.score for one in held(store, "dead").page(0, 3)] == [6, 5, 4]
    assert [one.score for one in held(store).between(2, 4)] == [2, 3, 4]


@pytest.mark.parametrize("which", ["retries", "dead"])
def test_walking_gives_each_entry_once_also_where_many_have_one_score(store: Store, which: SetName) -> None:
    jobs = held(store, which)
    entries = [(float(n if n < 50 or n > 400 else 50), payload(f"{n:024}")) for n in range(450)]
    add(store, jobs.key, *entries)
    found = list(walk(jobs))
    assert sorted(found) == sorted(one for _, one in entries)
    assert len(found) == 450


@pytest.mark.parametrize("which", ["retries", "dead"])
def test_walking_while_everything_met_is_deleted_skips_nothing(store: Store, which: SetName) -> None:
    jobs = held(store, which)
    add(store, jobs.key, *[(float(n // 120), payload(f"{n:024}")) for n in range(360)])
    met = []
    for entry in jobs:
        met.append(entry.jid)
        assert jobs.delete([entry]) == Acted(1)
    assert sorted(met) == [f"{n:024}" for n in range(360)]
    assert jobs.size() == 0


def test_walking_when_the_last_of_a_page_goes_amid_equal_scores(store: Store) -> None:
    jobs = held(store)
    add(store, jobs.key, *[(5.0, payload(f"{n:024}")) for n in range(500)])
    met = []
    for entry in jobs:
        met.append(entry.jid)
        if len(met) % PAGE == 0:
            store.ask("ZREM", jobs.key, entry.payload)
    assert met == [f"{n:024}" for n in range(500)]


def test_search_takes_its_text_literally(store: Store) -> None:
    jobs = held(store)
    odd = payload("a*[b]?\\c")
    add(store, jobs.key, (1.0, odd), (2.0, payload("axbxc")), *[(3.0, b"%d" % n) for n in range(2000)])
    assert [one.payload for one in jobs.matching("a*[b]?")] == [odd]
    assert jobs.find("axb") is None
    assert jobs.find("") is None
    assert jobs.find("axbxc").payload == payload("axbxc")  # type: ignore[union-attr]


def test_retry_now_keeps_the_count_and_every_digit(store: Store) -> None:
    jobs = held(store)
    big = payload("1" * 24, args=[12345678901234567890123, 0.1, "ä"], retry_count=2, enqueued_at=1.0, extra={"k": []})
    add(store, jobs.key, (9e9, big))
    assert jobs.retry(jobs.page()) == Acted(1)
    assert jobs.size() == 0
    (pushed,) = store.queue("mail")
    job = json.loads(pushed)
    assert job.pop("enqueued_at") > 1.7e9
    assert job == {name: value for name, value in json.loads(big).items() if name != "enqueued_at"}
    assert "ä".encode() in pushed
    assert store.ask("SMEMBERS", store.keys.queues) == [b"mail"]


def test_times_are_written_as_configured(store: Store) -> None:
    jobs = held(store, sidekiq="8", timestamps="ms")
    add(store, jobs.key, (1.0, payload()))
    jobs.retry_all()
    assert isinstance(json.loads(store.queue("mail")[0])["enqueued_at"], int)


def test_a_job_without_a_queue_goes_to_default(store: Store) -> None:
    jobs = held(store, "dead")
    add(store, jobs.key, (1.0, payload(queue=None)))
    assert jobs.retry_all() == Acted(1)
    assert len(store.queue("default")) == 1


def test_of_two_who_act_one_succeeds(store: Store) -> None:
    jobs = held(store)
    add(store, jobs.key, (1.0, payload("a" * 24)), (2.0, payload("b" * 24)))
    seen = jobs.page()
    assert jobs.retry(seen[:1]) == Acted(1)
    assert jobs.delete(seen) == Acted(1, gone=1)
    assert len(store.queue("mail")) == 1


def test_what_cannot_run_stays_and_the_rest_goes_on(store: Store) -> None:
    jobs = held(store)
    bad = [b"garbage %03d" % n for n in range(2 * PAGE + 30)]
    add(store, jobs.key, *[(float(n), one) for n, one in enumerate(bad)])
    add(store, jobs.key, *[(n + 0.5, payload(f"{n:024}")) for n in range(2 * PAGE + 30)])
    acted = jobs.retry_all()
    assert (acted.done, acted.gone, acted.stayed, len(acted.reasons)) == (2 * PAGE + 30, 0, 2 * PAGE + 30, PAGE)
    assert "garbage 000: payload is not JSON" in acted.reasons[0]
    assert sorted(store.members(jobs.key)) == bad
    assert len(store.queue("mail")) == 2 * PAGE + 30


def test_kill_wraps_what_cannot_be_read(store: Store) -> None:
    jobs = held(store)
    good = payload("a" * 24)
    add(store, jobs.key, (1.0, b"[1,2]"), (2.0, good))
    assert jobs.kill_all() == Acted(2)
    dead = held(store, "dead")
    wrapped = next(one for one in dead.page() if one.payload != good)
    assert good in store.members(store.keys.dead)
    assert (wrapped.job["args"], wrapped.job["error_class"]) == (["[1,2]"], "PayloadError")
    assert dead.retry_all().stayed == 1, "a wrapped payload is no job: a worker would lose it"
    with pytest.raises(ArgumentError, match="dead already"):
        dead.kill([wrapped])


def test_a_refusal_of_the_server_leaves_the_entry_and_stops(store: Store) -> None:
    jobs = held(store)
    store.ask("SET", store.keys.queue("mail"), "no list")
    add(store, jobs.key, *[(float(n), payload(f"{n:024}")) for n in range(PAGE + 50)])
    acted = jobs.retry_all()
    assert (acted.done, acted.stayed, acted.stopped) == (0, PAGE, True)
    assert "WRONGTYPE" in acted.reasons[0]
    assert jobs.size() == PAGE + 50


def test_clear_leaves_what_is_added_meanwhile(store: Store) -> None:
    jobs = held(store, "scheduled")
    add(store, jobs.key, *[(float(n), payload(f"{n:024}")) for n in range(250)])
    assert jobs.clear() == Acted(250)
    assert store.all_keys() == set()


@pytest.mark.parametrize("which", ["scheduled", "retries", "dead"])
def test_garbage_is_shown_and_moved(store: Store, which: SetName) -> None:
    fill(store, 1_795_000_000.0)
    jobs = held(store, which)
    found = list(jobs)
    assert len(found) == jobs.size() == len(GARBAGE) + len(READABLE) + 2
    for entry in found:
        assert isinstance(entry.name, str)
        assert isinstance(entry.call_text(), str)
        assert json.loads(json.dumps(entry.to_json())) == entry.to_json()
    assert sum(1 for one in found if one.problem) == len(GARBAGE) + 2
    acted = jobs.retry_all()
    assert (acted.done, acted.stayed) == (len(READABLE), len(GARBAGE) + 2)
    if which != "dead":
        assert jobs.kill_all().done == len(GARBAGE) + 2
    assert jobs.clear().stayed == 0
    assert jobs.size() == 0
