"""docs/protocol-tests.md names tests for each promise: they are there, and every test of tests/protocol is named."""

from __future__ import annotations

import re

from architecture.source import ROOT

PAGE = (ROOT / "docs" / "protocol-tests.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([a-z_]+/test_\w+\.py)(?:::(test_\w+))?`")
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)


def found_in(file: str) -> set[str]:
    path = ROOT / "tests" / file
    return set(DEFINED.findall(path.read_text(encoding="utf-8"))) if path.exists() else set()


def test_every_named_test_is_there() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 90
    missing = [f"{file}::{name}" for file, name in named if not found_in(file) or (name and name not in found_in(file))]
    assert missing == []


def test_every_row_names_a_test_or_what_it_comes_with() -> None:
    rows = [row for row in PAGE.splitlines() if row.startswith("| ") and row[2].isdecimal()]
    assert {row.split()[1].split(".")[0] for row in rows} == set("123456789")
    assert [row for row in rows if not NAMED.search(row) and "comes with" not in row] == []


def test_every_test_of_the_protocol_is_named() -> None:
    named = {name for _, name in NAMED.findall(PAGE)}
    extra = {"test_points_are_closed_unless_a_test_opens_them"}
    files = (ROOT / "tests" / "protocol").glob("test_*.py")
    assert {name for file in files for name in found_in(f"protocol/{file.name}")} - named - extra == set()
