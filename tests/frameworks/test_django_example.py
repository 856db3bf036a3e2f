"""examples/django on real servers: push in a transaction, roll back, kill the worker in mid-job, see the result."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from redis import Redis

from support.databases import PostgreSQL, running
from support.django_project import Project
from support.processes import children_of
from support.worker import until

pytestmark = pytest.mark.frameworks("it runs the example of Django on servers of its own")

EXAMPLE = Path(__file__).parents[2] / "examples" / "django"
ASK = """
import json
from django.test import Client
from orders.jobs import app

client = Client()
"""


def test_the_example_does_what_the_page_says(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "shop")
    project = Project.at(tmp_path / "shop", redis_url)
    with running(PostgreSQL) as server:
        parts = urlsplit(server.url)
        project.env |= {"PGHOST": parse_qs(parts.query)["host"][0], "PGDATABASE": "postgres", "PGUSER": "tester"}
        project.manage("migrate")
        with project.working() as log:
            fine = project.shell(ASK + "print(json.dumps(client.post('/orders', {'cents': 990}).json()))")
            assert fine["admission"] == "created"
            done = project.shell(ASK + f"print(json.dumps(app.result({fine['job']!r}, timeout=60)))")
            assert done == f"990 cents for order {fine['order']}"

            refused = project.shell(ASK + "print(json.dumps(client.post('/orders', {'cents': -1}).json()))")
            assert "rolled back" in refused["problem"]

            slow = {"cents": 50, "seconds": 5}
            killed = project.shell(ASK + f"print(json.dumps(client.post('/orders', {slow}).json()))")
            until(lambda: f"charging order {killed['order']}," in log.read_text(), "the job runs")
            os.kill(children_of(project.worker_pid)[0], signal.SIGKILL)
            number = killed["order"]
            until(lambda: log.read_text().count(f"charging order {number},") >= 2, "it runs again")
            done = project.shell(ASK + f"print(json.dumps(app.result({killed['job']!r}, timeout=60)))")
            assert done == f"50 cents for order {number}"
            assert project.shell(ASK + f"print(client.get('/orders/{number}').content.decode())") == {"receipt": done}
        with psycopg.connect(server.url) as connection:
            rows = connection.execute("SELECT cents, receipt FROM orders_order ORDER BY id").fetchall()
        assert [cents for cents, _ in rows] == [990, 50]
        assert all(receipt for _, receipt in rows)
    assert not redis.keys("queue:*")
    assert not redis.exists("retry", "dead")
