"""The benches run, measure something and say so; how fast it is here and now is not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
HOT = {
    "drain",
    "drain_ratio",
    "bare_rows",
    "bare_runs",
    "drain_worker",
    "drain_server",
    "push_ratio",
    "bulk",
    "idle_ratio",
}
KINDS = {
    "due_p99",
    "sleep_share",
    "compute_share",
    "async_share",
    "raise",
    "retried",
    "ordered",
    "ordered_p50",
    "tracked",
}
MORE = {"status_p99", "drain_once_ratio", "drain_1mb_mb", "import", "command_ready", "memory", "memory_end", "late"}
AROUND = {
    "processes_2",
    "steady_p99",
    "queues",
    "network_drain",
    "depth_1000000_drain",
    "idle_commands",
    "busy_10_30_80",
}


def ran(name: str, *options: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(BENCH / f"{name}.py"), *options], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.scale("benches load both cores")
def test_the_long_form_measures_everything(tmp_path: Path) -> None:
    found = ran("run", "--runs", "1", "--scale", "0.02", "--json", "--out", str(tmp_path))
    assert found["figures"].keys() >= HOT | KINDS | MORE | AROUND
    may_be_0 = {"late", "idle_commands", "heartbeat_commands"}
    waits_longer = {name for name in found["figures"] if name.startswith("busy_")}  # or shorter, by the noise
    wrong = {name: one for name, one in found["figures"].items() if not one["median"] > 0}
    assert wrong.keys() <= may_be_0 | waits_longer
    assert found["machine"]["python"].split()[1] == sys.version.split()[0]
    assert json.loads((tmp_path / "bench.json").read_text()) == found
    page = (tmp_path / "bench.md").read_text()
    assert all(one["what"] in page for one in found["figures"].values())


@pytest.mark.scale("benches load both cores")
@pytest.mark.parametrize(
    ("name", "options", "figures"),
    [
        (
            "contracts",
            ["--jobs", "100", "--bulk", "1000", "--runs", "1"],
            {"single_once_times", "bulk_once_times", "server_once", "duplicates_once"},
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
        ("steps", ["--rounds", "3", "--jobs", "2000"], {"read", "execute", "sum", "server_fetch", "server_settle"}),
        ("tuning", ["--jobs", "500", "--runs", "1"], {"plain", "slots_50", "each", "async", "always", "always_server"}),
        (
            "fair",
            ["--jobs", "500", "--runs", "1", "--waiting", "500", "--others", "2"],
            {"plain", "fair", "fair_ratio", "turn_p50", "turn_most"},
        ),
        ("isolated", ["--jobs", "50", "--runs", "1"], {"plain_clock", "isolated_clock", "isolated_processor"}),
        (
            "fleet",
            ["--processes", "5", "20", "--seconds", "1", "--jobs", "2000"],
            {"commands_5", "share_20", "process_20", "memory_20", "end_1", "end_500"},
        ),
        ("sizing", ["--jobs", "5000"], {"plain", "due later", "rss_10", "connections_50"}),
        ("tracing", ["--jobs", "2000", "--runs", "1"], {"off", "all", "all_cpu", "tenth_of_1ms"}),
    ],
)
def test_bench(name: str, options: list[str], figures: set[str]) -> None:
    found = ran(name, "--json", *options)
    assert found["bench"] == name
    assert figures <= found["figures"].keys()
    may_be_negative = {one for one in figures if "_of_" in one}
    medians = {figure: found["figures"][figure]["median"] for figure in figures - may_be_negative}
    assert all(median > 0 for median in medians.values()), medians
    assert set(found["missed"]) <= found["figures"].keys()


@pytest.mark.scale("benches load both cores")
def test_the_guard_measures_what_it_has_stored() -> None:
    command = [sys.executable, str(BENCH / "guard.py"), "--turns", "1", "--scale", "0.05"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode in (0, 1), done.stderr  # so few jobs prove nothing
    assert "turn 1: drain" in done.stdout
    assert "there is no stored ratio" not in done.stdout
    assert "no longer measured" not in done.stdout
