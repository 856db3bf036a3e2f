"""A job passes no more of our files, and no longer functions, than limits.toml says: ``make ways`` shows each way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from architecture.source import LIMITS, ROOT

SLACK = {"files": 0, "lines": 30}  # of a measure that a loaded machine may lengthen
FEW = {"files": 1, "lines": 40}  # a way that is shorter than its ceiling by more than this lowers the ceiling


def measured() -> dict[str, Any]:
    """The ways, traced in a process of its own: a trace of threads goes through all that other tests left running."""
    command = [sys.executable, "-m", "architecture.ways", "--json"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def wrong(found: dict[str, Any]) -> list[str]:
    problems = []
    for kind, way in found.items():
        files, _, lines = way["total"]
        for what, size in (("files", files), ("lines", lines)):
            ceiling = LIMITS["ways"][kind][what]
            if size > ceiling + SLACK[what]:
                text = f"a {kind} job passes {size} {what}, at most {ceiling}. Its way:\n{way['table']}"
                problems.append(text)
            elif size < ceiling - FEW[what]:
                problems.append(f"limits.toml: [ways] {kind}: {what} is {ceiling}, and {size} are passed: lower it")
    return problems


@pytest.mark.alone("other work lengthens the ways that threads take")
def test_no_job_goes_a_longer_way() -> None:
    found = measured()
    assert found.keys() == LIMITS["ways"].keys()
    if wrong(found):  # once more: on a loaded machine something rare may have happened on the way
        found = measured()
    assert not wrong(found), "\n".join(wrong(found))
