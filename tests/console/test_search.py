"""One search over every place: on its page, in JSON, by the command line."""

from __future__ import annotations

import datetime as dt
import html
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman import App, Concurrent
from henchman.cli.main import henchman
from henchman.inspector.base import Entry
from henchman.oncall.search import search_everywhere
from henchman.oncall.views import save_view
from henchman.store import limits, metrics
from henchman.store.call import command, run
from henchman.wire.payload import encode
from support.browsing import DEAD, RETRY, XSS, Browser
from support.incidents import NightShop

ERROR = "d1e2f3a4b5c6"


def invoke(url: str, *words: str) -> Any:
    return CliRunner().invoke(henchman, ["--redis", url, "find", *words])


def dead_jobs(app: App, many: int, wanted: str) -> None:
    """So many dead jobs; the oldest is the ``wanted`` one."""
    now, words = time.time(), list[Any]()
    for number in range(many):
        job = {"class": "shop.burn", "args": [number], "jid": f"{number:024x}", "queue": "pay"}
        words += [now - number, encode(job)]
    words += [now - many, encode({"class": "shop.burn", "args": [wanted], "jid": "b" * 24, "queue": "pay"})]
    app.connections.run(command("ZADD", app.keys.dead, *words))


@pytest.fixture
def night(redis_url: str, redis: Redis) -> Iterator[NightShop]:
    app = App(redis_url=redis_url)
    yield NightShop(app, redis)
    app.close()


@pytest.fixture
def town(shop: App, redis: Redis, night: NightShop) -> App:
    """A shop in which something of each kind is called after Rome."""
    app, now = shop, time.time()

    @app.job(name="rome.ship", queue="rome", key="town", once=True)
    def ship(town: str) -> None: ...

    @app.job(name="rome.pay", queue="pay", limits=[Concurrent("rome-bank", 2, by="town")])
    def pay(town: str) -> None: ...

    @app.ordered(queue="romes", name="rome.price")
    def price(claim: dict[str, list[Any]]) -> None: ...

    price.push("rome-7", {"price": 1}, score=1)
    ship.enqueue("rome")
    pay.using(delay=3600).enqueue("rome")
    with app.batch("Import of Rome", tags=["rome"]):
        pay.enqueue("rome")
    failed = {"class": "rome.pay", "queue": "pay", "args": ["rome"], "retry": 5, "retry_count": 1}
    error = {"error_class": "RomeFell", "error_message": "to the goths"}
    app.connections.run(command("ZADD", app.keys.retry, now + 60, encode({**failed, **error, "jid": "1" * 24})))
    app.connections.run(command("ZADD", app.keys.dead, now, encode({**failed, **error, "jid": "2" * 24})))
    app.connections.run(limits.declare(app.keys, [("c", "rome-bank", 2, 0.0)]))
    redis.hset(app.keys.places("rome-bank", "rome"), "f" * 24, f"1 {now}")
    night.alive("rome-host:7:0a1b2c", queues=["rome"])
    run(app.connections, save_view(app.keys, "dead", "What Rome cost", {"q": "rome"}))
    counted = metrics.Counted(3, 1, 900, (0,) * 26)
    app.connections.run(metrics.flush(app.keys, dt.datetime.now(dt.UTC), {"rome.pay": counted}, ("8",)))
    return app


def places(app: App, text: str) -> dict[str, list[str]]:
    return {one.title: [hit.name for hit in one.hits] for one in search_everywhere(app, text).found}


def test_whatever_has_the_name_is_found_place_by_place(town: App) -> None:
    found = places(town, "rome")
    assert found["Retries"] == ['rome.pay("rome")']
    assert found["Dead"] == ['rome.pay("rome")']
    assert found["Scheduled"] == ['rome.pay("rome")']
    assert sorted(found["Waiting in queues"]) == ['rome.pay("rome")', 'rome.ship("rome")']
    assert found["Queues"] == ["rome"]
    assert found["Batches"] == ["Import of Rome"]
    assert found["Ordered queues"] == ["romes", "rome-7"]
    assert found["Keys"] == ["rome.ship", "rome of rome.ship"]
    assert found["Limits"] == ["rome-bank", "rome of rome-bank"]
    assert found["Views"] == ["What Rome cost"]
    assert found["Classes"] == ["rome.pay"]
    shown = Browser(town.console()).get("/search?q=rome")
    assert shown.status == 200
    for link in (
        "/queues/rome",
        "/ordered/romes/rome-7",
        "/keys/rome.ship/rome",
        "/limits/rome-bank/rome",
        "/dead?q=rome",
    ):
        assert link in shown.links, link
    assert "Nothing found in" in shown.words
    assert "Crons" in shown.words


def test_every_link_of_the_results_leads_to_a_page(town: App) -> None:
    browser = Browser(town.console())
    links = {one for one in browser.get("/search?q=rome").links if one.startswith("/") and "/static/" not in one}
    assert len(links) > 25
    for link in links:
        assert browser.get(link).status in (200, 303), link


def test_filters_narrow_it_and_errors_are_found_by_their_text(town: App) -> None:
    found = places(town, "error:RomeFell")
    assert found == {"Retries": ['rome.pay("rome")'], "Dead": ['rome.pay("rome")']}
    assert "Retries" in places(town, "class:rome.pay")
    assert "to the goths" in Browser(town.console()).get("/search?q=goths").words
    assert places(town, "class:rome.nothing") == {}


