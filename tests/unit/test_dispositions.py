"""The suite in the background: it goes on ignoring what it was told to ignore, and its children do not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
BACKGROUND = """
import os, signal, subprocess, sys
from support.dispositions import IGNORABLE, let_children_hear

for number in IGNORABLE:
    signal.signal(number, signal.SIG_IGN)
let_children_hear()
child = "import signal, sys; print(*(signal.getsignal(int(one)) is signal.SIG_IGN for one in sys.argv[1:]))"
numbers = [str(int(one)) for one in IGNORABLE]
print(subprocess.run([sys.executable, "-c", child, *numbers], capture_output=True, text=True, check=True).stdout)
for number in IGNORABLE:
    os.kill(os.getpid(), number)
print("here still")
"""


def test_children_hear_what_the_suite_ignores() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BACKGROUND],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["False"] * 5 + ["here", "still"]
