"""How the command line answers: lines or JSON, tables that fit, figures and times as people say them.

Text from elsewhere is shown as text: no markup, nothing invisible, not endless.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.text import Text

from henchman.errors import ServerAway
from henchman.kernel.figures import figure
from henchman.kernel.text import count, shorten, visible
from henchman.wire import times

__all__ = ["Table", "TableRow", "ago", "answer", "cell", "complain", "console", "count", "duration", "facts", "figure"]
__all__ += ["listed", "moment", "say", "size", "table", "watch"]

T = TypeVar("T")

_PIPE_WIDTH = 1000  # nobody cuts a line that another program reads
_DAY = 86400.0
_LONGEST = 300  # characters of one cell; the column may show fewer
_LONGEST_FACT = 1000
_GAP = "  "
_LEAST = 6  # a column does not get narrower than this
_LEAST_WIDE = 16  # nor does the one that gives way, as long as others can give


# ---- answers


def console() -> Console:
    """Standard output: as wide as the terminal, and as wide as it takes elsewhere."""
    wide = not (sys.stdout.isatty() or "COLUMNS" in os.environ)
    return Console(highlight=False, markup=False, emoji=False, width=_PIPE_WIDTH if wide else None)


def say(text: str) -> None:
    """One line of ours, with whatever of others it holds made visible."""
    click.echo(visible(text))


def complain(text: str) -> None:
    """One line for standard error."""
    click.echo(visible(text), err=True)


def answer(document: Any, *shown: RenderableType, as_json: bool) -> None:
    """What a command says: ``document`` as JSON, every invisible character as an escape; else each line and table."""
    if as_json:
        text = json.dumps(document, ensure_ascii=False, indent=2, default=str)
        click.echo(re.sub(r"[^\x20-\x7e\n]", lambda match: _escaped(match[0]), text))
        return
    for one in shown:
        if isinstance(one, str):
            say(one)
        else:
            console().print(one, soft_wrap=isinstance(one, Text))


def _escaped(char: str) -> str:
    if unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return char
    return json.dumps(char)[1:-1]


def watch(
    look: Callable[[], T],
    every: float,
    view: Callable[[T], RenderableType],
    line: Callable[[T], str],
    document: Callable[[T], Any] | None = None,
    *,
    until: Callable[[T], bool] = lambda _: False,
    screen: bool = False,
) -> T | None:
    """Look until ``until`` or Ctrl-C, through an outage of the server; the last look, None without any.

    A terminal gets one picture that changes, anything else a line a look, or the ``document`` as JSON.
    """
    out, found = console(), None
    drawn = out.is_terminal and document is None
    with Live(console=out, auto_refresh=False, screen=screen and drawn) as live, suppress(KeyboardInterrupt):
        while found is None or not until(found):
            try:
                found = look()
            except ServerAway as error:
                if drawn:
                    text = f"The server is away, looking again: {visible(str(error))}"
                    live.update(Text(text, "red"), refresh=True)
                else:
                    complain(str(error))
            else:
                if drawn:
                    live.update(view(found), refresh=True)
                else:
                    click.echo(json.dumps(document(found)) if document is not None else visible(line(found)))
                sys.stdout.flush()
                if until(found):
                    break
            time.sleep(every)
    return found


# ---- figures and times


def listed(shown: int, total: int, what: str) -> str:
    """``50 of 1,234 retries``."""
    return f"{shown:,} of {total:,} {what}" if shown < total else f"{total:,} {what}"


def duration(seconds: float | None) -> str:
    """``0.2 s``, ``12 s``, ``3 min``, ``2 h``, ``5 days``; ``–`` for None."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, size, unit in ((100, 1, "s"), (5400, 60, "min"), (36 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / _DAY:,.0f} days"


def size(bytes: int) -> str:
    """``512 bytes``, ``1.5 MB``, ``12 GB``."""
    for unit, name in ((1024**3, "GB"), (1024**2, "MB"), (1024, "KB")):
        if bytes >= unit:
            return f"{bytes / unit:.3g} {name}" if bytes < 1000 * unit else f"{bytes / unit:,.0f} {name}"
    return f"{bytes:,} bytes"