@pytest.mark.parametrize(("jid", "state"), [(RETRY, "retrying"), (DEAD, "dead")])
def test_the_whole_id_of_a_job_leads_to_its_page(browser: Browser, jid: str, state: str) -> None:
    answer = browser.get(f"/search?q=+{jid}+")
    assert (answer.status, answer.headers["location"]) == (303, f"/jobs/{jid}")
    asked = browser.get(f"/search?q={jid}&show=all")
    assert asked.status == 200
    assert f"/jobs/{jid}" in asked.links


def test_the_id_of_a_batch_an_error_and_a_process_leads_there_too(town: App, redis: Redis, night: NightShop) -> None:
    browser = Browser(town.console())
    batch = json.loads(browser.get("/api/v1/batches").text)["items"][0]["id"]
    assert browser.get(f"/search?q={batch}").headers["location"] == f"/batches/{batch}"
    assert browser.get("/search?q=rome-host:7:0a1b2c").headers["location"] == "/processes/rome-host~3A7~3A0a1b2c"


def test_the_id_of_an_error_leads_there_too(night: NightShop) -> None:
    night.new_error()
    browser = Browser(night.app.console())
    group = json.loads(browser.get("/api/v1/errors").text)["items"][0]["id"]
    assert browser.get(f"/search?q={group}").headers["location"] == f"/errors/{group}"


def test_what_was_looked_at_is_said_and_the_search_goes_further(shop: App) -> None:
    dead_jobs(shop, 3500, "needle-9")
    browser = Browser(shop.console())
    shown = browser.get("/search?q=needle-9")
    assert "3,000 of 3,502 looked at" in shown.words
    [further] = [one for one in shown.links if one.startswith("/dead?") and "after=3000" in one]
    assert "needle-9" in browser.get(further).words
    found = json.loads(browser.get("/api/v1/search?q=needle-9").text)
    [dead] = [one for one in found["items"] if one["title"] == "Dead"]
    assert (dead["looked"], dead["of"], dead["whole"]) == (3000, 3502, False)
    assert dead["more"] == {"page": ["dead"], "query": {"q": "needle-9", "after": 3000}}


def test_of_many_finds_only_those_that_are_shown_are_opened(shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
    dead_jobs(shop, 500, "last")
    opened, seen = list[str](), Entry._seen.func

    def counting(entry: Entry) -> bytes:
        opened.append(entry.jid)
        return seen(entry)  # type: ignore[no-any-return]

    monkeypatch.setattr(Entry._seen, "func", counting)
    [dead] = [one for one in search_everywhere(shop, "shop.burn").places if one.title == "Dead"]
    assert (len(dead.hits), dead.more, dead.said) == (8, True, "")
    assert sorted(opened) == [*sorted(hit.place[1] for hit in dead.hits), f"{8:024x}"]


def test_queues_are_looked_through_step_by_step(shop: App, redis: Redis) -> None:
    rows = [encode({"class": "shop.mail", "args": [n], "jid": f"{n:024x}", "queue": "mail"}) for n in range(25_000)]
    wanted = encode({"class": "shop.mail", "args": ["needle"], "jid": "a" * 24, "queue": "mail"})
    redis.rpush(shop.keys.queue("mail"), *rows)
    redis.lpush(shop.keys.queue("mail"), wanted)
    browser, address, steps = Browser(shop.console()), "/search?q=needle", 0
    while "needle&#34;" not in (shown := browser.get(address)).text and steps < 9:
        [address] = [one for one in shown.links if "look=" in one and one.startswith("/search?")]
        steps += 1
    assert 0 < steps < 9
    assert f"/jobs/{'a' * 24}" in html.unescape(shown.text)


def test_a_place_that_the_server_refuses_fails_alone(shop: App, redis: Redis) -> None:
    redis.delete(shop.keys.limits, shop.keys.dead)
    redis.set(shop.keys.limits, "no hash")
    redis.set(shop.keys.dead, "no set")
    found = search_everywhere(shop, "shop")
    assert {one.title for one in found.places if one.problem} == {"Limits", "Dead"}
    shown = Browser(shop.console()).get("/search?q=CardDeclined").words
    assert "Limits not searched: HGETALL: WRONGTYPE" in shown
    assert "shop.charge" in shown


def test_wild_text_and_no_text(shop: App) -> None:
    browser = Browser(shop.console())
    for text in (XSS, "*?[a-z]\\", "ü" * 200, "\x00", "'\"", "class:", '"error:', "-1", "(", "since:nonsense", "a:b"):
        shown = browser.get("/search?" + "q=" + "".join(f"%{byte:02X}" for byte in text.encode()))
        assert shown.status == 200, text
        assert "<script>alert" not in shown.text
    assert "The whole id of a job" in browser.get("/search").words
    assert "4111-1111" not in browser.get("/search?q=shop.mail").text, "what is kept secret is masked here too"


def test_the_command_line(shop: App, redis_url: str) -> None:
    dead_jobs(shop, 3500, "needle-9")
    found = invoke(redis_url, "shop.charge")
    assert found.exit_code == 0
    assert re.search(rf"Retries +\n.*shop\.charge\(.*{RETRY}", found.output)
    nothing = invoke(redis_url, "needle-9")
    assert nothing.exit_code == 1
    assert "Dead (3,000 of 3,502 looked at)" in nothing.output
    assert "--most 30000" in nothing.output
    assert "needle-9" in invoke(redis_url, "needle-9", "--most", "30000").output
    told = json.loads(invoke(redis_url, "shop.charge", "--json").output)
    assert [one["title"] for one in told["places"] if one["items"]][:2] == ["Retries", "Dead"]
    assert invoke(redis_url, "  ").exit_code == 2


def test_the_search_of_every_page_leads_here(browser: Browser) -> None:
    for page in ("/", "/dead", f"/jobs/{DEAD}"):
        assert "/search" in browser.get(page).links
