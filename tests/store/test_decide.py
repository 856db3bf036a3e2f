"""Decisions of the stager about blocked jobs, on a server that does not take them, or that has an older success."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from henchman import App
from henchman.store import admission, batches, jobs
from henchman.work.effects import of_payload
from henchman.worker.decide import Decisions
from support.locks import job, left_of_keys
from support.store import ME, Store

FIRST, SECOND, WAITS = f"{1:024x}", f"{2:024x}", f"{3:024x}"


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


def push(store: Store, payload: bytes, phases: str = "o", needs: list[Any] | None = None, **ask: Any) -> str:
    read = json.loads(payload)
    key = read["hm"]["key"][1] if phases else ""
    asked = {"scope": "s" if phases else "", "phases": phases, "conflict": "skip", "once_for": 604_800, **ask}
    text = json.dumps(needs).encode() if needs else b""
    row = admission.KeyedPush(read["jid"], "", payload, "", key, text)
    [[answer, *_]] = store.run(admission.push(store.keys, "a", json.dumps(asked).encode(), [row], (read["jid"], 1)))
    return answer


def waiting(policy: str) -> bytes:
    needs = [["s", "k", 604_800, "charge/k"]]
    fields = {"class": "m.f", "args": [], "jid": WAITS, "queue": "a", "retry": True, "created_at": 1.5}
    hm = {"needs": needs, "on_failed": policy, "on_dead": policy}
    return json.dumps({**fields, "hm": hm}, separators=(",", ":")).encode()


def end(store: Store, payload: bytes, ending: str) -> None:
    store.run(batches.note(store.keys, [of_payload(store.keys, payload, ending)]))


def look(store: Store, app: App) -> bool:
    return Decisions(app).carry_out(store.run(jobs.due(store.keys, ME, 60_000, 100)))


def test_who_waited_for_a_second_run_that_is_over_goes_by_the_success_of_the_first(store: Store, app: App) -> None:
    """As who comes later does: else it would wait for ever."""
    first, second = job(FIRST, "o", key="k", scope="s"), job(SECOND, "o", key="k", scope="s")
    assert push(store, first) == "C"
    end(store, first, "done")
    assert push(store, second, again=True) == "C"
    assert push(store, waiting("cancel"), "", [["s", "k", 604_800]]) == "B"
    end(store, second, "gone")
    while look(store, app):
        pass
    [*_, queued] = sorted(store.ask("LRANGE", "queue:a", 0, -1), key=lambda one: json.loads(one)["jid"])
    assert json.loads(queued)["jid"] == WAITS
    assert left_of_keys(store) == set()


@pytest.mark.parametrize("policy", ["run", "fail"])
def test_a_decision_that_the_server_refuses_is_made_again(store: Store, app: App, policy: str) -> None:
    first, place = job(FIRST, "o", key="k", scope="s", queue="b"), {"run": "queue:a", "fail": "dead"}[policy]
    assert push(store, first) == "C"
    assert push(store, waiting(policy), "", [["s", "k", 604_800]]) == "B"
    store.ask("DEL", "queue:a")
    store.ask("SET", place, "no room")
    end(store, first, "gone")
    for _ in range(3):
        assert look(store, app) is False, "not at once again"
        assert store.ask("HEXISTS", store.keys.parked, WAITS) == 1
    store.ask("DEL", place)
    look(store, app)
    assert store.ask("EXISTS", place) == 1
    while look(store, app):
        pass
    assert left_of_keys(store) == set()
    assert not store.ask("EXISTS", store.keys.broken)


def test_a_release_that_a_queue_refuses_is_tried_again_and_not_at_once(store: Store, app: App) -> None:
    first = job(FIRST, "o", key="k", scope="s")
    assert push(store, first) == "C"
    assert push(store, waiting("wait"), "", [["s", "k", 604_800]]) == "B"
    store.ask("DEL", "queue:a")
    store.ask("SET", "queue:a", "no list")
    end(store, first, "done")
    for _ in range(3):
        assert look(store, app) is False
        assert store.ask("HEXISTS", store.keys.parked, WAITS) == 1
    store.ask("DEL", "queue:a")
    look(store, app)
    assert store.ask("LLEN", "queue:a") == 1
    assert left_of_keys(store) == set()
