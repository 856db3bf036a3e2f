"""Jobs with a key that start, or end well, in one call: what is done for all together is what is done for each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from henchman.store import locks
from henchman.store.jobs import Settlement
from henchman.work.effects import EndingFacts, effects, encoded, of_payload
from support.locks import KEY, OTHER, OURS, SCOPE, holder, job, left_of_keys, lock, park, waiting
from support.store import ME, Store


def jid(number: int) -> str:
    return f"{number:024x}"


def ended(store: Store, payload: bytes) -> bytes:
    """The effects of a plain end, in short."""
    text = of_payload(store.keys, payload, "done")
    assert text.startswith(b"*"), text
    return text


def settle(store: Store, *units: tuple[bytes, bytes]) -> None:
    """End jobs, each with its effects, in one call."""
    store.join("a")
    store.push("a", *(payload for payload, _ in units))
    store.fetch("a", count=len(units))
    rows = [Settlement(1, payload, "done", effects=text) for payload, text in units]
    assert store.settle(*rows) == [1] * len(units)


def claim(store: Store, *claimants: locks.Claimant) -> list[locks.ClaimAnswer]:
    lists = [(store.flight("a"), store.keys.queue("a"))]
    return store.run(locks.claim(store.keys, ME, lists, claimants, 30_000))[0]


def claimants(store: Store, *asked: tuple[int, str], **more: Any) -> list[locks.Claimant]:
    """Jobs in flight that ask: (number, phases), each with a key of its own unless ``more`` says another."""
    rows = []
    for number, phases in asked:
        key, scope = more.get("key", f"k{number}"), more.get("scope", SCOPE)
        payload = job(jid(number), phases, key=key, scope=scope)
        rows.append(locks.Claimant(payload, jid(number), key, 1, scope, phases, more.get("conflict", "wait")))
    store.join("a")
    store.push("a", *(one.payload for one in rows))
    store.fetch("a", count=len(rows))
    return rows


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("held", [OURS, OTHER, ""])
@pytest.mark.parametrize("phases", ["o", "f", "u", "w", "r", "or", "ur", "wr"])
def test_the_short_text_does_what_the_list_does(store: Store, phases: str, held: str, waits: bool) -> None:
    payload, found = job(phases=phases), list[dict[str, Any]]()
    told = msgspec.json.decode(payload)
    for text in (msgspec.json.encode(effects(store.keys, told, "done")), ended(store, payload)):
        store.ask("FLUSHALL")
        for phase in phases if held else "":
            lock(store, phase, held)
        if waits:
            for place, phase in enumerate(phases):
                if phase in "ur":
                    park(store, job(jid(place), phase), phase)
        store.ask("HSET", store.keys.latest, OURS, "newer", OTHER, "theirs")
        settle(store, (payload, text))
        found.append(contents(store))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", [KEY, "", "a\nb", "two = words", "\u00fc \N{SNOWMAN}", "x" * 500])
@pytest.mark.parametrize("ours", [OURS, OURS.upper(), "f" * 24, "a1", "0" * 23, "0" * 25])
def test_what_is_remembered_is_where_the_server_would_have_put_it(store: Store, ours: str, name: str) -> None:
    """Whoever tells of the end has digest and jid packed; they are found by those that ask the server for the key."""
    payload, found = job(ours, "o", key=name), list[dict[str, Any]]()
    told = msgspec.json.decode(payload)
    for text in (msgspec.json.encode(effects(store.keys, told, "done")), ended(store, payload)):
        store.ask("FLUSHALL")
        lock(store, "o", ours, key=name)
        settle(store, (payload, text))
        found.append(contents(store))
    assert found[0] == found[1]
    assert store.run(locks.look(store.keys, SCOPE, name, 604800))[1][:2] == ("s", ours)  # type: ignore[index]
    assert not store.ask("EXISTS", store.keys.lock("o", SCOPE), store.keys.broken)


def test_a_memory_that_cannot_be_written_is_told_in_words(store: Store) -> None:
    """The packed bytes are no text: what is noted for a person has none of them."""
    payload = job(phases="o")
    lock(store, "o", OURS)
    store.ask("SET", store.keys.lock("o", SCOPE), "a text")
    settle(store, (payload, ended(store, payload)))
    (note,) = [msgspec.json.decode(one) for one in store.ask("LRANGE", store.keys.broken, 0, -1)]
    assert note["effects"] == f"*o 604800 {SCOPE}\n{OURS} {KEY}"


def contents(store: Store) -> dict[str, Any]:
    """What the server has, but for moments."""
    kinds = {b"hash": ("HGETALL",), b"list": ("LRANGE", 0, -1), b"zset": ("ZRANGE", 0, -1), b"set": ("SMEMBERS",)}
    found: dict[str, Any] = {}
    for key in store.all_keys():
        kind = store.ask("TYPE", key)
        if kind in kinds:
            command, *rest = kinds[kind]
            value = store.ask(command, key, *rest)
            if key.startswith(store.keys.prefix + "hm:lock"):
                value = {name: words.split()[0] for name, words in zip(value[::2], value[1::2], strict=True)}
            elif kind == b"list" and "queue:" in key:
                value = [one.split(b',"enqueued_at"')[0] for one in value]
            found[key] = value
    return found


def test_many_end_together_each_for_itself(store: Store) -> None:
    """Ours, another's, one that is waited for, one that is free already, of two scopes, in one call."""
    rows = [job(jid(number), "ur", key=f"k{number}", scope="s" if number % 2 else SCOPE) for number in range(6)]
    for number in range(6):
        scope = "s" if number % 2 else SCOPE
        for phase in "ur" if number != 3 else "":
            lock(store, phase, OTHER if number == 2 else jid(number), key=f"k{number}", scope=scope)
    heir = job(OTHER, "u", key="k1", scope="s")
    park(store, heir, "u", key="k1", scope="s")
    settle(store, *((one, ended(store, one)) for one in rows))
    assert holder(store, "u", key="k1", scope="s") == OTHER
    assert [one.startswith(heir[:-1]) for one in store.queue("a")] == [True]
    assert store.ask("HKEYS", store.keys.lock("u", "s")) == [b"k1"]
    assert store.ask("HKEYS", store.keys.lock("r", SCOPE)) == [b"k2"]
    assert store.ask("EXISTS", store.keys.lock("r", "s"), store.keys.parked, store.keys.doubt) == 0


