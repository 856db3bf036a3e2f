"""The console under the hands of somebody who works: rows that leave, rows that are chosen, the palette, a console that
does not answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from browser.conftest import Opens
from henchman import App
from henchman.wire.payload import encode
from support.chromium import serving

pytestmark = pytest.mark.browser("it looks through Chromium")


@pytest.fixture
def dead(redis: Redis, redis_url: str) -> Iterator[App]:
    """Twelve jobs are dead, the first of them last."""
    app, now = App(redis_url=redis_url), time.time()
    for one in range(12):
        job = {"class": "shop.charge", "jid": f"{one:024}", "queue": "pay", "args": [one], "created_at": now - 60}
        failed = {"error_class": "CardDeclined", "error_message": f"card {one}", "failed_at": now - 50}
        redis.zadd("dead", {encode({**job, **failed, "retry_count": 0}): now - one})
    yield app
    app.close()


@pytest.fixture
def desk(dead: App) -> Iterator[str]:
    with serving(App(redis_url=dead.config.redis_url).console()) as site:
        yield site


def rows(page: Any) -> list[str]:
    """The jobs whose rows stand there, with the classes of the rows."""
    found: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('table.rows tbody tr')].map((one) => `${Number("
        "one.querySelector('a').getAttribute('href').split('?')[0].split('/').pop())} ${one.className}`.trim())"
    )
    return found


def test_a_row_that_leaves_keeps_its_place_and_focus_and_choice_stay(opens: Opens, desk: str, dead: App) -> None:
    page = (tab := opens(desk)).page
    tab.open("/dead")
    for key in ("j", "j", "j", "j", "j", "x"):
        page.keyboard.press(key)
    page.locator("a.call", has_text="shop.charge(7)").focus()
    entry = dead.dead.find(f"{2:024}")
    assert entry is not None
    dead.dead.delete(entry)
    page.locator("tr.left").wait_for()
    assert rows(page)[:5] == ["0", "1", "2 left", "3", "4 on chosen"], "nothing has moved"
    assert page.locator("tr.left form").count() == 0, "nothing can be done to it"
    assert page.evaluate("() => document.activeElement.textContent").startswith("shop.charge(7")
    page.locator("tr.left").wait_for(state="detached")
    assert rows(page)[:4] == ["0", "1", "3", "4 on chosen"]
    assert page.evaluate("() => document.activeElement.textContent").startswith("shop.charge(7")
    assert page.locator("#chosen").inner_text().startswith("1 chosen")


def add_dead(redis: Redis, first: int, many: int) -> None:
    now = time.time()
    for one in range(first, first + many):
        job = {"class": "shop.charge", "jid": f"{one:024}", "queue": "pay", "args": [one], "created_at": now - 60}
        redis.zadd("dead", {encode({**job, "error_class": "CardDeclined", "failed_at": now}): now + one})


def test_what_comes_while_one_reads_does_not_push_what_stands_there(opens: Opens, desk: str, redis: Redis) -> None:
    page = (tab := opens(desk)).page
    tab.open("/dead?n=12")
    assert rows(page)[:3] == ["0", "1", "2"]
    page.locator("tr", has_text="shop.charge(5)").hover()
    add_dead(redis, 20, 3)
    page.get_by_role("button", name="3 new · show").wait_for()
    assert rows(page) == [str(one) for one in range(12)], "also those that are on the next page now"
    add_dead(redis, 23, 1)
    page.get_by_role("button", name="4 new · show").wait_for()
    assert tab.violations() == []
    page.keyboard.press("n")
    page.locator("tr", has_text="shop.charge(23)").wait_for()
    assert rows(page) == [*map(str, (23, 22, 21, 20, 0, 1, 2, 3, 4, 5, 6, 7))]
    assert page.locator("#news").is_hidden()
    page.mouse.move(5, 5)
    add_dead(redis, 30, 1)
    page.locator("tr", has_text="shop.charge(30)").wait_for()
    assert rows(page)[0] == "30", "nobody reads: it stands there at once"


def test_capitals_act_on_the_chosen_rows_after_a_question(opens: Opens, desk: str, dead: App, redis: Redis) -> None:
    page = (tab := opens(desk)).page
    tab.open("/dead")
    for key in ("j", "x", "j", "j", "X"):
        page.keyboard.press(key)
    assert page.locator("#chosen").inner_text() == "3 chosen\nR Retry · D Delete"
    page.keyboard.press("D")
    assert page.locator("#sure h2").inner_text() == "Delete: 3 rows"
    assert page.locator("#sure li").count() == 3
    assert tab.violations() == []
    page.keyboard.press("Escape")
    assert redis.zcard("dead") == 12, "Escape leaves it"
    page.keyboard.press("D")
    page.get_by_role("button", name="Leave it").click()
    assert redis.zcard("dead") == 12
    page.keyboard.press("R")
    page.get_by_role("button", name="Do it").click()
    page.get_by_text("Retry: 3 of 3 done").wait_for()
    assert redis.zcard("dead") == 9
    assert redis.llen("queue:pay") == 3
    assert redis.llen("hm:audit") == 3, "each is written down"
    page.locator("tr.left").nth(2).wait_for()
    page.keyboard.press("a")
    assert page.locator("tr.chosen").count() == 9
    page.keyboard.press("Escape")
    assert page.locator("tr.chosen").count() == 0
    assert page.locator("#chosen").is_hidden()


def test_what_is_refused_says_why(opens: Opens, desk: str, redis: Redis) -> None:
    tab = opens(desk)
    tab.expected.add(409)
    tab.open("/dead")
    tab.page.keyboard.press("j")
    tab.page.keyboard.press(".")
    tab.page.keyboard.press("R")
    redis.delete("dead")
    tab.page.get_by_role("button", name="Do it").click()
    tab.page.get_by_text("Retry: 0 of 1 done; ").wait_for()
    assert "is not among the dead any more" in tab.page.locator(".said").inner_text()


def test_whoever_may_only_look_chooses_nothing_to_act_on(opens: Opens, dead: App, redis: Redis) -> None:
    with serving(App(redis_url=dead.config.redis_url).console(authorize=lambda request: "look")) as site:
        tab = opens(site)
        tab.open("/dead")
        for key in ("j", "x", "D"):
            tab.page.keyboard.press(key)
        assert tab.page.locator("dialog[open]").count() == 0
        assert tab.page.locator("#sure").count() == 0
        tab.page.goto("about:blank")
    assert redis.zcard("dead") == 12


def test_the_palette_goes_anywhere_by_keyboard(opens: Opens, desk: str, redis: Redis) -> None:
    view = {"page": "dead", "name": "Cards", "query": {"q": "card"}}
    redis.hset("hm:views", "dead/Cards", json.dumps(view))
    page = (tab := opens(desk)).page
    tab.open("/dead")
    page.keyboard.press("Control+k")
    assert page.evaluate("() => document.activeElement.closest('dialog')?.id") == "palette"
    assert tab.violations() == []
    page.keyboard.type("ordered")
    assert page.locator("#palette li[aria-selected=true]").inner_text().split("\n")[-1] == "Ordered queues"
    page.keyboard.press("Enter")
    page.wait_for_url("**/ordered")
    page.keyboard.press("Control+k")
    page.keyboard.type(f"{3:024}")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{3:024}*")
    page.keyboard.press("Control+k")
    page.keyboard.type("view cards")
    page.locator("#palette li", has_text="dead: Cards").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url("**/dead?q=card")
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    assert page.locator("#palette").is_hidden()
    page.keyboard.press("Control+k")
    page.keyboard.type("single keys off")
    page.keyboard.press("Enter")
    page.keyboard.press("?")
    assert page.locator("#sheet").is_hidden(), "no single key does anything"
    page.keyboard.press("Control+k")
    page.keyboard.type("single keys on")
    page.keyboard.press("Enter")
    page.keyboard.press("?")
    assert page.locator("#sheet").is_visible()


def test_a_console_that_does_not_answer_is_said_and_comes_back(opens: Opens, desk: str, dead: App) -> None:
    tab = opens(desk)
    tab.expected.add(503)
    page = tab.page
    tab.open("/dead")
    page.route("**/dead", lambda route: route.fulfill(status=503, body="away"))
    page.get_by_text("The console does not answer.").wait_for()
    assert page.locator("#live").inner_text().startswith("! stale")
    assert page.get_by_text("CardDeclined").first.is_visible(), "what was seen last stays"
    page.unroute("**/dead")
    page.evaluate("() => window.dispatchEvent(new Event('online'))")
    page.locator("#lost").wait_for(state="hidden")
    assert page.locator("#live").inner_text() == "● live"
