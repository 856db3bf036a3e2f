"""docs/lowkiq.md: each test that it names is there, and its recipe carries what waits in Lowkiq over."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from henchman import testing
from support.worker import looker

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lowkiq.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([a-z_]+/test_\w+\.py)(?:::(test_\w+))?`")
BLOCKS = [textwrap.dedent(one) for one in re.findall(r"^ *```python\n(.*?)^ *```$", PAGE, re.DOTALL | re.MULTILINE)]


def test_every_test_that_the_page_names_is_there() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 70
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / "tests" / file).exists()
        or (name and f"def {name}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8"))
    ]
    assert missing == []


def test_every_row_has_a_test() -> None:
    tables = PAGE.partition("## Settings of a worker")[2].partition("## Speed")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| ") and not line.startswith("| Lowkiq |")]
    assert [row for row in rows if not NAMED.search(row)] == []


@pytest.fixture
def env(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HENCHMAN_REDIS_URL", redis_url)
    return redis_url


def run(block: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "docs/lowkiq.md", "exec"), space)  # noqa: S102 - our own page
    return space


def test_a_worker_as_a_function(env: str) -> None:
    space = run(BLOCKS[0])
    options = space["app"].registry.ordered()["ATestWorker"].ordered
    assert (options.claim_size, options.max_parallel, options.max_retries) == (10, 24, 5)
    with looker(env) as redis:
        assert redis.zcard("hm:ordered:ATestWorker/due") == 1
    space["app"].close()


def test_what_methods_shared_an_object_holds(env: str, capsys: pytest.CaptureFixture[str]) -> None:
    space = run(BLOCKS[1])
    options = space["sync_prices"].ordered
    assert (options.claim_size, options.max_retries) == (10, 5)
    space["sync_prices"].push_many([{"sku": "42", "version": 8}])
    with testing.worker(space["app"], url=env) as worker:
        worker.drain()
    assert capsys.readouterr().out == "42 is at version 8\n", "both payloads came in one claim"
    space["app"].close()


def test_what_waits_in_lowkiq_is_carried_over_with_scores_and_times(env: str) -> None:
    space = run(BLOCKS[2])
    far = 4_000_000_000.5
    jobs = [  # as GET /api/web/<worker>/range_by_id answers
        {"id": "1", "perform_in": 1_600_000_000.25, "retry_count": -1, "payloads": [[{"v": 1}, 1], [{"v": 2}, 2.5]]},
        {"id": "2", "perform_in": far, "retry_count": 3, "payloads": [["later", 7]], "error": "Boom"},
    ]
    space["carry"](jobs)
    space["sync_product"].push("1", {"v": 3}, score=3)
    queues = space["app"].ordered_queues
    assert queues["products-from-lowkiq"].length() == 2
    moved = queues["products-from-lowkiq"].move_to("products")
    assert (moved.done, moved.stayed) == (2, 0)
    products = queues["products"]
    first, second = products.find("1"), products.find("2")
    assert [(one.score, one.value) for one in first.payloads] == [(1, {"v": 1}), (2.5, {"v": 2}), (3, {"v": 3})]
    assert (second.due, [one.value for one in second.payloads]) == (far, ["later"])
    with looker(env) as redis:
        assert not redis.exists("hm:ordered:products-from-lowkiq/due")
    space["app"].close()
