"""The pictures of the console in README and docs, and of which templates and styles each one is."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, meta

__all__ = ["FOLDER", "PICTURES", "Picture", "fingerprint"]

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
_STYLES: Final = (".css", ".svg")


class Picture(NamedTuple):
    """A page as a PNG: its name, the page's template, the address (``{batch}`` and ``{workflow}`` are ids of the demo),
    its theme and its size."""

    name: str
    template: str
    path: str
    theme: str = "light"
    width: int = 1280
    height: int = 820


PICTURES: Final = (
    Picture("overview", "overview.html", "/"),
    Picture("overview-dark", "overview.html", "/", "dark"),
    Picture("workflow", "batch.html", "/batches/{workflow}"),
    Picture("batch", "batch.html", "/batches/{batch}"),
    Picture("errors", "errors.html", "/errors", height=600),
    Picture("phone", "overview.html", "/", "dark", 390, 780),
)


def fingerprint(picture: Picture) -> str:
    """What the picture shows, as a hash: its template, those that this one uses, and all styles and icons."""
    static = files("henchman.console").joinpath("static")
    parts = [
        one.read_bytes() for one in sorted(static.iterdir(), key=lambda one: one.name) if one.name.endswith(_STYLES)
    ]
    parts += [text.encode() for _, text in sorted(_templates(picture.template).items())]
    return sha256(b"\0".join(parts)).hexdigest()


def _templates(name: str) -> dict[str, str]:
    """A template and all that it extends, imports or includes: name → text."""
    environment = Environment(loader=PackageLoader("henchman.console"), autoescape=True)
    found: dict[str, str] = {}
    ahead: list[Any] = [name]
    while ahead:
        one = ahead.pop()
        if one and one not in found:
            found[one] = environment.loader.get_source(environment, one)[0]  # type: ignore[union-attr]
            ahead += meta.find_referenced_templates(environment.parse(found[one]))
    return found
