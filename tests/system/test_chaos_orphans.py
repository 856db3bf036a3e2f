"""How orphans end: the chaos run adopts them and writes it down, and its judge knows who was killed by nobody."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHAOS = Path(__file__).parents[2] / "chaos"
RAN = [
    "100.0 push tiny-exact-1",
    "100.1 accepted tiny-exact-1",
    "100.2 start tiny-exact-1 1 100.05 a",
    "100.3 end tiny-exact-1 1 ok",
]


@pytest.fixture
def repeats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What the judge knows of repeats and orphans, of the ledger above with these lines of the run."""
    monkeypatch.syspath_prepend(str(CHAOS))
    past: Any = importlib.import_module("past")
    module: Any = importlib.import_module("repeats")

    def look(*attacks: str) -> Any:
        for name, lines in (("worker-8-b", RAN), ("chaos-9-c", attacks)):
            (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
        return module.Repeats(past.History(tmp_path))

    return look


@pytest.mark.parametrize(
    ("status", "window", "fine"),
    [
        (0, "", True),
        (3, "", True),
        (-signal.SIGKILL, "", False),
        (-signal.SIGSEGV, "", False),
        (-signal.SIGKILL, "kill 103.9 104.1 8", True),
        (-signal.SIGKILL, "stopped 99.0 104.5 8", True),  # its supervisor killed it before
        (-signal.SIGSEGV, "kill 103.9 104.1 8", False),
        (-signal.SIGKILL, "kill 104.1 104.3 8", False),  # afterwards
        (-signal.SIGKILL, "kill 103.9 104.1 9", False),
        (-signal.SIGKILL, "orphaned 103.0 120.0 8", False),  # which kills only the supervisor
    ],
)
def test_an_orphan_ends_as_it_should_or_by_an_attack(
    repeats: Callable[..., Any], status: int, window: str, fine: bool
) -> None:
    windows = (f"104.6 window {window}",) if window else ()
    found = list(repeats(f"104.0 exit 8 {int(status)}", *windows).unasked())
    assert found == ([] if fine else [f"8 was ended by signal {-status} at 104.000"])


def test_a_repeat_without_a_cause_says_how_its_process_ended(repeats: Callable[..., Any]) -> None:
    again = ("106.0 start tiny-exact-1 1 100.05 a", "106.1 end tiny-exact-1 1 ok")
    (told,) = repeats("104.0 exit 8 -11", *again).unexplained
    assert "8 100.200-100.300 ok (an orphan, ended at 104.000 with status -11)" in told


ADOPTED = """
import os, signal, subprocess, sys, time, types
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from ledger import Ledger
from orphans import Orphans
ledger, group = Ledger(Path(sys.argv[2]), "chaos"), types.SimpleNamespace(known=set(), supervisors=[])
orphans = Orphans([group], ledger)
parent = subprocess.Popen(["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
child = int(parent.stdout.readline())
group.supervisors.append(parent.pid)
group.known |= {parent.pid, child}
parent.kill()
parent.wait()
os.kill(child, signal.SIGSEGV)
while not (found := [one.read_text() for one in Path(sys.argv[2]).iterdir() if "exit" in one.read_text()]):
    time.sleep(0.01)  # between two looks
orphans.close()
print(child, found[0].split(" ", 1)[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere init adopts whoever has lost its parent")
def test_the_run_adopts_orphans_and_writes_down_how_they_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ADOPTED, str(CHAOS), str(tmp_path)]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    child, *told = run.stdout.split()
    assert told == ["exit", child, "-11"]
