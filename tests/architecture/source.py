"""The project's own source, parsed once: what every test of this folder reads."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "henchman"
LUA = SRC / "store" / "lua"
LIMITS = tomllib.loads((ROOT / "tests" / "architecture" / "limits.toml").read_text(encoding="utf-8"))

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """``name`` without the leading ``henchman.``; empty for the package itself."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def file(self) -> str:
        """Its path below src/henchman."""
        return self.path.relative_to(SRC).as_posix()

    def at(self, node: ast.AST) -> str:
        """Where ``node`` stands, for a message."""
        return f"src/henchman/{self.file}:{getattr(node, 'lineno', 1)}"


@cache
def modules() -> dict[str, Module]:
    """Every module by name."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return found


class Import(NamedTuple):
    """``target`` is a module of ours, without the leading ``henchman.``."""

    module: Module
    node: ast.stmt
    target: str


def own_imports() -> Iterator[Import]:
    """Every import of one of our modules by another."""
    for module in modules().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                below = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [one if one.removeprefix("henchman.") in modules() else node.module for one in below]
            else:
                continue
            for name in sorted(set(names)):
                if name == "henchman" or name.startswith("henchman."):
                    yield Import(module, node, name.removeprefix("henchman").removeprefix("."))


def functions(module: Module) -> Iterator[tuple[str, Function]]:
    """Every function of a module with its qualified name, nested ones too."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield prefix + child.name, child
                yield from walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    return walk(module.tree, "")


def called(node: ast.AST) -> str:
    """The dotted name that a call calls, or an empty text."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""
