"""The pictures in README and docs show the console as it is."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from support.pictures import FOLDER, PICTURES, Picture, fingerprint

ROOT = Path(__file__).parents[2]
MOST = 300_000  # bytes of one picture


@pytest.mark.parametrize("picture", PICTURES, ids=lambda one: one.name)
def test_a_picture_is_of_the_templates_and_styles_of_today(picture: Picture) -> None:
    beside = (FOLDER / f"{picture.name}.sha256").read_text(encoding="ascii").strip()
    assert beside == fingerprint(picture), f"{picture.name}.png shows what is no more: run `make pictures`"
    image = (FOLDER / f"{picture.name}.png").read_bytes()
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", image[16:24]) == (picture.width, picture.height)
    assert len(image) < MOST


def test_every_picture_is_shown_somewhere_and_every_one_shown_is_made() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(one.read_text(encoding="utf-8") for one in pages)
    assert {f"{one.name}.{ending}" for one in PICTURES for ending in ("png", "sha256")} == {
        one.name for one in FOLDER.iterdir()
    }
    assert [one.name for one in PICTURES if f"pictures/{one.name}.png" not in text] == []


def test_the_readme_begins_with_the_console() -> None:
    head = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- start -->")[0]
    assert "docs/pictures/overview.png" in head
    assert "docs/pictures/overview-dark.png" in head
