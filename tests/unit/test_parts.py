"""``tools/test`` runs parts of the tests, counts them all, fails with each, and tries few failures once more, alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import state_of
from support.worker import until

ROOT = Path(__file__).resolve().parents[2]
TEST = (str(ROOT / "tools" / "test"), "together,alone")
SUITE = """
import pytest

def test_one(): assert {one}

@pytest.mark.alone("it is here for that")
def test_two(): assert {two}

@pytest.mark.scale("it is here for that")
def test_three(): assert {three}
"""
UNSTEADY = """
import pathlib, pytest

def fails_first(name):
    runs = pathlib.Path(name)
    with runs.open("a") as file:
        print("run of", name, file=file)
    assert len(runs.read_text().splitlines()) > 1, f"{name} was alone"
"""


def command(folder: Path, suite: str, *words: str) -> subprocess.Popen[str]:
    """Python with ``words``, in a folder with this suite."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone(why)\n    scale(why)\n", encoding="utf-8")
    (folder / "conftest.py").write_text('pytest_plugins = ["support.parts"]\n', encoding="utf-8")
    (folder / "test_suite.py").write_text(suite, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, *words, "-p", "xdist", "-p", "randomly"],  # all that are installed take three times as long
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(folder: Path, suite: str, *words: str) -> tuple[int, list[str]]:
    """The exit status and the lines of such a command."""
    with command(folder, suite, *words) as process:
        text, _ = process.communicate(timeout=150)
        return process.returncode, text.splitlines()


def ended(lines: list[str]) -> str:
    return lines[-1].partition(" in ")[0]


@pytest.mark.parametrize(
    ("parts", "bad", "status", "told"),
    [
        ("together,alone", "", 0, "2 passed"),
        ("together,alone", "one", 1, "1 failed, 1 passed"),
        ("together,alone", "two", 1, "1 failed, 1 passed"),
        ("together,alone", "three", 0, "2 passed"),
        ("scale", "", 0, "1 passed"),
        ("scale", "three", 1, "1 failed"),
    ],
)
def test_a_failure_of_each_part_is_one(tmp_path: Path, parts: str, bad: str, status: int, told: str) -> None:
    suite = SUITE.format(**{name: name != bad for name in ("one", "two", "three")})
    found, lines = run(tmp_path, suite, TEST[0], parts, "-n", "0")
    assert (found, ended(lines)) == (status, told)
    assert not [line for line in lines if "UNSTEADY" in line]


@pytest.mark.parametrize(("name", "status", "told"), [("two", 0, "1 passed"), ("three", 5, "no tests ran")])
def test_a_part_without_tests_is_fine_all_are_not(tmp_path: Path, name: str, status: int, told: str) -> None:
    found, lines = run(tmp_path, SUITE.format(one=True, two=True, three=True), *TEST, "-n", "0", "-k", name)
    assert (found, ended(lines)) == (status, told)


@pytest.mark.parametrize("mark", ["alone", "scale"])
def test_a_mark_says_why(tmp_path: Path, mark: str) -> None:
    found, lines = run(tmp_path, f"import pytest\n@pytest.mark.{mark}\ndef test_it(): pass", "-m", "pytest", "-q")
    assert found == 4
    assert "test_it: say why" in "\n".join(lines)


def runs(folder: Path, name: str) -> int:
    return len((folder / name).read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("side", ["0", "2"])
def test_a_test_that_passes_alone_is_named_at_the_end(tmp_path: Path, side: str) -> None:
    """Also when it fails at its teardown, which is an error beside a pass; the seed is the same."""
    suite = UNSTEADY + (
        "import random\n"
        "def test_good(): pass\n"
        "def test_shaky():\n    print('drawn', random.random())\n    fails_first('shaky')\n"
        "@pytest.fixture\ndef untidy():\n    yield\n    fails_first('untidy')\n"
        "def test_untidy(untidy):\n    with open('drawn', 'a') as file: print(random.random(), file=file)\n"
    )
    found, lines = run(tmp_path, suite, *TEST, "-n", side)
    assert (found, ended(lines)) == (0, "1 passed, 2 unsteady")
    block = lines[next(number for number, line in enumerate(lines) if "UNSTEADY" in line) :]
    heads = [line for line in block if line.startswith("---- ")]
    assert sorted(heads) == [f"---- test_suite.py::test_{name}, when it failed:" for name in ("shaky", "untidy")]
    assert [line for line in block if line.startswith("E ") and "shaky was alone" in line], "the first failure, whole"
    assert [line for line in block if line.startswith("drawn 0.")], "with what was printed"
    first, second = (tmp_path / "drawn").read_text(encoding="utf-8").splitlines()
    assert first == second
    assert runs(tmp_path, "shaky") == runs(tmp_path, "untidy") == 2


def test_a_test_of_those_that_run_alone_is_tried_once_more_too(tmp_path: Path) -> None:
    suite = UNSTEADY + "@pytest.mark.alone('why')\ndef test_shaky(): fails_first('shaky')\n"
    found, lines = run(tmp_path, suite, *TEST, "-n", "0")
    assert (found, ended(lines)) == (0, "1 unsteady")
    assert runs(tmp_path, "shaky") == 2


def test_who_fails_again_fails_the_run(tmp_path: Path) -> None:
    suite = UNSTEADY + "def test_shaky(): fails_first('shaky')\ndef test_bad(): fails_first(0)\n"
    found, lines = run(tmp_path, suite, *TEST, "-n", "0")
    assert (found, ended(lines)) == (1, "1 failed, 1 unsteady")
    assert [line for line in lines if line.startswith("---- ")] == ["---- test_suite.py::test_shaky, when it failed:"]


def test_many_that_fail_are_not_tried_again(tmp_path: Path) -> None:
    tests = "@pytest.mark.parametrize('n', range(6))\ndef test_shaky(n): fails_first(f'shaky{n}')\n"
    found, lines = run(tmp_path, UNSTEADY + tests, *TEST, "-n", "0")
    assert (found, ended(lines)) == (1, "6 failed")
    assert not [line for line in lines if "UNSTEADY" in line]
    assert {runs(tmp_path, file.name) for file in tmp_path.glob("shaky?")} == {1}


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_interrupt_ends_the_tests_and_begins_no_more(tmp_path: Path, stubborn: bool) -> None:
    """Ctrl-C once lets them end; a second one kills who does not."""
    heard = "signal.signal(signal.SIGINT, lambda *_: open('heard', 'w').close())" if stubborn else "pass"
    suite = SUITE.format(one=True, two="open('two', 'w')", three=True) + (
        "import os, signal, time\n"
        "def test_long():\n"
        f"    {heard}\n"
        "    with open('new', 'w') as file: file.write(str(os.getpid()))\n"
        "    os.rename('new', 'pid')\n"
        "    while True: time.sleep(1)\n"
    )
    with command(tmp_path, suite, *TEST, "-n", "1") as process:
        until((tmp_path / "pid").exists, "the tests run")
        process.send_signal(signal.SIGINT)
        if stubborn:
            until((tmp_path / "heard").exists, "it was asked to end")
            process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=100)
        assert process.returncode == 2, text
    assert " in " in text.splitlines()[-1]
    assert not (tmp_path / "two").exists(), "the next part was not begun"
    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    until(lambda: state_of(pid) in ("", "Z"), "nobody is left")
