"""Sixty thousand failures: the sheet is written without holding them, a late page costs what an early one does."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from henchman import App
from henchman.history.database import Database
from henchman.web.api import Api, api
from support.asgi import TOKEN, ask, scope_of

BATCH = "b" * 32
MANY = 60_000
MB = 1024 * 1024


@pytest.fixture(scope="module")
def database_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('large')}/history.sqlite"
    made = Database(url)
    made.upgrade()
    with made.writing() as connection:
        connection.execute(text(ROWS), {"many": MANY, "batch": BATCH, "filler": "x" * 400})
    made.close()
    return url


#: made by the database: to send so many takes ten times as long
ROWS = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :many)
INSERT INTO henchman_events
    (jid, batch, class, queue, args, status, attempts, enqueued_at, ended_at, message, born, changed)
SELECT printf('job-%06d', n), :batch, 'shop.create', 'default', printf('[%d, "%s"]', n, :filler),
    CASE WHEN n % 10 THEN 'failed' ELSE 'error' END, 1, 1.7e9, 1.7e9 + n, 'no such product\\: ' || n, n << 21, n << 21
FROM numbers
"""


@pytest.fixture
def large(redis_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    pragmas = [one for one in Database.purpose.pragmas if "cache_size" not in one]
    small = Database.purpose._replace(pragmas=(*pragmas, "cache_size=-2000"))
    monkeypatch.setattr(Database, "purpose", small)  # what SQLite keeps is not what we look at
    app = App(redis_url=redis_url, database_url=database_url, api_token=TOKEN)
    made = api(app)
    yield made
    made.close()
    app.close()


def resident() -> int:
    """Bytes of memory that this process uses now."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_the_sheet_is_never_held_whole(large: Api) -> None:
    ask(large, f"/batches/{BATCH}/events?limit=1000")  # whatever is loaded once is loaded
    before, most, size, lines = resident(), 0, 0, 0

    async def receive() -> Any:
        await asyncio.sleep(600)

    async def send(message: Any) -> None:
        nonlocal most, size, lines
        body = message.get("body", b"")
        size, lines = size + len(body), lines + body.count(b"\r\n")
        most = max(most, resident() - before)

    scope = scope_of(f"/batches/{BATCH}/failures.csv", headers={"authorization": f"Bearer {TOKEN}"})
    asyncio.run(asyncio.wait_for(large(scope, receive, send), 120))
    assert lines == MANY + 1
    assert size > 30 * MB
    assert most < 15 * MB, f"{most / MB:.1f} MB more for a sheet of {size / MB:.1f} MB"


@pytest.mark.alone("it measures milliseconds")
def test_a_late_page_costs_what_an_early_one_does(large: Api) -> None:
    def spent(after: int) -> float:
        begun = time.perf_counter()
        page = ask(large, f"/batches/{BATCH}/events?status=failed,error&after={after << 21}").json
        took = time.perf_counter() - begun
        assert page["events"][0]["jid"] == f"job-{after + 1:06}"
        assert len(page["events"]) == 100
        return took

    early, late = map(min, zip(*((spent(0), spent(MANY - 1000)) for _ in range(7)), strict=True))
    assert late < max(3 * early, 0.05)
