"""The records of a tracked ordered queue: each push is told of in the script that moves it, whatever becomes of it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from henchman.errors import HistoryFull, ServerError
from henchman.store import history, ordered, ordered_people
from henchman.store.ordered import Push, QueueTracked, Verdict
from henchman.store.ordered_people import Act
from support.ordered import FAR, OrderedQueue
from support.ordered_records import Records
from support.store import ME, Store

YOU = "host:2:ba9876543210"


@pytest.fixture
def queue(store: Store) -> OrderedQueue:
    return made(store)


def made(store: Store, collapse: str = "min", name: str = "q") -> OrderedQueue:
    queue = OrderedQueue(store, name, collapse, tracked=True)
    queue.join(ME, YOU)
    return queue


@pytest.fixture
def records(store: Store, queue: OrderedQueue) -> Iterator[Records]:
    told = Records(store)
    yield told
    told.agree([queue])


def end(queue: OrderedQueue, verdict: str, name: bytes = b"a", delay: float = 0) -> None:
    token = int(queue.kept().busy[name].partition(b"|")[0])
    assert queue.settle(ME, Verdict(token, name, verdict, delay, 0, "why")) == [1]


def act(queue: OrderedQueue, what: Act, *ids: bytes) -> list[int | bytes]:
    return queue.store.run(ordered_people.act(queue.store.keys, queue.name, what, ids)).statuses


class TestALife:
    def test_a_push_says_class_queue_arguments_and_score(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b'{"price":17}', 1001)
        [step] = records.of(queue, {"price": 17})
        assert step.status == "enqueued"
        assert step.detail == {"class": "job", "queue": "q", "args": ["a", {"price": 17}], "kwargs": {"score": 1001}}

    def test_a_push_without_a_score_says_the_time_that_it_got(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1")
        [step] = records.of(queue, 1)
        assert step.detail["kwargs"] == {"score": queue.waiting(b"a")[0][0]}

    def test_one_for_later_is_scheduled(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 5, FAR)
        queue.put("a", b"2", 6)  # its own time does not count
        assert records.words(queue, 1) == records.words(queue, 2) == ["scheduled"]
        assert records.of(queue, 1)[0].detail["kwargs"] == {"score": 5, "at": FAR}

    def test_large_payloads_are_told_of_by_their_size(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b'"' + b"x" * 70_000 + b'"', 5)
        assert records.words(queue, "(70002 bytes)") == ["enqueued"]

    def test_odd_ids(self, queue: OrderedQueue, records: Records) -> None:
        name = 'é"\\\n\0/'
        queue.put(name, b"1", 5)
        assert records.words(queue, 1, name) == ["enqueued"]
        [(token, one)] = queue.take(ME)
        queue.settle(ME, Verdict(token, one.id, "done"))
        assert records.words(queue, 1, name) == ["enqueued", "working", "finished"]

    def test_it_runs_and_nothing_is_left(self, queue: OrderedQueue, records: Records) -> None:
        for payload in (b"1", b"2"):
            queue.put("a", payload, 5)
        [(token, one)] = queue.take(ME)
        assert len(one.jids) == 2
        assert set(one.jids) == {jid.encode() for jid in records.read()}
        end(queue, "done")
        for payload in (1, 2):
            _, working, finished = records.of(queue, payload)
            assert (working.status, working.attempt, working.identity) == ("working", "1", ME)
            assert working.detail == {"ending": "started", "token": token}
            assert (finished.status, finished.identity) == ("finished", ME)
        assert not queue.left()

    @pytest.mark.parametrize(
        ("verdict", "status"), [("retry", "retrying"), ("snooze", "scheduled"), ("release", "enqueued")]
    )
    @pytest.mark.parametrize("others", [False, True], ids=["alone", "with another"])
    def test_it_goes_on(self, queue: OrderedQueue, records: Records, verdict: str, status: str, others: bool) -> None:
        queue.put("a", b"1", 5)
        if others:
            queue.put("a", b"2", 6)
        queue.take(ME)
        queue.put("a", b"3", 4)
        end(queue, verdict)
        for payload in (1, 2)[: 1 + others]:
            assert records.words(queue, payload) == ["enqueued", "working", status]
        assert records.words(queue, 3) == ["enqueued"]
        queue.set_due(b"a", 1)
        queue.take(ME)
        assert records.of(queue, 3)[-1].attempt == ("2" if verdict == "retry" else "1")
        end(queue, "done")
        assert records.words(queue, 1) == ["enqueued", "working", status, "working", "finished"]
        assert records.words(queue, 3) == ["enqueued", "working", "finished"]

    def test_beyond_the_cap_it_waits(self, queue: OrderedQueue, records: Records) -> None:
        for payload in (b"1", b"2", b"3"):
            queue.put("a", payload, int(payload))
        queue.take(ME, cap=2)
        end(queue, "done")
        assert [records.words(queue, one)[-1] for one in (1, 2, 3)] == ["finished", "finished", "enqueued"]

    def test_more_payloads_than_lua_unpacks(self, queue: OrderedQueue, records: Records) -> None:
        for first in range(0, 3000, 500):
            queue.push(*(Push(b"a", "", str(first + place), b"%d" % (first + place)) for place in range(500)))
        queue.take(ME, cap=2500)
        records.agree([queue])
        end(queue, "retry")
        records.agree([queue])
        queue.take(ME, cap=2500)
        end(queue, "done")
        assert len([life for life in records.read().values() if life[-1].status == "finished"]) == 2500
        assert act(queue, "delete", b"a") == [1]
        assert not queue.left()


class TestMerging:
    @pytest.mark.parametrize("others", [False, True], ids=["alone", "with another"])
    @pytest.mark.parametrize("in_flight", [False, True], ids=["waiting", "in flight"])
    def test_an_equal_payload_ends_at_once_and_names_the_one_that_goes_on(
        self, queue: OrderedQueue, records: Records, others: bool, in_flight: bool
    ) -> None:
        if in_flight:
            queue.put("a", b"0", 1)
            queue.take(ME)
        if others:
            queue.put("a", b"9", 9)
        queue.put("a", b"17", 5)
        [first] = [jid for jid, life in records.read().items() if life[0].detail["args"][1] == 17]
        queue.put("a", b"17", 4)
        [(jid, second)] = [
            (jid, life)
            for jid, life in records.read().items()
            if len(life) > 1 and jid != first and life[0].detail["args"][1] == 17
        ]
        assert [step.status for step in second] == ["enqueued", "cancelled"]
        assert second[1].detail == {"ending": "merged", "reason": f"merged into {first}: an equal payload waits"}
        assert jid != first
        assert records.read()[first][-1].status == "enqueued"

    @pytest.mark.parametrize("in_flight", [False, True], ids=["waiting", "in flight"])
    def test_latest(self, store: Store, in_flight: bool) -> None:
        queue, records = made(store, "latest"), Records(store)
        if in_flight:
            queue.put("a", b"0", 0)
            queue.take(ME)
        for score, payload in ((5, b"1"), (4, b"2"), (7, b"3"), (7, b"4"), (6, b"5")):
            queue.put("a", payload, score)
        ends = [records.words(queue, payload)[-1] for payload in (1, 2, 3, 4, 5)]
        assert ends == ["cancelled", "cancelled", "cancelled", "enqueued", "cancelled"]
        if in_flight:
            end(queue, "retry")
            assert records.words(queue, 0) == ["enqueued", "working", "retrying", "cancelled"]
        records.agree([queue])

    def test_what_arrived_meets_an_equal_one_that_failed(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 5)
        queue.take(ME)
        queue.put("a", b"1", 3)
        end(queue, "retry")
        assert sorted(life[-1].status for life in records.read().values()) == ["cancelled", "retrying"]

    def test_without_collapse_each_push_has_its_own_life(self, store: Store) -> None:
        queue, records = made(store, "none"), Records(store)
        for _ in range(3):
            queue.put("a", b"1", 5)
        queue.take(ME)
        end(queue, "done")
        assert [[step.status for step in life] for life in records.read().values()] == [
            ["enqueued", "working", "finished"]
        ] * 3
        assert not queue.left()


class TestTheMorgue:
    def test_the_lowest_is_an_error_and_the_rest_goes_on(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 1)
        queue.put("a", b"2", 2)
        queue.take(ME)
        end(queue, "to_morgue")
        assert records.words(queue, 1) == ["enqueued", "working", "error"]
        assert records.words(queue, 2) == ["enqueued", "working", "enqueued"]

    def test_revived_it_goes_on(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 1)
        queue.take(ME)
        end(queue, "to_morgue")
        assert act(queue, "revive", b"a") == [1]
        queue.take(ME)
        end(queue, "done")
        assert records.words(queue, 1) == ["enqueued", "working", "error", "enqueued", "working", "finished"]
        assert not queue.left()

    def test_buried_for_good(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 1)
        act(queue, "kill", b"a")
        assert act(queue, "purge", b"a") == [1]
        assert records.words(queue, 1) == ["enqueued", "error", "cancelled"]
        assert not queue.left()


class TestPeople:
    def test_delete(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 1)
        queue.put("a", b"2", 2)
        assert act(queue, "delete", b"a") == [1]
        assert records.words(queue, 1) == records.words(queue, 2) == ["enqueued", "cancelled"]
        assert records.of(queue, 1)[-1].detail["reason"] == "deleted by hand"
        assert not queue.left()

    def test_delete_what_arrived_beside_a_run(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 1)
        queue.take(ME)
        queue.put("a", b"2", 2)
        assert act(queue, "delete", b"a") == [2]
        assert records.words(queue, 1) == ["enqueued", "working"]
        assert records.words(queue, 2) == ["enqueued", "cancelled"]

    def test_one_payload_alone(self, queue: OrderedQueue, records: Records, store: Store) -> None:
        for place in (1, 2, 3):
            queue.put("a", b"%d" % place, place)
        act(queue, "kill", b"a")
        for pile, place in (("p", 4), ("m", 2), ("m", 1), ("m", 3)):
            if pile == "p":
                queue.put("a", b"4", 4)
            assert store.run(ordered_people.drop(store.keys, "q", b"a", pile, place, b"%d" % place)) == 1
            assert records.of(queue, place)[-1].detail == {"ending": "deleted", "reason": "deleted by hand, alone"}
            records.agree([queue])
        assert [life[-1].status for life in records.read().values()] == ["cancelled"] * 4
        assert not queue.left()

    def test_kill(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 1)
        act(queue, "kill", b"a")
        assert records.of(queue, 1)[-1].detail == {"ending": "dead", "reason": "killed by hand"}
        queue.put("a", b"1", 1)
        act(queue, "kill", b"a")  # beside an equal one
        assert [life[-1].status for life in records.read().values()] == ["error", "error"]
        act(queue, "revive", b"a")
        assert [life[-1].status for life in records.read().values()] == ["enqueued", "error"]

    def test_run_now(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 1, FAR)
        assert act(queue, "run", b"a") == [1]
        assert records.words(queue, 1) == ["scheduled", "enqueued"]

    def test_move(self, queue: OrderedQueue, records: Records, store: Store) -> None:
        other = made(store, name="r")
        queue.put("a", b"1", 1)
        queue.put("b", b"2", 1, FAR)
        store.run(ordered.move(store.keys, "q", "r", "min", ids=[b"a", b"b"]))
        records.agree([queue, other])
        assert records.words(queue, 1) == ["enqueued", "enqueued"]
        assert records.words(queue, 2, "b") == ["scheduled", "scheduled"]
        assert records.of(queue, 1)[-1].detail["queue"] == "r"
        other.take(ME)
        end(other, "done")
        assert records.words(queue, 1)[-1] == "finished"
        act(other, "delete", b"b")
        assert not queue.left() | other.left()

    def test_a_queue_that_was_moved_to_is_tracked(self, queue: OrderedQueue, records: Records, store: Store) -> None:
        other = OrderedQueue(store, "r")
        other.join(ME)
        queue.put("a", b"1", 1)
        store.run(ordered.move(store.keys, "q", "r", "min", ids=[b"a"]))
        [(token, _)] = other.take(ME)
        assert other.settle(ME, Verdict(token, b"a", "done")) == [1]
        assert records.words(queue, 1) == ["enqueued", "enqueued", "working", "finished"]


class TestDeaths:
    @pytest.mark.parametrize("others", [False, True], ids=["alone", "with another"])
    def test_freed_it_is_enqueued_again(self, queue: OrderedQueue, records: Records, others: bool) -> None:
        queue.put("a", b"1", 1)
        if others:
            queue.put("a", b"2", 2)
        queue.take(ME)
        queue.put("a", b"1", 1)
        queue.bury(ME)
        assert queue.free(ME, charge=True) == 1
        life = next(iter(records.read().values()))
        assert [step.status for step in life] == ["enqueued", "working", "enqueued"]
        assert (life[-1].identity, life[-1].detail["ending"]) == (ME, "rescued")

    def test_healed_by_the_next_claim(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 1)
        queue.take(ME)
        queue.leave(ME)
        queue.overdue()
        assert len(queue.take(YOU)) == 1
        assert records.words(queue, 1) == ["enqueued", "working", "enqueued", "working"]
        assert [step.identity for step in records.of(queue, 1)] == ["", ME, ME, YOU]

    def test_a_late_word_changes_nothing(self, queue: OrderedQueue, records: Records) -> None:
        queue.put("a", b"1", 1)
        [(token, _)] = queue.take(ME)
        queue.free(ME)
        queue.take(YOU)
        assert queue.settle(ME, Verdict(token, b"a", "done")) == [0]
        assert records.words(queue, 1) == ["enqueued", "working", "enqueued", "working"]


class TestAFullServer:
    @pytest.fixture
    def full(self, queue: OrderedQueue) -> Iterator[OrderedQueue]:
        for name in "abcdefgh":
            queue.put(name, b"1", 1)
        queue.take(ME, claims=6)
        for name in "abc":
            queue.put(name, b"1", 2)
        queue.store.ask("CONFIG", "SET", "maxmemory", 1)
        yield queue
        queue.store.ask("CONFIG", "SET", "maxmemory", 0)

    def test_a_push_is_refused_with_its_record(self, full: OrderedQueue, records: Records) -> None:
        before = full.kept()
        with pytest.raises(ServerError, match="maxmemory"):
            full.push(Push(b"x", "", "", b"1"), Push(b"a", "", "", b"3"))
        assert full.kept() == before
        assert len(records.read()) == 11

    def test_what_goes_on_is_told_of(self, full: OrderedQueue, records: Records) -> None:
        for name, verdict in zip(b"abcd", ("done", "retry", "to_morgue", "snooze"), strict=True):
            end(full, verdict, bytes([name]))
        records.agree([full])
        assert len(full.take(YOU)) == 6
        records.agree([full])
        full.bury(ME)
        assert full.free(ME, charge=True) == 2
        assert act(full, "delete", b"e") == act(full, "kill", b"f") == act(full, "revive", b"c") == [1]
        assert not full.store.ask("EXISTS", full.store.keys.broken)


class TestWhoDoesNotTrack:
    def test_nothing_of_an_untracked_queue_is_written_down(self, store: Store) -> None:
        queue = OrderedQueue(store)
        queue.join(ME)
        store.run(history.turn_on(store.keys, "strict", 1_000_000))
        before = store.all_keys()
        queue.put("a", b"1", 1)
        queue.put("a", b"2", 2)
        assert {key.removeprefix(queue.base) for key in store.all_keys() - before} == {
            "hm:ordered",
            "due",
            "p:a",
            "wake",
            "meta",
        }
        assert queue.take(ME)[0][1].jids == ()
        queue.put("a", b"3", 2)
        end(queue, "retry")
        assert act(queue, "kill", b"a") == [1]
        assert {key.removeprefix(queue.base) for key in store.all_keys() - before} >= {"morgue", "m:a", "merr"}
        assert not [key for key in store.all_keys() if "history" in key and key != store.keys.history_on]
        assert b"track" not in store.ask("HKEYS", queue.key("meta"))
        assert not [key for key in queue.left() if key.startswith("j")]

    def test_its_worker_is_told_that_a_queue_is_tracked(self, queue: OrderedQueue, store: Store) -> None:
        queue.put("a", b"1", 1)
        plain = OrderedQueue(store)
        claim = ordered.claim(store.keys, ME, 1, "q", 1, 0, 1, 10, 30_000)
        with pytest.raises(QueueTracked):
            store.run(claim)
        [(token, _)] = queue.take(ME)
        settle = ordered.settle(
            store.keys, ME, 1, "q", [Verdict(token, b"a", "done")], collapse="min", lease_ms=30_000, day="2026-01-01"
        )
        with pytest.raises(QueueTracked):
            store.run(settle)
        assert plain.kept().busy.keys() == {b"a"}

    def test_its_push_does_not_silently_replace_a_record(self, store: Store) -> None:
        queue, records = made(store, "latest"), Records(store)
        queue.put("a", b"1", 1)
        with pytest.raises(QueueTracked):
            store.run(ordered.push(store.keys, "q", "latest", [Push(b"a", "", "2", b"2")]))
        assert queue.waiting(b"a") == [(1, b"1")]
        records.agree([queue])

    def test_its_payloads_run_beside_those_with_records(self, queue: OrderedQueue, records: Records) -> None:
        plain = OrderedQueue(queue.store)
        plain.put("a", b"1", 1)
        queue.put("a", b"2", 2)
        queue.put("a", b"1", 3)  # joins one without a record, and is it from now on
        queue.tracked_from_birth = False
        [(_, one)] = queue.take(ME)
        assert [bool(jid) for jid in one.jids] == [True, True]
        end(queue, "done")
        assert records.words(queue, 1) == ["enqueued", "working", "finished"]
        assert not queue.left()


class TestTheHistory:
    def test_a_full_one_refuses_the_push(self, queue: OrderedQueue, store: Store) -> None:
        store.run(history.turn_on(store.keys, "strict", 10))
        store.ask("SET", store.keys.history_bytes, 11)
        with pytest.raises(HistoryFull):
            queue.put("a", b"1", 1)
        assert not queue.left()

    def test_where_it_is_off_nothing_is_told_and_all_runs(self, store: Store) -> None:
        queue = made(store)
        head = ordered.RecordHead("job", "0" * 18, "")
        store.run(ordered.push_tracked(store.keys, "q", "min", head, [Push(b"a", "", "1", b"1")]))
        queue.take(ME)
        end(queue, "done")
        assert not store.ask("EXISTS", store.keys.history, store.keys.history_on, store.keys.broken)
        assert not queue.left()

    def test_a_record_that_cannot_be_written_stops_nobody(self, queue: OrderedQueue, store: Store) -> None:
        store.ask("SET", store.keys.history, "no stream")
        queue.put("a", b"1", 1)
        queue.take(ME)
        end(queue, "done")
        assert not queue.left()
        told = [json.loads(one) for one in store.ask("LRANGE", store.keys.broken, 0, -1)]
        assert told
        assert all("WRONGTYPE" in one["error"] for one in told)

    def test_what_a_waiting_payload_costs(self, queue: OrderedQueue, store: Store) -> None:
        """Beside its payload: given back when it has ended."""
        plain = OrderedQueue(store, "r")
        store.ask("SET", store.keys.history_on, "strict 100000000")
        rows = [Push(b"%d" % number, "", "1", b'{"price":%d}' % number) for number in range(2000)]
        sizes = []
        for one in (plain, queue):
            start = _memory(store)
            for first in range(0, 2000, 500):
                one.push(*rows[first : first + 500])
            store.ask("DEL", store.keys.history)
            sizes.append((_memory(store) - start) / 2000)
        assert sizes[1] - sizes[0] < 250, sizes


def _memory(store: Store) -> int:
    told = store.ask("INFO", "memory").decode()
    return int(next(line for line in told.splitlines() if line.startswith("used_memory:")).partition(":")[2])


@pytest.mark.parametrize("seed", range(6))
def test_records_and_queues_agree_whatever_is_done(store: Store, seed: int) -> None:
    """Every move and act in any order; after each the last status of every record is what the server holds."""
    chance = random.Random(seed)
    queues = [OrderedQueue(store, name, chance.choice(["min", "latest", "none"]), tracked=True) for name in "qr"]
    for queue in queues:
        queue.join(ME, YOU)
    records = Records(store)
    for _ in range(120):
        queue, name = chance.choice(queues), chance.choice([b"a", b"b"])
        step = chance.randrange(7)
        if step <= 1:
            row = [name, chance.choice(["", str(FAR)]), str(chance.randrange(3)), b"%d" % chance.randrange(4)]
            queue.push(*[Push(*row)] * chance.choice([1, 2]))  # type: ignore[arg-type]
        elif step == 2:
            queue.take(chance.choice([ME, YOU]), cap=chance.choice([1, 2, 100]))
        elif step == 3:
            for owner in (ME, YOU):
                for held, token in queue.held(owner).items():
                    verdict = chance.choice(["done", "retry", "to_morgue", "snooze", "release"])
                    assert queue.settle(owner, Verdict(int(token), held, verdict, 0.0, 1, "x")) == [1]
        elif step == 4:
            assert act(queue, chance.choice(["revive", "kill", "delete", "purge", "run"]), name)[0] in (0, 1, 2)
        elif step == 5:
            queue.free(chance.choice([ME, YOU]), charge=True)
        else:
            other = queues[queue is queues[0]]
            store.run(ordered.move(store.keys, queue.name, other.name, other.collapse, ids=[name]))
        records.agree(queues)
    for _ in range(100):  # with nothing but time passing, everything is over
        for queue in queues:
            act(queue, "revive", b"a", b"b")
            act(queue, "run", b"a", b"b")
            for owner in (ME, YOU):
                queue.take(owner)
                for held, token in queue.held(owner).items():
                    queue.settle(owner, Verdict(int(token), held, "done"))
    records.agree(queues)
    assert not [queue.left() for queue in queues if queue.left()]
    ends = {life[-1].status for life in records.read().values()}
    assert ends <= {"finished", "cancelled", "error"}
