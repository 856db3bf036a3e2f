"""What other packages add to the console: a package with entry points, as it is installed, and what it may do wrong."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from redis import Redis

from henchman import App
from henchman.console.extensions import Extensions
from henchman.inspector.base import Entry
from support.browsing import DEAD, XSS, Browser
from support.garbage import payload

MODULE = """
import time
from markupsafe import Markup
from henchman.web.extension import Extension, ExtensionFile, Fact, Trouble

XSS = {xss!r}


class Evil:
    def __html__(self):
        raise ValueError("no HTML today")


class Billing(Extension):
    title = "Billing"

    def page(self, path, query):
        match list(path):
            case []:
                return Markup("<h2>{{}}</h2><script src='static/app.js'></script>").format(query.get("shop", "none"))
            case ["plain"]:
                return "as text: " + XSS
            case ["static", "app.js"]:
                return ExtensionFile(b"1", "text/javascript; charset=utf-8")
            case ["odd"]:
                return ExtensionFile(b"1", "text/html\\r\\nX-Evil: 1")
            case ["evil"]:
                return Evil()
            case ["text"]:
                return ExtensionFile("no bytes", "text/plain")
            case ["raises"]:
                raise ValueError("no money " + XSS)

    def facts(self, job):
        yield Fact("Invoice", f"{{job.arguments[0]}} {{XSS}}", "https://billing.example/7")
        yield Fact("Evil", "link", "javascript:alert(1)")

    def troubles(self):
        return [Trouble("17 invoices wait. " + XSS, "since 03:00", "call the bank", "critical"), ("A tuple will do.",)]

    def call(self, job):
        return "charge shop " + str(job.arguments[0][0]) if job.name == "pay" else None


class Slow(Extension):
    title = "Slow"

    def page(self, path, query):
        time.sleep(30)  # it hangs: the console waits for 0.3 s

    def troubles(self):
        raise RuntimeError("no troubles today")

    def call(self, job):
        return 7


class Busy(Extension):
    def facts(self, job):
        time.sleep(0.25)  # not long enough to be given up
        return [Fact("Answered", "yes")]


class Broken(Extension):
    def __init__(self, app):
        raise OSError("no configuration")


def not_one(app):
    return 7
