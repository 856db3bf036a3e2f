"""How little the server notices of a hundred who watch the Overview."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from redis import Redis

from henchman import App
from support.browsing import Browser

pytestmark = pytest.mark.scale("it measures the processor")

VIEWERS, EVERY, SECONDS = 100, 3.0, 6.0
CORE = 0.05  # of one, for the server


def test_a_hundred_who_watch_the_overview_cost_the_server_a_twentieth_of_a_core(shop: App, redis: Redis) -> None:
    console, asked, over = shop.console(), [0], threading.Event()

    def watch(share: int) -> None:
        browser = Browser(console)
        while not over.wait(EVERY / share):
            assert browser.get("/").status == 200
            asked[0] += 1

    def spent() -> float:
        told: Any = redis.info("cpu")
        return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])

    Browser(console).get("/")
    threads = [threading.Thread(target=watch, args=(VIEWERS // 4,)) for _ in range(4)]
    before, began = spent(), time.monotonic()
    for one in threads:
        one.start()
    over.wait(SECONDS)
    over.set()
    for one in threads:
        one.join()
    share = (spent() - before) / (time.monotonic() - began)
    print(f"a hundred Overviews: {share:.1%} of a core of the server, {asked[0] / SECONDS:.0f} pages a second")
    assert asked[0] > VIEWERS / EVERY * SECONDS / 4, "they did watch"
    assert share < CORE
