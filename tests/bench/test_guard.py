"""What the guard of the hot paths lets pass."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).resolve().parents[2] / "bench" / "guard.py"


@pytest.fixture(scope="module")
def guard() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_guard", PATH)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["bench_guard"] = made
    spec.loader.exec_module(made)
    return made


def test_a_fall_of_a_quarter_fails_and_less_passes(guard: ModuleType) -> None:
    stored = {"drain": 0.4, "push": 1.2}
    assert guard.fallen(stored, {"drain": 0.301, "push": 1.2}) == []
    assert guard.fallen(stored, {"drain": 4.0, "push": 0.91}) == []
    (line,) = guard.fallen(stored, {"drain": 0.299, "push": 1.2})
    assert line.startswith("drain fell by 25%: 0.299, stored 0.400")


def test_each_ratio_is_stored_and_measured(guard: ModuleType) -> None:
    assert tomllib.loads(PATH.with_suffix(".toml").read_text()).keys() == guard.RATIOS.keys()
    assert guard.fallen({"drain": 1.0}, {"push": 1.0}) == [
        "drain: it is no longer measured; guard.py --renew",
        "push: there is no stored ratio; guard.py --renew",
    ]


def test_what_is_renewed_is_what_is_read(guard: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(guard, "STORED", tmp_path / "guard.toml")
    found = dict.fromkeys(guard.RATIOS, 0.5)
    guard.renew(found, "a machine")
    assert tomllib.loads((tmp_path / "guard.toml").read_text()) == found
