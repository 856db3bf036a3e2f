"""No call moves or reads more payloads than have 4 MB together, however many it may: several calls do it."""

from __future__ import annotations

import json

import pytest
from redis import Redis

from henchman import App
from henchman.store import batches, jobs, ordered, queues
from henchman.store.jobs import MOST_BYTES, Move
from henchman.store.ordered import Verdict
from support.ordered import OrderedQueue
from support.store import ME, Store

MB = 1 << 20


def large(number: int, size: int = MB) -> bytes:
    """A payload of ``size`` bytes."""
    return json.dumps({"class": "act", "args": ["x" * size], "jid": str(number), "queue": "a"}).encode()


def test_a_fetch_stops_at_4_mb(store: Store) -> None:
    store.join("a", "b")
    payloads = [large(number) for number in range(10)]
    for start in range(0, 10, 2):
        store.push("a", *payloads[start : start + 2])
    store.push("b", b"small")
    calls = []
    while any(found := store.fetch("a", "b", count=100)):
        calls.append([len(queue) for queue in found])
        assert sum(map(len, [one for queue in found for one in queue])) <= MOST_BYTES
    assert calls == [[3, 0], [3, 0], [3, 0], [1, 1]]
    assert store.in_flight("a") == payloads
    assert store.queue("a") == store.queue("b") == []


def test_what_a_queue_gives_beyond_stops_there_too_and_one_payload_always_has_room(store: Store) -> None:
    store.join("a")
    payloads = [large(0, 3 * MB), large(1, 6 * MB), large(2, 3 * MB), b"small"]
    for one in payloads:
        store.push("a", one)
    got = [store.fetch(("a", 500), count=1)[0] for _ in range(4)]
    assert got == [payloads[:1], payloads[1:2], payloads[2:], []]


@pytest.mark.parametrize("small", [0, 1, 15, 40, 499])
def test_order_and_number_are_the_same_however_small_and_large_are_mixed(store: Store, small: int) -> None:
    store.join("a")
    payloads = (
        [b"small %d" % number for number in range(small)] + [large(0), large(1)] + [b"s%d" % n for n in range(60)]
    )
    for one in payloads:
        store.push("a", one)
    assert store.fetch(("a", 500), count=len(payloads) + 10)[0] == payloads
    assert store.in_flight("a") == payloads
    assert store.queue("a") == []


def test_a_give_back_stops_at_4_mb(store: Store) -> None:
    store.join("a")
    payloads = [large(number) for number in range(6)]
    for one in payloads:
        store.push("a", one)
    while any(store.fetch("a", count=100)):
        pass
    call = jobs.give_back(store.keys, store.flight("a"), "a", 500)
    moved = []
    while chunk := store.run(call):
        moved.append(chunk)
    assert moved == [4, 2]
    assert store.queue("a") == payloads
    assert store.in_flight("a") == []


def test_a_look_at_what_is_due_stops_at_4_mb(store: Store) -> None:
    now = store.now()
    payloads = [large(number) for number in range(6)]
    for number, one in enumerate(payloads):
        store.ask("ZADD", ("retry", "schedule")[number % 2], now - 100 + number, one)
    store.ask("ZADD", "schedule", now + 1000, "later")
    seen = store.run(jobs.due(store.keys, ME, 2000, 500))
    assert seen.retries == payloads[::2]
    assert seen.scheduled == payloads[1:2]
    assert seen.more
    assert seen.next_at == pytest.approx(now + 1000)
    store.move("retry", *[Move(one, one, "a") for one in seen.retries])
    seen = store.run(jobs.due(store.keys, ME, 2000, 500))
    assert (seen.retries, seen.scheduled, seen.more) == ([], payloads[1::2], False)


def test_a_page_of_a_set_stops_at_4_mb_and_gets_on(store: Store) -> None:
    payloads = [large(number, 3 * MB) for number in range(5)]
    for number, one in enumerate(payloads):
        store.ask("ZADD", "dead", number, one)
    page = store.run(queues.set_stretch("dead", 0, 100))
    assert [one.payload for one in page.members] == payloads[:2]
    assert page.more
    page = store.run(queues.set_stretch("dead", 1, 100, newest_first=True))
    assert [one.payload for one in page.members] == payloads[-2:-4:-1]
    assert not store.run(queues.set_stretch("dead", 3, 100)).more
    assert not store.run(queues.set_stretch("dead", 0, 5)).more or len(page.members) < 5
    assert store.run(queues.set_stretch("dead", 5, 10)) == ([], False, 0)


