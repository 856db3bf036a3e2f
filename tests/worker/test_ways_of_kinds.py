"""Which scripts a job of each kind takes, as the table of ``docs/performance.md`` says it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from henchman import App, Concurrent
from henchman.store.connection import Connections
from henchman.worker import acker
from support.store import Store
from support.worker import until, working

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
JOBS = 2_000
KINDS: dict[str, dict[str, Any]] = {
    "no option": {},
    "`timeout`, `deadline`, `expires`": {"timeout": 30, "deadline": 300, "expires": 300},
    "`fair_by`, `priority`": {"fair_by": lambda number: number % 3, "priority": "high"},
    "raises": {"retry": False},
    '`ack="each"`': {"ack": "each"},
    "`track=True`, in a batch": {"track": True},
    "`once`": {"key": "number", "once": True},
    '`unique="until_success"`': {"key": "number", "unique": "until_success"},
    '`unique="queued"`': {"key": "number", "unique": "queued"},
    '`unique="running"`': {"key": "number", "unique": "running"},
    "`limits`": {"limits": [Concurrent("bank", 50)]},
}


def table() -> dict[str, list[str]]:
    """Each row: how a job is pushed, what it asks before its start, how it is settled."""
    text = PAGE.read_text(encoding="utf-8").partition("| a job with |")[2].partition("\n\n")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines()[2:]]
    return {row[0].strip(): re.findall(r"`(\w+)`", " ".join(row[1:])) for row in rows}


def test_the_table_has_a_row_for_each_kind() -> None:
    assert list(table()) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_takes_the_way_that_the_table_says(
    kind: str, store: Store, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called, settled, run = set[str](), Counter[str](), Connections.run

    def noting(self: Connections, call: Any, *rest: Any, **more: Any) -> Any:
        called.add("LPUSH" if call.name == "SADD" else call.name)
        return run(self, call, *rest, **more)

    monkeypatch.setattr(Connections, "run", noting)
    for name, settle in (("settle", acker.settle_units), ("settle_oldest", acker.settle_oldest_units)):

        def counting(host: Any, identity: str, units: Any, name: str = name, settle: Any = settle) -> Any:
            settled[name] += len(units)
            return settle(host, identity, units)

        monkeypatch.setattr(acker, f"{name}_units", counting)
    app = App(redis_url=redis_url, queues=("a",), concurrency=4, database_url=f"sqlite:///{tmp_path}/h.sqlite")

    @app.job(name="f", queue="a", **KINDS[kind])
    def f(number: int) -> None:
        if kind == "raises":
            raise ValueError

    f.enqueue_many([(number,) for number in range(JOBS)])
    pushed = called & {"LPUSH", "batch_push", "keyed_push"}
    with working(app):
        until(lambda: int(store.ask("GET", "stat:processed") or 0) == JOBS, "all have ended")
    most = "settle_oldest" if settled["settle_oldest"] > JOBS / 2 else "settle"
    assert [*pushed, *called & {"claim"}, most] == table()[kind]
    assert most == "settle_oldest" or not settled["settle_oldest"], settled
