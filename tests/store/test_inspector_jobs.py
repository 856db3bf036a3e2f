"""Where one job is, in every place where it may be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from henchman.inspector.jobs import JobStatus, Searched, find_job, search_on
from henchman.inspector.processes import list_processes, living, who_serves
from henchman.inspector.search import Hint, JobSearch
from henchman.kernel.text import visible
from henchman.store import leases
from henchman.store.aconnection import AsyncConnections
from henchman.store.call import Call, arun, drive, run
from henchman.store.jobs import Move, Settlement, cancel
from henchman.work.effects import of_payload
from support.garbage import GARBAGE, HOSTILE, READABLE, fill, payload
from support.locks import KEY, OTHER, OURS, SCOPE, job, lock
from support.store import ME, Store

JID = "1" * 24


def find(store: Store, jid: str = JID, **how: Any) -> JobStatus:
    return run(store.connections, find_job(store.keys, jid, **how))


def running(store: Store, identity: str, jid: str = JID) -> None:
    """``identity`` has written down that it runs the job."""
    store.ask("SADD", store.keys.processes, identity)
    store.ask("HSET", store.keys.process(identity), "info", "{}")
    record = {"queue": "mail", "payload": payload(jid).decode(), "run_at": 1_795_000_000}
    store.ask("HSET", store.keys.work(identity), "slot", json.dumps(record))


def test_nowhere(store: Store) -> None:
    status = find(store)
    assert (status.state, status.complete, status.scanned) == ("unknown", True, 0)
    assert "finished, was deleted, or never existed" in status.text
    assert find(store, "").state == "unknown"


def test_gone_with_the_keys_that_it_never_gave_back(store: Store) -> None:
    """As after ``UNLINK`` by hand: nobody looks for its job until another one asks for the key."""
    lock(store, "o")
    lock(store, "r", scope="other", key="x")
    lock(store, "u", OTHER)
    store.ask("SADD", store.keys.scopes, SCOPE, "other", "empty")
    found = find(store, OURS)
    assert found.state == "unknown"
    assert "; it still has the key 'x' of 'other' (running): henchman unlock other x" in found.text
    assert f"has the key {visible(KEY)!r} of {SCOPE!r} (once): henchman unlock 'shop: ü' " in found.text
    assert "unlock" not in find(store, "1" * 24).text
    assert "unlock" not in find(store, OURS, near=Hint()).text, "a quick look searches nothing"


@pytest.mark.parametrize(("phases", "ending", "state"), [("f", "done", "finished"), ("f", "failed", "failed")])
def test_gone_and_followed_its_end_is_remembered(store: Store, phases: str, ending: str, state: str) -> None:
    ended = job(OURS, phases, scope="", key=OURS)
    lock(store, "f", scope="", key=OURS)
    store.push("a", ended)
    store.join("a")
    store.fetch("a")
    effects = of_payload(store.keys, ended, ending)
    assert store.settle(Settlement(1, ended, ending, effects=effects)) == [1]
    found = find(store, OURS)
    assert found.state == state
    assert "that is remembered until 20" in found.text


def test_in_a_queue_with_its_place(store: Store) -> None:
    store.push("mail", *[payload(f"{n:024}") for n in range(333)])
    for number in (0, 1, 99, 100, 101, 332):
        for queue in ("mail", None):
            status = find(store, f"{number:024}", queue=queue)
            assert (status.state, status.queue, status.position) == ("enqueued", "mail", number + 1)
    assert find(store, f"{5:024}", queue="elsewhere").state == "enqueued"
    assert (status.name, status.args, status.attempts, status.error) == ("mail.send", [42, "de"], 0, None)


@pytest.mark.parametrize(("name", "state"), [("schedule", "scheduled"), ("retry", "retrying"), ("dead", "dead")])
def test_in_a_set(store: Store, name: str, state: str) -> None:
    one = payload(retry_count=0, error_class="E", error_message="why", failed_at=5.0)
    store.ask("ZADD", getattr(store.keys, name), 9e9, one, 1, payload("x" * 24, args=[JID]))
    status = find(store)
    assert (status.state, status.at, status.error, status.attempts) == (state, 9e9, ("E", "why"), 1)
    assert status.failed_at == 5.0
    assert status.queue == "mail"


def test_in_flight(store: Store) -> None:
    store.push("mail", payload())
    store.join("mail")
    store.fetch("mail")
    status = find(store)
    assert (status.state, status.queue, status.process, status.started_at) == ("working", "mail", ME, None)
    running(store, ME)
    assert find(store).started_at == 1_795_000_000


def test_what_ours_wrote_down_and_has_finished_since_is_not_running(store: Store) -> None:
    store.join("mail")
    running(store, ME)
    assert find(store).state == "unknown"
    running(store, "ruby:1:abc")
    assert (find(store).state, find(store).process) == ("working", "ruby:1:abc")


def test_cancelled(store: Store) -> None:
    store.run(cancel(store.keys, JID))
    assert (find(store).state, find(store).cancelled) == ("cancelled", True)
    store.push("mail", payload())
    waiting = find(store)
    assert (waiting.state, waiting.queue, waiting.position) == ("cancelled", "mail", 1)
    assert "will not start" in waiting.text
    store.join("mail")
    store.fetch("mail")
    assert find(store).state == "working"
    assert "told to stop" in find(store).text


def test_the_bound_is_kept_and_told(store: Store) -> None:
    store.push("mail", *[payload(f"{n:024}") for n in range(2000)])
    status = find(store, most=500)
    assert (status.state, status.complete) == ("unknown", False)
    assert 500 <= status.scanned <= 600
    assert f"{status.scanned:,} entries" in status.text
    assert find(store, f"{10:024}", most=500).state == "enqueued"


def test_among_garbage_and_odd_ids(store: Store) -> None:
    fill(store, store.now())
    assert (find(store, "w" * 24).state, find(store, "w" * 24).process) == ("working", "host:1:abc")
    assert find(store, "h" * 24, queue="mail").state == "enqueued"
    assert find(store, "17").state == "scheduled"
    for jid in ("*", "[a-f]*", HOSTILE, "\udcff", "a" * 23, "\\"):
        status = find(store, jid)
        assert status.state == "unknown", jid
        assert status.complete
    every = len(GARBAGE) + len(READABLE)
    assert status.scanned > 5 * every
    assert json.loads(json.dumps(find(store, "h" * 24).to_json()))["class"] == "mail.send"


def test_masked(store: Store) -> None:
    store.push("mail", payload())
    status = find(store, mask=lambda name, args, kwargs: ([name, "***"], {"k": "***"}))
    assert (status.args, status.kwargs) == (["mail.send", "***"], {"k": "***"})


def test_awaited(store: Store, redis_url: str) -> None:
    store.push("mail", payload())

    async def look() -> JobStatus:
        connections = AsyncConnections(redis_url)
        try:
            return await arun(connections, find_job(store.keys, JID))
        finally:
            await connections.close()

    assert asyncio.run(look()) == find(store)


class Moving:
    """A runner beside which something happens just before its call number ``when``."""

    def __init__(self, store: Store, when: int, what: Callable[[], object]) -> None:
        self._store = store
        self._when = when
        self._what = what
        self.calls = 0

    def run(self, call: Call[Any]) -> Any:
        self.calls += 1
        if self.calls == self._when:
            self._what()
        return self._store.run(call)


def test_a_job_that_moves_while_it_is_looked_for_is_found_whenever_it_moves(store: Store) -> None:
    def look(when: int) -> tuple[JobStatus, int]:
        store.ask("FLUSHALL")
        store.join("mail")
        store.push("mail", payload())
        moving = Moving(store, when, lambda: store.fetch("mail"))
        return run(moving, find_job(store.keys, JID, queue="mail")), moving.calls

    assert look(1)[0].state == "working"
    states = {look(when)[0].state for when in range(1, 12)}
    assert states == {"working", "enqueued"}


def test_a_retry_that_is_staged_while_it_is_looked_for_is_found(store: Store) -> None:
    for when in range(1, 14):
        store.ask("FLUSHALL")
        store.ask("ZADD", store.keys.retry, 5, payload())
        moving = Moving(store, when, lambda: store.move(store.keys.retry, Move(payload(), payload(), "mail")))
        assert run(moving, find_job(store.keys, JID, queue="mail")).state in {"retrying", "enqueued"}, when


@pytest.mark.parametrize("place", [0, 999, 1000, 5_600, 15_000, 19_999])
def test_deep_in_a_set_it_is_found_in_few_questions(store: Store, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside as many scheduled; a thousand entries are one look of the server."""
    asked, plain = list[str](), store.connections.run
    for key, mark in ((store.keys.dead, ""), (store.keys.schedule, "s")):
        words = [word for n in range(20_000) for word in (20_000 - n, payload(f"{mark}{n:020}"))]
        for start in range(0, len(words), 10_000):
            store.ask("ZADD", key, *words[start : start + 10_000])

    def counting(call: Call[Any]) -> Any:
        asked.append(call.name)
        return plain(call)

    monkeypatch.setattr(store.connections, "run", counting)
    found = find(store, f"{place:020}")
    assert (found.state, found.at) == ("dead", 20_000 - place)
    assert len(asked) <= 29, asked  # not 46, one set after the other


