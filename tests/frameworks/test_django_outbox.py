"""``HENCHMAN = {"outbox": "default"}`` in a project: from ``migrate`` to a job that a worker took out of its table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from support.databases import PostgreSQL, running
from support.django_project import Project
from support.worker import until

pytestmark = pytest.mark.frameworks("it runs projects of Django, one of them on a PostgreSQL")

SETTINGS = 'HENCHMAN = {"outbox": "default"}'
JOB = """
@app.job(result_ttl=60)
def charge(order: int) -> str:
    return f"order {order} is charged"
"""
SELL = """
import json
from django.db import transaction
from orders.jobs import charge

with transaction.atomic():
    kept = charge.enqueue(1)
try:
    with transaction.atomic():
        charge.enqueue(2)
        raise ValueError
except ValueError:
    pass
print(json.dumps([kept.jid, kept.admission]))
"""
STATUS = """
import json
from henchman.contrib.django import app
status = app.outbox.status()
print(json.dumps([status.rows, status.waiting, bool(status.relay)]))
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The address of a PostgreSQL; None: the file that ``startproject`` chooses."""
    if request.param == "sqlite":
        yield None
        return
    with running(PostgreSQL) as server:
        yield server.url


def test_rows_of_a_transaction_become_jobs(database: str | None, tmp_path: Path, redis_url: str, redis: Redis) -> None:
    installed = "INSTALLED_APPS += ['henchman.outbox']"
    project = Project(tmp_path, redis_url, installed, SETTINGS, database=database, jobs=JOB)
    said = project.manage("check", "--database", "default")
    assert "henchman.W004" in said
    assert "manage.py migrate henchman_outbox --database default" in said
    project.manage("migrate")
    assert "no issues" in project.manage("check", "--database", "default")
    jid, admission = project.shell(SELL)
    assert (admission, redis.keys("queue:*")) == ("deferred", [])
    assert project.shell(STATUS) == [1, 1, False]
    with project.working():
        result = "import json\nfrom henchman.contrib.django import app\n"
        result += f"print(json.dumps(app.result({jid!r}, timeout=60)))"
        assert project.shell(result) == "order 1 is charged"
        until(lambda: project.shell(STATUS) == [0, 0, True], "its row is deleted")
        assert '"waiting": 0' in project.manage("henchman", "outbox", "--json")
    assert redis.get("stat:processed") == b"1"
    assert redis.keys("queue:*") == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["HENCHMAN = {'outbox': 'defualt'}"], "DATABASES has no such alias, only 'default'; did you mean 'default'?"),
        (
            ["DATABASES['old'] = {'ENGINE': 'django.db.backends.dummy'}", "HENCHMAN = {'outbox': 'old'}"],
            "henchman.E002) The outbox has no database: outbox = 'old': an outbox lives in PostgreSQL",
        ),
    ],
)
def test_a_database_that_has_no_outbox_stops_the_worker(
    settings: list[str], said: str, tmp_path: Path, redis_url: str
) -> None:
    project = Project(tmp_path, redis_url, "INSTALLED_APPS += ['henchman.outbox']", *settings, jobs=JOB)
    assert said in project.manage("check", status=1)
    assert said in project.manage("henchman", "work", status=1)
