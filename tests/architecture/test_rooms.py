"""Rooms import downwards, as the table in rooms.py says; no cycles, no hidden imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from graphlib import CycleError, TopologicalSorter

import pytest

from architecture.rooms import IMPORT_ANYWHERE, IMPORTS_BY_NAME, NOBODY_IMPORTS, ROOMS, SCRIPTS, allowed, room_of
from architecture.source import ROOT, SRC, Function, called, modules, own_imports


def test_every_module_stands_in_a_room_and_not_deeper() -> None:
    for module in modules().values():
        assert room_of(module.name) in ROOMS, f"{module.file}: no room of this name in tests/architecture/rooms.py"
        deeper = (
            module.name.rpartition(".")[0] not in SCRIPTS
            and module.name.count(".") > room_of(module.name).count(".") + 1
        )
        assert not deeper, f"{module.file}: src/henchman/<room>/<file>.py, never deeper"


def test_the_table_itself_points_downwards() -> None:
    for name, room in ROOMS.items():
        for target in room.may:
            assert ROOMS[room_of(target)].level < room.level, f"{name} may not import {target}"


def test_rooms_import_only_what_the_table_allows() -> None:
    wrong = []
    for one in own_imports():
        here, there = room_of(one.module.name), room_of(one.target)
        rooms, single = allowed(here)
        if here != there and there not in rooms and one.target not in single:
            wrong.append(f"{one.module.at(one.node)}: {here} must not import henchman.{one.target}")
        if one.target.rpartition(".")[0] in SCRIPTS:
            wrong.append(f"{one.module.at(one.node)}: nobody imports {one.target}")
        if here != there and there in NOBODY_IMPORTS:
            wrong.append(f"{one.module.at(one.node)}: nobody imports {there}")
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_by_a_detour() -> None:
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for one in own_imports():
        if one.module.file not in IMPORT_ANYWHERE or one.node in one.module.tree.body:
            graph[one.module.name].add(one.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail("a cycle of imports: " + " → ".join(error.args[1]))


def lazy(node: ast.AST) -> bool:
    """Whether this is a ``load`` function, in which the one heavy part of a room is imported."""
    return isinstance(node, Function) and node.name == "load"


def test_imports_stand_at_the_top_and_are_absolute() -> None:
    wrong = []
    loads: Counter[str] = Counter()
    for module in modules().values():
        free = module.file in IMPORT_ANYWHERE
        loads[room_of(module.name)] += any(lazy(one) and has_import(one) for one in module.tree.body)
        excused = {id(one) for node in module.tree.body if lazy(node) for one in ast.walk(node)}
        for node in ast.walk(module.tree):
            if isinstance(node, Function | ast.Lambda | ast.ClassDef) and not free and id(node) not in excused:
                inner = [one for one in ast.walk(node) if isinstance(one, ast.Import | ast.ImportFrom)]
                wrong += [f"{module.at(one)}: an import below the top" for one in inner]
            if isinstance(node, ast.ImportFrom) and node.level:
                wrong.append(f"{module.at(node)}: a relative import")
            if not free and isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith("TYPE_CHECKING"):
                wrong.append(f"{module.at(node)}: TYPE_CHECKING; import it, or move what is shared down")
    wrong += [
        f"{room}: {count} load functions that import; a room has one" for room, count in loads.items() if count > 1
    ]
    assert not wrong, "\n".join(sorted(set(wrong)))


def has_import(function: ast.AST) -> bool:
    return any(isinstance(one, ast.Import | ast.ImportFrom) for one in ast.walk(function))


def test_other_peoples_packages_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [
        lines for name, lines in project["optional-dependencies"].items() if name not in {"browser", "dev", "docs"}
    ]
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    declared = {
        "henchman",
        "opentelemetry",
        "_sha2",  # of CPython 3.12 and newer
        *(re.split(r"[^A-Za-z0-9_-]", line)[0].replace("-", "_").lower() for line in lines),
    }
    wrong = []
    for module in modules().values():
        for node in ast.walk(module.tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            tops = {name.partition(".")[0] for name in names} - declared - sys.stdlib_module_names
            wrong += [f"{module.at(node)}: {top} is not in pyproject.toml" for top in sorted(tops)]
    assert not wrong, "\n".join(wrong)


def test_only_the_listed_files_import_by_name() -> None:
    wrong = [
        f"{module.at(node)}: {called(node)}; only {', '.join(IMPORTS_BY_NAME)} may"
        for module in modules().values()
        for node in ast.walk(module.tree)
        if called(node).rpartition(".")[2] in {"import_module", "__import__", "resolve_name"}
        and module.file not in IMPORTS_BY_NAME
    ]
    assert not wrong, "\n".join(wrong)


def test_types_stand_in_the_code() -> None:
    stubs = [path.relative_to(SRC).as_posix() for path in SRC.rglob("*.pyi")]
    assert not stubs, f"stubs: {stubs}; write the types where the code is"
