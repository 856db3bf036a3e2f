"""Jobs that fork: their children are no workers. Real processes."""

from __future__ import annotations

from pathlib import Path

from redis import Redis

from support.processes import Work, children_of, push
from support.worker import settled, until

NAMES = [f"after{n}" for n in range(20)]


def test_a_forked_child_runs_nothing_of_its_parent_and_ends_with_its_job(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    deeds = {"fork": "0", "fork_exit": "7", "fork_raise": "1", "multiprocessing": "0", "program": "0"}
    with Work(tmp_path / "w", redis_url, "-c", "1") as work:
        (pid,) = work.ready(redis)
        rows = [(do, do, 0.0) for do in deeds] + [("term", "multiprocessing", 60.0)]
        push(redis, "act", *rows, *[(name, "ok") for name in NAMES])
        settled(redis, len(rows) + len(NAMES))
        told = [(line[0], line[1]) for line in work.trace() if line[0].startswith("status=")]
        wanted = [(f"status={status}", do.split("_")[0]) for do, status in deeds.items()]
        assert told == [*wanted, ("status=-15", "multiprocessing")]
        assert work.count("start") == dict.fromkeys([*(row[0] for row in rows), *NAMES], 1), "nothing ran twice"
        assert {int(line[2]) for line in work.trace() if line[0] == "start"} == {pid}
        assert work.children == [pid], "the same process"
        until(lambda: not children_of(pid), "no child of a job is left")
        assert "as told" in work.log
    assert not redis.exists("retry", "dead")


def test_a_child_that_was_forked_on_the_event_loop_runs_no_step_of_its_neighbours(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "5") as work:
        (pid,) = work.ready(redis)
        push(redis, "aact", *[(name, 0.3) for name in NAMES])
        push(redis, "afork", ("a", "return"), ("b", "await"))
        settled(redis, len(NAMES) + 2)
        assert work.count("status=0") == {"return": 1}
        assert work.count("status=1") == {"await": 1}
        assert work.count("end") == dict.fromkeys([*NAMES, "a", "b"], 1)
        assert {int(line[2]) for line in work.trace()} == {pid}
        until(lambda: not children_of(pid), "no child of a job is left")
        assert "RuntimeError: " in work.log, "it is told why"
    assert not redis.exists("retry", "dead")
