"""No snapshot is left over."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from frozen.conftest import SNAPSHOTS


def test_every_snapshot_is_compared_by_a_test() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    names = [re.sub(r"\{.+?\}", "*", one) for one in re.findall(r'frozen\(\s*f?"([^"]+)"', sources)]
    left = [file.name for file in SNAPSHOTS.iterdir() if not any(fnmatch(file.name, f"{one}.txt") for one in names)]
    assert not left, "no test compares these; delete them, or rename them with their test"
