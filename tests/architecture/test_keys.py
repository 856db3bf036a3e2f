"""Keys are spelt in store/keys.py and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from architecture.source import Module, modules

KEY = re.compile(r"(^|[:}])(hm|queue|stat):(?!\s)")


def test_no_other_file_spells_a_key() -> None:
    wrong = [
        f"{module.at(node)}: {node.value!r}"
        for module in modules().values()
        if module.file != "store/keys.py"
        for node in constants(module)
        if KEY.search(node.value if isinstance(node.value, str) else node.value.decode("latin-1"))
    ]
    assert not wrong, "\n".join(["ask henchman.store.keys for these:", *wrong])


def constants(module: Module) -> Iterator[ast.Constant]:
    """Every text or bytes literal, parts of f-strings too; docstrings and texts that stand alone left out."""
    alone = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in alone:
            yield node
