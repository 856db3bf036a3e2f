"""Every page as people see it: nothing in the browser's console and nothing that axe minds, in light, and on a phone in
the dark."""

from __future__ import annotations

import re
import time

import pytest

from browser.conftest import Opens
from henchman.console.render import tilde
from henchman.wire.times import day
from support.browsing import DEAD, RETRY
from support.chromium import PHONE, WIDE, Tab, serving
from support.showcase import ACCOUNT, LONG_HOST, WILD, Showcase

pytestmark = pytest.mark.browser("it looks through Chromium")

_WILD, _ACCOUNT = tilde(WILD), tilde(ACCOUNT)

#: every page of the console; ``{batch}``, ``{workflow}``, ``{running}`` and ``{error}`` are ids of the showcase,
#: ``{today}`` is its day
PAGES = (
    "/",
    "/busy",
    "/processes/{process}",
    f"/processes/{tilde(LONG_HOST)}~3A31337~3A0123456789ab",
    "/queues",
    "/queues/mail/do/pause",
    "/queues/mail?p=2",
    "/queues?sort=-size",
    "/queues/odd~2F~C3~BC~3F~23~3Cb~3E",
    "/queues/mail/do/clear",
    "/batches",
    "/batches/{batch}",
    "/batches/{batch}?view=waterfall",
    "/batches/{workflow}",
    "/ordered",
    "/ordered/products",
    "/ordered/products?by=morgue",
    "/ordered/products?q=sku",
    "/ordered/products/sku-1",
    f"/ordered/products/{_WILD}",
    f"/ordered/products/{_WILD}/do/delete",
    f"/ordered/products/{_WILD}/do/drop",
    "/retries",
    "/scheduled",
    "/dead",
    "/dead?q=nothing+like+this",
    "/dead?q=error%3ACardDeclined+class%3Ashop.charge",
    "/busy?by=usual",
    f"/jobs/{DEAD}",
    f"/jobs/{RETRY}",
    "/jobs/{running}",
    "/limits",
    "/pauses",
    "/blocked",
    "/blocked?show=stuck",
    "/keys",
    "/keys/account",
    f"/keys/account/{_ACCOUNT}",
    f"/keys/account/{_ACCOUNT}/do/unlock-by-force",
    f"/dead/{DEAD}/do/delete",
    "/history",
    "/history?columns=enqueued,state,ran,process,tags,result",
    "/search",
    "/search?q=shop",
    "/search?q=nothing+like+this",
    "/days",
    "/days?source=server",
    "/days/{today}",
    "/days/{today}?source=server&status=error",
    "/days/2026-01-01",
    "/audit",
    "/operations",
    "/operations/1",
    "/crons",
    "/crons/shop.nightly",
    "/errors",
    "/errors?sort=times",
    "/errors/{error}",
    "/metrics",
    "/metrics?by=24",
    "/metrics?vs=before",
    "/metrics?q=shop.create,mail,shop.charge&sort=mean",
    "/metrics/shop.create?vs=before",
    "/metrics/shop.create",
    "/system",
    "/login",
)
#: what has to be scrolled sideways, or reaches out of its card; code and drawings may be scrolled
SIDEWAYS = """() => {
  const free = (one) => !one.closest("pre, .graph, .waterfall, .hidden, caption");
  const right = (one) => one.getBoundingClientRect().right;
  const whole = document.documentElement;
  return [whole, ...document.querySelectorAll("main *")].filter((one) => free(one) && (
    (one === whole || getComputedStyle(one).overflowX === "auto") && one.scrollWidth > one.clientWidth + 1
    || one.matches(".card td") && one.offsetWidth && right(one) > right(one.closest(".card")) + 1
  )).map((one) => `${one.tagName}.${one.className}: ${one.textContent.trim().slice(0, 60)}`);
}"""

#: what is said where there is nothing, with the status
MESSAGES = {
    "/nope": 404,
    "/jobs/unknown": 404,
    "/batches/unknown": 404,
    "/errors/unknown": 404,
    "/ordered/products/unknown": 404,
    "/queues/none": 200,
    "/queues/mail/do/nothing": 409,
}


@pytest.mark.parametrize("address", PAGES)
def test_a_page_is_clean_in_light_and_in_the_dark_on_a_phone(
    opens: Opens, site: str, shown: Showcase, address: str
) -> None:
    _look(opens(site), address.format_map(shown._asdict() | {"today": day(time.time())}))


@pytest.mark.parametrize("address", MESSAGES)
def test_a_message_is_as_clean(opens: Opens, site: str, address: str) -> None:
    tab = opens(site)
    tab.expected.add(MESSAGES[address])
    _look(tab, address)


def _look(tab: Tab, address: str) -> None:
    tab.open(address)
    assert tab.page.locator("h1").count() == 1
    assert tab.violations() == []
    tab.page.emulate_media(color_scheme="dark")
    tab.page.set_viewport_size(PHONE)
    assert tab.violations() == []
    assert tab.page.evaluate(SIDEWAYS) == [], "on a phone"
    for width in (320, 720, 1024, 1280):
        tab.page.set_viewport_size({"width": width, "height": 640})
        assert tab.page.evaluate(SIDEWAYS) == [], f"{width} px wide"


def test_the_list_of_pages_has_every_page_of_the_navigation(opens: Opens, site: str) -> None:
    tab = opens(site)
    tab.open("/")
    links = tab.page.locator("nav.side a").evaluate_all("all => all.map((one) => one.getAttribute('href'))")
    assert set(links) <= {re.sub(r"\?.*", "", one) for one in PAGES}


def test_several_consoles_are_chosen_from_a_list(shown: Showcase, opens: Opens) -> None:
    with serving(
        shown.app.console(label="shop", tone="production", beside={"staging": shown.app.console(tone="staging")})
    ) as several:
        for size in (WIDE, PHONE):
            tab = opens(several, viewport=size)
            tab.open("/@main/queues")
            tab.page.locator(".shelf summary").click()
            tab.page.locator(".shelf a", has_text="staging").click()
            tab.page.wait_for_url("**/@staging/queues")
            assert tab.page.locator(".shelf summary.staging").is_visible()
            assert tab.violations() == []
