"""Everything is killed: first the server, then the worker that knows how its jobs ended. Real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.processes import Work, push
from support.server import running_server
from support.worker import in_flight, looker, settled, until


@pytest.mark.parametrize("journal", [True, False])
def test_what_ended_while_the_server_was_away_runs_once(tmp_path: Path, journal: bool) -> None:
    """With a journal; without one it runs again, which shows what the journal is for."""
    folder = tmp_path / "journal"
    settings = {"HENCHMAN_LEASE": "600", **({"HENCHMAN_JOURNAL": str(folder)} if journal else {})}
    with running_server("--appendfsync", "always", appendonly=True) as server, looker(server.url) as redis:
        with Work(tmp_path / "first", server.url, "-c", "3", **settings) as work:
            (pid,) = work.ready(redis)
            push(redis, "act_once", *[(f"j{number}", "sleep", 1) for number in range(3)])
            until(lambda: work.count("start").total() == 3, "three run")
            server.kill()
            until(lambda: work.count("end").total() == 3, "they end")
            if journal:
                until(
                    lambda: [one for one in folder.glob("*") if one.read_bytes().count(b"\n") == 4], "a head and three"
                )
            for one in (work.process.pid, pid):
                os.kill(one, signal.SIGKILL)
        server.start()
        if not journal:  # nobody of its host looks after it: as a lifeline would
            [key] = list(redis.scan_iter(match="hm:flight:*"))
            while redis.lmove(key.decode(), "queue:default", "LEFT", "RIGHT"):
                pass
        with Work(tmp_path / "second", server.url, "-c", "3", **settings) as work:
            work.ready(redis)
            settled(redis, 3)
            until(lambda: not list(folder.glob("*")), "nothing waits to be told")
            assert work.count("start").total() == (0 if journal else 3), work.log
            if journal:
                assert "told: how jobs of an earlier worker ended" in work.log
        assert not in_flight(redis)
        assert not redis.exists("queue:default", "retry", "dead")
