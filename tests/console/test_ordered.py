"""Pages of ordered queues: ids by time, by failures, in flight, in the morgue; one id; what can be done to them."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from henchman import App
from henchman.console.render import tilde
from henchman.inspector.ordered import OrderedQueue, ids_with
from henchman.store.call import run
from support.browsing import XSS, Browser
from support.worker import until, working

WILD = 'shop/7?<b> ü~"'


class Products:
    """Thirty ids wait, ``late`` is due in an hour, a wild one holds a wild payload, ``dead-1`` lies in the morgue."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.go_on = threading.Event()

        @app.ordered(name="shop.sync", queue="products", retry_in=3600)
        def sync(claim: dict[str, list[Any]]) -> None:
            if "held" in claim:
                self.go_on.wait(60)
            raise RuntimeError("<i>the shop answers 422</i>")

        self.sync = sync
        now = app.ordered_queues["products"]
        sync.push_many([{"id": f"p-{n:02}", "payload": {"n": n}, "score": n} for n in range(30)])
        sync.push_many([{"id": WILD, "payload": {"x": XSS}, "score": 1}, {"id": "dead-1", "payload": 1, "score": 1}])
        now.kill("dead-1")
        self.queue: OrderedQueue = now


@pytest.fixture
def products(app: App) -> Products:
    return Products(app)


@pytest.fixture
def browser(products: Products) -> Browser:
    return Browser(products.app.console())


def ids_on(shown: str) -> list[str]:
    return re.findall(r'<a class="mono" href="/ordered/products/([^"]*)"', shown)


def test_every_ordered_queue_leads_to_its_page(browser: Browser) -> None:
    assert "/ordered/products" in browser.get("/ordered").links


def test_the_ids_of_a_queue_stand_there_the_next_first(browser: Browser) -> None:
    shown = browser.get("/ordered/products?n=10")
    assert shown.status == 200
    assert len(ids_on(shown.text)) == 10
    assert "1–10 of 31 ids" in shown.words
    assert "/ordered/products?n=10&p=2" in shown.links
    every = [one for page in "1234" for one in ids_on(browser.get(f"/ordered/products?n=10&p={page}").text)]
    assert sorted(every) == sorted([*(f"p-{n:02}" for n in range(30)), tilde(WILD)])


def test_the_morgue_is_a_list_of_its_own_and_gives_back(browser: Browser, products: Products) -> None:
    shown = browser.get("/ordered/products?by=morgue")
    assert ids_on(shown.text) == ["dead-1"]
    assert "gave up" in shown.words
    answer = browser.act("/ordered/products?by=morgue", "/ordered/products/dead-1/do/revive", referer="")
    assert answer.status == 303
    assert products.queue.find("dead-1").state == "waiting"
    assert "dead-1 waits again, due now" in browser.get(answer.headers["location"]).words
    assert "The morgue is empty." in browser.get("/ordered/products?by=morgue").words
    again = browser.act("/ordered/products/do/pause", "/ordered/products/dead-1/do/revive")
    assert again.status == 409


def test_an_act_goes_back_to_the_list_as_it_was(browser: Browser) -> None:
    token = browser.token("/ordered/products?by=morgue")
    page = "http://localhost:7080/ordered/products?by=morgue&p=1&x=y"
    fields = {"token": token, "back": "list"}
    answer = browser.post("/ordered/products/dead-1/do/revive", fields, referer=page)
    assert answer.headers["location"].startswith("/ordered/products?by=morgue&said=")
    asked = browser.get("/ordered/products/p-01/do/delete", referer="http://localhost:7080/ordered/products?by=retry")
    assert "All that waits under it is gone for good." in asked.words
    assert 'name="at" value="by=retry"' in asked.text
    fields = {"token": token, "back": "list", "at": "by=retry&evil=1"}
    answer = browser.post("/ordered/products/p-01/do/delete", fields)
    assert answer.headers["location"].startswith("/ordered/products?by=retry&said=")


def test_an_id_tells_what_waits_under_it_and_why_it_does_not_run(browser: Browser, products: Products) -> None:
    shown = browser.get(f"/ordered/products/{tilde(WILD)}")
    assert shown.status == 200
    assert "<script>alert" not in shown.text
    assert "\u202e" not in shown.text
    assert WILD in shown.words
    assert "It is due. Nothing of its queue runs: does a worker serve it?" in shown.words
    products.queue.pause()
    assert "Its queue is paused." in browser.get("/ordered/products/p-03").words
    assert "It gave up." in browser.get("/ordered/products/dead-1").words
    absent = browser.get("/ordered/products/nobody")
    assert absent.status == 404
    assert "Nothing is known of it" in absent.words


