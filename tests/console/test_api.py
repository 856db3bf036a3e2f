"""The JSON API: every endpoint answers as its OpenAPI document says, refuses what makes no sense, and acts as the pages
do."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from console.test_errors import group
from henchman import App, Failure
from henchman.console.api.routes import ENDPOINTS, LIMIT_MOST
from henchman.console.render import tilde
from henchman.inspector import audit
from henchman.oncall.views import save_view
from henchman.store import days, limits
from henchman.store.call import command, commands, run
from henchman.store.failures import group_errors
from henchman.wire.payload import encode
from support.browsing import DEAD, RETRY, XSS, Browser, Shown
from support.worker import until, working

PASSWORD = "correct-horse"
LOOK = "only-a-look"
BIG = 2**63
GROUP = "0123456789ab"


class Programs:
    """A program that asks the API, and holds each answer against the document."""

    def __init__(self, browser: Browser, **headers: str) -> None:
        self.browser, self.headers = browser, headers
        self.document: Any = json.loads(self.ask("openapi.json").text)
        self.asked = set[str]()

    def ask(self, path: str) -> Shown:
        return self.browser.get(f"/api/v1/{path}", **self.headers)

    def get(self, path: str, pattern: str = "") -> Any:
        """The answer, which is as the document says."""
        shown = self.ask(path)
        assert shown.status == 200, (path, shown.text)
        found = json.loads(shown.text)
        place = pattern or path.partition("?")[0]
        self.asked.add(place)
        self.check(found, self.document["paths"][f"/{place}"]["get"])
        return found

    def check(self, found: Any, operation: Any, status: str = "200") -> None:
        [content] = operation["responses"][status]["content"].values()
        schema = {"components": self.document["components"], **content["schema"]}
        Draft202012Validator(schema).validate(found)

    def post(self, which: str, page: str, act: str, *names: str, reason: str = "", **headers: str) -> tuple[int, Any]:
        """An act or a plan, sent by no browser."""
        body = json.dumps({"page": page, "act": act, "names": names} | ({"reason": reason} if reason else {}))
        shown = self.send(which, body, **headers)
        found = json.loads(shown.text)
        self.check(found, self.document["paths"][f"/{which}"]["post"], str(shown.status))
        return shown.status, found

    def send(self, which: str, body: str, **headers: str) -> Shown:
        said = {"content_type": "application/json", **self.headers, **headers}
        return self.browser.send(f"/api/v1/{which}", body.encode(), said)


@pytest.fixture
def rich(shop: App, tmp_path: Path) -> Iterator[App]:
    """``shop`` with something behind every endpoint: a batch in history, a workflow, ordered ids, keys, an error."""
    app = App(redis_url=shop.config.redis_url, database_url=f"sqlite:///{tmp_path / 'history.sqlite'}")
    app.open_history().upgrade()

    @app.job(name="shop.create", retry=0)
    def create(sku: str) -> str:
        if sku == "bad":
            raise Failure("no such sku")
        if sku == "worse":
            raise RuntimeError("the catalogue burns")
        return sku

    @app.job(name="shop.pay", key="order", once=True)
    def pay(order: str) -> None: ...

    @app.job(name="shop.ship", after=pay, key="order")
    def ship(order: str) -> None: ...

    @app.ordered(queue="prices", name="shop.price")
    def price(claim: dict[str, list[Any]]) -> None: ...

    app.cron("0 3 * * *", name="nightly", args=("good",))(create)
    with app.batch("Import") as batch:
        create.enqueue_many([("good",), ("bad",), ("worse",)])
    with app.workflow("Order") as flow:
        flow.add(create.call("later"), name="second", after=[flow.add(create.call("now"), name="first")])
    ship.enqueue("A-1")
    pay.using(delay=3600).enqueue("A-1")
    price.push("sku-1", {"price": BIG}, score=1)
    with working(app):
        until(lambda: app.batch_status(batch.id).state == "complete", "the batch is complete")
        until(lambda: app.batch_status(flow.id).state == "complete", "the workflow is complete")
        until(lambda: app.connections.run(command("ZCARD", app.keys.errors)), "the error is in its group")
        until(lambda: not app.connections.run(command("XLEN", app.keys.history)), "it is recorded")
    app.shown = batch.id, flow.id  # type: ignore[attr-defined]
    yield app
    app.close()


@pytest.fixture
def programs(rich: App) -> Programs:
    return Programs(Browser(rich.console()))


def test_the_document_is_a_document_and_knows_every_endpoint(browser: Browser) -> None:
    document = json.loads(browser.get("/api/v1/openapi.json").text)
    validate(document)
    assert set(document["paths"]) == {f"/{one.path}" for one in ENDPOINTS} | {"/acts", "/plans"}
    operations = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(set(operations)) == len(operations)
    for one in ENDPOINTS:
        told = document["paths"][f"/{one.path}"]["get"]["parameters"]
        assert {each["name"] for each in told} == {*re.findall(r"{(\w+)}", one.path), *one.parameters}


def test_every_endpoint_answers_as_the_document_says(programs: Programs, rich: App) -> None:
    batch, flow = rich.shown  # type: ignore[attr-defined]
    gone, keys = "gone:1:00ff", rich.keys
    rich.connections.run(command("SADD", keys.lists_of(gone), keys.in_flight(gone, 1, "mail")))
    assert programs.get("processes/gone~3A1~3A00ff", "processes/{identity}")["in_flight"] == [
        {"queue": "mail", "jobs": 0}
    ]
    rich.connections.run(limits.declare(keys, [("c", "bank", 2, 0.0)]))
    rich.connections.run(command("SADD", keys.taken("bank"), "A-1"))
    rich.connections.run(command("HSET", keys.places("bank", "A-1"), "f" * 24, f"1 {time.time()}"))
    run(rich.connections, save_view(keys, "dead", "cards", {"q": "card"}))
    ends = days.DayEnds()
    ends.dead.append(days.EndedRow(1_795_251_930.0, "f" * 24, "shop.charge", "CardDeclined", "no"))
    rich.connections.run(commands(*days.add(keys, {"2026-11-21": ends})))
    for path in (
        *("overview", "findings", "processes", "running", "queues", "retries", "scheduled", "dead", "ordered"),
        *(
            "batches",
            "keys",
            "limits",
            "pauses",
            "blocked",
            "crons",
            "metrics",
            "history",
            "days",
            "audit",
            "operations",
            "system",
            "acts",
            "views",
            "errors",
        ),
    ):
        assert "items" in programs.get(path) or path == "overview"
    assert programs.get("search?q=shop", "search")["items"]
    group = programs.get("errors")["items"][0]["id"]
    assert "the catalogue burns" in programs.get(f"errors/{group}", "errors/{id}")["message"]
    [dead] = programs.get("days/2026-11-21?source=server", "days/{day}")["items"]
    assert (dead["error_class"], dead["ended_at"][:7]) == ("CardDeclined", "2026-11")
    assert programs.get("queues/mail", "queues/{name}")["size"] == 12
    assert programs.get("queues/mail/tenants", "queues/{name}/tenants")["items"] == []
    assert programs.get("queues/mail/jobs", "queues/{name}/jobs")["items"][0]["class"] == "shop.mail"
    assert programs.get(f"jobs/{DEAD}", "jobs/{jid}")["state"] == "dead"
    [blocked] = programs.get("blocked")["items"]
    assert blocked["job"]["class"] == "shop.ship"
    told = programs.get(f"jobs/{blocked['jid']}/why", "jobs/{jid}/why")
    assert "shop.pay" in told["obstacles"][0]["text"]
    told = programs.get(f"jobs/{DEAD}/why", "jobs/{jid}/why")
    assert told["explained"].startswith("dead since ")
    assert told["command"] == f"henchman dead retry {DEAD}"
    assert told["act"] == {"page": "dead", "act": "retry", "names": [DEAD]}
    assert programs.get("ordered/prices", "ordered/{name}")["name"] == "prices"
    for by in ("time", "busy", "retry", "morgue"):
        programs.get(f"ordered/prices/ids?by={by}", "ordered/{name}/ids")
    assert programs.get(f"batches/{batch}", "batches/{id}")["counts"]["failed"] == 1
    jobs = programs.get(f"batches/{batch}/jobs?status=failed", "batches/{id}/jobs")["items"]
    assert [one["message"] for one in jobs] == ["no such sku"]
    steps = programs.get(f"batches/{flow}/steps", "batches/{id}/steps")["items"]
    assert [(one["name"], one["result"]) for one in steps] == [("first", '"now"'), ("second", '"later"')]
    assert programs.get("limits")["items"][0]["name"] == "bank"
    assert programs.get("limits/bank", "limits/{name}")["parts"] == [{"by": "A-1", "used": 1, "waiting": 0}]
    assert programs.get("limits/bank/A-1", "limits/{name}/{by}")["holders"][0]["jid"] == "f" * 24
    assert programs.get("keys/shop.pay", "keys/{scope}")["items"][0]["key"] == "A-1"
    assert programs.get("keys/shop.pay/A-1", "keys/{scope}/{key}")["items"][0]["phase"] == "once"
    assert programs.get("metrics/shop.create", "metrics/{name}")["items"][0]["processed"] == 5
    assert len(programs.get("crons/nightly", "crons/{name}")["next"]) == 10
    assert sum(programs.get("retries/due")["counts"]) == 1
    assert programs.get("scheduled/due?span=day", "scheduled/due")["step"] == 1800
    missing = {one.path for one in ENDPOINTS} - programs.asked
    others = {"ordered/{name}/ids/{id}", "operations/{id}"}
    assert missing == others, "its id has run: see the next test; nothing was done in bulk: see the one on acts"


def test_whole_numbers_of_any_size_and_wild_text(browser: Browser, shop: App) -> None:
    programs = Programs(browser)

    @shop.ordered(queue="rates", name="shop.rate")
    def rate(claim: dict[str, list[Any]]) -> None: ...

    rate.push("x/ü?", {"n": BIG}, score=1)
    one = programs.get(f"jobs/{RETRY}", "jobs/{jid}")
    assert json.loads(one["args"]) == [BIG, XSS]
    found = programs.get(f"ordered/rates/ids/{tilde('x/ü?')}", "ordered/{name}/ids/{id}")
    assert json.loads(found["payloads"][0]["payload"]) == {"n": BIG}
    assert programs.get("queues/" + tilde("odd/ü?#<b>"), "queues/{name}")["size"] == 1
    shop.connections.run(command("LPUSH", shop.keys.queue("mail"), b"\xff{"))
    items = programs.get("queues/mail/jobs?limit=100", "queues/{name}/jobs")["items"]
    assert items[-1]["problem"]
    assert items[-1]["payload"] == "\\xff{"
    lone = encode({"class": "lone", "jid": "a" * 24, "args": []}).replace(b"lone", b"\\ud800")
    shop.connections.run(command("LPUSH", shop.keys.queue("mail"), lone))
    programs.get("queues/mail/jobs?limit=100", "queues/{name}/jobs")


def test_secret_arguments_are_masked(browser: Browser) -> None:
    text = browser.get("/api/v1/queues/mail/jobs").text
    assert "4111-1111" not in text


def test_pages_are_gone_through_with_next(browser: Browser) -> None:
    programs = Programs(browser)
    seen, path = [], "queues/mail/jobs?limit=5"
    for _ in range(5):
        page = programs.get(path, "queues/{name}/jobs")
        seen += [one["jid"] for one in page["items"]]
        if page["next"] is None:
            break
        path = f"queues/mail/jobs?limit=5&cursor={page['next']}"
    assert len(seen) == len(set(seen)) == page["total"] == 12


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("nonsense", 404, "openapi.json"),
        ("queues/mail/nonsense", 404, "openapi.json"),
        ("queues/never", 404, "nothing was ever pushed"),
        ("jobs/" + "9" * 24, 404, ""),
        ("errors/nonsense", 404, "no error"),
        ("batches/nonsense", 404, "no batch"),
        ("batches/a%3Ab", 404, "no batch"),
        ("ordered/never/ids/x", 404, "nothing is known"),
        ("dead?limit=0", 400, "limit='0'"),
        ("dead?limit=101", 400, str(LIMIT_MOST)),
        ("dead?limit=%D9%A3", 400, "limit="),
        ("dead?limit=1&limit=2", 400, "twice"),
        ("dead?cursor=7", 400, "cursor='7'"),
        ("dead?cursor=c99999999999999999999", 400, "cursor="),
        ("dead?cursor=c9223372036854775808", 400, "cursor="),
        ("dead?limt=3", 400, "limit"),
        ("dead?q=" + "x" * 201, 400, "200"),
        ("batches?show=nonsense", 400, "open, bad, steps"),
        ("metrics?hours=73", 400, "hours='73'"),
        ("metrics?hours=1&minutes=1", 400, "one of them"),
        ("overview?x=1", 400, "there is none"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_name(browser: Browser, path: str, status: int, word: str) -> None:
    shown = browser.get(f"/api/v1/{path}")
    found = json.loads(shown.text)
    assert (shown.status, found["status"]) == (status, status), found
    assert shown.headers["content-type"] == "application/problem+json"
    assert word in found["detail"]


def test_history_that_is_off_says_so(browser: Browser) -> None:
    shown = browser.get("/api/v1/history")
    assert shown.status == 404
    assert "database_url" in json.loads(shown.text)["detail"]


def test_a_search_that_makes_no_sense(programs: Programs) -> None:
    assert programs.ask("history?q=clas%3Ax").status == 400
    assert programs.get("history?q=class%3Ashop.create", "history")["items"]


# ---- acts


def test_an_act_is_planned_done_and_written_down(browser: Browser, shop: App) -> None:
    programs = Programs(browser)
    status, plan = programs.post("plans", "dead", "delete", DEAD)
    assert (status, plan["question"]) == (200, "It is gone for good.")
    assert shop.dead.size() == 1
    status, done = programs.post("acts", "dead", "retry", DEAD)
    assert (status, done["said"]) == (200, f"{DEAD} is enqueued")
    assert shop.queues["pay"].size() == 1
    status, problem = programs.post("acts", "dead", "retry", DEAD)
    assert (status, problem["detail"]) == (409, f"{DEAD} is not among the dead any more")
    page = run(shop.connections, audit.audited(shop.keys, "", 0, 5))
    assert [(one.act, one.outcome) for one in page.entries] == [("retry", "refused"), ("retry", "done")]


def test_many_are_acted_on_by_a_search(browser: Browser, shop: App) -> None:
    programs = Programs(browser)
    moment = str(int(time.time()))
    _, plan = programs.post("plans", "dead", "retry-found", "CardDeclined", moment)
    assert "1 dead job" in plan["question"]
    _, done = programs.post("acts", "dead", "retry-found", "CardDeclined", moment)
    assert done["operation"] == "1"
    until(lambda: shop.queues["pay"].size() == 1, "the operation has ended")
    one = programs.get("operations/1", "operations/{id}")
    assert (one["result"], one["author"]) == ("1 job put into their queues", "127.0.0.1")
    assert [each["id"] for each in programs.get("operations")["items"]] == ["1"]
    assert programs.get("audit")["items"][0]["operation"] == "1"
    assert browser.get("/api/v1/operations/2").status == 404


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ("", "this is no wish"),
        ("[]", "this is no wish"),
        ('{"page": "dead"}', "act"),
        ('{"page": "dead", "act": "retry", "names": "x"}', "names"),
        ('{"page": "dead", "act": "retry", "names": []}', "names has 0"),
        ('{"page": "dead", "act": "retry", "names": ["a", "b", "c"]}', "names has 3"),
        ("{" * 3000, "this is no wish"),
        (json.dumps({"page": "dead", "act": "retry", "names": ["x" * 140_000]}), "131,072"),
    ],
)
def test_a_wish_that_is_none(browser: Browser, body: str, word: str) -> None:
    shown = Programs(browser).send("acts", body)
    assert shown.status == 400, shown.text
    assert word in json.loads(shown.text)["detail"]


def test_an_act_that_there_is_not(browser: Browser) -> None:
    status, problem = Programs(browser).post("acts", "dead", "resurrect", DEAD)
    assert (status, problem["detail"]) == (409, "nothing is called resurrect on this page")


def test_an_act_on_too_many_names(browser: Browser) -> None:
    status, problem = Programs(browser).post("acts", "dead", "retry", DEAD, DEAD)
    assert (status, problem["detail"]) == (409, "retry is no act on 2 names")
    assert browser.act("/dead", f"/dead/{DEAD}/{DEAD}/do/retry").status == 409
    assert browser.get(f"/dead/{DEAD}/{DEAD}/do/delete").status == 409


def test_every_act_of_the_pages_is_listed(browser: Browser) -> None:
    listed = {(one["page"], one["act"]) for one in Programs(browser).get("acts")["items"]}
    assert {("dead", "retry"), ("queues", "pause"), ("batches", "cancel"), ("dead", "retry-found")} < listed


def test_a_pause_keeps_the_reason_and_who_said_it(programs: Programs) -> None:
    status, _ = programs.post("acts", "queues", "pause", "mail", reason="the <b>provider</b>")
    assert status == 200
    pause = programs.get("queues/mail", "queues/{name}")["pause"]
    assert (pause["by"], pause["reason"]) == ("127.0.0.1", "the <b>provider</b>")
    assert pause in [one["pause"] for one in programs.get("queues")["items"]]
    [found] = [one for one in programs.get("findings")["items"] if one["kind"] == "paused"]
    assert "by 127.0.0.1" in found["evidence"]
    assert "the <b>provider</b>" in found["evidence"]
    status, problem = programs.post("acts", "queues", "pause", "mail", reason="x" * 300)
    assert (status, "say it in 200" in problem["detail"]) == (409, True)
    programs.post("acts", "queues", "resume", "mail")
    assert programs.get("queues/mail", "queues/{name}")["pause"] is None


# ---- who may


def closed(shop: App) -> Any:
    return App(redis_url=shop.config.redis_url, console_password=PASSWORD, console_look_password=LOOK).console()


def test_a_password_opens_as_a_bearer(shop: App) -> None:
    browser = Browser(closed(shop), client="10.0.0.7", host="console.example")
    shown = browser.get("/api/v1/dead")
    assert shown.status == 401
    assert shown.headers["www-authenticate"].startswith("Bearer")
    looks = Programs(browser, authorization=f"Bearer {LOOK}")
    assert looks.get("dead")["total"] == 1
    status, problem = looks.post("acts", "dead", "delete", DEAD)
    assert (status, problem["detail"]) == (403, "you may look here, and not act")
    assert looks.post("plans", "dead", "delete", DEAD)[0] == 200
    assert Programs(browser, authorization=f"Bearer {PASSWORD}").post("acts", "dead", "delete", DEAD)[0] == 200
    assert shop.dead.size() == 0
    assert "set-cookie" not in browser.get("/api/v1/dead", authorization=f"Bearer {LOOK}").headers


def test_a_wrong_password_is_tried_five_times(shop: App) -> None:
    browser = Browser(closed(shop), client="10.0.0.7", host="console.example")
    for _ in range(5):
        assert browser.get("/api/v1/dead", authorization="Bearer guess").status == 401
    assert browser.get("/api/v1/dead", authorization=f"Bearer {PASSWORD}").status == 401, "for a minute"


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"cookie": "henchman_console=x"},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "same-origin", "x_henchman_token": "guess"},
    ],
)
def test_no_page_of_another_site_acts_through_a_browser(browser: Browser, shop: App, headers: dict[str, str]) -> None:
    status, _ = Programs(browser).post("acts", "dead", "delete", DEAD, **headers)
    assert status == 403
    assert shop.dead.size() == 1


def test_a_form_of_another_site_is_no_json(browser: Browser, shop: App) -> None:
    body = json.dumps({"page": "dead", "act": "delete", "names": [DEAD]})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert Programs(browser).send("acts", body, content_type=kind).status == 400
    assert shop.dead.size() == 1


def test_a_page_of_ours_acts_with_its_token(browser: Browser, shop: App) -> None:
    token = browser.token("/dead")
    headers = {"sec_fetch_site": "same-origin", "x_henchman_token": token}
    assert Programs(browser).post("acts", "dead", "delete", DEAD, **headers)[0] == 200
    assert shop.dead.size() == 0


def test_only_this_machine_without_a_password(shop: App) -> None:
    browser = Browser(shop.console(), client="10.0.0.7", host="console.example")
    for path in ("dead", "openapi.json"):
        assert browser.get(f"/api/v1/{path}").status == 403
    body = json.dumps({"page": "dead", "act": "delete", "names": [DEAD]}).encode()
    assert browser.send("/api/v1/acts", body, {"content_type": "application/json"}).status == 403
    assert shop.dead.size() == 1


def test_other_methods(browser: Browser) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert browser.get("/api/v1/dead", method).status == 405
    assert browser.get("/api/v1/dead", "HEAD").status == 200


def test_a_search_looks_at_so_many_a_page_and_every_match_is_told_once(app: App, browser: Browser) -> None:
    with_text = {17, 18, 19, 20_500, 41_000}
    rows = list[Any]()
    for one in range(41_001):
        job = {"class": "shop.find" if one in with_text else "shop.other", "jid": f"{one:024}", "args": []}
        rows += (-one, encode(job))  # the dead are told the latest first: one after the other
    for start in range(0, len(rows), 20_000):
        app.connections.run(command("ZADD", app.keys.dead, *rows[start : start + 20_000]))
    found, cursor, pages = list[int](), "", 0
    while cursor is not None:
        page = json.loads(browser.get(f"/api/v1/dead?q=shop.find&limit=2{cursor and f'&cursor={cursor}'}").text)
        assert len(page["items"]) <= 2
        found += [int(one["jid"]) for one in page["items"]]
        cursor, pages = page["next"], pages + 1
    assert found == sorted(with_text)
    assert pages < 8


def test_what_is_asked_has_a_bound_that_is_said(browser: Browser) -> None:
    refused = browser.get(f"/api/v1/dead?q={'x' * 201}")
    assert refused.status == 400
    assert "q has 201 characters: give 200 at most" in refused.text
    assert browser.get(f"/api/v1/dead?q={'x' * 200}").status == 200


@pytest.mark.parametrize("path", ["errors", "processes", "ordered", "crons"])
def test_every_list_has_pages(shop: App, browser: Browser, path: str) -> None:
    lists = {
        "errors": lambda at: shop.connections.run(group_errors(shop.keys, [group(f"g{at}", time.time())], time.time())),
        "processes": lambda at: alive(shop, f"host-{at}:1:{at:012}"),
        "ordered": lambda at: shop.connections.run(command("SADD", shop.keys.ordered_queues, f"o{at}")),
        "crons": lambda at: shop.crons.add(f"c{at}", "shop.mail", every=3600, queue="mail", args=[at]),
    }
    for at in range(5):
        lists[path](at)
    first = json.loads(browser.get(f"/api/v1/{path}?limit=3").text)
    assert (len(first["items"]), first["total"]) == (3, 5)
    rest = json.loads(browser.get(f"/api/v1/{path}?limit=3&cursor={first['next']}").text)
    assert (len(rest["items"]), rest["next"]) == (2, None)
    assert not [one for one in first["items"] if one in rest["items"]]
    assert browser.get(f"/api/v1/{path}?limit=101").status == 400


def alive(app: App, identity: str) -> None:
    app.connections.run(command("SADD", app.keys.processes, identity))
    app.connections.run(command("HSET", identity, "info", "{}", "beat", repr(time.time())))
