"""Every setting: its name, its variable of the environment, its type, its default and its help."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from frozen.conftest import Frozen
from henchman.config import Config


def test_settings(frozen: Frozen, tmp_path: Path) -> None:
    plain, types = Config(), {one.name: one.type for one in dataclasses.fields(Config)}
    names = [one.name for one in plain.describe()]
    Config.load(start=tmp_path, env={variable(name): "" for name in names})  # an unknown one would raise
    frozen(
        "settings",
        [
            f"{one.name}  {variable(one.name)}  {types[one.name]}  = {getattr(plain, one.name)!r}  {one.help}"
            for one in plain.describe()
        ],
    )


def variable(name: str) -> str:
    return f"HENCHMAN_{name.upper()}"
