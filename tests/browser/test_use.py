"""The console as people use it: by keyboard, while things happen, acting with a question before, without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from browser.conftest import Opens
from henchman import App
from support.browsing import DEAD, RETRY
from support.chromium import PHONE, serving
from support.mounts import MOUNTS
from support.showcase import Showcase, hostile

pytestmark = pytest.mark.browser("it looks through Chromium")

PASSWORD = "correct-horse"


@pytest.fixture
def shop(redis_url: str) -> Iterator[App]:
    """An app of the test's own: it may act."""
    app = App(redis_url=redis_url, console_password=PASSWORD)
    hostile(app)
    yield app
    app.close()


@pytest.fixture
def open_shop(shop: App) -> Iterator[str]:
    """Where its console is, without a password."""
    with serving(App(redis_url=shop.config.redis_url).console()) as site:
        yield site


def test_keys_open_the_sheet_search_walk_through_rows_and_go_to_pages(opens: Opens, site: str) -> None:
    tab = opens(site)
    page = tab.page
    tab.open("/queues/mail")
    page.keyboard.press("?")
    assert page.locator("#sheet").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#sheet").is_hidden()
    page.keyboard.press("/")
    assert page.evaluate("() => document.activeElement.id") == "find"
    page.keyboard.press("Escape")
    for key in "jjk":
        page.keyboard.press(key)
    first = page.locator("table.rows tbody tr").first
    assert "on" in str(first.get_attribute("class"))
    target = first.locator("a").first.get_attribute("href")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{target}")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/dead")
    page.go_back()
    page.wait_for_url(f"**{target}")


def test_the_page_of_a_job_copies_its_id_call_and_trace_and_y_copies_the_id_of_a_row(opens: Opens, site: str) -> None:
    page = (tab := opens(site)).page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site)
    tab.open(f"/jobs/{DEAD}")
    for part in ("jid", "call", "trace"):
        page.evaluate("() => navigator.clipboard.writeText('')")
        page.locator(f"[data-copies={part}]").click()
        page.locator(f"[data-copies={part}]", has_text="Copied").wait_for()
        shown = str(page.locator(f"#{part}").text_content()).strip()
        assert shown
        assert page.evaluate("() => navigator.clipboard.readText()") == shown
    tab.open("/dead?q=A-1")
    page.keyboard.press("j")
    page.keyboard.press("y")
    page.locator("#live", has_text="copied the id").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == DEAD


def test_y_copies_the_address_of_a_view_with_its_filters_and_the_zone_of_its_times(opens: Opens, site: str) -> None:
    page = (tab := opens(site)).page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=site)
    tab.open("/queues?sort=size&said=done&seal=x")
    page.keyboard.press("y")
    page.locator("#live", has_text="copied the address").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == f"{site}/queues?sort=size"
    page.keyboard.press("z")
    page.keyboard.press("z")
    page.keyboard.press("y")
    page.wait_for_function("async () => (await navigator.clipboard.readText()).endsWith('tz=utc')")
    sent = page.evaluate("() => navigator.clipboard.readText()")
    assert sent == f"{site}/queues?sort=size&tz=utc"
    other = opens(site)
    other.page.goto(sent)
    other.page.locator("#zone", has_text="UTC").wait_for()
    other.open("/queues")
    other.page.locator("#zone", has_text="ago").wait_for()


def test_where_there_is_no_clipboard_a_field_copies(opens: Opens, site: str) -> None:
    tab = opens(site)
    tab.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    tab.open(f"/jobs/{DEAD}")
    tab.page.locator("[data-copies=jid]").click()
    tab.page.locator("[data-copies=jid]", has_text="Copied").wait_for()
    assert tab.page.locator("textarea").count() == 0


def test_without_javascript_nothing_offers_to_copy(opens: Opens, site: str) -> None:
    tab = opens(site, java_script_enabled=False)
    tab.open(f"/jobs/{DEAD}")
    assert tab.page.locator("#jid").is_visible()
    assert [one.is_visible() for one in tab.page.locator("[data-copies]").all()][:2] == [False, False]


def test_a_filter_stands_in_the_address_and_the_back_button_returns_to_it(opens: Opens, site: str) -> None:
    tab = opens(site)
    page = tab.page
    tab.open("/dead")
    page.fill("#q", "A-1")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dead?q=A-1")
    page.locator("table.rows a.call").click()
    page.wait_for_url(f"**/jobs/{DEAD}?at=*")
    page.go_back()
    page.wait_for_url("**/dead?q=A-1")
    assert page.input_value("#q") == "A-1"


