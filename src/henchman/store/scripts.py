"""The Lua files: loaded from the package, hashed at import, their headers read.

Each file opens with a contract that a test checks against every caller::

    -- name: what it does
    -- KEYS name name (name name)*        a group in brackets repeats
    -- ARGV name name (name)*
    -- returns what
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

try:  # the bare algorithm: a fifth of the time that hashlib takes to load, and this is loaded with every program
    from _sha1 import sha1  # type: ignore[import-not-found, unused-ignore]  # private, and with every CPython
except ImportError:
    from hashlib import sha1

__all__ = ["Script", "load"]


class Script(NamedTuple):
    """One atomic move: its name, its text and the hash under which the server knows it."""

    name: str
    text: str
    sha: str


def load(name: str) -> Script:
    """The script ``lua/<name>.lua``, with each line ``-- include <file>`` replaced by ``lua/lib/<file>.lua``."""
    folder = Path(__file__).with_name("lua")
    text = _whole(folder / "lib", (folder / f"{name}.lua").read_text(encoding="utf-8"))
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _whole(library: Path, text: str) -> str:
    lines = []
    for line in text.splitlines():
        if line.startswith("-- include "):
            piece = line.removeprefix("-- include ").strip()
            line = _whole(library, (library / f"{piece}.lua").read_text(encoding="utf-8"))  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines)
