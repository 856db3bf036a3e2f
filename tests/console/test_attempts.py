"""The failures of a job on its page: attempts side by side, causes, folded frames."""

from __future__ import annotations

import datetime as dt
import re
import time
from typing import Any

from henchman import App
from henchman.console.trace import folded
from henchman.inspector.base import Entry
from henchman.store import leases
from henchman.store.call import command
from henchman.store.metrics import Counted, flush
from henchman.wire.payload import compress_backtrace, encode
from support.browsing import XSS, Browser

JID = "a" * 24
LIBRARY = "/venv/lib/python3.12/site-packages/redis/connection.py:70:in read"


def failed(app: App, **fields: Any) -> Browser:
    now = time.time()
    job = {"class": "shop.pay", "jid": JID, "queue": "q", "args": [1], "retry": 25, "retry_count": 12}
    job |= {"error_class": "RuntimeError", "error_message": "late", "failed_at": now - 99, "retried_at": now - 9}
    app.connections.run(command("ZADD", app.keys.retry, now + 60, encode(job | fields)))
    return Browser(app.console())


def test_attempts_stand_side_by_side_the_last_first(app: App) -> None:
    now = time.time()
    rows = [
        [1, now - 99, 0.5, "host-1:7:ab", "OSError", "f" * 12, XSS],
        [12, now - 20, 30.25, "host-1:7:ab", "RuntimeError", "e" * 12, "late"],
        [13, now - 9, None, "host-2:9:cd", "RuntimeError", "e" * 12, "late"],
    ]
    page = failed(app, error_attempts=rows).get(f"/jobs/{JID}")
    words = page.words
    order = [words.index(text) for text in ("did not start", "30 s", "10 more in between", "OSError")]
    assert order == sorted(order)
    assert "<script>" not in page.text
    assert {"/errors/" + "e" * 12, "/errors/" + "f" * 12} <= set(page.links)
    last = page.text.partition('id="a-13"')[2].partition("</tr>")[0]
    assert 'class="wide none"' in last, "the same error as before is grey"
    assert 'class="mono fit where"' in last, "the process is another one"


def test_what_caused_the_error_is_told_with_its_frames(app: App) -> None:
    lines = ["/app/shop.py:7:in pay", *[LIBRARY] * 4, "/app/jobs.py:9:in call"]
    causes = [["OSError", "refused " + XSS, ["/app/net.py:3:in connect"]]]
    page = failed(app, error_backtrace=compress_backtrace(lines), error_causes=causes).get(f"/jobs/{JID}")
    assert "caused by OSError refused" in page.words
    assert "4 frames in redis" in page.words
    trace = page.text.partition('<pre id="trace" hidden>')[2].partition("</pre>")[0].split("\n")
    assert trace[:-1] == [*lines, "caused by OSError", "/app/net.py:3:in connect"], "what is copied is whole"


def test_hostile_rows_harm_nothing(app: App) -> None:
    wild: list[Any] = [
        1,
        None,
        [],
        [1] * 7,
        [{}, {}, {}, {}, {}, {}, {}],
        ["x", "y", "z", 1, 2, 3, 4],
        [1e400 and 5] * 7,
    ]
    browser = failed(app, error_attempts=wild, error_causes=[1, [], [1, 2, 3], [XSS, XSS, [XSS, None]]], error_group={})
    assert browser.get(f"/jobs/{JID}").status == 200
    assert browser.get(f"/api/v1/jobs/{JID}").status == 200
    entry = Entry(encode({"class": "a", "error_attempts": "no", "error_causes": {"a": 1}}))
    assert (entry.failures, entry.causes) == ([], [])


def test_frames_are_folded() -> None:
    pieces = folded([LIBRARY] * 5)
    assert [(len(one.lines), one.text) for one in pieces] == [(1, ""), (4, "4 frames in redis")], "it was raised there"
    std = "/usr/lib/python3.11/asyncio/base.py:1:in run"
    pieces = folded(["/app/a.py:1:in a", LIBRARY, std, "<frozen runpy>:1:in b", "caused by OSError", "no frame"])
    assert [one.text for one in pieces] == ["", "3 frames in redis, asyncio, runpy", "", ""]
    assert [one.cause for one in pieces] == [False, False, True, False]
    assert folded([]) == []


def test_a_run_is_held_against_the_usual(app: App) -> None:
    """The last 15 minutes of its class say how long a run usually takes."""
    now, keys = time.time(), app.keys
    job = encode({"class": "shop.slow", "jid": JID, "queue": "q", "args": []}).decode()
    record = encode({"queue": "q", "payload": job, "run_at": int(now) - 40})
    facts = {"info": b'{"hostname":"ruby","pid":7}', "beat": repr(now), "busy": 1, "concurrency": 5}
    app.connections.run(leases.beat(keys, "ruby:7:ab", facts, {"t1": record}, old_work=True))
    browser = Browser(app.console())
    assert "How long runs of its class usually take is not known" in browser.get(f"/jobs/{JID}").words
    moment = dt.datetime.fromtimestamp(now - 60, dt.UTC)
    histogram = [0] * 26
    histogram[10] = 100
    counted = {"shop.slow": Counted(100, 0, 100_000, histogram)}
    app.connections.run(flush(keys, moment, counted, ("8", "7")))
    words = browser.get(f"/jobs/{JID}").words
    assert re.search(r"4\d s of usually 1\.\d s", words), words
