"""``make test`` runs every test in one of two parts, counts both and fails with either."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHY = '("it is here for that")'
SUITE = """
import pytest

def test_one(): assert {one}

@pytest.mark.alone{why}
def test_two(): assert {two}
"""


def run(folder: Path, *command: str, one: bool = True, two: bool = True, why: str = WHY) -> tuple[int, list[str]]:
    """The exit status and the lines of ``command`` in a suite of two tests."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = alone(why)\n", encoding="utf-8")
    (folder / "conftest.py").write_text('pytest_plugins = ["support.parts"]\n', encoding="utf-8")
    (folder / "test_suite.py").write_text(SUITE.format(one=one, two=two, why=why), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, *command, "-p", "no:henchman"],
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


TEST = (str(ROOT / "tools" / "test"), "-n", "0")


@pytest.mark.parametrize(
    ("one", "two", "status", "told"),
    [(True, True, 0, "2 passed"), (False, True, 1, "1 failed, 1 passed"), (True, False, 1, "1 failed, 1 passed")],
)
def test_a_failure_of_either_part_is_one(tmp_path: Path, one: bool, two: bool, status: int, told: str) -> None:
    ended, lines = run(tmp_path, *TEST, one=one, two=two)
    assert (ended, lines[-1].partition(" in ")[0]) == (status, told)


@pytest.mark.parametrize(("name", "status", "told"), [("two", 0, "1 passed"), ("none", 5, "no tests ran")])
def test_a_part_without_tests_is_fine_two_are_not(tmp_path: Path, name: str, status: int, told: str) -> None:
    ended, lines = run(tmp_path, *TEST, "-k", name)
    assert (ended, lines[-1].partition(" in ")[0]) == (status, told)


def test_a_mark_says_why(tmp_path: Path) -> None:
    ended, lines = run(tmp_path, "-m", "pytest", "-q", why="")
    assert ended == 4
    assert "test_two: say why" in "\n".join(lines)
