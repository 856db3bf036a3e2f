"""Pauses that end by themselves: the forms, and where they are shown."""

from __future__ import annotations

import json
import time

from click.testing import CliRunner
from redis import Redis

from henchman import App
from henchman.cli.main import henchman
from henchman.inspector.doctor import examine
from henchman.store.queues import pauses
from support.browsing import XSS, Browser


def press(browser: Browser, act: str, **fields: str) -> int:
    """Send the form of an act; the status of the answer."""
    return browser.post(act, {"token": browser.token(act), **fields}).status


def test_a_queue_is_paused_for_a_time_and_shown_so(app: App, shop: App, redis: Redis, redis_url: str) -> None:
    browser = Browser(shop.console())
    asked = browser.get("/queues/mail/do/pause")
    assert "Paused until resumed for 15 min for 1 h for 4 h for 1 d" in asked.words
    assert press(browser, "/queues/mail/do/pause", reason=XSS, minutes="60") == 303
    pause = shop.connections.run(pauses(shop.keys))["mail"]
    assert pause.at is not None
    assert pause.until == pause.at + 3600
    page = browser.get("/queues/mail")
    assert "it ends by itself" in page.words
    assert "<script>alert" not in page.text
    assert "to go" in browser.get("/queues").words
    told = json.loads(browser.get("/api/v1/queues/mail").text)
    assert abs(pause.until - time.time() - 3600) < 60
    assert told["pause"]["until"] is not None
    assert "mail (until 20" in " ".join(f"{one.text}" for one in examine(shop.connections, shop.keys, pings=1))
    [job] = shop.queues["mail"].page(0, 1)
    assert "to go" in shop.why(job.jid)
    cli = CliRunner().invoke(henchman, ["queues", "--redis", redis_url])
    assert "59 min" in cli.output or "1 h to go" in cli.output


def test_a_form_that_says_nonsense_pauses_until_somebody_resumes_it(shop: App, redis: Redis) -> None:
    browser = Browser(shop.console())
    assert press(browser, "/queues/mail/do/pause", minutes="7") == 303
    assert shop.connections.run(pauses(shop.keys))["mail"].until is None


def test_an_ordered_queue_asks_for_a_reason_and_a_time(app: App, redis: Redis) -> None:
    @app.ordered(name="products", queue="products")
    def products(claim: dict[str, list[int]]) -> None: ...

    products.push("sku-1", 1)
    browser = Browser(app.console())
    assert press(browser, "/ordered/products/do/pause", reason="outage", minutes="15") == 303
    shown = browser.get("/ordered/products").words
    assert "outage" in shown
    assert "it ends by itself" in shown
    assert browser.act("/ordered/products", "/ordered/products/do/resume").status == 303, "its form has a token"
    assert "it ends by itself" not in browser.get("/ordered/products").words
    assert redis.exists("paused") == 0


def test_the_command_line_pauses_for_a_time(app: App, redis: Redis, redis_url: str) -> None:
    def invoke(*words: str) -> str:
        return CliRunner().invoke(henchman, [*words, "--redis", redis_url]).output

    assert "mail is paused for 30 min" in invoke("queues", "pause", "mail", "--for", "30m")
    pause = app.connections.run(pauses(app.keys))["mail"]
    assert pause.at is not None
    assert pause.until == pause.at + 1800
    assert "'soon' is no time: say 90s, 30m, 2h or 7d" in invoke("queues", "pause", "mail", "--for", "soon")
    assert "from 5 seconds to 30 days" in invoke("queues", "pause", "mail", "--for", "31d")
    assert app.connections.run(pauses(app.keys))["mail"] == pause


def test_a_batch_is_paused_with_a_reason_and_resumed(app: App, redis: Redis) -> None:
    """On its page, on the overview, in the list, for programs; and the jobs that wait say so."""

    @app.job(name="import_page", queue="imports")
    def import_page(page: int) -> None: ...

    with app.batch("Catalogue of shop 77") as batch:
        import_page.enqueue(1)
    browser, page, act = Browser(app.console()), f"/batches/{batch.id}", f"/batches/{batch.id}/do/pause"
    assert "No job of it starts any more, on any worker" in browser.get(act).words
    assert press(browser, act, reason="x" * 201) == 409
    assert batch.status().paused is None
    assert press(browser, act, reason=f"outage {XSS}") == 303
    paused = batch.status().paused
    assert paused is not None
    assert (paused.reason, abs((paused.at or 0) - time.time()) < 60) == (f"outage {XSS}", True)
    shown = browser.get(page)
    assert "It is paused, by" in shown.words
    assert "<script>alert" not in shown.text
    assert "paused" in browser.get("/batches").words
    overview = browser.get("/")
    assert "Batch Catalogue of shop 77 is paused: 1 job of it has not ended." in overview.words
    assert f'href="{page}"' in overview.text
    told = json.loads(browser.get(f"/api/v1/batches/{batch.id}").text)
    assert (told["paused"], told["pause"]["reason"]) == (True, f"outage {XSS}")
    [job] = app.queues["imports"].page(0, 1)
    assert f"Its batch {batch.id} is paused" in browser.get(f"/jobs/{job.jid}").words
    assert "pause" in browser.get("/audit").words
    assert browser.act(page, f"{page}/do/resume").status == 303
    assert batch.status().paused is None
    assert "It is paused" not in browser.get(page).words
    assert json.loads(browser.get(f"/api/v1/batches/{batch.id}").text)["pause"] is None


