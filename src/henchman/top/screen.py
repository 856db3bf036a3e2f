"""The screen: a head with the counts, tabs, rows, and what is known of the row under the cursor beside or below them.

Looks at the server run on a thread of their own, one at a time; what they bring is shown unless the screen is held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, NamedTuple

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input, Static

from henchman.client.runtime import Runtime
from henchman.errors import HenchmanError, ServerAway
from henchman.inspector.differs import look_at_error
from henchman.inspector.metrics import Overview
from henchman.inspector.obstacles import explained_with_obstacles
from henchman.kernel.figures import figure
from henchman.kernel.text import shorten, visible
from henchman.oncall.deeds import Deed, Deeds, Order, Unwanted
from henchman.oncall.vitals import look as look_at_all
from henchman.store.call import run
from henchman.top.tabs import TABS, Tab, TabRow

__all__ = ["Top"]

WIDE: Final = 110  # columns from which the detail stands beside the rows
_CELL: Final = 100  # characters of a cell
_NAMES: Final = frozenset({"job", "queue", "process"})  # columns of names, which may be very long
_LINE: Final = 400  # of a line of a traceback
_TRACE: Final = 60  # lines of one

HELP: Final = (
    "1 to 8, h l, arrows   another tab",
    "g and a letter        Overview, Errors, Busy, Processes, Queues, Retries, Scheduled, Dead",
    "j k, arrows           another row",
    "enter, o, w           a job: where it is, why it is not running; an error: where it was raised",
    "/                     filter; escape takes it away",
    "space                 hold: nothing moves until you press it again",
    "q                     quit",
    "",
    "With --write, for the row under the cursor, asked before it is done:",
    "R retry or run now   K kill   D delete   C cancel   P pause   U resume   Q quiet   S stop",
    "V resolve an error: it is quiet until it returns   O open it again   M mute a finding for an hour",
)
KEYS: Final = "/ filter   enter open   space hold   ? all keys   q quit"


class TabLook(NamedTuple):
    """One look at the server: of which tab, and with which filter."""

    tab: Tab
    text: str
    seen: Overview
    rows: Sequence[TabRow]
    done: float  # jobs a second since the look before
    failed: float


def _cut(name: str, width: int) -> str:
    """A name with its end, which tells more than its beginning, so that the columns behind it stay on the screen."""
    most = max(width // 3, 24)
    return name if len(name) <= most else f"…{name[1 - most :]}"


def _plain(text: str, most: int = 4000) -> str:
    return "\n".join(visible(line) for line in shorten(text, most).split("\n"))


class YesOrNo(ModalScreen[bool]):
    """Asks once; only ``y`` says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape,enter,q", "answer(False)", "no"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{self._text}\n\ny: do it    n: leave it"), id="asked")

    def action_answer(self, answer: bool) -> None:
        self.dismiss(answer)


class TopMessage(ModalScreen[bool]):
    """Lines to read; any key closes it. ``offers``: they offer an act, to which ``x`` leads."""

    def __init__(self, lines: Sequence[str], *, offers: bool = False) -> None:
        super().__init__()
        self._lines, self._offers = lines, offers

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="sheet"):
            yield Static(Text("\n".join(self._lines)))

    def on_key(self, event: events.Key) -> None:
        if event.key not in ("up", "down", "pageup", "pagedown"):
            event.stop()
            self.dismiss(self._offers and event.key == "x")


