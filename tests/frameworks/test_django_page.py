"""docs/django.md: its own commands, in a shell, from ``startproject`` to a job that ran, in ten lines at most."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import clean_environ
from support.worker import until

pytestmark = pytest.mark.frameworks("it runs projects of Django as processes")

PAGE = (Path(__file__).parents[2] / "docs" / "django.md").read_text(encoding="utf-8")
OPENING = PAGE.partition("## From nothing")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(sh|python|text)\n(.*?)^```$", OPENING, re.MULTILINE | re.DOTALL)


def typed(language: str, text: str) -> str:
    """A block as lines of a shell."""
    if language == "sh":
        return "".join(f"{one}\n" for one in text.splitlines() if not one.startswith("pip "))
    head, _, body = text.partition("\n")
    return f"cat > {head.removeprefix('# ')} <<'END'\n{body}END\n"


def test_ten_lines_lead_to_a_job_that_ran(tmp_path: Path, redis_url: str) -> None:
    lines = [line for language, text in BLOCKS if language != "text" for line in text.splitlines() if line]
    counted = [line for line in lines if not line.startswith(("#", "pip "))]
    assert len(counted) <= 10, counted
    wanted = [text.strip() for language, text in BLOCKS if language == "text"]
    script = "set -e\n" + "".join(typed(*one) for one in BLOCKS if one[0] != "text")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = clean_environ() | {"PATH": path, "HENCHMAN_REDIS_URL": redis_url}
    env.pop("DJANGO_SETTINGS_MODULE", None)
    log = tmp_path / "log"
    with log.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", f"{script}wait\n"], cwd=tmp_path, env=env, stdout=out, stderr=out, process_group=0
        )
    try:
        until(lambda: all(one in log.read_text() for one in wanted) or shell.poll(), f"the page's output: {wanted}")
        assert all(one in log.read_text() for one in wanted), log.read_text()
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(60)
