"""Ten thousand jobs on PostgreSQL, which is restarted in between: no job fails twice for a dead connection, and a
worker process never has more connections than slots."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from redis import Redis

from support.databases import DatabaseServer, PostgreSQL, running
from support.django_project import Project
from support.worker import until

pytestmark = pytest.mark.frameworks("it runs thousands of jobs of Django against a PostgreSQL that is restarted")

JOBS = 10_000  # of each of four ways to keep connections
SLOTS = 5
JOB = """
from django.db import connection
from henchman import current_job


@app.job(retry_in=lambda count, error: 0.2)
def note(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO notes (number, attempt) VALUES (%s, %s)", [number, current_job().attempt])


"""
# A backend of Django that notes how many connections of its process are open at once, whenever that is a new most. A
# server lists a connection for a moment after its client has closed it.
COUNTED = """
import threading
from pathlib import Path

from django.db.backends.postgresql.base import *
from django.db.backends.postgresql import base

lock, opened, most = threading.Lock(), set(), 0


class DatabaseWrapper(base.DatabaseWrapper):
    def get_new_connection(self, params):
        global most
        made = super().get_new_connection(params)
        with lock:
            opened.add(id(made))
            if len(opened) > most:
                most = len(opened)
                with Path("most").open("a") as file:
                    file.write(f"{most}\\n")
        return made

    def _close(self):
        had = self.connection
        try:
            super()._close()
        finally:
            with lock:
                opened.discard(id(had))
"""
WAYS = {
    "each run its own": "'CONN_MAX_AGE': 0",
    "a minute": "'CONN_MAX_AGE': 60",
    "for ever": "'CONN_MAX_AGE': None",
    "a pool": f"'OPTIONS': {{'pool': {{'min_size': 1, 'max_size': {SLOTS}}}}}",
}


@pytest.fixture(scope="module")
def server() -> Iterator[DatabaseServer]:
    with running(PostgreSQL) as made:
        yield made


@pytest.mark.parametrize("way", WAYS)
def test_a_restart_of_the_database_costs_no_job_two_failures(
    way: str, tmp_path: Path, redis_url: str, redis: Redis, server: DatabaseServer
) -> None:
    settings = (
        "DATABASES['default']['ENGINE'] = 'counted'",
        f"DATABASES['default'] |= {{{WAYS[way]}}}",
        f"HENCHMAN = {{'concurrency': {SLOTS}}}",
        "DEBUG = False",
    )
    project = Project(tmp_path, redis_url, *settings, database=server.url, jobs=JOB)
    (project.folder / "counted").mkdir()
    (project.folder / "counted" / "base.py").write_text(COUNTED)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS notes")
        connection.execute("CREATE TABLE notes (number integer, attempt integer)")
    half = JOBS // 2
    push = "import json\nfrom orders.jobs import note\n"
    push += "print(json.dumps(note.enqueue_many([(n,) for n in range({}, {})]).count))"
    assert project.shell(push.format(0, half)) == half
    with project.working() as log:
        until(lambda: int(redis.get("stat:processed") or 0) >= half // 4, "a part has run")
        server.kill()
        server.start()
        assert project.shell(push.format(half, JOBS)) == JOBS - half
        until(lambda: counted(server) == JOBS, "every job has run", 90 + JOBS / 10)
        until(lambda: redis.zcard("retry") == 0 and not redis.keys("hm:inflight:*"), "nothing is left")
    assert redis.zcard("dead") == 0
    with psycopg.connect(server.url) as connection:
        rows = connection.execute("SELECT number, max(attempt) FROM notes GROUP BY number").fetchall()
    assert len(rows) == JOBS
    assert max(dead_connections(log.read_text()).values(), default=0) <= 1
    assert 1 <= max(map(int, (project.folder / "most").read_text().split())) <= SLOTS


def counted(server: DatabaseServer) -> int:
    with psycopg.connect(server.url) as connection:
        return connection.execute("SELECT count(DISTINCT number) FROM notes").fetchone()[0]  # type: ignore[index]


def dead_connections(log: str) -> Counter[str]:
    """By job, how often it failed on a connection that was there no more, and not for a server that takes none."""
    failed = re.findall(r'msg="will be retried" jid=(\w+) .*? reason="?(.*)', log)
    away = (
        "refused",
        "starting up",
        "No such file",
        "not yet accepting",
        "shutting down",
        "PoolTimeout",
        "couldn't get",
    )
    return Counter(jid for jid, reason in failed if not any(one in reason for one in away))
