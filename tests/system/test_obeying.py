"""A worker process hears every signal, also one that interrupts nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import os, signal, sys, threading
from henchman.supervisor.worker_main import Child
from henchman.supervisor.child import WorkerArgs

memory = os.memfd_create("board")
os.ftruncate(memory, 1 << 20)
reading, writing = os.pipe()
child = Child(WorkerArgs("x:app", {}, writing, reading, memory, os.memfd_create("crash"), 0))
child.catch_signals()
number = getattr(signal, sys.argv[1])
# as a signal that comes in the moment before the wait: the flag is set, and nothing is interrupted
threading.Timer(0.3, lambda: signal.pthread_kill(threading.get_ident(), number)).start()
print(child._next())
os._exit(0)
"""


@pytest.mark.parametrize(("name", "word"), [("SIGTERM", "stop"), ("SIGINT", "stop"), ("SIGTSTP", "quiet")])
def test_a_signal_that_wakes_nobody_is_heard(name: str, word: str) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, name], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (f"{word}\n", "")