def test_a_few_looks_find_what_runs_without_asking_each_process(store: Store) -> None:
    """The server says who holds the id; what it says is compared here, and a key of another kind shows nothing."""
    for number in range(600):
        store.ask("SADD", store.keys.processes, f"host:{number}:{number:012x}")
    running(store, "host:577:000000000241")
    running(store, "host:3:000000000003", "2" * 24)
    store.ask("SET", store.keys.work("host:5:000000000005"), "no hash")
    asked: list[str] = []
    plain = store.connections.run

    def counting(call: Call[Any]) -> Any:
        asked.append(call.name)
        return plain(call)

    found = drive(counting, JobSearch(store.keys, JID, 1000, None, thorough=False).near(Hint()))
    assert found is not None
    assert (found.state, found.process) == ("working", "host:577:000000000241")
    assert len(asked) == 1, asked
    fetched = payload("3" * 24)
    flight = store.keys.in_flight("host:3:000000000003", 0, "mail")
    store.connections.run(leases.join(store.keys, "host:3:000000000003", [flight], 60_000))
    store.ask("LPUSH", flight, fetched)
    status = find(store, "3" * 24, near=Hint())
    assert (status.state, status.process, status.queue) == ("working", "host:3:000000000003", "mail")
    inside = payload("4" * 24, args=["5" * 24])
    store.ask("LPUSH", flight, inside)
    assert find(store, "5" * 24, near=Hint()).state == "unknown", "another job that has the id as an argument"