class Top(App[None]):
    """``run()`` shows it until ``q``. ``every``: seconds between two looks."""

    CSS = """
    #head { height: 2; background: $panel; }
    #tabs { height: 1; }
    #body { height: 1fr; layout: vertical; }
    #body.wide { layout: horizontal; }
    #rows { height: 2fr; width: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
    #beside { height: 1fr; scrollbar-size-vertical: 1; border-top: solid $panel; padding: 0 1; }
    #body.wide #rows { height: 100%; }
    #body.wide #beside { height: 100%; width: 44%; border-top: none; border-left: solid $panel; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #said { height: 1; }
    YesOrNo, TopMessage { align: center middle; background: $background 60%; }
    #asked, #sheet { width: 80%; max-width: 90; height: auto; max-height: 90%; padding: 1 2; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"tab({number - 1})", one.title) for number, one in enumerate(TABS, 1)),
        Binding("l,right,tab", "step(1)", "next tab", priority=True),
        Binding("h,left,shift+tab", "step(-1)", "tab before", priority=True),
        Binding("j", "row(1)", "next row"),
        Binding("k", "row(-1)", "row before"),
        Binding("g", "go", "go to"),
        Binding("w", "why", "why"),
        Binding("o", "open", "open"),
        Binding("slash", "filter", "filter"),
        Binding("space", "hold", "hold"),
        Binding("question_mark", "help", "help"),
        Binding("q,ctrl+c", "quit", "quit", priority=True),
        Binding("escape", "clear", "no filter"),
        *(Binding(key, f"act('{key}')", key) for key in sorted({key for one in TABS for key in one.acts})),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, runtime: Runtime, label: str, *, may_act: bool, every: float, author: str = "") -> None:
        super().__init__()
        self._runtime, self._label = runtime, label
        self._may_act, self._every = may_act, every
        self._deeds, self._order = Deeds(runtime), Order(author, {})
        self._tab, self._text, self._held = TABS[0], "", False
        self._rows: Sequence[TabRow] = ()
        self._before: tuple[float, int, int] | None = None
        self._columns: tuple[str, ...] = ()
        # the parts themselves: a question may stand in front of them, and at the end nothing is found by its name
        self._lines = {name: Static(id=name) for name in ("head", "tabs", "detail", "said")}
        self._body = Container(id="body")
        self._table: DataTable[Text] = DataTable(id="rows", cursor_type="row")
        self._field = Input(id="filter", placeholder="filter: enter applies it, escape takes it away")

    def compose(self) -> ComposeResult:
        yield self._lines["head"]
        yield self._lines["tabs"]
        with self._body:
            yield self._table
            with VerticalScroll(id="beside"):
                yield self._lines["detail"]
        yield self._field
        yield self._lines["said"]

    def on_mount(self) -> None:
        """The first look, and one each ``every`` seconds."""
        self._say("" if self._may_act else "Read only: --write lets you act.  ? shows the keys.")
        self._table.focus()
        self.set_interval(self._every, self._look_again)
        self._look_again()

    def on_resize(self, event: events.Resize) -> None:
        """The detail beside the rows where there is room."""
        self._body.set_class(event.size.width >= WIDE, "wide")

    # Looking

    def _look_again(self) -> None:
        if not self._held:
            self.run_worker(self._look, thread=True, exclusive=True, group="look", exit_on_error=False)

    def _look(self) -> None:
        """On a thread: ask, then hand what was found to the screen."""
        tab, text = self._tab, self._text
        try:
            found = run(self._runtime.connections, look_at_all(self._runtime.keys, self._runtime.registry.mask))
            seen, rows = found.seen, tab.rows(self._runtime, found, text)
        except ServerAway as error:
            self._hand_over(self._say, f"The server is away, looking again: {error}")
        except HenchmanError as error:
            self._hand_over(self._say, str(error))
        else:
            self._hand_over(self._show, TabLook(tab, text, seen, rows, *self._rates(seen)))

    def _hand_over(self, step: Callable[..., Any], *args: Any) -> None:
        """Carry ``step`` out on the screen's thread; nothing when the screen is going away."""

        def carry_out() -> None:
            if self._table.is_attached:
                step(*args)

        with suppress(RuntimeError):  # it has ended
            self.call_from_thread(carry_out)

    def _rates(self, seen: Overview) -> tuple[float, float]:
        """Jobs done and failed a second since the look before."""
        now, stats = time.monotonic(), seen.stats
        before, self._before = self._before, (now, stats.processed, stats.failed)
        if before is None or now <= before[0]:
            return 0.0, 0.0
        passed = now - before[0]
        return max(stats.processed - before[1], 0) / passed, max(stats.failed - before[2], 0) / passed

    def _show(self, look: TabLook) -> None:
        if self._held or look.tab is not self._tab or look.text != self._text:
            return
        self._head(look)
        self._fill(look.rows)
        if self._said.startswith("The server is away"):
            self._say("")

    def _head(self, look: TabLook) -> None:
        s, slots = look.seen.stats, sum(one.concurrency for one in look.seen.processes)
        first = f"{self._label}  {time.strftime('%H:%M:%S UTC', time.gmtime(look.seen.at))}"
        first += "" if self._may_act else "  READ ONLY"
        second = f"done {look.done:,.0f}/s  failed {look.failed:,.1f}/s  busy {figure(s.busy)}/{figure(slots)}"
        for word, number in (("enq", s.enqueued), ("retry", s.retries), ("sched", s.scheduled), ("dead", s.dead)):
            second += f"  {word} {figure(number)}"
        self._lines["head"].update(Text(f"{_plain(first)}\n{second}", no_wrap=True, overflow="ellipsis"))
        tabs = Text(no_wrap=True, overflow="ellipsis")
        for number, one in enumerate(TABS, 1):
            tabs.append(f"{number} {one.title}", "reverse bold" if one is self._tab else "")
            tabs.append(" ")
        if self._text:
            tabs.append(f" / {visible(self._text)}", "bold")
        self._lines["tabs"].update(tabs)

    def _fill(self, rows: Sequence[TabRow]) -> None:
        """The rows anew; the cursor stays on what it stood on."""
        table, under = self._table, self._under
        kept = under.id if under else None
        if self._columns != (columns := (self._tab.name, *self._tab.columns)):
            table.clear(columns=True)
            table.add_columns(*self._tab.columns)
            self._columns, kept = columns, None
        table.clear()
        self._rows = rows
        for one in rows:
            cells = (
                _cut(cell, self.size.width) if name in _NAMES else cell
                for name, cell in zip(columns[1:], one.cells, strict=True)
            )
            table.add_row(*(Text(_plain(cell, _CELL).replace("\n", " "), no_wrap=True) for cell in cells))
        place = next((place for place, one in enumerate(rows) if one.id == kept), min(table.cursor_row, len(rows) - 1))
        if rows:
            table.move_cursor(row=max(place, 0))
        self._beside()

    @property
    def _under(self) -> TabRow | None:
        """The row under the cursor."""
        place = self._table.cursor_row
        return self._rows[place] if 0 <= place < len(self._rows) else None

    def _beside(self) -> None:
        row = self._under
        nothing = f"Nothing holds {visible(self._text)!r}." if self._text else self._tab.empty
        lines = [nothing] if row is None else row.detail
        self._lines["detail"].update(Text(_plain("\n".join(lines))))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Another row is under the cursor."""
        self._beside()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter."""
        self.action_open()

    def action_open(self) -> None:
        """Where the row leads, or why it stands where it stands."""
        row = self._under
        if row is not None and row.page:
            found = next((one for one in TABS if one.name == row.page), None)
            if found is None:
                self._say(f"This is seen in the console, on the page {row.page}.")
            else:
                self._to(found)
        else:
            self.action_why()

    _said = ""

    def _say(self, text: str) -> None:
        """The last line; without anything to say it names the keys that one needs first."""
        self._said = text
        line = Text(_plain(text or KEYS, 500).replace("\n", " "), "" if text else "dim", overflow="ellipsis")
        self._lines["said"].update(line)

    # Keys

    def _to(self, tab: Tab) -> None:
        self._tab, self._text, self._held = tab, "", False
        self._look_again()

    def action_tab(self, place: int) -> None:
        """That tab."""
        self._to(TABS[place])

    def action_step(self, by: int) -> None:
        """The tab beside this one."""
        self._to(TABS[(TABS.index(self._tab) + by) % len(TABS)])

    _going = False  # ``g`` was pressed: the next letter names a tab

    def action_go(self) -> None:
        """The next letter names a tab."""
        self._going = True

    def on_key(self, event: events.Key) -> None:
        """The letter behind ``g``."""
        if self._going and event.key != "g":
            self._going = False
            self._to_letter(event.key)

    def _to_letter(self, letter: str) -> None:
        found = next((one for one in TABS if one.letter == letter), None)
        if found is not None:
            self._to(found)

    async def action_quit(self) -> None:
        """The end, unless it is the letter behind ``g``."""
        if not self._going:
            self.exit()
        else:
            self._going = False
            self._to_letter("q")

    def action_row(self, by: int) -> None:
        """The row below or above."""
        self._table.move_cursor(row=self._table.cursor_row + by)

    def action_hold(self) -> None:
        """Let nothing move, or let it go on."""
        self._held = not self._held
        self._say("Held: space lets it go on." if self._held else "")
        self._look_again()

    def action_help(self) -> None:
        """The keys."""
        self.push_screen(TopMessage(HELP))

    def action_filter(self) -> None:
        """Ask for a text that rows must hold."""
        field = self._field
        field.value, field.styles.display = self._text, "block"
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The filter is written."""
        self._filter(event.value.strip())

    def action_clear(self) -> None:
        """No filter any more."""
        self._filter("")

    def _filter(self, text: str) -> None:
        self._field.styles.display = "none"
        self._table.focus()
        self._text, self._held = text, False
        self._look_again()

    def action_why(self) -> None:
        """Where the job under the cursor is, and why it does not run."""
        row = self._under
        if row is not None and row.jid:
            self._ask_server(lambda: self._why(row.jid))
        elif row is not None and row.group:
            self._ask_server(lambda: self._error(row.group))

    def _why(self, jid: str) -> None:
        status = self._runtime.job_status(jid)
        runtime = self._runtime
        asked = explained_with_obstacles(runtime.keys, status, runtime.config.max_retries, runtime.registry.mask)
        told, found = run(runtime.connections, asked)
        told = runtime.why_not_pushed(status) or told
        lines = [f"{status.name or 'job'} {jid}", status.state, "", _plain(told.text)]
        deed = self._deeds.known.get((told.act[0], told.act[-1])) if told.act and self._may_act else None
        offer = f"    x: {deed.title.rstrip('…')}" if deed is not None and deed.do is not None else ""
        lines += [_plain(f"→ {told.command}{offer}")] if told.command else []
        lines += [""] if found else []
        for one in found:
            lines.append(_plain(f"{'✓' if one.fine else '✕'} {one.text}" + (f": {one.advice}" if one.advice else "")))
        if status.error:
            lines += ["", _plain(f"{status.error[0]}: {status.error[1]}")]
            lines += [_plain(line, _LINE) for line in (status.entry.backtrace if status.entry else ())[:_TRACE]]
        if status.name:
            lines += ["", _plain(status.entry.call_text(2000) if status.entry else status.name)]

        def answered(wished: bool | None) -> None:
            if wished and deed is not None:
                self._ask(deed, told.act[1:-1], told.text)

        self._hand_over(self.push_screen, TopMessage(lines, offers=bool(offer)), answered)

    def _error(self, group: str) -> None:
        one, differs = run(
            self._runtime.connections, look_at_error(self._runtime.keys, group, self._runtime.clock.now())
        )
        if one is None:
            raise Unwanted("this error is not known any more")
        said = ["", "What differs", *(_plain(each.text, _LINE) for each in differs)] if differs else []
        trace = (_plain(line, _LINE) for line in one.trace)
        lines = [_plain(f"{one.error}: {one.message}"), one.id, *said, "", *trace]
        self._hand_over(self.push_screen, TopMessage(lines))

    def _ask_server(self, what: Callable[[], None]) -> None:
        """``what`` on a thread; errors in a line."""

        def ask() -> None:
            try:
                what()
            except (HenchmanError, Unwanted) as error:
                self._hand_over(self._say, str(error))

        self.run_worker(ask, thread=True, group="ask", exit_on_error=False)

    def action_act(self, key: str) -> None:
        """Ask whether to do what ``key`` means on this tab, with the row under the cursor."""
        row, deed = self._under, self._tab.acts.get(key)
        if deed is None or row is None:
            return
        if not self._may_act:
            self._say("Read only: start with --write to act.")
            return
        page, verb = deed.split()
        name = row.id if page == "findings" else row.jid or row.id
        self._ask(self._deeds.find(page, verb), [name], row.detail[0] if row.detail else name)

    def _ask(self, act: Deed, names: Sequence[str], about: str) -> None:
        """Ask whether to do it, and do it."""
        do, said = act.do, {"order": self._order} if act.asks else {}
        question = f"{act.title.rstrip('…')}: {_plain(shorten(about, 300))}\n{act.question}".strip()

        def answered(sure: bool | None) -> None:
            if sure and do is not None:
                self._ask_server(lambda: self._hand_over(self._acted, do(*names, **said)))

        self.push_screen(YesOrNo(question), answered)

    def _acted(self, said: str) -> None:
        self._say(said)
        self._look_again()
