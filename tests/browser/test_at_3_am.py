"""The same incidents, clicked in Chromium: two clicks from the Overview to what broke and the act against it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from browser.conftest import Opens
from henchman import App
from support.chromium import serving
from support.incidents import INCIDENTS, Content, NightShop

pytestmark = pytest.mark.browser("it looks through Chromium")


@pytest.fixture
def night(redis_url: str, redis: Redis) -> Iterator[NightShop]:
    app = App(redis_url=redis_url)
    yield NightShop(app, redis)
    redis.config_set("maxmemory", 0)
    redis.config_set("maxmemory-policy", "noeviction")
    app.close()


@pytest.mark.parametrize("incident", INCIDENTS)
def test_two_clicks_lead_to_what_broke(night: NightShop, opens: Opens, incident: str) -> None:
    happens, causes, act = INCIDENTS[incident]
    happens(night)
    console = App(redis_url=night.app.config.redis_url)
    with serving(console.console()) as site:
        tab = opens(site)
        tab.open("/")
        for part in ("findings", "main"):
            links = Content(tab.page.content(), part).links
            if links:
                tab.page.locator(f'{"#findings" if part == "findings" else "main"} a[href="{links[0]}"]').first.click()
                tab.page.wait_for_url(f"**{links[0]}")
        words = " ".join(tab.page.inner_text("main").split())
        for cause in causes:
            assert cause in words, (tab.page.url, words)
        assert act in words or tab.page.locator(f'main [href*="{act}"], main [action*="{act}"]').count(), tab.page.url
    console.close()
