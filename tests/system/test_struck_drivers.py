"""Time-outs that strike jobs in the middle of a database driver: what the driver locks is not ours to know."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import text

from henchman.history.database import Database
from support.databases import LEFT, DatabaseServer, MariaDB, PostgreSQL, available, running
from support.processes import Work, push
from support.worker import in_flight, jobs_in, settled, until

JOBS = 600  # struck once each, at random moments of one transaction after another
HOW = "pooled", "plain"
REPLACED = 10.0  # seconds after which a process that stands still is replaced
LOADED = 50.0  # and what a loaded machine adds until the next one has done its work


@pytest.fixture(params=[PostgreSQL, MariaDB], ids=lambda kind: kind.program)
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    if not available(request.param):
        pytest.skip("it is not installed (apt install postgresql mariadb-server)")
    with running(request.param) as made:
        yield made


@pytest.mark.filterwarnings(LEFT)
def test_jobs_that_are_struck_in_a_database_driver(
    tmp_path: Path, redis: Redis, redis_url: str, server: DatabaseServer
) -> None:
    """The process goes on, or another one does within 10 s: each job ends once, and each transaction is whole."""
    database = Database(server.url)
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE driven (number BIGINT, half INT)"))
    with Work(tmp_path / "work", redis_url, "-c", "8", target="support.driven:app", DRIVEN_DATABASE=server.url) as work:
        work.ready(redis)
        for number in range(JOBS):
            push(redis, "toil", (HOW[number % 2],), retry=0, hm={"timeout": random.uniform(0.002, 0.1)})
        settled(redis, JOBS)
        push(redis, "write", *((how,) for how in HOW * 8), retry=0)
        until(lambda: int(redis.get("stat:processed") or 0) >= JOBS + 16, "it goes on", REPLACED + LOADED)  # type: ignore[arg-type]
        assert not redis.exists("queue:default", "retry", "hm:deaths", "hm:suspects")
        assert not in_flight(redis)
        ends = Counter((job["class"], job["error_class"], job["error_message"][:200]) for job in jobs_in(redis, "dead"))
        assert {(name, kind) for name, kind, _ in ends} == {("toil", "JobTimeout")}, ends
        dead = [job["jid"] for job in jobs_in(redis, "dead") if job["error_class"] == "JobTimeout"]
        assert len(dead) == len(set(dead)) == redis.zcard("dead") == JOBS, "each was struck, and ended once"
    with database.reading() as connection:
        broken = connection.execute(text("SELECT number FROM driven GROUP BY number HAVING COUNT(*) <> 2")).fetchall()
        written = connection.execute(text("SELECT COUNT(*) FROM driven")).scalar_one()
    database.close()
    assert not broken, "each transaction is there whole, or not at all"
    assert written >= 2 * 16, "and those of the last jobs are"
