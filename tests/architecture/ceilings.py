"""Writes today's figures into limits.toml: ``python -m architecture.ceilings`` (PYTHONPATH=tests).

Lowers what has fallen. What has risen is written too and printed: the change of limits.toml is what a reviewer reads.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import groupby

from architecture.source import LIMITS, ROOT
from architecture.test_house import alike, class_files, crowded, room_lines, slang_places

FILE = ROOT / "tests" / "architecture" / "limits.toml"


def key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'


def table(found: dict[str, int]) -> str:
    return "".join(f"{key(name)} = {found[name]}\n" for name in sorted(found))


def budget(name: str, lines: int) -> int:
    """Lines and 2 % (at least 20) to move in; the old budget as long as it fits."""
    old = int(LIMITS["rooms"].get(name, 0))
    return old if lines <= old and lines >= 0.9 * old - 20 else lines + max(20, lines // 50)


def slang() -> str:
    places = slang_places()
    stand = {word: entry | {"stand": len(places[word])} for word, entry in LIMITS["slang"].items()}
    return "".join(f'{word} = {{ stand = {one["stand"]}, say = "{one["say"]}" }}\n' for word, one in stand.items())


TABLES: dict[str, Callable[[], str]] = {
    "rooms": lambda: table({name: budget(name, lines) for name, lines in room_lines().items()}),
    "crowded": lambda: table(crowded()),
    "prefixes": lambda: table(alike()),
    "class_names": lambda: table({name: len(files) for name, files in class_files().items()}),
    "slang": slang,
}


def risen(name: str) -> list[str]:
    now = {
        "rooms": room_lines,
        "crowded": crowded,
        "prefixes": alike,
        "class_names": lambda: {one: len(files) for one, files in class_files().items()},
        "slang": lambda: {word: len(places) for word, places in slang_places().items()},
    }[name]()
    old = {one: value["stand"] if isinstance(value, dict) else value for one, value in LIMITS[name].items()}
    return [f"[{name}] {one}: {old.get(one, 0)} → {figure}" for one, figure in now.items() if figure > old.get(one, 0)]


def main() -> None:
    out = []
    for _, lines in groupby(FILE.read_text(encoding="utf-8").splitlines(keepends=True), _Section()):
        part = list(lines)
        head = re.fullmatch(r"\[(\w+)\]\n", part[0])
        if head and head[1] in TABLES:
            tail = [line for line in part[1:] if line.startswith("#") or not line.strip()]
            out += [part[0], TABLES[head[1]](), *(tail if tail else ["\n"])]
        else:
            out += part
    rises = [line for name in TABLES for line in risen(name)]
    FILE.write_text("".join(out), encoding="utf-8")
    print("\n".join(rises) or "nothing has risen", file=sys.stderr)


class _Section:
    """Numbers the lines by the table that they stand in."""

    def __init__(self) -> None:
        self._number = 0

    def __call__(self, line: str) -> int:
        self._number += line.startswith("[")
        return self._number


if __name__ == "__main__":
    main()