def test_what_happens_is_seen_without_a_reload(opens: Opens, open_shop: str, shop: App) -> None:
    tab = opens(open_shop)
    tab.open("/dead")
    tab.page.evaluate("() => { window.same = true; }")
    assert tab.page.get_by_role("table").get_by_text("CardDeclined").is_visible()
    shop.dead.clear()
    tab.page.get_by_text("Nothing is dead.").wait_for()
    assert tab.page.evaluate("() => window.same")


def test_an_act_is_asked_before_it_is_done(opens: Opens, open_shop: str, shop: App) -> None:
    tab = opens(open_shop)
    page = tab.page
    tab.open("/dead")
    page.get_by_role("link", name="Delete…").click()
    assert page.get_by_text("It is gone for good.").is_visible()
    page.get_by_role("link", name="Leave it").click()
    page.wait_for_url("**/dead")
    assert shop.dead.size() == 1
    page.get_by_role("link", name="Delete…").click()
    page.get_by_role("button", name="Delete").click()
    page.get_by_text(f"{DEAD} is deleted").wait_for()
    assert shop.dead.size() == 0


def test_people_log_in_and_out(opens: Opens, shop: App) -> None:
    with serving(shop.console()) as site:
        tab = opens(site)
        tab.expected.add(403)
        page = tab.page
        tab.open("/dead")
        page.wait_for_url("**/login")
        page.fill("input[type=password]", "wrong-horse")
        page.keyboard.press("Enter")
        page.get_by_text("That is not the password.").wait_for()
        assert tab.violations() == []
        page.fill("input[type=password]", PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_url(f"{site}/")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url("**/login")
        tab.open("/dead")
        page.wait_for_url("**/login")
        page.goto("about:blank")


@pytest.mark.parametrize("scripts", [True, False])
def test_on_a_phone_all_pages_are_in_a_sheet_at_its_foot(opens: Opens, site: str, *, scripts: bool) -> None:
    tab = opens(site, viewport=PHONE, java_script_enabled=scripts)
    page = tab.page
    tab.open("/")
    sheet = page.locator("nav.side")
    assert sheet.is_hidden()
    page.get_by_role("button", name="Pages").click()
    sheet.get_by_role("link", name="Dead", exact=True).click()
    page.wait_for_url("**/dead")
    assert sheet.is_hidden()
    page.locator("nav.dock").get_by_role("link", name="Busy").click()
    page.wait_for_url("**/busy")


def test_live_is_a_button_as_it_is_a_key(opens: Opens, site: str) -> None:
    tab = opens(site)
    tab.open("/dead")
    live = tab.page.locator("#live")
    assert live.inner_text() == "● live"
    live.click()
    assert live.inner_text() == "‖ not live"
    tab.page.locator("h1").click()
    tab.page.keyboard.press(".")
    assert live.inner_text() == "● live"


def test_without_javascript_everything_can_be_read_and_done(opens: Opens, open_shop: str, shop: App) -> None:
    tab = opens(open_shop, java_script_enabled=False)
    page = tab.page
    tab.open("/dead")
    assert page.get_by_role("table").get_by_text("CardDeclined").is_visible()
    page.get_by_role("button", name="Retry").click()
    page.get_by_text(f"{DEAD} is enqueued").wait_for()
    assert shop.dead.size() == 0
    page.get_by_role("link", name="Queues", exact=True).click()
    assert page.get_by_role("link", name="pay").first.is_visible()


def test_what_stands_in_payloads_is_shown_as_text(opens: Opens, site: str, shown: Showcase) -> None:
    tab = opens(site)
    for path in (f"/jobs/{RETRY}", "/retries", "/dead", f"/batches/{shown.batch}"):
        tab.open(path)
        text = tab.page.locator("main").inner_text()
        assert '<script>alert("x")</script>' in text, path
        assert "\u202e" not in text, path
        assert "\\u202e" in text, path
        assert not re.search("[\0\x07\x1b]", text), path
    tab.open(f"/jobs/{RETRY}")
    assert "9223372036854775808" in tab.page.locator("main").inner_text()


@pytest.mark.parametrize("mount", MOUNTS)
def test_it_is_clicked_through_inside_other_applications(opens: Opens, shop: App, mount: str) -> None:
    with MOUNTS[mount](App(redis_url=shop.config.redis_url).console()) as (site, at):
        tab = opens(site)
        page = tab.page
        tab.open(f"{at}/")
        page.get_by_role("link", name="Dead", exact=True).click()
        page.wait_for_url(f"{site}{at}/dead")
        page.get_by_role("button", name="Retry").click()
        page.get_by_text(f"{DEAD} is enqueued").wait_for()
        assert shop.dead.size() == 0
        page.goto("about:blank")
