"""``henchman.contrib.flask``: the context of each run, settings, the command, sessions that pushes wait for."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from flask import Flask, current_app, g
from redis import Redis
from sqlalchemy import orm

from henchman import App
from henchman.contrib.flask import Henchman
from henchman.errors import ConfigError
from henchman.supervisor.load import load_app
from support.server import DIE_WITH_PARENT
from support.worker import jobs_in, settled, until, working

pytestmark = pytest.mark.frameworks("it runs apps of Flask, some as processes")

SHOP = """
from flask import Flask, current_app

from henchman.contrib.flask import Henchman

jobs = Henchman()


@jobs.app.job
def charge(order: int) -> None:
    print(f"order {order} is charged in {current_app.config['SHOP']}", flush=True)


def create_app() -> Flask:
    made = Flask("shop")
    made.config["SHOP"] = "Berlin"
    made.config["HENCHMAN"] = {"concurrency": 2}
    jobs.init_app(made)

    @made.post("/orders/<int:order>")
    def order(order: int) -> dict[str, str]:
        return {"jid": charge.enqueue(order).jid}

    return made
"""


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


def test_each_run_has_a_context_that_ends_with_it(app: App, redis: Redis) -> None:
    web, ended, seen = Flask("shop"), list[str](), list[Any]()
    web.config["SHOP"] = "Berlin"

    @web.teardown_appcontext
    def end(error: BaseException | None) -> None:
        ended.append(type(error).__name__)

    @app.job(name="sync", retry=False)
    def sync(fail: bool) -> None:
        seen.append((current_app.config["SHOP"], g.get("left")))
        g.left = "from the run before"
        if fail:
            raise ValueError("no")

    @app.job(name="awaited")
    async def awaited() -> None:
        await asyncio.sleep(0)
        seen.append((current_app.config["SHOP"], g.get("left")))

    Henchman(web, app=app)
    with working(app):
        for fail in (False, True):
            sync.enqueue(fail)
        awaited.enqueue()
        settled(redis, 3)
    assert seen == [("Berlin", None)] * 3
    assert sorted(ended) == ["NoneType", "NoneType", "ValueError"]


def test_the_context_of_a_test_is_kept(app: App) -> None:
    web = Flask("shop")

    @app.job(name="note")
    def note() -> str:
        return str(g.get("mine"))

    Henchman(web, app=app)
    with web.app_context():
        g.mine = "the test's"
        assert note() == "the test's"


def test_settings_are_the_applications(app: App) -> None:
    web = Flask("shop")
    web.config["HENCHMAN"] = {"concurrency": 3}
    jobs = Henchman(app=app)
    with pytest.raises(ConfigError, match=r"jobs.init_app\(flask_app\)"):
        _ = jobs.flask_app
    jobs.init_app(web)
    assert (app.config.concurrency, web.extensions["henchman"], jobs.flask_app) == (3, jobs, web)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"redis_ulr": "redis://x"}, "there is no setting 'redis_ulr'; did you mean 'redis_url'?"),
        ({"concurrency": "three"}, "concurrency"),
        (["concurrency"], "give a dict of settings"),
    ],
)
def test_wrong_settings_name_the_value_and_the_way_out(app: App, given: Any, said: str) -> None:
    web = Flask("shop")
    web.config["HENCHMAN"] = given
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        Henchman(web, app=app)


def test_the_last_application_is_that_of_the_jobs(app: App, redis: Redis) -> None:
    """Tests make one each."""
    jobs, seen = Henchman(app=app), list[str]()

    @app.job(name="note")
    def note() -> None:
        seen.append(current_app.name)

    for name in ("first", "second"):
        web = Flask(name)
        web.config["HENCHMAN"] = {"concurrency": 2}
        jobs.init_app(web)
        note.enqueue()
    with working(app):
        settled(redis, 2)
    assert seen == ["second"] * 2


def test_pushes_of_a_request_wait_for_its_commit(redis: Redis, redis_url: str) -> None:
    app = App(redis_url=redis_url, transactional=True)
    note = app.job(name="note")(lambda number: None)
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
    session = orm.scoped_session(orm.sessionmaker(engine))
    web = Flask("shop")
    Henchman(app=app).init_app(web, session=session)
    seen: list[int] = []

    @web.post("/<int:number>/<end>")
    def push(number: int, end: str) -> str:
        session.execute(sa.text("SELECT 1"))
        note.enqueue(number)
        seen.append(len(jobs_in(redis, "queue:default")))
        {"commit": session.commit, "rollback": session.rollback, "nothing": session.remove}[end]()
        return "ok"

    client = web.test_client()
    for number, end in enumerate(("commit", "rollback", "nothing")):
        assert client.post(f"/{number}/{end}").status_code == 200
        session.remove()
    assert seen == [0, 1, 1], "none before its commit"
    assert [one["args"] for one in jobs_in(redis, "queue:default")] == [[0]]
    app.close()


def test_an_application_without_jobs_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("from flask import Flask\napp = Flask('plain')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLASK_APP", "plain")
    with pytest.raises(ConfigError, match="plain has no jobs: "):
        load_app("henchman.contrib.flask:app")


class TestCommand:
    """``flask henchman``, as a process."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "shop.py").write_text(SHOP)
        (tmp_path / "plain.py").write_text("from flask import Flask\napp = Flask('plain')\n")
        return tmp_path

    def flask(self, folder: Path, url: str, *words: str, app: str = "shop") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "flask", "--app", app, *words],
            cwd=folder,
            env=os.environ | {"HENCHMAN_REDIS_URL": url},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def test_the_whole_command_line_is_there(self, folder: Path, redis_url: str) -> None:
        listed = self.flask(folder, redis_url, "henchman", "queues", "--json")
        assert (listed.returncode, listed.stderr) == (0, "")
        assert "Usage: flask henchman work" in self.flask(folder, redis_url, "henchman", "work", "--help").stdout
        assert "did you mean 'status'" in self.flask(folder, redis_url, "henchman", "stats").stderr
        assert "No such command 'henchman'" in self.flask(folder, redis_url, "henchman", app="plain").stderr

    def test_a_worker_runs_what_a_request_pushed(self, folder: Path, redis: Redis, redis_url: str) -> None:
        log = folder / "log"
        with log.open("wb") as out:
            worker = subprocess.Popen(
                [
                    sys.executable,
                    "-ISc",
                    DIE_WITH_PARENT,
                    sys.executable,
                    "-m",
                    "flask",
                    "--app",
                    "shop",
                    "henchman",
                    "work",
                ],
                cwd=folder,
                env=os.environ | {"HENCHMAN_REDIS_URL": redis_url},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            assert self.flask(folder, redis_url, "henchman", "enqueue", "shop.charge", "[17]").returncode == 0
            until(lambda: "order 17 is charged in Berlin" in log.read_text(), "the job runs in its context")
            assert "slots=2" in log.read_text()
        finally:
            worker.terminate()
            assert worker.wait(60) == 0
        assert redis.keys("queue:*") == []
