"""What ``import henchman`` gives, and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import henchman

PUBLIC = [
    "App",
    "ArgumentError",
    "BatchClosed",
    "BatchError",
    "Bucket",
    "Concurrent",
    "Config",
    "ConfigError",
    "CurrentJob",
    "DefinitionError",
    "Discard",
    "DuplicateJob",
    "Failure",
    "HenchmanError",
    "HistoryError",
    "HistoryFull",
    "Isolated",
    "IterableJob",
    "JobFailed",
    "JobShutdown",
    "JobTimeout",
    "Kill",
    "Leaky",
    "LimitReached",
    "Points",
    "ProcessCrashed",
    "ResultError",
    "ServerAway",
    "ServerError",
    "Snooze",
    "Unconfirmed",
    "UnknownBatch",
    "Window",
    "chain",
    "current_job",
    "group",
]  # every name that henchman exports, sorted: what is here we keep
HEAVY = ("redis", "asyncio", "click", "rich", "sqlalchemy", "starlette")


def python(code: str, **env: str) -> str:
    command = [sys.executable, "-c", code]
    kept = {name: value for name, value in (os.environ | env).items() if value}
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=150, env=kept).stdout


def test_public_names_are_the_ones_we_promised() -> None:
    names = list(getattr(henchman, "__all__", []))
    assert sorted(names) == sorted(PUBLIC)
    assert all(hasattr(henchman, name) for name in names)


def test_import_loads_nothing_heavy() -> None:
    assert python(f"import sys, henchman; print(*[name for name in {HEAVY} if name in sys.modules])").split() == []


@pytest.mark.alone("it measures processor time")
def test_import_is_quick(tmp_path: Path) -> None:
    """At most 100 ms; on a slowed machine at most 3.6 times what msgspec, which we stand on, takes in the same minute.

    Processor time, least of several: a busy neighbour must not decide. The first run compiles, as at installation.
    """

    def least(module: str) -> float:
        timed = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
        return min(float(python(timed, **compiled)) for _ in range(6))

    assert least("henchman") <= max(0.100, 3.6 * least("msgspec"))
