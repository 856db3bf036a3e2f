"""The examples of FastAPI and Flask on real servers: push in a transaction, roll back, kill the worker in mid-job, see
the result and the metrics."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from redis import Redis

from henchman import App
from support.databases import PostgreSQL, running
from support.examples import EXAMPLES, ask, free_ports, process
from support.processes import children_of, clean_environ
from support.worker import until

pytestmark = pytest.mark.frameworks("it runs the examples of FastAPI and Flask on servers of their own")

WEB = {
    "fastapi": ["uvicorn", "shop:web", "--port", "{port}"],
    "flask": ["flask", "--app", "shop:create_app", "run", "--port", "{port}"],
}
WORK = {
    "fastapi": ["henchman", "work", "shop:jobs", "--health", "127.0.0.1:{port}"],
    "flask": ["flask", "--app", "shop:create_app", "henchman", "work", "--health", "127.0.0.1:{port}"],
}
ORDER = {"fastapi": "/orders?cents={cents}", "flask": "/orders/{cents}"}


def is_up(port: int) -> bool:
    try:
        return ask(port, "/nothing")[0] == 404
    except OSError:
        return False


@pytest.mark.parametrize("framework", sorted(WEB))
def test_an_example_does_what_its_page_says(framework: str, tmp_path: Path, redis: Redis, redis_url: str) -> None:
    folder, (port, probes) = EXAMPLES / framework, free_ports()
    app = App(redis_url=redis_url)
    with running(PostgreSQL) as server:
        host = parse_qs(urlsplit(server.url).query)["host"][0]
        env = clean_environ() | {
            "HENCHMAN_REDIS_URL": redis_url,
            "SHOP_DATABASE": f"postgresql+psycopg://tester@/postgres?host={host}",
            "SHOP_PAUSE": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        web = [one.format(port=port) for one in WEB[framework]]
        work = [one.format(port=probes) for one in WORK[framework]]
        log = tmp_path / "work"
        if framework == "flask":
            tables = [sys.executable, "-m", "flask", "--app", "shop:create_app", "create-tables"]
            subprocess.run(tables, cwd=folder, env=env, check=True, timeout=60)
        with process(web, folder, env, tmp_path / "web"), process(work, folder, env, log) as worker:
            until(lambda: is_up(port), "the application answers")
            until(lambda: "is ready" in log.read_text(), "the worker is ready")

            def order(cents: int) -> tuple[int, Any]:
                status, text = ask(port, ORDER[framework].format(cents=cents), "POST")
                return status, json.loads(text) if status == 200 else text

            _, fine = order(990)
            assert app.result(fine["job"], timeout=60) == "990 cents"
            assert json.loads(ask(port, f"/orders/{fine['order']}")[1])["status"] == "charged"
            assert order(-1)[0] == 422

            _, killed = order(50)
            line = f"charging order {killed['order']}"
            until(lambda: line in log.read_text(), "the job runs")
            os.kill(children_of(worker.pid)[0], signal.SIGKILL)
            assert app.result(killed["job"], timeout=60) == "50 cents"
            assert log.read_text().count(line) >= 2
            metrics = ask(probes, "/metrics")[1]
            assert "henchman_" in metrics
        with psycopg.connect(server.url) as connection:
            rows = connection.execute("SELECT cents, status FROM orders ORDER BY id").fetchall()
        assert rows == [(990, "charged"), (50, "charged")], "what was refused left no row"
    assert not redis.keys("queue:*")
    assert not redis.exists("retry", "dead")
    app.close()
