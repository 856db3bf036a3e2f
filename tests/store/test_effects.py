"""Every kind of effect through every script that ends jobs, on a real server; and who ends a job passes them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from henchman import App
from henchman.store import jobs, queues
from henchman.store.jobs import Move, Settlement
from henchman.store.leases import in_flight_lists
from henchman.work.effects import KINDS, EndingFacts, encoded
from henchman.worker.rescue import Death, charge, held_in
from henchman.worker.stager import Stager
from support.store import ME, Store

JID = "0123456789abcdef01234567"
BURSTS = "hm:debounce:s"
MARK = f"1.500000 {JID}"
JOB: dict[str, Any] = {
    "class": "m.f",
    "args": [],
    "jid": JID,
    "queue": "a",
    "retry": True,
    "created_at": 1.5,
    "enqueued_at": 1.5,
    "hm": {
        "iterable": True,
        "cron": "nightly",
        "batch": "b",
        "results": True,
        "step": "pay",
        "result_ttl": 60,
        "debounce": ["s", "17"],
        "key": ["s", "k", "uwr"],
        "limits": [["c", "bank", "x", 2, 0, 1]],
    },
}
PAYLOAD = json.dumps(JOB).encode()
NO_END = {"said", "relock", "follow", "spent"}  # not of a job that is done and says nothing


def marked(store: Store) -> None:
    """Everything that an effect removes, for our job and for a neighbour."""
    store.ask("ZADD", store.keys.cancelled, 1, JID, 1, "other")
    store.ask("HSET", store.keys.cron_running, "nightly", MARK, "other", MARK)
    store.ask("HSET", store.keys.iteration(JID), "ex", 1)
    store.ask("HSET", store.keys.iteration("other"), "ex", 1)
    store.ask("HSET", store.keys.lock("u", "s"), "k", f"{JID} 1.5 ", "other", "other 1.5 ")
    store.ask("HSET", store.keys.lock("r", "s"), "k", f"{JID} 1.5 ", "other", "other 1.5 ")
    store.ask("HSET", store.keys.places("bank", "x"), JID, "1 1.5", "other", "2 1.5")
    store.ask("HSET", store.keys.latest, JID, "1", "other", "2")
    store.ask("HSET", BURSTS, "17", f"1.500000 {JID} " + "{}", "18", f"1.500000 {JID} " + "{}")
    store.ask("HSET", store.keys.batch("b"), "state", "closed", "generation", 1, "n:enqueued", 2, "keep", 60)
    store.ask("HSET", store.keys.batch("b") + ":jobs", JID, "enqueued", "other", "enqueued")


def left(store: Store) -> set[str]:
    """The kinds whose work is not done; the neighbour's is never."""
    keys = store.keys
    assert store.ask("ZSCORE", keys.cancelled, "other")
    assert store.ask("HEXISTS", keys.cron_running, "other")
    assert store.ask("EXISTS", keys.iteration("other"))
    for key in (keys.lock("u", "s"), keys.lock("r", "s"), keys.latest, keys.places("bank", "x")):
        assert store.ask("HEXISTS", key, "other")
    assert store.ask("HEXISTS", BURSTS, "18")
    assert store.ask("HGET", keys.batch("b") + ":jobs", "other") == b"enqueued"
    assert store.ask("HGET", keys.batch("b"), "state") == b"closed", "one member is left"
    found = {
        "uncancel": store.ask("ZSCORE", keys.cancelled, JID) is not None,
        "cron_done": bool(store.ask("HEXISTS", keys.cron_running, "nightly")),
        "uniterate": bool(store.ask("EXISTS", keys.iteration(JID))),
        "undebounce": bool(store.ask("HEXISTS", BURSTS, "17")),
        "track": store.ask("HEXISTS", keys.batch("b") + ":jobs", JID) == 1,
        "result": not store.ask("EXISTS", keys.result(JID)),
        "unlock": bool(store.ask("HEXISTS", keys.lock("u", "s"), "k")),
        "unrun": bool(store.ask("HEXISTS", keys.lock("r", "s"), "k")),
        "unslot": bool(store.ask("HEXISTS", keys.places("bank", "x"), JID)),
        "unlatest": bool(store.ask("HEXISTS", keys.latest, JID)),
        "step": not store.ask("HEXISTS", keys.batch("b") + ":steps", "pay"),
        "step_result": not store.ask("HEXISTS", keys.batch("b") + ":results", JID),
    }
    assert {*found, *NO_END} == set(KINDS), "these come with no end"
    return {kind for kind, there in found.items() if there}