def test_what_runs_and_what_failed_are_lists_of_their_own(browser: Browser, products: Products) -> None:
    products.sync.push_many([{"id": "held", "payload": 1, "score": 1}])
    with working(products.app):
        until(lambda: ids_on(browser.get("/ordered/products?by=busy").text) == ["held"], "it alone is in flight")
        held = browser.get("/ordered/products/held").words
        assert "It runs: " in held
        assert "with 1 payload." in held
        failed = browser.get("/ordered/products?by=retry")
        assert "<i>the shop answers 422</i>" in failed.words
        assert "It failed 1 time; the next attempt is in" in browser.get("/ordered/products/p-05").words
        late = browser.act("/ordered/products/do/pause", "/ordered/products/held/do/kill")
        assert late.status in (303, 409)
        products.go_on.set()
        until(lambda: "Nothing is in flight." in browser.get("/ordered/products?by=busy").words, "it has ended")


def test_the_acts_on_one_and_on_all(browser: Browser, products: Products) -> None:
    page = "/ordered/products"
    queue = products.queue
    for id, verb in (("p-01", "kill"), ("p-02", "delete"), ("p-01", "purge")):
        assert browser.act(f"{page}/do/pause", f"{page}/{id}/do/{verb}").status == 303
    assert queue.find("p-01").state == "absent"
    assert queue.find("p-02").state == "absent"
    assert browser.act(f"{page}/do/pause", f"{page}/do/pause").status == 303
    assert queue.paused()
    assert browser.act(f"{page}/do/pause", f"{page}/do/resume").status == 303
    assert not queue.paused()
    assert "All that lies in the morgue waits again" in browser.get(f"{page}/do/revive-all").words
    answer = browser.act(f"{page}/do/revive-all", f"{page}/do/revive-all")
    assert "1 id revived" in browser.get(answer.headers["location"]).words
    assert queue.stats().morgue_length == 0
    products.sync.push_many([{"id": "later", "payload": 1, "score": 1, "delay": 3600}])
    assert browser.act(f"{page}/do/pause", f"{page}/do/run-all").status == 303


def test_one_payload_is_deleted_alone(browser: Browser, products: Products) -> None:
    """Of many the one that is chosen, where it lies; the form says what is wrong, and that nothing is left."""
    products.sync.push_many([{"id": "dead-1", "payload": {"price": n}, "score": n} for n in (7, 8)])
    page = "/ordered/products/dead-1"
    assert f"{page}/do/drop" in browser.get(page).links
    form = browser.get(f"{page}/do/drop")
    chosen = re.findall(r'name="payload" value="([^"]+)"', form.text)
    assert [one.split(" ")[:2] for one in chosen] == [["payloads", "7.0"], ["payloads", "8.0"], ["dead", "1.0"]]

    def drop(payload: str) -> Any:
        form = {"token": browser.token(f"{page}/do/drop"), "back": "one", "payload": payload}
        return browser.post(f"{page}/do/drop", form)

    assert drop("").status == 422
    for value in (chosen[1], chosen[2]):
        assert drop(value).headers["location"].startswith(f"{page}?")
    late = drop(chosen[1])
    assert (late.status, "one that was here before is gone" in late.words) == (422, True)
    one = products.queue.find("dead-1")
    assert (one.state, [payload.value for payload in one.payloads], one.dead) == ("waiting", [{"price": 7}], [])

    assert "is without the payload of score 7" in browser.get(drop(chosen[0]).headers["location"]).words
    assert products.queue.find("dead-1").state == "absent"
    assert browser.get(f"{page}/do/drop").status == 409


@pytest.mark.parametrize("query", ["by=nope", "p=99", "q=%00", "q=" + "x" * 500, "by=morgue&p=9", "by=busy&p=4"])
def test_a_query_without_sense_is_a_page_all_the_same(browser: Browser, query: str) -> None:
    assert browser.get(f"/ordered/products?{query}").status == 200


def test_a_queue_that_nobody_pushed_to_is_empty(browser: Browser) -> None:
    assert "No id waits." in browser.get("/ordered/nothing").words


def test_ids_are_found_by_their_beginning(browser: Browser, products: Products) -> None:
    assert ids_on(browser.get("/ordered/products?q=p-1").text) == [f"p-1{n}" for n in range(10)]
    assert ids_on(browser.get("/ordered/products?q=dead&by=morgue").text) == ["dead-1"]
    assert "No id begins with “*”" in browser.get("/ordered/products?q=*").words
    ask, keys = products.app.connections, products.app.keys
    found, whole = run(ask, ids_with(keys, "products", "due", "p-", 5))
    assert [one.id for one in found] == [f"p-0{n}" for n in range(4)] or len(found) <= 5
    assert not whole
    found, whole = run(ask, ids_with(keys, "products", "due", "p-07", 5))
    assert ([one.id for one in found], whole) == (["p-07"], True)
