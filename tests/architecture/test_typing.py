"""The files of tests/typing as mypy reads them: what a user may not write is an error, and only that.

A line that must be refused bears ``# expect-error: code`` (mypy's code; several, separated by commas, where it
says several things about the line). A line without the mark must be fine.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from architecture.source import ROOT

FILES = sorted((ROOT / "tests" / "typing").glob("*.py"))
MARK = re.compile(r"# expect-error: ([a-z-]+(?:, [a-z-]+)*)")
LINE = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): error: (?P<text>.*)  \[(?P<code>[a-z-]+)\]")


@pytest.mark.timeout(300)  # the first run has no cache to stand on
def test_mypy_refuses_what_is_wrong_and_nothing_else() -> None:
    names = [file.relative_to(ROOT).as_posix() for file in FILES]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", *names]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found, texts = set(), []
    for line in run.stdout.splitlines():
        match = LINE.fullmatch(line)
        if match and match["file"] in names:
            found.add((match["file"], int(match["line"]), match["code"]))
            texts.append(line)
    expected = {
        (name, number, code.strip())
        for name, file in zip(names, FILES, strict=True)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if (mark := MARK.search(line))
        for code in mark[1].split(",")
    }
    assert expected, "tests/typing expects no error at all"
    assert found - expected == set(), "mypy refuses what should pass:\n" + "\n".join(texts)
    assert expected - found == set(), "mypy lets pass what should be refused"
