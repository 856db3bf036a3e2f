"""Queues for people: figures, walks while others push and fetch, actions."""

from __future__ import annotations

import json
import re
import time
from datetime import timedelta

import pytest

from henchman import App
from henchman.errors import ArgumentError
from henchman.inspector.base import latency_of
from henchman.inspector.pauses import why_paused
from henchman.inspector.queue_page import Composition, look_at_queue
from henchman.inspector.queues import PAGE, Queue, Queues, QueueState
from henchman.store import jobs
from henchman.store.call import run
from henchman.store.queues import Pause, pause
from support.garbage import GARBAGE, HOSTILE, READABLE, fill, payload
from support.store import Store


def queue(store: Store, name: str = "mail") -> Queue:
    return Queue(store, name)


def jids(count: int, first: int = 0) -> list[str]:
    return [f"{n:024}" for n in range(first, first + count)]


def push(store: Store, *names: str) -> None:
    store.push("mail", *[payload(one) for one in names])


def test_states(store: Store) -> None:
    assert Queues(store).states() == []
    store.push("b", payload(enqueued_at=store.now() - 60), payload())
    store.push("a", payload())
    store.ask("DEL", store.keys.queue("a"))
    store.ask("SADD", store.keys.paused, "ghost")
    empty, full, ghost = Queues(store).states()
    assert empty == QueueState("a", 0, 0.0, False)
    assert (full.name, full.size, full.paused) == ("b", 2, False)
    assert full.latency == pytest.approx(60, abs=30)
    assert ghost == QueueState("ghost", 0, 0.0, True, pause=Pause())


def looked_at(store: Store) -> int:
    """How many queues were asked for their length in the life of the server."""
    found = re.search(rb"cmdstat_llen:calls=(\d+)", store.ask("INFO", "commandstats"))
    return int(found[1]) if found else 0


def test_many_queues_are_looked_at_in_pages(store: Store) -> None:
    names = [f"q{number:05}" for number in range(3000)]
    store.ask("SADD", store.keys.queues, *names)
    store.push("q01234", payload())
    queues = Queues(store)
    before = looked_at(store)
    page = queues.states(match="q01", first=200, most=50)
    assert [one.name for one in page] == names[1200:1250]
    assert [one.size for one in page if one.size] == [1]
    assert looked_at(store) - before == 50, "a page costs what a page costs"
    assert queues.states(first=2990, most=50) == queues.states()[2990:]
    assert queues.states(match="nothing") == []
    store.ask("SADD", store.keys.paused, "q00001", "products")
    store.ask("SADD", store.keys.ordered_queues, "products")
    assert queues.known("q0000") == names[:10]
    assert queues.paused() == ["products", "q00001"]


def test_latency_reads_every_form() -> None:
    assert latency_of(None, 100) == 0
    assert latency_of(payload(enqueued_at=1_795_237_919_500), 1_795_237_929.5) == 10
    assert latency_of(payload(enqueued_at="2026-11-21T09:30:48Z"), 0) == 0, "a clock that runs ahead is no latency"
    assert latency_of(payload(created_at=1.0), 3) == 2
    assert [latency_of(one, 5.0) for one in GARBAGE[:6]] == [None] * 6


def test_hostile_names_and_wrong_types(store: Store) -> None:
    fill(store, store.now())
    states = {one.name: one for one in Queues(store).states()}
    every = len(GARBAGE) + len(READABLE)
    assert set(states) == {"default", "mail", HOSTILE, "\udcff\udcfe", "q" * 300, "wrong", "\udcff", "ghost"}
    assert {states[name].size for name in ("default", "mail", HOSTILE, "\udcff\udcfe", "q" * 300)} == {every}
    assert states["wrong"].size is None
    assert "WRONGTYPE" in states["wrong"].problem
    assert states["mail"].paused
    assert len(list(queue(store, "\udcff\udcfe"))) == every
    assert queue(store, "\udcff\udcfe").clear() == every
    assert queue(store, "wrong").clear() == 0
    left = {one.name for one in Queues(store).states()}
    assert left == set(states) - {"wrong", "\udcff\udcfe"}


