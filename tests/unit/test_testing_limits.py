"""Limits in a fake: a drain runs jobs one at a time, so nobody waits for a place; and a block has its place at once."""

from __future__ import annotations

import asyncio

from henchman import App, Bucket, Concurrent, Leaky, Points, Window, current_job, testing
from henchman.testing import Drained


def test_a_drain_sees_jobs_with_limits_through() -> None:
    app, ran = App(redis_url="redis://nobody.invalid:1"), list[int]()

    every = [Concurrent("bank", 1, by="tenant"), Leaky("shop", 1, per=60), Window("w", 1, per=60)]

    @app.job(name="pay", limits=[*every, Bucket("b", 1, per=60), Points("p", 10, per=60, estimate=5)], max_wait=1)
    def pay(tenant: str, number: int) -> None:
        current_job().spent(7)
        ran.append(number)

    with testing.fake(app) as jobs:
        pay.enqueue_many([("x", number) for number in range(4)])
        pay.enqueue("y", 4)
        first, *_ = jobs
        drained: Drained = jobs.drain_all()
        assert ran == [0, 1, 2, 3, 4]
        assert [one.ending for one in drained] == ["done"] * 5
        assert first.payload["hm"]["limits"][0] == ["c", "bank", "x", 1, 0.0, 1]


def test_a_block_has_its_place_at_once() -> None:
    app = App(redis_url="redis://nobody.invalid:1")

    async def awaited() -> str:
        async with app.limit(Concurrent("bank", 1), wait=0):
            return "in"

    with testing.fake(app):
        with app.limit(Concurrent("bank", 1), wait=0) as place:
            assert not place.lost
        assert asyncio.run(awaited()) == "in"
