"""Several worker processes at work: both cores, one embedded server. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from support.processes import Work, cpu_of, push
from support.worker import settled, until


@pytest.mark.alone("it needs both cores")
def test_cpu_bound_jobs_use_both_cores(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-p", "2", "-c", "2") as work:
        pids = work.ready(redis, 2)
        before = [cpu_of(pid) for pid in pids]
        push(redis, "act", *[(f"j{n}", "cpu", 0.5) for n in range(16)])
        settled(redis, 16)
        used = [cpu_of(pid) - start for pid, start in zip(pids, before, strict=True)]
        assert sum(used) >= 7.5
        assert min(used) >= 0.9, f"both work: {used}"


def test_the_collector_looks_at_what_came_since_the_start(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "1") as work:
        work.ready(redis)
        push(redis, "act", ("j", "collector"))
        settled(redis, 1)
        assert ["frozen", "20000"] in [line[:2] for line in work.trace()]


def test_50_sleeping_tasks_on_50_slots_run_side_by_side(redis: Redis, redis_url: str, tmp_path: Path) -> None:
    with Work(tmp_path / "w", redis_url, "-c", "50") as work:
        work.ready(redis)
        push(redis, "agated", *[(f"j{n}",) for n in range(50)])
        until(lambda: len(work.trace()) == 50, "each has started")
        work.open()
        settled(redis, 50)
        events = [line[0] for line in work.trace()]
        assert events == ["start"] * 50 + ["end"] * 50, "the last starts before the first ends"


def test_a_client_and_a_worker_with_nothing_configured_share_the_embedded_server(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    with Work(folder, None) as work:
        script = "from support.acting import act; print(act.enqueue('j', 'ok').jid)"
        client = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script],
            cwd=folder, env=work.env, capture_output=True, text=True, timeout=150, check=True,
        )  # fmt: skip
        assert len(client.stdout.strip()) == 24
        until(lambda: work.count("end")["j"] == 1, "the worker ran it")
        (child,) = work.children
        os.kill(child, signal.SIGKILL)
        subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=folder, env=work.env, check=True,
                       capture_output=True, timeout=150)  # fmt: skip
        until(lambda: work.count("end")["j"] >= 2, "also after a kill")
        assert work.stop() == 0
    servers = [pid for pid in _pids() if str(folder).encode() in _cmdline(pid)]
    until(lambda: not [pid for pid in servers if _cmdline(pid)], "the last user has stopped the server")


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
