"""The header of a Lua file, and which names in its text hold keys.

A header opens the file::

    -- name: what it does
    -- KEYS name name (name name)*        a group in brackets repeats, and comes last
    -- ARGV name name (name)*
    -- returns what

A script that makes keys itself has ``queues`` as its first key, includes ``lib/keys.lua``, and names them:
``key('retry')``, or ``key('queue_prefix') .. name``; an effect brings whole ones, ``own_key(name)``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

NAMES = re.compile(r"(?P<fixed>[a-z_0-9 ]*?) ?(?:\((?P<group>[a-z_0-9 ]+)\)\*)?")
CALL = re.compile(r"redis\.p?call\s*\(")
STRING = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|\[\[.*?\]\]", re.DOTALL)
NO_KEY = {"TIME", "PUBLISH", "INFO", "CONFIG", "DBSIZE"}
TWO_KEYS = {"LMOVE", "RPOPLPUSH", "SMOVE", "RENAME", "RENAMENX", "COPY", "ZRANGESTORE"}
ALL_KEYS = {"DEL", "UNLINK", "EXISTS", "MGET", "TOUCH", "SUNION", "SINTER", "SDIFF", "WATCH"}


class Names(NamedTuple):
    """The names of a header line: those that stand once, and the group that repeats."""

    fixed: list[str]
    group: list[str]

    def fit(self, count: int) -> bool:
        """Whether ``count`` values can stand under these names."""
        more = count - len(self.fixed)
        return more == 0 or (more > 0 and bool(self.group) and more % len(self.group) == 0)

    def name(self, index: int) -> str:
        """The name of value number ``index``, from 0."""
        if index < len(self.fixed):
            return self.fixed[index]
        return self.group[(index - len(self.fixed)) % len(self.group)]


class Header(NamedTuple):
    name: str
    keys: Names
    args: Names


def read_header(text: str) -> Header:
    """The header of a script; ValueError says which line is wrong."""
    lines = [*text.splitlines()[:4], "", "", "", ""]
    if not (first := re.fullmatch(r"-- ([a-z_0-9]+): \S.*", lines[0])):
        raise ValueError(f"line 1 must be '-- name: what it does', not {lines[0]!r}")
    names = []
    for number, word in ((1, "KEYS"), (2, "ARGV")):
        match = re.fullmatch(rf"-- {word}(?: (.*))?", lines[number])
        parsed = NAMES.fullmatch((match[1] or "").strip()) if match else None
        if not parsed:
            raise ValueError(f"line {number + 1} must be '-- {word} name name (name name)*', not {lines[number]!r}")
        names.append(Names(parsed["fixed"].split(), (parsed["group"] or "").split()))
    if not re.match(r"-- returns \S", lines[3]):
        raise ValueError(f"line 4 must be '-- returns what', not {lines[3]!r}")
    return Header(first[1], *names)


def without_comments(text: str) -> str:
    """The code of a script; what stands in its strings stays."""
    pattern = re.compile(rf"(?P<keep>{STRING.pattern})|--\[\[.*?\]\]|--[^\n]*", re.DOTALL)
    return pattern.sub(lambda match: match["keep"] or "", text)


def strings(code: str) -> list[str]:
    """The string literals of a script, without their quotes."""
    return [match[0].strip("'\"[]") for match in STRING.finditer(code)]


def indexes(code: str, table: str) -> list[int]:
    """Every plain number n in ``KEYS[n]`` or ``ARGV[n]``."""
    return [int(match) for match in re.findall(rf"\b{table}\[(\d+)\]", code)]


def key_problems(code: str) -> list[str]:
    """The calls of a script that touch something which neither came from KEYS nor was made by ``key``."""
    known = key_names(code)
    wrong = []
    for match in CALL.finditer(code):
        command, *rest = arguments(code, match.end() - 1)
        word = command.strip("'\"").upper()
        if not STRING.fullmatch(command):
            wrong.append(f"redis.call({command}, …): spell the command")
        elif word in ALL_KEYS:
            wrong += [f"{word} {one}" for one in rest if not is_key(one.removeprefix("unpack("), known)]
        elif word not in NO_KEY:
            due = rest[: 2 if word in TWO_KEYS else 1]
            wrong += [f"{word} {one}" for one in due if not is_key(one, known)]
    return wrong


def keys_made(code: str) -> list[str]:
    """The names of the keys that a script makes with ``key``; what is no plain text stands as it is written."""
    made = (arguments(code, match.end() - 1) for match in re.finditer(r"(?<!function )\bkey\(", code))
    return [one.strip("'") if STRING.fullmatch(one) else repr(one) for [one] in made]


def key_table(library: str) -> dict[str, str]:
    """What ``lib/keys.lua`` knows: name → what follows the prefix."""
    return dict(re.findall(r"(?m)^    (\w+) = '([^']+)',$", library))


def is_key(expression: str, known: set[str]) -> bool:
    """Whether an expression begins with an element of KEYS, KEYS itself, a key that the script makes, or a name that
    only ever held such."""
    return (
        bool(re.match(r"KEYS\b|key\('|own_key\(", expression))
        or re.split(r"[\[,)]| \.\.", expression)[0].strip() in known
    )


def key_names(code: str) -> set[str]:
    """The names that are only ever bound to keys. Scopes are not told apart: one name, one meaning a file."""
    bound: dict[str, list[str]] = {}
    for names, values in re.findall(r"(?m)^\s*(?:local\s+)?([\w, ]+?)\s*=\s*([^=\n].*)$", code):
        for name, value in zip(names.split(","), split(values), strict=False):
            if value.strip() != "{}":  # an empty table holds what is put into it later
                bound.setdefault(name.strip(), []).append(value.removeprefix("{").strip())
    for name, value in re.findall(r"(?m)^\s*(\w+)\[[^\n]*\]\s*=\s*([^=\n].*)$", code):
        bound.setdefault(name, []).append(value)
    for names, table in re.findall(r"for\s+\w+\s*,\s*(\w+)\s+in\s+ipairs\((\w+)\)", code):
        bound.setdefault(names, []).append(table)
    for name, parameters in re.findall(r"function\s+([\w.]+)\s*\(([^)]*)\)", code):
        for match in re.finditer(rf"(?<!function )\b{re.escape(name)}\s*\(", code):
            for parameter, value in zip(split(parameters), arguments(code, match.end() - 1), strict=False):
                bound.setdefault(parameter, []).append(value)
    known = set(bound)
    while True:
        left = {name for name in known if all(is_key(value, known) for value in bound[name])}
        if left == known:
            return known
        known = left


def arguments(code: str, bracket: int) -> list[str]:
    """The arguments of a call whose opening bracket stands at ``bracket``."""
    depth = 0
    for index in range(bracket, len(code)):
        depth += {"(": 1, ")": -1}.get(code[index], 0)
        if depth == 0:
            return split(code[bracket + 1 : index])
    return split(code[bracket + 1 :])


def split(text: str) -> list[str]:
    """``text`` at its outermost commas."""
    parts, depth = [""], 0
    for char in text:
        depth += 1 if char in "([{" else -1 if char in ")]}" else 0
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]
