"""Where one job is, in every place where it may be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from henchman.inspector.jobs import JobStatus, find_job
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
    assert len(asked) <= 9, asked
    fetched = payload("3" * 24)
    flight = store.keys.in_flight("host:3:000000000003", 0, "mail")
    store.connections.run(leases.join(store.keys, "host:3:000000000003", [flight], 60_000))
    store.ask("LPUSH", flight, fetched)
    status = find(store, "3" * 24, near=Hint())
    assert (status.state, status.process, status.queue) == ("working", "host:3:000000000003", "mail")
    inside = payload("4" * 24, args=["5" * 24])
    store.ask("LPUSH", flight, inside)
    assert find(store, "5" * 24, near=Hint()).state == "unknown", "another job that has the id as an argument"
