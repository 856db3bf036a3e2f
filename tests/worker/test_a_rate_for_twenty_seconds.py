"""Two thousand jobs over a rate of a hundred a second: how evenly they start, when the last does, and what moves."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import pytest

from henchman import App, Leaky
from henchman.worker.claim import Claims
from henchman.worker.run import Run
from support.store import Store
from support.worker import until, working

JOBS, RATE = 2000, 100
IDEAL = (JOBS - RATE) / RATE  # seconds at which the last one starts: the first hundred start at once

pytestmark = pytest.mark.scale("it takes twenty seconds of a quiet machine")


def in_a_second(starts: Sequence[float]) -> int:
    """The most starts in any second."""
    return max(bisect_left(starts, at + 1.0) - place for place, at in enumerate(starts))


def test_two_thousand_jobs_over_a_hundred_a_second(
    store: Store, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(redis_url=redis_url, queues=("a",), concurrency=20)
    starts, lock, moved = list[float](), threading.Lock(), [0]
    claimed = Claims.claimed

    def counting(self: Claims, runs: Sequence[Run], *more: Any) -> list[Run]:
        moved[0] += len(runs)  # each was moved out of its queue to be here
        return claimed(self, runs, *more)

    monkeypatch.setattr(Claims, "claimed", counting)

    @app.job(name="m.call", queue="a", limits=[Leaky("shop", RATE, per=1)])
    def call(number: int) -> None:
        with lock:
            starts.append(time.monotonic())

    with working(app):
        call.enqueue_many([(number,) for number in range(JOBS)])
        until(lambda: len(starts) == JOBS, "all have started", 60)
        until(lambda: store.ask("GET", "stat:processed") == str(JOBS).encode(), "all have ended")
    app.close()
    starts.sort()
    after = [at for at in starts if at > starts[0] + 1.0]
    last, rate = starts[-1] - starts[0], (len(after) - 1) / (after[-1] - after[0])
    told = f"the last at {last:.2f} s, {rate:.1f} a second, {in_a_second(after)} in one; {moved[0] / JOBS:.2f} moves"
    print(told)
    assert abs(last - IDEAL) <= 0.02 * IDEAL, told
    assert rate <= 1.005 * RATE, told
    assert in_a_second(after) <= 1.1 * RATE, told  # a start is late by up to 50 ms, the next one need not be
    assert moved[0] <= 2.2 * JOBS, told
    assert not [one for one in store.all_keys() if one.startswith(("queue:", "schedule", "hm:flight:", "hm:parked"))]
