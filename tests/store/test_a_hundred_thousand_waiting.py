"""100,000 jobs that wait for one key: no script of the server takes long, however its predecessor ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.store import admission, batches, jobs
from henchman.store.call import Call
from henchman.work.effects import of_payload
from henchman.worker.decide import Decisions
from support.locks import job, left_of_keys
from support.measured import Held
from support.store import ME, Store

pytestmark = [pytest.mark.scale("a hundred thousand jobs wait for one key"), pytest.mark.timeout(900)]
COUNT, SLICE = 100_000, 250  # jobs, jobs of one push
HELD = 0.025  # seconds of the server's processor that a call may take
NEED = [["s", "k", 604_800, "charge/k"]]


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


@pytest.mark.parametrize(("ending", "queued"), [("done", COUNT), ("gone", 0)])
def test_a_hundred_thousand_wait_for_one_key(
    store: Store, app: App, redis_url: str, monkeypatch: pytest.MonkeyPatch, ending: str, queued: int
) -> None:
    first = job("f" * 24, "o", key="k", scope="s", queue="first")
    ask = {"scope": "s", "phases": "o", "conflict": "skip", "once_for": 604_800}
    row = admission.KeyedPush("f" * 24, "", first, "", "k")
    store.run(admission.push(store.keys, "first", json.dumps(ask).encode(), [row], ("one", 1)))
    plain, needs = b'{"scope":"","phases":"","conflict":"skip"}', json.dumps([NEED[0][:3]]).encode()
    fields = {"class": "m.f", "args": [17], "queue": "a", "retry": True, "created_at": 1.5}
    hm = {"needs": NEED, "on_failed": "cancel"}
    for begin in range(0, COUNT, SLICE):
        rows = [
            admission.KeyedPush(jid, "", json.dumps({**fields, "jid": jid, "hm": hm}).encode(), "", "", needs)
            for jid in (f"{number:024x}" for number in range(begin, begin + SLICE))
        ]
        store.run(admission.push(store.keys, "a", plain, rows, ("many", begin + 1)))
    assert store.ask("HLEN", store.keys.parked) == COUNT
    redis, runner = Redis.from_url(redis_url), type(app.connections)
    held, send = Held(redis, HELD), runner.run

    def measured(self: Any, call: Call[Any]) -> Any:
        return held.run(call.name, lambda: send(self, call))

    monkeypatch.setattr(runner, "run", measured)
    app.connections.run(batches.note(store.keys, [of_payload(store.keys, first, ending)]))
    stager = Decisions(app)
    while stager.carry_out(app.connections.run(jobs.due(store.keys, ME, 60_000, 500))):
        pass
    monkeypatch.undo()
    print(held)
    assert max(held.dearest().values()) <= held.most(), str(held)
    redis.close()
    assert store.ask("LLEN", "queue:a") == queued
    assert left_of_keys(store) == set()
