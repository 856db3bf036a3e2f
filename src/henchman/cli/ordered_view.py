"""How ordered queues look on the command line: figures, lists of ids, one id in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from henchman.cli.table import Row, Table, cell
from henchman.cli.text import ago, count, duration, figure, moment
from henchman.inspector.ordered_id import OrderedId, OrderedPayload, OrderedStats
from henchman.kernel.text import shorten, visible

__all__ = ["id_lines", "id_table", "ordered_rows", "ordered_table", "stats_lines"]

_SHOWN_TEXT = 2000  # characters of one payload
_ORIGIN = {"set": "set by hand", "code": "as the code says"}


def ordered_rows(stats: Sequence[OrderedStats]) -> list[dict[str, Any]]:
    """Ordered queues as JSON: the fields of ``OrderedStats``; lag in seconds."""
    return [one.to_json() for one in stats]


def ordered_table(stats: Sequence[OrderedStats]) -> Table:
    """Ordered queues as a table."""

    def row(one: OrderedStats) -> Row:
        state = cell("paused", "yellow") if one.paused else cell("")
        waits = duration(one.lag) if one.lag else "–"
        figures = [one.length, one.busy, one.retries, one.morgue_length]
        return Row([one.name, figure(figures[0]), waits, *map(figure, figures[1:]), state])

    columns = ["ordered queue", "ids>", "lag>", "busy>", "retries>", "morgue>", "state"]
    return Table(columns, map(row, stats), wide="ordered queue")


def stats_lines(one: OrderedStats) -> list[str]:
    """The figures of one queue."""
    waits = f"{count(one.length, 'id')} wait: {one.fresh:,} fresh, {count(one.retries, 'retry', 'retries')}"
    limit = "no limit of claims at a time"
    if one.max_parallel:
        limit = f"at most {count(one.max_parallel, 'claim')} at a time"
    if one.max_parallel_from:
        limit += f" ({_ORIGIN[one.max_parallel_from]})"
    if one.max_per_group:
        limit += f", {count(one.max_per_group, 'id')} of a group"
    return [
        f"{one.name}{' (paused)' if one.paused else ''}: {waits}; {one.busy:,} in flight; "
        f"{one.morgue_length:,} in the morgue; lag {duration(one.lag)}",
        f"{one.processed:,} processed, {one.failed:,} failed; {limit}",
    ]


def id_table(found: Sequence[OrderedId], now: float, *, kind: str) -> Table:
    """Ids in a list: ``dead`` those of the morgue, ``busy`` those in flight, else those that wait."""
    if kind == "dead":
        return Table(["id", "died", "payloads>", "first payload"], map(_dead_row(now), found), wide="first payload")
    if kind == "busy":
        columns = ["id", "held by", "since", "lease", "payloads>", "arrived>", "first payload"]
        return Table(columns, map(_busy_row(now), found), wide="first payload")
    columns = ["id", "state", "due", "runs>", "payloads>", "first payload"]
    return Table(columns, map(_waiting_row(now), found), wide="first payload")


def _first(some: Sequence[OrderedPayload]) -> str:
    return some[0].text if some else "–"


def _waiting_row(now: float) -> Any:
    def row(one: OrderedId) -> Row:
        state = "put off" if one.put_off else one.state
        cells = [one.id, state, ago(one.due, now), str(one.retry_count + 1), figure(one.payload_count)]
        return Row([*cells, _first(one.payloads)], cell(one.error, "red") if one.error else None)

    return row


def _busy_row(now: float) -> Any:
    def row(one: OrderedId) -> Row:
        held = one.holder
        if held is None:
            return Row([one.id, *["–"] * 6])
        lease = cell(duration(held.lease_left)) if held.alive else cell("gone", "red")
        counts = [figure(one.payload_count), figure(one.arrival_count)]
        return Row([one.id, held.identity, ago(held.since, now), lease, *counts, _first(one.payloads)])

    return row


def _dead_row(now: float) -> Any:
    def row(one: OrderedId) -> Row:
        cells = [one.id, ago(one.died_at, now), figure(one.dead_count), _first(one.dead)]
        return Row(cells, cell(one.dead_error, "red") if one.dead_error else None)

    return row


def id_lines(one: OrderedId) -> Iterator[Text]:
    """Everything about one id, a line at a time."""
    yield Text.assemble(cell(one.id, "bold"), f": {_told(one)}")
    for name, value in _facts(one):
        yield Text.assemble((f"{name:<12}", "dim"), cell(value))
    yield from _pile("in flight" if one.holder else "waiting", one.payloads, one.payload_count)
    yield from _pile("arrived meanwhile", one.arrivals, one.arrival_count)
    yield from _pile("in the morgue", one.dead, one.dead_count)


def _told(one: OrderedId) -> str:
    if one.put_off:
        return "waiting; put off until its group has fewer in flight"
    if one.state == "waiting" and one.due is not None and one.due > one.at:
        return "waiting for its time"
    if one.state == "retrying":
        return f"retrying; {count(one.retry_count + 1, 'run')} failed"
    return {"dead": "dead: in the morgue", "absent": "nothing waits under this id"}.get(one.state, one.state)


def _facts(one: OrderedId) -> Iterator[tuple[str, str]]:
    if one.due is not None:
        yield "due", moment(one.due, one.at)
    if one.holder is not None:
        held = one.holder
        lease = f"its lease lives for {duration(held.lease_left)} more" if held.alive else "its lease is gone"
        yield "held by", f"{held.identity}, {lease}"
        yield "since", moment(held.since, one.at)
        yield "token", str(held.token)
    if one.holder is not None and one.retry_count >= 0:
        yield "failed", count(one.retry_count + 1, "run")
    if one.crashes:
        yield "deaths", f"{count(one.crashes, 'process', 'processes')} died with it, in a row"
    if one.error:
        yield "last error", one.error
    if one.arrivals_due is not None:
        yield "next due", moment(one.arrivals_due, one.at)
    if one.died_at is not None:
        yield "died", moment(one.died_at, one.at)
        yield "of", one.dead_error or "–"


def _pile(title: str, some: Sequence[OrderedPayload], many: int) -> Iterator[Text]:
    if not many:
        return
    yield Text()
    yield Text(f"{count(many, 'payload')} {title}, by score:", "bold")
    for one in some:
        yield Text.assemble((f"{one.score:>20.17g}  ", "dim"), _line(one.text))
    if many > len(some):
        yield Text(f"… and {many - len(some):,} more", "dim")


def _line(text: str) -> Text:
    """A payload as one line, longer than a cell of a table would be."""
    return Text(visible(shorten(text, _SHOWN_TEXT)))