def ago(at: float | None, now: float | None = None) -> str:
    """``3 min ago``, ``in 2 h``; the day when it is far away; ``–`` for None. ``now``: by this machine's clock."""
    if at is None:
        return "–"
    now = time.time() if now is None else now
    away = abs(at - now)
    if away > 400 * _DAY:
        return times.day(at) or ("never" if at > now else "long ago")
    if away < 1:
        return "now"
    words = duration(away) if away >= 10 else f"{away:.0f} s"
    return f"in {words}" if at > now else f"{words} ago"


def moment(at: float | None, now: float | None = None) -> str:
    """``2026-11-21T09:30:48.964Z (3 min ago)``; ``–`` for None."""
    stamp = times.iso(at)
    return f"{stamp} ({ago(at, now)})" if stamp else ago(at, now)


# ---- facts and tables


def cell(text: object, style: str = "") -> Text:
    """Any text as a cell."""
    return Text(visible(shorten(str(text), _LONGEST)), style=style)


def facts(pairs: Iterable[tuple[str, object]], width: int = 11) -> Iterator[Text]:
    """A line for each name and value; None and "" are left out."""
    for name, value in pairs:
        if value is not None and value != "":
            yield Text.assemble((f"{name:<{width}}", "dim"), visible(shorten(str(value), _LONGEST_FACT)))


class TableRow(NamedTuple):
    """The cells of one line, and a note that stands below it on a line of its own."""

    cells: Sequence[Text | str]
    note: Text | None = None


def table(
    things: Iterable[T],
    columns: Mapping[str, Callable[[T], Any]],
    wide: str,
    error: Callable[[T], str | None] = lambda _: None,
) -> Table:
    """A line for each thing: the titles of ``Table``, with what each shows; ``error`` stands below the line."""

    def row(thing: T) -> TableRow:
        text = error(thing)
        return TableRow([show(thing) for show in columns.values()], cell(text, "red") if text else None)

    return Table(list(columns), map(row, things), wide)


class Table:
    """Columns as wide as they need, and no line that wraps.

    A title that ends in ``>`` is a column of figures; one that ends in ``!`` is never cut; the column ``wide`` gives
    way when the terminal is narrow.
    """

    def __init__(self, columns: Sequence[str], rows: Iterable[TableRow], wide: str) -> None:
        self._right = [name.endswith(">") for name in columns]
        self._whole = [name.endswith("!") for name in columns]
        titles = [name.rstrip(">!") for name in columns]
        self._wide = titles.index(wide)
        self._titles = [Text(title, "bold") for title in titles]
        self._rows = [
            TableRow([one if isinstance(one, Text) else cell(one) for one in row.cells], row.note) for row in rows
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        widths = self._widths(options.max_width)
        yield self._line(self._titles, widths)
        line = min(sum(widths) + len(_GAP) * (len(widths) - 1), options.max_width)
        yield Text(("-" if options.ascii_only else "─") * line, "dim")
        for cells, note in self._rows:
            yield self._line(cells, widths)
            if note is not None:
                below = Text.assemble(_GAP, note)
                below.truncate(options.max_width, overflow="ellipsis")
                yield below

    def _widths(self, most: int) -> list[int]:
        lines = [self._titles, *(row.cells for row in self._rows)]
        widths = [max(cell_len(str(line[index])) for line in lines) for index in range(len(self._titles))]
        room = most - len(_GAP) * (len(widths) - 1)
        others = [index for index in range(len(widths)) if index != self._wide and not self._whole[index]]
        while others and sum(widths) > room:
            rest = room - sum(width for index, width in enumerate(widths) if index != self._wide)
            widest = max(others, key=lambda index: widths[index])
            if rest >= _LEAST_WIDE or widths[widest] <= _LEAST:
                break
            widths[widest] -= 1
        rest = room - sum(width for index, width in enumerate(widths) if index != self._wide)
        widths[self._wide] = max(min(widths[self._wide], rest), _LEAST)
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
