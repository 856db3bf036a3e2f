"""The files of tests/typing as mypy and pyright read them: what a user may not write is an error, and only that.

A line that must be refused bears ``# expect-error: code`` (mypy's code; several, separated by commas, where it
says several things about the line). A line without the mark must be fine. pyright says other things of a line, but
must say them of the same lines.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from architecture.source import ROOT

FILES = sorted((ROOT / "tests" / "typing").glob("*.py"))
MARK = re.compile(r"# expect-error: ([a-z-]+(?:, [a-z-]+)*)")
LINE = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): error: (?P<text>.*)  \[(?P<code>[a-z-]+)\]")


NAMES = [file.relative_to(ROOT).as_posix() for file in FILES]


def marked() -> set[tuple[str, int, str]]:
    """(file, line, code) of each error that is expected."""
    return {
        (name, number, code.strip())
        for name, file in zip(NAMES, FILES, strict=True)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (mark := MARK.search(line))
        for code in mark[1].split(",")
    }


@pytest.mark.timeout(300)  # the first run has no cache to stand on
def test_mypy_refuses_what_is_wrong_and_nothing_else() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", *NAMES]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found, texts = set(), []
    for line in run.stdout.splitlines():
        match = LINE.fullmatch(line)
        if match and match["file"] in NAMES:
            found.add((match["file"], int(match["line"]), match["code"]))
            texts.append(line)
    expected = marked()
    assert expected, "tests/typing expects no error at all"
    assert found - expected == set(), "mypy refuses what should pass:\n" + "\n".join(texts)
    assert expected - found == set(), "mypy lets pass what should be refused"


@pytest.mark.timeout(300)
def test_pyright_refuses_the_same_lines() -> None:
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, *NAMES]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    said = json.loads(run.stdout)
    assert said["summary"]["filesAnalyzed"] >= len(NAMES)
    found = {
        (str(Path(one["file"]).relative_to(ROOT)), one["range"]["start"]["line"] + 1): one["message"]
        for one in said["generalDiagnostics"]
        if one["severity"] == "error"
    }
    expected = {(name, line) for name, line, _ in marked()}
    assert {place: found[place] for place in found.keys() - expected} == {}, "pyright refuses what should pass"
    assert sorted(expected - found.keys()) == [], "pyright lets pass what should be refused"
