"""The process that writes history: there when history is on, started anew when it dies, last to end. Real processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App
from henchman.errors import ServerAway
from henchman.kernel.events import Events
from henchman.supervisor import history_main
from support.acting import app as acting
from support.processes import Work, holds_on
from support.worker import until


def scribe_of(work: Work) -> int:
    """The pid of the process that writes history, once it is there."""
    return until(lambda: work.scribe, "the process that writes history is there")


def statuses(file: Path) -> dict[str, int]:
    """How many events have which status, as SQL tells."""
    with contextlib.suppress(sqlite3.OperationalError), sqlite3.connect(file) as connection:  # not made yet
        return dict(connection.execute("SELECT status, count(*) FROM henchman_events GROUP BY status").fetchall())
    return {}


def test_it_records_is_replaced_and_ends_last_with_nothing_left(
    redis: Redis, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "history.sqlite"
    client = App(redis_url=redis_url)
    with Work(tmp_path, redis_url, HENCHMAN_DATABASE_URL=f"sqlite:///{file}") as work:
        first = scribe_of(work)
        until(lambda: redis.get("hm:history:on"), "the history is on")
        with client.batch("first") as batch:
            for number in range(50):
                client.enqueue("act", f"a{number}", "ok")
        until(lambda: file.exists() and statuses(file).get("finished") == 50, "they are recorded")
        os.kill(first, signal.SIGKILL)
        until(lambda: not holds_on(first), "it is gone")
        redis.delete("hm:recorder")  # its lease runs out by itself in the next test
        second = until(lambda: work.scribe if work.scribe != first else 0, "another is there")
        assert second != first
        with client.batch("second") as batch:
            for number in range(50):
                client.enqueue("act", f"b{number}", "ok")
        until(lambda: statuses(file).get("finished") == 100, "it goes on where the first was")
        with client.batch("third") as batch:
            for number in range(50):
                client.enqueue("act", f"c{number}", "ok")
        until(lambda: client.batch_status(batch.id).done == 50, "they ran")
        assert work.stop() == 0
        assert not Path(f"/proc/{second}").exists()
    assert statuses(file) == {"finished": 150}, "also what was in the stream when it was told to stop"
    assert redis.xlen("hm:history") == 0
    client.close()


#: what had to wait beside busy slots went back, once or more often, and what lasted is told as begun
ONCE = re.compile("enqueued (enqueued )*(working )?finished")


def lives(file: Path) -> list[str]:
    """The statuses of each job in the order of its changes, as SQL tells."""
    query = "SELECT jid, status FROM henchman_changes WHERE jid IN (SELECT jid FROM henchman_events) ORDER BY jid, sid"
    found: dict[str, list[str]] = {}
    with sqlite3.connect(file) as connection:
        for jid, status in connection.execute(query):
            found.setdefault(jid, []).append(status)
    return [" ".join(life) for life in found.values()]


def test_one_that_was_stopped_past_its_lease_and_goes_on_writes_nothing_twice(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    file, client = tmp_path / "history.sqlite", App(redis_url=redis_url)
    homes = [tmp_path / name for name in ("one", "two")]
    for home in homes:
        home.mkdir()
    database = f"sqlite:///{file}"

    def leader() -> int:
        name = redis.get("hm:recorder")
        return int(name.split(b":")[1]) if name else 0  # type: ignore[union-attr]

    def told(count: int) -> bool:
        return file.exists() and statuses(file) == {"finished": count}

    with (
        Work(homes[0], redis_url, HENCHMAN_DATABASE_URL=database) as one,
        Work(homes[1], redis_url, HENCHMAN_DATABASE_URL=database) as two,
    ):
        scribes = {scribe_of(one), scribe_of(two)}
        first = until(leader, "one of them leads")
        with client.batch("before"):
            for number in range(50):
                client.enqueue("act", f"a{number}", "ok")
        until(lambda: told(50), "they are recorded")
        os.kill(first, signal.SIGSTOP)
        try:
            with client.batch("meanwhile"):
                for number in range(50):
                    client.enqueue("act", f"b{number}", "ok")
            until(lambda: leader() in scribes - {first}, "the other leads when its lease is over")
            until(lambda: told(100), "and writes what it left")
        finally:
            os.kill(first, signal.SIGCONT)
        with client.batch("after"):
            for number in range(50):
                client.enqueue("act", f"c{number}", "ok")
        until(lambda: told(150), "they go on")
        assert one.stop() == two.stop() == 0
    assert [life for life in lives(file) if not ONCE.fullmatch(life)] == []
    assert redis.xlen("hm:history") == 0
    client.close()


def test_one_that_is_told_to_end_while_the_server_is_full_writes_what_is_left(
    redis: Redis, redis_url: str, tmp_path: Path
) -> None:
    """It has to lead once more for that."""
    file = tmp_path / "history.sqlite"
    client = App(redis_url=redis_url, database_url=f"sqlite:///{file}")
    command = [sys.executable, "-m", "henchman.supervisor.history_main"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            os.write(process.stdin.fileno(), client.config.to_json().encode() + b"\n")  # type: ignore[union-attr]
            until(lambda: redis.get("hm:recorder"), "it leads")
            with client.batch("before"):
                client.enqueue("act", "a", "ok")
            until(lambda: statuses(file) == {"enqueued": 1}, "its tables are made")
            process.send_signal(signal.SIGSTOP)
            with client.batch("left"):
                client.enqueue("act", "b", "ok")
            redis.config_set("maxmemory", "1")
            process.stdin.close()  # type: ignore[union-attr]
            process.send_signal(signal.SIGCONT)
            assert process.wait(60) == 0
        finally:
            redis.config_set("maxmemory", "0")
            process.kill()
    assert statuses(file) == {"enqueued": 2}
    assert redis.xlen("hm:history") == 0
    assert not redis.exists("hm:recorder")
    client.close()


class Clock:
    """A time that passes while somebody sleeps."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(("away", "told"), [(2, 0), (10**6, 1)])
def test_one_that_is_told_to_end_while_the_server_is_away_waits_for_it_a_little(
    monkeypatch: pytest.MonkeyPatch, away: int, told: int
) -> None:
    clock = Clock()
    monkeypatch.setattr(history_main, "time", clock)
    asked: list[float] = []
    events = Events()
    heard: list[Any] = []
    events.on("server_away", lambda **facts: heard.append(facts))

    class Recorder:
        name = "recorder"

        def drain(self, timeout: float) -> bool:
            asked.append(timeout)
            clock.now += 0.05
            if len(asked) <= away:
                raise ServerAway("as told")
            return True

    history_main._drain(Recorder(), events)  # type: ignore[arg-type]
    assert len(heard) == told
    assert len(asked) >= 3
    assert asked == sorted(asked, reverse=True), "what is left of its time"
    took = clock.now - 1000.0
    assert told == (took > history_main.LAST - history_main.AGAIN), "all of its time, if that is what it takes"


def test_without_history_there_is_none(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path, redis_url) as work:
        work.ready(redis)
        assert len(work.children) == 1
        assert not redis.exists("hm:history:on")
        assert work.stop() == 0


def test_a_database_that_cannot_be_is_said_once(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path, redis_url, HENCHMAN_DATABASE_URL="sqlite:////proc/nowhere/history.sqlite") as work:
        work.ready(redis)
        until(lambda: "history" in work.log, "it is said")
        assert acting.registry.find("act") is not None
        client = App(redis_url=redis_url)
        client.enqueue("act", "x", "ok")
        until(lambda: b"x" in work.trace_file.read_bytes(), "jobs run on")
        client.close()
        assert work.stop() == 0
