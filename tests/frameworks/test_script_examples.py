"""The examples of a plain script (with a session of SQLAlchemy for each run) and of a notebook on real servers: push in
a transaction, roll back, kill what runs the job in the middle, see the result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from redis import Redis

from support.databases import PostgreSQL, running
from support.examples import EXAMPLES, ask, free_ports, process
from support.processes import children_of, clean_environ
from support.worker import until

pytestmark = pytest.mark.frameworks("it runs the examples of a script and of a notebook on servers of their own")


def test_the_script_does_what_its_page_says(tmp_path: Path, redis: Redis, redis_url: str) -> None:
    folder, (probes, _), log = EXAMPLES / "script", free_ports(), tmp_path / "work"
    with running(PostgreSQL) as server:
        host = parse_qs(urlsplit(server.url).query)["host"][0]
        env = clean_environ() | {
            "HENCHMAN_REDIS_URL": redis_url,
            "SHOP_DATABASE": f"postgresql+psycopg://tester@/postgres?host={host}",
            "SHOP_PAUSE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

        def shop(*words: str, status: int = 0) -> str:
            command = [sys.executable, "shop.py", *words]
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == status, done.stderr
            return done.stdout + done.stderr

        shop("create-tables")
        with process(["henchman", "work", "shop:app", "--health", f"127.0.0.1:{probes}"], folder, env, log) as worker:
            until(lambda: "is ready" in log.read_text(), "the worker is ready")
            fine = json.loads(shop("order", "990"))
            assert shop("result", fine["job"]) == "990 cents\n"
            assert json.loads(shop("look", str(fine["order"])))["status"] == "charged"
            until(lambda: f"receipt for order {fine['order']}: charged" in log.read_text(), "pushed with the commit")
            assert "an order costs something" in shop("order", "-1", status=1)
            runs = 'henchman_job_runs_total{{job="shop.charge"}} {}'
            until(lambda: runs.format(1) in ask(probes, "/metrics")[1], "written down: a kill loses what is not", 30)

            killed = json.loads(shop("order", "50"))
            line = f"charging order {killed['order']}"
            until(lambda: line in log.read_text(), "the job runs")
            with psycopg.connect(server.url) as connection:
                os.kill(children_of(worker.pid)[0], signal.SIGKILL)
                [status] = connection.execute("SELECT status FROM orders WHERE id = %s", [killed["order"]])
            assert status == ("new",), "the first run left nothing"
            until(lambda: log.read_text().count(line) >= 2, "it runs again")
            assert shop("result", killed["job"]) == "50 cents\n"
            receipt = f"receipt for order {killed['order']}: charged"
            until(lambda: receipt in log.read_text(), "the receipt is sent")
            assert log.read_text().count(receipt) == 1, "the run that was killed pushed none"
            until(lambda: runs.format(2) in ask(probes, "/metrics")[1], "the heart has told of both runs", 30)
        with psycopg.connect(server.url) as connection:
            rows = connection.execute("SELECT cents, status FROM orders ORDER BY id").fetchall()
        assert rows == [(990, "charged"), (50, "charged")], "what was refused left no row"
    assert not redis.keys("queue:*")
    assert not redis.exists("retry", "dead")


def outputs(notebook: Path) -> list[str]:
    """What the cells of code show, one text a cell."""
    cells: list[dict[str, Any]] = json.loads(notebook.read_text())["cells"]
    shown = [[one.get("text") or one["data"]["text/plain"] for one in cell.get("outputs", ())] for cell in cells]
    return ["".join("".join(part) for part in parts) for parts in shown]


def test_the_notebook_does_what_it_says(tmp_path: Path, redis: Redis, redis_url: str) -> None:
    shutil.copy(EXAMPLES / "notebook" / "samples.ipynb", tmp_path)
    env = clean_environ() | {"HENCHMAN_REDIS_URL": redis_url, "HENCHMAN_LEASE": "5", "SAMPLES_PAUSE": "600"}
    run = ["jupyter-execute", "samples.ipynb", "--output=ran.ipynb", "--timeout=120"]
    log = tmp_path / "log"
    with process(run, tmp_path, env, log) as first:
        until(lambda: sum(map(redis.hlen, redis.keys("*:work"))) == 3 or first.poll() is not None, "three jobs run")
        assert first.poll() is None, log.read_text()
        os.kill(children_of(first.pid)[0], signal.SIGKILL)
        assert first.wait(60) != 0
    with process(run, tmp_path, env | {"SAMPLES_PAUSE": "0.1"}, log) as second:
        assert second.wait(120) == 0, log.read_text()
    shown = "\n".join(outputs(tmp_path / "ran.ipynb"))
    assert "['deferred', 'deferred', 'deferred']\n['created', 'created', 'created']" in shown
    assert "rolled back" in shown
    assert "[5.0, 10.0, 15.0]" in shown
    with closing(sqlite3.connect(tmp_path / "samples.sqlite")) as database:
        rows = database.execute("SELECT depth, value FROM samples ORDER BY id").fetchall()
    assert rows == 2 * [(10, 5.0), (20, 10.0), (30, 15.0)], "those of the kernel that was killed, too"
    assert not redis.keys("queue:*")
    assert not redis.exists("retry", "dead")