def test_the_command_line_pauses_a_batch(app: App, redis: Redis, redis_url: str) -> None:
    def invoke(*words: str) -> str:
        return CliRunner().invoke(henchman, ["batch", *words, "--redis", redis_url]).output

    @app.job(name="import_page", queue="imports")
    def import_page(page: int) -> None: ...

    with app.batch("Catalogue") as batch:
        import_page.enqueue(1)
    assert "is paused; what runs goes on. Undo: henchman batch unpause " in invoke(
        "pause", batch.id, "--reason", "outage"
    )
    shown = invoke(batch.id)
    assert "closed, paused" in shown
    assert ": outage" in shown
    assert json.loads(invoke(batch.id, "--json"))["paused"]["reason"] == "outage"
    told = {one.name: one for one in examine(app.connections, app.keys, pings=1)}["pauses"]
    assert (told.verdict, told.text) == ("warn", f"batch {batch.id}: nothing starts from there")
    assert told.advice == "henchman pauses says who and why"
    assert "closed, paused" in CliRunner().invoke(henchman, ["batches", "--redis", redis_url]).output
    assert f"{batch.id} goes on" in invoke("unpause", batch.id)
    assert f"{batch.id} was not paused" in invoke("unpause", batch.id)
    assert "there is no batch 'gone'" in invoke("pause", "gone")


def test_the_page_of_all_pauses(app: App, shop: App, redis: Redis) -> None:
    """A queue, a batch, a class and a tag, each with who and why; paused and resumed there."""

    @app.job(name="import_page", queue="imports", tags=["vip"])
    def import_page(page: int) -> None: ...

    browser = Browser(app.console())
    assert "Nothing is paused." in browser.get("/pauses").words
    with app.batch("Catalogue") as batch:
        import_page.enqueue(1)
    batch.pause("nightly", by="bo")
    shop.queues["mail"].pause("outage", by="ana")
    form = {"token": browser.token("/pauses")}
    assert browser.post("/pauses/do/add", form | {"what": "tag:vip", "reason": f"angry {XSS}"}).status == 303
    assert press(browser, "/pauses/class:import_page/do/pause", reason="slow") == 303
    app.crons.add("nightly", import_page, every=3600, args=[1])
    assert "what is planned meanwhile is left out" in browser.get("/crons/nightly/do/pause").words
    assert press(browser, "/crons/nightly/do/pause", reason="x" * 201) == 409
    assert press(browser, "/crons/nightly/do/pause", reason=f"a load test {XSS}") == 303
    for path in ("/crons", "/crons/nightly"):
        assert "a load test" in browser.get(path).words
        assert "<script>alert" not in browser.get(path).text
    refused = browser.post("/pauses/do/add", form | {"what": "imports", "reason": ""})
    assert (refused.status, "say class:NAME or tag:NAME" in refused.words) == (409, True)
    page = browser.get("/pauses")
    for words in ("queue mail", "ana outage Resume", "batch Catalogue", "bo nightly", "class import_page", "tag vip"):
        assert words in page.words, words
    assert "<script>alert" not in page.text
    told = json.loads(browser.get("/api/v1/pauses").text)["items"]
    assert [one["kind"] for one in told] == ["queue", "batch", "cron", "class", "tag"]
    assert [one["name"] for one in told] == ["mail", batch.id, "nightly", "class:import_page", "tag:vip"]
    assert json.loads(browser.get("/api/v1/crons/nightly").text)["pause"]["reason"] == f"a load test {XSS}"
    overview = browser.get("/").words
    assert "Class import_page is paused: none of its jobs starts." in overview
    assert "Tag vip is paused: none of its jobs starts." in overview
    one = browser.get("/metrics/import_page")
    assert "It is paused, by" in one.words
    [job] = app.queues["imports"].page(0, 1)
    asked = browser.get(f"/jobs/{job.jid}").words
    assert f"Its batch {batch.id} is paused" in asked
    batch.unpause()
    assert "Its class import_page is paused" in browser.get(f"/jobs/{job.jid}").words
    assert browser.act("/metrics/import_page", "/pauses/class:import_page/do/resume").status == 303
    assert "Its tag vip is paused" in browser.get(f"/jobs/{job.jid}").words
    assert browser.act("/pauses", "/pauses/tag:vip/do/resume").status == 303
    assert "is paused" not in browser.get(f"/jobs/{job.jid}").words
    assert browser.act("/pauses", "/queues/mail/do/resume").status == 303
    assert browser.act("/pauses", "/crons/nightly/do/resume").status == 303
    assert json.loads(browser.get("/api/v1/crons/nightly").text)["pause"] is None
    assert "Nothing is paused." in browser.get("/pauses").words
    assert not redis.exists("hm:paused", "hm:batches:paused", "paused", "hm:cron:paused", "hm:cron:pauses")


def test_the_command_line_of_pauses(app: App, redis: Redis, redis_url: str) -> None:
    def invoke(*words: str) -> str:
        return CliRunner().invoke(henchman, ["pauses", *words, "--redis", redis_url]).output

    assert "Nothing is paused." in invoke()
    said = invoke("pause", "class:shop.charge", "--reason", "outage")
    assert "class:shop.charge is paused; what runs goes on. Undo: henchman pauses unpause class:shop.charge" in said
    assert "say class:NAME or tag:NAME" in invoke("pause", "shop.charge")
    assert "outage" in invoke()
    [told] = json.loads(invoke("--json"))["pauses"]
    assert (told["kind"], told["name"], told["reason"]) == ("class", "class:shop.charge", "outage")
    found = {one.name: one for one in examine(app.connections, app.keys, pings=1)}["pauses"]
    assert found.text == "class:shop.charge: nothing starts from there"
    assert "class:shop.charge goes on" in invoke("unpause", "class:shop.charge")
    assert "class:shop.charge was not paused" in invoke("unpause", "class:shop.charge")
