"""What others rely on, held against a file: names, texts and bytes that must not change by accident.

A snapshot is a text with one thing a line, so that a diff says what changed. A change on purpose renews it:
``make test ARGS="tests/frozen --renew"``, and the diff is reviewed with the change.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

SNAPSHOTS = Path(__file__).parent / "snapshots"
HOW = 'if this is meant: make test ARGS="tests/frozen --renew", and commit the file with its reason'
Frozen = Callable[[str, Iterable[str]], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew", action="store_true", help="tests/frozen: write the snapshots as things stand now")


@pytest.fixture
def frozen(request: pytest.FixtureRequest) -> Frozen:
    """``frozen("name", lines)``: the lines are those of snapshots/name.txt; ``--renew`` writes them there."""
    # The option is unknown when this folder is not named in the command.
    renew = bool(request.config.getoption("--renew", default=False))

    def compare(name: str, lines: Iterable[str]) -> None:
        file, now = SNAPSHOTS / f"{name}.txt", [*lines]
        assert now, f"{name}: there is nothing to freeze"
        broken = [line for line in now if len(line.splitlines()) > 1]
        assert not broken, f"{name}: one thing a line: {broken}"
        if renew:
            SNAPSHOTS.mkdir(exist_ok=True)
            file.write_text("\n".join([*now, ""]), encoding="utf-8")
        if not file.exists():
            pytest.fail(f"tests/frozen/snapshots/{name}.txt is missing; {HOW}", pytrace=False)
        held = file.read_text(encoding="utf-8").split("\n")[:-1]
        if now != held:
            diff = difflib.unified_diff(held, now, f"snapshots/{name}.txt", "as it is now", n=0, lineterm="")
            pytest.fail("\n".join([f"what others rely on has changed; {HOW}", *diff]), pytrace=False)

    return compare
