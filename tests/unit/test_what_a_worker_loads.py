"""What a worker process has in memory before its first job: nothing that only some apps need."""

from __future__ import annotations

import subprocess
import sys

BLOCKED = "opentelemetry"  # redis-py loads it where it is installed, and all that it needs
UNNEEDED = (
    "sysconfig",
    "ctypes",
    "difflib",
    "unicodedata",
    "cronsim",
    "zoneinfo",
    "email.parser",  # redis-py reads its own version with it
    "sqlalchemy",
    "click",
    "rich",
    "starlette",
)
LOOK = f"""
import sys
sys.modules[{BLOCKED!r}] = None
import henchman.supervisor.worker_main, henchman.worker.launcher
from henchman import App
app = App(redis_url="redis://localhost:1")
parts = app.companions(alone=False), app.sources(), app.connections
print(*[one for one in {UNNEEDED} if one in sys.modules])
"""


def test_a_plain_worker_loads_nothing_that_only_some_need() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stderr, done.stdout) == ("", "\n")
