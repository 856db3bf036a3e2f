"""Iterable jobs in real processes: a deploy in the middle, and a death."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.processes import Work, push
from support.worker import in_flight, looker, until

APP = "support.counting:app"


def items(*works: Work) -> list[int]:
    return [int(line[1]) for work in works for line in work.trace() if line[0] == "item"]


@pytest.mark.parametrize("job", ["count", "acount"])
def test_a_deploy_in_the_middle(redis_url: str, tmp_path: Path, job: str) -> None:
    with looker(redis_url) as redis:
        with Work(tmp_path / "old", redis_url, target=APP) as old:
            old.ready(redis)
            [jid] = push(redis, job, (60, 0.05))
            until(lambda: len(items(old)) >= 10, "ten items are done")
            assert old.stop() == 0
        done = items(old)
        assert done == list(range(len(done))), old.log
        assert len(done) < 60, old.log
        assert int(redis.hget(f"it-{jid}", "c")) == len(done), old.log  # type: ignore[arg-type]
        assert redis.llen("queue:default") == 1
        assert not in_flight(redis)
        with Work(tmp_path / "new", redis_url, target=APP) as new:
            until(lambda: new.count("complete"), "it is complete")
            until(lambda: not redis.exists(f"it-{jid}"), "its state is gone")
        assert items(old, new) == list(range(60)), new.log


def test_a_death_goes_back_to_the_last_save(redis_url: str, tmp_path: Path) -> None:
    with looker(redis_url) as redis, Work(tmp_path, redis_url, target=APP) as work:
        [pid] = work.ready(redis)
        [jid] = push(redis, "count", (150, 0.05))
        saved = int(until(lambda: redis.hget(f"it-{jid}", "c"), "it saved once"))  # type: ignore[arg-type, return-value]
        os.kill(pid, signal.SIGKILL)
        until(lambda: work.count("complete"), "another process completed it", 40)
        found = items(work)
        first = [int(line[1]) for line in work.trace() if line[0] == "item" and int(line[2]) == pid]
        assert found == [*first, *range(saved, 150)], work.log
        assert saved > 0
        until(lambda: not redis.exists(f"it-{jid}"), "its state is gone")


@pytest.mark.parametrize(("where", "again"), [("before#1", True), ("after#2", False)])
def test_a_death_at_the_very_end(redis_url: str, tmp_path: Path, where: str, again: bool) -> None:
    """Where it stands goes with the job's end, in one step: the job never starts anew.

    The script is sent twice: the first answer is that the server does not know it yet.
    """
    fault = f"kill@settle:{where}"
    env = {"HENCHMAN_TEST_FAULTS": fault, "HENCHMAN_TEST_FAULTS_FOLDER": str(tmp_path)}
    with looker(redis_url) as redis, Work(tmp_path / "w", redis_url, target=APP, **env) as work:
        work.ready(redis)
        [jid] = push(redis, "count", (140, 0.05))
        saved = int(until(lambda: redis.hget(f"it-{jid}", "c"), "it saved once"))  # type: ignore[arg-type, return-value]
        until((tmp_path / fault).exists, "the process was killed")
        until(lambda: not redis.exists(f"it-{jid}"), "its state is gone")
        until(lambda: not in_flight(redis), "it has ended")
        assert items(work) == [*range(140), *(range(saved, 140) if again else ())], work.log
        assert saved > 0
