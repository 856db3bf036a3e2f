"""The house may only get smaller and plainer: rooms and prefixes stand with their figures in limits.toml. What
grows needs a reviewed line there; what has shrunk has to be lowered there.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

from architecture.rooms import SCRIPTS, room_of
from architecture.source import LIMITS, LUA, SRC, functions, modules

MOST_FILES, ALIKE = 12, 3
LUA_ROOM = "store/lua"

#: names that people import or call, or plain English for another thing than the word of the list stood for
NO_SLANG = {
    "app.py": {"carry"},  # App.carry: public
    "testing/pushed.py": {"Collected"},  # public
}


def rooms() -> dict[str, list[Path]]:
    """The files of each room; Lua is a room of its own, an empty ``__init__.py`` is none."""
    found = defaultdict(list)
    for module in modules().values():
        if module.path.name != "__init__.py" or not module.name:
            found[room_of(module.name)].append(module.path)
    found[LUA_ROOM] = sorted(LUA.rglob("*.lua"))
    return dict(found)


def differences(table: str, found: Mapping[str, int], listed: Mapping[str, int], why: str) -> list[str]:
    """What differs from a list that may only shrink."""
    wrong = []
    for name in sorted({*found, *listed}):
        here, known = found.get(name, 0), listed.get(name, 0)
        if here > known:
            wrong.append(f"{name}: {here}, and [{table}] of limits.toml has {known}: {why}")
        elif here < known:
            wrong.append(f"limits.toml: [{table}] {name} = {known}, and there are only {here}: lower it")
    return wrong


def room_lines() -> dict[str, int]:
    return {
        room: sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        for room, paths in rooms().items()
    }


def test_no_room_is_above_its_budget() -> None:
    wrong = []
    listed = LIMITS["rooms"]
    for room, lines in room_lines().items():
        budget = listed.get(room, 0)
        if lines > budget:
            wrong.append(
                f"{room}: {lines} lines, and its budget in limits.toml is {budget}: make room in it, or say why"
            )
        elif lines < 0.9 * budget - 20:
            wrong.append(f"limits.toml: [rooms] {room} = {budget}, and it has {lines} lines: lower it")
    wrong += [f"limits.toml: [rooms] {room}: there is none" for room in sorted(listed.keys() - rooms().keys())]
    assert not wrong, "\n".join(wrong)


def crowded() -> dict[str, int]:
    return {room: len(paths) for room, paths in rooms().items() if room != LUA_ROOM and len(paths) > MOST_FILES}


def test_no_room_is_crowded() -> None:
    wrong = differences("crowded", crowded(), LIMITS["crowded"], f"a room has at most {MOST_FILES} files")
    assert not wrong, "\n".join(wrong)


def alike() -> dict[str, int]:
    found: Counter[str] = Counter()
    for room, paths in rooms().items():
        if room != LUA_ROOM:
            found.update(f"{room}/{path.stem.partition('_')[0]}" for path in paths if path.parent.name not in SCRIPTS)
    return {name: count for name, count in found.items() if count >= ALIKE}


def test_no_room_hides_another_behind_an_underscore() -> None:
    why = f"{ALIKE} files that share the text before an underscore are a room of their own, or one file"
    wrong = differences("prefixes", alike(), LIMITS["prefixes"], why)
    assert not wrong, "\n".join(wrong)


def class_files() -> dict[str, set[str]]:
    """The files of each class name that stands in more than one."""
    files = defaultdict(set)
    for module in modules().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(module.file)
    return {name: where for name, where in files.items() if len(where) > 1}


def test_a_class_name_lives_in_one_module() -> None:
    wrong = [f"{name}: {', '.join(sorted(files))}" for name, files in sorted(class_files().items())]
    assert not wrong, "one name, one thing: give each class its own:\n" + "\n".join(wrong)


def names() -> list[tuple[str, str]]:
    """(name, place) of every class, function and file, Python and Lua, but for those that are excused."""
    found = [(path.stem, path.relative_to(SRC).as_posix()) for paths in rooms().values() for path in paths]
    for module in modules().values():
        own = [(name.rpartition(".")[2], module.at(node)) for name, node in functions(module)]
        own += [(node.name, module.at(node)) for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
        excused = NO_SLANG.get(module.file, set())
        assert excused <= {name for name, _ in own}, f"{module.file}: an excuse in NO_SLANG is no longer needed"
        found += [one for one in own if one[0] not in excused]
    for path in LUA.rglob("*.lua"):
        text = path.read_text(encoding="utf-8")
        found += [(name, path.relative_to(SRC).as_posix()) for name in re.findall(r"\bfunction (?:\w+\.)?(\w+)", text)]
    return found


def test_one_job_waits_and_two_jobs_wait() -> None:
    """What is counted is one at times: ``count(…, does="wait")`` says what it does."""
    wrong = [
        f"{path}: {found[0]}"
        for path in sorted(SRC.rglob("*.py"))
        for found in re.finditer(
            r"count\([^{}]*\)\} (wait|are|have|do|stand|hold|fall|come|need|run)\b", path.read_text()
        )
    ]
    assert not wrong, "\n".join(wrong)


def test_no_name_is_slang() -> None:
    slang, wrong = LIMITS["slang"], []
    for name, place in names():
        word = name if name == "_App" else name.lstrip("_").lower()
        if word in slang:
            wrong.append(f"{place}: {name}; say {slang[word]}")
    assert not wrong, "\n".join(wrong)