def test_a_walk_is_newest_first_and_reads_pages(store: Store) -> None:
    push(store, *jids(3 * PAGE + 7))
    assert [one.jid for one in queue(store)] == jids(3 * PAGE + 7)[::-1]
    assert [one.jid for one in queue(store).page(0, 2)] == jids(3 * PAGE + 7)[:-3:-1]


def test_a_walk_while_others_push_and_fetch(store: Store) -> None:
    push(store, *jids(5 * PAGE))
    met = []
    for number, entry in enumerate(queue(store)):
        met.append(entry.jid)
        if number % 10 == 0:
            push(store, *jids(15, first=100_000 + number * 15))
            store.ask("RPOP", store.keys.queue("mail"))
    stayed = {json.loads(one)["jid"] for one in store.ask("LRANGE", store.keys.queue("mail"), 0, -1)}
    old = [one for one in met if int(one) < 100_000]
    assert len(old) == len(set(old)), "each once"
    assert set(old) >= {one for one in stayed if int(one) < 100_000}
    assert len(stayed) > 5 * PAGE, "the queue grew while it was read"


def test_a_walk_that_deletes_what_it_meets(store: Store) -> None:
    push(store, *jids(3 * PAGE))
    met = []
    for entry in queue(store):
        met.append(entry.jid)
        store.ask("LREM", store.keys.queue("mail"), 1, entry.payload)
    assert met == jids(3 * PAGE)[::-1]
    assert store.ask("EXISTS", store.keys.queue("mail")) == 0


def test_find_and_delete(store: Store) -> None:
    push(store, *jids(PAGE * 2))
    assert queue(store).find("nobody") is None
    assert queue(store).find("") is None
    assert not queue(store).delete("nobody")
    assert queue(store).delete(jids(1)[0])
    assert queue(store).size() == PAGE * 2 - 1
    assert not queue(store).delete(jids(1)[0])


def test_clear_takes_the_name_along(store: Store) -> None:
    push(store, *jids(3))
    assert queue(store).clear() == 3
    assert store.all_keys() == set()
    assert queue(store).clear() == 0


def test_a_pause_says_why_and_leaves_the_set_of_sidekiq_as_it_is(store: Store) -> None:
    store.ask("SADD", store.keys.paused, "ruby")
    queue(store).pause(" provider\noutage ", by="ana@host")
    mail, ruby = Queues(store).states()
    assert store.ask("SMEMBERS", store.keys.paused) in ([b"mail", b"ruby"], [b"ruby", b"mail"])
    assert (mail.paused, mail.pause.by, mail.pause.reason) == (True, "ana@host", "provider outage")
    assert abs(mail.pause.at - time.time()) < 60
    assert (ruby.paused, ruby.to_json()["pause"]) == (True, {"since": None, "by": "", "reason": "", "until": None})
    assert why_paused(mail.pause, mail.pause.at + 7200) == "by ana@host, 2 h ago: provider outage"
    assert why_paused(ruby.pause, 0) == "" == why_paused(None, 0)
    with pytest.raises(ArgumentError, match="the reason has 201 characters: say it in 200"):
        queue(store).pause("x" * 201)
    queue(store).unpause()
    assert (store.ask("SMEMBERS", store.keys.paused), store.ask("HKEYS", store.keys.pauses)) == ([b"ruby"], [])


def test_what_cannot_be_read_of_a_pause_is_no_reason_to_fail(store: Store) -> None:
    store.ask("SADD", store.keys.paused, "a", "b", "c")
    store.ask("HSET", store.keys.pauses, "a", b"\xff{", "b", '{"at":"soon"}', "c", '{"reason":"x","till":7}')
    assert [one.pause for one in Queues(store).states()] == [Pause(), Pause(), Pause(reason="x")]


def test_the_note_of_a_pause_goes_when_another_hand_ends_it(store: Store) -> None:
    queue(store).pause("the provider")
    look = jobs.due(store.keys, "me", 60_000, 10)
    store.run(look)
    store.ask("SREM", store.keys.paused, "mail")  # as a Ruby program does
    store.run(look)
    store.ask("SADD", store.keys.paused, "mail")
    [mail] = Queues(store).states()
    assert (mail.paused, mail.pause) == (True, Pause()), "a later pause is not told with the reason of an earlier one"


