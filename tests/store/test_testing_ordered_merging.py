"""The ordered queues of testing.fake merge payloads as the server's script does: both are given the same pushes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from henchman import App, testing
from henchman.ordered.claim import shown
from henchman.store.ordered import pairs, unpacked
from support.store import Store


@pytest.mark.parametrize("collapse", ["min", "latest", "none"])
@pytest.mark.parametrize("seed", range(5))
def test_the_fake_merges_as_the_server(redis_url: str, store: Store, collapse: str, seed: int) -> None:
    app = App(redis_url=redis_url)
    job: Any = app.ordered(name="it", queue="q", collapse=collapse)(lambda claim: None)
    chance = random.Random(seed)
    rows = [(chance.randrange(6), chance.randrange(4), chance.randrange(5)) for _ in range(100)]
    real = job.push_many(rows)
    with testing.fake(app) as jobs:
        assert job.push_many(rows) == real
        faked = {
            shown(id): [(score, payload) for score, _, payload in entity.waiting]
            for (_, id), entity in jobs._server.ordered.waiting.items()
        }
    base = store.keys.ordered("q")
    for id, payloads in faked.items():
        single = store.ask("HGET", base + "one", id)
        there = [unpacked(single)] if single else pairs(store.ask("ZRANGE", f"{base}p:{id}", 0, -1, "WITHSCORES"))
        assert payloads == there, id
    assert len(faked) == store.ask("ZCARD", base + "due")
    app.close()
