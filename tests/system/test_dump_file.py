"""TTIN: each process writes where its threads and tasks stand, and what they run, into a file of its own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from redis import Redis

from support.acting_ordered import app as ordered_app
from support.processes import Work, push
from support.worker import until


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    made = tmp_path / "dumps"
    made.mkdir()
    return made


def parts(text: str) -> dict[str, str]:
    """What stands under each heading."""
    return {head: body for head, _, body in (part.partition(" ==\n") for part in text.split("\n== ")[1:])}


def test_each_process_has_a_file_with_threads_tasks_and_what_they_run(
    redis: Redis, redis_url: str, tmp_path: Path, dumps: Path
) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "3", "-p", "2", HENCHMAN_DUMP_FOLDER=str(dumps)) as work:
        pids = work.ready(redis, 2)
        (jid,) = push(redis, "aact", ("a", 60))
        (other,) = push(redis, "act", ("s", "asleep", 60))
        until(lambda: work.count("start")["a"] and work.count("asleep"), "both run")
        work.signal(signal.SIGTTIN)
        files = [dumps / f"henchman-{pid}-stacks.txt" for pid in pids]
        until(lambda: all(str(file) in work.log for file in files), "the log names both files")
        assert {file.name for file in dumps.iterdir()} == {file.name for file in files}, "and nothing else is left"
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
        texts = [file.read_text() for file in files]
        for pid, text in zip(pids, texts, strict=True):
            assert f":{pid}:" in text.splitlines()[0]
            assert "in _obey" in parts(text)["thread MainThread"]
        both = {head: body for text in texts for head, body in parts(text).items() if jid in head or other in body}
        task = both.pop(f"task aact {jid}")
        assert f"runs aact {jid} from default, attempt 1, for " in task
        assert "in aact" in task
        ((thread, stack),) = both.items()
        assert thread.startswith("thread henchman-job-")
        assert stack.startswith(f"runs act {other} from default, attempt 1, for ")
        assert "in _asleep" in stack


def test_an_ordered_claim_shows_its_token_and_its_ids(
    redis: Redis, redis_url: str, tmp_path: Path, dumps: Path
) -> None:
    trace = tmp_path / "trace"
    ordered_app.configure(redis_url=redis_url)
    job = ordered_app.registry.ordered()["ids"]
    deed = {"key": "k", "do": "sleep", "seconds": 60}
    job.push_many([(name, deed, 1) for name in ("x\x1b[2J", "y\u202e")])
    ordered_app.close()
    env = {"HENCHMAN_DUMP_FOLDER": str(dumps), "ORDERED_TRACE": str(trace)}
    with Work(tmp_path / "w", redis_url, "-t", "1", target="support.acting_ordered:app", **env) as work:
        (pid,) = work.ready(redis)
        started = until(lambda: [line for line in trace_lines(trace) if line[0] == "start"], "it runs")
        work.signal(signal.SIGTTIN)
        file = dumps / f"henchman-{pid}-stacks.txt"
        until(file.exists, "it is written")
        (stack,) = (body for body in parts(file.read_text()).values() if "runs ids " in body)
        told = stack.splitlines()[1]
        token = started[0][3]
        assert told == f"token {token}, 2 ids: x\\x1b[2J, y\\u202e", "as text, whatever an id holds"


def trace_lines(trace: Path) -> list[list[str]]:
    """The words of each line: ids here have no blanks."""
    return [line.split() for line in trace.read_text().splitlines()] if trace.exists() else []


def test_a_second_dump_takes_the_place_of_the_first_and_follows_no_link(
    redis: Redis, redis_url: str, tmp_path: Path, dumps: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    with Work(tmp_path / "w", redis_url, HENCHMAN_DUMP_FOLDER=str(dumps)) as work:
        (pid,) = work.ready(redis)
        file = dumps / f"henchman-{pid}-stacks.txt"
        file.symlink_to(precious)
        work.signal(signal.SIGTTIN)
        until(lambda: file.exists() and not file.is_symlink(), "the first")
        first = file.stat().st_ino
        push(redis, "act", ("s", "sleep", 60))
        until(lambda: work.count("start").total() == 1, "it runs")
        work.signal(signal.SIGTTIN)
        until(lambda: file.stat().st_ino != first, "the second")
        assert file.read_text().count("runs act ") == 1
    assert precious.read_text() == "mine"
    assert [one.name for one in dumps.iterdir()] == [file.name]


def test_where_it_cannot_be_written_the_log_has_it_all_the_same(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, HENCHMAN_DUMP_FOLDER=str(tmp_path / "not there")) as work:
        work.ready(redis)
        work.signal(signal.SIGTTIN)
        until(lambda: "part=dump" in work.log, "that is told")
        until(lambda: "in _obey" in work.log, "and the stacks are in the log")
        assert "was written down" not in work.log