def test_batches_are_released_searched_and_retried_in_pieces(store: Store) -> None:
    for number in range(12):
        store.ask("RPUSH", "queue:q", large(number).replace(b'"queue"', b'"batch":"b1","queue"'))
    looked, first = [], 0
    while (found := store.run(queues.list_page(store.keys.queue("q"), first, 1000, text='"batch":"b1"'))).looked:
        looked.append(found.looked)
        assert len(found.payloads) == found.looked
        first += found.looked
    assert sum(looked) == 12
    assert looked[0] < 12
    for number in range(12):
        store.ask("ZADD", store.keys.batch("b1") + ":dead", number, large(number))
    assert len(store.run(batches.dead(store.keys, "b1", 0, 500)).members) < 12


@pytest.mark.parametrize("tracked", [False, True], ids=["plain", "tracked"])
@pytest.mark.parametrize("several", [False, True], ids=["one each", "several each"])
def test_a_claim_of_many_ids_stops_at_4_mb(store: Store, several: bool, tracked: bool) -> None:
    queue, met = OrderedQueue(store, tracked=tracked), list[Verdict]()
    queue.join(ME)
    text = json.dumps("x" * MB).encode()
    for number in range(11):
        queue.put(f"{number:02}", text, 1, number + 1)
        if several:
            queue.put(f"{number:02}", b"2", 0)
    queue.silence()
    while taken := queue.take(ME, claims=3, size=3):
        assert sum(len(body) for _, one in taken for _, body in one.payloads) <= MOST_BYTES + 2 * MB
        assert [len(one.payloads) for _, one in taken] == [2 if several else 1] * len(taken)
        assert all(all(one.jids) and len(one.jids) == len(one.payloads) for _, one in taken) or not tracked
        met += [Verdict(token, one.id, "done") for token, one in taken]
        assert queue.silence() or len(met) == 11, "another sleeper takes the rest"
    assert [one.id for one in met] == [b"%02d" % number for number in range(11)], "in order, each once"
    assert len({one.token for one in met}) < 11, "several ids a claim, where there is room"
    assert set(queue.held(ME)) == {one.id for one in met}
    assert queue.settle(ME, *met) == [1] * 11
    assert queue.left() == set()


def test_what_a_claim_leaves_for_its_bytes_holds_no_place_in_its_group(store: Store) -> None:
    queue = OrderedQueue(store)
    queue.join(ME)
    queue.declare(group_limit=6, separator="/")
    for number in range(12):
        queue.put(f"g/{number:02}", json.dumps("x" * MB).encode(), 1, number + 1)
    first = queue.take(ME, claims=1, size=12)
    assert 0 < len(first) < 6
    assert set(queue.kept().inside[b"g"]) == {one.id for _, one in first}
    second = queue.take(ME, claims=1, size=12)
    assert [one.id for _, one in [*first, *second]] == [b"g/%02d" % number for number in range(6)]
    assert not queue.take(ME, claims=1, size=12)


def test_ordered_ids_are_moved_in_pieces(store: Store) -> None:
    for number in range(6):
        text = json.dumps("x" * MB).encode()
        store.run(ordered.push(store.keys, "a", "min", [ordered.Push(b"%d" % number, "", "1.0", text)]))
    moved = store.run(ordered.move(store.keys, "a", "b", "min"))
    assert 0 < moved.moved < 6
    while moved.left:
        moved = store.run(ordered.move(store.keys, "a", "b", "min"))
    assert store.ask("ZCARD", store.keys.ordered("b") + "due") == 6


@pytest.mark.parametrize("act", ["retry_all", "kill_all", "clear"])
def test_acts_on_a_whole_set_go_in_pieces(redis_url: str, act: str) -> None:
    app, sent = App(redis_url=redis_url), []
    run = app.connections.run

    def noted(call):  # type: ignore[no-untyped-def]
        sent.append(sum(len(part) for command in call.parts for part in command if isinstance(part, bytes)))
        return run(call)

    with Redis.from_url(redis_url) as redis:
        for number in range(12):
            redis.zadd("retry", {large(number): number})
        app.connections.run = noted  # type: ignore[method-assign]
        acted = getattr(app.retries, act)()
        assert acted.done == 12
        assert max(sent) < 3 * MOST_BYTES, "old and new bytes of 4 MB, and one more of each"
        assert not redis.exists("retry")
        assert redis.llen("queue:a") == (12 if act == "retry_all" else 0)
        assert redis.zcard("dead") == (12 if act == "kill_all" else 0)
    app.close()


def test_every_entry_of_a_set_of_large_ones_is_met_once(redis_url: str) -> None:
    app = App(redis_url=redis_url)
    with Redis.from_url(redis_url) as redis:
        for number in range(9):
            redis.zadd("dead", {large(number, 3 * MB): number // 2})
    assert [entry.jid for entry in app.dead] == [str(number) for number in range(9)][::-1]
    app.close()
