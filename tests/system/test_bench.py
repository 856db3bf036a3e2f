"""The benches run, measure something and say so; how fast it is here and now is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.scale("benches load both cores")
@pytest.mark.parametrize(
    ("name", "options", "figures"),
    [
        ("bare", ["--jobs", "500", "--runs", "1"], {"rate"}),
        ("load", ["--jobs", "2000", "--runs", "1"], {"bare", "worker", "ratio", "rss_ready", "rss_end"}),
        (
            "latency",
            ["--samples", "8", "--rate", "100", "--seconds", "0.5", "--idle", "2", "--busy", "0.05"],
            {"bare_p50", "idle_p50", "idle_p99", "steady_max", "due_p99", "heartbeat_commands"},
        ),
        (
            "enqueue",
            ["--jobs", "100", "--bulk", "2000", "--runs", "1"],
            {"single", "bare", "ratio", "bulk", "import", "child_ready", "rss_ready"},
        ),
        (
            "ordered",
            ["--jobs", "1500", "--runs", "1", "--samples", "8"],
            {"plain", "ordered", "ratio", "lowkiq", "memory", "start_p50", "start_p99"},
        ),
        (
            "contracts",
            ["--jobs", "100", "--bulk", "1000", "--runs", "1"],
            {"single_once_times", "bulk_once_times", "server_once", "duplicates_once", "drain_once_times"},
        ),
        ("large", ["--jobs", "3000"], {"producer", "growth", "filling", "status_fill", "status_drain", "page_worst"}),
        (
            "history",
            ["--jobs", "500", "--events", "2000", "--seconds", "1"],
            {"drained", "changes", "cpu", "rate", "page", "page_worst"},
        ),
        (
            "outbox",
            ["--jobs", "1000", "--rate", "50", "--seconds", "1"],
            {"burst", "rate", "lag_p50", "lag_p99", "lag_worst"},
        ),
    ],
)
def test_bench(name: str, options: list[str], figures: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / f"{name}.py"), "--json", *options],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["bench"] == name
    assert figures <= result.keys()
    assert result.get("heartbeat_commands", 0) >= 0, "two seconds of idling may lie between two beats"
    assert all(result[figure] > 0 for figure in figures - {"heartbeat_commands"})
    assert set(result["missed"]) <= result.keys()