def settled(store: Store, effects: bytes) -> Any:
    store.push("a", PAYLOAD)
    store.join("a")
    store.fetch("a")
    return lambda: store.settle(Settlement(1, PAYLOAD, "cancelled", effects=effects))


def moved(store: Store, effects: bytes) -> Any:
    store.ask("ZADD", "retry", 1, PAYLOAD)
    return lambda: store.move("retry", Move(PAYLOAD, delete=True, effects=effects))


def charged(store: Store, effects: bytes) -> Any:
    store.push("a", PAYLOAD)
    store.join("a")
    store.fetch("a")
    lines = b"\n".join(b"2026 host:%d:0 died" % number for number in range(2))
    store.ask("HSET", store.keys.deaths, JID, lines)
    line = f"2026 {ME} died".encode()

    def charge() -> list[int]:
        call = jobs.charge(
            store.keys,
            store.flight("a"),
            JID,
            line,
            PAYLOAD,
            PAYLOAD + b" ",
            alone=True,
            dead_max=9,
            dead_timeout=9.0,
            effects=effects,
        )
        return [1 if store.run(call) == -1 and store.ask("ZREM", "dead", PAYLOAD + b" ") else 0]

    return charge


def removed(store: Store, effects: bytes) -> Any:
    store.push("a", PAYLOAD)
    return lambda: [store.run(queues.remove(store.keys, "a", PAYLOAD, effects))]


def cleared(store: Store, effects: bytes) -> Any:
    store.push("a", PAYLOAD)
    return lambda: [store.run(queues.clear(store.keys, "a", 9, {PAYLOAD: effects})).taken]


scripts = pytest.mark.parametrize("prepare", [settled, moved, charged, removed, cleared])
ALL = encoded(Store("redis://").keys, JOB, "cancelled")


@scripts
def test_each_kind_through_each_script_once(store: Store, prepare: Callable[[Store, bytes], Any]) -> None:
    end = prepare(store, ALL)
    marked(store)
    assert end() == [1]
    assert left(store) == set()
    assert not store.ask("EXISTS", store.keys.broken)
    marked(store)
    assert end() == [0]
    assert left(store) == {*KINDS} - {*NO_END, "result", "step", "step_result"}, "a late word has no effects"


@scripts
def test_one_that_fails_is_noted_and_stops_no_other(store: Store, prepare: Callable[[Store, bytes], Any]) -> None:
    end = prepare(store, b'[["fly"],["uniterate","elsewhere"],' + ALL[1:])
    marked(store)
    store.ask("DEL", store.keys.cron_running)
    store.ask("SET", store.keys.cron_running, "text")
    assert end() == [1]
    store.ask("DEL", store.keys.cron_running)
    store.ask("HSET", store.keys.cron_running, "other", MARK)
    assert left(store) == set()
    notes = [json.loads(one) for one in reversed(store.ask("LRANGE", store.keys.broken, 0, -1))]
    assert [one["unit"].encode() for one in notes] == [PAYLOAD] * len(notes)
    assert ["unknown kind" in one["error"] for one in notes] == [True, False]
    assert "WRONGTYPE" in notes[1]["error"]


@pytest.mark.parametrize(
    "effect", ['["uniterate"]', '["uniterate",7]', '["uniterate",null]', '["result","shop:x","9","1","c"]', "7", "[]"]
)
def test_an_effect_that_names_no_key_of_the_app_is_noted(redis_url: str, effect: str) -> None:
    store = Store(redis_url, "ours")
    end = settled(store, f"[{effect}]".encode())
    store.ask("MSET", "7", "stays", "it-7", "stays", "shop:x", "stays")
    assert end() == [1]
    assert store.ask("MGET", "7", "it-7", "shop:x") == [b"stays"] * 3
    (note,) = store.ask("LRANGE", store.keys.broken, 0, -1)
    assert json.loads(note)["effects"] == f"[{effect}]"
    store.connections.close()


def test_a_result_is_kept_of_a_member_only(store: Store) -> None:
    """Who was settled before keeps what was written then; where the batch is gone nothing is."""
    results = store.keys.batch("b") + ":results"
    end = settled(store, encoded(store.keys, JOB, "done", EndingFacts(detail={"result": 1})))
    store.ask("HSET", results, JID, '!{"status":"error"}')
    assert end() == [1]
    assert store.ask("HGET", results, JID) == b'!{"status":"error"}'
    store.ask("DEL", results)
    assert settled(store, encoded(store.keys, JOB, "done", EndingFacts(detail={"result": 1})))() == [1]
    assert not store.ask("EXISTS", results, store.keys.broken)


