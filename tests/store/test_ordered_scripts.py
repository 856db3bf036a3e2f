"""Ordered queues, one fact a test: how payloads merge, who holds an id, how each ending leaves it, and what rings."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from henchman.errors import LeaseLost, ServerError
from henchman.store.jobs import LeaseLapsed
from henchman.store.ordered import Push, Verdict
from support.ordered import FAR, LOOK, OrderedQueue
from support.store import DAY, Store

ME, YOU = "host:1:0123456789ab", "host:2:ba9876543210"


@pytest.fixture
def queue(store: Store) -> OrderedQueue:
    return joined(store)


def joined(store: Store, collapse: str = "min") -> OrderedQueue:
    made = OrderedQueue(store, collapse=collapse)
    made.join(ME, YOU)
    return made


def token_of(queue: OrderedQueue, name: bytes = b"a") -> int:
    return int(queue.kept().busy[name].partition(b"|")[0])


def end(queue: OrderedQueue, verdict: str, name: bytes = b"a", delay: float = 0, count: int = 0) -> None:
    """ME's claim of ``name`` ends."""
    assert queue.settle(ME, Verdict(token_of(queue, name), name, verdict, delay, count, "why")) == [1]


class TestMerging:
    def test_a_first_payload_waits(self, queue: OrderedQueue) -> None:
        assert queue.put("a", b"1", 5, 1000) == 1
        assert queue.scores("due") == {b"a": 1000}
        assert queue.waiting(b"a") == [(5, b"1")]
        assert queue.store.ask("SMEMBERS", "hm:ordered") == [b"q"]

    def test_a_second_joins_and_the_time_of_the_first_stays(self, queue: OrderedQueue) -> None:
        queue.put("a", b"1", 5, 1000)
        assert queue.put("a", b"2", 3, 500) == 0
        assert queue.scores("due") == {b"a": 1000}
        assert queue.waiting(b"a") == [(3, b"2"), (5, b"1")]

    @pytest.mark.parametrize("scores", [(1, 4), (4, 1), (-1, 3.5), (-0.0, 0), (7, 7)])
    @pytest.mark.parametrize("others", [False, True], ids=["alone", "with another"])
    def test_equal_payloads_are_one_with_the_lower_score(
        self, queue: OrderedQueue, scores: tuple[float, float], others: bool
    ) -> None:
        if others:
            queue.put("a", b"other", 100)
        queue.put("a", b"1", scores[0])
        queue.put("a", b"1", scores[1])
        assert queue.waiting(b"a")[0] == (min(scores), b"1")
        assert len(queue.waiting(b"a")) == 1 + others

    def test_failed_and_newer_waiting_takes_the_failed_ones_time(self, queue: OrderedQueue) -> None:
        queue.put("a", b"1", 1)
        queue.take(ME)
        queue.put("a", b"2", 0, when=7)
        before = queue.store.now()
        end(queue, "retry", delay=50, count=3)
        assert before + 50 <= queue.scores("due")[b"a"] <= queue.store.now() + 50
        assert queue.scores("retry") == {b"a": 3}
        assert queue.waiting(b"a") == [(0, b"2"), (1, b"1")]

    def test_given_back_and_newer_waiting_takes_the_held_ones_time(self, queue: OrderedQueue) -> None:
        queue.put("a", b"1", 1, 1000)
        queue.take(ME)
        queue.put("a", b"2", 0, when=7)
        queue.bury(ME)
        assert queue.free(ME) == 1
        assert queue.scores("due") == {b"a": 1000}
        assert queue.waiting(b"a") == [(0, b"2"), (1, b"1")]

    def test_what_arrives_in_flight_is_a_delivery_of_its_own(self, queue: OrderedQueue) -> None:
        queue.put("a", b"1", 1, 1000)
        queue.take(ME)
        queue.put("a", b"1", 9, when=1500)  # equal to what runs
        queue.put("a", b"1", 8, when=1700)
        assert queue.waiting(b"a") == [(1, b"1")]
        end(queue, "done")
        assert queue.scores("due") == {b"a": 1500}
        [(_, again)] = queue.take(ME)
        assert (again.payloads, again.retry_count) == ([(8, b"1")], -1)

    def test_of_what_is_equal_in_what_ran_and_what_arrived_the_lower_score_stays(self, queue: OrderedQueue) -> None:
        queue.push(Push(b"a", "", "5", b"1"), Push(b"a", "", "6", b"2"))
        queue.take(ME)
        queue.push(Push(b"a", "", "3", b"1"), Push(b"a", "", "9", b"2"))
        end(queue, "retry")
        assert queue.waiting(b"a") == [(3, b"1"), (6, b"2")]

    def test_the_order_of_one_push_is_kept(self, queue: OrderedQueue) -> None:
        names = [str(n).encode() for n in range(300, 0, -1)]
        queue.push(*(Push(name, "", "", b"1") for name in names))
        queue.push(*(Push(name, "", "", b"2") for name in names))
        assert [one.id for _, one in queue.take(ME, claims=300)] == names
        queue.push(*(Push(b"x", "", "", str(n).encode()) for n in range(9, 0, -1)))
        [(_, x)] = queue.take(ME)
        assert [body for _, body in x.payloads] == [str(n).encode() for n in range(9, 0, -1)]

    def test_a_delay_counts_from_the_servers_now(self, queue: OrderedQueue) -> None:
        before = queue.store.now()
        queue.put("a", when="+60")
        assert before + 60 <= queue.scores("due")[b"a"] <= queue.store.now() + 60

    def test_latest_keeps_the_highest_score(self, store: Store) -> None:
        queue = joined(store, "latest")
        for score, body in ((5, b"b"), (3, b"c"), (7, b"a"), (7, b"A"), (6, b"d")):
            queue.put("a", body, score)
        assert queue.waiting(b"a") == [(7, b"A")]

    def test_latest_also_in_flight(self, store: Store) -> None:
        queue = joined(store, "latest")
        queue.put("a", b"1", 5)
        queue.take(ME)
        for score, body in ((1, b"x"), (6, b"x"), (3, b"y")):  # x: raised, as the highest score counts
            queue.put("a", body, score)
        assert queue.kept().arrived == {b"a": [(6, b"x")]}
        end(queue, "retry")
        assert queue.waiting(b"a") == [(6, b"x")]

    @pytest.mark.parametrize("verdict", ["retry", "snooze", "release"])
    def test_latest_keeps_what_ran_when_only_older_arrived(self, store: Store, verdict: str) -> None:
        queue = joined(store, "latest")
        queue.put("a", b"1", 5)
        queue.take(ME)
        queue.put("a", b"2", 4)
        end(queue, verdict)
        assert queue.waiting(b"a") == [(5, b"1")]

    def test_latest_also_when_the_holder_dies(self, store: Store) -> None:
        queue = joined(store, "latest")
        queue.put("a", b"1", 5)
        queue.take(ME)
        queue.put("a", b"2", 6)
        queue.bury(ME)
        queue.free(ME)
        assert queue.waiting(b"a") == [(6, b"2")]

    def test_none_keeps_equal_payloads_in_their_order(self, store: Store) -> None:
        queue = joined(store, "none")
        for body in (b"z", b"a", b"z", b"\0", b""):
            queue.put("a", body, 1)
        [(_, one)] = queue.take(ME)
        assert one.payloads == [(1, b"z"), (1, b"a"), (1, b"z"), (1, b"\0"), (1, b"")]


