"""Every page with very much of everything: how often it asks the server, how large it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis

from henchman.console.site import Console
from support.browsing import Browser
from support.crowded import FEW, MANY, Crowd, crowded
from support.server import running_server

TRIPS: Final = 3
BYTES: Final = 60_000
NODES: Final = 2500
TIMES: Final = 4  # as long as a bare client needs for the records of the processes

#: page and how many names follow in its address → addresses to look at; a page that is not here fails the test
PAGES: Final[dict[tuple[str, int], tuple[str, ...]]] = {
    ("", 0): ("/",),
    ("findings", 0): ("/findings",),
    ("errors", 0): ("/errors", "/errors?show=new", "/errors?q=Failure7"),
    ("errors", 1): ("/errors/{error}",),
    ("busy", 0): ("/busy", "/busy?p=3"),
    ("processes", 1): ("/processes/{process}", "/processes/{process}?p=2"),
    ("queues", 0): ("/queues", "/queues?p=2", "/queues?q=shop"),
    ("queues", 1): ("/queues/mail", "/queues/mail?p=3", "/queues/mail?q=nothing+like+this", "/queues/none"),
    ("batches", 0): ("/batches", "/batches?q=shop", "/batches?show=bad"),
    ("batches", 1): (
        "/batches/{batch}",
        "/batches/{batch}?status=failed",
        "/batches/{batch}?view=waterfall",
        "/batches/{workflow}",
    ),
    ("ordered", 0): ("/ordered",),
    ("ordered", 1): (
        *("/ordered/products", "/ordered/products?by=busy", "/ordered/products?by=retry", "/ordered/products?p=5"),
        *("/ordered/products?by=morgue", "/ordered/products?q=sku-7"),
    ),
    ("ordered", 2): ("/ordered/products/{id}", "/ordered/products/sku-3"),
    ("retries", 0): ("/retries", "/retries?p=4", "/retries?q=charge", "/retries?q=nothing+like+this"),
    ("scheduled", 0): ("/scheduled",),
    ("dead", 0): ("/dead", "/dead?p=4", "/dead?q=nothing+like+this"),
    ("blocked", 0): ("/blocked", "/blocked?show=stuck"),
    ("keys", 0): ("/keys",),
    ("keys", 1): ("/keys/{scope}",),
    ("keys", 2): ("/keys/{scope}/{key}", "/keys/{scope}/1"),
    ("pauses", 0): ("/pauses",),
    ("limits", 0): ("/limits", "/limits?p=2", "/limits?q=bank"),
    ("limits", 1): ("/limits/shop.bank", "/limits/shop.bank?p=3", "/limits/shop.limit0"),
    ("limits", 2): ("/limits/shop.bank/account-7", "/limits/shop.bank/nobody"),
    ("crons", 0): ("/crons", "/crons?p=2"),
    ("crons", 1): ("/crons/{cron}",),
    ("metrics", 0): ("/metrics", "/metrics?by=8", "/metrics?by=24"),
    ("metrics", 1): ("/metrics/shop.job7",),
    ("history", 0): (
        *("/history", "/history?q=status:failed"),
        "/history?columns=enqueued,state,queue,runs,waited,ran,batch,ended,process,tags,result",
    ),
    ("days", 0): ("/days", "/days?source=server"),
    ("days", 1): (
        *("/days/{day}", "/days/{day}?status=error", "/days/{day}?p=2", "/days/{day}?source=server"),
        "/days/{day}?job=shop.job1&source=server",
    ),
    ("operations", 0): ("/operations", "/operations?p=2"),
    ("operations", 1): ("/operations/1",),
    ("audit", 0): ("/audit", "/audit?p=2", "/audit?q=retry"),
    ("jobs", 1): ("/jobs/{dead}", "/jobs/{retry}", "/jobs/{blocked}", "/jobs/{queued}", "/jobs/{running}"),
    ("system", 0): ("/system",),
    ("search", 0): ("/search", "/search?q=charge", "/search?q=nothing+like+this", "/search?q=charge&look=20000"),
}
#: pages of jobs that the server has nothing of, or that the first look does not find, and steps of the search
UNKNOWN: Final = ("/jobs/{unknown}", "/jobs/{member}", "/jobs/{unknown}?look=all", "/jobs/{unknown}?look=queues.2000")
FILES: Final = {("batches", 2), ("jobs", 2), ("days", 2)} | {
    (one, 1) for one in ("retries", "scheduled", "dead", "history")
}  # parts of any number


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    with running_server() as server, crowded(server.url, tmp_path_factory.mktemp("crowd"), FEW) as made:
        yield made


@pytest.fixture(scope="module")
def site(crowd: Crowd) -> Console:
    made: Any = crowd.app.console()
    Browser(made).get("/batches")  # saved views are looked up twice a minute, for all pages
    return made  # type: ignore[no-any-return]


def test_every_page_is_listed(site: Console) -> None:
    assert set(PAGES) | FILES == set(site._views), "a page that is not listed here is not measured"


@pytest.mark.parametrize("page", PAGES, ids=lambda one: f"{one[0]}-{one[1]}")
def test_a_page_asks_three_times_and_is_small(
    crowd: Crowd, site: Console, page: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, asked = Browser(site), list[str]()
    kind: Any = type(crowd.app.connections)
    plain = kind.run

    def counting(self: Any, call: Any) -> Any:
        ours = threading.current_thread().name.startswith("henchman-")  # who carries out operations asks beside
        if self is crowd.app.connections and not ours:  # and of no worker that an earlier test left
            asked.append(call.name)
        return plain(self, call)

    monkeypatch.setattr(kind, "run", counting)
    wrong = []
    for address in map(crowd.path, PAGES[page] + (UNKNOWN if page == ("jobs", 1) else ())):
        asked.clear()
        shown = browser.get(address)
        nodes = shown.text.count("<") - shown.text.count("</")
        assert shown.status == (404 if crowd.path("{unknown}") in address else 200), (address, shown.words)
        if len(asked) > TRIPS or len(shown.body) > BYTES or nodes > NODES:
            wrong.append(f"{address}: {len(asked)} calls {asked[:9]}, {len(shown.body):,} bytes, {nodes:,} nodes")
    assert not wrong, "\n".join(wrong)
    if page == ("jobs", 1):
        return
    hundred = browser.get(f"{crowd.path(PAGES[page][0])}?n=100").text
    assert hundred.count("<") - hundred.count("</") <= NODES, "on a list of a hundred"


@pytest.mark.scale("a million jobs, a hundred thousand of all else, a thousand processes")
@pytest.mark.timeout(600)
def test_every_page_of_a_large_server_is_quick(tmp_path: Path) -> None:
    """Of 20 looks 19 take 100 ms at most, or, where the machine is busy with other things, ``TIMES`` as long as a bare
    client needs at that time to read the records of a thousand processes and no more. A page that takes longer is
    looked at again when the others were."""
    with running_server() as server, crowded(server.url, tmp_path, MANY) as crowd:
        browser, bare = Browser(crowd.app.console()), Redis.from_url(server.url)

        def took(address: str) -> tuple[float, float]:
            """Seconds: of the 19th of 20 looks, and what would have been enough."""
            browser.get(crowd.path(address))
            before = _seconds(2, lambda: _read_records(bare, crowd))
            looks = _seconds(20, lambda: browser.get(crowd.path(address)))
            after = _seconds(2, lambda: _read_records(bare, crowd))
            return looks[18], max(0.1, TIMES * max(before[1], after[1]))

        addresses = [one for several in (*PAGES.values(), UNKNOWN) for one in several]
        first = {address: took(address) for address in addresses}
        slow = [address for address, (seconds, enough) in first.items() if seconds > enough]
        again = {address: took(address) for address in slow}
    shown = {
        address: f"{a * 1000:7.1f} ms of {b * 1000:5.0f}  {address}" for address, (a, b) in (first | again).items()
    }
    print(*shown.values(), sep="\n")
    assert not [shown[address] for address, (seconds, enough) in again.items() if seconds > enough]


def _seconds(times: int, do: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        do()
        taken.append(time.perf_counter() - began)
    return sorted(taken)


def _read_records(bare: Any, crowd: Crowd) -> None:
    keys = crowd.app.keys
    with bare.pipeline(transaction=False) as asked:
        for one in bare.smembers(keys.processes):
            asked.hgetall(keys.process(one.decode())).hgetall(keys.work(one.decode()))
        asked.execute()