def test_what_a_job_says_is_no_effect(store: Store) -> None:
    """A message may look like one."""
    message = {"message": f'["uniterate","{store.keys.iteration("other")}"]'}
    end = settled(store, encoded(store.keys, JOB, "failed", EndingFacts("me", 1, message)))
    marked(store)
    assert end() == [1]
    assert store.ask("EXISTS", store.keys.iteration("other"))
    assert not store.ask("EXISTS", store.keys.broken)


def test_a_mark_of_another_job_stays(store: Store) -> None:
    end = settled(store, ALL)
    marked(store)
    store.ask("HSET", store.keys.cron_running, "nightly", "1.5 another")
    assert end() == [1]
    assert left(store) == {"cron_done"}


def test_names_are_taken_byte_for_byte(redis_url: str) -> None:
    store = Store(redis_url, "ns")
    job = JOB | {"jid": "ü \u2028 %d\x00", "hm": {"iterable": True, "cron": "nächtlich\u2028"}}
    payload = json.dumps(job).encode()
    store.push("a", payload)
    store.ask("HSET", store.keys.cron_running, job["hm"]["cron"], f"1.5 {job['jid']}")
    store.ask("HSET", store.keys.iteration(job["jid"]), "ex", 1)
    effects = encoded(store.keys, job, "deleted")
    assert store.run(queues.remove(store.keys, "a", payload, effects)) == 1
    assert store.all_keys() == {"ns:queues"}
    store.connections.close()


class TestWhoEndsAJob:
    """Whatever a person or a part of ours does: the effects are passed."""

    @pytest.fixture
    def app(self, redis_url: str) -> Iterator[App]:
        made = App(redis_url=redis_url)
        yield made
        made.close()

    @pytest.fixture(autouse=True)
    def marks(self, store: Store) -> None:
        marked(store)

    @pytest.mark.parametrize("which", ["scheduled", "retries", "dead"])
    @pytest.mark.parametrize("verb", ["delete", "clear", "kill", "kill_all"])
    def test_people_in_a_set(self, store: Store, app: App, which: str, verb: str) -> None:
        if which == "dead" and verb.startswith("kill"):
            return
        found = getattr(app, which)
        store.ask("ZADD", found.key, time.time(), PAYLOAD)
        acted = getattr(found, verb)(found.find(JID)) if verb in ("delete", "kill") else getattr(found, verb)()
        assert acted.done == 1
        assert left(store) == ({"uncancel", "uniterate", "unlatest"} if verb.startswith("kill") else {"uncancel"})

    @pytest.mark.parametrize("verb", ["retry", "retry_all"])
    def test_a_retry_is_no_end(self, store: Store, app: App, verb: str) -> None:
        store.ask("ZADD", "retry", time.time(), PAYLOAD)
        acted = app.retries.retry(app.retries.find(JID)) if verb == "retry" else app.retries.retry_all()
        assert acted.done == 1
        assert left(store) == {*KINDS} - NO_END

    @pytest.mark.parametrize("verb", ["delete", "clear"])
    def test_people_in_a_queue(self, store: Store, app: App, verb: str) -> None:
        store.push("a", PAYLOAD)
        assert app.queues["a"].delete(JID) if verb == "delete" else app.queues["a"].clear()
        assert left(store) == {"uncancel"}
        assert not store.ask("EXISTS", "queue:a")

    def test_the_stager_when_a_middleware_stops_a_due_job(self, store: Store, app: App) -> None:
        app.client_middleware.add(lambda job, call_next: None)
        store.ask("ZADD", "schedule", 1, PAYLOAD)
        Stager(app).tick()
        assert store.ask("ZCARD", "dead") == 0
        assert store.ask("ZCARD", "hm:batch:b:dead") == 1, "with its batch"
        assert left(store) == {"uncancel", "uniterate", "unlatest"}

    def test_a_poison_pill(self, store: Store, app: App) -> None:
        for number in range(3):
            assert left(store) == {*KINDS} - NO_END
            identity = f"host:{number}:0123456789ab"
            store.join("a", identity=identity)
            if not number:
                store.push("a", PAYLOAD)
                store.fetch("a", identity=identity)
            else:
                earlier = store.keys.in_flight(f"host:{number - 1}:0123456789ab", 1, "a")
                store.ask("RENAME", earlier, store.keys.in_flight(identity, 1, "a"))
            for flight in store.run(in_flight_lists(store.keys, identity)):
                charge(app, identity, held_in(app, flight), Death("died", alone=True))
        assert store.ask("ZCARD", "dead") == 0
        assert store.ask("ZCARD", "hm:batch:b:dead") == 1, "with its batch"
        assert left(store) == {"uncancel", "uniterate", "unlatest"}