def test_a_scope_that_cannot_be_read_keeps_nobody_else(store: Store) -> None:
    first, second, third = job(jid(1), "ur"), job(jid(2), "u", scope="s"), job(jid(3), "u", key="k3")
    lock(store, "r", jid(1))
    lock(store, "u", jid(2), scope="s")
    store.ask("SET", store.keys.lock("u", SCOPE), "a text")
    settle(store, *((one, ended(store, one)) for one in (first, second, third)))
    assert holder(store, "u", scope="s") is None
    assert holder(store, "r") is None, "each lock for itself"
    notes = [msgspec.json.decode(one) for one in store.ask("LRANGE", store.keys.broken, 0, -1)]
    assert sorted(one["unit"] for one in notes) == sorted([first.decode(), third.decode()])
    assert all("WRONGTYPE" in one["error"] for one in notes)


@pytest.mark.parametrize(
    "said",
    [
        {"cron": "c"},
        {"iterable": True},
        {"checkpoint": True},
        {"debounce": [SCOPE, KEY]},
        {"result_ttl": 5},
        {"batch": "b1"},
        {"track": True},
        {"anything": 1},
    ],
)
def test_more_than_a_key_is_told_as_a_list(store: Store, said: dict[str, Any]) -> None:
    assert of_payload(store.keys, job(hm=said), "done").startswith(b"[")


def test_what_the_short_text_cannot_hold_is_told_as_a_list(store: Store) -> None:
    for other in ("two words", "ü", "a\nb", ""):
        text = of_payload(store.keys, job(other), "done")
        assert not text.startswith(b"*")
    told = msgspec.json.decode(job())
    for facts in (EndingFacts(cancelled=True), EndingFacts(checkpoint=True)):
        assert encoded(store.keys, told, "done", facts).startswith(b"[")


def test_many_start_together_in_their_order(store: Store) -> None:
    lock(store, "r", OTHER, key="k3")
    lock(store, "w", jid(2), key="k2")
    lock(store, "w", OTHER, key="k4")
    rows = claimants(store, (1, "r"), (2, "wr"), (3, "r"), (4, "wr"), (5, "w"))
    rows += claimants(store, (6, "r"), scope="s")
    answers = claim(store, *rows)
    assert [one.token > 0 for one in answers] == [True, True, False, True, True, True]
    assert answers[2].holder == OTHER
    assert answers[2].parked
    tokens = [one.token for one in answers if one.token]
    assert tokens[:4] == sorted(tokens[:4])
    assert len(set(tokens)) == 5
    again = claim(store, rows[0])
    assert again[0].token > max(tokens)
    assert {name.decode() for name in store.ask("HKEYS", store.keys.lock("r", SCOPE))} == {"k1", "k2", "k3", "k4"}
    assert holder(store, "w", key="k2") is None
    assert holder(store, "w", key="k4") == OTHER
    assert waiting(store, key="k3") == [jid(3)]


def test_of_two_with_one_key_in_a_call_the_first_starts(store: Store) -> None:
    rows = claimants(store, (1, "r"), (2, "r"), (3, "r"), key="same")
    first, second, third = claim(store, *rows)
    assert first.token
    assert second.holder == third.holder == jid(1)
    assert waiting(store, key="same") == [jid(2), jid(3)]
    assert store.in_flight("a") == [rows[0].payload]
    assert claim(store, *claimants(store, (4, "r"), key="same", conflict="skip"))[0] == locks.ClaimAnswer(holder=jid(1))


def test_what_is_not_in_flight_takes_nothing(store: Store) -> None:
    rows = claimants(store, *((number, "r") for number in range(1, 5)))
    store.ask("LREM", store.flight("a"), 0, rows[1].payload)
    for _ in range(200):  # what is newer stands before those that are claimed
        store.ask("LPUSH", store.flight("a"), "newer")
    answers = claim(store, *rows)
    assert [bool(one.token) for one in answers] == [True, False, True, True]
    assert answers[1] == locks.ClaimAnswer()
    assert holder(store, "r", key="k2") is None


def test_a_scope_that_is_refused_keeps_nobody_else_from_starting(store: Store) -> None:
    store.ask("SET", store.keys.lock("r", "s"), "a text")
    rows = [*claimants(store, (1, "r")), *claimants(store, (2, "r"), (3, "r"), scope="s")]
    answers = claim(store, *rows)
    assert answers[0].token
    assert all("WRONGTYPE" in one.refused for one in answers[1:])
    assert len(store.in_flight("a")) == 3
    assert left_of_keys(store) == {store.keys.lock("r", SCOPE), store.keys.lock("r", "s")}
