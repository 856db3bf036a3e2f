"""Batches while processes are killed and answers are lost: counts are what ran, callbacks come once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from henchman import App
from henchman.kernel import failpoints
from support.processes import Work
from support.worker import in_flight, jobs_in, until


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    failpoints.close()


def test_a_batch_under_kills(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    app = App(redis_url=redis_url)
    app.queues["late"].pause()  # the batch is not complete, and no callback runs, before the last kill
    with Work(tmp_path / "w", redis_url, "-p", "2", "-c", "4", "-q", "default", "-q", "late") as work:
        work.ready(redis, 2)
        callbacks = {"on_complete": "aact", "on_success": "aact", "on_death": "aact"}
        with app.batch("killed", results=True, **callbacks) as batch:
            pushed = [app.enqueue("act", f"j{n}", "sleep", 0.01).jid for n in range(600)]
            pushed.append(app.enqueue("act", "failing", "raise", queue="late", retry=0).jid)
        for share in (50, 200, 350, 500):
            until(lambda share=share: work.count("end").total() >= share, f"{share} jobs have ended")  # type: ignore[misc]
            work.kill_one()
        app.queues["late"].unpause()
        until(lambda: batch.status().state == "complete", "the batch is complete")
        until(lambda: work.count("end")[batch.id] == 2, "both callbacks ran")
        until(lambda: not in_flight(redis), "nothing is in flight")
    assert work.count("start")[batch.id] == 2, "complete and death, each once: nothing was killed while they ran"
    status = batch.status()
    assert status.done == status.total == 601
    assert (status.counts["finished"], status.counts["error"]) == (600, 1)
    assert {name for name in work.count("end") if name.startswith("j")} == {f"j{n}" for n in range(600)}
    assert status.called == {"complete": [1], "death": [1]}
    rows = list(batch.results())
    assert [one.jid for one in rows] == pushed
    assert [one.status for one in rows] == [*["finished"] * 600, "error"]
    assert (all(one.ok for one in rows[:600]), rows[600].message) == (True, "as told")
    assert redis.hlen(f"hm:batch:{batch.id}:jobs") == 0
    assert jobs_in(redis, "dead") == []
    assert not redis.lrange("hm:broken", 0, -1)
    app.close()


def test_a_batch_that_is_paused_again_and_again_under_kills(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    """Whoever is killed had jobs that ran, that were about to wait, and that had just been let go: none is lost."""
    app = App(redis_url=redis_url)
    with Work(tmp_path / "w", redis_url, "-p", "2", "-c", "4") as work:
        work.ready(redis, 2)
        with app.batch("paused") as batch:
            for n in range(1200):
                app.enqueue("act", f"j{n}", "sleep", 0.02)
        for turn in range(5):
            before = work.count("end").total()
            until(lambda before=before: work.count("end").total() >= before + 60, "some have ended")  # type: ignore[misc]
            batch.pause(f"turn {turn}", by="ana")
            work.kill_one()
            until(lambda: batch.status().counts["blocked"] > 0, "some wait")
            batch.unpause()
        until(lambda: batch.status().state == "complete", "the batch is complete")
        until(lambda: not in_flight(redis), "nothing is in flight")
    assert {name for name in work.count("end") if name.startswith("j")} == {f"j{n}" for n in range(1200)}
    status = batch.status()
    assert (status.counts["finished"], status.total, status.paused) == (1200, 1200, None)
    for name in ("hm:parked", "hm:batches:paused", "hm:releases", f"hm:batch:{batch.id}:jobs", "queue:default"):
        assert not redis.exists(name), name
    assert not [*redis.scan_iter("hm:needs:*"), *redis.scan_iter("hm:await:*"), *redis.scan_iter("hm:ready:*")]
    assert not redis.lrange("hm:broken", 0, -1)
    app.close()


@pytest.mark.parametrize("answer", [1, 2, 3])
def test_a_push_whose_answer_is_lost_is_pushed_once(redis: Redis, redis_url: str, tmp_path: Path, answer: int) -> None:
    app = App(redis_url=redis_url)

    @app.job(name="work")
    def work(n: int) -> None: ...

    batch = app.batch("lossy", results=True).open()
    failpoints.open_points(f"drop@batch_push:after#{answer}", tmp_path)
    assert batch.add(work, ((n,) for n in range(3000))).created == 3000
    assert any(tmp_path.iterdir()), "the connection was not cut"
    batch.close()
    assert batch.status().total == redis.llen("queue:default") == 3000
    args = [job["args"][0] for job in jobs_in(redis, "queue:default")]
    assert args == list(range(3000))
    assert [one.jid for one in batch.results()] == [job["jid"] for job in jobs_in(redis, "queue:default")]
    app.close()
