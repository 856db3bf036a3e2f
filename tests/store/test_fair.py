"""Fair queues: lines of tenants, turns, and the list that everybody pushes into."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from henchman.errors import DefinitionError, LeaseLost
from henchman.store import fair, jobs, leases, queues
from henchman.store.call import load
from support.store import ME, Store


def job(name: str, tenant: str = "", priority: str = "", at: float = 1.0) -> bytes:
    """A payload as our clients write it; ``name`` is its id."""
    fields: dict[str, Any] = {"fair": tenant} if tenant else {}
    fields |= {"priority": priority} if priority else {}
    return json.dumps(
        {**fields, "class": "a", "args": [], "jid": name, "enqueued_at": at}, separators=(",", ":")
    ).encode()


def ids(payloads: list[bytes]) -> list[str]:
    return [json.loads(one)["jid"] for one in payloads]


class Fair:
    """A fair queue ``f`` and a process that serves it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        store.run(fair.declare(store.keys, "f", {}))
        store.join("f")

    def push(self, *payloads: bytes) -> None:
        self.store.push("f", *payloads)

    def fetch(self, count: int, extra: int = 0) -> list[str]:
        keys = self.store.keys
        call = fair.fetch(keys, ME, "f", self.store.flight("f"), count=count, extra=extra, lease_ms=30_000)
        return ids(self.store.run(call).payloads)

    def take_in(self) -> int:
        return self.store.run(fair.take_in(self.store.keys, "f"))

    def waiting(self) -> int:
        return self.store.run(fair.waiting(self.store.keys, ["f"]))[0]

    def line(self, name: str) -> list[str]:
        return ids(self.store.queue(name))

    def done(self) -> None:
        """Settle all that is in flight."""
        units = [jobs.Settlement(1, one, "done") for one in self.store.in_flight("f")]
        self.store.settle(*units, queues=("f",))


@pytest.fixture
def queue(store: Store) -> Fair:
    return Fair(store)


def test_tenants_are_served_in_turn_and_each_in_the_order_of_its_pushes(queue: Fair) -> None:
    queue.push(*(job(f"a{n}", "A") for n in range(6)), job("b0", "B"), job("b1", "B"), job("c0", "C"))

    assert queue.fetch(9) == ["a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4", "a5"]


def test_who_comes_late_waits_for_a_turn_at_most(queue: Fair) -> None:
    queue.push(*(job(f"a{n}", "A") for n in range(500)), *(job(f"c{n}", "C") for n in range(500)))
    queue.fetch(100)
    queue.push(job("b0", "B"), job("b1", "B"))

    assert set(queue.fetch(3)) >= {"b0"}
    assert "b1" in queue.fetch(3)


def test_turns_go_on_from_fetch_to_fetch(queue: Fair) -> None:
    queue.push(*(job(f"{tenant}{n}", tenant) for tenant in "ABC" for n in range(20)))

    got = [one for _ in range(30) for one in queue.fetch(1)]

    assert [sum(one[0] == tenant for one in got) for tenant in "ABC"] == [10, 10, 10]
    assert [one for one in got if one[0] == "A"] == [f"A{n}" for n in range(10)]


def test_a_tenant_that_always_comes_back_does_not_push_others_aside(queue: Fair) -> None:
    queue.push(*(job(f"z{n}", "Z") for n in range(10)))
    got = []
    for n in range(10):
        queue.push(job(f"a{n}", "A"))
        got += queue.fetch(2)

    assert sum(one[0] == "z" for one in got) == 10


def test_a_weight_gives_more_turns(queue: Fair) -> None:
    queue.store.run(fair.set_weight(queue.store.keys, "f", "A", 3))
    queue.push(*(job(f"{tenant}{n}", tenant) for tenant in "AB" for n in range(100)))

    got = queue.fetch(40)

    assert sum(one[0] == "A" for one in got) == 30
    assert queue.store.run(fair.weights(queue.store.keys, "f")) == {"A": 3}


def test_levels_are_strict_and_first_come_first_served_within(queue: Fair) -> None:
    queue.push(job("n0"), job("l0", priority="low"), job("h0", priority="high"), job("n1"), job("h1", priority="high"))

    assert queue.fetch(2) == ["h0", "h1"]
    queue.push(job("h2", priority="high"))
    assert queue.fetch(9) == ["h2", "n0", "n1", "l0"]


