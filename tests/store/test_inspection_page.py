"""docs/inspection.md says what happens: its examples are run."""

from __future__ import annotations

import asyncio
import doctest
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from henchman import App
from henchman.store.ordered import Verdict
from support.ordered import FAR, OrderedQueue
from support.store import ME, Store

RETRY = ("retry", 1e6, 2, "Timeout: no answer")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "inspection.md"


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


def job(jid: str, *args: int, **more: Any) -> bytes:
    return json.dumps({"class": "mail.send", "args": args, "jid": jid, "queue": "mail", **more}).encode()


def fill(store: Store) -> None:
    """What the page shows."""
    now = store.now()
    failed = {"error_class": "Timeout", "error_message": "no answer"}
    store.push("mail", *[job(jid, n, enqueued_at=now - 5) for n, jid in enumerate("abc", 1)])
    store.ask("SADD", store.keys.queues, "reports")
    store.ask("ZADD", store.keys.retry, now + 60, job("r1", retry_count=0, **failed))
    store.ask("ZADD", store.keys.retry, now + 90, job("r2", retry_count=2, **failed))
    store.ask("ZADD", store.keys.schedule, now + 60, job("s1"))
    store.ask("ZADD", store.keys.dead, now - 60, job("d1"))
    store.ask("SADD", store.keys.processes, "host:1:abc")
    facts = ["info", '{"version":"henchman"}', "busy", 1, "concurrency", 10, "beat", now]
    store.ask("HSET", store.keys.process("host:1:abc"), *facts)
    run = {"queue": "mail", "payload": job("w1").decode(), "run_at": 1_795_237_919}
    store.ask("HSET", store.keys.work("host:1:abc"), "slot-1", json.dumps(run))


def fill_ordered(store: Store) -> None:
    """One id in flight with an arrival, one that failed three times, one that waits, one dead."""
    queue = OrderedQueue(store, "products")
    queue.join(ME)
    queue.declare(limit=24)
    for name, price, end in (("45", 1, ("to_morgue", 0, 0, "ValueError: no such product")), ("43", 2, RETRY)):
        queue.put(name, b'{"price":%d}' % price, price)
        [(token, one)] = queue.take(ME)
        queue.settle(ME, Verdict(token, one.id, *end))
    queue.put("42", b'{"price":5}', 1)
    queue.take(ME)
    queue.put("42", b'{"price":6}', 2)
    queue.put("44", when=FAR)


def test_the_examples(app: App, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mail", ModuleType("mail"))  # the reader's own module
    vars(sys.modules["mail"])["app"] = app
    fill(store)
    fill_ordered(store)
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for number, block in enumerate(blocks[:-1]):
        if "job_status" in block:
            store.push("reports", job("x1"))
        examples = doctest.DocTestParser().get_doctest(block, names, f"example {number}", str(PAGE), 0)
        told: list[str] = []
        runner.run(examples, out=told.append, clear_globs=False)
        names = examples.globs
        assert runner.summarize(verbose=False).failed == 0, "".join(told)
    exec(blocks[-1], names)  # noqa: S102 - our own page
    asyncio.run(awaited(app, names["tidy"]))


async def awaited(app: App, tidy: Any) -> None:
    await tidy()
    await app.aclose()
