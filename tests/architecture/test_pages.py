"""What the pages show can be typed: README is valid, the changelog has its form, every make target is explained."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

from architecture.source import ROOT
from henchman.config import Config

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_python_in_the_readme_is_python() -> None:
    assert blocks("python")
    for block in blocks("python"):
        ast.parse(block)


def test_settings_in_the_readme_are_settings(tmp_path: Path) -> None:
    assert blocks("toml")
    for block in blocks("toml"):
        (tmp_path / "henchman.toml").write_text(block)
        assert Config.load(start=tmp_path, env={}) != Config()
    for variable in re.findall(r"\b(HENCHMAN_[A-Z_]+)=(\S+)", README):
        assert Config.load(start=tmp_path, env=dict([variable])) != Config()


def test_the_changelog_begins_with_this_version_and_names_components() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    versions = [line for line in lines if line.startswith("## ")]
    assert re.fullmatch(r"## \d+\.\d+\.\d+ \((unreleased|\d{4}-\d\d-\d\d)\)", versions[0])
    assert all(re.match(r"- \[[A-Z][a-z ]+\] \S", line) for line in lines if line.startswith("- "))


def test_make_explains_itself() -> None:
    shown = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=150).stdout
    for target in ("demo", "test", "test-oldest", "check", "bench", "chaos", "docs"):
        assert re.search(rf"^  make {target} +\S", shown, re.MULTILINE)
