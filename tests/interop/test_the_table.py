"""docs/sidekiq.md names a test for each row: each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`([a-z_]+/test_\w+\.py)(?:::(test_\w+))?`")


def test_every_test_that_the_page_names_is_there() -> None:
    page = (ROOT / "docs" / "sidekiq.md").read_text(encoding="utf-8")
    named = NAMED.findall(page)
    assert len(named) > 80
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / "tests" / file).exists()
        or (name and f"def {name}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8"))
    ]
    assert missing == []
