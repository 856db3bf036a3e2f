"""``henchman outbox``: how far behind the outbox is, what waits, who relays, and what the server refuses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from henchman.cli.session import Session, as_json, command
from henchman.cli.show import ago, answer, count, duration, table
from henchman.errors import ConfigError
from henchman.outbox import load
from henchman.wire import times

__all__ = ["outbox", "outbox_of"]


@contextmanager
def outbox_of(session: Session, url: str = "") -> Iterator[Any]:
    """``outbox.database.OutboxDatabase`` of these settings, or at ``url``; ConfigError when none is known."""
    url = url or session.config.outbox or ""
    if not url:
        raise ConfigError("no outbox is configured: set outbox (postgresql://, mysql://, mariadb:// or sqlite:///)")
    database = load("status").OutboxDatabase(url) if "://" in url else session.any_app.open_outbox()
    try:
        yield database
    finally:
        database.close()


@command()
@as_json
def outbox(session: Session, as_json: bool) -> None:
    """Show how far behind the outbox is, how many rows wait, who relays, and which rows the server refuses."""
    with outbox_of(session) as database:
        found = load("status").look(database, session.runner, session.keys)
    document = found._asdict() | {
        "relay": found.relay or None,
        "refused": [one._asdict() | {"created": times.iso(one.created)} for one in found.refused],
    }
    lines: list[Any] = [
        f"outbox in {found.database}",
        f"waiting: {count(found.waiting, 'row')} of {found.rows:,} · lag: {duration(found.lag)}",
        f"relay: {found.relay or 'nobody (a worker with this outbox does)'}",
    ]
    if found.duplicates:
        lines.append(f"duplicates: {count(found.duplicates, 'row')} so far, whose keys other jobs had")
    if found.refused:
        columns = {
            "jid!": lambda one: one.jid,
            "queue": lambda one: one.queue,
            "written": lambda one: ago(one.created),
            "refused because": lambda one: one.reason,
        }
        lines += [
            f"refused, tried again each minute: {found.refused_count:,}",
            table(found.refused, columns, wide="refused because"),
        ]
    answer(document, *lines, as_json=as_json)
