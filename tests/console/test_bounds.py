"""However much there is: a page asks the server three times at most, and has at most 60 KB."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from henchman import App
from henchman.console.render import ASSETS, tilde
from henchman.inspector import audit
from henchman.store.call import run
from support.browsing import Browser

LONG = "x<é>" * 15


class Full:
    """Many of everything, with long names."""

    def __init__(self, app: App) -> None:
        self.app = app

        @app.job(name="full.entry", key="account", scope=LONG, unique="until_success", on_conflict="wait")
        def entry(account: str, note: str) -> None: ...

        @app.job(name="full.step")
        def step(n: int) -> None: ...

        @app.ordered(name="full.sync", queue="products")
        def sync(claim: Any) -> None: ...

        entry.enqueue_many([(f"{n % 150}{LONG}"[:180], LONG) for n in range(400)])
        sync.push_many([{"id": f"{n}{LONG}", "payload": {"note": LONG * 20}, "score": n} for n in range(400)])
        sync.push_many([{"id": "hot", "payload": {"n": n, "note": LONG * 20}, "score": n} for n in range(60)])
        app.ordered_queues["products"].kill(*(f"{n}{LONG}" for n in range(100)))
        with app.workflow(LONG, tags=[LONG]) as flow:
            last = [flow.add(step.call(0), name="first")]
            for n in range(59):
                last = [flow.add(step.call(n), name=f"{n}{LONG}"[:190], after=last)]
        self.flow = flow.id
        for n in range(60):
            batch = app.batch(f"{n}{LONG}", tags=[LONG])
            batch.open()
            batch.close()
        for _ in range(120):
            begun = run(app.connections, audit.begin(app.keys, "10.0.0.1", "retry", "dead", [LONG]))
            run(app.connections, audit.end(app.keys, begun, LONG * 3, done=True))


@pytest.fixture
def full(app: App) -> Full:
    return Full(app)


def test_no_page_asks_more_or_grows(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, asked = Browser(full.app.console()), list[str]()
    kind: Any = type(full.app.connections)
    plain = kind.run

    def counting(self: Any, call: Any, *rest: Any, **more: Any) -> Any:
        if self is full.app.connections:  # and of no worker that an earlier test left
            asked.append(call.name)
        return plain(self, call, *rest, **more)

    monkeypatch.setattr(kind, "run", counting)
    scope = tilde(LONG)
    key = tilde(f"7{LONG}"[:180])
    pages = [
        *("/", "/busy", "/queues", "/queues/default", "/queues/default?p=3", "/queues/none", "/retries", "/scheduled"),
        *("/dead", "/dead?q=x", "/crons", "/errors", "/errors/none", "/metrics", "/metrics?by=8", "/metrics?by=24"),
        *("/metrics/full.entry", "/login"),
        *("/batches", "/batches?p=2", "/batches?show=open", "/batches?q=x", f"/batches/{full.flow}"),
        *("/ordered", "/ordered/products", "/ordered/products?by=retry", "/ordered/products?by=morgue&p=2"),
        *("/ordered/products/hot", f"/ordered/products/{tilde('7' + LONG)}", "/ordered/products?by=busy"),
        *(
            "/keys",
            f"/keys/{scope}",
            f"/keys/{scope}/{key}",
            "/limits",
            "/blocked",
            "/blocked?show=stuck",
            "/history",
            "/audit",
            "/audit?p=3",
            "/audit?q=x",
        ),
    ]
    wrong = []
    for page in pages:
        asked.clear()
        shown = browser.get(page)
        assert shown.status in (200, 404), page
        if len(asked) > 3 or len(shown.body) > 60_000:
            wrong.append(f"{page[:40]}: {len(asked)} calls ({' '.join(asked)}), {len(shown.body):,} bytes")
    assert not wrong, "\n".join(wrong)


def test_all_javascript_is_small() -> None:
    scripts = b"".join(one.body for name, one in ASSETS.items() if name.endswith(".js"))
    assert 0 < len(gzip.compress(scripts)) < 60_000
