"""A stub beside a module gives it types that are loaded late: it says of every name what the module has, no more."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import henchman
from architecture.rooms import ROOMS, room_of
from architecture.source import SRC, Function

FRONT = SRC / "__init__.pyi"  # names only: its test is below
STUBS = sorted(set(SRC.rglob("*.pyi")) - {FRONT})


def members(path: Path) -> dict[str, str]:
    """Every function below a class, public ones, with its kind, decorators and parameters."""
    found = {}
    for one in ast.parse(path.read_text(encoding="utf-8")).body:
        for node in one.body if isinstance(one, ast.ClassDef) else ():
            if isinstance(node, Function) and not node.name.startswith("_"):
                marks = [ast.unparse(mark) for mark in node.decorator_list if ast.unparse(mark) != "overload"]
                names = [arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)]
                found[f"{getattr(one, 'name', '')}.{node.name}"] = f"{type(node).__name__} {marks} {names}"
    return found


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.name)
def test_a_stub_says_what_its_module_has(stub: Path) -> None:
    assert members(stub) == members(stub.with_suffix(".py"))
    assert members(stub)


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.name)
def test_a_stub_imports_downwards(stub: Path) -> None:
    here = room_of(".".join(stub.relative_to(SRC).with_suffix("").parts))
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("henchman."):
            there = room_of((node.module or "").removeprefix("henchman."))
            assert there == here or ROOMS[there].level < ROOMS[here].level, f"{stub.name}: {node.module}"


def test_the_front_stub_names_what_the_front_gives() -> None:
    tree = ast.parse(FRONT.read_text(encoding="utf-8"))
    named = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert named == set(henchman.__all__)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert getattr(henchman, alias.name) is getattr(module, alias.name), alias.name