class TestOddInput:
    @pytest.mark.parametrize("name", [b"", b"\0", b"a\nb", b"a|b|c", b"%d", b"\xff\xfe", b"hm:x}{", b"x" * 10_000])
    @pytest.mark.parametrize("body", [b"", b"\0", b"\0123456789abc", b"1|2|3|4", b"\r\n", b"\xff" * 70])
    def test_ids_and_payloads_are_bytes(self, queue: OrderedQueue, name: bytes, body: bytes) -> None:
        queue.put(name, body, 1)
        queue.put(name, b"other", 2)
        queue.put(name, body, 3)
        [(token, one)] = queue.take(ME)
        assert (one.id, one.payloads) == (name, [(1, body), (2, b"other")])
        assert queue.settle(ME, Verdict(token, name, "to_morgue", error="\0")) == [1]
        assert queue.morgue(name) == [(1, body)]
        [(token, one)] = queue.take(ME)
        assert queue.settle(ME, Verdict(token, name, "done")) == [1]
        assert queue.left() == {"morgue", f"m:{name.decode('utf-8', 'replace')}", "merr"}

    def test_a_payload_of_a_megabyte(self, queue: OrderedQueue) -> None:
        big = b"x" * 1_000_000
        queue.put("a", big, 1)
        queue.put("a", big + b"y", 2)
        [(_, one)] = queue.take(ME)
        assert one.payloads == [(1, big), (2, big + b"y")]

    @pytest.mark.parametrize(
        "score", [0, -0.0, -1, 2**53, -(2**53), 2**53 - 1, 1.5, 0.1, 1e-300, 1.7976931348623157e308, math.inf]
    )
    def test_scores_are_exact(self, queue: OrderedQueue, score: float) -> None:
        queue.put("a", b"1", repr(score))
        queue.put("b", b"1", repr(score))
        queue.put("b", b"2", repr(score))  # in a set
        assert [one.payloads for _, one in queue.take(ME)] == [[(score, b"1")], [(score, b"1"), (score, b"2")]]

    @pytest.mark.parametrize(("when", "score"), [("", "x"), ("", "nan"), ("x", ""), ("nan", "1"), ("+x", "1")])
    def test_a_push_of_no_numbers_changes_nothing(self, queue: OrderedQueue, when: str, score: str) -> None:
        queue.put("b", b"1", 1, 1000)
        before = queue.store.all_keys()
        with pytest.raises(ServerError, match="row 2"):
            queue.push(Push(b"a", "", "", b"1"), Push(b"b", when, score, b"2"))
        assert queue.store.all_keys() == before
        assert queue.waiting(b"b") == [(1, b"1")]

    @pytest.mark.parametrize("verdict", [("perish", 0.0, 0), ("retry", math.nan, 0), ("snooze", math.nan, 0)], ids=str)
    def test_an_ending_that_makes_no_sense_leaves_the_id_held(
        self, queue: OrderedQueue, verdict: tuple[str, float, int]
    ) -> None:
        queue.put("a", b"1", 1)
        queue.put("b", b"1", 1)
        [(token, _), (other, _)] = queue.take(ME)
        queue.put("a", b"2", 0)
        before = queue.kept()
        status, fine = queue.settle(ME, Verdict(token, b"a", *verdict), Verdict(other, b"b", "done"))
        assert isinstance(status, bytes)
        assert fine == 1
        now = queue.kept()
        assert (now.payloads[b"a"], now.arrived) == (before.payloads[b"a"], before.arrived)
        assert queue.held(ME) == {b"a": str(token).encode()}