def test_a_look_sees_few_entries_of_each_of_many_queues_and_says_so(store: Store) -> None:
    for queue in range(300):
        store.ask("SADD", store.keys.queues, f"q{queue}")
        store.ask("LPUSH", store.keys.queue(f"q{queue}"), *(payload(f"{queue:012}{n:012}") for n in range(40)))
    store.ask("SET", store.keys.queue("q7"), "no list")
    next_one, newest = f"{299:012}{0:012}", f"{12:012}{39:012}"
    found = find(store, next_one, near=Hint())
    assert (found.state, found.queue, found.position) == ("enqueued", "q299", 1)
    found = find(store, newest, near=Hint())
    assert (found.state, found.queue, found.position) == ("enqueued", "q12", 40)
    deep = find(store, f"{12:012}{20:012}", near=Hint())
    assert (deep.state, deep.complete) == ("unknown", False)
    assert deep.scanned <= 8000


def walked(store: Store, jid: str) -> list[Searched]:
    """Each step of the search for a job, up to the one that finds it, or the last."""
    found, after = list[Searched](), ""
    while not found or (after and found[-1].status.entry is None):
        found.append(run(store.connections, search_on(store.keys, jid, after)))
        after = found[-1].after
    return found


def test_step_by_step_everything_is_searched(store: Store) -> None:
    for key, mark in ((store.keys.retry, "r"), (store.keys.dead, "d")):
        words = [word for n in range(25_000) for word in (n, payload(f"{mark}{n:020}"))]
        for start in range(0, len(words), 10_000):
            store.ask("ZADD", key, *words[start : start + 10_000])
    for queue in ("mail", "pay", "empty"):
        store.ask("SADD", store.keys.queues, queue)
    for queue, many in (("mail", 3000), ("pay", 700)):
        store.ask("LPUSH", store.keys.queue(queue), *(payload(f"{queue}{n:020}") for n in range(many)))
    places = {f"r{0:020}": "retrying", f"d{3:020}": "dead", f"mail{0:020}": "enqueued", f"pay{699:020}": "enqueued"}
    for jid, state in places.items():
        last = walked(store, jid)[-1]
        assert (last.status.state, last.status.jid, last.after) == (state, jid, "")
    assert walked(store, f"mail{0:020}")[-1].status.position == 1
    assert walked(store, f"pay{699:020}")[-1].status.position == 700
    steps = walked(store, JID)
    assert steps[-1].status.state == "unknown"
    assert steps[-1].status.complete
    seen = [one.searched for one in steps[:-1]]
    assert seen == sorted(seen), "it goes on"
    assert {one.total for one in steps[:-1]} == {53_700}
    assert seen[-1] == 53_700
    assert max(after - before for before, after in zip([0, *seen], seen, strict=False)) <= 20_000


