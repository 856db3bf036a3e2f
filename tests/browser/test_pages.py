"""Every page as people see it: nothing in the browser's console and nothing that axe minds, in light, and on a phone in
the dark."""

from __future__ import annotations

import re

import pytest

from browser.conftest import Opens
from support.browsing import DEAD, RETRY
from support.chromium import PHONE
from support.showcase import Showcase

pytestmark = pytest.mark.browser("it looks through Chromium")

#: every page of the console; ``{batch}``, ``{workflow}`` and ``{running}`` are ids of the showcase
PAGES = (
    "/",
    "/busy",
    "/queues",
    "/queues/mail?p=2",
    "/queues/odd~2F~C3~BC~3F~23~3Cb~3E",
    "/queues/mail/do/clear",
    "/batches",
    "/batches/{batch}",
    "/batches/{workflow}",
    "/ordered",
    "/retries",
    "/scheduled",
    "/dead",
    "/dead?q=nothing+like+this",
    f"/jobs/{DEAD}",
    f"/jobs/{RETRY}",
    "/jobs/{running}",
    "/blocked",
    "/keys",
    "/history",
    "/audit",
    "/crons",
    "/errors",
    "/metrics",
    "/metrics?by=24",
    "/system",
    "/login",
)


@pytest.mark.parametrize("address", PAGES)
def test_a_page_is_clean_in_light_and_in_the_dark_on_a_phone(
    opens: Opens, site: str, shown: Showcase, address: str
) -> None:
    tab = opens(site)
    tab.open(address.format_map(shown._asdict()))
    assert tab.page.locator("h1").count() == 1
    assert tab.violations() == []
    tab.page.emulate_media(color_scheme="dark")
    tab.page.set_viewport_size(PHONE)
    assert tab.violations() == []
    over = tab.page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0, "it has to be scrolled sideways on a phone"


def test_the_list_of_pages_has_every_page_of_the_navigation(opens: Opens, site: str) -> None:
    tab = opens(site)
    tab.open("/")
    links = tab.page.locator("nav.side a").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
    assert set(links) <= {re.sub(r"\?.*", "", one) for one in PAGES}
