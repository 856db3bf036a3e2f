"""A backtrace for people: the frames of the application are open, runs of library frames are folded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

__all__ = ["TracePiece", "folded"]

_LEAST: Final = 3  # library frames in a row that are folded
_NAMED: Final = 3  # packages that a fold names
_FRAME: Final = re.compile(r"^(?P<path>.+?):\d+:in ")
_LIBRARY: Final = re.compile(
    r"""/(?:site|dist)-packages/(?P<package>[^/:]+)   # installed
    | /lib(?:64)?/python\d[\d.]*/(?!site-packages|dist-packages)(?P<module>[^/:]+)  # of Python itself
    | /src/(?P<ours>henchman)/
    | /gems/(?P<gem>[^/:]+)
    | ^<frozen\ (?P<frozen>[\w.]+)>""",
    re.VERBOSE,
)


class TracePiece(NamedTuple):
    """Some lines of a backtrace. ``text``: what stands in place of folded ones, "" of open ones; ``cause``: the line
    names what caused the error above."""

    lines: Sequence[str]
    text: str = ""
    cause: bool = False


def folded(lines: Sequence[str]) -> list[TracePiece]:
    """A backtrace, innermost first, in pieces. Its first frame is always open: it raised."""
    pieces: list[TracePiece] = []
    for kind, run in groupby(enumerate(lines), lambda one: "" if one[0] == 0 else _kind(one[1])):
        some = [line for _, line in run]
        if kind == "library" and len(some) >= _LEAST:
            pieces.append(TracePiece(some, f"{len(some)} frames in {_packages(some)}"))
        else:
            pieces.append(TracePiece(some, cause=kind == "cause"))
    return pieces


def _kind(line: str) -> str:
    frame = _FRAME.match(line)
    if frame is None:
        return "cause" if line.startswith("caused by ") else ""
    return "library" if _LIBRARY.search(frame["path"]) else ""


def _packages(lines: Sequence[str]) -> str:
    """The names of the libraries, those first that were called last."""
    found = [next(filter(None, one.groups()), "") for one in map(_LIBRARY.search, lines) if one]
    names = list(dict.fromkeys(name.removesuffix(".py") for name in found))
    return ", ".join(names[:_NAMED]) + (" and others" if len(names) > _NAMED else "")
