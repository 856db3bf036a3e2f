"""Ten thousand jobs on PostgreSQL, which is restarted in between: no job fails twice for a dead connection, and the
server never has more connections than the worker has slots."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from redis import Redis

from support.databases import DatabaseServer, PostgreSQL, running
from support.django_project import Project
from support.worker import until

pytestmark = pytest.mark.frameworks("it runs thousands of jobs of Django against a PostgreSQL that is restarted")

JOBS = int(os.environ.get("HENCHMAN_TEST_DJANGO_JOBS", "500"))  # of each of four ways to keep connections
SLOTS = 5
JOB = """
from django.db import connection
from henchman import current_job


@app.job(retry_in=lambda count, error: 0.2)
def note(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO notes (number, attempt) VALUES (%s, %s)", [number, current_job().attempt])


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


@contextmanager
def most_connections(server: DatabaseServer) -> Iterator[list[int]]:
    """How many connections named ``shop`` the server had at each look."""
    seen: list[int] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            try:
                with psycopg.connect(server.url, autocommit=True) as connection:
                    while not over.wait(0.01):
                        question = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shop'"
                        seen.extend(connection.execute(question).fetchone() or ())
            except psycopg.OperationalError:
                over.wait(0.05)  # it is being restarted

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(30)


@pytest.mark.parametrize("way", WAYS)
def test_a_restart_of_the_database_costs_no_job_two_failures(
    way: str, tmp_path: Path, redis_url: str, redis: Redis, server: DatabaseServer
) -> None:
    settings = (
        f"DATABASES['default'] |= {{{WAYS[way]}}}",
        "DATABASES['default'].setdefault('OPTIONS', {})['application_name'] = 'shop'",
        f"HENCHMAN = {{'concurrency': {SLOTS}}}",
        "DEBUG = False",
    )
    project = Project(tmp_path, redis_url, *settings, database=server.url, jobs=JOB)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS notes")
        connection.execute("CREATE TABLE notes (number integer, attempt integer)")
    half = JOBS // 2
    push = "import json\nfrom orders.jobs import note\n"
    push += "print(json.dumps(note.enqueue_many([(n,) for n in range({}, {})]).count))"
    assert project.shell(push.format(0, half)) == half
    with most_connections(server) as seen, project.working() as log:
        until(lambda: int(redis.get("stat:processed") or 0) >= half // 4, "a part has run")
        server.kill()
        server.start()
        assert project.shell(push.format(half, JOBS)) == JOBS - half
        until(lambda: counted(server) == JOBS, "every job has run", 90 + JOBS / 10)
        until(lambda: redis.zcard("retry") == 0 and not redis.keys("hm:inflight:*"), "nothing is left")
    text, closes = log.read_text(), way == "each run its own"
    assert redis.zcard("dead") == 0
    with psycopg.connect(server.url) as connection:
        rows = connection.execute("SELECT number, max(attempt) FROM notes GROUP BY number").fetchall()
    assert len(rows) == JOBS
    assert max(dead_connections(text).values(), default=0) <= 1
    assert max(seen) >= 1
    beyond = [one for one in seen if one > SLOTS]  # a backend is listed for a moment after its connection was closed
    assert len(beyond) <= len(seen) // 20 * closes, beyond


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
