"""What the tests of commands share: a folder without settings, a server, and what must never be printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.store import Store

INVISIBLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without settings, from which modules can be imported, and a terminal of 100 columns."""
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    for name in ("REDIS_URL", "HENCHMAN_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def store(redis_url: str, project: Path) -> Iterator[Store]:
    made = Store(redis_url)
    yield made
    made.connections.close()
