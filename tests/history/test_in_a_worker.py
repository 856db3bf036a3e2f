"""The recorder as a part of a worker: it starts and stops with it, and who imports Henchman pays nothing for it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

from click.testing import CliRunner
from redis import Redis

from henchman import App
from henchman.cli.main import henchman
from henchman.history.database import Database
from henchman.history.reading import History
from henchman.history.recorder import CONTEND, Recorder
from henchman.inspector.jobs import JobStatus
from support.history import Teller
from support.worker import until, working

BATCH = "7" * 32


def test_a_worker_records_and_leaves_nothing_behind(redis_url: str, redis: Redis, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    app = App(redis_url=redis_url, database_url=url)
    history = History(Database(url))
    teller = Teller(redis)
    try:
        with working(app) as launcher:
            (recorder,) = [one for one in launcher.companions if isinstance(one, Recorder)]
            until(lambda: recorder.leads, "it leads")
            assert redis.get("hm:recorder") == recorder.identity.encode()
            assert redis.get("hm:history:on") == b"strict 268435456"
            teller.enqueued("job", BATCH)
            teller.ended("job", "finished", BATCH, ending="done")
            teller.flush()
            until(lambda: redis.xlen("hm:history") == 0 and not recorder.lag(), "it is recorded")
            page = history.events(BATCH, "finished")
            assert [one.jid for one in page.events] == ["job"]
        assert not recorder.alive
        assert redis.get("hm:recorder") is None
        assert redis.xlen("hm:history") == 0
    finally:
        history.close()


def test_the_status_of_a_job_that_is_only_in_history(redis_url: str, redis: Redis, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.sqlite"
    app = App(redis_url=redis_url, database_url=url)

    @app.job(name="divide", track=True, retry=0, dead=False)
    def divide(n: int) -> float:
        return 1 / n

    fine, broken = divide.enqueue(2), divide.enqueue(0)
    with working(app):
        until(lambda: fine.status().state == "finished" and broken.status().state == "error", "history has both")
    assert "as history says" in fine.status().text
    status = asyncio.run(_status(App(redis_url=redis_url, database_url=url), broken.jid))
    assert (status.state, status.name, status.error) == ("error", "divide", ("ZeroDivisionError", "division by zero"))
    env = {"HENCHMAN_REDIS_URL": redis_url, "HENCHMAN_DATABASE_URL": url}
    shown = CliRunner().invoke(henchman, ["job", fine.jid, "--json"], env=env)
    assert (shown.exit_code, json.loads(shown.output)["state"]) == (0, "finished")
    app.close()


async def _status(app: App, jid: str) -> JobStatus:
    try:
        return await app.ajob_status(jid)
    finally:
        await app.aclose()


def test_without_a_database_nothing_of_sql_is_loaded(redis_url: str) -> None:
    code = (
        "import sys; from henchman import App; from henchman.cli.main import henchman;"
        "app = App(redis_url=sys.argv[1]); app.companions();"
        "print([name for name in ('sqlalchemy', 'alembic') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, redis_url], capture_output=True, text=True, timeout=150, check=True
    )
    assert done.stdout == "[]\n"


def test_an_idle_recorder_asks_about_once_a_second(redis_url: str, redis: Redis, tmp_path: Path) -> None:
    app = App(redis_url=redis_url, database_url=f"sqlite:///{tmp_path}/history.sqlite")
    recorder = app.companions()[-1]
    assert isinstance(recorder, Recorder)
    try:
        recorder.tick()
        before = redis.info("stats")["total_commands_processed"]  # type: ignore[index]
        began = time.monotonic()
        for _ in range(4):
            recorder.tick()
        sent = redis.info("stats")["total_commands_processed"] - before - 1  # type: ignore[index]
        leases = 1 + int((time.monotonic() - began) / CONTEND)
        # A wait of a second each; its lease prolonged each fourth second, by a script of two commands; a connection.
        assert sent <= 4 + 3 * leases + 2
    finally:
        recorder.stop()
        app.close()
