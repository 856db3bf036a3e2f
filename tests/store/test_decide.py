"""Decisions of the stager about blocked jobs, on a server that does not take them, or that has an older success."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from henchman import App
from henchman.store import admission, batches, jobs
from henchman.work.effects import of_payload
from henchman.work.locks import needs_of
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


HOSTILE = {
    "a policy that is no text": {"on_failed": ["run"], "on_dead": {}},
    "a half of a surrogate pair": {"on_failed": "run", "on_dead": "run", "met": {"\ud800": "\udfff"}},
    "what is met is no object": {"on_failed": "run", "on_dead": "run", "met": [1]},
}


@pytest.mark.parametrize("hm", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("how", ["over", "time"])
def test_a_job_that_nobody_can_decide_about_holds_up_no_other(
    store: Store, app: App, hm: dict[str, Any], how: str
) -> None:
    first, needs = job(FIRST, "o", key="k", scope="s", queue="b"), [["s", "k", 604_800]]
    assert push(store, first) == "C"
    store.ask("DEL", "queue:a")
    fields = json.loads(waiting("run"))
    hostile = {**fields, "jid": SECOND, "hm": {**fields["hm"], **hm}}
    ask = {"wait_at_most": 0} if how == "time" else {}
    for payload in (json.dumps(hostile).encode(), waiting("run")):
        assert push(store, payload, "", needs, **ask) == "B"
    if how == "over":
        end(store, first, "gone")
    while look(store, app):
        pass
    assert not store.ask("HEXISTS", store.keys.parked, WAITS)
    assert WAITS in {json.loads(one)["jid"] for one in store.ask("LRANGE", "queue:a", 0, -1)}
    found = [*store.ask("LRANGE", "queue:a", 0, -1), *store.ask("ZRANGE", "dead", 0, -1)]
    found += store.ask("HVALS", store.keys.parked)
    assert sum(SECOND.encode() in one for one in found) == 1, "it is somewhere, once"


def test_a_job_whose_need_was_met_in_time_is_let_go_though_its_time_is_over(store: Store, app: App) -> None:
    """So many wait that the stager lets them go; it comes to their time first."""
    first, needs = job(FIRST, "o", key="k", scope="s", queue="b"), [["s", "k", 604_800]]
    assert push(store, first) == "C"
    store.ask("DEL", "queue:a")
    jids = [f"{number:024x}" for number in range(100, 100 + 700)]
    for jid in jids:
        payload = waiting("cancel").replace(WAITS.encode(), jid.encode())
        assert push(store, payload, "", needs, wait_at_most=0) == "B"
    for jid in jids[-50:]:
        store.ask("ZADD", store.keys.parked_until, 1, jid)
    end(store, first, "done")
    while look(store, app):
        pass
    assert {json.loads(one)["jid"] for one in store.ask("LRANGE", "queue:a", 0, -1)} == set(jids)
    assert left_of_keys(store) == set()
    assert not store.ask("EXISTS", store.keys.parked_until)


@pytest.mark.parametrize(("ending", "how"), [("gone", "over"), ("dead", "dead")])
def test_a_job_that_fails_for_another_s_sake_says_so_when_it_is_retried_by_hand(
    store: Store, app: App, ending: str, how: str
) -> None:
    first = job(FIRST, "o", key="k", scope="s", queue="b")
    assert push(store, first) == "C"
    assert push(store, waiting("fail"), "", [["s", "k", 604_800]]) == "B"
    end(store, first, ending)
    while look(store, app):
        pass
    [dead] = [json.loads(one) for one in store.ask("ZRANGE", "dead", 0, -1)]
    assert needs_of(dead) == {"charge/k": how}


def test_a_step_that_was_retried_before_the_stager_looked_is_waited_for(store: Store, app: App) -> None:
    charge, ship = app.job(name="charge")(lambda: None), app.job(name="ship")(lambda: None)
    with app.workflow() as flow:
        waits = flow.add(ship.call(), after=flow.add(charge.call()))
    [payload] = store.ask("LRANGE", "queue:default", 0, -1)
    store.ask("DEL", "queue:default")
    store.ask("ZADD", store.keys.batch(flow.id) + ":dead", 1, payload)
    end(store, payload, "kept")
    assert flow.retry() == 1
    assert store.ask("LLEN", store.keys.decide) == 1
    while look(store, app):
        pass
    assert store.ask("HEXISTS", store.keys.parked, waits.jid) == 1
    assert flow.status().counts["blocked"] == 1


def test_who_is_pushed_after_a_job_was_over_waits_for_the_next(store: Store, app: App) -> None:
    """Though the stager has not decided yet about those who waited before."""
    first, needs = job(FIRST, "o", key="k", scope="s", queue="b"), [["s", "k", 604_800]]
    assert push(store, first) == "C"
    assert push(store, waiting("cancel").replace(WAITS.encode(), SECOND.encode()), "", needs) == "B"
    end(store, first, "cancelled")
    assert push(store, waiting("cancel"), "", needs) == "B"
    while look(store, app):
        pass
    assert store.ask("HKEYS", store.keys.parked) == [WAITS.encode()]