class TestClear:
    """A queue is cleared in chunks, each with its effects."""

    @pytest.fixture
    def app(self, redis_url: str) -> Iterator[App]:
        made = App(redis_url=redis_url)
        yield made
        made.close()

    def of_cron(self, number: int) -> bytes:
        return b'{"class":"m.f","args":[],"jid":"j%d","hm":{"cron":"c%d"}}' % (number, number)

    def test_all_kinds_mixed(self, store: Store, app: App) -> None:
        plain = [b'{"class":"m.f","args":[%d]}' % number for number in range(2500)]
        ours = [self.of_cron(number) for number in range(1500)]
        odd = [b'{"hm":', b'"hm"', b"\xff", b'{"hm":{}}', b'{"class":"x","args":["\\"hm\\""]}'] * 3
        mixed = [one for three in zip(plain, [*ours, *odd], plain[1500:] * 3, strict=False) for one in three] + plain
        store.push("a", *mixed)
        store.push("b", ours[0])
        for number in range(1600):
            store.ask("HSET", store.keys.cron_running, f"c{number}", f"1.5 j{number}")
        assert app.queues["a"].clear() == len(mixed)
        assert store.ask("HLEN", store.keys.cron_running) == 100
        assert store.ask("SMEMBERS", "queues") == {b"b"} or store.ask("SMEMBERS", "queues") == [b"b"]
        assert store.queue("b") == [ours[0]]
        assert not store.ask("EXISTS", "queue:a", store.keys.broken)

    def test_what_comes_meanwhile_stays_known(self, store: Store, app: App) -> None:
        store.push("a", *(self.of_cron(number) for number in range(3)))
        real = app.connections.run

        def pushing(call: Any) -> Any:
            if call.name == "clear" and not store.ask("EXISTS", "queue:b"):
                store.push("b", b"1")
                store.push("a", b"late")
            return real(call)

        app.connections.run = pushing
        assert app.queues["a"].clear() == 3
        assert store.queue("a") == [b"late"]
        assert b"a" in store.ask("SMEMBERS", "queues")

    def test_a_crash_between_two_chunks_leaves_whole_jobs(self, store: Store, app: App) -> None:
        store.push("a", *(self.of_cron(number) for number in range(3000)))
        for number in range(3000):
            store.ask("HSET", store.keys.cron_running, f"c{number}", f"1.5 j{number}")
        real, calls = app.connections.run, [0]

        def dying(call: Any) -> Any:
            calls[0] += call.name == "clear"
            if calls[0] == 4:
                raise KeyboardInterrupt
            return real(call)

        app.connections.run = dying
        with pytest.raises(KeyboardInterrupt):
            app.queues["a"].clear()
        waiting = store.ask("LLEN", "queue:a")
        assert 0 < waiting < 3000
        assert store.ask("HLEN", store.keys.cron_running) == waiting

    def test_large_payloads_are_taken_a_few_at_a_time(self, store: Store, app: App) -> None:
        large = b'{"class":"m.f","args":["' + b"x" * 2_000_000 + b'"],"hm":{"cron":"c","n":%d}}'
        for number in range(6):
            store.push("a", large % number)
        first = store.run(queues.clear(store.keys, "a", 100, {}))
        assert (first.taken, len(first.asked)) == (0, 3)
        assert app.queues["a"].clear() == 6

    def test_a_hundred_thousand_plain_jobs_go_quickly(self, store: Store, app: App) -> None:
        payloads = [b'{"class":"m.f","args":[%d],"jid":"%024x","created_at":1.5}' % (n, n) for n in range(10_000)]
        for _ in range(10):
            store.push("a", *payloads)
        began = time.process_time(), store.ask("INFO", "commandstats")
        assert app.queues["a"].clear() == 100_000
        assert time.process_time() - began[0] < 2, "none of them is looked at here"
        stats = store.ask("INFO", "commandstats").decode()
        assert "cmdstat_evalsha" in stats
        assert not store.ask("EXISTS", "queue:a")

    def test_a_key_that_is_no_queue(self, store: Store, app: App) -> None:
        store.ask("SADD", "queues", "a")
        store.ask("SET", "queue:a", "text")
        assert app.queues["a"].clear() == 0
        assert store.all_keys() == set()

    def test_a_name_that_is_no_text(self, store: Store, app: App) -> None:
        store.ask("LPUSH", b"queue:\xff", self.of_cron(1))
        store.ask("SADD", "queues", b"\xff")
        store.ask("HSET", store.keys.cron_running, "c1", "1.5 j1")
        assert app.queues["\udcff"].clear() == 1
        assert store.all_keys() == set()