"""

POINTS = """
[henchman.console]
billing = {module}:Billing
broken = {module}:Broken
busy = {module}:Busy
foreign = {module}:not_one
missing = {module}_that_is_not_there:Any
slow = {module}:Slow
../../up here = {module}:Slow
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package as an installer leaves it."""
    name = "shop_billing"
    (tmp_path / f"{name}.py").write_text(dedent(MODULE.format(xss=XSS)))
    info = tmp_path / "shop_billing-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-billing\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS.format(module=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("henchman.console.extensions._WAIT", 0.3)
    yield
    sys.modules.pop(name, None)


@pytest.fixture
def browser(package: None, app: App, redis: Redis) -> Browser:
    redis.zadd("dead", {payload(DEAD, **{"class": "pay", "args": [77], "error_class": "E"}): time.time() - 5})
    redis.zadd("dead", {payload("e" * 24, **{"class": "other", "args": [1], "error_class": "E"}): time.time() - 6})
    return Browser(app.console())


def test_a_page_of_its_own(browser: Browser) -> None:
    start = browser.get("/system")
    assert [one for one in start.links if "/x/" in one] == ["/x/billing", "/x/slow"], "in the navigation"
    page = browser.get("/x/billing?shop=77%3Cb%3E")
    assert page.status == 200
    assert re.search(r'href="/x/billing"[^>]* aria-current="page"', page.text)
    assert "<h2>77&lt;b&gt;</h2>" in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    plain = browser.get("/x/billing/plain")
    assert "as text: <script>" in plain.words
    assert "<script>alert" not in plain.text
    script = browser.get("/x/billing/static/app.js")
    assert (script.status, script.body) == (200, b"1")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.headers["x-content-type-options"] == "nosniff"
    assert browser.get("/x/billing/odd").headers["content-type"] == "application/octet-stream"
    for missing in ("/x/billing/other", "/x/nobody", "/x", "/x/broken", "/x/billing" + "/a" * 9):
        assert browser.get(missing).status == 404, missing


def test_who_may_not_look_sees_nothing_of_it(package: None, app: App) -> None:
    nobody = Browser(app.console(authorize=lambda request: None))
    for path in ("/x/billing", "/x/billing/static/app.js"):
        assert nobody.get(path).status in (303, 401, 403)


def test_what_raises_or_hangs_takes_no_page_with_it(browser: Browser) -> None:
    page = browser.get("/x/billing/raises")
    assert page.status == 502
    assert "It has nothing to show: ValueError: no money" in page.words
    assert "<script>alert" not in page.text
    assert "ValueError: no HTML today" in browser.get("/x/billing/evil").words
    assert "TypeError: an ExtensionFile has bytes" in browser.get("/x/billing/text").words
    assert browser.get("/x/billing").status == 200
    for _ in range(4):
        began = time.monotonic()
        assert "it did not answer within 0.3 s" in browser.get("/x/slow").words
    assert time.monotonic() - began < 0.25, "it is asked no more"
    assert browser.get("/").status == 200
    system = browser.get("/system").words
    assert (
        "billing 1.2 a page, facts of a job, findings, how calls are shown mend TypeError: an ExtensionFile" in system
    )
    assert "broken 1.2 – mend OSError: no configuration" in system
    assert "'../../up here' cannot name an extension: give 1 to 40 letters, digits, dots, _ or -" in system
    assert "foreign 1.2 – mend TypeError: shop_billing:not_one is no subclass of henchman.web.extension.Ext" in system
    assert "missing 1.2 – mend ModuleNotFoundError: No module named 'shop_billing_that_is_not_there'" in system
    assert (
        "slow 1.2 a page, findings, how calls are shown mend it did not answer within 0.3 s, and is asked no" in system
    )


def test_who_asks_a_slow_one_waits_for_no_long_row_of_others(package: None, app: App) -> None:
    extensions = Extensions(app, ["busy"])
    job = Entry(payload(DEAD))
    began, took, found = time.monotonic(), list[float](), list[str]()

    def ask() -> None:
        found.extend(one.text for one in extensions.facts(job))
        took.append(time.monotonic() - began)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(10)
    assert len(took) == 20
    assert max(took) < 2, "twenty in a row would take five seconds"
    assert 1 <= len(found) < 20
    assert "asked more often than it answers" in extensions.added()[0].problem
    assert [one.text for one in extensions.facts(job)] == ["yes"], "it is asked still"


def test_facts_findings_and_calls(browser: Browser) -> None:
    job = browser.get(f"/jobs/{DEAD}")
    assert "Invoice [77] <script>" in job.words
    assert "<script>alert" not in job.text
    assert "https://billing.example/7" in job.links
    assert "javascript:" not in job.text
    overview = browser.get("/")
    assert "billing 17 invoices wait." in overview.words
    assert "since 03:00 call the bank" in overview.words
    assert "A tuple will do." in overview.words
    assert overview.words.index("17 invoices wait.") < overview.words.index("A tuple will do."), "the worst first"
    assert any(one.startswith("/x/billing?about=") for one in overview.links)
    told = json.loads(browser.get("/api/v1/findings").text)["items"]
    assert [one["severity"] for one in told if one["kind"] == "billing"] == ["critical", "warning"]
    dead = browser.get("/dead")
    assert "charge shop 77" in dead.words
    assert "pay(77)" not in dead.words
    assert "other(1)" in dead.words


def test_a_finding_of_it_is_muted_as_any(browser: Browser) -> None:
    overview = browser.get("/")
    mute = next(one for one in overview.links if one.startswith("/findings/") and one.endswith("/do/mute"))
    assert browser.post(mute, {"token": browser.token(mute)}).status == 303
    assert "1 muted" in browser.get("/").words or "muted" in browser.get("/").words


@pytest.mark.parametrize("only", [[], ["slow"]])
def test_they_can_be_switched_off(package: None, redis_url: str, only: list[str]) -> None:
    app = App(redis_url=redis_url, console_extensions=only)
    try:
        system = Browser(app.console()).get("/system")
        assert "/x/billing" not in system.text
        assert ("/x/slow" in system.text, "no configuration" in system.words) == (bool(only), False)
        assert ("Extensions" in system.words) == bool(only)
    finally:
        app.close()


def test_without_extensions_nothing_is_shown_of_them(app: App) -> None:
    browser = Browser(app.console())
    assert "More" not in [word for word in browser.get("/system").words.split() if word == "More"]
    assert "Extensions" not in browser.get("/system").words
    assert browser.get("/x/billing").status == 404


def test_a_fork_asks_them_too(package: None, app: App) -> None:
    """A server that loads the application before it forks: the thread that was asked is not in the child."""
    extensions = Extensions(app, ["billing"])
    assert extensions.findings()
    if not (child := os.fork()):
        os._exit(len(extensions.findings()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