def test_levels_go_before_tenants(queue: Fair) -> None:
    queue.push(job("a0", "A"), job("a1", "A", "high"), job("b0", "B"), job("a2", "A", "high"), job("b1", "B", "high"))

    assert queue.fetch(9) == ["a1", "b1", "a2", "a0", "b0"]


def test_what_waits_in_lines_always_has_one_in_the_list(queue: Fair) -> None:
    """Others wait for a push into the list: they are woken as long as there is work."""
    queue.push(*(job(f"{tenant}{n}", tenant) for tenant in "AB" for n in range(3)))
    assert queue.fetch(1) == ["A0"]

    assert ids(queue.store.queue("f")) == ["B0"]
    assert queue.fetch(1) == ["B0"]
    assert queue.fetch(9) == ["A1", "B1", "A2", "B2"]
    assert queue.store.queue("f") == []


def test_what_stood_in_the_list_and_was_taken_from_there_leaves_the_turns_as_they_are(queue: Fair) -> None:
    queue.push(*(job(f"{tenant}{n}", tenant) for tenant in "AB" for n in range(3)))
    queue.fetch(1)
    taken = queue.store.ask("LMOVE", "queue:f", queue.store.flight("f"), "RIGHT", "LEFT")
    queue.push(job("A3", "A", at=2.0))

    assert ids([taken]) == ["B0"]
    assert queue.fetch(9) == ["A1", "B1", "A2", "B2", "A3"]


def test_what_is_given_back_is_next_of_its_tenant(queue: Fair) -> None:
    queue.push(*(job(f"{tenant}{n}", tenant) for tenant in "AB" for n in range(4)))
    assert queue.fetch(4) == ["A0", "B0", "A1", "B1"]
    queue.push(job("A9", "A", at=2.0))

    assert queue.store.run(jobs.give_back(queue.store.keys, queue.store.flight("f"), "f", 10)) == 4

    assert sorted(queue.fetch(4)) == ["A0", "A1", "B0", "B1"]
    assert queue.fetch(9) == ["A2", "B2", "A3", "B3", "A9"]


def test_what_a_process_lets_go_is_next_of_its_tenant(queue: Fair) -> None:
    queue.push(*(job(f"A{n}", "A") for n in range(5)))
    queue.fetch(3)
    units = [jobs.Settlement(1, one, "released") for one in reversed(queue.store.in_flight("f"))]

    assert queue.store.settle(*units, queues=("f",)) == [1, 1, 1]

    assert queue.fetch(9) == ["A0", "A1", "A2", "A3", "A4"]


def test_ruby_says_the_tenant_anywhere_or_it_is_found_by_its_argument(queue: Fair) -> None:
    queue.store.run(fair.declare(queue.store.keys, "f", {"Import": 1}))
    queue.push(
        *(job(f"a{n}", "A") for n in range(3)),
        b'{"retry":true,"queue":"f","fair":"B","class":"X","args":[{"fair":"A"}],"jid":"said"}',
        b'{"retry":true,"queue":"f","class":"Import","args":[7,"C"],"jid":"found"}',
        b'{"retry":true,"queue":"f","class":"Import","args":[7,12],"jid":"number"}',
        b'{"retry":true,"queue":"f","class":"X","args":[1,{"fair":"A","priority":"high"}],"jid":"none"}',
    )
    queue.take_in()

    assert queue.store.run(fair.names(queue.store.keys)) == frozenset({"f"})
    assert {name: queue.line(name) for name in ("f@B", "f@C", "f@12", "f+normal", "f")} == {
        "f@B": ["said"],
        "f@C": ["found"],
        "f@12": ["number"],
        "f+normal": [],
        "f": ["none"],  # whose turn is next
    }


def test_what_is_no_job_waits_in_the_line_without_a_tenant(queue: Fair) -> None:
    queue.push(b"no JSON", b"[1]", b'{"fair":17}', b'{"fair":"a\\"b","class":"x"}')
    queue.take_in()
    queue.take_in()

    assert queue.store.ask("LLEN", "queue:f+normal") == 2 - len(queue.store.queue("f"))
    assert queue.store.queue('f@a"b') == [b'{"fair":"a\\"b","class":"x"}']


