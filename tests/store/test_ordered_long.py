"""One id with very many payloads: no script holds the server up because much waits, and nothing changes by it."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman import App
from henchman.cli.main import henchman
from henchman.inspector.ordered_id import OrderedCommands
from henchman.store import ordered, ordered_people
from henchman.store.call import Procedure
from henchman.store.ordered import Verdict
from support.measured import Held, resident_kb, server_seconds
from support.ordered import OrderedQueue
from support.store import Store

ME, OTHER = "host:1:0123456789ab", "host:2:0123456789ab"
LONG = 100_000
LARGE = 1 << 20  # bytes of a large payload
BOTH = 6_000  # on either side: more than one call brings together
HELD = 0.025  # seconds of the server's processor, a call


def fill(queue: OrderedQueue, pile: str, numbers: range, *, add: float = 0.0, records: str = "") -> dict[bytes, float]:
    """Payloads of ``numbers`` with these as scores, as pushes leave them; payload → score."""
    made = {b'{"price":%d}' % n: n + add for n in numbers}
    rows = list(made.items())
    for start in range(0, len(rows), 5000):
        some = rows[start : start + 5000]
        queue.store.ask("ZADD", queue.key(f"{pile}:a"), *(word for body, score in some for word in (repr(score), body)))
        if records:
            names = [word for body, _ in some for word in (body, f"{records}{body[9:-1].decode():0>20}")]
            queue.store.ask("HSET", queue.key(f"j{pile}:a"), *names)
    return made


@pytest.fixture(params=[False, True], ids=["plain", "tracked"])
def queue(store: Store, request: pytest.FixtureRequest) -> OrderedQueue:
    made = OrderedQueue(store, "q", tracked=request.param)
    made.join(ME, OTHER)
    return made


def held(queue: OrderedQueue, waits: range, arrived: range = range(0)) -> tuple[int, dict[bytes, float]]:
    """The id with ``waits``, a claim of its first 1,000, and what arrived since: token, and what is to be left."""
    queue.put("a", b"0", -2)
    queue.put("a", b"1", -1)
    left = fill(queue, "p", waits, records="dddd" if queue.tracked else "")
    [(token, _)] = queue.take(ME, claims=1)
    if arrived:
        queue.put("a", b'{"price":%d}' % arrived[0], arrived[0] - 0.5)
        for body, score in fill(queue, "n", arrived[1:], add=-0.5, records="eeee" if queue.tracked else "").items():
            left[body] = min(left.get(body, score), score)
        first = b'{"price":%d}' % arrived[0]
        left[first] = min(left.get(first, arrived[0] - 0.5), arrived[0] - 0.5)
    return token, left


def ended(queue: OrderedQueue, verdict: Verdict) -> int:
    """Settle it as a worker does; how many calls that took."""
    for calls in range(1, 1000):
        [status] = queue.settle(ME, verdict)
        if status == 1:
            return calls
        assert status == ordered.PART
        assert queue.held(ME), "it is held all the time"
    raise AssertionError("it does not come to an end")


def in_order(payloads: dict[bytes, float]) -> list[tuple[float, bytes]]:
    return sorted((score, body) for body, score in payloads.items())


def records_of(queue: OrderedQueue, pile: str = "p") -> int:
    return int(queue.store.ask("HLEN", queue.key(f"j{pile}:a")))


@pytest.mark.parametrize("verdict", ["done", "retry", "release"])
def test_much_that_waits_and_much_that_arrived_become_one(queue: OrderedQueue, verdict: str) -> None:
    token, left = held(queue, range(BOTH), range(BOTH // 2, BOTH + BOTH // 2))
    if verdict == "done":
        left = {body: score for body, score in left.items() if score >= 998 or body in (b"0", b"1")}
    else:
        left |= {b"0": -2.0, b"1": -1.0}
    assert ended(queue, Verdict(token, b"a", verdict, 0.0, 1)) > 1
    assert queue.waiting(b"a") == in_order(left)
    assert queue.left() - {"one", "retry", "err"} == {"due", "p:a"} | ({"jp:a"} if queue.tracked else set())
    if queue.tracked:
        assert records_of(queue) == len(left)
    queue.set_due(b"a", 1)
    [(_, one)] = queue.take(ME, claims=1)
    assert one.payloads == in_order(left)[:1000], "the oldest come next, whenever they came"


def test_the_record_that_was_there_goes_on(store: Store) -> None:
    queue = OrderedQueue(store, "q", tracked=True)
    queue.join(ME)
    token, left = held(queue, range(BOTH), range(BOTH // 2, BOTH + BOTH // 2))
    store.ask("DEL", store.keys.history)
    ended(queue, Verdict(token, b"a", "release"))
    jids = queue.table("jp:a")
    assert len(jids) == len(left) + 2
    assert {jids[b'{"price":%d}' % n][:4] for n in range(BOTH)} == {b"dddd"}
    assert {jids[b'{"price":%d}' % n][:4] for n in range(BOTH + 1, BOTH + BOTH // 2)} == {b"eeee"}
    told = "".join(str(fields) for _, fields in store.ask("XRANGE", store.keys.history, "-", "+"))
    assert told.count('"ending":"merged"') == BOTH // 2, "and each that merged is told of"


@pytest.mark.parametrize("how", ["free", "overdue"])
def test_what_a_process_held_that_died(queue: OrderedQueue, how: str) -> None:
    _, left = held(queue, range(BOTH), range(BOTH, 2 * BOTH))
    left |= {b"0": -2.0, b"1": -1.0}
    queue.bury(ME)
    if how == "free":
        pairs = list(queue.held(ME).items())
        key = queue.store.keys.held(ME, 1, "q")
        assert ordered.free_all(queue.store.connections, queue.store.keys, ME, key, "q", pairs, charge=True) == 1
        assert queue.table("crash") == {b"a": b"1"}, "one death, however many calls"
    taken: list[Any] = []
    for _ in range(100):
        queue.overdue()
        queue.set_due(b"a", 1)
        taken = queue.take(OTHER, claims=1)
        if taken:
            break
    [(_, one)] = taken
    assert one.payloads == in_order(left)[:1000]
    assert queue.waiting(b"a") == in_order(left)


def run(queue: OrderedQueue, plan: Procedure[Any]) -> Any:
    answer: Any = None
    while True:
        try:
            call = plan.send(answer)
        except StopIteration as end:
            return end.value
        answer = queue.store.run(call)


def test_acts_of_people_take_as_many_calls_as_it_needs(queue: OrderedQueue) -> None:
    acts = OrderedCommands(queue.store.keys, "q")
    records = "dddd" if queue.tracked else ""

    def waits(numbers: range) -> dict[bytes, float]:
        queue.put("a", b"0", -2)
        queue.put("a", b"1", -1)
        return {b"0": -2.0, b"1": -1.0} | fill(queue, "p", numbers, records=records)

    first = waits(range(BOTH))
    assert run(queue, acts.on("kill", [b"a"])).done == 1
    assert queue.morgue(b"a") == in_order(first)
    second = waits(range(BOTH // 2, 2 * BOTH))
    assert run(queue, acts.on("kill", [b"a"])).done == 1
    assert queue.morgue(b"a") == in_order(first | second)
    assert not queue.waiting(b"a")
    third = waits(range(BOTH, 3 * BOTH))
    assert run(queue, acts.on("revive", [b"a"])).done == 1
    assert queue.waiting(b"a") == in_order(first | second | third)
    assert queue.left() == {"due", "p:a"} | ({"jp:a"} if queue.tracked else set())
    assert not queue.tracked or records_of(queue) == len(first | second | third)
    assert run(queue, acts.on("run", [b"a"])).done == 1
    assert run(queue, acts.on("delete", [b"a"])).done == 1
    assert queue.left() == set()
    waits(range(BOTH))
    run(queue, acts.on("kill", [b"a"]))
    assert run(queue, acts.on_all("purge", "morgue")).done == 1
    assert queue.left() == set()


def test_moving_takes_as_many_calls_as_it_needs_and_nobody_takes_it_meanwhile(queue: OrderedQueue) -> None:
    target = OrderedQueue(queue.store, "other", tracked=queue.tracked)
    target.join(ME)
    target.put("a", b"0", -5, when=3)
    queue.put("a", b"0", -2, when=2)
    queue.put("a", b"1", -1, when=2)
    left = fill(queue, "p", range(11_000), records="dddd" if queue.tracked else "") | {b"0": -5.0, b"1": -1.0}
    call = ordered.move(queue.store.keys, "q", "other", "min", ids=[b"a"])
    assert isinstance(queue.store.run(call), ordered.MoveBegun)
    assert not queue.take(ME, claims=1)
    assert not target.take(ME, claims=1)
    acted = run(queue, OrderedCommands(queue.store.keys, "q").move("other", []))
    assert (acted.done, acted.stayed) == (1, 0)
    assert queue.left() == set()
    assert target.waiting(b"a") == in_order(left)
    assert target.scores("due") == {b"a": 2.0}
    assert target.left() == {"due", "p:a"} | ({"jp:a"} if queue.tracked else set())


def test_a_claim_of_many_ids_with_many_payloads_each_is_bounded(store: Store) -> None:
    queue = OrderedQueue(store, "q")
    queue.join(ME)
    for number in range(30):
        name = f"a{number:02}"
        queue.put(name, b"0", -2)
        queue.put(name, b"1", -1)
        rows = [word for n in range(900) for word in (n, b"%d" % (n + 2))]
        store.ask("ZADD", queue.key(f"p:{name}"), *rows)
    taken = queue.take(ME, claims=30)
    assert len(taken) == 30
    assert sum(len(one.payloads) for _, one in taken) < 11_000
    assert all(one.payloads[0] == (-2.0, b"0") for _, one in taken), "the lowest of each"
    verdicts = [Verdict(token, one.id, "done") for token, one in taken]
    assert queue.settle(ME, *verdicts) == [1] * 30
    assert sum(len(queue.waiting(one.id)) for _, one in taken) == 30 * 902 - sum(len(one.payloads) for _, one in taken)


def script_seconds(store: Store) -> float:
    """The time that the server has spent in scripts."""
    found = re.search(rb"cmdstat_evalsha:calls=\d+,usec=(\d+)", store.ask("INFO", "commandstats"))
    return int(found[1]) / 1e6 if found else 0.0


@pytest.mark.alone("it measures milliseconds")
@pytest.mark.parametrize("arrived", [1, 1000])
@pytest.mark.parametrize(
    "long", [LONG, pytest.param(1_000_000, marks=pytest.mark.scale("a million payloads, measured in milliseconds"))]
)
def test_what_a_settling_costs_with_very_many_that_wait(store: Store, redis: Redis, long: int, arrived: int) -> None:
    queue, took = OrderedQueue(store, "q"), Held(redis, HELD)
    queue.join(ME)
    token, _ = held(queue, range(long), range(long, long + arrived))
    assert took.run("settle", lambda: ended(queue, Verdict(token, b"a", "done"))) == 1
    queue.set_due(b"a", 1)
    for number, act in enumerate(
        (
            lambda: queue.take(ME, claims=1),
            lambda: queue.put("a", b"2", 5),
            lambda: queue.free(ME),
            lambda: store.run(ordered_people.look(store.keys, "q", [b"a"], 100)),
            lambda: store.run(ordered_people.act(store.keys, "q", "kill", [b"a"])),
            lambda: store.run(ordered_people.act(store.keys, "q", "revive", [b"a"])),
            lambda: store.run(ordered_people.act(store.keys, "q", "delete", [b"a"])),
        )
    ):
        took.run(f"act {number}", act)
    assert max(took.dearest().values()) < took.most(), str(took)


@pytest.mark.alone("it measures milliseconds")
@pytest.mark.parametrize("collapse", ["min", "latest"])
@pytest.mark.parametrize(
    "long", [20_000, pytest.param(1_000_000, marks=pytest.mark.scale("a million payloads, measured in milliseconds"))]
)
def test_what_people_do_to_an_id_under_which_very_many_wait(
    queue: OrderedQueue, redis_url: str, redis: Redis, long: int, collapse: str
) -> None:
    """Look, kill, revive in flight and not, run, move, delete, purge: in as many calls as it needs, none of them long,
    and nothing is read whole."""
    store, records = queue.store, "dddd" if queue.tracked else ""
    long = min(long, 100_000) if queue.tracked else long  # 500 a call
    app = App(redis_url=redis_url)
    ours, other = app.ordered_queues["q"], app.ordered_queues["other"]
    send, took, held = app.connections.run, defaultdict[str, list[float]](list), Held(redis, HELD)

    def timed(call: Any) -> Any:
        before, within = server_seconds(redis), script_seconds(store)
        reply = send(call)
        # Not what else it did, nor what it waited.
        took[call.name].append(min(server_seconds(redis) - before, script_seconds(store) - within))
        if len(took[call.name]) % 100 == 1:
            held.pace()
        store.ask("DEL", store.keys.history, store.keys.history_bytes)  # as a recorder does
        return reply

    app.connections.run = timed  # type: ignore[method-assign]

    def many(pile: str) -> None:
        fill(queue, pile, range(long), records=records)

    def waits() -> int:
        return ours.find("a").payload_count

    queue.put("a", b"0", -2)
    queue.put("a", b"1", -1)
    many("p")
    memory = resident_kb()
    assert waits() == long + 2
    assert len(ours.page()[0].payloads) == 20
    shown = CliRunner().invoke(henchman, ["ordered", "q", "a", "--redis", redis_url])
    assert shown.exit_code == 0, shown.output
    assert ours.run_now("a").done == 1
    assert ours.kill("a").done == 1
    assert ours.find("a").dead_count == long + 2
    queue.put("a", b"5", 5)
    store.ask("HSET", queue.key("meta"), "collapse", collapse)
    [(token, _)] = queue.take(ME, claims=1)
    assert ours.revive("a").done == 1
    assert ended(queue, Verdict(token, b"a", "done")) == 1
    assert waits() == (1 if collapse == "latest" else long + 2)
    assert resident_kb() - memory < 20_000, "it was read whole"
    if collapse == "latest":
        many("p")
    left = waits()
    assert ours.move_to("other", "a").done == 1
    assert other.find("a").payload_count == left
    assert other.kill("a").done == 1
    assert other.morgue_delete("a").done == 1
    queue.put("a", b"0", -2)
    queue.put("a", b"1", -1)
    many("p")
    assert ours.delete("a").done == 1
    assert queue.left() == set()
    app.close()
    # Of thousands of calls one in a hundred may meet what the machine does meanwhile; beside a million payloads a
    # single one may, too: a call that reads them all takes ten times as long as is allowed there.
    longest = {name: sorted(each)[-1 - len(each) // 100] for name, each in took.items()}
    most = (4 if long > LONG else 1) * held.most()
    assert not {name: seconds for name, seconds in longest.items() if seconds > most}, (longest, most)


def large(number: int) -> bytes:
    return b'"%07d%b"' % (number, b"x" * LARGE)


def test_large_payloads_of_an_id_move_in_pieces(queue: OrderedQueue, redis_url: str) -> None:
    """No call brings more than 4 MB of them from one pile to another, or shows more."""
    app = App(redis_url=redis_url)
    ours, most = app.ordered_queues["q"], list[int]()
    send = app.connections.run

    def noted(call: Any) -> Any:
        before = queue.store.ask("MEMORY", "USAGE", queue.key("m:a"), "SAMPLES", 0) or 0
        reply = send(call)
        most.append(abs((queue.store.ask("MEMORY", "USAGE", queue.key("m:a"), "SAMPLES", 0) or 0) - before))
        return reply

    def fill_both() -> None:
        for number in range(12):
            queue.put("a", large(number), number)
        assert ours.kill("a").done == 1
        for number in range(6, 18):
            queue.put("a", large(number), number + 0.5)

    def left() -> list[float]:
        return [score for score, _ in queue.waiting(b"a")]

    merged = [*map(float, range(12)), *(number + 0.5 for number in range(12, 18))]
    fill_both()
    app.connections.run = noted  # type: ignore[method-assign]
    assert len(ours.find("a").payloads) == 4
    assert ours.find("a").payload_count == 12
    assert ours.revive("a").done == 1
    assert left() == merged
    assert len(most) > 4
    assert max(most) <= 5 * LARGE + 100_000
    ours.delete("a")
    fill_both()
    most.clear()
    assert ours.kill("a").done == 1
    assert [score for score, _ in queue.morgue(b"a")] == merged
    assert max(most) <= 5 * LARGE + 100_000
    ours.revive("a")
    [(token, one)] = queue.take(ME, claims=1)
    assert len(one.payloads) == 4
    for number in range(12, 24):
        queue.put("a", large(number), number + 0.25)
    assert ended(queue, Verdict(token, b"a", "done")) > 1
    assert left() == [*map(float, range(4, 12)), *(number + 0.25 for number in range(12, 24))]
    assert ours.move_to("other", "a").done == 1
    assert app.ordered_queues["other"].find("a").payload_count == 20
    assert queue.left() == set()
    app.close()