class TestEndings:
    def test_done_leaves_nothing(self, queue: OrderedQueue) -> None:
        queue.push(Push(b"a", "", "1", b"1"), Push(b"b", "", "1", b"1"), Push(b"b", "", "2", b"2"))
        [(first, _), (second, _)] = queue.take(ME)
        assert queue.settle(ME, Verdict(first, b"a", "done"), Verdict(second, b"b", "done")) == [1, 1]
        assert queue.left() == set()
        assert queue.held(ME) == {}
        assert queue.table("stat") == {b"processed": b"2"}

    def test_done_with_more_than_the_cap_goes_on_with_the_rest(self, queue: OrderedQueue) -> None:
        for n in range(5):
            queue.put("a", str(n).encode(), n)
        [(_, one)] = queue.take(ME, cap=2)
        assert one.payloads == [(0, b"0"), (1, b"1")]
        queue.put("a", b"new", -1)  # lower than what is in hand
        end(queue, "done")
        assert queue.waiting(b"a") == [(-1, b"new"), (2, b"2"), (3, b"3"), (4, b"4")]
        assert queue.scores("due")[b"a"] <= queue.store.now()

    def test_done_forgives(self, queue: OrderedQueue) -> None:
        queue.put("a")
        for count in (0, 1):
            queue.take(ME)
            end(queue, "retry", count=count)
        queue.take(ME)
        end(queue, "done")
        assert queue.left() == set()

    def test_retries_are_counted_from_nothing(self, queue: OrderedQueue) -> None:
        queue.put("a", b"1", 1)
        seen = []
        for count in (0, 1, 2):
            [(_, one)] = queue.take(ME)
            seen.append(one.retry_count)
            end(queue, "retry", count=count)
        [(_, one)] = queue.take(ME)
        assert [*seen, one.retry_count] == [-1, 0, 1, 2]
        assert queue.table("err") == {b"a": b"why"}
        assert queue.table("stat") == {b"failed": b"3"}

    def test_the_lowest_payload_alone_is_buried_and_the_rest_starts_anew(self, queue: OrderedQueue) -> None:
        for n in (3, 1, 2):
            queue.put("a", str(n).encode(), n, FAR)
        queue.set_due(b"a", 1)
        queue.take(ME)
        end(queue, "retry", count=4)
        queue.take(ME)
        end(queue, "to_morgue")
        assert queue.morgue(b"a") == [(1, b"1")]
        assert queue.table("merr") == {b"a": b"why"}
        assert abs(queue.scores("morgue")[b"a"] - queue.store.now()) < 30
        [(_, one)] = queue.take(ME)  # at once
        assert (one.retry_count, one.crashes, one.payloads) == (-1, 0, [(2, b"2"), (3, b"3")])
        assert queue.scores("retry") == {}

    def test_a_burial_keeps_the_time_of_what_arrived(self, queue: OrderedQueue) -> None:
        queue.put("a", b"1", 5)
        queue.take(ME)
        queue.put("a", b"1", 1, FAR)
        end(queue, "to_morgue")
        assert queue.morgue(b"a") == [(5, b"1")]
        assert (queue.scores("due"), queue.waiting(b"a")) == ({b"a": FAR}, [(1, b"1")])

    def test_burying_twice_keeps_the_lower_score(self, queue: OrderedQueue) -> None:
        for score in (5, 3, 4):
            queue.put("a", b"1", score)
            queue.take(ME)
            end(queue, "to_morgue")
        assert queue.morgue(b"a") == [(3, b"1")]
        assert queue.left() == {"morgue", "merr", "m:a"}

    def test_snooze_counts_nothing(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.take(ME)
        before = queue.store.now()
        end(queue, "snooze", delay=30)
        assert before + 30 <= queue.scores("due")[b"a"] <= queue.store.now() + 30
        assert queue.left() == {"due", "one"}
        assert queue.table("stat") == {}

    def test_release_is_as_if_it_had_not_been_claimed(self, queue: OrderedQueue) -> None:
        queue.put("a", b"1", 1, 1234.5)
        before = queue.kept()
        queue.take(ME)
        end(queue, "release")
        assert queue.kept()._replace(rung=before.rung) == before
        assert queue.table("stat") == {}

    def test_one_bad_id_does_not_fail_its_neighbours(self, queue: OrderedQueue) -> None:
        queue.push(*(Push(name, "", "", b"1") for name in (b"a", b"b", b"c")))
        [(token, ids)] = queue.claim(ME, size=3).claims
        verdicts = [Verdict(token, one.id, "retry" if one.id == b"b" else "done", 0, 0, "why") for one in ids]
        assert queue.settle(ME, *verdicts) == [1, 1, 1]
        assert queue.left() == {"due", "one", "retry", "err"}
        assert queue.table("stat") == {b"processed": b"2", b"failed": b"1"}

    def test_a_claim_is_one_run_in_the_statistics(self, queue: OrderedQueue) -> None:
        queue.push(*(Push(name, "", "", b"1") for name in (b"a", b"b", b"c", b"d")))
        [(token, ids), (other, [last])] = queue.claim(ME, size=3).claims
        ends = zip(ids, ("done", "retry", "to_morgue"), strict=True)
        queue.settle(ME, *(Verdict(token, one.id, verdict) for one, verdict in ends), Verdict(other, last.id, "done"))
        names = ("stat:processed", f"stat:processed:{DAY}", "stat:failed", f"stat:failed:{DAY}")
        assert queue.store.ask("MGET", *names) == [b"2", b"2", b"1", b"1"]

    def test_the_same_row_twice_counts_once(self, queue: OrderedQueue) -> None:
        for n in range(4):
            queue.put("a", str(n).encode(), n)
        [(token, _)] = queue.take(ME, cap=2)
        assert queue.settle(ME, Verdict(token, b"a", "done"), Verdict(token, b"a", "done")) == [1, 0]
        assert queue.waiting(b"a") == [(2, b"2"), (3, b"3")]

    def test_five_hundred_at_once(self, queue: OrderedQueue) -> None:
        queue.push(*(Push(str(n).encode(), "", "", b"1") for n in range(500)))
        queue.push(*(Push(str(n).encode(), "", "", b"1") for n in range(500, 550)))
        taken = queue.take(ME, claims=600)
        assert len(taken) == 500
        assert queue.settle(ME, *(Verdict(token, one.id, "done") for token, one in taken)) == [1] * 500
        assert queue.store.ask("ZCARD", queue.key("due")) == 50
        assert queue.silence(), "there was more: somebody must look"

    def test_one_claim_of_the_largest_size(self, queue: OrderedQueue) -> None:
        queue.push(*(Push(str(n).encode(), "", "", b"1") for n in range(500)))
        [(_, ids)] = queue.claim(ME, size=500).claims
        assert len(ids) == 500


class TestHolders:
    def test_nobody_else_gets_what_is_held(self, queue: OrderedQueue) -> None:
        queue.put("a")
        [(token, _)] = queue.take(ME)
        assert queue.take(YOU) == []
        assert queue.held(ME) == {b"a": str(token).encode()}
        assert queue.scores("due")[b"a"] > queue.store.now() + LOOK - 10

    @pytest.mark.parametrize("twice", [False, True], ids=["once", "once more before all have moved"])
    def test_all_that_was_due_is_due_when_the_clock_went_back(self, queue: OrderedQueue, twice: bool) -> None:
        store, names = queue.store, [b"%05d" % number for number in range(2500)]
        for start in range(0, len(names), 500):
            queue.push(*(Push(one, "1", "", b"1") for one in names[start : start + 500]))
        now = store.now()
        for one in names:  # as they were due before the clock went back by 1,000 s
            queue.set_due(one, now + 900 + int(one) / 1e6)
        store.ask("HSET", queue.key("meta"), "clock", now + 1000)
        met = [one.id for _, one in queue.take(ME, claims=100)]
        if twice:
            store.ask("HSET", queue.key("meta"), "clock", now + 20)
        while taken := queue.take(ME, claims=500):
            met += [one.id for _, one in taken]
        assert met == names
        assert b"back" not in queue.table("meta")

    def test_of_many_of_one_time_all_are_due_when_the_clock_went_back(self, queue: OrderedQueue) -> None:
        """A page ended within them, and the next one began behind them: they waited for as long as the step was."""
        store, names = queue.store, [b"%05d" % number for number in range(2500)]
        for start in range(0, len(names), 500):
            queue.push(*(Push(one, "1", "", b"1") for one in names[start : start + 500]))
        held = [one.id for _, one in queue.take(ME, claims=20)]
        now = store.now()
        for one in names:
            queue.set_due(one, now + 900)
        store.ask("HSET", queue.key("meta"), "clock", now + 1000)
        met = []
        for _ in range(20):
            met += [one.id for _, one in queue.take(ME, claims=500)]
        assert sorted(met + held) == names

    @pytest.mark.parametrize("goes", [False, True], ids=["", "the last of a page goes meanwhile"])
    def test_all_that_failed_wait_as_long_as_was_meant_when_the_clock_went_back(
        self, queue: OrderedQueue, goes: bool
    ) -> None:
        """Of more than a thousand the others waited for as long as the step was, an hour perhaps."""
        store, names = queue.store, [b"%05d" % number for number in range(2500)]
        for start in range(0, len(names), 500):
            queue.push(*(Push(one, "1", "", b"1") for one in names[start : start + 500]))
        now = store.now()
        for one in names:  # they failed before the clock went back by 1,000 s, and were due 50 s after that
            queue.set_due(one, now + 1050)
            store.ask("ZADD", queue.key("retry"), int(one) % 3, one)
        store.ask("HSET", queue.key("meta"), "clock", now + 1000)
        gone = 0
        assert queue.take(ME, claims=500) == []
        while b"back" in queue.table("meta"):
            if goes and (cursor := queue.table("meta").get(b"failed")):
                gone += store.ask("ZREM", queue.key("retry"), cursor.split(b" ", 1)[1])
            assert queue.take(ME, claims=500) == []
        assert gone == (2 if goes else 0)
        assert all(45 < score - now < 55 for score in queue.scores("due").values())
        assert store.ask("ZCARD", queue.key("retry")) == 2500 - gone
        assert b"failed" not in queue.table("meta")

    def test_tokens_rise_also_when_the_clock_went_back(self, queue: OrderedQueue) -> None:
        far = 8_000_000_000_000_000
        queue.store.ask("HSET", queue.key("meta"), "token", far)
        queue.push(*(Push(name, "", "", b"1") for name in (b"a", b"b", b"c")))
        assert [token for token, _ in queue.take(ME)] == [far + 1, far + 2, far + 3]
        queue.put("d")
        assert [token for token, _ in queue.take(ME)] == [far + 4]

    @pytest.mark.parametrize("verdict", ["done", "retry", "to_morgue", "snooze", "release"])
    def test_a_zombies_word_changes_nothing(self, queue: OrderedQueue, verdict: str) -> None:
        queue.put("a", b"1", 1)
        [(old, _)] = queue.take(ME)
        queue.put("a", b"2", 2)
        queue.leave(ME)
        queue.overdue()
        [(new, _)] = queue.take(YOU)
        queue.join(ME)  # under its old name
        before = queue.kept()
        wrong = (old, new + 1, int(str(new)[:-1]))
        assert queue.settle(ME, *(Verdict(token, b"a", verdict) for token in wrong)) == [0, 0, 0]
        assert queue.kept() == before
        assert queue.settle(YOU, Verdict(new, b"a", "done")) == [1]

    def test_the_buried_are_told(self, queue: OrderedQueue) -> None:
        queue.put("a")
        [(token, _)] = queue.take(ME)
        queue.bury(ME)
        for act in (lambda: queue.claim(ME), lambda: queue.settle(ME, Verdict(token, b"a", "done"))):
            with pytest.raises(LeaseLost):
                act()
        assert queue.kept().busy

    def test_who_lost_its_lease_claims_nothing_but_settles(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.put("b")
        [(token, _)] = queue.take(ME, claims=1)
        queue.store.ask("DEL", queue.store.keys.lease(ME))
        with pytest.raises(LeaseLapsed):
            queue.claim(ME)
        assert queue.settle(ME, Verdict(token, b"a", "done")) == [1]

    def test_the_dead_ones_ids_are_free_at_once(self, queue: OrderedQueue) -> None:
        queue.push(*(Push(name, "", "", b"1") for name in (b"a", b"b")))
        before = queue.kept()
        queue.take(ME)
        queue.bury(ME)
        assert queue.free(ME) == 2
        assert queue.kept()._replace(rung=before.rung) == before
        assert queue.held(ME) == {}
        assert queue.free(ME) == 0
        assert len(queue.take(YOU)) == 2

    def test_an_overdue_id_of_a_living_holder_is_left_alone(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.take(ME)
        queue.overdue()
        assert queue.take(YOU) == []
        assert queue.scores("due")[b"a"] > queue.store.now() + LOOK - 10

    def test_a_lapsed_lease_alone_frees_nothing(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.take(ME)
        queue.store.ask("DEL", queue.store.keys.lease(ME))  # the lifeline will judge
        queue.overdue()
        assert queue.take(YOU) == []

    @pytest.mark.parametrize("gone", ["bury", "leave"])
    def test_an_overdue_id_of_one_that_is_gone_is_taken(self, queue: OrderedQueue, gone: str) -> None:
        queue.put("a", b"1", 1)
        [(old, _)] = queue.take(ME)
        queue.put("a", b"2", 0)
        getattr(queue, gone)(ME)
        assert queue.take(YOU) == []  # not before its time
        queue.overdue()
        [(new, one)] = queue.take(YOU)
        assert new > old
        assert (one.crashes, one.payloads) == (1, [(0, b"2"), (1, b"1")])
        assert queue.kept().arrived == {}

    def test_what_was_taken_over_is_not_freed_with_the_dead(self, queue: OrderedQueue) -> None:
        queue.put("a", b"1", 1)
        queue.take(ME)
        queue.bury(ME)
        queue.overdue()
        [(token, _)] = queue.take(YOU)
        before = queue.kept()
        assert queue.free(ME, charge=True) == 0
        assert queue.kept()._replace(rung=before.rung) == before
        assert queue.held(ME) == {}
        assert queue.settle(YOU, Verdict(token, b"a", "done")) == [1]

    def test_many_overdue_ids_of_the_living_do_not_hide_the_rest(self, queue: OrderedQueue) -> None:
        queue.push(*(Push(str(n).encode(), "", "", b"1") for n in range(10)))
        queue.take(ME)
        queue.overdue()
        queue.put("a")
        assert [one.id for _, one in queue.take(YOU, claims=1)] == [b"a"]

    def test_an_id_is_charged_once_for_one_death(self, queue: OrderedQueue) -> None:
        queue.push(Push(b"a", "", "", b"1"))
        queue.take(ME)
        queue.push(Push(b"0", "5", "", b"1"))
        queue.bury(ME)
        queue.set_due(b"a", 10)  # after 0, with which it does not go: it failed
        assert [one.id for _, one in queue.take(YOU, claims=1, size=2)] == [b"0"]
        [(_, one)] = queue.take(YOU, claims=1, size=2)
        assert one.crashes == 1


class TestCrashes:
    def crash(self, queue: OrderedQueue, *, charge: bool = True, alone: bool = False) -> int:
        """A holder dies with ``a``; how many deaths the next holder is told of."""
        queue.take(ME)
        queue.bury(ME)
        queue.free(ME, charge=charge, alone=alone)
        queue.store.ask("DEL", queue.store.keys.tomb(ME))
        queue.join(ME)
        return queue.kept().crashes.get(b"a", 0)

    def test_deaths_are_charged(self, queue: OrderedQueue) -> None:
        queue.put("a")
        assert self.crash(queue, charge=False) == 0
        assert [self.crash(queue), self.crash(queue)] == [1, 2]

    def test_the_third_only_alone(self, queue: OrderedQueue) -> None:
        queue.put("a")
        assert [self.crash(queue) for _ in range(4)] == [1, 2, 2, 2]
        assert self.crash(queue, alone=True) == 3

    @pytest.mark.parametrize("gone", ["bury", "leave"])
    def test_a_holder_that_was_only_missed_is_no_third(self, queue: OrderedQueue, gone: str) -> None:
        queue.put("a")
        self.crash(queue)
        self.crash(queue)
        queue.take(ME)
        getattr(queue, gone)(ME)
        queue.overdue()
        [(_, one)] = queue.take(YOU)
        assert one.crashes == 2

    def test_an_ending_forgives_them(self, queue: OrderedQueue) -> None:
        for verdict in ("done", "retry", "to_morgue"):
            queue.put("a")
            self.crash(queue)
            queue.take(ME)
            end(queue, verdict)
            assert queue.kept().crashes == {}, verdict

    def test_who_failed_or_crashed_is_claimed_alone(self, queue: OrderedQueue) -> None:
        queue.put("a", when=1)
        self.crash(queue)
        queue.put("b", when=2)
        queue.take(ME, claims=2)
        end(queue, "release", b"a")
        end(queue, "retry", b"b", count=0)
        queue.set_due(b"b", 2)
        queue.push(*(Push(name, "3", "", b"1") for name in (b"c", b"d", b"e")))
        claims = queue.claim(ME, 10, size=2).claims
        assert [[one.id for one in ids] for _, ids in claims] == [[b"a"], [b"b"], [b"c", b"d"], [b"e"]]


class TestClaims:
    def test_sizes_and_numbers(self, queue: OrderedQueue) -> None:
        queue.push(*(Push(str(n).encode(), "", "", b"1") for n in range(9)))
        assert [len(ids) for _, ids in queue.claim(ME, 2, extra=1, size=2).claims] == [2, 2, 2]
        assert [len(ids) for _, ids in queue.claim(ME, 5, size=2).claims] == [2, 1]
        assert len(queue.held(ME)) == 9

    def test_nothing_extra_under_a_ceiling(self, queue: OrderedQueue) -> None:
        queue.declare(limit=5)
        queue.push(*(Push(str(n).encode(), "", "", b"1") for n in range(9)))
        assert len(queue.take(ME, claims=2, extra=3)) == 2

    def test_what_is_not_due_is_not_taken(self, queue: OrderedQueue) -> None:
        queue.put("a", when=FAR)
        claimed = queue.claim(ME)
        assert claimed.claims == []
        assert queue.scores("due") == {b"a": FAR}

    def test_a_paused_queue_gives_nothing(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.store.ask("SADD", queue.store.keys.paused, "q")
        assert queue.claim(ME).claims == []
        queue.store.ask("SREM", queue.store.keys.paused, "q")
        assert len(queue.take(ME)) == 1

    def test_the_ceiling_holds_over_processes(self, queue: OrderedQueue) -> None:
        queue.declare(limit=3)
        queue.push(*(Push(str(n).encode(), "", "", b"1") for n in range(9)))
        mine, yours = queue.take(ME, claims=2), queue.take(YOU, claims=2)
        assert (len(mine), len(yours)) == (2, 1)
        assert queue.take(ME) == queue.take(YOU) == []
        queue.settle(YOU, *(Verdict(token, one.id, "done") for token, one in yours))
        assert len(queue.take(ME)) == 1

    @pytest.mark.parametrize("gone", ["free", "bury", "leave"])
    def test_the_dead_hold_no_place_under_the_ceiling(self, queue: OrderedQueue, gone: str) -> None:
        queue.declare(limit=1)
        queue.put("a")
        queue.put("b")
        queue.take(ME)
        getattr(queue, "leave" if gone == "leave" else "bury")(ME)
        if gone == "free":
            queue.free(ME)
        else:
            queue.overdue()
            queue.store.ask("ZADD", queue.key("open"), "XX", 1, next(iter(queue.scores("open"))))
        assert len(queue.take(YOU)) == 1

    def test_an_id_of_the_dead_that_is_taken_over_gives_its_place_back(self, queue: OrderedQueue) -> None:
        queue.declare(limit=2)
        queue.put("a")
        queue.take(ME)
        queue.bury(ME)
        queue.overdue()  # the id alone: its claim's time to be looked at has not come
        queue.put("b")
        assert [one.id for _, one in queue.take(YOU)] == [b"a"]
        assert [one.id for _, one in queue.take(YOU)] == [b"b"]

    def test_the_ceiling_is_changed_while_it_runs(self, queue: OrderedQueue) -> None:
        queue.declare(limit=2)
        queue.push(*(Push(str(n).encode(), "", "", b"1") for n in range(9)))
        [(token, one), _] = queue.take(ME)
        queue.declare(limit=1)
        assert queue.take(YOU) == []
        queue.settle(ME, Verdict(token, one.id, "done"))
        assert queue.take(YOU) == []
        queue.store.ask("HSET", queue.key("meta"), "limit", 4)  # by hand, goes before what the code says
        assert len(queue.take(YOU)) == 3
        queue.store.ask("HSET", queue.key("meta"), "limit", 0)
        assert len(queue.take(YOU)) == 4


class TestGroups:
    def test_a_group_has_so_many_in_flight(self, queue: OrderedQueue) -> None:
        queue.declare(group_limit=2, separator="/")
        queue.push(*(Push(name, "", "", b"1") for name in (b"g/1", b"g/2", b"g/3", b"g/4", b"h/1", b"lone")))
        taken = queue.take(ME)
        assert [one.id for _, one in taken] == [b"g/1", b"g/2", b"h/1", b"lone"]
        queue.settle(ME, Verdict(taken[1][0], b"g/2", "done"))
        assert [one.id for _, one in queue.take(YOU)] == [b"g/3"]

    def test_whoever_was_due_first_follows(self, queue: OrderedQueue) -> None:
        queue.declare(group_limit=1, separator="/")
        for place, name in enumerate((b"g/9", b"g/5", b"g/7")):
            queue.push(Push(name, str(100 + place), "", b"1"))
        order = []
        for _ in range(3):
            [(token, one)] = queue.take(ME)
            order.append(one.id)
            queue.settle(ME, Verdict(token, one.id, "done"))
        assert order == [b"g/9", b"g/5", b"g/7"]
        assert queue.left() == set()

    @pytest.mark.parametrize("gone", ["free", "heal"])
    def test_a_dead_member_makes_room(self, queue: OrderedQueue, gone: str) -> None:
        queue.declare(group_limit=1, separator="/")
        queue.put("g/1", when=1)
        queue.put("g/2", when=2)
        queue.take(ME)
        queue.bury(ME)
        if gone == "free":
            queue.free(ME)
        else:
            queue.overdue()
        taken = queue.take(YOU)
        assert len(taken) == 1
        queue.settle(YOU, Verdict(taken[0][0], taken[0][1].id, "done"))
        assert len(queue.take(YOU)) == 1

    def test_a_dead_members_id_that_finds_its_group_full_waits_and_is_charged_once(self, queue: OrderedQueue) -> None:
        queue.declare(group_limit=2, separator="/")
        queue.put("g/1", when=1)
        queue.take(ME)
        queue.put("g/2", when=2)
        [(token, _)] = queue.take(YOU)
        queue.declare(group_limit=1, separator="/")
        queue.bury(ME)
        for _ in range(2):
            queue.set_due(b"g/1", 1)
            assert queue.take(YOU) == []
        assert queue.kept().busy.keys() == {b"g/2"}
        queue.settle(YOU, Verdict(token, b"g/2", "done"))
        [(_, one)] = queue.take(YOU)
        assert (one.id, one.crashes) == (b"g/1", 1)

    def test_who_was_put_off_and_has_room_now_is_not_put_off_any_more(self, queue: OrderedQueue) -> None:
        queue.declare(group_limit=1, separator="/")
        queue.put("g/1", when=1)
        queue.put("g/2", when=2)
        queue.take(ME)
        assert queue.kept().put_off == {b"g": {b"g/2": 2}}
        queue.declare(group_limit=2, separator="/")
        queue.set_due(b"g/2", 3)
        assert [one.id for _, one in queue.take(YOU)] == [b"g/2"]
        assert queue.kept().put_off == {}

    def test_behind_many_of_one_group_others_are_found_in_the_same_claim(self, queue: OrderedQueue) -> None:
        queue.declare(group_limit=1, separator="/")
        names = [b"first", *(b"g/%03d" % n for n in range(200)), b"last"]
        queue.push(*(Push(name, "", "", b"1") for name in names))
        assert [one.id for _, one in queue.take(ME, claims=5)] == [b"first", b"g/000", b"last"]

    def test_ten_thousand_of_one_group_do_not_starve_another(self, queue: OrderedQueue) -> None:
        queue.declare(group_limit=1, separator="/")
        for start in range(0, 10_000, 500):
            queue.push(*(Push(b"g/%05d" % n, "", "", b"1") for n in range(start, start + 500)))
        queue.push(*(Push(b"h/%d" % n, "", "", b"1") for n in range(3)))
        order: list[bytes] = []
        worst = 0
        for _ in range(30):
            before = self.commands(queue)
            taken = queue.take(ME, claims=2)
            worst = max(worst, self.commands(queue) - before)
            order += [one.id for _, one in taken]
            if b"h/2" in order:
                break
            queue.settle(ME, *(Verdict(token, one.id, "done") for token, one in taken))
        assert b"h/2" in order, order[-5:]
        assert worst < 2500, "a claim looks at a bounded number of ids"
        mine = [name for name in order if name.startswith(b"g")]
        assert mine == sorted(mine)

    def commands(self, queue: OrderedQueue) -> int:
        """How many commands the server has carried out, those of scripts counted."""
        lines = queue.store.ask("INFO", "commandstats").decode().splitlines()
        return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines if "calls=" in line)


class TestRinging:
    """``wake`` is set when, and only when, somebody should look."""

    def test_a_push_that_is_due_rings(self, queue: OrderedQueue) -> None:
        queue.put("a")
        assert queue.silence()

    def test_a_payload_more_does_not(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.silence()
        queue.put("a", b"2")
        assert not queue.silence()

    def test_a_new_head_rings_and_what_is_later_does_not(self, queue: OrderedQueue) -> None:
        queue.put("a", when=FAR)
        assert queue.silence()
        queue.put("b", when=FAR + 1)
        assert not queue.silence()
        queue.put("c", when=FAR - 1)
        assert queue.silence()

    def test_an_arrival_in_flight_does_not_ring_its_end_does(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.take(ME)
        queue.silence()
        queue.put("a")
        assert not queue.silence()
        end(queue, "done")
        assert queue.silence()

    def test_a_claim_that_leaves_some_rings(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.put("b")
        queue.silence()
        queue.take(ME, claims=1)
        assert queue.silence()
        queue.take(ME, claims=1)
        assert not queue.silence()

    def test_a_full_queue_rings_when_a_place_is_free(self, queue: OrderedQueue) -> None:
        queue.declare(limit=1)
        queue.put("a")
        queue.put("b")
        queue.silence()
        [(token, _)] = queue.take(ME)
        assert not queue.silence(), "nobody else could take it"
        queue.settle(ME, Verdict(token, b"a", "done"))
        assert queue.silence()

    @pytest.mark.parametrize(
        ("verdict", "delay", "rings"),
        [("done", 0, False), ("retry", 0, True), ("retry", 9, True), ("to_morgue", 0, False), ("release", 0, True)],
    )
    def test_endings(self, queue: OrderedQueue, verdict: str, delay: float, rings: bool) -> None:
        queue.put("a")
        queue.take(ME)
        queue.silence()
        end(queue, verdict, delay=delay)
        assert queue.silence() == rings

    def test_a_retry_behind_others_does_not_ring(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.take(ME)
        queue.put("b", when=queue.store.now() + 100)
        queue.silence()
        end(queue, "retry", delay=600)
        assert not queue.silence()

    def test_done_with_a_rest_rings(self, queue: OrderedQueue) -> None:
        queue.put("a", b"1")
        queue.put("a", b"2")
        queue.take(ME, cap=1)
        queue.silence()
        end(queue, "done")
        assert queue.silence()

    def test_freeing_rings(self, queue: OrderedQueue) -> None:
        queue.put("a")
        queue.take(ME)
        queue.silence()
        queue.bury(ME)
        queue.free(ME)
        assert queue.silence()

    def test_who_was_put_off_is_rung_for(self, queue: OrderedQueue) -> None:
        queue.declare(group_limit=1, separator="/")
        queue.put("g/1")
        queue.put("g/2")
        [(token, _)] = queue.take(ME)
        queue.silence()
        queue.settle(ME, Verdict(token, b"g/1", "done"))
        assert queue.silence()


class TestAFullServer:
    @pytest.fixture
    def full(self, queue: OrderedQueue) -> Iterator[OrderedQueue]:
        for name in "abcdefgh":
            queue.put(name, b"1", 1)
        queue.take(ME, claims=6)
        queue.put("a", b"2", 2)
        queue.put("b", b"2", 2)
        queue.put("c", b"2", 2)
        queue.store.ask("CONFIG", "SET", "maxmemory", 1)
        yield queue
        queue.store.ask("CONFIG", "SET", "maxmemory", 0)

    def test_a_push_is_refused_as_a_whole(self, full: OrderedQueue) -> None:
        before = full.kept()
        with pytest.raises(ServerError, match="maxmemory"):
            full.push(Push(b"x", "", "", b"1"), Push(b"a", "", "", b"3"), Push(b"g", "", "", b"3"))
        assert full.kept() == before

    def test_claims_go_on(self, full: OrderedQueue) -> None:
        assert [one.id for _, one in full.take(YOU)] == [b"g", b"h"]

    def test_every_ending_is_settled(self, full: OrderedQueue) -> None:
        verdicts = zip(b"abcdef", ("done", "retry", "to_morgue", "snooze", "release", "retry"), strict=True)
        rows = [(bytes([name]), verdict) for name, verdict in verdicts]
        assert full.settle(ME, *(Verdict(token_of(full, name), name, verdict) for name, verdict in rows)) == [1] * 6
        assert full.kept().busy == {}
        assert full.waiting(b"a") == [(2, b"2")]
        assert full.waiting(b"b") == [(1, b"1"), (2, b"2")]
        assert full.morgue(b"c") == [(1, b"1")]

    @pytest.mark.parametrize("verdict", ["retry", "to_morgue", "snooze", "release"])
    def test_one_ending_alone_is_settled(self, full: OrderedQueue, verdict: str) -> None:
        for name in (b"f", b"a"):
            assert full.settle(ME, Verdict(token_of(full, name), name, verdict)) == [1]

    def test_the_dead_ones_ids_are_freed(self, full: OrderedQueue) -> None:
        full.bury(ME)
        assert full.free(ME, charge=True) == 6
        assert full.waiting(b"a") == [(1, b"1"), (2, b"2")]
        assert len(full.take(YOU, claims=9)) == 8


def test_scripts_that_the_server_forgot_are_sent_again(queue: OrderedQueue) -> None:
    for _ in range(2):
        queue.store.ask("SCRIPT", "FLUSH")
        queue.put("a")
        queue.store.ask("SCRIPT", "FLUSH")
        [(token, _)] = queue.take(ME)
        queue.store.ask("SCRIPT", "FLUSH")
        assert queue.settle(ME, Verdict(token, b"a", "done")) == [1]
    queue.put("a")
    queue.take(ME)
    queue.bury(ME)
    queue.store.ask("SCRIPT", "FLUSH")
    assert queue.free(ME) == 1
