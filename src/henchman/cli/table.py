"""Tables that fit: columns as wide as they need, one that gives way, and no line that wraps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from henchman.kernel.text import shorten, visible

__all__ = ["Row", "Table", "cell"]

_LONGEST = 300  # characters of one cell; the column may show fewer
_GAP = "  "
_LEAST = 6  # a column does not get narrower than this
_LEAST_WIDE = 16  # nor does the one that gives way, as long as others can give


def cell(text: object, style: str = "") -> Text:
    """Any text as a cell: no markup, nothing invisible, not endless."""
    return Text(visible(shorten(str(text), _LONGEST)), style=style)


class Row(NamedTuple):
    """The cells of one line, and a note that stands below it on a line of its own."""

    cells: Sequence[Text | str]
    note: Text | None = None


class Table:
    """Columns and rows. A title that ends in ``>`` is a column of figures; one that ends in ``!`` is never cut; the
    column ``wide`` gives way when the terminal is narrow."""

    def __init__(self, columns: Sequence[str], rows: Iterable[Row], wide: str) -> None:
        self._right = [name.endswith(">") for name in columns]
        self._whole = [name.endswith("!") for name in columns]
        titles = [name.rstrip(">!") for name in columns]
        self._wide = titles.index(wide)
        self._titles = [Text(title, "bold") for title in titles]
        self._rows = [Row([one if isinstance(one, Text) else cell(one) for one in row.cells], row.note) for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        widths = self._widths(options.max_width)
        yield self._line(self._titles, widths)
        yield Text(
            ("-" if options.ascii_only else "─") * min(sum(widths) + len(_GAP) * (len(widths) - 1), options.max_width),
            "dim",
        )
        for cells, note in self._rows:
            yield self._line(cells, widths)
            if note is not None:
                line = Text.assemble(_GAP, note)
                line.truncate(options.max_width, overflow="ellipsis")
                yield line

    def _widths(self, most: int) -> list[int]:
        lines = [self._titles, *(row.cells for row in self._rows)]
        widths = [max(cell_len(str(line[index])) for line in lines) for index in range(len(self._titles))]
        room = most - len(_GAP) * (len(widths) - 1)
        others = [index for index in range(len(widths)) if index != self._wide and not self._whole[index]]
        while others and sum(widths) > room:
            rest = room - sum(width for index, width in enumerate(widths) if index != self._wide)
            if rest >= _LEAST_WIDE:
                break
            widest = max(others, key=lambda index: widths[index])
            if widths[widest] <= _LEAST:
                break
            widths[widest] -= 1
        others_now = sum(width for index, width in enumerate(widths) if index != self._wide)
        widths[self._wide] = max(min(widths[self._wide], room - others_now), _LEAST)
        return widths

    def _line(self, cells: Sequence[Text | str], widths: Sequence[int]) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        for index, (one, width) in enumerate(zip(cells, widths, strict=True)):
            held = one.copy() if isinstance(one, Text) else Text(one)
            held.truncate(width, overflow="ellipsis")
            held.align("right" if self._right[index] else "left", width)
            line.append_text(held)
            line.append("" if index == len(widths) - 1 else _GAP)
        line.rstrip()
        return line
