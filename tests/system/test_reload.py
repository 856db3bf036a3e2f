"""``henchman work --reload``: a changed source file, and what runs meanwhile in processes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from henchman import App
from support.processes import Work, holds_on
from support.worker import in_flight, until

LIVE = """
import os
import time
from pathlib import Path

from henchman import App

app = App(concurrency=2)


@app.job(name="says", isolate=True, result_ttl=600)
def says() -> list:
    return [{version!r}, os.getpid()]


@app.job(name="waits", isolate=True, result_ttl=600)
def waits() -> list:
    with open("begun", "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    while not Path("open").exists():
        time.sleep(0.01)
    return [{version!r}, os.getpid()]
"""


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    """An app that pushes by name."""
    made = App(redis_url=redis_url)
    yield made
    made.close()


def test_an_isolated_job_runs_the_new_code_and_one_that_runs_ends_with_the_old(
    app: App, redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    source = folder / "live.py"
    source.write_text(LIVE.format(version="old"))
    pids: set[int] = set()

    def told() -> str:
        version, pid = app.result(app.enqueue("says", result_ttl=600).jid, timeout=60)
        pids.add(pid)
        return str(version)

    with Work(folder, redis_url, "--reload", target="live:app") as work:
        until(lambda: list(app.processes), "the worker is ready")
        [before] = [one.pid for one in app.processes]
        assert told() == "old"
        held = app.enqueue("waits", result_ttl=600).jid
        begun = folder / "begun"
        until(lambda: begun.exists() and begun.read_text(), "it runs")
        source.write_text(LIVE.format(version="newer"))  # of another size: Python looks at seconds and size alone
        until(lambda: "live.py has changed" in work.log, "the change is seen")
        until(lambda: told() == "newer", "the new code runs")
        until(lambda: [one.pid for one in app.processes if not one.quiet] != [before], "the records tell of it")
        assert holds_on(int(begun.read_text())), "the old run goes on meanwhile"
        (folder / "open").touch()
        version, pid = app.result(held, timeout=60)
        assert (version, begun.read_text().split()) == ("old", [str(pid)]), "it ran once, to its end"
        until(lambda: not any(holds_on(one) for one in (before, pid)), "the old processes have ended")
        until(lambda: not in_flight(redis), "nothing is left in flight")
        assert work.stop() == 0
    until(lambda: not any(map(holds_on, pids)), "no process for isolated runs is left")
    assert not redis.exists("queue:default", "retry", "dead", app.keys.suspects)
