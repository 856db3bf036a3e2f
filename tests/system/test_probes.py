"""How a worker tells others that it is well: HTTP probes and systemd's notification."""

from __future__ import annotations

import contextlib
import io
import json
import mmap
import os
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from henchman.kernel.scoreboard import SCOREBOARD_BYTES, Scoreboard
from henchman.supervisor import child
from support.processes import Work
from support.replicas import free_port
from support.worker import looker, until


def ask(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, {}


def test_probes_tell_fetching_from_running(redis_url: str, tmp_path: Path) -> None:
    port = free_port()
    with looker(redis_url) as redis, Work(tmp_path / "w", redis_url, "-p", "2", "--health", str(port)) as work:
        work.ready(redis, 2)
        told = until(lambda: (now := ask(port, "/ready"))[0] == 200 and now[1], "both processes take work")
        assert ask(port, "/live")[0] == 200
        assert [one["state"] for one in told["processes"]] == ["fetching", "fetching"]
        assert ask(port, "/nonsense") == (404, {"paths": ["/health", "/live", "/metrics", "/ready"]})
        work.signal(signal.SIGTSTP)
        until(lambda: ask(port, "/ready")[0] == 503, "quiet is not ready")
        assert ask(port, "/live")[0] == 200  # it was told so: no reason to be killed
        assert work.stop() == 0


def test_a_process_that_starts_is_alive(redis_url: str, tmp_path: Path) -> None:
    port = free_port()
    with Work(tmp_path / "w", redis_url, "-p", "2", "--health", str(port)):
        told: list[tuple[int, Any]] = []

        def ready() -> bool:
            told.append(ask(port, "/live"))
            return told[-1][0] > 0 and ask(port, "/ready")[0] == 200

        until(ready, "both processes take work")
    assert {status for status, _ in told} <= {0, 200}, told
    assert "starting" in {one["state"] for _, facts in told if facts for one in facts["processes"]}


def test_a_process_that_takes_no_work_is_stuck_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(child.time, "monotonic", lambda: now[0])
    memory = mmap.mmap(-1, SCOREBOARD_BYTES)
    one, board = (
        child.ChildProcess(1, cast(Any, SimpleNamespace(pid=1)), -1, -1, memory, io.BytesIO()),
        Scoreboard(memory),
    )

    def after(seconds: float, beat: int, state: int) -> tuple[str, bool]:
        now[0] += seconds
        board.beat(beat, state)
        one.turns()
        return one.state, one.stuck

    one._note({"ready": True})
    assert after(1, 1, 0) == ("starting", False)
    assert after(1, 2, 1) == ("fetching", False)
    assert after(1, 3, 0) == ("stuck", False), "it joins anew"
    assert after(child.NO_WORK, 4, 0) == ("stuck", True)
    assert after(1, 5, 1) == ("fetching", False)
    now[0] += child.SILENT + 1
    assert (one.state, one.stuck) == ("stuck", True)


def test_a_port_in_use_is_told(redis_url: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with Work(tmp_path / "w", redis_url, "--health", str(taken.getsockname()[1])) as work:
            assert work.wait() != 0
            assert "cannot listen there" in work.log


def _drained(heard: socket.socket) -> None:
    """Make room for more: who sends waits for that."""
    with contextlib.suppress(BlockingIOError):
        while True:
            heard.recv(100)


def test_systemd_hears_ready_alive_and_stopping(redis_url: str, tmp_path: Path) -> None:
    path = tmp_path / "n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(path))
        heard.settimeout(90)
        env = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "1000000"}
        with looker(redis_url) as redis, Work(tmp_path / "w", redis_url, **env) as work:
            words = [heard.recv(100)]
            while b"READY=1" not in words or words.count(b"WATCHDOG=1") < 2:
                words.append(heard.recv(100))
            work.ready(redis)
            os.kill(work.pid, signal.SIGTERM)
            while words[-1] != b"STOPPING=1":
                words.append(heard.recv(100))
            heard.setblocking(False)
            until(lambda: work.process.poll() is not None or _drained(heard), "it ends, while somebody listens")
            assert work.wait() == 0
    assert words.count(b"READY=1") == 1
