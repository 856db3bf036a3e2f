"""Iterable jobs in real processes: a deploy in the middle, and a death."""

from __future__ import annotations

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
            [jid] = push(redis, job, (1000, 0.05))
            until(lambda: len(items(old)) >= 10, "ten items are done")
            assert old.stop() == 0
        done = items(old)
        assert done == list(range(len(done))), old.log
        assert len(done) < 1000, old.log
        assert int(redis.hget(f"it-{jid}", "c")) == len(done), old.log  # type: ignore[arg-type]
        assert redis.llen("queue:default") == 1
        assert not in_flight(redis)
        with Work(tmp_path / "new", redis_url, target=APP) as new:
            new.open()
            until(lambda: new.count("complete"), "it is complete")
            until(lambda: not redis.exists(f"it-{jid}"), "its state is gone")
        assert items(old, new) == list(range(1000)), new.log


def test_a_death_goes_back_to_the_last_save(redis_url: str, tmp_path: Path) -> None:
    with looker(redis_url) as redis, Work(tmp_path, redis_url, target=APP, ACTING_SAVE="0.5") as work:
        [pid] = work.ready(redis)
        [jid] = push(redis, "count", (1000, 0.05))
        until(lambda: redis.hget(f"it-{jid}", "c"), "it saved once")
        with work.held():  # nobody goes on before the last save is known
            work.kill_one(pid)
            saved = int(redis.hget(f"it-{jid}", "c"))  # type: ignore[arg-type]
            work.open()
        until(lambda: work.count("complete"), "another process completed it")
        found = items(work)
        first = [int(line[1]) for line in work.trace() if line[0] == "item" and int(line[2]) == pid]
        assert found == [*first, *range(saved, 1000)], work.log
        assert saved > 0
        until(lambda: not redis.exists(f"it-{jid}"), "its state is gone")


@pytest.mark.parametrize(("where", "again"), [("before#1", True), ("after#2", False)])
def test_a_death_at_the_very_end(redis_url: str, tmp_path: Path, where: str, again: bool) -> None:
    """Where it stands goes with the job's end, in one step: the job never starts anew.

    The script is sent twice: the first answer is that the server does not know it yet.
    """
    fault = f"kill@settle:{where}"
    env = {"HENCHMAN_TEST_FAULTS": fault, "HENCHMAN_TEST_FAULTS_FOLDER": str(tmp_path), "ACTING_SAVE": "0.5"}
    with looker(redis_url) as redis, Work(tmp_path / "w", redis_url, target=APP, **env) as work:
        work.ready(redis)
        [jid] = push(redis, "count", (1000, 0.05))
        until(lambda: redis.hget(f"it-{jid}", "c"), "it saved once")
        with work.held():  # nobody goes on before the last save is known
            saved = 0

            def struck() -> bool:
                nonlocal saved
                dead = (tmp_path / fault).exists() and not work.children
                saved = int(redis.hget(f"it-{jid}", "c") or saved)
                return dead

            work.open()
            until(struck, "the process was killed")
        until(lambda: not redis.exists(f"it-{jid}"), "its state is gone")
        until(lambda: not in_flight(redis), "it has ended")
        assert items(work) == [*range(1000), *(range(saved, 1000) if again else ())], work.log
        assert saved > 0
