"""The pages under docs/ show what there is: blocks compile, settings exist, options are complete, links lead."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from architecture.source import ROOT
from henchman.cli.main import COMMANDS
from henchman.client.options import JobOptions, PushOptions
from henchman.config import Config

PAGES = sorted((ROOT / "docs").glob("*.md"))
ALL = pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@ALL
def test_python_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        if ">>>" not in block:  # these are run, by a test of their page
            ast.parse(block)


@ALL
def test_settings_are_settings(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        (tmp_path / ("pyproject.toml" if "[tool." in block else "henchman.toml")).write_text(block)
        if "henchman" in tomllib.loads(block).get("tool", {"henchman": {}}):
            assert Config.load(start=tmp_path, env={}) != Config()
        for file in tmp_path.iterdir():
            file.unlink()
    for variable in re.findall(r"\b(HENCHMAN_[A-Z_]+)=(\S+)", page.read_text(encoding="utf-8")):
        if variable[0] != "HENCHMAN_DEBUG":
            Config.load(start=tmp_path, env=dict([variable]))


@ALL
def test_commands_are_commands(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shell = "\n".join(blocks(page, "sh")) + "\n".join(re.findall(r"`(henchman [^`]+)`", text))
    for word in re.findall(r"(?<![\w./\[-])henchman (?:-A \S+ )?([a-z]+)", shell):
        assert word in COMMANDS, f"henchman {word}"


@ALL
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / target).exists(), target


def test_every_option_of_a_job_is_told() -> None:
    page = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")
    told = {
        name: "yes" in row.rpartition("| ")[2] or "only there" in row
        for row in re.findall(r"^\| `.*\|$", page.partition("## Options")[2].partition("\n## ")[0], re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    ours = {"iterable"}  # said by @app.iterable alone
    assert set(told) == {*JobOptions.__struct_fields__, *PushOptions.__struct_fields__} - ours
    assert {name for name, one in told.items() if one} == set(PushOptions.__struct_fields__)