@pytest.mark.parametrize("after", ["x", "dead.", "dead.-1", "dead.99999999999", "queues.\u0663", "keys.5"])
def test_a_step_that_nobody_offered_harms_nothing(store: Store, after: str) -> None:
    assert run(store.connections, search_on(store.keys, JID, after)).status.state == "unknown"


def test_the_dead_of_a_batch_are_found_step_by_step(store: Store) -> None:
    store.ask("ZADD", store.keys.batches, 5, "b1")
    store.ask("ZADD", store.keys.batch("b1") + ":dead", 7, payload(JID))
    found = walked(store, JID)[-1].status
    assert (found.state, found.kept_by) == ("dead", "b1")


def test_jobs_of_one_time_are_found_by_it(store: Store) -> None:
    """What a list names is the score, which others may have; what is before it is not looked at."""
    for n in range(1500):
        store.ask("ZADD", store.keys.dead, 100 + n, payload(f"{n:024}"))
        store.ask("ZADD", store.keys.dead, 50, payload(f"s{n:023}")) if n < 150 else None
    found = find(store, f"s{140:023}", near=Hint(at=50.0))
    assert (found.state, found.at) == ("dead", 50.0)
    assert find(store, f"s{140:023}", near=Hint()).state == "unknown"


def serving(store: Store, identity: str, info: dict[str, Any], work: int | None = None, **facts: Any) -> None:
    store.ask("SADD", store.keys.processes, identity)
    pairs = [word for pair in ({"info": json.dumps(info)} | facts).items() for word in pair]
    store.ask("HSET", store.keys.process(identity), *pairs)
    if work is not None:
        record = {"queue": "mail", "payload": payload(JID).decode(), "run_at": work}
        store.ask("HSET", store.keys.work(identity), "slot", json.dumps(record, separators=(",", ":")))


def test_the_server_counts_who_serves_a_queue_as_their_records_say(store: Store) -> None:
    """Whatever the version of a process, and however its JSON was written: the same as reading each record."""
    now = float(store.ask("TIME")[0])
    ours: dict[str, Any] = {"version": "henchman 1", "concurrency": 2}
    serving(store, "a:1:0", ours | {"queues": ["mail", "pay"]}, 100, busy=2, beat=now - 10, quiet="false")
    serving(store, "b:1:0", ours | {"queues": ["pay", "mail"]}, 50, busy=2, beat=now - 5, quiet="false", concurrency=2)
    serving(store, "c:1:0", ours | {"queues": ["mail"]}, busy=0, beat=now - 1, quiet="true")
    serving(store, "d:1:0", ours | {"queues": ["mail"]}, busy=0, beat=now - 97)
    serving(store, "e:1:0", ours | {"queues": ["pay"], "tag": "mail", "hostname": "mail"}, busy=0, beat=now - 1)
    serving(store, "f:1:0", {"capsules": {"x": {"weights": {"mail": 1}}}, "concurrency": 1}, busy=1, beat=now - 1)
    serving(store, "g:1:0", ours | {"queues": [], "tag": "mail"}, beat=now - 1)
    serving(store, "h:1:0", {"queues": {"mail": 2}, "concurrency": 1}, 70, busy=1)
    store.ask("SADD", store.keys.processes, "none:1:0", "odd:1:0")
    store.ask("SET", store.keys.process("odd:1:0"), "no hash")
    found = run(store.connections, who_serves(store.keys, "mail"))
    assert (found.ours, found.serving, found.alive, found.free) == (5, 6, 5, 4)
    assert (found.slots, found.busy, found.heard) == (6, 6, now - 1)
    assert found.longest is not None
    assert (found.longest.identity, found.longest.run_at, found.longest.entry.name) == ("b:1:0", 50.0, "mail.send")
    states = [one for one in run(store.connections, list_processes(store.keys)) if "mail" in one.queues]
    assert found.serving == len(states)
    alive = [one for one in living(states, now) if not one.quiet]
    assert (found.free, found.slots) == (len(alive), sum(one.concurrency for one in alive))


@pytest.mark.parametrize("queue", ['a"b', "ü", "a/b", "a\\b", "\u2028", "]x", "<b>"])
def test_who_serves_a_queue_with_a_wild_name_is_known(store: Store, queue: str) -> None:
    for number, ascii in enumerate((True, False)):
        store.ask("SADD", store.keys.processes, f"{number}:1:0")
        info = json.dumps({"queues": ["mail", queue, "pay"], "concurrency": 3}, ensure_ascii=ascii)
        store.ask("HSET", store.keys.process(f"{number}:1:0"), "info", info)
    assert run(store.connections, who_serves(store.keys, queue)).slots == 6