def test_a_paused_tenant_waits_and_others_do_not(queue: Fair) -> None:
    queue.push(*(job(f"{tenant}{n}", tenant) for tenant in "AB" for n in range(3)))
    queue.store.ask("SADD", "paused", "f@A")

    assert queue.fetch(9) == ["B0", "B1", "B2"]
    queue.push(job("B3", "B"), job("C0", "C"))
    assert queue.fetch(9) == ["B3", "C0"]
    queue.store.ask("SREM", "paused", "f@A")
    queue.push(*(job(f"B{n}", "B") for n in range(4, 7)))
    got = queue.fetch(4)
    assert (got[0], sum(one[0] == "B" for one in got) >= 1) == ("A0", True), "it has not saved turns up"


def test_nothing_of_a_paused_queue(queue: Fair) -> None:
    queue.push(job("a", "A"))
    queue.store.ask("SADD", "paused", "f")
    assert queue.fetch(9) == []


def test_a_line_is_read_cleared_and_counted_as_a_queue(queue: Fair) -> None:
    queue.push(*(job(f"{tenant}{n}", tenant) for tenant in "AB" for n in range(5)))
    queue.take_in()
    waiting = queue.waiting()
    keys, store = queue.store.keys, queue.store

    assert store.run(queues.remove(keys, "f@B", job("B2", "B"))) == 1
    assert queue.waiting() == waiting - 1
    taken = store.run(queues.clear(keys, "f@B", 100, {})).taken
    assert (taken, queue.waiting()) == (4, waiting - 5)
    assert queue.fetch(20) == [f"A{n}" for n in range(5)]


def test_nothing_is_left_when_all_is_done(queue: Fair) -> None:
    queue.push(*(job(f"{n}", f"t{n % 7}", ("high", "", "low")[n % 3]) for n in range(2500)))
    got: list[str] = []
    while some := queue.fetch(100):
        got += some
        queue.done()

    assert sorted(got) == sorted(map(str, range(2500)))
    queue.store.run(leases.leave(queue.store.keys, ME, [queue.store.flight("f")]))
    left = queue.store.all_keys()
    assert {one for one in left if not one.startswith("stat:")} == {"queues", "hm:fair"}


def test_a_million_bytes_at_once_and_no_more(queue: Fair) -> None:
    large = [job(f"a{n}", "A")[:-1] + b',"pad":"' + b"x" * 3_000_000 + b'"}' for n in range(3)]
    queue.push(*large)
    assert queue.fetch(3) == ["a0"]
    assert queue.fetch(3) == ["a1"]
    assert queue.fetch(3) == ["a2"]


def test_the_buried_get_nothing(queue: Fair) -> None:
    queue.push(job("a", "A"))
    queue.store.run(leases.entomb(queue.store.keys, ME, force=True))
    with pytest.raises(LeaseLost):
        queue.fetch(1)


def test_an_ordered_queue_cannot_be_fair(store: Store) -> None:
    store.ask("SADD", "hm:ordered", "f")
    with pytest.raises(DefinitionError, match="'f' is an ordered queue"):
        store.run(fair.declare(store.keys, "f", {}))


def test_a_key_that_is_no_list_holds_up_nothing(queue: Fair) -> None:
    queue.store.ask("SET", "queue:f@A", "text")
    queue.push(job("a0", "A"), job("b0", "B"))
    assert sorted(queue.fetch(9)) == ["a0", "b0"]
    queue.store.ask("SET", "queue:f", "text")
    assert queue.fetch(9) == []
    assert queue.store.ask("GET", "queue:f@A") == b"text"


@pytest.mark.parametrize(
    ("role", "names"), [("producer", ("fair_take_in", "fair_declare")), ("worker", ("fair_fetch",))]
)
def test_the_smallest_rights_are_enough(role: str, names: tuple[str, ...]) -> None:
    """A refused command in the midst of a script would leave a line without its turn."""
    told = (Path(__file__).parents[2] / "docs" / "rights.md").read_text()
    allowed = set(re.findall(r"\+(\w+)", re.search(rf"ACL SETUSER {role} .*", told)[0]))  # type: ignore[index]
    for name in names:
        used = {one.lower() for one in re.findall(r"redis\.p?call\('(\w+)'", load(name).text)}
        assert used <= allowed, f"{name} needs {used - allowed}"
