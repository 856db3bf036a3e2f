"""An export of half a million rows: no call holds the server up, and neither reader nor file needs memory for it."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman import App
from henchman.cli.main import henchman
from henchman.store import batches, jobs
from henchman.work.effects import EndingFacts, encoded
from support.measured import Held, resident_kb
from support.server import running_server
from support.store import ME, Store
from support.worker import looker, until

pytestmark = [pytest.mark.scale("half a million rows, written, read and freed"), pytest.mark.timeout(900)]

ROWS = 500_000
PUSHED, SETTLED = 1000, 500  # jobs in one call, as clients and workers have them
HELD = 0.025  # seconds of the server's processor that a call may take; on a loaded machine they last longer
B = "b" * 32
BYTES = 130  # of the server's memory, a row with a result of 34 bytes of JSON; without results it takes none


class Export(NamedTuple):
    """``held``: how long its calls held the server; ``before``: its memory when no row had run, ``after``: when all
    had."""

    url: str
    redis: Redis
    held: Held
    before: int
    after: int


def used(redis: Redis) -> int:
    """The server's memory in bytes, without what connections have."""
    return int(redis.info("memory")["used_memory_dataset"])  # type: ignore[index]


def payload(number: int) -> bytes:
    hm = b'{"batch":"%b","results":true}' % B.encode()
    return b'{"class":"shop.export","args":[%d],"jid":"%024x","queue":"q","hm":%b}' % (number, number, hm)


def result(number: int) -> dict[str, Any]:
    return {"sku": f"sku-{number:06}", "price": number / 4}


def push(store: Store, held: Held) -> None:
    for first in range(0, ROWS, PUSHED):
        some = range(first, first + PUSHED)
        detail = b'{"class":"shop.export","queue":"q","args":[1]}'
        rows = [batches.TrackedPush(f"{number:024x}", "", payload(number), detail) for number in some]
        call = batches.push(store.keys, B, "q", rows)
        assert held.run("push", lambda call=call: store.run(call)) == PUSHED


def settle(store: Store, held: Held) -> None:
    """As a worker does it; every thousandth row fails."""
    store.join("q", lease_ms=3_600_000)
    for first in range(0, ROWS, SETTLED):
        [found] = store.fetch("q", count=SETTLED)
        assert len(found) == SETTLED
        units = []
        for number, one in enumerate(found, first):
            ending = "done" if number % 1000 else "failed"
            detail = {"result": result(number)} if number % 1000 else {"message": "no price", "error_class": "Failure"}
            told = EndingFacts(ME, 1, {**detail, "started": 1.5, "elapsed": 0.1})
            units.append(jobs.Settlement(1, one, ending, effects=encoded(store.keys, json.loads(one), ending, told)))
        assert held.run("settle", lambda units=units: store.settle(*units, queues=("q",))) == [1] * SETTLED


@pytest.fixture(scope="module")
def export() -> Iterator[Export]:
    with running_server() as server, looker(server.url) as redis:
        store = Store(server.url)
        store.run(batches.make(store.keys, B, {"keep": "3600", "results": "1"}, b"{}"))
        held = Held(redis, HELD)
        push(store, held)
        before = used(redis)
        settle(store, held)
        assert store.run(batches.close(store.keys, B)) == "complete"
        store.connections.close()
        yield Export(server.url, redis, held, before, used(redis))


def test_no_call_holds_the_server_up(export: Export) -> None:
    store, held = Store(export.url), export.held
    for first in range(0, ROWS, 1000):
        call = batches.results(store.keys, B, first, 1000)
        assert len(held.run("results", lambda call=call: store.run(call)).rows) == 1000
    store.connections.close()
    print(held)
    # Two of hundreds of calls may meet the growth of a table of the server.
    assert max(held.dearest(but=2).values()) < held.most(), str(held)


def test_a_row_takes_little_memory(export: Export) -> None:
    redis = export.redis
    base = f"hm:batch:{B}"
    kept = sum(int(redis.memory_usage(base + part, samples=0) or 0) for part in (":rows", ":results"))  # type: ignore[arg-type]
    print(f"a row takes {kept / ROWS:.1f} bytes of the server's memory")
    assert kept / ROWS < BYTES
    assert export.after < export.before, "a job that waits takes more than its result"


def test_the_reader_needs_memory_for_a_page(export: Export, tmp_path: Path) -> None:
    app = App(redis_url=export.url)
    rows = app.get_batch(B).results()
    assert next(rows).row == 0
    before, began, count, failed = resident_kb(), time.monotonic(), 1, 1
    for one in rows:
        assert one.row == count
        if one.ok:
            assert one.value == result(count)
        else:
            failed += 1
        count += 1
    took = time.monotonic() - began
    print(f"{ROWS / took:,.0f} rows a second, {resident_kb() - before} kB more")
    assert (count, failed) == (ROWS, ROWS // 1000)
    assert resident_kb() - before < 20_000
    app.close()


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_the_file_is_written_as_it_is_read(export: Export, tmp_path: Path, form: str) -> None:
    env = {"HENCHMAN_REDIS_URL": export.url}
    file, before = tmp_path / "export", resident_kb()
    done = CliRunner().invoke(henchman, ["batch", "results", B, f"--{form}", str(file)], env=env)
    assert done.exit_code == 4, done.output
    assert resident_kb() - before < 40_000, "with the command line itself"
    with file.open(encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text) if form == "csv" else map(json.loads, text)
        for number, one in enumerate(reader):
            assert int(one["row"]) == number
            assert one["status"] == ("finished" if number % 1000 else "failed")
            if number % 1000:
                found = one if form == "csv" else one["result"]
                assert (found["sku"], float(found["price"])) == (f"sku-{number:06}", number / 4)
    assert number == ROWS - 1


def test_freeing_them_holds_nobody_up(export: Export) -> None:
    redis, app, copy = export.redis, App(redis_url=export.url), "c" * 32
    for part in ("", ":rows", ":results"):
        assert redis.copy(f"hm:batch:{B}{part}", f"hm:batch:{copy}{part}")
    redis.zadd("hm:batches", {copy: 1.0})
    for part in ("", ":rows"):
        redis.pexpire(f"hm:batch:{copy}{part}", 1)
    until(lambda: not redis.exists(f"hm:batch:{copy}"), "its time is over")
    assert redis.exists(f"hm:batch:{copy}:results"), "the server itself did not free them in front of everybody"
    run, held = app.connections.run, Held(redis, HELD)
    app.connections.run = lambda call: held.run(call.name, lambda: run(call))  # type: ignore[method-assign]
    assert app.audit().forgotten == 1
    print(held)
    assert held.dearest()["ZREM"] < held.most(), "ZREM and UNLINK are one call"
    assert list(redis.scan_iter(match=f"hm:batch:{copy}*")) == []
    app.close()