def test_a_pause_ends_by_itself_at_its_time_and_others_stay(store: Store) -> None:
    now = store.now()
    store.run(pause(store.keys, "over", Pause(now - 60, "ana", "x", now - 0.001)))
    store.run(pause(store.keys, "soon", Pause(now, "ana", "x", now + 3600)))
    store.run(pause(store.keys, "open", Pause(now, "ana", "x")))
    store.ask("SADD", store.keys.paused, "ruby", "wild")
    store.ask("HSET", store.keys.pauses, "wild", '{"until":"soon"}')
    store.run(jobs.due(store.keys, "me", 60_000, 10))
    assert store.ask("SMEMBERS", store.keys.paused) != []
    assert {one.name for one in Queues(store).states() if one.paused} == {"soon", "open", "ruby", "wild"}
    assert sorted(store.ask("HKEYS", store.keys.pauses)) == [b"open", b"soon", b"wild"]


def test_how_long_a_pause_lasts_is_noted_and_told(store: Store) -> None:
    queue(store).pause("outage", by="ana", lasts=timedelta(minutes=30))
    [mail] = Queues(store).states()
    assert mail.pause is not None
    assert mail.pause.at is not None
    assert mail.pause.until == mail.pause.at + 1800
    assert why_paused(mail.pause, mail.pause.at + 60) == "by ana, 1 min ago, 29 min to go: outage"
    told = mail.to_json()["pause"]
    assert told is not None
    assert told["until"] is not None
    queue(store).pause("for good")
    [mail] = Queues(store).states()
    assert mail.pause is not None
    assert mail.pause.until is None, "the newest pause stands"
    for wrong in (0, 4.9, 31 * 86_400, True, -1):
        with pytest.raises(ArgumentError, match="from 5 seconds to 30 days"):
            queue(store).pause(lasts=wrong)


def test_a_sample_of_both_ends_tells_what_waits(store: Store) -> None:
    assert run(store, look_at_queue(store.keys, "mail", 0, 10)).made_of == Composition([], 0, True, None)
    now = store.now()
    old = payload("a" * 24, enqueued_at=now - 600, **{"class": "Old"})
    store.push("mail", old, *[payload(one, enqueued_at=now, **{"class": "New"}) for one in jids(3)])
    made = run(store, look_at_queue(store.keys, "mail", 0, 10)).made_of
    assert (made.classes, made.looked, made.whole) == ([("New", 3), ("Old", 1)], 4, True)
    assert made.oldest is not None
    assert made.oldest.jid == "a" * 24
    store.push("mail", *[payload(one, **{"class": "New"}) for one in jids(300, 10)])
    made = run(store, look_at_queue(store.keys, "mail", 0, 10)).made_of
    assert (sum(many for _, many in made.classes), made.looked, made.whole) == (200, 200, False)
    store.ask("DEL", store.keys.queue("mail"))
    store.ask("SET", store.keys.queue("mail"), "text")
    assert run(store, look_at_queue(store.keys, "mail", 0, 10)).made_of.looked == 0


def test_pause_and_unpause(store: Store) -> None:
    queue(store).pause()
    assert store.ask("SMEMBERS", store.keys.paused) == [b"mail"]
    queue(store).unpause()
    assert store.all_keys() == set()
    with pytest.raises(ArgumentError, match="no worker can serve it"):
        queue(store, "\udcff").pause()


def test_a_masked_argument_is_masked(store: Store) -> None:
    push(store, *jids(1))
    app = App(redis_url=store.connections.url)

    @app.job(name="mail.send", secret=("address",))
    def send(address: object, language: str) -> None: ...

    (entry,) = app.queues["mail"].page()
    assert entry.call_text() == 'mail.send("***", "de")'
    assert json.loads(json.dumps(entry.to_json()))["args"] == ["***", "de"]
