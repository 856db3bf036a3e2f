"""The console inside FastAPI, Flask and Django, on real servers: every link, an act, and who may come in."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import pytest

from henchman import App
from support.browsing import DEAD, Shown
from support.mounts import MOUNTS, SHOP


class Mounted(NamedTuple):
    """A console: ``site`` is the address of its server, ``at`` where it stands there."""

    site: str
    at: str

    def ask(self, path: str, fields: dict[str, str] | None = None, **headers: str) -> Shown:
        """GET, or POST of a form. No redirection is followed."""
        line = http.client.HTTPConnection(urlsplit(self.site).netloc, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        body = None if fields is None else urlencode(fields)
        if fields is not None:
            sent = {"Origin": self.site, "Content-Type": "application/x-www-form-urlencoded"} | sent
        line.request("GET" if fields is None else "POST", path, body, sent)
        answer = line.getresponse()
        shown = Shown(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        line.close()
        return shown


@pytest.fixture(params=MOUNTS)
def mounted(shop: App, request: pytest.FixtureRequest) -> Iterator[Mounted]:
    with MOUNTS[request.param](shop.console()) as (site, at):
        yield Mounted(site, at)


def test_every_page_and_file_is_found_and_no_link_leaves_the_place(mounted: Mounted) -> None:
    if mounted.at:
        assert SHOP in mounted.ask("/").text
    seen, ahead = set[str](), [f"{mounted.at}/"]
    while ahead:
        path = ahead.pop()
        seen.add(path)
        shown = mounted.ask(path)
        assert shown.status in (200, 303), (path, shown.status)
        assert shown.headers["x-frame-options"] == "DENY", path
        if not shown.headers["content-type"].startswith("text/html"):
            continue
        for link in shown.links:
            assert link.startswith((f"{mounted.at}/", "#")), (path, link)
            where = re.sub("#.*", "", link)
            if where and where not in seen and where not in ahead and not re.search("/do/|/logout$|/find$", where):
                ahead.append(where)
    paths = {one.partition("?")[0] for one in seen}
    assert {f"{mounted.at}/dead", f"{mounted.at}/jobs/{DEAD}", f"{mounted.at}/queues/odd~2F~C3~BC~3F~23~3Cb~3E"} < paths
    assert any(one.endswith("/console.js") for one in seen)


def test_an_act_is_done_once_and_only_for_our_own_page(mounted: Mounted, shop: App) -> None:
    page = mounted.ask(f"{mounted.at}/dead")
    session = page.headers["set-cookie"].partition(";")[0]
    found = re.search(r'name="token" value="([0-9a-f]+)"', page.text)
    assert found is not None
    form, path = {"token": found[1]}, f"{mounted.at}/dead/{DEAD}/do/retry"
    assert mounted.ask(path, form, Cookie=session, Origin="https://evil.example").status == 403
    assert mounted.ask(path, form).status == 403
    assert shop.dead.size() == 1
    done = mounted.ask(path, form, Cookie=session)
    assert done.status == 303
    assert done.headers["location"].startswith(f"{mounted.at}/dead?said=")
    assert f"{DEAD} is enqueued" in mounted.ask(done.headers["location"], Cookie=session).words
    assert (shop.dead.size(), shop.queues["pay"].size()) == (0, 1)


def test_who_calls_it_by_another_name_is_not_answered(mounted: Mounted) -> None:
    assert mounted.ask(f"{mounted.at}/", Host="evil.example").status == 403
