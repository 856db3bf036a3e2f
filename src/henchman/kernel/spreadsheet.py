"""CSV for a spreadsheet, with no cell that a spreadsheet would take for a formula.

UTF-8 with a byte order mark (Excel takes it for something else otherwise), lines end in CR LF, cells with line breaks
are quoted. A text cell that begins like a formula gets an apostrophe before it; one that is longer than a spreadsheet's
cells are (32,767 characters) is cut, and says so.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable
from typing import Final

__all__ = ["MARK", "safe", "written"]

MARK: Final = "\ufeff".encode()
_LONGEST = 32_000
_SIGNS: Final = frozenset("=+-@\u2212")  # what a formula begins with; full-width and small forms fold into these
# Invisible, and spreadsheets skip some: blanks, controls, format characters, fillers, variation marks.
_UNSEEN: Final = ("Z", "C", "M")
_FILLERS: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_BREAKS: Final = frozenset("\t\r\n\v\f\u0085\u2028\u2029")  # at the start, these can make a formula of what follows


def safe(text: str) -> str:
    """``text`` as a cell of limited length that no spreadsheet takes for a formula."""
    text = text.replace("\0", "\ufffd")
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… ({len(text):,} characters)"
    return f"'{text}" if _may_be_formula(text) else text


def _may_be_formula(text: str) -> bool:
    """Whether a spreadsheet may take ``text`` for a formula: a sign at its start, or behind invisible characters."""
    for char in text:
        if char in _BREAKS or unicodedata.normalize("NFKC", char)[:1] in _SIGNS:
            return True
        if char not in _FILLERS and not unicodedata.category(char).startswith(_UNSEEN):
            return False
    return False


def written(rows: Iterable[Iterable[str | int | float]]) -> bytes:
    """Rows as lines of CSV; texts are written as they are: see ``safe``."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")  # half a surrogate pair is no UTF-8
